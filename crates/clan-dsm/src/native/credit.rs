//! How much may be on the way: credit in words, headers included, and Xoff.

use landfall_placement::Serial32;

use crate::native::wire::Symbol;
use crate::native::{Fifo, HEADER_WORDS};

/// What this end may send.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbound {
    sent: Serial32,
    /// Up to where the other end has room.
    edge: Serial32,
    stopped: bool,
}

impl Outbound {
    /// How many words a packet may have now.
    pub(super) fn room(&self) -> u32 {
        if self.stopped || self.edge.precedes(self.sent) {
            return 0;
        }
        self.edge.since(self.sent).saturating_sub(HEADER_WORDS)
    }

    pub(super) fn sent(&mut self, cost: u32) {
        self.sent = self.sent.plus(cost);
    }

    pub(super) fn stop(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    /// Says whether that is more than before.
    pub(super) fn credit(&mut self, edge: Serial32) -> bool {
        let is_more = self.edge.precedes(edge);
        self.edge = self.edge.later(edge);
        is_more
    }
}

/// What the other end may send.
#[derive(Clone, Debug)]
pub(super) struct Inbound {
    /// The most that is here at a time.
    room: u32,
    arrived: Serial32,
    /// How much of it is still here.
    used: u32,
    /// Up to where the other end knows that it may send.
    told: Serial32,
    told_hold: bool,
}

impl Inbound {
    pub(super) fn new(room: u32) -> Self {
        let zero = Serial32(0);
        Self { room, arrived: zero, used: 0, told: zero, told_hold: false }
    }

    /// Something came. `false`: it had no leave to.
    #[must_use]
    pub(super) fn arrived(&mut self, cost: u32) -> bool {
        if cost > self.told.since(self.arrived) {
            return false;
        }
        self.arrived = self.arrived.plus(cost);
        self.used += cost;
        true
    }

    /// How much has arrived, and up to where the other end may send.
    pub(super) const fn window(&self) -> (Serial32, Serial32) {
        (self.arrived, self.told)
    }

    pub(super) fn occupied(&mut self, words: u32) {
        self.used = self.used.saturating_add(words).min(self.room);
    }

    pub(super) fn freed(&mut self, words: u32) {
        self.used = self.used.saturating_sub(words);
    }

    /// What the other end is to know.
    pub(super) fn poll(&mut self, hold: bool) -> Option<Symbol> {
        if self.told_hold != hold {
            self.told_hold = hold;
            return Some(if hold { Symbol::Xoff } else { Symbol::Xon });
        }
        let edge = due(self.room, self.room.saturating_sub(self.used), self.window())?;
        self.told = edge;
        Some(Symbol::Credit(edge))
    }

    /// Somebody else has told it that it may send up to there.
    pub(super) fn told(&mut self, edge: Serial32) {
        self.told = self.told.later(edge);
    }
}

/// Up to where the other end shall hear that it may send, of which so much has arrived
/// and which knows of so much: there are so many words of room, and so many are free.
/// Nothing where that is not worth a symbol.
///
/// Credit is told in steps of a quarter of the room, so that a link is not full of symbols
/// and packets are not cut small. But an end that has less than the longest packet that
/// cannot be split hears of every word: it may be waiting for just that one.
#[must_use]
pub fn due(room: u32, free: u32, (arrived, told): (Serial32, Serial32)) -> Option<Serial32> {
    let edge = arrived.plus(free);
    let step = edge.offset_from(told);
    let is_due = step >= (room / 4).min(i32::MAX as u32) as i32
        || step > 0 && told.since(arrived) < Fifo::LEAST;
    is_due.then_some(edge)
}
