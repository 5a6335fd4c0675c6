//! [`Receiver`]: the receiver's half of a connection: what has come, where it
//! was placed, how much more may come, and what is owed an acknowledgement.
//!
//! There is no byte ring: what comes is placed into posted requests, in order
//! or not. The window that is offered is the posted memory.

mod selective;
mod window;

use alloc::boxed::Box;

use landfall_placement::{Duration, Instant, Serial32, Spans};

use super::layout::{Extent, FirstRequest, Layout};
use super::ranges::Ranges;
use crate::queue::ReceiveQueue;
use crate::tcp::Mapping;
use selective::Disorder;

/// A part of the stream that a driver is putting into its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// All of the segment's payload is claimed, or was there before.
    is_whole: bool,
    /// The end of this message was noted with the claim, for those that follow
    /// in the same turn.
    noted_end: bool,
    /// The layout that the place was looked up in.
    layout: u16,
}

/// The payload of a segment that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload {
    /// Its position in the stream; what repeats the opening begins before it.
    pub(crate) at: i64,
    pub(crate) len: u32,
    /// Of several that came one behind another the longest; else its own length.
    pub(crate) longest: u32,
    /// The last of them.
    pub(crate) last: u32,
}

impl Claim {
    /// Was a message known to end with it?
    #[inline]
    pub(crate) const fn notes_end(&self) -> bool {
        self.noted_end
    }

    /// Takes the claim that begins where this one ends, if it does; nothing may have landed
    /// between the two. The ends of messages inside stay noted.
    #[inline]
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let follows = self.end == next.start && self.is_whole && next.is_whole;
        if follows && self.layout == next.layout {
            *self = Self { start: self.start, ..*next };
            return true;
        }
        false
    }

    /// Is nothing claimed?
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// When an acknowledgement leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owed(Instant);

impl Owed {
    const NOTHING: Self = Self(Instant::FAR_FUTURE);
    const NOW: Self = Self(Instant::ZERO);

    /// With the next segment, or at this time (RFC 9293, 3.8.6.3).
    fn until(at: Instant) -> Self {
        Self(at)
    }

    /// When it leaves alone, where that was put off.
    fn deadline(self) -> Instant {
        if self == Self::NOW { Instant::FAR_FUTURE } else { self.0 }
    }
}

#[derive(Debug)]
pub(crate) struct Receiver {
    /// The number of the other side's opening.
    first: Serial32,
    /// All in front of this has come.
    next: u64,
    disorder: Option<Box<Disorder>>,
    /// What drivers are placing.
    claims: Ranges,
    layout: Layout,
    /// Changes whenever places that were looked up before are wrong.
    layout_version: u16,
    /// Changes whenever what comes next belongs elsewhere than was to be expected.
    course: u16,
    mapping: Mapping,
    /// The right edge of what is offered; it never moves left. Not beyond what is
    /// posted, but that messages which ended early gave memory back.
    edge: u64,
    /// The rightmost edge that a header said, which is rounded: it is honoured.
    told_edge: u64,
    /// The last header, which is what the other side goes by, said so much less.
    said_less: u16,
    scale: u8,
    /// Our end of the stream, in what the other side was told.
    acknowledged: u64,
    owed: Owed,
    /// When the user of a byte stream hears at the latest of what came.
    report_by: Instant,
    /// Segments that came since the last acknowledgement.
    unanswered: u16,
    /// Where the other side's stream ends; beyond all positions where nobody knows yet.
    fin: u64,
    /// Something inside of the window was dropped, for there was no memory. Anyone who
    /// posts some has the other side hear of it.
    lacked_memory: bool,
    /// The next bare acknowledgement says that what was dropped may come again.
    asks_again: bool,
    /// The longest of the recent messages.
    usual_message: u32,
    /// The largest segment that came (RFC 9293, 3.8.6.2.2).
    segment: u16,
    /// The usual payload of a unit: for guesses.
    usual_payload: u32,
    /// Bytes inside the offered window for which no memory was left.
    pub(crate) no_memory: u64,
    /// Bytes that were placed on the assumption that a hole ends no message, and were
    /// forgotten when it did. (They are few.)
    pub(crate) forgotten: u32,
}

/// The blocks that are reported in their order: as many as a header has room for.
const RECENT: usize = crate::wire::tcp_options::Blocks::MAX;

/// No position is so far.
const NEVER: u64 = u64::MAX;

/// The most ranges behind holes that are kept; what would make one more is dropped.
const MOST_RANGES: usize = 64;

