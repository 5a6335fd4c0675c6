//! How much may be on the way: credit in words, headers included, and Xoff.

use landfall_placement::Serial32;

use crate::burst::{Fifo, HEADER_WORDS};
use crate::wire::native::Symbol;

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

    pub(super) fn occupied(&mut self, words: u32) {
        self.used = self.used.saturating_add(words).min(self.room);
    }

    pub(super) fn freed(&mut self, words: u32) {
        self.used = self.used.saturating_sub(words);
    }

    /// What the other end is to know.
    ///
    /// Credit is told in steps of a quarter of the room, so that a link is not
    /// full of symbols and packets are not cut small. But an end that has less
    /// than the longest packet that cannot be split hears of every word: it may
    /// be waiting for just that one.
    pub(super) fn poll(&mut self, hold: bool) -> Option<Symbol> {
        if self.told_hold != hold {
            self.told_hold = hold;
            return Some(if hold { Symbol::Xoff } else { Symbol::Xon });
        }
        let edge = self.arrived.plus(self.room.saturating_sub(self.used));
        let step = edge.offset_from(self.told);
        let is_due = step >= (self.room / 4).min(i32::MAX as u32) as i32
            || step > 0 && self.told.since(self.arrived) < Fifo::LEAST;
        is_due.then(|| {
            self.told = edge;
            Symbol::Credit(edge)
        })
    }
}
