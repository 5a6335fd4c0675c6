//! One message that is being received: which of its units are in place.

use alloc::boxed::Box;
use alloc::vec;

use landfall_placement::{Guess, Instant, Landing, Refusal, Span};

use super::header::HEADER_LEN;
use crate::engines::bits::BitRing;
use landfall_placement::Area;

/// What a place for a message is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    #[default]
    Free,
    /// A message that asked, for which no memory is posted yet.
    Waiting,
    /// A message with memory.
    Open,
    /// The sender went silent, but a driver still holds placements.
    Closing,
}

/// One place for a message. The storage is made once.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) state: State,
    pub(super) generation: u32,
    /// Which connection it belongs to.
    pub(super) connection: usize,
    /// The number of the message on its connection.
    pub(super) message: u32,
    /// Places are used in the order in which they got memory, or asked for it.
    pub(super) order: u64,
    /// The memory that was posted; the message fills its first `total` bytes.
    pub(super) posted: Area,
    pub(super) total: u64,
    unit: u32,
    units: u32,
    window: u32,
    checksum: bool,
    /// It came without asking.
    pub(super) is_eager: bool,
    /// All units before this one are in place.
    low: u32,
    /// No unit from here on was ever placed.
    placed_end: u32,
    /// No unit from here on is in place.
    done_end: u32,
    under_way: u32,
    unacknowledged: u32,
    /// The first hole that the sender was not told of yet.
    hole: Option<u32>,
    pub(super) ack_due: bool,
    pub(super) grant_due: bool,
    /// When the sender counts as gone.
    pub(super) deadline: Instant,
    pending: BitRing,
    done: BitRing,
    /// How many units were ever given a place here, and of each unit of the
    /// window which of them it was: a unit whose landing failed is placed
    /// again, and the ticket of the first time must not count for the second.
    stamp: u16,
    stamps: Box<[u16]>,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) low: u32,
    pub(super) granted: u32,
    pub(super) highest: u32,
    pub(super) base: u32,
    pub(super) bitmap: u64,
}

/// What a landing led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// The ticket was of an earlier time.
    Stale,
    /// The payload did not come to lie there.
    Lost,
    /// The payload came to lie there, but its checksum is wrong.
    BadSum,
    /// The unit is in place.
    InPlace,
    /// It was the last that was missing.
    Complete,
}

impl Incoming {
    pub(super) fn new(window: u32, checksum: bool) -> Self {
        Self {
            state: State::Free,
            generation: 0,
            connection: 0,
            message: 0,
            order: 0,
            posted: Area::default(),
            total: 0,
            unit: 1,
            units: 0,
            window,
            checksum,
            is_eager: false,
            low: 0,
            placed_end: 0,
            done_end: 0,
            under_way: 0,
            unacknowledged: 0,
            hole: None,
            ack_due: false,
            grant_due: false,
            deadline: Instant::FAR_FUTURE,
            pending: BitRing::new(window),
            done: BitRing::new(window),
            stamp: 0,
            stamps: vec![0; window.next_power_of_two() as usize].into_boxed_slice(),
        }
    }

    /// Begins with a message of `total` bytes in units of `unit`; `None` if
    /// that are more units than can be numbered, or nothing at all.
    pub(super) fn units_of(total: u64, unit: u32) -> Option<u32> {
        if total == 0 || unit == 0 {
            return None;
        }
        u32::try_from(total.div_ceil(u64::from(unit))).ok()
    }

    pub(super) fn begin(
        &mut self,
        (connection, message): (usize, u32),
        total: u64,
        (unit, units): (u32, u32),
        order: u64,
    ) {
        self.state = State::Waiting;
        self.is_eager = false;
        self.connection = connection;
        self.message = message;
        self.order = order;
        (self.total, self.unit, self.units) = (total, unit, units);
        (self.low, self.placed_end, self.done_end) = (0, 0, 0);
        (self.under_way, self.unacknowledged, self.hole) = (0, 0, None);
        (self.ack_due, self.grant_due) = (false, false);
        self.pending.reset();
        self.done.reset();
    }

    pub(super) fn bind(&mut self, posted: Area, order: u64) {
        self.state = State::Open;
        self.posted = posted;
        self.order = order;
    }

    pub(super) fn free(&mut self) {
        self.state = State::Free;
        self.generation = self.generation.wrapping_add(1);
        self.deadline = Instant::FAR_FUTURE;
    }

    /// Is this the message that a request speaks of?
    pub(super) fn matches(&self, total: u64, unit: u32) -> bool {
        // What came without asking did not say how long its units could be.
        self.total == total && (self.unit == unit || self.units == 1)
    }

    /// Is this the place of that message, whether it has memory or waits for it?
    #[inline]
    pub(super) fn is_for(&self, connection: usize, message: u32) -> bool {
        matches!(self.state, State::Waiting | State::Open)
            && self.connection == connection
            && self.message == message
    }

    #[inline]
    pub(super) fn holds_memory(&self) -> bool {
        matches!(self.state, State::Open | State::Closing)
    }

