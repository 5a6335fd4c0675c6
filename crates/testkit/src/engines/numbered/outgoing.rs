//! One message that is being sent: which of its units the other side has.

use landfall_placement::{Duration, Instant, Span};

use super::config::MessageId;
use super::header::SLOT_EAGER;
use super::incoming::Report;
use crate::engines::bits::BitRing;
use landfall_placement::Area;

/// How far a message has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is being sent from here.
    #[default]
    Free,
    /// A place was asked for.
    Asking,
    /// There is a place.
    Flowing,
    /// The other side has it all, but a driver still holds its memory.
    Sent,
    /// The other side is gone, but a driver still holds its memory.
    Failed,
}

/// One message on its way out. The storage is made once.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) state: State,
    pub(super) generation: u32,
    pub(super) connection: usize,
    /// The number of the message on its connection.
    pub(super) message: u32,
    pub(super) id: MessageId,
    pub(super) source: Area,
    pub(super) unit: u32,
    units: u32,
    window: u32,
    /// Which of the receiver's places it has.
    pub(super) slot: u8,
    granted: u32,
    /// All units before this one are acknowledged.
    low: u32,
    /// The next to send.
    cursor: u32,
    /// No unit from here on was ever sent.
    sent_end: u32,
    /// How many transmissions a driver holds.
    pub(super) held: u32,
    pub(super) request_due: bool,
    pub(super) retries: u32,
    pub(super) deadline: Instant,
    /// How many bits of `lost` are set.
    lost_count: u32,
    acked: BitRing,
    /// The receiver misses it, and it was not sent again yet.
    lost: BitRing,
    /// It was sent again already: only a timeout sends it once more.
    resent: BitRing,
}

impl Outgoing {
    pub(super) fn new(window: u32) -> Self {
        Self {
            state: State::Free,
            generation: 0,
            connection: 0,
            message: 0,
            id: MessageId(0),
            source: Area::default(),
            unit: 1,
            units: 0,
            window,
            slot: SLOT_EAGER,
            granted: 0,
            low: 0,
            cursor: 0,
            sent_end: 0,
            held: 0,
            request_due: false,
            retries: 0,
            deadline: Instant::FAR_FUTURE,
            lost_count: 0,
            acked: BitRing::new(window),
            lost: BitRing::new(window),
            resent: BitRing::new(window),
        }
    }

    pub(super) fn begin(
        &mut self,
        (connection, message): (usize, u32),
        id: MessageId,
        source: Area,
        (unit, units): (u32, u32),
        eager: bool,
    ) {
        self.state = if eager { State::Flowing } else { State::Asking };
        (self.connection, self.message, self.id) = (connection, message, id);
        (self.source, self.unit, self.units) = (source, unit, units);
        self.slot = SLOT_EAGER;
        self.granted = u32::from(eager);
        (self.low, self.cursor, self.sent_end) = (0, 0, 0);
        self.held = 0;
        self.request_due = !eager;
        self.retries = 0;
        self.deadline = Instant::FAR_FUTURE;
        self.lost_count = 0;
        self.acked.reset();
        self.lost.reset();
        self.resent.reset();
    }

