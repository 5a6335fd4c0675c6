//! Receiving: many packets a call, each into the guessed span where the engine
//! has a guess.

use std::io;
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant, PathId, Peer};

use super::messages::{Header, Messages};
use crate::counters::Counters;
use crate::exchange::{Arrival, Came, Inbox, MAX_LISTS, PREFIX_ROOM, Turn};
use crate::inet::nothing_came;
use crate::memory::{Pins, Regions};

/// While packets keep coming, so many calls receive in one turn.
const CALLS_PER_TURN: u32 = 4;

/// What one call brought.
pub(super) struct Received {
    pub(super) units: u32,
    /// As many packets as the call could take: more may wait.
    pub(super) was_full: bool,
    /// Nothing came, but maybe news of something that was sent earlier.
    pub(super) news: Option<io::Error>,
}

/// The receiving half of a path.
pub(super) struct Receiver {
    inbox: Inbox,
    /// The memory that is posted, pinned until it is settled.
    pins: Pins,
    messages: Messages,
    ipv6: bool,
    /// The last receive found something: more may wait.
    streaming: bool,
}

impl Receiver {
    pub(super) fn new(path: PathId, regions: &Regions, batch: bool, ipv6: bool) -> Self {
        // Over IPv6 the header does not come with the packet.
        let prefix_len = if ipv6 { 0 } else { PREFIX_ROOM };
        Self {
            inbox: Inbox::of_lists(path, if batch { MAX_LISTS } else { 1 }, prefix_len),
            pins: Pins::new(regions),
            messages: Messages::new(),
            ipv6,
            streaming: false,
        }
    }

    /// So many calls are worth making in this turn, each for so many packets.
    /// The first packet after a silence is taken alone, since looking for
    /// another one would only delay the answer to it.
    pub(super) const fn plan(&self) -> (u32, usize) {
        if self.streaming { (CALLS_PER_TURN, MAX_LISTS) } else { (1, 1) }
    }

    /// Receives `most` packets at most and hands them to the engine.
    pub(super) fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (fd, most): (RawFd, usize),
    ) -> io::Result<Received> {
        let (pieces, ends) = self.inbox.post_each(engine, &mut self.pins, most);
        let lists = ends.len();
        let result = self.messages.receive(fd, (pieces.as_mut_slice(), ends), self.ipv6);
        self.streaming = result.is_ok();
        let received = match result {
            Ok(count) => {
                counters.receive_calls += 1;
                let units = self.hand_over(engine, now, counters, count);
                Ok(Received { units, was_full: count == lists, news: None })
            }
            Err(error) if nothing_came(&error) => {
                counters.empty_calls += 1;
                Ok(Received { units: 0, was_full: false, news: Some(error) })
            }
            Err(error) => Err(error),
        };
        self.pins.release();
        received
    }

    fn hand_over<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        count: usize,
    ) -> u32 {
        let came: ArrayVec<Came, MAX_LISTS> =
            (0..count.min(MAX_LISTS)).filter_map(|nth| self.came(nth)).collect();
        counters.malformed += (count - came.len()) as u64;
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        self.inbox.settle_each(&mut turn, &came)
    }

    /// The packet of this number, if it is one.
    fn came(&self, nth: usize) -> Option<Came> {
        let told = self.messages.told(nth);
        if told.truncated {
            return None;
        }
        let (mut skip, mut len, mut from, mut ecn) = (0, told.len, told.from, told.ecn);
        if !self.ipv6 {
            let header = Header::read(self.inbox.prefix(nth), told.len)?;
            skip = header.options;
            len = told.len - PREFIX_ROOM - skip;
            (from, ecn) = (Peer::Ip(header.from.into()), header.ecn);
        }
        let unit_len = len.max(1);
        let arrival = Arrival { len, unit_len, from, ecn, coalesced: None, verified: false };
        Some(Came { nth, skip, arrival })
    }
}
