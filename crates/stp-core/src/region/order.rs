//! The order of what the other side wants to be done here: what was accepted, what the driver is
//! at, what took effect.

use landfall_placement::Serial32;

use super::{IncomingOperations, UnderWay};
use crate::wire::message::Ahead;

impl IncomingOperations {
    /// The first packet that is not sure to lie in place: it has not come, or may fail its
    /// check.
    pub(super) fn first_missing(&self) -> u32 {
        if self.doubtful == 0 {
            return self.expected;
        }
        let doubtful = self.under_way.iter().filter(|under_way| under_way.is_doubtful);
        doubtful.map(|under_way| under_way.serial).fold(self.expected, earlier)
    }

    /// Accepts a packet, or several where they are the ones that were expected next. Says
    /// whether they are.
    pub(super) fn accept(&mut self, serial: u32, count: u16) -> bool {
        if serial != self.expected {
            debug_assert_eq!(count, 1, "runs are accepted in order");
            self.is_mixed = true;
            self.ahead.insert(self.applied, serial);
            return false;
        }
        self.expected = serial.wrapping_add(count.into());
        if !self.ahead.is_empty() {
            self.expected = self.ahead.first_without(self.expected);
            self.ahead.forget_below(self.expected);
        }
        true
    }

    /// All before what the driver is at took effect.
    pub(super) fn advance(&mut self) {
        if self.is_mixed {
            let under_way = self.under_way.iter().map(|under_way| under_way.serial);
            self.applied = under_way.fold(self.expected, earlier);
            self.is_mixed = !self.under_way.is_empty() || !self.ahead.is_empty();
        } else {
            self.applied = self.under_way.front().map_or(self.expected, |first| first.serial);
        }
    }

    /// Was anything accepted behind these packets?
    pub(super) fn has_accepted_behind(&self, done: &UnderWay) -> bool {
        Serial32(done.end()).precedes(Serial32(self.expected)) || !self.ahead.is_empty()
    }

    /// Packets were accepted, and have not come after all.
    pub(super) fn expect_again(&mut self, done: &UnderWay) {
        let serial = done.serial;
        if Serial32(serial).precedes(Serial32(self.expected)) {
            let mut behind = done.end();
            while behind != self.expected {
                self.ahead.insert(self.applied, behind);
                behind = behind.wrapping_add(1);
            }
            self.expected = serial;
            self.is_mixed = true;
        } else {
            self.ahead.remove(serial);
        }
    }

    /// Is the sender to be told that something is missing? Once for each: who sent much
    /// behind it would hear it as often.
    pub(super) fn tells_gap(&mut self) -> bool {
        self.gap_told.replace(self.applied) != Some(self.applied)
    }

    /// What is in place behind those that took effect, about a packet.
    pub(super) fn ahead_about(&self, about: Option<u32>) -> Ahead {
        let marked = self.marked;
        let distance =
            about.map_or(0, |serial| Serial32(serial).offset_from(Serial32(self.applied)));
        let first = distance.saturating_sub(63).max(0) as u32;
        let start = self.applied.wrapping_add(first);
        let below = Serial32(self.expected).offset_from(Serial32(start));
        let accepted = match below {
            ..=0 => 0,
            1..=63 => (1 << below) - 1,
            _ => u64::MAX,
        };
        let mut bits = self.ahead.bits_from(start) | accepted;
        for under_way in &self.under_way {
            for more in 0..under_way.count {
                let nth = under_way.serial.wrapping_add(more.into()).wrapping_sub(start);
                bits &= !1u64.checked_shl(nth).unwrap_or(0);
            }
        }
        if bits == 0 {
            return Ahead { marked, ..Ahead::default() };
        }
        Ahead { first: first as u16, bits, marked }
    }
}

impl UnderWay {
    /// One past the last of its serial numbers.
    pub(super) const fn end(&self) -> u32 {
        self.serial.wrapping_add(self.count as u32)
    }
}

fn earlier(one: u32, other: u32) -> u32 {
    if Serial32(other).precedes(Serial32(one)) { other } else { one }
}
