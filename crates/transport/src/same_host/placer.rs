//! [`Placer`]: asks the engine for the place of each unit of a frame, and copies its payload
//! there out of the neighbour's memory. That is the one copy.
//!
//! The neighbour may change its memory at any time, so nothing of it is looked at in place:
//! heads were copied before they are shown to the engine, and what has to be summed is copied
//! before it is summed. Whether the payload was still what it had been told of is asked when
//! the copy is done.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use landfall_placement::{
    Check, Duration, Engine, Heads, InternetSum, Landing, PathId, Peer, Placement, Refusal, Span,
    Spans, Ticket, Unit, UnitRun,
};

use super::frame_queue::{Frame, FrameQueueView};
use crate::driver::Interest;
use crate::exchange::Turn;
use crate::memory::{PieceView, Pins, Rights};
use crate::wait::until_ready;

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    There,
    /// The neighbour has taken back what it told of, or has ended: the payload is lost on its way,
    /// and comes again as any that is lost.
    Lost,
    /// Its place is gone.
    NoPlace,
}

/// Where the payloads of a frame lie, one behind another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// In memory that is mapped here, from this byte on.
    Mapped(&'a PieceView, usize),
    /// In the memory of a process, from this address on. The descriptor tells whether the
    /// number is still its.
    Process(i32, BorrowedFd<'a>, u64),
}

impl Source<'_> {
    /// Copies `span.len` bytes from byte `at` on to their place.
    fn copy(&self, at: usize, pins: &mut Pins, span: &Span) -> Copied {
        match *self {
            Self::Mapped(view, start) => {
                // SAFETY: the words are loaded and nothing else.
                let words = unsafe { view.words() };
                if start + at + span.len as usize > view.len() as usize {
                    return Copied::Lost;
                }
                let copied = pins.copy_from_words(words, start + at, span);
                if copied.is_ok() { Copied::There } else { Copied::NoPlace }
            }
            Self::Process(pid, process, start) => {
                let Ok(place) = pins.resolve(span, Rights::WRITE) else { return Copied::NoPlace };
                let into = libc::iovec { iov_base: place.ptr.as_ptr().cast(), iov_len: place.len };
                // SAFETY: the place is lent memory that is pinned, to which there is no
                // reference.
                let read = unsafe { read_process(pid, start.wrapping_add(at as u64), into) };
                if read.is_ok() && is_alive(process) { Copied::There } else { Copied::Lost }
            }
        }
    }

    /// Copies bytes from byte `at` on to memory of the driver. Returns whether all are there.
    fn read(&self, at: usize, into: &mut [u8]) -> bool {
        match *self {
            Self::Mapped(view, start) => view.copy_out((start + at) as u64, into).is_ok(),
            Self::Process(pid, process, start) => {
                let into = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
                // SAFETY: the buffer is borrowed exclusively.
                let read = unsafe { read_process(pid, start.wrapping_add(at as u64), into) };
                read.is_ok() && is_alive(process)
            }
        }
    }
}

/// Reads the memory of another process, all that is asked for or nothing that counts.
///
/// # Safety
/// The piece may be written.
pub(super) unsafe fn read_process(pid: i32, from: u64, into: libc::iovec) -> io::Result<()> {
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: into.iov_len };
    // SAFETY: one piece each; what is read there the kernel checks, what is written here the
    // caller vouches for.
    let len = unsafe { libc::process_vm_readv(pid, &raw const into, 1, &raw const remote, 1, 0) };
    match usize::try_from(len) {
        Ok(len) if len == into.iov_len => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Has the process not ended? Then what was read by its number before was its.
fn is_alive(process: BorrowedFd<'_>) -> bool {
    let interest = Interest { fd: process.as_raw_fd(), readable: true, writable: false };
    until_ready(&[interest], Duration::ZERO).is_ok_and(|has_ended| !has_ended)
}

/// A frame that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub(super) frame: Frame,
    /// One behind another.
    pub(super) heads: &'a [u8],
    pub(super) source: Source<'a>,
    pub(super) from: Peer,
    /// What the neighbour says: whether it has taken back what it told of.
    pub(super) queue: &'a FrameQueueView,
}

