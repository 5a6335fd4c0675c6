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
use super::place::{ListKey, Place, Track};
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
#[derive(Clone, Copy)]
struct Touched {
    place: u32,
    from: u64,
    to: u64,
    access: Access,
}

impl Touched {
    fn tracks(&self) -> impl Iterator<Item = Track> + Clone + use<> {
        Track::of(self.place, self.access)
    }

    /// The first word and the last.
    #[inline]
    const fn words(&self) -> (u32, u32) {
        ((self.from / WORD as u64) as u32, ((self.to - 1) / WORD as u64) as u32)
    }

    /// The first word that a tripwire may be touched at.
    #[inline]
    fn first_in(&self, filter: &Filter<'_>) -> Option<u32> {
        let (first, last) = self.words();
        if self.tracks().any(|track| filter.is_covered(track, first)) {
            return Some(first);
        }
        self.next_in(filter, first, last)
    }

    /// The first word from `from` on that a tripwire begins at.
    #[inline]
    fn next_in(&self, filter: &Filter<'_>, from: u32, last: u32) -> Option<u32> {
        self.tracks().filter_map(|track| filter.next_start(track, from, last)).min()
    }
}

impl Tables<'_> {
    /// The bytes from `from` to before `to` were touched: fires what watches
    /// them, and tells `sink` of each firing.
    #[inline]
    pub fn touch(
        &mut self,
        place: Place,
        from: u64,
        to: u64,
        access: Access,
        sink: &mut impl FnMut(Firing),
    ) {
        let to = to.min((1 << 32) * u64::from(WORD));
        if from >= to {
            return;
        }
        let touched = Touched { place: place.number(), from, to, access };
        if let Some(word) = touched.first_in(&self.filter()) {
            self.fire_from(&touched, word, sink);
        }
    }

    #[inline(never)]
    fn fire_from(&mut self, touched: &Touched, mut word: u32, sink: &mut impl FnMut(Firing)) {
        let (first, last) = touched.words();
        loop {
            let heads = self.heads(touched, word, word == first);
            self.fire_at(touched, word, heads, sink);
            let next = word.checked_add(1).filter(|next| *next <= last);
            let next = next.and_then(|next| touched.next_in(&self.filter(), next, last));
            match next {
                Some(next) => word = next,
                None => return,
            }
        }
    }

    /// The lists of what begins at this word, and of what covers it, if asked for.
    fn heads(&self, touched: &Touched, word: u32, with_covers: bool) -> Heads {
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
        touched: &Touched,
        word: u32,
        mut heads: Heads,
        sink: &mut impl FnMut(Firing),
    ) {
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
    fn fire(&mut self, touched: &Touched, word: u32, index: u32, sink: &mut impl FnMut(Firing)) {
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
