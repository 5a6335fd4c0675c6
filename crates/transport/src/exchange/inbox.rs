//! Posting guesses: which memory the kernel shall scatter the next units to.
//!
//! The list alternates a scratch place for a head and the guessed place of its
//! payload, and ends in a buffer that takes whatever is longer than guessed.
//! What becomes of the bytes once they came is in `settle`.

use arrayvec::ArrayVec;
use landfall_placement::{
    Check, Ecn, Engine, InternetSum, Landing, PathId, Peer, Placement, Refusal, Span, Spans,
    Ticket, WordOp,
};

use super::opened::Opened;
use super::{HEAD_ROOM, IoVecs, LONGEST, MAX_UNITS, PREFIX_ROOM, Prefix};
use crate::memory::{Pins, RawSpan, Rights};

/// What one receive brought: one unit, or several of equal length behind each
/// other (the last may be shorter).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// All bytes together.
    pub(crate) len: usize,
    /// The length of each unit but the last.
    pub(crate) unit_len: usize,
    pub(crate) from: Peer,
    pub(crate) ecn: Ecn,
    /// For one unit that was coalesced from several: the payload of each.
    pub(crate) coalesced: Option<u16>,
    /// The transport checksum was verified beneath the driver.
    pub(crate) verified: bool,
}

/// A unit that came by a list of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScatteredUnit {
    /// The number of the list.
    pub(crate) nth: usize,
    /// This many bytes behind the prefix are no part of the unit.
    pub(crate) skip: usize,
    pub(crate) arrival: Arrival,
}

/// A unit that was looked at before it was received: its place is known already. In a box, for
/// few are, and the list is long.
#[derive(Debug)]
pub(crate) struct Peeked {
    pub(crate) result: Result<Placement, Refusal>,
    /// Where [`Placement::Into`] wants it.
    pub(crate) spans: Spans,
    /// The length of this unit, and of those that come with it.
    pub(crate) unit_len: usize,
}

impl Peeked {
    /// The single span behind a head of known length, if it is as simple as that.
    fn simple_place(&self) -> Option<(usize, Span)> {
        match (&self.result, self.spans.as_slice()) {
            // What is sealed is opened before it comes to its place.
            (Ok(Placement::Into { check: Check::Sealed { .. }, .. }), _) => None,
            (Ok(Placement::Into { at, .. }), [span])
                if usize::from(*at) <= HEAD_ROOM
                    && usize::from(*at) + span.len as usize == self.unit_len =>
            {
                Some((usize::from(*at), *span))
            }
            _ => None,
        }
    }
}

/// Where one unit was invited to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) head_len: usize,
    pub(super) span: Span,
}

impl Slot {
    pub(super) fn len(&self) -> usize {
        self.head_len + self.span.len as usize
    }

    /// `len` bytes of the payload from its byte `at` on.
    pub(super) fn payload(&self, at: usize, len: usize) -> Span {
        self.span.split_at(at as u32).1.split_at(len as u32).0
    }

    /// Copies bytes of the unit that landed here, from byte `at` on.
    pub(super) fn copy_out(
        &self,
        head: &[u8; HEAD_ROOM],
        at: usize,
        pins: &mut Pins,
        into: &mut [u8],
    ) {
        let from_head = self.head_len.saturating_sub(at).min(into.len());
        let (head_part, payload_part) = into.split_at_mut(from_head);
        head_part.copy_from_slice(&head[at.min(self.head_len)..][..from_head]);
        let span = self.payload(at.max(self.head_len) - self.head_len, payload_part.len());
        // It was posted in this turn. If its grant has ended since, nobody
        // will be told of these bytes: writing them is refused as well.
        let _ = pins.move_aside(&span, payload_part);
    }
}

/// What has to be done, in order, once all places are known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Write bytes that lie elsewhere into spans of the inbox's list.
    Write { source: Displaced, from: usize, spans: usize, count: usize },
    /// All bytes of a ticket were written, or lie where they belong. `len`: how many.
    Announce { ticket: Ticket, landing: Landing, len: u64 },
    /// Change a shared word, and announce it.
    Word { ticket: Ticket, op: WordOp },
}

/// Where bytes lie that are not in their place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Displaced {
    /// Set aside.
    Aside,
    /// In no posted place.
    Loose,
}

