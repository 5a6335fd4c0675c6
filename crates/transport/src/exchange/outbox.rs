//! Gathering what leaves: heads in scratch places, payloads from where they lie.
//!
//! Units are polled ahead, up to a batch, and grouped into runs that one
//! system call can send. What could not be sent stays for the next turn.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

use landfall_placement::{
    Ecn, Engine, Instant, PathId, PathLimits, Peer, RunRoom, Span, Spans, Ticket, Transmit,
    TransmitRun,
};

use super::sealed::SealedBytes;
use super::{IoVecs, MAX_UNITS, PREFIX_ROOM, Prefix, SEND_HEAD_ROOM};
use crate::driver::Counters;
use crate::memory::{Pinned, Pins, RawSpan, Rights};

/// One unit that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: Peer,
    pub(crate) len: usize,
    pub(crate) head_len: usize,
    pub(crate) ecn: Ecn,
    /// What the engine hears once this unit has left: for the last of a run, of all of it.
    pub(super) ticket: Option<Ticket>,
    pub(super) iovecs: Range<usize>,
    /// Its payload in the outbox's list of spans.
    pub(super) payload: Range<usize>,
    /// Where its payload lies among the sealed bytes, if it is sealed.
    pub(super) sealed: Option<Range<usize>>,
}

/// Units that may leave with one system call.
#[derive(Debug)]
pub(crate) struct Gathered<'a> {
    #[cfg_attr(not(feature = "io-uring"), expect(dead_code, reason = "for sends of several"))]
    pub(crate) first: &'a Outgoing,
    /// The head of the first.
    #[cfg_attr(not(feature = "io-uring"), expect(dead_code, reason = "for sends of several"))]
    pub(crate) head: &'a [u8],
    #[cfg_attr(not(feature = "io-uring"), expect(dead_code, reason = "for sends of several"))]
    pub(crate) count: usize,
    /// The pieces of all.
    pub(crate) pieces: &'a mut [libc::iovec],
}

/// Units of one length whose payloads lie behind one another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrontRun {
    pub(crate) count: usize,
    pub(crate) ecn: Ecn,
    pub(crate) head_len: usize,
    /// The length of each payload but the last, which may be shorter.
    pub(crate) each: usize,
    /// The length of all.
    pub(crate) payload: usize,
    /// Where all of them lie. None: in several places, or nowhere.
    pub(crate) span: Option<Span>,
}

/// What one system call may send at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    pub(crate) units: usize,
    pub(crate) bytes: usize,
}

/// A longer UDP batch falls apart into single datagrams, silently.
pub(crate) const LONGEST_BATCH: usize = 65_472;
/// Linux takes a list of 1024 (UIO_MAXIOV), of which a driver may want one for a header.
const MAX_PIECES: usize = 1023;

/// The sending half of a driver, without its system call.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(super) path: PathId,
    pub(super) limits: PathLimits,
    pub(super) heads: Box<[[u8; SEND_HEAD_ROOM]; MAX_UNITS]>,
    /// What a driver wants in front of each unit: a virtio-net header.
    pub(super) prefixes: Box<[Prefix; MAX_UNITS]>,
    pub(super) prefix_len: usize,
    /// This many bytes are polled at once.
    pub(super) batch_bytes: usize,
    /// How many units were polled since the outbox was last empty.
    pub(super) filled: usize,
    /// And how many bytes they have.
    pub(super) filled_bytes: usize,
    pub(super) waiting: VecDeque<Outgoing>,
    pub(super) iovecs: IoVecs,
    /// The payloads of all that waits.
    pub(super) payloads: Vec<Span>,
    pub(super) gathered: Spans,
    pub(super) pins: Pins,
    /// Payloads that were copied and sealed, where the engine seals.
    pub(super) sealed: SealedBytes,
}