impl<'a> Arrived<'a> {
    fn head(&self, unit: usize) -> &'a [u8] {
        &self.heads[unit * self.frame.head_len..][..self.frame.head_len]
    }

    /// The length of the payload of this unit.
    fn payload_of(&self, unit: usize) -> usize {
        let Frame { each, payload, units, .. } = self.frame;
        if unit + 1 == units { payload - each * (units - 1) } else { each }
    }
}

/// Asks the engine for the places of what neighbours sent, and copies payloads there.
#[derive(Debug)]
pub(super) struct Placer {
    path: PathId,
    spans: Spans,
    scratch: Vec<u8>,
}

impl Placer {
    pub(super) fn new(path: PathId) -> Self {
        Self { path, spans: Spans::new(), scratch: Vec::new() }
    }

    /// Hands the units of a frame to the engine.
    pub(super) fn settle<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrived: &Arrived<'_>,
    ) -> u32 {
        let units = arrived.frame.units;
        let mut unit = 0;
        while unit < units {
            unit += match self.settle_run(turn, arrived, unit) {
                Some(count) => count,
                None => {
                    self.settle_unit(turn, arrived, unit);
                    1
                }
            };
        }
        turn.counters.units_received += units as u64;
        units as u32
    }

    /// Asks for the places of the units from this one on. Returns how many are settled.
    fn settle_run<E: Engine>(
        &self,
        turn: &mut Turn<'_, E>,
        arrived: &Arrived<'_>,
        first: usize,
    ) -> Option<usize> {
        let Frame { units, head_len, each, ecn, .. } = arrived.frame;
        let count = units - first;
        if count < 2 || head_len == 0 {
            return None;
        }
        let heads = Heads::new(&arrived.heads[first * head_len..], head_len, head_len, count)?;
        let run = UnitRun {
            path: self.path,
            from: arrived.from,
            heads,
            unit_len: (head_len + each) as u32,
            last_len: (head_len + arrived.payload_of(units - 1)) as u32,
            ecn,
        };
        let placed = turn.engine.place_run(turn.now, &run)?;
        let settled = usize::from(placed.units);
        let is_right = usize::from(placed.at) == head_len
            && run.payload_len(placed.at.into(), settled) == Some(placed.span.len.into());
        turn.counters.malformed += u64::from(!is_right);
        let copied = match is_right {
            true => arrived.source.copy(first * each, turn.pins, &placed.span),
            false => Copied::NoPlace,
        };
        announce(turn, arrived, placed.ticket, (copied, placed.span.len.into()));
        Some(settled.clamp(1, count))
    }

    fn settle_unit<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrived: &Arrived<'_>,
        nth: usize,
    ) {
        let unit = Parts {
            head: arrived.head(nth),
            payload: arrived.payload_of(nth),
            source: arrived.source,
            source_at: nth * arrived.frame.each,
        };
        match self.ask(turn, arrived, &unit) {
            Ok(Placement::Into { at, check, ticket }) => {
                let at = usize::from(at);
                let wanted = self.spans.total_len();
                let fits = at as u64 + wanted <= unit.len() as u64;
                turn.counters.malformed += u64::from(!fits);
                let copied = match check {
                    _ if !fits => Some(Copied::NoPlace),
                    Check::None => Some(unit.write(at, &self.spans, turn.pins)),
                    // Anyone who seals sends nothing this way.
                    Check::Sealed { .. } => None,
                    Check::InternetSum { from, len, seed } => {
                        self.write_summed(turn, &unit, at, (from.into(), len as usize, seed))
                    }
                };
                match copied {
                    Some(copied) => announce(turn, arrived, ticket, (copied, wanted)),
                    None => turn.engine.handle_placed(turn.now, ticket, Landing::Corrupt),
                }
            }
            Ok(Placement::Word(op, ticket)) => {
                let landing = turn.pins.word(&op).map_or(Landing::Failed, Landing::Old);
                turn.counters.misplaced += u64::from(landing == Landing::Failed);
                turn.engine.handle_placed(turn.now, ticket, landing);
            }
            Ok(Placement::Consumed) => {}
            Ok(Placement::NeedHead(_)) => turn.counters.malformed += 1,
            Err(_) => turn.counters.refused += 1,
        }
    }

    /// Calls [`Engine::place`], with a longer head if the engine needs one: what it wants of
    /// the payload is copied before it is shown.
    fn ask<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrived: &Arrived<'_>,
        parts: &Parts<'_>,
    ) -> Result<Placement, Refusal> {
        let (path, from, ecn) = (self.path, arrived.from, arrived.frame.ecn);
        let len = parts.len() as u32;
        let unit = Unit { path, from, head: parts.head, len, segment: None, ecn, verified: false };
        self.spans.clear();
        let mut result = turn.engine.place(turn.now, &unit, &mut self.spans);
        let mut have = parts.head.len();
        while let Ok(Placement::NeedHead(want)) = result {
            let want = usize::from(want);
            if want <= have || want > parts.len() || !parts.read(want, &mut self.scratch) {
                break;
            }
            have = want;
            self.spans.clear();
            let unit = Unit { head: &self.scratch, ..unit };
            result = turn.engine.place(turn.now, &unit, &mut self.spans);
        }
        result
    }

    /// Writes what has to be summed. What was summed is what is written: it is copied once
    /// more. Returns nothing where the sum is wrong.
    fn write_summed<E>(
        &mut self,
        turn: &mut Turn<'_, E>,
        unit: &Parts<'_>,
        at: usize,
        (from, len, seed): (usize, usize, u16),
    ) -> Option<Copied> {
        if !unit.read(unit.len(), &mut self.scratch) {
            return Some(Copied::Lost);
        }
        let mut sum = InternetSum::new();
        sum.add_word(seed);
        let summed = from.checked_add(len).and_then(|end| self.scratch.get(from..end));
        if let Some(bytes) = summed {
            sum.add(bytes);
        }
        turn.counters.bytes_summed += len as u64;
        if summed.is_none() || sum.sum() != 0xffff {
            turn.counters.corrupt += 1;
            return None;
        }
        let mut rest = self.scratch.get(at..).unwrap_or_default();
        turn.counters.bytes_copied += self.spans.total_len();
        let is_there = self.spans.iter().all(|span| {
            let (bytes, behind) = rest.split_at(rest.len().min(span.len as usize));
            rest = behind;
            turn.pins.copy_in(span, bytes).is_ok()
        });
        Some(if is_there { Copied::There } else { Copied::NoPlace })
    }
}

