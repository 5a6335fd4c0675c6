//! What adapters tell: reports go to the engine; a frame that was handed over whole the engine
//! places and the processor copies.

use landfall_placement::{
    Check, Engine, Instant, InternetSum, Landing, Placement, Refusal, Refusals, Span, Spans, Unit,
    WordOp,
};

use super::{NicNode, Offloaded, Reached};
use crate::firmware::{Arrival, Firmware, HostMemory};
use crate::machine::Upcall;

/// Memory of the host, as its processor reaches it.
pub(crate) trait ProcessorMemory: HostMemory {
    /// Does a word operation, and gives what the word held before; nothing where that
    /// is no memory that may be used so.
    fn word(&mut self, op: WordOp) -> Option<u64>;
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyOutcome {
    /// This many bytes of it lie in their place.
    Copied(u64),
    /// Its check failed.
    Corrupt,
    /// Its place is gone, or it is shorter than it says.
    Failed,
    /// It was an operation on a word, which was done or could not be.
    Word {
        /// It was done.
        is_done: bool,
    },
    /// The engine has taken all there was to it.
    Consumed,
    /// The engine refused it, and counted that.
    Refused,
}

/// Lets the engine place a frame, and copies its payload there.
pub(crate) fn take_frame<E: Engine>(
    engine: &mut E,
    memory: &mut impl ProcessorMemory,
    now: Instant,
    frame: &Arrival<'_>,
    refusals: &mut Refusals,
) -> CopyOutcome {
    let mut into = Spans::new();
    let (landing, ticket, took) = match place(engine, refusals, now, frame, &mut into) {
        Ok(Placement::Into { at, check, ticket }) => {
            let (landing, took) = land(memory, frame, usize::from(at), check, &into);
            (landing, ticket, took)
        }
        Ok(Placement::Word(op, ticket)) => {
            let old = memory.word(op);
            let landing = old.map_or(Landing::Failed, Landing::Old);
            (landing, ticket, CopyOutcome::Word { is_done: old.is_some() })
        }
        Ok(Placement::Consumed | Placement::NeedHead(_)) => return CopyOutcome::Consumed,
        Err(_) => return CopyOutcome::Refused,
    };
    engine.handle_placed(now, ticket, landing);
    took
}

/// Writes the next thing that the engine kept to its place. Returns how many bytes it
/// had, and whether they are there; nothing where nothing is kept.
pub(crate) fn take_deposit<E: Engine>(
    engine: &mut E,
    memory: &mut impl ProcessorMemory,
    now: Instant,
) -> Option<(u64, bool)> {
    let mut into = Spans::new();
    let deposit = engine.poll_deposit(now, &mut into)?;
    let (ticket, bytes) = (deposit.ticket, deposit.bytes);
    let len = bytes.len() as u64;
    let is_there = into.total_len() == len && copy(memory, &into, bytes);
    let landing = if is_there { Landing::Verified } else { Landing::Failed };
    engine.handle_placed(now, ticket, landing);
    Some((len, is_there))
}

/// Asks the engine, which sees all there is.
fn place<E: Engine>(
    engine: &mut E,
    refusals: &mut Refusals,
    now: Instant,
    frame: &Arrival<'_>,
    into: &mut Spans,
) -> Result<Placement, Refusal> {
    let unit = Unit {
        path: frame.path,
        from: frame.from,
        head: frame.bytes,
        len: frame.bytes.len() as u32,
        segment: None,
        ecn: frame.ecn,
        verified: false,
    };
    match engine.place(now, &unit, into)? {
        Placement::NeedHead(_) => Err(refusals.count(Refusal::Truncated)),
        placement => Ok(placement),
    }
}

/// Checks a payload, and copies it to its spans.
fn land(
    memory: &mut impl ProcessorMemory,
    frame: &Arrival<'_>,
    at: usize,
    check: Check,
    into: &Spans,
) -> (Landing, CopyOutcome) {
    const FAILED: (Landing, CopyOutcome) = (Landing::Failed, CopyOutcome::Failed);
    if !into.iter().all(|span| memory.is_writable(*span)) {
        return FAILED;
    }
    let Some(payload) = frame.bytes.get(at..) else { return FAILED };
    if into.total_len() > payload.len() as u64 {
        return FAILED;
    }
    let landing = match check {
        Check::None => Landing::Unchecked,
        Check::InternetSum { from, len, seed } if is_sum_right(frame.bytes, from, len, seed) => {
            Landing::Verified
        }
        // An adapter has no keys: engines behind one do not seal.
        Check::InternetSum { .. } | Check::Sealed { .. } => {
            return (Landing::Corrupt, CopyOutcome::Corrupt);
        }
    };
    if !copy(memory, into, payload) {
        return FAILED;
    }
    (landing, CopyOutcome::Copied(into.total_len()))
}

fn is_sum_right(bytes: &[u8], from: u16, len: u32, seed: u16) -> bool {
    let from = usize::from(from);
    let end = from.checked_add(len as usize);
    let Some(summed) = end.and_then(|end| bytes.get(from..end)) else { return false };
    let mut sum = InternetSum::new();
    sum.add(summed);
    sum.add_word(seed);
    sum.sum() == 0xffff
}

/// Copies bytes to spans that are no longer. Where one of them may not be written,
/// nothing is.
fn copy(memory: &mut impl ProcessorMemory, into: &[Span], mut bytes: &[u8]) -> bool {
    if !into.iter().all(|span| memory.is_writable(*span)) {
        return false;
    }
    into.iter().all(|span| {
        let (part, rest) = bytes.split_at(span.len as usize);
        bytes = rest;
        memory.write(*span, part)
    })
}

impl<F, E> NicNode<F, E>
where
    E: Offloaded + 'static,
    F: Firmware<Command = E::Command, Report = E::Report> + 'static,
{
    /// Takes what an adapter has told, in order.
    pub(super) fn take_upcalls(&mut self, now: Instant, index: usize) -> bool {
        let mut is_busy = false;
        while let Some(upcall) = self.adapters[index].poll_upcall() {
            is_busy = true;
            match upcall {
                Upcall::Report(report) => {
                    self.host.engine.handle_report(now, index as u8, &report);
                }
                Upcall::Frame(buffer) => {
                    self.take_frame(now, index, buffer);
                    self.adapters[index].give_back(buffer);
                }
            }
        }
        is_busy
    }

    /// The software path: place, write, report.
    fn take_frame(&mut self, now: Instant, index: usize, buffer: u16) {
        let Some(frame) = self.adapters[index].frame(buffer) else { return };
        let mut memory = Reached { memory: &mut self.host.memory, now };
        let took =
            take_frame(&mut self.host.engine, &mut memory, now, &frame, &mut self.host.refused);
        let counters = &mut self.host.counted;
        counters.units += 1;
        match took {
            CopyOutcome::Copied(bytes) => counters.copied_bytes += bytes,
            CopyOutcome::Corrupt => counters.corrupt += 1,
            CopyOutcome::Failed => counters.failed += 1,
            CopyOutcome::Word { .. } => counters.words += 1,
            // The engine counted its own refusals.
            CopyOutcome::Consumed | CopyOutcome::Refused => {}
        }
    }

    /// What the engine kept goes to its place.
    pub(super) fn take_deposits(&mut self, now: Instant, budget: &mut usize) {
        while *budget > 0 {
            let mut memory = Reached { memory: &mut self.host.memory, now };
            let Some((bytes, is_there)) = take_deposit(&mut self.host.engine, &mut memory, now)
            else {
                return;
            };
            *budget -= 1;
            if is_there {
                self.host.counted.deposits += 1;
                self.host.counted.copied_bytes += bytes;
            } else {
                self.host.counted.failed += 1;
            }
        }
    }
}
