//! The match: which tripwires does this access touch, and in which order? And what a firing
//! leaves behind: names in a queue, bits, counts.
//!
//! An access touches words in ascending order, and a tripwire fires at each of
//! its words that is touched: so it does not matter where a burst was split. Of
//! several at one word, the one that was armed first fires first.
//!
//! What is looked at does not depend on how many tripwires there are. For the
//! first word: whether a tripwire begins there, and which blocks around it are
//! covered. For all behind it: where the next tripwire begins, 64 words at a
//! step, and empty pages 64 at a step.

use landfall_placement::assumed;

use arrayvec::ArrayVec;

use super::adapter::{Action, Firing, Handle, State};
use super::filter::{Filter, ListKey, Place, TIER, WatchedMemory};
use super::tables::Tables;
use crate::address::{TripwireId, WORD};
use crate::cookie::Access;

/// Searches that a core of today has under way at a time: the memory that they wait
/// for comes for all of them together.
const AHEAD: usize = 16;

/// Lists that one word may be in: it begins or is inside of a block of each of 33
/// levels, for reads and for writes.
const MOST_LISTS: usize = 2 * (1 + 33);

/// Accesses that touch tripwires, and the first word of each that may.
type Found = ArrayVec<(Touched, u32), AHEAD>;

/// The lists at one word.
type Heads = ArrayVec<Handle, MOST_LISTS>;

/// Bytes that are touched, and how.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    place: u32,
    from: u64,
    to: u64,
    access: Access,
}

impl Touched {
    /// The bytes from `from` to before `to`, as far as tripwires can watch them;
    /// `None` where none can.
    #[must_use]
    #[inline]
    pub const fn new(place: Place, from: u64, to: u64, access: Access) -> Option<Self> {
        let end = (1 << 32) * WORD as u64;
        let to = if to < end { to } else { end };
        if from < to { Some(Self { place: place.number(), from, to, access }) } else { None }
    }

    #[inline]
    fn tracks(self) -> impl Iterator<Item = WatchedMemory> + use<> {
        let (first, second) = WatchedMemory::of(self.place, self.access);
        core::iter::once(first).chain(second)
    }

    /// The first word and the last.
    #[inline]
    const fn words(self) -> (u32, u32) {
        ((self.from / WORD as u64) as u32, ((self.to - 1) / WORD as u64) as u32)
    }
}

impl Filter<'_> {
    /// The first word at which a tripwire may be touched. Almost every burst gets
    /// `None`, and that is all that it costs.
    #[must_use]
    #[inline]
    pub fn first(self, touched: Touched) -> Option<u32> {
        let (first, last) = touched.words();
        let (one, other) = WatchedMemory::of(touched.place, touched.access);
        match (self.first_on(one, first, last), other) {
            (found, None) => found,
            (None, Some(track)) => self.first_on(track, first, last),
            (Some(found), Some(track)) => Some(match self.first_on(track, first, found) {
                Some(earlier) => earlier,
                None => found,
            }),
        }
    }

    #[inline]
    fn first_on(self, track: WatchedMemory, first: u32, last: u32) -> Option<u32> {
        if self.is_covered(track, first) {
            return Some(first);
        }
        self.next_start(track, first, last)
    }
}

