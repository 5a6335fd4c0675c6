//! The tables of tripwires: registered, armed, disarmed, taken out.

use landfall_placement::assumed;

use super::adapter::{Ends, Handle, HandleTarget, Link, ListNode, State, Watch, Wire};
use super::filter::{Filter, FilterMut, ListKey, PAGES_PER_LIST, Tiers, WatchedMemory, blocks};
use super::map::Map;
use super::touch::Actions;
use crate::address::{TripwireId, WORD};
use crate::cookie::Access;

/// What the tables know of themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableTotals {
    /// Places of each table that were ever used.
    wires: u32,
    knots: u32,
    free_wires: Handle,
    free_knots: Handle,
    knots_in_use: u32,
    wires_in_use: u32,
    /// How often tripwires were armed.
    armed: u64,
    pub(super) tiers: Tiers,
}

/// The tables, in storage that somebody else owns.
#[derive(Debug)]
pub struct Tables<'t> {
    /// The tripwires.
    pub wires: &'t mut [Wire],
    /// What ties those of more than one word, or for both accesses, into more lists.
    pub knots: &'t mut [ListNode],
    /// The lists of armed tripwires that begin at one word or cover one block, in
    /// the order in which they were armed.
    pub lists: Map<'t, Ends>,
    /// At which of 64 words tripwires begin.
    pub marks: Map<'t, u64>,
    /// Which blocks are covered.
    pub trees: Map<'t, u128>,
    /// What the tables know of themselves.
    pub totals: &'t mut TableTotals,
    /// What firings leave behind.
    pub actions: Actions<'t>,
}

/// What the tables need beside one tripwire while it is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Knots (also while it is not armed).
    pub knots: usize,
    /// Cells of the table of lists.
    pub lists: usize,
    /// Cells of the tables of marks and of trees.
    pub pages: usize,
}

impl Watch {
    pub(super) fn tracks(&self) -> impl Iterator<Item = WatchedMemory> {
        let (first, second) = WatchedMemory::of(self.place.number(), self.access);
        core::iter::once(first).chain(second)
    }

    /// The first word and the last.
    fn words(&self) -> (u32, u32) {
        let word = u64::from(WORD);
        ((self.from / word) as u32, ((self.to - 1) / word) as u32)
    }

    /// Is there a byte to watch, and is each at a word that has a number?
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.from < self.to && (self.to - 1) / u64::from(WORD) <= u64::from(u32::MAX)
    }

    /// The lists that a valid one belongs to. The first is that of the tripwire
    /// itself, for the others it needs knots.
    fn lists(&self) -> impl Iterator<Item = ListKey> {
        let (first, last) = self.words();
        self.tracks().flat_map(move |track| {
            let covers = blocks(u64::from(first) + 1, u64::from(last));
            let covers = covers.map(move |(level, block)| ListKey::cover(track, level, block));
            core::iter::once(ListKey::start(track, first)).chain(covers)
        })
    }

    /// What the tables need for a valid one.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let lists = self.lists().count();
        Needs { knots: lists - 1, lists, pages: lists * PAGES_PER_LIST }
    }
}

impl<'t> Tables<'t> {
    /// Registers a tripwire, which is not armed yet. `None` where the watch is
    /// not valid or the tables are full.
    pub fn add(&mut self, watch: &Watch) -> Option<TripwireId> {
        if !watch.is_valid() || self.free_knots() < watch.needs().knots {
            return None;
        }
        let index = self.take_wire()?;
        let mut knots = Handle::NOTHING;
        for key in watch.lists().skip(1) {
            let knot = self.take_knot()?;
            let entry = self.knots.get_mut(knot as usize)?;
            *entry = ListNode { key, link: Link::default(), wire: index, sibling: knots };
            knots = Handle::knot(knot);
        }
        let wire = self.wires.get_mut(index as usize)?;
        let mut state = State::USED;
        if watch.once {
            state.put(State::ONCE, true);
        }
        *wire = Wire {
            from: watch.from,
            to: watch.to,
            action: watch.action,
            place: watch.place.number(),
            knots,
            generation: wire.generation,
            access: watch.access,
            state,
            ..Wire::default()
        };
        Some(TripwireId { index, generation: wire.generation })
    }

    /// Takes a tripwire out; its name means nothing from now on.
    pub fn remove(&mut self, index: u32) {
        if self.wire(index).is_none() {
            return;
        }
        self.disarm(index);
        let Some(wire) = assumed(self.wires.get_mut(index as usize), "it was looked at just above")
        else {
            return;
        };
        let mut at = wire.knots;
        wire.generation = wire.generation.wrapping_add(1);
        wire.state = State::default();
        wire.knots = core::mem::replace(&mut self.totals.free_wires, Handle::wire(index));
        self.totals.wires_in_use -= 1;
        while let HandleTarget::ListNode(knot) = at.held() {
            let Some(entry) = assumed(
                self.knots.get_mut(knot as usize),
                "what a tripwire is tied by is in the tables",
            ) else {
                return;
            };
            let next = entry.sibling;
            entry.sibling = core::mem::replace(&mut self.totals.free_knots, at);
            self.totals.knots_in_use -= 1;
            at = next;
        }
    }