    /// Is there something to tell the sender?
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        matches!(self.state, State::Waiting | State::Open) && (self.grant_due || self.ack_due)
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Up to which unit the sender may send.
    pub(super) fn granted(&self) -> u32 {
        match self.state {
            State::Open => self.units.min(self.low.saturating_add(self.window)),
            _ => 0,
        }
    }

    fn len_of(&self, unit: u32) -> u32 {
        let start = u64::from(unit) * u64::from(self.unit);
        (self.total - start).min(u64::from(self.unit)) as u32
    }

    /// The run of units behind the highest that was placed so far. Everything
    /// there is untouched, which is what makes it safe to guess: behind the
    /// unit that came *last* there may be units that came before.
    #[inline]
    pub(super) fn run(&self) -> Option<Guess> {
        let end = self.granted();
        let from = self.placed_end;
        if self.state != State::Open || from >= end {
            return None;
        }
        let start = u64::from(from) * u64::from(self.unit);
        let end = (u64::from(end) * u64::from(self.unit)).min(self.total);
        let most = (1 << 30) / self.unit * self.unit;
        let len = (end - start).min(u64::from(most)) as u32;
        Some(Guess {
            span: self.posted.span(start, len),
            head_len: HEADER_LEN as u16,
            payload_len: self.unit.min(len),
        })
    }

    /// Where this unit belongs, and the stamp of its ticket.
    #[inline]
    pub(super) fn place(&mut self, unit: u32, len: u32) -> Result<(Span, u16), Refusal> {
        if unit >= self.granted() {
            return Err(Refusal::OutOfBounds);
        }
        if unit < self.low || self.done.get(unit) || self.pending.get(unit) {
            self.report_everything();
            return Err(Refusal::Duplicate);
        }
        if len != self.len_of(unit) {
            return Err(Refusal::Malformed);
        }
        self.pending.set(unit);
        self.under_way += 1;
        self.placed_end = self.placed_end.max(unit + 1);
        self.stamp = self.stamp.wrapping_add(1);
        let at = self.stamp_index(unit);
        self.stamps[at] = self.stamp;
        Ok((self.posted.span(u64::from(unit) * u64::from(self.unit), len), self.stamp))
    }

    fn stamp_index(&self, unit: u32) -> usize {
        unit as usize & (self.stamps.len() - 1)
    }

    /// The unit whose number ends in these bits, if it is under way.
    #[inline]
    fn under_way_unit(&self, (low_bits, stamp): (u16, u16)) -> Option<u32> {
        let ahead = u32::from(low_bits.wrapping_sub(self.low as u16));
        let unit = self.low.checked_add(ahead)?;
        let is_pending = ahead < self.window && unit < self.units && self.pending.get(unit);
        (is_pending && self.stamps[self.stamp_index(unit)] == stamp).then_some(unit)
    }

    #[inline]
    pub(super) fn landed(
        &mut self,
        ticket: (u16, u16),
        landing: Landing,
        ack_every: u32,
    ) -> Landed {
        let Some(unit) = self.under_way_unit(ticket) else { return Landed::Stale };
        self.pending.clear(unit);
        self.under_way -= 1;
        let verdict = match landing {
            Landing::Verified => Landed::InPlace,
            Landing::Unchecked if !self.checksum => Landed::InPlace,
            Landing::Corrupt => Landed::BadSum,
            Landing::Unchecked | Landing::Old(_) | Landing::Failed => Landed::Lost,
        };
        if verdict != Landed::InPlace {
            self.report_hole(unit);
            return verdict;
        }
        self.accept(unit, ack_every)
    }

    #[inline]
    fn accept(&mut self, unit: u32, ack_every: u32) -> Landed {
        if unit > self.done_end {
            self.report_hole(self.done_end);
        }
        self.done_end = self.done_end.max(unit + 1);
        if unit == self.low {
            self.low += 1;
            while self.low < self.done_end && self.done.get(self.low) {
                self.done.clear(self.low);
                self.low += 1;
            }
        } else {
            self.done.set(unit);
        }
        self.unacknowledged += 1;
        if self.unacknowledged >= ack_every {
            self.ack_due = true;
        }
        if self.low == self.units { Landed::Complete } else { Landed::InPlace }
    }

    fn report_hole(&mut self, unit: u32) {
        self.hole = Some(self.hole.map_or(unit, |hole| hole.min(unit)));
        self.ack_due = true;
    }

    /// The sender repeats itself: it knows less than it should.
    pub(super) fn report_everything(&mut self) {
        self.report_hole(self.low);
    }

    /// What is to be said now. Each hole is told once when it appears: the
    /// bitmap starts at the first that was not told of.
    pub(super) fn report(&mut self) -> Report {
        let base = self.hole.take().unwrap_or(self.low).max(self.low);
        let shown = base.saturating_add(64);
        self.hole = self.done.next(false, shown, self.done_end);
        self.ack_due = self.hole.is_some();
        self.unacknowledged = 0;
        Report {
            low: self.low,
            granted: self.granted(),
            highest: self.done_end,
            base,
            bitmap: self.done.window(base, self.done_end),
        }
    }
}
