//! The receiver's half: which bytes of the stream are in place, and where the others belong.

use landfall_inet::Options;
use landfall_placement::{Guess, Instant, Refusal, Spans, Ticket};

use super::config::Config;
use super::intervals::{Areas, Interval, Intervals, Slots};

/// What a segment with payload said besides; it counts once the payload is in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentControl {
    pub(super) acknowledged: u64,
    pub(super) window_end: u64,
    pub(super) timestamp: Option<u32>,
    /// Where the stream ends, if this was its last segment.
    pub(super) end: Option<u64>,
}

/// A placement that a driver works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) bytes: Interval,
    pub(super) said: SegmentControl,
}

/// Blocks of a selective acknowledgement, beside a timestamp.
const MAX_BLOCKS: usize = 3;

/// After this many units in sequence that are shorter than usual, they are the usual.
const SHORTER: u8 = 8;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) areas: Areas,
    /// All bytes before this one are in place.
    pub(super) next: u64,
    /// No byte from here on is in place or under way.
    claimed_end: u64,
    islands: Intervals,
    islands_bound: usize,
    /// Where the island that grew last starts: it is told first (RFC 2018, 4).
    latest: u64,
    pub(super) pending: Slots<Pending>,
    /// The end of the stream, once it was told.
    pub(super) end: Option<u64>,
    pub(super) is_finished: bool,
    /// The window that the sender knows of ends here.
    offered_end: u64,
    most_offered: u64,
    usual_payload: u32,
    shorter: u8,
    last_head: u16,
    pub(super) ack_due: bool,
    pub(super) ack_deadline: Instant,
    unacknowledged: u8,
}