    /// A tripwire that is registered.
    #[must_use]
    #[inline]
    pub(crate) fn wire(&self, index: u32) -> Option<&Wire> {
        self.wires.get(index as usize).filter(|wire| wire.state.has(State::USED))
    }

    /// Arms a tripwire: of those that are armed it is now the last. One that is
    /// armed stays where it is. Returns whether it is armed: not where it does not
    /// exist or the tables are full.
    pub fn arm(&mut self, index: u32) -> bool {
        // There is no such tripwire.
        let Some(wire) = self.wire(index) else { return false };
        if wire.state.has(State::ARMED) {
            return true;
        }
        let (key, needs) = (wire.start(), self.needs_of(index));
        let has_room = self.lists.has_room_for(needs.lists)
            && self.marks.has_room_for(needs.pages)
            && self.trees.has_room_for(needs.pages);
        if !has_room {
            return false;
        }
        self.totals.armed += 1;
        let armed_at = self.totals.armed;
        let Some(wire) = assumed(self.wires.get_mut(index as usize), "it was looked at just above")
        else {
            return false;
        };
        wire.armed_at = armed_at;
        wire.state.put(State::ARMED, true);
        let mut at = wire.knots;
        self.tie(key, Handle::wire(index));
        while let HandleTarget::ListNode(knot) = at.held() {
            let Some(ListNode { key, sibling, .. }) = self.knots.get(knot as usize).copied() else {
                break;
            };
            self.tie(key, at);
            at = sibling;
        }
        true
    }

    /// Disarms a tripwire: what touches its memory costs nothing more.
    pub fn disarm(&mut self, index: u32) {
        // There is no such tripwire.
        let Some(wire) = self.wires.get_mut(index as usize) else { return };
        if !wire.state.put(State::ARMED, false) {
            return;
        }
        let (key, mut at) = (wire.start(), wire.knots);
        self.untie(key, Handle::wire(index));
        while let HandleTarget::ListNode(knot) = at.held() {
            let Some(ListNode { key, sibling, .. }) = self.knots.get(knot as usize).copied() else {
                break;
            };
            self.untie(key, at);
            at = sibling;
        }
    }

    // ---- What a tripwire has to say ------------------------------------------

    /// What the tables need to arm a tripwire.
    #[must_use]
    pub fn needs_of(&self, index: u32) -> Needs {
        let knots = self.wire(index).map_or(0, |wire| self.knots_of(wire).count());
        Needs { knots, lists: knots + 1, pages: (knots + 1) * PAGES_PER_LIST }
    }

    /// The number of the memory that a tripwire watches.
    pub(crate) fn place_of(&self, index: u32) -> u32 {
        self.wire(index).map_or(0, |wire| wire.place)
    }

    /// The aperture of this host and the words of it whose writing fires a tripwire, if
    /// any does now.
    pub(crate) fn watched_words(&self, index: u32) -> Option<(u16, u32, u32)> {
        let wire = self.wire(index).filter(|wire| wire.state.has(State::ARMED))?;
        let slot = u16::try_from(wire.place).ok()?;
        let word = u64::from(WORD);
        let (first, last) = ((wire.from / word) as u32, ((wire.to - 1) / word) as u32);
        wire.access.hears(Access::Write).then_some((slot, first, last))
    }

    /// How often the place of a tripwire that is registered was used before.
    #[must_use]
    pub fn generation(&self, index: u32) -> Option<u32> {
        Some(self.wire(index)?.generation)
    }

    /// Does it fire when it is touched?
    #[must_use]
    pub fn is_armed(&self, index: u32) -> bool {
        self.wire(index).is_some_and(|wire| wire.state.has(State::ARMED))
    }

    /// Has it fired since it was cleared?
    #[must_use]
    pub fn has_fired(&self, index: u32) -> bool {
        self.wire(index).is_some_and(|wire| wire.state.has(State::FIRED))
    }

    /// How many touched words it has fired at.
    #[must_use]
    pub fn count(&self, index: u32) -> u64 {
        self.wire(index).map_or(0, |wire| wire.count)
    }

    /// Forgets that it has fired. Returns whether it had.
    pub fn clear(&mut self, index: u32) -> bool {
        let wire = self.wires.get_mut(index as usize);
        wire.is_some_and(|wire| wire.state.put(State::FIRED, false))
    }

    /// The user has read the event of a tripwire, or it found no room: the next
    /// firing is told again.
    pub fn event_taken(&mut self, index: u32) {
        if let Some(wire) = self.wires.get_mut(index as usize) {
            wire.state.put(State::REPORTED, false);
        }
    }

    /// Takes the oldest name out of the queue, but none of a tripwire that is gone.
    pub fn pop_name(&mut self) -> Option<TripwireId> {
        loop {
            let name = self.actions.pop()?;
            if self.generation(name.index) == Some(name.generation) {
                self.event_taken(name.index);
                return Some(name);
            }
        }
    }

    // ---- Lists ---------------------------------------------------------------