/// The receiving half of a driver, without its system call.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(super) path: PathId,
    max_units: usize,
    /// How many units are likely to come: posting for nothing costs time.
    worth_posting: usize,
    pub(super) heads: Box<[[u8; HEAD_ROOM]; MAX_UNITS]>,
    pub(super) slots: ArrayVec<Slot, MAX_UNITS>,
    /// The stream position behind the last slot.
    posted: usize,
    /// Position n of what came lies at byte n here, if it lies in no slot.
    pub(super) linear: Box<[u8]>,
    /// This many of those were moved there from slots.
    pub(super) linearized: usize,
    pub(super) aside: Vec<u8>,
    pub(super) longer_head: Vec<u8>,
    pub(super) steps: Vec<Step>,
    pub(super) spans: Vec<Span>,
    /// What was opened of one receive.
    pub(super) opened: Vec<Opened>,
    /// Where the engine says that a unit belongs: it is long to make.
    pub(super) asked: Option<Box<Spans>>,
    /// What a driver wants in front of what it receives.
    prefixes: Box<[Prefix]>,
    prefix_len: usize,
    iovecs: IoVecs,
    /// Where each list ends, if each unit has one of its own.
    ends: Vec<usize>,
    /// Whether guesses are right more often than not, if each unit has a list.
    pub(super) guesses: GuessHistory,
    /// This many slots belong to the first run of guesses.
    pub(super) first_run: usize,
    /// How far the runs behind it tell the truth.
    pub(super) later_runs: Reach,
    /// A unit may be shorter than guessed, and then the next one follows on it: a run is
    /// posted by one list, and runs behind it if that takes all of it.
    lengths_vary: bool,
}

impl Inbox {
    /// An inbox for batches of at most `max_units` that come with one list,
    /// which begins with `prefix_len` bytes that are the driver's.
    pub(crate) fn new(path: PathId, max_units: usize, prefix_len: usize) -> Self {
        Self::with_lists(path, max_units, prefix_len, 1)
    }

    /// An inbox for `max_units` units that come each by a list of its own.
    pub(crate) fn of_lists(path: PathId, max_units: usize, prefix_len: usize) -> Self {
        Self::with_lists(path, max_units, prefix_len, max_units.clamp(1, MAX_UNITS))
    }

    fn with_lists(path: PathId, max_units: usize, prefix_len: usize, lists: usize) -> Self {
        Self {
            path,
            max_units: max_units.clamp(1, MAX_UNITS),
            worth_posting: MAX_UNITS,
            heads: Box::new([[0; HEAD_ROOM]; MAX_UNITS]),
            slots: ArrayVec::new(),
            posted: 0,
            // Much for many lists, but the system gives memory once it is used.
            linear: vec![0; lists * LONGEST].into_boxed_slice(),
            linearized: 0,
            aside: Vec::with_capacity(LONGEST),
            longer_head: Vec::new(),
            steps: Vec::with_capacity(2 * MAX_UNITS),
            spans: Vec::with_capacity(2 * MAX_UNITS),
            opened: Vec::new(),
            asked: None,
            prefixes: vec![[0; PREFIX_ROOM]; lists].into_boxed_slice(),
            prefix_len: prefix_len.min(PREFIX_ROOM),
            iovecs: IoVecs::with_capacity(4 * MAX_UNITS + 2),
            ends: Vec::with_capacity(MAX_UNITS),
            guesses: GuessHistory::default(),
            first_run: 0,
            later_runs: Reach::of(MAX_UNITS),
            lengths_vary: false,
        }
    }

    /// The same for whole frames, which are as long as others have joined them.
    pub(crate) fn of_frames(path: PathId, max_units: usize, prefix_len: usize) -> Self {
        let later_runs = Reach::of(2);
        Self { lengths_vary: true, later_runs, ..Self::of_lists(path, max_units, prefix_len) }
    }

    /// Are this many units likely to come that posting for them takes longer than a call that
    /// asks whether anything came?
    pub(crate) const fn posts_many(&self) -> bool {
        const FEW: usize = 4;
        self.worth_posting > FEW
    }

    /// What came in front of the units, by this list.
    pub(crate) fn prefix(&self, list: usize) -> &Prefix {
        &self.prefixes[list]
    }

    pub(crate) fn path(&self) -> PathId {
        self.path
    }

    /// Builds the list for the next receive from what the engine guesses.
    pub(crate) fn post<E: Engine>(
        &mut self,
        engine: &E,
        pins: &mut Pins,
        peeked: Option<&Peeked>,
    ) -> &mut IoVecs {
        self.start_posting();
        match peeked.map(Peeked::simple_place) {
            // The layout of what comes is not ours to choose: take it as it is.
            Some(None) => {}
            Some(Some((head_len, span))) => {
                if self.post_slot(head_len, span, pins) {
                    self.post_guesses(engine, pins, peeked.map(|peeked| peeked.unit_len));
                }
            }
            None => self.post_guesses(engine, pins, None),
        }
        self.end_posting()
    }

