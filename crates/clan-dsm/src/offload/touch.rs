//! The match: which tripwires does this access touch, and in which order?
//!
//! An access touches words in ascending order, and a tripwire fires at each of
//! its words that is touched: so it does not matter where a burst was split. Of
//! several at one word, the one that was armed first fires first.
//!
//! What is looked at does not depend on how many tripwires there are. For the
//! first word: whether a tripwire begins there, and which blocks around it are
//! covered. For all behind it: where the next tripwire begins, 64 words at a
//! step, and empty pages 64 at a step.

use arrayvec::ArrayVec;

use super::filter::Filter;
use super::place::{ListKey, Place, TIER, Track};
use super::tables::Tables;
use super::wire::{Action, Firing, Handle, State};
use crate::access::Access;
use crate::address::WORD;

/// Lists that one word may be in: it begins or is inside of a block of each of 33
/// levels, for reads and for writes.
const MOST_LISTS: usize = 2 * (1 + 33);

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
    fn tracks(self) -> impl Iterator<Item = Track> + use<> {
        let (first, second) = Track::of(self.place, self.access);
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
        let (one, other) = Track::of(touched.place, touched.access);
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
    fn first_on(self, track: Track, first: u32, last: u32) -> Option<u32> {
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
            while marks != 0 {
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
        let Some(wire) = self.wires.get_mut(index as usize) else { return };
        let (from, to) = (wire.from.max(touched.from), wire.to.min(touched.to));
        if from >= to {
            return;
        }
        let is_once = wire.state.has(State::ONCE);
        let last = (to - 1) / u64::from(WORD);
        let words = if is_once { 1 } else { last - u64::from(word) + 1 };
        wire.count = wire.count.wrapping_add(words);
        let is_first = !wire.state.put(State::FIRED, true);
        let name = (index, wire.generation);
        let mut tells = false;
        match wire.action {
            Action::State => {}
            Action::Identifier => {
                if !wire.state.has(State::TOLD) && self.actions.push(name) {
                    wire.state.put(State::TOLD, true);
                }
            }
            Action::Bit(number) => self.actions.set_bit(number),
            Action::Count(counter) => self.actions.add(counter, words),
            Action::Event => tells = !wire.state.put(State::TOLD, true),
        }
        if is_once {
            self.disarm(index);
        }
        sink(Firing { index, generation: name.1, word, words, is_first, tells });
    }
}