impl Tables<'_> {
    /// Fires what watches bytes that were touched, and tells `sink` of each firing.
    #[inline]
    pub fn touch(&mut self, touched: Touched, sink: &mut impl FnMut(Firing)) {
        if let Some(word) = self.filter().first(touched) {
            self.fire_from(touched, word, sink);
        }
    }

    /// The same for accesses that were made one after the other, as those of a frame:
    /// what they need of memory is waited for once, and not by each.
    #[inline]
    pub fn touch_all(&mut self, all: &[Touched], sink: &mut impl FnMut(Firing)) {
        for some in all.chunks(AHEAD) {
            let filter = self.filter();
            let mut found = Found::new();
            for touched in some {
                if let Some(word) = filter.first(*touched) {
                    // It fits, as there are no more in a chunk.
                    let _ = found.try_push((*touched, word));
                }
            }
            if !found.is_empty() {
                self.fire_all(&found, sink);
            }
        }
    }

    #[inline(never)]
    fn fire_all(&mut self, found: &Found, sink: &mut impl FnMut(Firing)) {
        if found.len() > 1 {
            let begins = found.iter().map(|(touched, word)| {
                let (track, _) = WatchedMemory::of(touched.place, touched.access);
                (track, *word)
            });
            self.look_ahead(begins);
        }
        for (touched, word) in found {
            // What fired meanwhile may be disarmed, but nothing was armed: the word is
            // the first one still, or nothing is found there.
            self.fire_from(*touched, *word, sink);
        }
    }

    /// Looks at the lists of these words, and at the first of each list, only so that
    /// they are in the cache when it is their turn. None of the searches waits for
    /// another, as they would where each leads to a firing.
    fn look_ahead(&self, begins: impl Iterator<Item = (WatchedMemory, u32)>) {
        let lists = begins.map(|(track, word)| self.first_of(ListKey::start(track, word)));
        let firsts: ArrayVec<Handle, AHEAD> = lists.take(AHEAD).collect();
        let seen = firsts.iter().filter_map(|first| {
            let (index, _) = self.look_at(*first)?;
            self.wires.get(index as usize).map(|wire| wire.generation)
        });
        core::hint::black_box(seen.fold(0, |all, one| all ^ one));
    }

    /// The same where [`Filter::first`] has said which word is the first.
    #[inline(never)]
    pub fn fire_from(&mut self, touched: Touched, word: u32, sink: &mut impl FnMut(Firing)) {
        let (first, last) = touched.words();
        let mut from = word;
        if word == first {
            let heads = self.heads(touched, word, true);
            self.fire_at(touched, word, heads, sink);
            // Where nothing is behind it, there is nothing to look for.
            match word.checked_add(1).filter(|next| *next <= last) {
                Some(next) => from = next,
                None => return,
            }
        }
        let mut page = from >> TIER;
        loop {
            // Firing disarms, but arms nothing: what is marked now is all there is.
            let filter = self.filter();
            let marks = touched.tracks().map(|track| filter.marks_from(track, page, from));
            let mut marks = marks.fold(0, |all, marks| all | marks);
            if page == last >> TIER {
                marks &= u64::MAX >> (63 - (last & 63));
            }
            let mut ahead = 0;
            while marks != 0 {
                if ahead == 0 && !marks.is_power_of_two() {
                    let (track, _) = WatchedMemory::of(touched.place, touched.access);
                    self.look_ahead(bits_of(marks).map(|bit| (track, page << TIER | bit)));
                    ahead = AHEAD;
                }
                ahead = ahead.saturating_sub(1);
                let word = page << TIER | marks.trailing_zeros();
                marks &= marks - 1;
                let heads = self.heads(touched, word, false);
                self.fire_at(touched, word, heads, sink);
            }
            let filter = self.filter();
            let next = touched.tracks().filter_map(|track| filter.next_page(track, page, last));
            match next.min() {
                Some(next) => (page, from) = (next, 0),
                None => return,
            }
        }
    }

    /// The lists of what begins at this word, and of what covers it, if asked for.
    #[inline]
    fn heads(&self, touched: Touched, word: u32, with_covers: bool) -> Heads {
        let mut heads = Heads::new();
        let mut add = |key: ListKey| {
            let first = self.first_of(key);
            if !first.is_nothing() {
                // It fits, as there are no more levels.
                let _ = heads.try_push(first);
            }
        };
        for track in touched.tracks() {
            add(ListKey::start(track, word));
            if with_covers {
                self.filter().covers(track, word).for_each(&mut add);
            }
        }
        heads
    }

    /// Fires all in these lists, the first armed first.
    fn fire_at(
        &mut self,
        touched: Touched,
        word: u32,
        mut heads: Heads,
        sink: &mut impl FnMut(Firing),
    ) {
        // Most often there is one list.
        while let [head] = heads[..] {
            // That was the last of the list.
            let Some((index, after)) = self.look_at(head) else { return };
            heads[0] = after;
            self.fire(touched, word, index, sink);
        }
        while let Some(index) = self.first_armed(&heads) {
            // One for both accesses may be in two lists. What comes after it must
            // be known before it is disarmed.
            for head in &mut heads {
                if let Some((_, after)) = self.look_at(*head).filter(|(whose, _)| *whose == index) {
                    *head = after;
                }
            }
            self.fire(touched, word, index, sink);
        }
    }

    /// Of the first of each list the one that was armed first.
    #[inline]
    fn first_armed(&self, heads: &Heads) -> Option<u32> {
        let armed = |head: &Handle| {
            let (index, _) = self.look_at(*head)?;
            Some((self.wires.get(index as usize)?.armed_at, index))
        };
        heads.iter().filter_map(armed).min().map(|(_, index)| index)
    }

    /// Fires one, if the bytes that it watches are among those touched.
    #[inline]
    fn fire(&mut self, touched: Touched, word: u32, index: u32, sink: &mut impl FnMut(Firing)) {
        let Some(wire) =
            assumed(self.wires.get_mut(index as usize), "what is in a list is in the tables")
        else {
            return;
        };
        let (from, to) = (wire.from.max(touched.from), wire.to.min(touched.to));
        if from >= to {
            return;
        }
        let is_once = wire.state.has(State::ONCE);
        let last = (to - 1) / u64::from(WORD);
        let words = if is_once { 1 } else { last - u64::from(word) + 1 };
        wire.count = wire.count.wrapping_add(words);
        let is_first = !wire.state.put(State::FIRED, true);
        let name = TripwireId { index, generation: wire.generation };
        let mut tells = false;
        match wire.action {
            Action::State => {}
            Action::Identifier => {
                if !wire.state.has(State::REPORTED) && self.actions.push(name) {
                    wire.state.put(State::REPORTED, true);
                }
            }
            Action::Bit(number) => self.actions.set_bit(number),
            Action::Count(counter) => self.actions.add(counter, words),
            Action::Event => tells = !wire.state.put(State::REPORTED, true),
        }
        if is_once {
            self.disarm(index);
        }
        sink(Firing { index, generation: name.generation, word, words, is_first, tells });
    }
}