    /// Builds a list for each of the next units, `most` of them at most, for one
    /// call that receives several. What is longer than guessed lands behind the
    /// slot of its list.
    ///
    /// If there is a guess, there are no more lists than slots: what else waits
    /// will be guessed once these units are known.
    pub(crate) fn post_each<E: Engine>(
        &mut self,
        engine: &E,
        pins: &mut Pins,
        most: usize,
    ) -> (&mut IoVecs, &[usize]) {
        self.slots.clear();
        self.iovecs.clear();
        self.ends.clear();
        let lists = self.max_units.min(self.worth_posting).min(most);
        // What lies in a wrong place is copied twice, what lies in none once.
        if !self.guesses.is_due() {
            self.guess_each(engine, pins, lists);
        }
        if self.ends.is_empty() {
            for _ in 0..lists {
                self.start_list();
                self.end_list(0);
            }
        }
        (&mut self.iovecs, &self.ends)
    }

    /// Lists for the units that the engine guesses, whatever their lengths.
    fn guess_each<E: Engine>(&mut self, engine: &E, pins: &mut Pins, lists: usize) {
        let runs = self.later_runs.runs().min(lists);
        self.first_run = usize::MAX;
        for nth in 0..runs {
            if nth == 1 {
                self.first_run = self.slots.len();
            }
            let Some(guess) = engine.guess(self.path, nth) else { return };
            let head_len = usize::from(guess.head_len);
            if guess.payload_len == 0 || head_len > HEAD_ROOM {
                return;
            }
            let mut rest = guess.span;
            while rest.len > 0 {
                let (span, behind) = rest.split_at(guess.payload_len);
                let fits = head_len + span.len as usize <= LONGEST;
                if self.ends.len() == lists || !fits {
                    return;
                }
                let start = self.iovecs.len();
                self.start_list();
                if !self.post_slot(head_len, span, pins) {
                    return self.iovecs.truncate(start);
                }
                self.end_list(head_len + span.len as usize);
                rest = behind;
                if self.lengths_vary && rest.len > 0 {
                    return;
                }
            }
        }
    }

    fn start_list(&mut self) {
        if self.prefix_len > 0 {
            let prefix = &mut self.prefixes[self.ends.len()];
            self.iovecs.push_slice(&mut prefix[..self.prefix_len]);
        }
    }

    /// Whatever is longer than `posted` bytes lands behind them.
    fn end_list(&mut self, posted: usize) {
        let start = self.ends.len() * LONGEST;
        self.iovecs.push_slice(&mut self.linear[start + posted..start + LONGEST]);
        self.ends.push(self.iovecs.len());
    }

    fn start_posting(&mut self) {
        self.slots.clear();
        self.linearized = 0;
        self.posted = 0;
        self.iovecs.clear();
        if self.prefix_len > 0 {
            self.iovecs.push_slice(&mut self.prefixes[0][..self.prefix_len]);
        }
    }

    /// Whatever is longer than guessed lands behind the last slot.
    fn end_posting(&mut self) -> &mut IoVecs {
        self.iovecs.push_slice(&mut self.linear[self.posted..]);
        &mut self.iovecs
    }

    /// Invites one more unit; not if its place is not (or no longer) lent.
    fn post_slot(&mut self, head_len: usize, span: Span, pins: &mut Pins) -> bool {
        let Ok(place) = pins.resolve(&span, Rights::WRITE) else { return false };
        self.post_resolved(Slot { head_len, span }, place);
        true
    }

    fn post_resolved(&mut self, slot: Slot, place: RawSpan) {
        let head = &mut self.heads[self.slots.len()];
        self.iovecs.push_slice(&mut head[..slot.head_len]);
        self.iovecs.push(place.ptr, place.len);
        self.posted += slot.len();
        self.slots.push(slot);
    }

    /// Posts the runs that the engine guesses, as long as all units in them
    /// have one length.
    fn post_guesses<E: Engine>(
        &mut self,
        engine: &E,
        pins: &mut Pins,
        mut unit_len: Option<usize>,
    ) {
        let most = self.max_units.min(self.worth_posting);
        for nth in 0.. {
            let Some(guess) = engine.guess(self.path, nth) else { return };
            let head_len = usize::from(guess.head_len);
            let this_len = head_len + guess.payload_len as usize;
            if guess.payload_len == 0
                || head_len > HEAD_ROOM
                || *unit_len.get_or_insert(this_len) != this_len
            {
                return;
            }
            // As many units as there is room for, resolved together.
            let room = (most - self.slots.len()).min((LONGEST - self.posted) / this_len);
            let len = (room as u64 * u64::from(guess.payload_len)).min(guess.span.len.into());
            let mut rest = guess.span.split_at(len as u32).0;
            let Ok(mut place) = pins.resolve(&rest, Rights::WRITE) else { return };
            let is_cut = rest.len < guess.span.len;
            while rest.len > 0 {
                let (span, behind) = rest.split_at(guess.payload_len);
                let (payload, place_behind) = place.split_at(span.len as usize);
                (rest, place) = (behind, place_behind);
                self.post_resolved(Slot { head_len, span }, payload);
                if span.len < guess.payload_len {
                    // A shorter unit is the last of its batch.
                    return;
                }
            }
            if is_cut {
                return;
            }
        }
    }