    /// Puts something at the end of a list.
    fn tie(&mut self, key: ListKey, handle: Handle) {
        let Some(ends) = assumed(self.lists.entry(key.0), "there was room for its list") else {
            return;
        };
        let before = core::mem::replace(&mut ends.last, handle);
        if ends.first.is_nothing() {
            ends.first = handle;
            self.filter_mut().set(key);
        }
        if let Some(link) = self.link_mut(handle) {
            *link = Link { before, after: Handle::NOTHING };
        }
        if let Some(link) = self.link_mut(before) {
            link.after = handle;
        }
    }

    /// Takes something out of its list.
    fn untie(&mut self, key: ListKey, handle: Handle) {
        let Some(link) = assumed(self.link_mut(handle), "what is tied is in the tables") else {
            return;
        };
        let Link { before, after } = core::mem::take(link);
        if let Some(link) = self.link_mut(before) {
            link.after = after;
        }
        if let Some(link) = self.link_mut(after) {
            link.before = before;
        }
        if !before.is_nothing() && !after.is_nothing() {
            return;
        }
        let Some(ends) = assumed(self.lists.get_mut(key.0), "what is tied is in a list") else {
            return;
        };
        if before.is_nothing() {
            ends.first = after;
        }
        if after.is_nothing() {
            ends.last = before;
        }
        if ends.first.is_nothing() {
            self.lists.remove(key.0);
            self.filter_mut().clear(key);
        }
    }

    #[inline]
    fn link_mut(&mut self, handle: Handle) -> Option<&mut Link> {
        match handle.held() {
            HandleTarget::Nothing => None,
            HandleTarget::Wire(index) => Some(&mut self.wires.get_mut(index as usize)?.link),
            HandleTarget::ListNode(index) => Some(&mut self.knots.get_mut(index as usize)?.link),
        }
    }

    /// What comes after this in its list, and whose it is.
    #[inline]
    pub(super) fn look_at(&self, handle: Handle) -> Option<(u32, Handle)> {
        match handle.held() {
            HandleTarget::Nothing => None,
            HandleTarget::Wire(index) => Some((index, self.wires.get(index as usize)?.link.after)),
            HandleTarget::ListNode(index) => {
                let knot = self.knots.get(index as usize)?;
                Some((knot.wire, knot.link.after))
            }
        }
    }

    /// The first in a list.
    #[inline]
    pub(super) fn first_of(&self, key: ListKey) -> Handle {
        self.lists.look().get(key.0).map_or(Handle::NOTHING, |ends| ends.first)
    }

    /// What is armed, to be asked.
    #[inline]
    pub(super) const fn filter(&self) -> Filter<'_> {
        let tiers = self.totals.tiers.used;
        Filter { marks: self.marks.look(), trees: self.trees.look(), tiers }
    }

    const fn filter_mut<'a>(&'a mut self) -> FilterMut<'a, 't> {
        FilterMut { marks: &mut self.marks, trees: &mut self.trees, tiers: &mut self.totals.tiers }
    }

    // ---- Places in the tables ------------------------------------------------

    fn knots_of(&self, wire: &Wire) -> impl Iterator<Item = &ListNode> {
        let mut at = wire.knots;
        core::iter::from_fn(move || {
            let HandleTarget::ListNode(index) = at.held() else { return None };
            let knot = self.knots.get(index as usize)?;
            at = knot.sibling;
            Some(knot)
        })
    }

    fn free_knots(&self) -> usize {
        self.knots.len().min(1 << 30).saturating_sub(self.totals.knots_in_use as usize)
    }

    fn take_wire(&mut self) -> Option<u32> {
        let totals = &mut *self.totals;
        let index = match totals.free_wires.held() {
            HandleTarget::Wire(index) => {
                totals.free_wires = self.wires.get(index as usize)?.knots;
                index
            }
            _ if (totals.wires as usize) < self.wires.len().min(1 << 30) => {
                totals.wires += 1;
                totals.wires - 1
            }
            _ => return None,
        };
        totals.wires_in_use += 1;
        Some(index)
    }

    fn take_knot(&mut self) -> Option<u32> {
        let totals = &mut *self.totals;
        let index = match totals.free_knots.held() {
            HandleTarget::ListNode(index) => {
                totals.free_knots = self.knots.get(index as usize)?.sibling;
                index
            }
            _ if (totals.knots as usize) < self.knots.len() => {
                totals.knots += 1;
                totals.knots - 1
            }
            _ => return None,
        };
        totals.knots_in_use += 1;
        Some(index)
    }
}

impl Wire {
    /// The list of the tripwire itself.
    fn start(&self) -> ListKey {
        let word = (self.from / u64::from(WORD)) as u32;
        ListKey::start(WatchedMemory::of(self.place, self.access).0, word)
    }
}

impl TableTotals {
    /// How many tripwires are registered.
    #[must_use]
    pub const fn wires_in_use(&self) -> usize {
        self.wires_in_use as usize
    }

    /// How many knots they have.
    #[must_use]
    pub const fn knots_in_use(&self) -> usize {
        self.knots_in_use as usize
    }
}