impl Receiver {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            areas: Areas::new(config.areas),
            next: 0,
            claimed_end: 0,
            // Each placement under way may become one more.
            islands: Intervals::new(config.islands + config.under_way),
            islands_bound: config.islands,
            latest: 0,
            pending: Slots::new(config.under_way),
            end: None,
            is_finished: false,
            offered_end: 0,
            most_offered: u64::from(config.window),
            usual_payload: 0,
            shorter: 0,
            last_head: 0,
            ack_due: false,
            ack_deadline: Instant::FAR_FUTURE,
            unacknowledged: 0,
        }
    }

    /// The path changed: what units will be like until the first comes.
    pub(super) fn expect(&mut self, head: u16, payload: u32) {
        self.last_head = head;
        self.usual_payload = payload.max(1);
    }

    /// The first byte behind what may come now.
    fn acceptable_end(&self) -> u64 {
        let end = self.areas.end();
        self.end.map_or(end, |last| last.min(end))
    }

    /// Claims a place for the first part of these bytes that nobody claimed.
    /// Gives how many bytes before it are left out, and the ticket.
    #[inline]
    pub(super) fn claim(
        &mut self,
        start: i64,
        len: u32,
        said: SegmentControl,
        into: &mut Spans,
    ) -> Result<(u32, Ticket), Refusal> {
        let acceptable = self.acceptable_end();
        let end = start.saturating_add(i64::from(len));
        if start >= acceptable as i64 {
            return Err(Refusal::OutOfBounds);
        }
        if end <= self.next as i64 {
            return Err(Refusal::Duplicate);
        }
        let from = start.max(self.next as i64) as u64;
        let to = (end as u64).min(acceptable);
        let Interval { start: from, end: to } =
            self.unclaimed(from, to).ok_or(Refusal::Duplicate)?;
        if self.pending.is_full() || self.is_crowded(from) {
            return Err(Refusal::NoRoom);
        }
        let to = self.areas.fill(from, to, into);
        if to <= from {
            return Err(Refusal::NoRoom);
        }
        let is_whole = to as i64 == end;
        let said = SegmentControl { end: said.end.filter(|_| is_whole), ..said };
        let pending = Pending { bytes: Interval { start: from, end: to }, said };
        let ticket = self.pending.insert(pending).ok_or(Refusal::NoRoom)?;
        self.claimed_end = self.claimed_end.max(to);
        Ok(((from as i64 - start) as u32, ticket))
    }

    /// Could bytes from here on become an island that there is no room to
    /// remember? What continues the highest claim needs one only if something
    /// before it fails.
    #[inline]
    fn is_crowded(&self, from: u64) -> bool {
        let islands = self.islands.as_slice().len();
        let is_apart = from != self.claimed_end && islands >= self.islands_bound;
        let is_full = islands + self.pending.len() >= self.islands.bound();
        from > self.next && (is_apart || is_full)
    }

    /// The first part of these bytes that is neither in place nor under way.
    #[inline]
    fn unclaimed(&self, from: u64, to: u64) -> Option<Interval> {
        if from >= self.claimed_end {
            return (from < to).then_some(Interval { start: from, end: to });
        }
        let (mut from, mut to) = (from, to);
        // Each step passes an island or a placement, so this ends.
        while from < to {
            let behind = self.islands.end_around(from).or_else(|| {
                let around = self.pending.iter().map(|pending| pending.bytes);
                around.filter(|have| have.start <= from && from < have.end).map(|b| b.end).max()
            });
            match behind {
                Some(end) => from = end,
                None => break,
            }
        }
        let placements = self.pending.iter().map(|pending| pending.bytes.start);
        let starts = placements.filter(|start| *start > from).chain(self.islands.next_start(from));
        to = starts.min().map_or(to, |start| start.min(to));
        (from < to).then_some(Interval { start: from, end: to })
    }

    /// The stream ends here, if that fits what is known.
    pub(super) fn learn_end(&mut self, end: u64) {
        if self.end.is_none() && end >= self.claimed_end.max(self.next) {
            self.end = Some(end);
        }
    }

    /// Learns what units look like, for the guesses.
    #[inline]
    pub(super) fn observe(&mut self, head: u16, payload: u32) {
        self.last_head = head;
        if payload >= self.usual_payload {
            self.usual_payload = payload;
            self.shorter = 0;
        } else {
            self.shorter += 1;
            if self.shorter >= SHORTER {
                self.usual_payload = payload;
                self.shorter = 0;
            }
        }
    }

    /// The bytes are in place.
    #[inline]
    pub(super) fn accept(&mut self, bytes: Interval) {
        if bytes.start > self.next {
            self.latest = bytes.start;
            self.ack_due = true;
            let is_kept = self.islands.insert(bytes.start, bytes.end);
            debug_assert!(is_kept, "there is room for every placement under way");
            return;
        }
        self.next = self.next.max(bytes.end);
        if !self.islands.is_empty() {
            self.ack_due = true;
            if let Some(end) = self.islands.end_around(self.next) {
                self.next = end;
            }
            self.islands.forget_before(self.next);
        }
    }

    /// An acknowledgement is owed for a unit that came in order.
    #[inline]
    pub(super) fn owe(&mut self, now: Instant, config: &Config) {
        self.unacknowledged += 1;
        if self.unacknowledged >= 2 {
            self.ack_due = true;
        } else {
            self.ack_deadline = self.ack_deadline.min(now + config.ack_delay);
        }
    }

    /// More memory was posted: the sender is told if it may be waiting for it.
    pub(super) fn offer(&mut self) {
        let window = self.areas.end().saturating_sub(self.next).min(self.most_offered);
        let known = self.offered_end.saturating_sub(self.next);
        let step = (window / 2).min(u64::from(self.usual_payload) * 2).max(1);
        if window.saturating_sub(known) >= step {
            self.ack_due = true;
        }
    }

    /// The window to write, shifted by `scale`. It only ever moves forward.
    pub(super) fn window(&mut self, scale: u8) -> u16 {
        let end = self.areas.end().min(self.next.saturating_add(self.most_offered));
        let most = u64::from(u16::MAX) << scale;
        let room = end.saturating_sub(self.next).min(most);
        // Less room than the scale can say must not read as none, or the
        // sender waits for ever. What it sends too much is trimmed.
        let window = (room >> scale).max(u64::from(room > 0));
        self.offered_end = self.offered_end.max(self.next + (window << scale));
        window as u16
    }

    /// What is behind holes, the newest first, as offsets.
    pub(super) fn blocks(&self, number: impl Fn(u64) -> u32, options: &mut Options) {
        let list = self.islands.as_slice();
        let is_latest = |island: &&Interval| (island.start..island.end).contains(&self.latest);
        let first = list.iter().filter(is_latest);
        let others = list.iter().filter(|island| !is_latest(island));
        let blocks = first.chain(others).take(MAX_BLOCKS);
        options.sack = blocks.map(|island| (number(island.start), number(island.end))).collect();
    }

    pub(super) fn has_holes(&self) -> bool {
        !self.islands.is_empty()
    }

    /// The acknowledgement was written.
    #[inline]
    pub(super) fn acknowledged(&mut self) {
        self.ack_due = false;
        self.ack_deadline = Instant::FAR_FUTURE;
        self.unacknowledged = 0;
    }

    /// The runs behind the highest byte that is claimed: nothing accepted is there.
    #[inline]
    pub(super) fn guess(&self, nth: usize) -> Option<Guess> {
        let from = self.claimed_end.max(self.next);
        let posted = self.areas.nth_from(from, nth)?;
        let at = from.max(posted.start);
        let len = (posted.end() - at).min(1 << 30) as u32;
        if len == 0 || self.end.is_some() {
            return None;
        }
        Some(Guess {
            span: posted.area.span(at - posted.start, len),
            head_len: self.last_head,
            payload_len: self.usual_payload.min(len).max(1),
        })
    }
}
