//! Where records lie in a ring, and when its room may be used again: arithmetic alone.
//!
//! Positions count all bytes that ever were in a direction; a ring holds the last
//! [`RING`] of them. The sender composes records in memory of its own that looks like the ring
//! of the other side, and writes from there to the same place over there.

use std::collections::VecDeque;
use std::ops::Range;

use crate::record::{HEADER, room_for};

/// Length of a ring.
pub(crate) const RING: u64 = 256 << 10;
/// The longest payload of a record: longer messages are read by their receiver. It is what
/// libfabric's `ofi_rxm` makes of 16 KiB, with its header.
pub(crate) const MOST_PAYLOAD: usize = 17 << 10;
/// Left free by messages, for what makes room again.
const RESERVE: u64 = 4 << 10;
/// This many writes may be unread at the other side, which keeps 1024 notices.
const MOST_UNREAD: usize = 512;
/// This many writes are under way at a time: what is composed meanwhile leaves as one.
pub(crate) const MOST_UNDER_WAY: usize = 32;

/// How far the other side says that it has read is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImpossibleCredit;

/// The sender's side of a ring.
#[derive(Debug, Default)]
pub(crate) struct SendRing {
    /// Composed up to here.
    composed: u64,
    /// Written, or being written, to the other side up to here.
    put: u64,
    /// Known to be there up to here.
    done: u64,
    /// Read by the other side up to here.
    credit: u64,
    /// Where writes end that are not read.
    unread: VecDeque<u64>,
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where one begins that fills the ring up to its end, and how long its payload is.
    pub(crate) pad: Option<(u64, u64)>,
    /// Where the record begins.
    pub(crate) position: u64,
}

/// Where in the ring a position is.
pub(crate) const fn offset(position: u64) -> u64 {
    position % RING
}

impl SendRing {
    /// Takes room for a record, if there is any. What makes room at the other side may use
    /// the reserve.
    pub(crate) fn compose(&mut self, payload: usize, makes_room: bool) -> Option<Place> {
        let need = room_for(payload as u64);
        let left = RING - offset(self.composed);
        let pad = if need > left { left } else { 0 };
        let reserve = if makes_room { 0 } else { RESERVE };
        // What was read was in place; its memory here is free once the write is over, too.
        let used = self.composed - self.credit.min(self.done);
        if used + pad + need + reserve > RING {
            return None;
        }
        let filler = (pad > 0).then(|| (self.composed, pad - HEADER as u64));
        let position = self.composed + pad;
        self.composed = position + need;
        Some(Place { pad: filler, position })
    }

    /// What is to be written next: some positions in one row, if any may be.
    pub(crate) fn next_put(&mut self, under_way: usize) -> Option<Range<u64>> {
        if self.put == self.composed
            || under_way >= MOST_UNDER_WAY
            || self.unread.len() >= MOST_UNREAD
        {
            return None;
        }
        let end = self.composed.min(self.put - offset(self.put) + RING);
        let range = self.put..end;
        self.put = end;
        self.unread.push_back(end);
        Some(range)
    }

    /// A write that ends there is over.
    pub(crate) const fn note_done(&mut self, end: u64) {
        self.done = end;
    }

    /// The other side has read up to there.
    pub(crate) fn note_credit(&mut self, consumed: u64) -> Result<(), ImpossibleCredit> {
        if consumed < self.credit || consumed > self.put {
            return Err(ImpossibleCredit);
        }
        self.credit = consumed;
        while self.unread.front().is_some_and(|end| *end <= consumed) {
            self.unread.pop_front();
        }
        Ok(())
    }

    /// Up to where records are composed.
    pub(crate) const fn composed(&self) -> u64 {
        self.composed
    }

    /// Has all of it been written, or is being written?
    pub(crate) const fn has_left(&self) -> bool {
        self.put == self.composed
    }

    /// Is all of it in place at the other side?
    pub(crate) const fn is_quiet(&self) -> bool {
        self.done == self.composed
    }
}

/// The receiver's side of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReceiveRing {
    /// Read up to here.
    pub(crate) consumed: u64,
    /// The other side knows that this much was read.
    told: u64,
    /// This many writes were read of which it does not know.
    untold: usize,
}

impl ReceiveRing {
    /// One more write was read as a whole.
    pub(crate) const fn note_read(&mut self) {
        self.untold += 1;
    }