/// A unit: its head here, its payload at the neighbour's.
struct Parts<'a> {
    head: &'a [u8],
    payload: usize,
    source: Source<'a>,
    /// Where in the source its payload begins.
    source_at: usize,
}

impl Parts<'_> {
    const fn len(&self) -> usize {
        self.head.len() + self.payload
    }

    /// Reads its first bytes, of which there are that many.
    fn read(&self, len: usize, into: &mut Vec<u8>) -> bool {
        into.clear();
        into.extend_from_slice(&self.head[..self.head.len().min(len)]);
        let from_head = into.len();
        into.resize(len, 0);
        self.source.read(self.source_at, &mut into[from_head..])
    }

    /// Writes its bytes from `at` on to their places.
    fn write(&self, at: usize, spans: &Spans, pins: &mut Pins) -> Copied {
        let mut at = at;
        for span in spans.iter() {
            let of_head = self.head.get(at..).unwrap_or_default();
            let of_head = &of_head[..of_head.len().min(span.len as usize)];
            let (front, rest) = span.split_at(of_head.len() as u32);
            at += of_head.len();
            if !of_head.is_empty() && pins.copy_in(&front, of_head).is_err() {
                return Copied::NoPlace;
            }
            let from = self.source_at + at.saturating_sub(self.head.len());
            at += rest.len as usize;
            if rest.len > 0 {
                let copied = self.source.copy(from, pins, &rest);
                if copied != Copied::There {
                    return copied;
                }
            }
        }
        Copied::There
    }
}

/// Tells the engine what became of a payload: it is in place if it was copied, and what was
/// copied was still what the neighbour had told of. One that is not is as one whose check fails.
fn announce<E: Engine>(
    turn: &mut Turn<'_, E>,
    arrived: &Arrived<'_>,
    ticket: Ticket,
    (copied, len): (Copied, u64),
) {
    turn.counters.bytes_copied += len;
    let landing = match copied {
        Copied::There if !arrived.queue.is_closed() => {
            turn.counters.payload_bytes += len;
            Landing::Unchecked
        }
        Copied::There | Copied::Lost => Landing::Corrupt,
        Copied::NoPlace => Landing::Failed,
    };
    turn.counters.misplaced += u64::from(landing != Landing::Unchecked);
    turn.engine.handle_placed(turn.now, ticket, landing);
}