impl Receiver {
    /// `first`: the number of the other side's opening; `offered`: the window
    /// that our own opening offers.
    pub(crate) fn new(first: u32, mapping: Mapping, offered: u64, scale: u8) -> Self {
        Self {
            first: Serial32(first),
            next: 1,
            disorder: None,
            claims: Ranges::None,
            layout: Layout::new(1),
            layout_version: 0,
            course: 0,
            mapping,
            edge: 1 + offered,
            told_edge: 1 + offered,
            said_less: 0,
            scale,
            acknowledged: 0,
            owed: Owed::NOTHING,
            report_by: Instant::FAR_FUTURE,
            unanswered: 0,
            fin: NEVER,
            lacked_memory: false,
            asks_again: false,
            usual_message: 536,
            segment: 536,
            usual_payload: 0,
            no_memory: 0,
            forgotten: 0,
        }
    }

    #[inline]
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The number that is expected next, as it stands in a header.
    #[inline]
    pub(crate) const fn next_number(&self) -> u32 {
        self.first.plus(self.next as u32).0
    }

    /// The position of a number, near the next that is expected; negative in
    /// front of the stream.
    #[inline]
    pub(crate) const fn position_of(&self, number: u32) -> i64 {
        let ahead = Serial32(number).offset_from(self.first.plus(self.next as u32));
        self.next as i64 + ahead as i64
    }

    /// The number of a position, as it stands in a header.
    pub(crate) const fn number_of(&self, position: u64) -> u32 {
        self.first.plus(position as u32).0
    }

