//! The sender's half: which bytes of the stream the other side has.

use landfall_placement::{Duration, Instant};

use super::config::Config;
use super::intervals::{Areas, Interval, Intervals, Slots};

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// These bytes; `is_again` if they were sent before.
    Bytes { bytes: Interval, is_again: bool },
    /// That the stream ends here.
    End(u64),
}

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) areas: Areas,
    /// All before this is acknowledged. The end of the stream counts as one more byte.
    pub(super) una: u64,
    /// The next to send.
    cursor: u64,
    /// Nothing from here on was ever sent.
    pub(super) sent_end: u64,
    /// The other side takes no byte from here on.
    window_end: u64,
    most: u64,
    /// Nothing more will be posted.
    pub(super) is_closed: bool,
    pub(super) is_end_acknowledged: bool,
    sacked: Intervals,
    /// Holes are being filled; over once all before this is acknowledged.
    recovery: Option<u64>,
    resend: u64,
    /// The bytes that drivers hold.
    pub(super) held: Slots<Interval>,
    /// Payload bytes in one segment, and in one unit.
    segment: u32,
    unit: u32,
    pub(super) retries: u32,
    pub(super) deadline: Instant,
    /// The window is shut and there is more: ask whether it is still.
    pub(super) probe_due: bool,
    pub(super) retransmitted: u64,
}