impl Outbox {
    /// An outbox that puts `prefix_len` bytes of the driver's before each unit.
    pub(crate) fn new(path: PathId, limits: PathLimits, pins: Pins, prefix_len: usize) -> Self {
        Self {
            path,
            limits,
            heads: Box::new([[0; SEND_HEAD_ROOM]; MAX_UNITS]),
            prefixes: Box::new([[0; PREFIX_ROOM]; MAX_UNITS]),
            prefix_len,
            batch_bytes: LONGEST_BATCH,
            filled: 0,
            filled_bytes: 0,
            waiting: VecDeque::with_capacity(MAX_UNITS),
            iovecs: IoVecs::with_capacity(3 * MAX_UNITS),
            payloads: Vec::with_capacity(2 * MAX_UNITS),
            gathered: Spans::new(),
            pins,
            sealed: SealedBytes::default(),
        }
    }

    /// For drivers whose batches are no longer than this many bytes.
    pub(crate) fn with_batches_of(self, batch_bytes: usize) -> Self {
        Self { batch_bytes, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many bytes wait.
    #[cfg(feature = "io-uring")]
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.iter().map(|unit| unit.len).sum()
    }

    /// How many units wait.
    #[cfg(feature = "io-uring")]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Polls the engine until the batch is full or nothing is left to send.
    /// Does nothing while units of the last batch still wait.
    pub(crate) fn fill<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        write_prefix: impl Fn(&Transmit, &mut Prefix),
    ) {
        if !self.waiting.is_empty() {
            return;
        }
        self.pins.release();
        self.iovecs.clear();
        self.payloads.clear();
        self.sealed.clear();
        self.filled = 0;
        self.filled_bytes = 0;
        // One more of the first one's length would not fit in the same call,
        // and a call for the last of 64 alone is a call too many.
        // Units whose memory is gone count too: an engine that sends them again
        // at once must not keep the driver here.
        for _ in 0..MAX_UNITS {
            let first = self.waiting.front().map_or(0, |unit| unit.len);
            let is_full = self.filled_bytes + first > self.batch_bytes;
            if is_full || self.filled == MAX_UNITS {
                break;
            }
            let any = self.fill_run(engine, now, counters, &write_prefix)
                || self.fill_unit(engine, now, counters, &write_prefix);
            if !any {
                break;
            }
        }
    }