/// The numbers of the bits that are set, from the lowest on.
fn bits_of(mut marks: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (marks != 0).then_some(marks.trailing_zeros());
        marks &= marks.wrapping_sub(1);
        bit
    })
}

/// A queue of names, bounded by its storage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queued {
    first: usize,
    len: usize,
    /// Names that found no room since this was last asked.
    lost: u64,
}

/// Where actions leave what they have to say, in storage that somebody else owns.
#[derive(Debug)]
pub struct Actions<'t> {
    /// The tripwires that fired, in the order of their firing.
    pub names: &'t mut [TripwireId],
    /// What of the storage for names is in use.
    pub queued: &'t mut Queued,
    /// One bit per number.
    pub bits: &'t mut [u64],
    /// The event counters.
    pub counters: &'t mut [u64],
}

impl Actions<'_> {
    /// Puts a name at the end of the queue. Returns whether there was room.
    pub(super) fn push(&mut self, name: TripwireId) -> bool {
        let Queued { first, len, lost } = self.queued;
        // Where the storage has no room at all, nothing is divided by its length.
        if *len >= self.names.len() {
            *lost = lost.saturating_add(1);
            return false;
        }
        let at = (*first + *len) % self.names.len();
        self.names[at] = name;
        *len += 1;
        true
    }

    /// Takes the oldest name out.
    pub(super) fn pop(&mut self) -> Option<TripwireId> {
        let Queued { first, len, .. } = self.queued;
        if *len == 0 {
            return None;
        }
        let name = *self.names.get(*first)?;
        *first = (*first + 1) % self.names.len();
        *len -= 1;
        Some(name)
    }

    /// How many names found no room since this was last asked.
    pub fn take_lost(&mut self) -> u64 {
        core::mem::take(&mut self.queued.lost)
    }

    /// Sets a bit; a number beyond the bitmap sets none.
    #[inline]
    pub(super) fn set_bit(&mut self, number: u32) {
        if let Some(bits) = self.bits.get_mut(number as usize / 64) {
            *bits |= 1 << (number % 64);
        }
    }

    /// Counts events; a number beyond the counters counts none.
    #[inline]
    pub(super) fn add(&mut self, counter: u32, events: u64) {
        if let Some(count) = self.counters.get_mut(counter as usize) {
            *count = count.wrapping_add(events);
        }
    }
}