impl Sender {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            areas: Areas::new(config.areas),
            una: 0,
            cursor: 0,
            sent_end: 0,
            window_end: 0,
            most: u64::from(config.window),
            is_closed: false,
            is_end_acknowledged: false,
            sacked: Intervals::new(config.islands),
            recovery: None,
            resend: 0,
            held: Slots::new(config.under_way),
            segment: 1,
            unit: 1,
            retries: 0,
            deadline: Instant::FAR_FUTURE,
            probe_due: false,
            retransmitted: 0,
        }
    }

    /// How much goes into one segment, and how much into one unit.
    pub(super) fn set_sizes(&mut self, segment: u32, unit: u32) {
        (self.segment, self.unit) = (segment.max(1), unit.max(segment).max(1));
    }

    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    pub(super) fn unit(&self) -> u32 {
        self.unit
    }

    /// The first byte that may not be sent now.
    fn allowed_end(&self) -> u64 {
        self.areas.end().min(self.window_end).min(self.una.saturating_add(self.most))
    }

    fn is_in_flight(&self) -> bool {
        self.una < self.sent_end
    }

    /// More to send, and a window that does not let it through.
    fn is_shut_out(&self) -> bool {
        self.cursor < self.areas.end() && self.window_end <= self.cursor
    }

    #[inline]
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        if self.held.is_full() {
            return None;
        }
        if let Some(bytes) = self.next_hole() {
            self.retransmitted += 1;
            return Some(Piece::Bytes { bytes, is_again: true });
        }
        if self.cursor < self.sent_end {
            // After a timeout: only what the other side is not known to have.
            while let Some(end) = self.sacked.end_around(self.cursor) {
                self.cursor = end;
            }
        }
        let end = self.areas.end();
        if self.cursor == end && self.is_closed && !self.is_end_acknowledged {
            self.cursor = end + 1;
            self.sent_end = self.sent_end.max(self.cursor);
            return Some(Piece::End(end));
        }
        self.next_run()
    }

    /// The next bytes in sequence.
    #[inline]
    fn next_run(&mut self) -> Option<Piece> {
        let start = self.cursor;
        let allowed = self.allowed_end();
        if start >= allowed {
            return None;
        }
        let mut end = allowed.min(start + u64::from(self.unit));
        let is_again = start < self.sent_end;
        if is_again {
            end = end.min(self.sacked.next_start(start).unwrap_or(end));
            self.retransmitted += 1;
        } else if end < self.areas.end() {
            // Only the window keeps more from going along. While answers are
            // still to come, it is better to wait for a larger one: small
            // units cost as much as large ones (RFC 9293, 3.8.6.2.1).
            let len = end - start;
            let is_small = len < u64::from(self.unit) && self.most >= 2 * u64::from(self.unit);
            if self.is_in_flight() && (len < u64::from(self.segment) || is_small) {
                return None;
            }
            if len > u64::from(self.segment) {
                end -= len % u64::from(self.segment);
            }
        }
        Some(Piece::Bytes { bytes: Interval { start, end }, is_again })
    }

    /// The next hole between what the other side has.
    fn next_hole(&mut self) -> Option<Interval> {
        self.recovery?;
        let mut start = self.resend.max(self.una);
        while let Some(end) = self.sacked.end_around(start) {
            start = end;
        }
        let end = self.sacked.next_start(start)?.min(start + u64::from(self.unit));
        self.resend = end;
        Some(Interval { start, end })
    }

    /// These bytes of the piece were sent; fewer than asked where the memory
    /// lies in too many pieces.
    #[inline]
    pub(super) fn sent(&mut self, bytes: Interval) {
        if bytes.start == self.cursor {
            self.cursor = bytes.end;
        } else {
            self.resend = self.resend.min(bytes.end);
        }
        self.sent_end = self.sent_end.max(bytes.end);
    }

    /// The other side said how far it is. False if it speaks of what was
    /// never sent.
    #[inline]
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        upto: u64,
        window_end: u64,
        first: Duration,
    ) -> bool {
        if upto > self.sent_end {
            return false;
        }
        self.window_end = self.window_end.max(window_end);
        if upto > self.una {
            self.una = upto;
            self.cursor = self.cursor.max(upto);
            self.sacked.forget_before(upto);
            if self.recovery.is_some_and(|end| upto >= end) {
                self.recovery = None;
            }
            self.retries = 0;
            self.deadline = Instant::FAR_FUTURE;
            self.is_end_acknowledged |= self.is_closed && upto == self.areas.end() + 1;
        } else if self.is_shut_out() {
            // It answered, so it is there, even if it has no room.
            self.retries = 0;
        }
        self.arm(now, first);
        true
    }

    /// The other side has these bytes behind a hole.
    pub(super) fn select(&mut self, start: u64, end: u64) {
        if start < self.una || start >= end || end > self.sent_end.min(self.areas.end()) {
            return;
        }
        // What does not fit is only not known, and told again.
        self.sacked.insert(start, end);
        if self.recovery.is_none() {
            self.recovery = Some(self.sent_end);
            self.resend = self.una;
        }
    }

    /// Sees to it that silence is noticed.
    #[inline]
    pub(super) fn arm(&mut self, now: Instant, first: Duration) {
        let waits = self.is_in_flight() || self.is_shut_out();
        if !waits {
            self.deadline = Instant::FAR_FUTURE;
        } else if self.deadline == Instant::FAR_FUTURE {
            self.deadline = now + first * (1 << self.retries.min(4));
        }
    }

    /// Nothing was heard for too long.
    pub(super) fn time_out(&mut self, now: Instant, first: Duration) {
        self.retries += 1;
        self.recovery = None;
        self.probe_due = !self.is_in_flight();
        self.cursor = self.una;
        self.deadline = Instant::FAR_FUTURE;
        self.arm(now, first);
    }

    /// Nothing will be sent any more.
    pub(super) fn stop(&mut self) {
        self.deadline = Instant::FAR_FUTURE;
        self.sacked.clear();
        self.recovery = None;
    }

    /// Takes the oldest memory that is done with: acknowledged (or given up,
    /// if `is_over`), and held by no driver.
    #[inline]
    pub(super) fn take_done(&mut self, is_over: bool) -> Option<(landfall_placement::Area, bool)> {
        let front = self.areas.front()?;
        let (end, is_acknowledged) = (front.end(), front.end() <= self.una);
        if !is_acknowledged && !is_over {
            return None;
        }
        if self.held.iter().any(|held| held.start < end) {
            return None;
        }
        self.areas.pop().map(|posted| (posted.area, is_acknowledged))
    }
}