    /// Polls the engine for a run. Returns whether there was one.
    fn fill_run<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        write_prefix: impl Fn(&Transmit, &mut Prefix),
    ) -> bool {
        let most_bytes = self.batch_bytes.saturating_sub(self.filled_bytes) as u32;
        let heads = self.heads[self.filled..].as_flattened_mut();
        let mut room = RunRoom::new(heads, SEND_HEAD_ROOM, most_bytes);
        let Some(run) = engine.poll_transmit_run(now, self.path, &mut room) else { return false };
        let is_gathered = if engine.seals() {
            self.seal_run(engine, &run, counters, write_prefix)
        } else {
            self.gather_run(&run, write_prefix)
        };
        if !is_gathered {
            counters.send_failed += u64::from(run.units);
            engine.handle_sent(now, run.ticket);
        }
        true
    }

    /// Polls the engine for a unit. Returns whether there was one.
    fn fill_unit<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        write_prefix: impl Fn(&Transmit, &mut Prefix),
    ) -> bool {
        let head = &mut self.heads[self.filled];
        self.gathered.clear();
        let room = &mut head[..usize::from(self.limits.head).min(SEND_HEAD_ROOM)];
        let Some(unit) = engine.poll_transmit(now, self.path, room, &mut self.gathered) else {
            return false;
        };
        let gathered = if engine.seals() {
            self.seal_unit(engine, &unit, counters)
        } else {
            self.gather(&unit, counters)
        };
        match gathered {
            Some(outgoing) => {
                // What is summed already is not left to the device again.
                let is_left = outgoing.sealed.is_none() && self.device_sums(&unit);
                let checksum = unit.checksum.filter(|_| is_left);
                let unit = Transmit { checksum, ..unit };
                write_prefix(&unit, &mut self.prefixes[self.filled]);
                self.push(outgoing);
            }
            None => {
                counters.send_failed += 1;
                engine.handle_sent(now, unit.ticket);
            }
        }
        true
    }

    /// One more unit waits.
    pub(super) fn push(&mut self, outgoing: Outgoing) {
        self.filled += 1;
        self.filled_bytes += outgoing.len;
        self.waiting.push_back(outgoing);
    }

    /// Does the device fill in the checksum of this unit? Not over bytes that
    /// it does not get.
    const fn device_sums(&self, unit: &Transmit) -> bool {
        self.limits.offloads.sum_send && unit.sum_only == 0
    }

    /// Lists the pieces of a unit. None if its memory is not (or no longer)
    /// lent, or if it cannot be summed as the engine wants it.
    fn gather(&mut self, unit: &Transmit, counters: &mut Counters) -> Option<Outgoing> {
        let sent = self.gathered.total_len().checked_sub(u64::from(unit.sum_only))?;
        if unit.sum_only > 0 && unit.segment.is_some() {
            return None;
        }
        let device_sums = self.device_sums(unit);
        let head_len = usize::from(unit.head_len).min(SEND_HEAD_ROOM);
        let head = &mut self.heads[self.filled][..head_len];
        if let Some(slot) = unit.checksum.filter(|_| !device_sums) {
            let payload = self.pins.sum(&self.gathered).ok()?;
            // A slot outside of the head is none: the engine's unit leaves as it is.
            slot.fill(head, payload);
            counters.bytes_summed += head_len as u64 + self.gathered.total_len();
        }
        self.gathered.truncate(sent);
        let start = self.iovecs.len();
        if self.prefix_len > 0 {
            self.iovecs.push_slice(&mut self.prefixes[self.filled][..self.prefix_len]);
        }
        self.iovecs.push_slice(head);
        let payloads = self.payloads.len();
        self.payloads.extend_from_slice(&self.gathered);
        let mut len = head_len;
        for span in self.gathered.iter() {
            let Ok(place) = self.pins.resolve(span, Rights::READ) else {
                self.iovecs.truncate(start);
                return None;
            };
            self.iovecs.push(place.ptr, place.len);
            len += place.len;
        }
        Some(Outgoing {
            to: unit.to,
            len,
            head_len,
            ecn: unit.ecn,
            ticket: Some(unit.ticket),
            iovecs: start..self.iovecs.len(),
            payload: payloads..self.payloads.len(),
            sealed: None,
        })
    }

    /// Lists the pieces of a run. False if its memory is not (or no longer) lent, or if it
    /// is no run at all.
    fn gather_run(
        &mut self,
        run: &TransmitRun,
        write_prefix: impl Fn(&Transmit, &mut Prefix),
    ) -> bool {
        let (units, head_len) = (usize::from(run.units), usize::from(run.head_len));
        let fits = units <= MAX_UNITS - self.filled && head_len <= SEND_HEAD_ROOM;
        if !fits || !run.is_consistent() {
            return false;
        }
        let Ok(mut place) = self.pins.resolve(&run.span, Rights::READ) else { return false };
        let mut rest = run.span;
        let unit = Transmit {
            to: run.to,
            head_len: run.head_len,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: run.ecn,
            ticket: run.ticket,
        };
        for nth in 1..=units {
            let (span, behind) = rest.split_at(run.payload_len);
            let (payload, place_behind) = place.split_at(span.len as usize);
            (rest, place) = (behind, place_behind);
            let (start, first) = (self.iovecs.len(), self.payloads.len());
            if self.prefix_len > 0 {
                write_prefix(&unit, &mut self.prefixes[self.filled]);
                self.iovecs.push_slice(&mut self.prefixes[self.filled][..self.prefix_len]);
            }
            self.iovecs.push_slice(&mut self.heads[self.filled][..head_len]);
            self.iovecs.push(payload.ptr, payload.len);
            self.payloads.push(span);
            self.push(Outgoing {
                to: run.to,
                len: head_len + payload.len,
                head_len,
                ecn: run.ecn,
                // All of it is free when the last has left.
                ticket: (nth == units).then_some(run.ticket),
                iovecs: start..self.iovecs.len(),
                payload: first..first + 1,
                sealed: None,
            });
        }
        true
    }

    /// How many of the next units can leave with one call: those to one peer,
    /// with one mark and one length; a shorter one ends the run.
    pub(crate) fn next_run(&self, limits: RunLimits) -> usize {
        self.run_from(0, limits)
    }

    /// The same for the units from number `at` of those that wait.
    pub(crate) fn run_from(&self, at: usize, limits: RunLimits) -> usize {
        let Some(first) = self.waiting.get(at) else { return 0 };
        let mut bytes = 0;
        let mut count = 0;
        for unit in self.waiting.range(at..) {
            bytes += unit.len;
            let pieces = unit.iovecs.end - first.iovecs.start;
            let alike = unit.to == first.to && unit.ecn == first.ecn && unit.len <= first.len;
            let fits = count < limits.units && bytes <= limits.bytes && pieces <= MAX_PIECES;
            if count > 0 && !(alike && fits) {
                break;
            }
            count += 1;
            if unit.len < first.len {
                break;
            }
        }
        count
    }

    /// The next unit to send.
    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.waiting.front()
    }

    /// Copies the next unit. Returns how many bytes of payload were copied.
    pub(crate) fn copy_front(&mut self, into: &mut Vec<u8>) -> usize {
        into.clear();
        into.resize(self.front().map_or(0, |unit| unit.len), 0);
        self.copy_part(0, into)
    }

    /// Copies a part of the next unit, from byte `from` on; all that is asked
    /// for exists. Returns how many bytes of payload were copied.
    pub(crate) fn copy_part(&mut self, from: usize, into: &mut [u8]) -> usize {
        let Some(unit) = self.waiting.front() else { return 0 };
        let head = &self.heads[self.filled - self.waiting.len()][..unit.head_len];
        let head = head.get(from..).unwrap_or_default();
        let (head_part, mut rest) = into.split_at_mut(head.len().min(into.len()));
        head_part.copy_from_slice(&head[..head_part.len()]);
        let copied = rest.len();
        let mut skip = from.saturating_sub(unit.head_len);
        if let Some(sealed) = &unit.sealed {
            self.sealed.copy_out(sealed, skip, rest);
            return copied;
        }
        for span in &self.payloads[unit.payload.clone()] {
            let part = span.split_at(skip as u32).1;
            skip = skip.saturating_sub(span.len as usize);
            let (into, behind) = rest.split_at_mut(rest.len().min(part.len as usize));
            // Its grant may have ended since it was polled. Then nobody has a
            // right to the bytes: zeros are sent, and fail every check.
            if self.pins.copy_out(&part.split_at(into.len() as u32).0, into).is_err() {
                into.fill(0);
            }
            rest = behind;
        }
        copied
    }

    /// The next units that can be told of together: payloads of one length behind one
    /// another, up to where the engine wants to hear that its memory is free.
    pub(crate) fn front_run(&self) -> Option<FrontRun> {
        let spans = |unit: &Outgoing| &self.payloads[unit.payload.clone()];
        let mut unit = self.waiting.front()?;
        let each = unit.len - unit.head_len;
        let span = if let [span] = spans(unit) { Some(*span) } else { None };
        let (to, ecn, head_len) = (unit.to, unit.ecn, unit.head_len);
        let mut run = FrontRun { count: 1, ecn, head_len, each, payload: each, span };
        for next in self.waiting.range(1..) {
            let (Some(all), [span]) = (&mut run.span, spans(next)) else { break };
            let len = next.len - next.head_len;
            let is_behind = span.region == all.region && all.end() == Some(span.offset);
            let is_alike = (next.to, next.ecn, next.head_len) == (to, ecn, head_len);
            let is_last = unit.ticket.is_some() || unit.len < each + head_len;
            if is_last || !is_behind || !is_alike || len > each {
                break;
            }
            all.len += span.len;
            run.payload += len;
            run.count += 1;
            unit = next;
        }
        Some(run)
    }

    /// Copies the payloads of the next `count` units behind one another into words that
    /// others may read. Returns whether all of them were there.
    pub(crate) fn copy_payloads(&mut self, count: usize, to: &[AtomicU64], mut at: usize) -> bool {
        let mut is_there = true;
        for unit in self.waiting.iter().take(count) {
            for span in &self.payloads[unit.payload.clone()] {
                is_there &= self.pins.copy_to_words(span, to, at).is_ok();
                at += span.len as usize;
            }
        }
        is_there
    }

    /// Where a payload lies, held until the pin is dropped.
    pub(crate) fn pin(&self, span: &Span) -> Option<(Pinned, RawSpan)> {
        let pinned = self.pins.regions().pin(span.region).ok()?;
        let place = pinned.resolve(span, Rights::READ).ok()?;
        Some((pinned, place))
    }

    /// Takes the next `count` units out, which somebody else sees to from now on. Returns what
    /// the engine is to hear when they are out of its hands, of which there is one at most in
    /// a [`front_run`](Self::front_run).
    pub(crate) fn hand_over(&mut self, count: usize) -> Option<Ticket> {
        let ticket = self.waiting.drain(..count).filter_map(|unit| unit.ticket).next_back();
        if self.waiting.is_empty() {
            self.pins.release();
        }
        ticket
    }

    /// The pieces of the next `count` units.
    pub(crate) fn pieces(&mut self, count: usize) -> &mut [libc::iovec] {
        self.run(0, count).map_or(&mut [], |units| units.pieces)
    }

    /// The units that wait, each with its head and its pieces.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Outgoing, &[u8], &[libc::iovec])> {
        let heads = &self.heads[self.filled - self.waiting.len()..];
        self.waiting.iter().zip(heads).map(|(unit, head)| {
            let pieces = &self.iovecs.as_slice()[unit.iovecs.clone()];
            (unit, &head[..unit.head_len], pieces)
        })
    }

    /// The `count` units from number `at` of those that wait.
    pub(crate) fn run(&mut self, at: usize, count: usize) -> Option<Gathered<'_>> {
        let last = at + count.checked_sub(1)?;
        let (first, last) = (self.waiting.get(at)?, self.waiting.get(last)?);
        let pieces = first.iovecs.start..last.iovecs.end;
        // Those that wait are the last of those that were filled in.
        let nth = self.filled - self.waiting.len() + at;
        Some(Gathered {
            head: &self.heads[nth][..first.head_len],
            first,
            count,
            pieces: &mut self.iovecs.as_mut_slice()[pieces],
        })
    }

    /// The next `count` units are out of the driver's hands.
    pub(crate) fn done<E: Engine>(&mut self, engine: &mut E, now: Instant, count: usize) {
        for ticket in self.waiting.drain(..count).filter_map(|unit| unit.ticket) {
            engine.handle_sent(now, ticket);
        }
        if self.waiting.is_empty() {
            self.pins.release();
        }
    }
}