    /// Did any unit of this message leave?
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.sent_end > 0
    }

    pub(super) fn free(&mut self) {
        self.state = State::Free;
        self.generation = self.generation.wrapping_add(1);
        self.deadline = Instant::FAR_FUTURE;
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::Asking | State::Flowing)
    }

    #[inline]
    pub(super) fn is_for(&self, connection: usize, message: u32) -> bool {
        self.is_live() && self.connection == connection && self.message == message
    }

    pub(super) fn is_complete(&self) -> bool {
        self.low == self.units
    }

    /// Was every unit sent at least once?
    pub(super) fn was_sent_whole(&self) -> bool {
        self.sent_end == self.units
    }

    /// The receiver named a place. A repeated grant only moves the bound on.
    pub(super) fn grant(&mut self, slot: u8, up_to: u32) {
        if up_to == 0 {
            return;
        }
        self.state = State::Flowing;
        self.request_due = false;
        self.slot = slot;
        self.granted = self.granted.max(up_to.min(self.units));
    }

    /// Is there a unit to send?
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.state == State::Flowing
            && (self.lost_count > 0
                || self.cursor < self.granted.min(self.low.saturating_add(self.window)))
    }

    /// The next unit to send, where its payload lies, and whether it was sent before.
    #[inline]
    pub(super) fn next_unit(&mut self) -> Option<(u32, Span, bool)> {
        let sent_end = self.sent_end;
        let unit = self.next_lost().or_else(|| self.next_new())?;
        let start = u64::from(unit) * u64::from(self.unit);
        let len = (self.source.len - start).min(u64::from(self.unit)) as u32;
        Some((unit, self.source.span(start, len), unit < sent_end))
    }

    fn next_lost(&mut self) -> Option<u32> {
        if self.lost_count == 0 {
            return None;
        }
        let unit = self.lost.next(true, self.low, self.sent_end);
        match unit {
            Some(unit) => {
                self.lost.clear(unit);
                self.lost_count -= 1;
            }
            None => self.lost_count = 0,
        }
        unit
    }

    fn next_new(&mut self) -> Option<u32> {
        let end = self.granted.min(self.low.saturating_add(self.window));
        if self.cursor < self.sent_end {
            // After a timeout: only what the receiver is not known to have.
            let stop = self.sent_end.min(end);
            self.cursor = self.acked.next(false, self.cursor, stop).unwrap_or(stop);
        }
        if self.cursor >= end {
            return None;
        }
        let unit = self.cursor;
        self.cursor += 1;
        self.sent_end = self.sent_end.max(self.cursor);
        Some(unit)
    }

    /// Takes in an acknowledgement. `None` if it speaks of what was never
    /// sent; else whether it brought anything new.
    pub(super) fn acknowledge(&mut self, report: &Report) -> Option<bool> {
        if report.low > self.sent_end || report.highest > self.sent_end {
            return None;
        }
        let mut news = false;
        if report.low > self.low {
            news = true;
            self.lost_count -= self.count_lost(self.low, report.low);
            self.acked.clear_range(self.low, report.low);
            self.lost.clear_range(self.low, report.low);
            self.resent.clear_range(self.low, report.low);
            self.low = report.low;
            self.cursor = self.cursor.max(self.low);
        }
        self.granted = self.granted.max(report.granted.min(self.units));
        for ahead in 0..64 {
            let unit = report.base.saturating_add(ahead);
            if unit < self.low {
                continue;
            }
            if unit >= report.highest {
                break;
            }
            if report.bitmap >> ahead & 1 == 1 {
                news |= !self.acked.get(unit);
                self.acked.set(unit);
                self.forget_lost(unit);
            } else if !self.acked.get(unit) && !self.resent.get(unit) && unit < self.cursor {
                self.resent.set(unit);
                self.lost.set(unit);
                self.lost_count += 1;
            }
        }
        Some(news)
    }

    fn count_lost(&self, from: u32, to: u32) -> u32 {
        let mut count = 0;
        let mut at = from;
        while count < self.lost_count {
            let Some(unit) = self.lost.next(true, at, to) else { break };
            count += 1;
            at = unit + 1;
        }
        count
    }

    fn forget_lost(&mut self, unit: u32) {
        if self.lost.get(unit) {
            self.lost.clear(unit);
            self.lost_count -= 1;
        }
    }

    /// Nothing was heard for too long: all that is not known to have arrived
    /// is sent again, in order.
    pub(super) fn time_out(&mut self) {
        if self.state == State::Flowing && self.slot == SLOT_EAGER {
            // Perhaps nothing was posted: ask, and be told when something is.
            self.state = State::Asking;
            self.granted = 0;
        }
        if self.state == State::Asking {
            self.request_due = true;
        }
        self.lost.reset();
        self.lost_count = 0;
        self.resent.reset();
        self.cursor = self.low;
    }

    /// Is an answer outstanding?
    pub(super) fn arm(&mut self, now: Instant, first: Duration) {
        self.deadline = now + first * (1 << self.retries.min(4));
    }
}