    /// Has all come that will?
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.next > self.fin
    }

    /// RFC 9293, 3.10.7.4, first check: does the segment touch the window?
    #[inline]
    pub(crate) fn is_acceptable(&self, at: i64, len: u32) -> bool {
        let (next, edge) = (self.next as i64, self.honoured().max(self.next) as i64);
        let end = at + i64::from(len);
        // What starts right at the edge is heard too: an acknowledgement or an
        // end need no memory, and payload there is not claimed.
        at <= edge && (end > next || (len == 0 && at >= next))
    }

    /// Is less memory at hand than this payload needs, which belongs into the window?
    pub(crate) fn lacks_memory(&self, at: i64, len: u32, queue: &ReceiveQueue) -> bool {
        let (end, limit) = (at + i64::from(len), self.honoured().min(self.fin));
        let end = (end.max(0) as u64).min(limit);
        at < limit as i64 && end > self.next && self.layout.end(queue) < end
    }

    /// Claims the place of a segment's payload: fills in its spans and says how
    /// many bytes in front of it are skipped. What has come before, or is
    /// outside of the window, is not claimed.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        at: i64,
        len: u32,
        is_pushed: bool,
        queue: &ReceiveQueue,
        into: &mut Spans,
    ) -> (u32, Claim) {
        let end = at + i64::from(len);
        let (Ok(segment_end), true) = (u64::try_from(end), at < self.honoured() as i64) else {
            return (0, Claim::default());
        };
        let limit = self.honoured().min(self.fin);
        let mut start = u64::try_from(at).unwrap_or(0).max(self.next);
        while start < segment_end {
            let covered = self.placed().end_at(start).or_else(|| self.claims.end_at(start));
            let Some(behind) = covered else { break };
            start = behind;
        }
        // Up to what is held or on its way: accepted memory is not written again, and the
        // payload of a segment lies in memory as it does in the segment. What is new behind
        // that comes again.
        let mut to = segment_end.min(limit);
        for ranges in [self.placed(), &self.claims] {
            to = to.min(ranges.next_start(start).unwrap_or(u64::MAX));
        }
        let is_covered = start >= segment_end;
        let is_new_range = start > self.next && self.placed().len() >= MOST_RANGES;
        if start >= to || is_new_range || !self.layout.has_room() {
            let claim = Claim { is_whole: is_covered, ..self.empty_claim(segment_end) };
            return (0, claim);
        }
        let placed = self.layout.place(start, to, queue, into);
        self.no_memory += to - placed;
        self.lacked_memory |= placed < to;
        let is_part = start as i64 != at || placed != segment_end;
        if placed == start || is_part && matches!(self.mapping, Mapping::Segment) {
            // A message that is one segment is taken whole, or not at all: an
            // acknowledgement of a part would have the rest sent as another.
            into.clear();
            return (0, self.empty_claim(segment_end));
        }
        self.claims.insert(start, placed);
        let is_whole = placed == segment_end;
        // A header that is not verified yet may add to what is known, but must
        // not take away.
        let is_last = self.placed().end() <= placed && self.claims.end() <= placed;
        let notes = is_pushed && is_whole && is_last && self.has_messages();
        let noted_end = notes && !self.layout.is_end(placed);
        if noted_end {
            self.layout.add_end(placed);
        }
        let skip = (start as i64 - at) as u32;
        let layout = self.layout_version;
        (skip, Claim { start, end: placed, is_whole, noted_end, layout })
    }

    const fn empty_claim(&self, at: u64) -> Claim {
        let layout = self.layout_version;
        Claim { start: at, end: at, is_whole: false, noted_end: false, layout }
    }

    #[inline]
    const fn has_messages(&self) -> bool {
        !matches!(self.mapping, Mapping::Stream)
    }

    /// The claimed bytes did not come to lie there, or their check failed.
    pub(crate) fn give_up(&mut self, claim: Claim) {
        self.claims.remove(claim.start, claim.end);
        if claim.noted_end {
            self.layout.remove_end(claim.end);
            self.forget_behind(claim.end);
        }
    }

    /// Places behind this position were looked up wrongly.
    fn forget_behind(&mut self, position: u64) {
        let forgotten = u32::try_from(self.forget_placed(position)).unwrap_or(u32::MAX);
        self.forgotten = self.forgotten.saturating_add(forgotten);
        self.layout.forget_behind(position);
        self.layout_version = self.layout_version.wrapping_add(1);
        self.course = self.course.wrapping_add(1);
    }

    /// The claimed bytes are in place and their check is right. `is_pushed` is the flag
    /// of their segment.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        payload: Payload,
        is_pushed: bool,
        claim: Claim,
        queue: &mut ReceiveQueue,
        delay: Duration,
    ) {
        let Payload { at, len, longest, last } = payload;
        self.claims.remove(claim.start, claim.end);
        if claim.layout != self.layout_version && !claim.is_empty() {
            // Its place was looked up before something else was learnt.
            if claim.noted_end {
                self.layout.remove_end(claim.end);
            }
            self.owed = Owed::NOW;
            return;
        }
        self.segment = self.segment.max(longest.min(65_535) as u16);
        self.usual_payload = last;
        let segment_end = at.saturating_add(i64::from(len)).max(0) as u64;
        if segment_end > self.fin && !self.is_finished() {
            // The stream goes on behind its end, which was none: somebody else said so.
            self.fin = NEVER;
            self.owed = Owed::NOW;
        }
        let before = self.next;
        if is_pushed && claim.is_whole && self.has_messages() {
            self.learn_end(segment_end, queue);
        }
        if claim.is_empty() {
            self.note_duplicate(at, segment_end);
            return;
        }
        if (at.max(0) as u64) < claim.start {
            // What is in front of what is new has come before.
            self.note_duplicate(at, claim.start);
        } else if claim.end < segment_end && self.placed().end_at(claim.end).is_some() {
            self.note_duplicate(claim.end as i64, segment_end);
        }
        if claim.start == self.next && self.placed().is_empty() {
            self.next = claim.end;
        } else {
            self.place_out_of_order(claim.start, claim.end);
        }
        self.settle(queue);
        if !self.has_messages() {
            self.report_in_time(now + delay, is_pushed, queue);
        }
        self.owe(now, before + (claim.end - claim.start), queue, delay);
    }

    /// A segment that is accepted next has this word for the message that ends with it.
    pub(crate) fn note_word(&mut self, end: i64, word: u32, claim: &Claim) {
        // What is not accepted, or not whole, comes again.
        let is_current = claim.is_empty() || claim.layout == self.layout_version;
        if let Ok(end) = u64::try_from(end)
            && claim.is_whole
            && is_current
            && self.has_messages()
        {
            self.layout.add_word(end, word);
        }
    }

    /// A message ends here. If something was placed behind it on the assumption
    /// that none does, that was wrong.
    fn learn_end(&mut self, end: u64, queue: &ReceiveQueue) {
        if end <= self.layout.front() || self.layout.is_end(end) {
            return;
        }
        let is_behind = self.placed().end() > end || self.claims.end() > end;
        if is_behind && !self.layout.is_boundary(end, queue) {
            self.forget_behind(end);
        }
        self.layout.add_end(end);
        self.course = self.course.wrapping_add(1);
    }

    /// Requests that are full, or whose message has ended, are done.
    #[inline]
    fn settle(&mut self, queue: &mut ReceiveQueue) {
        while let Some(front) = self.layout.front_end(queue) {
            if front.end > self.next {
                break;
            }
            self.finish_front(front, queue);
        }
        if self.fin == self.next {
            self.next += 1;
            self.owed = Owed::NOW;
            self.finish_stream(queue);
        }
    }

    fn finish_front(&mut self, front: FirstRequest, queue: &mut ReceiveQueue) {
        let len = (front.end - self.layout.front()) as u32;
        let word = if front.ends_message { self.layout.take_word(front.end) } else { None };
        queue.finish(len, front.ends_message, word);
        self.layout.advance(front);
        // What is offered for requests to come: the longest message, which
        // shorter ones make forgotten only slowly.
        let faded = self.usual_message - self.usual_message / 16;
        self.usual_message = faded.max(len);
    }

    /// The stream has ended: so has the request that it ended in.
    fn finish_stream(&mut self, queue: &mut ReceiveQueue) {
        let end = self.next - 1;
        if end > self.layout.front() {
            self.finish_front(FirstRequest { end, ends_message: false }, queue);
        }
    }

    /// Tells the user of a byte stream what is there: at once where the other
    /// side asks for it, else when nothing more came for a while.
    fn report_in_time(&mut self, by: Instant, is_pushed: bool, queue: &mut ReceiveQueue) {
        if is_pushed {
            self.report(queue);
        } else if self.next > self.layout.front() {
            self.report_by = self.report_by.min(by);
        }
    }

    pub(crate) fn report(&mut self, queue: &mut ReceiveQueue) {
        if self.next > self.layout.front() && !self.is_finished() {
            let len = (self.next - self.layout.front()) as u32;
            queue.report(len, true);
        }
        self.report_by = Instant::FAR_FUTURE;
    }

    /// The other side's stream ends here: its FIN has this position.
    pub(crate) fn learn_fin(&mut self, position: u64, queue: &mut ReceiveQueue) {
        if self.fin == NEVER && position >= self.next {
            self.fin = position;
            self.forget_placed(position);
        }
        self.owed = Owed::NOW;
        self.settle(queue);
    }

    /// An acknowledgement is owed for what came: at once for every second
    /// segment (RFC 5681, 4.2), and whatever is out of order or fills a hole.
    /// `in_order` is where the stream goes on if it was neither.
    #[inline]
    fn owe(&mut self, now: Instant, in_order: u64, queue: &ReceiveQueue, delay: Duration) {
        self.unanswered = self.unanswered.saturating_add(1);
        let is_in_order = self.next == in_order && self.placed().is_empty();
        if !is_in_order || self.unanswered >= 2 || self.is_kept_waiting(queue) {
            self.owed = Owed::NOW;
        } else if self.owed == Owed::NOTHING {
            self.owed = Owed::until(now + delay);
        }
    }

    /// The other side has to hear of us.
    pub(crate) fn owe_now(&mut self) {
        self.owed = Owed::NOW;
    }

    #[inline]
    pub(crate) fn is_owed_now(&self) -> bool {
        self.owed == Owed::NOW
    }

    /// When an acknowledgement that was put off has to leave.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.owed.deadline().min(self.report_by)
    }

    /// It is time for what was put off.
    pub(crate) fn handle_timeout(&mut self, now: Instant, queue: &mut ReceiveQueue) {
        if self.owed.deadline() <= now {
            self.owed = Owed::NOW;
        }
        if self.report_by <= now {
            self.report(queue);
        }
    }

    /// Memory was posted: what was dropped for want of it may come again, and the other
    /// side has to hear of that.
    #[inline]
    pub(crate) fn ask_again(&mut self) {
        if core::mem::take(&mut self.lacked_memory) {
            self.asks_again = true;
            self.owed = Owed::NOW;
        }
    }

    /// Does the next bare acknowledgement ask for what was dropped?
    #[inline]
    pub(crate) const fn asks_again(&self) -> bool {
        self.asks_again
    }

    /// Where the next payloads will lie, from request to request, and how long
    /// each is. Behind a hole nothing is guessed, but the hole is.
    ///
    /// `most`: units are as long as what was sent or joined, up to so much; else
    /// they are as long as the last one.
    pub(crate) fn guess(
        &self,
        nth: usize,
        most: Option<u32>,
        queue: &ReceiveQueue,
    ) -> Option<(landfall_placement::Span, u32)> {
        if self.usual_payload == 0 || self.fin != NEVER {
            return None;
        }
        let mut from = self.next;
        while let Some(claimed) = self.claims.end_at(from) {
            from = claimed;
        }
        let hole_end = self.placed().next_start(from).unwrap_or(u64::MAX);
        let is_behind_hole = nth > 0 && hole_end != u64::MAX;
        if is_behind_hole || self.placed().end_at(from).is_some() {
            return None;
        }
        let mut open = self.layout.extents_to(from, queue).filter(|extent| extent.end > from);
        let Extent { start, end, gather } = open.nth(nth)?;
        let at = from.max(start) - start;
        let mut spans = Spans::new();
        let to = end.min(hole_end) - start;
        gather.slice(at as u32, (to - at) as u32, &mut spans);
        let span = *spans.first()?;
        Some((span, most.unwrap_or(self.usual_payload).min(span.len)))
    }
}