// Tickets of the engine behind the tickets of the wrapper.
//
// A unit may leave twice, or much later than the engine sent it. The engine
// hears that its memory is free once the last copy is out of the driver's hands.

/// A unit that the engine sent and that has not left in all its copies.
#[derive(Debug)]
struct Original<T> {
    ticket: Ticket,
    copies: u32,
    note: T,
}

/// All units under way, by index; the generation tells old tickets apart. The
/// wrapper may note something with each.
#[derive(Debug, Default)]
pub(crate) struct Originals<T> {
    slots: Vec<(u32, Option<Original<T>>)>,
    free: Vec<u32>,
}

impl<T> Originals<T> {
    /// The wrapper's ticket for a unit of which this many copies will leave.
    pub(crate) fn insert(&mut self, ticket: Ticket, copies: u32, note: T) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        *slot = Some(Original { ticket, copies, note });
        Ticket::new(index, *generation)
    }

    /// One copy left. With the last one: the engine's ticket, and what was noted.
    pub(crate) fn one_left(&mut self, ours: Ticket) -> Option<(Ticket, T)> {
        let (generation, slot) = self.slots.get_mut(ours.index() as usize)?;
        let original = slot.as_mut().filter(|_| *generation == ours.generation())?;
        original.copies -= 1;
        if original.copies > 0 {
            return None;
        }
        let original = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(ours.index());
        Some((original.ticket, original.note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_hears_of_the_last_copy_only() {
        let mut originals = Originals::default();
        let ours = originals.insert(Ticket::from_raw(77), 2, Some(3));
        assert_eq!(originals.one_left(ours), None);
        assert_eq!(originals.one_left(ours), Some((Ticket::from_raw(77), Some(3))));
        assert_eq!(originals.one_left(ours), None, "invariant 7: stale is harmless");
        let next = originals.insert(Ticket::from_raw(78), 1, None);
        assert_ne!(ours, next);
        assert_eq!(originals.one_left(ours), None);
        assert_eq!(originals.one_left(next), Some((Ticket::from_raw(78), None)));
    }
}
