//! Frames of one ethertype, many a call: nothing coalesces them, so the calls
//! are what can be saved.

use std::io;
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant, PathId};

use super::link::Link;
use super::message::{ReceiveHeader, SendHeader};
use super::receive::Received;
use crate::driver::Counters;
use crate::exchange::{Batch, Came, Inbox, MAX_LISTS, MAX_UNITS, Outbox, Turn};
use crate::memory::{Pins, Regions};

/// While frames keep coming, so many calls receive in one turn.
const CALLS_PER_TURN: u32 = 4;

/// Receives and sends several frames with a call.
pub(super) struct Several {
    link: Link,
    inbox: Inbox,
    /// The memory that is posted, pinned until it is settled.
    pins: Pins,
    incoming: Box<[ReceiveHeader]>,
    outgoing: Box<[SendHeader]>,
    batch: Batch,
    /// The last receive found something: more may wait.
    streaming: bool,
}

impl Several {
    pub(super) fn new(path: PathId, link: Link, regions: &Regions) -> Self {
        Self {
            link,
            inbox: Inbox::of_lists(path, MAX_LISTS, link.prefix_len()),
            pins: Pins::new(regions),
            incoming: (0..MAX_LISTS).map(|_| ReceiveHeader::new()).collect(),
            outgoing: (0..MAX_UNITS).map(|_| SendHeader::new()).collect(),
            batch: Batch::new(),
            streaming: false,
        }
    }

    /// Receives what came, call by call. The first frame after a silence is
    /// taken alone, since looking for another one would only delay the answer
    /// to it. Gives the number of units.
    pub(super) fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        fd: RawFd,
    ) -> io::Result<u32> {
        let (calls, most) = if self.streaming { (CALLS_PER_TURN, MAX_LISTS) } else { (1, 1) };
        let mut units = 0;
        for _ in 0..calls {
            let (came, was_full) = self.receive_some(engine, now, counters, (fd, most))?;
            units += came;
            if !was_full {
                break;
            }
        }
        Ok(units)
    }

    /// One call. Gives the number of units, and whether more may wait.
    fn receive_some<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (fd, most): (RawFd, usize),
    ) -> io::Result<(u32, bool)> {
        let (pieces, ends) = self.inbox.post_each(engine, &mut self.pins, most);
        let pieces = pieces.as_mut_slice();
        self.batch.clear();
        let mut start = 0;
        for (end, header) in ends.iter().zip(&mut self.incoming) {
            header.prepare(&mut pieces[start..*end]);
            self.batch.add(header.prepared());
            start = *end;
        }
        let lists = ends.len();
        // SAFETY: each header names an address, a control buffer and a list
        // that live through the call; the lists name scratch memory of the
        // inbox and lent memory that is pinned until after the call.
        let received = unsafe { self.batch.receive(fd) };
        self.streaming = received.is_ok();
        let outcome = match received {
            Ok(count) => {
                counters.receive_calls += 1;
                Ok((self.hand_over(engine, now, counters, count), count == lists))
            }
            Err(error) => Received::without_frame(error).map(|received| {
                let unreadable = matches!(received, Received::Unreadable);
                counters.malformed += u64::from(unreadable);
                counters.empty_calls += u64::from(!unreadable);
                (0, unreadable)
            }),
        };
        self.pins.release();
        outcome
    }

    /// Hands those frames to the engine that are for this path.
    fn hand_over<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        count: usize,
    ) -> u32 {
        let mut came: ArrayVec<Came, MAX_LISTS> = ArrayVec::new();
        for nth in 0..count.min(MAX_LISTS) {
            let (told, len) = self.batch.told(nth);
            self.incoming[nth].note(told);
            let frame = self.incoming[nth].frame(len);
            match self.link.arrival(&frame, self.inbox.prefix(nth)) {
                Some(arrival) => came.push(Came { nth, skip: 0, arrival }),
                None => counters.malformed += 1,
            }
        }
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        self.inbox.settle_each(&mut turn, &came)
    }

    /// One call that sends those of the next units that have somewhere to go,
    /// in order. Gives how many left; none if the first has nowhere to go.
    pub(super) fn send(&mut self, outbox: &Outbox, fd: RawFd) -> Option<io::Result<usize>> {
        self.batch.clear();
        for ((unit, pieces), header) in outbox.each().zip(&mut self.outgoing) {
            // The kernel writes the header: what the unit begins with says nothing.
            let Some(to) = self.link.destination(unit.to, &[]) else { break };
            header.prepare(pieces, to);
            self.batch.add(header.prepared());
        }
        if self.batch.is_empty() {
            return None;
        }
        // SAFETY: each header names an address and a list that live through the
        // call; the lists name heads of the outbox and lent memory that the
        // outbox has pinned.
        Some(unsafe { self.batch.send(fd) })
    }
}