    /// Is it time to tell the other side, though nothing else is to be said? Before it has to
    /// wait: for room, or since too many of its writes seem to be unread.
    pub(crate) const fn must_tell(&self) -> bool {
        self.consumed - self.told >= RING / 4 || self.untold >= MOST_UNREAD / 4
    }

    /// What a record says.
    pub(crate) const fn tell(&mut self) -> u64 {
        (self.told, self.untold) = (self.consumed, 0);
        self.consumed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_never_crosses_the_end() {
        let mut ring = SendRing::default();
        let payload = MOST_PAYLOAD;
        let mut reached = 0;
        for _ in 0..100 {
            let place = ring.compose(payload, false).unwrap();
            if let Some((position, len)) = place.pad {
                assert_eq!(offset(position + HEADER as u64 + len), 0);
            }
            assert!(offset(place.position) + room_for(payload as u64) <= RING);
            assert!(place.position >= reached);
            reached = place.position + room_for(payload as u64);
            while let Some(range) = ring.next_put(0) {
                ring.note_done(range.end);
                ring.note_credit(range.end).unwrap();
            }
        }
    }

    #[test]
    fn messages_leave_room_for_what_makes_room() {
        let mut ring = SendRing::default();
        while ring.compose(0, false).is_some() {}
        assert!(ring.compose(0, true).is_some());
    }

    #[test]
    fn impossible_credit_is_refused() {
        let mut ring = SendRing::default();
        ring.compose(10, false).unwrap();
        assert_eq!(ring.note_credit(128), Err(ImpossibleCredit), "not written yet");
        let range = ring.next_put(0).unwrap();
        assert_eq!(range, 0..128);
        ring.note_credit(128).unwrap();
        assert_eq!(ring.note_credit(64), Err(ImpossibleCredit), "backwards");
        assert_eq!(ring.note_credit(129), Err(ImpossibleCredit), "beyond");
    }

    /// The sender has to wait at times, and always goes on: whatever the length of messages.
    #[test]
    fn a_reader_that_only_reads_makes_room() {
        for payload in [0, 1, 64, 1000, MOST_PAYLOAD] {
            let (mut ring, mut reader) = (SendRing::default(), ReceiveRing::default());
            let mut sent = 0;
            for _ in 0..100_000 {
                while ring.compose(payload, false).is_some() {
                    sent += 1;
                    // A write for each, as where a sender sends one after another.
                    while let Some(range) = ring.next_put(0) {
                        ring.note_done(range.end);
                        reader.consumed = range.end;
                        reader.note_read();
                    }
                    if reader.must_tell() {
                        ring.note_credit(reader.tell()).unwrap();
                    }
                    if sent > 10_000 {
                        break;
                    }
                }
            }
            assert!(sent > 10_000, "stuck after {sent} messages of {payload} bytes");
        }
    }

    #[test]
    fn unread_writes_are_bounded() {
        let mut ring = SendRing::default();
        let mut writes = 0;
        while ring.compose(0, false).is_some() {
            writes += usize::from(ring.next_put(0).is_some());
        }
        assert_eq!(writes, MOST_UNREAD);
    }

    proptest! {
        /// Against a model that knows which bytes of the ring are in use.
        #[test]
        fn room_in_use_is_never_given_out(
            steps in proptest::collection::vec((0..4_u8, 0..=MOST_PAYLOAD), 1..400),
        ) {
            let mut ring = SendRing::default();
            let (mut live, mut puts, mut read) = (VecDeque::new(), VecDeque::new(), 0);
            for (step, payload) in steps {
                match step {
                    0 | 1 => if let Some(place) = ring.compose(payload, step == 0) {
                        let end = place.position + room_for(payload as u64);
                        live.extend(place.pad.map(|(position, _)| position..place.position));
                        live.push_back(place.position..end);
                        let first: &Range<u64> = live.front().unwrap();
                        prop_assert!(end - first.start <= RING);
                    },
                    2 => if let Some(range) = ring.next_put(puts.len()) {
                        prop_assert!(offset(range.start) + (range.end - range.start) <= RING);
                        puts.push_back(range.end);
                    },
                    _ => if let Some(end) = puts.pop_front() {
                        ring.note_done(end);
                        read = end;
                        prop_assert!(ring.note_credit(read).is_ok());
                    },
                }
                while live.front().is_some_and(|range| range.end <= read) {
                    live.pop_front();
                }
            }
        }
    }
}