    /// Were the bytes scattered as the slots have it? Otherwise heads and
    /// payloads are cut in the wrong places.
    pub(super) fn fits(&self, arrival: &Arrival) -> bool {
        let mut at = 0;
        for slot in &self.slots {
            let unit = arrival.unit_len.min(arrival.len - at);
            if unit > slot.len() || (unit < slot.len() && at + unit < arrival.len) {
                return false;
            }
            at += unit;
            if at == arrival.len {
                break;
            }
        }
        true
    }

    /// Sums the first `len` bytes that came behind the prefix, where they lie. None where the
    /// memory of some is not lent any more.
    pub(crate) fn sum(&self, len: usize, pins: &mut Pins) -> Option<InternetSum> {
        let (mut sum, mut at) = (InternetSum::new(), 0);
        for (slot, head) in self.slots.iter().zip(self.heads.iter()) {
            if at == len {
                break;
            }
            let in_slot = slot.len().min(len - at);
            let in_head = slot.head_len.min(in_slot);
            sum.add(&head[..in_head]);
            sum.append(pins.sum(&[slot.payload(0, in_slot - in_head)]).ok()?);
            at += in_slot;
        }
        sum.add(&self.linear[at..len]);
        Some(sum)
    }

    /// Makes the bytes one piece again: the price of a wrong length guessed.
    pub(super) fn linearize(&mut self, len: usize, pins: &mut Pins) {
        let mut at = 0;
        for (n, slot) in self.slots.iter().enumerate() {
            let piece = slot.len().min(len - at);
            slot.copy_out(&self.heads[n], 0, pins, &mut self.linear[at..at + piece]);
            at += piece;
        }
        self.slots.clear();
        self.linearized = at;
    }

    /// Posts for twice as many as came. After a smaller batch only one less,
    /// since short ones come between long ones at the ends of messages, and
    /// what is not posted for is copied.
    pub(super) fn learn(&mut self, units: usize) {
        self.worth_posting = (2 * units).max(self.worth_posting - 1).clamp(2, MAX_UNITS);
    }
}

// Whether something that guesses well most of the time does so now.

/// Counts misses, and says when to do without guesses for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GuessHistory {
    /// Misses in a row.
    misses: u32,
    /// This many times it will still be done without.
    left: u32,
}

/// This many misses in a row are no accident.
const MISSES: u32 = 2;
/// Then it is done without this many times, before guesses get another chance.
const TIMES: u32 = 64;

impl GuessHistory {
    /// Shall it be done without this time?
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.left > 0;
        self.left = self.left.saturating_sub(1);
        due
    }

    /// A guess was right, or missed.
    pub(crate) fn learn(&mut self, missed: bool) {
        self.misses = if missed { self.misses + 1 } else { 0 };
        if self.misses >= MISSES {
            *self = Self { misses: 0, left: TIMES };
        }
    }
}

// How many runs of guesses are posted at once.

/// Doubles while all of them are right; after a miss it is one for a while, and two then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    runs: usize,
    /// This many times it will still be one.
    left: u32,
}

impl Reach {
    /// Begins with this many.
    const fn of(runs: usize) -> Self {
        Self { runs, left: 0 }
    }

    /// This many are posted this time.
    fn runs(&mut self) -> usize {
        if self.left > 0 {
            self.left -= 1;
            return 1;
        }
        self.runs
    }

    /// All runs behind the first were right, or one of them missed.
    pub(super) fn learn(&mut self, missed: bool) {
        *self = match missed {
            true => Self { runs: 2, left: TIMES },
            false => Self { runs: (2 * self.runs).min(MAX_UNITS), left: 0 },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_in_a_row_are_believed_for_a_while() {
        let mut doubt = GuessHistory::default();
        for missed in [true, false, true] {
            doubt.learn(missed);
            assert!(!doubt.is_due());
        }
        doubt.learn(true);
        assert!((0..TIMES).all(|_| doubt.is_due()));
        assert!(!doubt.is_due(), "another chance");
    }

    #[test]
    fn runs_that_are_right_become_more_and_a_miss_makes_them_one() {
        let mut reach = Reach::of(2);
        let tried: Vec<usize> = (0..6)
            .map(|_| {
                let runs = reach.runs();
                reach.learn(false);
                runs
            })
            .collect();
        assert_eq!(tried, [2, 4, 8, 16, 32, MAX_UNITS]);
        reach.learn(true);
        assert!((0..TIMES).all(|_| reach.runs() == 1));
        assert_eq!(reach.runs(), 2, "another chance");
    }
}
