//! The asynchronous event queue: all that a program with many endpoints waits
//! for comes out of one queue, and each step costs the same however many there
//! are (section 3.5 of the paper).
//!
//! Three kinds of events have a [`Source`] that is registered and unregistered
//! singly: tripwires, chains of DMA, out-of-band messages. Of a source that is
//! not registered, or of an earlier generation, nothing is told, also of what
//! waited already. A tripwire and the messages of an endpoint wait at most once:
//! what is behind them is remembered elsewhere, and looking once finds it all.
//!
//! The queue is bounded. Where an event found no room, [`Event::Overflow`] stands
//! in its place. What only the event itself could tell, namely how something
//! ended that the user had begun, never meets that: its place was promised when
//! it began, and at the bound the user cannot begin more.
//!
//! What does not live here: what fires, and who wakes the program.

use landfall_placement::assumed;

use crate::address::{EndpointId, TripwireId};
use crate::event::Event;
use alloc::vec::Vec;
use landfall_tables::{AgeLinks, AgeList, EntryKey, Table};

/// What can be registered for the event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A tripwire fires.
    Tripwire(TripwireId),
    /// A chain in the DMA queue of an endpoint is done.
    Dma(EndpointId),
    /// Something waits in the queue of an endpoint.
    OutOfBand(EndpointId),
}

impl Source {
    const KINDS: usize = 3;

    /// Where an event comes from. Nothing, if it is told to everybody.
    const fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Tripwire { tripwire } => Some(Self::Tripwire(*tripwire)),
            Event::Dma { endpoint, .. } => Some(Self::Dma(*endpoint)),
            Event::OutOfBand { endpoint } => Some(Self::OutOfBand(*endpoint)),
            _ => None,
        }
    }

    /// Kind, index and generation.
    const fn place(self) -> (usize, usize, u32) {
        match self {
            Self::Tripwire(id) => (0, id.index as usize, id.generation),
            Self::Dma(id) => (1, id.index as usize, id.generation),
            Self::OutOfBand(id) => (2, id.index as usize, id.generation),
        }
    }

    /// Does one event that waits say as much as many?
    const fn is_coalesced(self) -> bool {
        matches!(self, Self::Tripwire(_) | Self::OutOfBand(_))
    }
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    generation: u32,
    is_registered: bool,
    waiting: AgeList,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    event: Event,
    room: EntrySlot,
}

/// What holds the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntrySlot {
    /// The capacity of the queue.
    Common,
    /// A promise.
    Promised,
    /// That the entry before it has a place: there is at most one for each.
    Overflow,
}

/// The queue.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    entries: Table<Entry>,
    order: AgeLinks,
    queue: AgeList,
    /// The entries of each source, oldest first.
    siblings: AgeLinks,
    sources: [Vec<Record>; Source::KINDS],
    capacity: usize,
    /// How many entries hold a common place.
    common: usize,
    promises: usize,
    /// How many promises are given, and not yet redeemed or released.
    promised: usize,
}

impl EventQueue {
    /// An empty queue for `capacity` events, and for the results of `promises`
    /// operations besides.
    pub(crate) fn new(capacity: usize, promises: usize) -> Self {
        let capacity = capacity.max(1);
        let limit = capacity.saturating_add(promises).saturating_add(1).saturating_mul(2);
        Self {
            entries: Table::new(limit.min(u32::MAX as usize / 2)),
            order: AgeLinks::new(),
            queue: AgeList::new(),
            siblings: AgeLinks::new(),
            sources: [const { Vec::new() }; Source::KINDS],
            capacity,
            common: 0,
            promises,
            promised: 0,
        }
    }

    /// From now on events of this source are told. What waits of an earlier
    /// source in the same slot is taken out: it is dead.
    pub(crate) fn register(&mut self, source: Source) {
        let (kind, index, generation) = source.place();
        let records = &mut self.sources[kind];
        if records.len() <= index {
            records.resize(index + 1, Record::default());
        }
        if records[index].generation != generation {
            self.discard(kind, index);
        }
        let record = &mut self.sources[kind][index];
        record.generation = generation;
        record.is_registered = true;
    }

    /// Events of this source are not told any more, nor are those that wait.
    pub(crate) fn unregister(&mut self, source: Source) {
        let (kind, index, _) = source.place();
        if self.is_registered(source) {
            self.sources[kind][index].is_registered = false;
            self.discard(kind, index);
        }
    }

    /// Are events of this source told?
    pub(crate) fn is_registered(&self, source: Source) -> bool {
        self.record(source).is_some_and(|record| record.is_registered)
    }

    /// Keeps a place for how something will end that is about to begin. At the
    /// bound there is none.
    pub(crate) const fn promise(&mut self) -> bool {
        let has_room = self.promised < self.promises;
        self.promised += has_room as usize;
        has_room
    }

    /// What was promised a place did not begin after all.
    pub(crate) const fn release_promise(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Tells of something. Without room, that something is missing stands in
    /// its place. Returns whether the event waits in the queue.
    pub(crate) fn push(&mut self, event: Event) -> bool {
        landfall_placement::trace!(?event);
        let source = Source::of(&event);
        if !self.is_told(source) {
            return false;
        }
        if self.says_already(source) {
            return true;
        }
        let has_room = self.common < self.capacity;
        if has_room {
            self.common += 1;
            self.enter(Entry { event, room: EntrySlot::Common }, source);
        } else {
            self.overflow();
        }
        has_room
    }

    /// Tells how something ended that a place was promised for.
    pub(crate) fn push_promised(&mut self, event: Event) {
        landfall_placement::trace!(?event);
        let source = Source::of(&event);
        if !self.is_told(source) || self.says_already(source) {
            self.release_promise();
            return;
        }
        self.enter(Entry { event, room: EntrySlot::Promised }, source);
    }

    /// The next event.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let oldest = self.queue.oldest()?;
        self.take(oldest).map(|entry| entry.event)
    }

    /// Does nothing wait?
    pub(crate) const fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn record(&self, source: Source) -> Option<&Record> {
        let (kind, index, generation) = source.place();
        self.sources[kind].get(index).filter(|record| record.generation == generation)
    }

    fn is_told(&self, source: Option<Source>) -> bool {
        source.is_none_or(|source| self.is_registered(source))
    }

    /// Does an event wait that says the same?
    fn says_already(&self, source: Option<Source>) -> bool {
        source.filter(|source| source.is_coalesced()).is_some_and(|source| {
            self.record(source).is_some_and(|record| !record.waiting.is_empty())
        })
    }

    fn enter(&mut self, entry: Entry, source: Option<Source>) {
        let Some(EntryKey { index: place, .. }) =
            assumed(self.entries.insert(entry), "there was room for it when it was promised")
        else {
            return;
        };
        self.order.push(&mut self.queue, place);
        if let Some(source) = source {
            let (kind, index, _) = source.place();
            self.siblings.push(&mut self.sources[kind][index].waiting, place);
        }
    }

    /// One more event is missing here.
    fn overflow(&mut self) {
        let newest = self.queue.newest().and_then(|place| self.entries.get_mut(place));
        if let Some(Entry { event: Event::Overflow { lost }, .. }) = newest {
            *lost = lost.saturating_add(1);
        } else {
            let event = Event::Overflow { lost: 1 };
            self.enter(Entry { event, room: EntrySlot::Overflow }, None);
        }
    }

    fn take(&mut self, place: u32) -> Option<Entry> {
        let entry = self.entries.remove(place)?;
        self.order.remove(&mut self.queue, place);
        if let Some(source) = Source::of(&entry.event) {
            let (kind, index, _) = source.place();
            self.siblings.remove(&mut self.sources[kind][index].waiting, place);
        }
        match entry.room {
            EntrySlot::Common => self.common -= 1,
            EntrySlot::Promised => self.release_promise(),
            EntrySlot::Overflow => {}
        }
        Some(entry)
    }

    /// Takes out what waits of a source. Two gaps that meet become one.
    fn discard(&mut self, kind: usize, index: usize) {
        while let Some(place) = self.sources[kind][index].waiting.oldest() {
            let (older, newer) = (self.order.older(place), self.order.newer(place));
            self.take(place);
            let (Some(older), Some(newer)) = (older, newer) else { continue };
            let (Some(first), Some(lost)) = (self.lost_at(older), self.lost_at(newer)) else {
                continue;
            };
            self.take(newer);
            if let Some(entry) = self.entries.get_mut(older) {
                entry.event = Event::Overflow { lost: first.saturating_add(lost) };
            }
        }
    }

    fn lost_at(&self, place: u32) -> Option<u64> {
        match self.entries.get(place)?.event {
            Event::Overflow { lost } => Some(lost),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    //! The event queue beside a list that is searched from end to end.

    use super::*;
    use crate::address::{BarrierId, DmaId};
    use crate::error::Ended;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// What the queue is said to do, as plainly as it can be put.
    struct Model {
        waiting: Vec<(Event, bool)>,
        registered: BTreeSet<Source>,
        capacity: usize,
        promises: usize,
        promised: usize,
    }

    impl Model {
        fn drop_events_of(&mut self, dead: impl Fn(Source) -> bool) {
            let mut promised = 0;
            self.waiting.retain(|(event, is_promised)| {
                let is_dead = Source::of(event).is_some_and(&dead);
                promised += usize::from(is_dead && *is_promised);
                !is_dead
            });
            self.promised -= promised;
            self.waiting.dedup_by(|next, before| match (next.0, &mut before.0) {
                (Event::Overflow { lost: more }, Event::Overflow { lost }) => {
                    *lost += more;
                    true
                }
                _ => false,
            });
        }

        fn register(&mut self, source: Source) {
            let same_slot = move |other: Source| {
                let (kind, index, generation) = source.place();
                let (other_kind, other_index, other_generation) = other.place();
                (kind, index) == (other_kind, other_index) && generation != other_generation
            };
            self.registered.retain(|other| !same_slot(*other));
            self.drop_events_of(same_slot);
            self.registered.insert(source);
        }

        fn unregister(&mut self, source: Source) {
            if self.registered.remove(&source) {
                self.drop_events_of(|other| other == source);
            }
        }

        fn push(&mut self, event: Event, is_promised: bool) {
            let says_the_same = |(other, _): &(Event, bool)| *other == event;
            let is_told = match Source::of(&event) {
                Some(source @ Source::Dma(_)) => self.registered.contains(&source),
                Some(source) => {
                    self.registered.contains(&source) && !self.waiting.iter().any(says_the_same)
                }
                None => true,
            };
            let is_gap = |event: &Event| matches!(event, Event::Overflow { .. });
            let common = self.waiting.iter().filter(|(event, of)| !of && !is_gap(event)).count();
            if !is_told {
                self.promised -= usize::from(is_promised);
            } else if is_promised || common < self.capacity {
                self.waiting.push((event, is_promised));
            } else if let Some((Event::Overflow { lost }, _)) = self.waiting.last_mut() {
                *lost += 1;
            } else {
                self.waiting.push((Event::Overflow { lost: 1 }, false));
            }
        }

        fn promise(&mut self) -> bool {
            let has_room = self.promised < self.promises;
            self.promised += usize::from(has_room);
            has_room
        }

        fn pop(&mut self) -> Option<Event> {
            if self.waiting.is_empty() {
                return None;
            }
            let (event, is_promised) = self.waiting.remove(0);
            self.promised -= usize::from(is_promised);
            Some(event)
        }
    }

    fn tripwire((index, generation): (u32, u32)) -> TripwireId {
        TripwireId::new(index, generation)
    }

    fn endpoint((index, generation): (u32, u32)) -> EndpointId {
        EndpointId::new(index, generation)
    }

    fn source(kind: u8, name: (u32, u32)) -> Source {
        match kind {
            0 => Source::Tripwire(tripwire(name)),
            1 => Source::Dma(endpoint(name)),
            _ => Source::OutOfBand(endpoint(name)),
        }
    }

    /// The event number `n` of a source.
    fn event(source: Source, n: u32) -> Event {
        match source {
            Source::Tripwire(tripwire) => Event::Tripwire { tripwire },
            Source::OutOfBand(endpoint) => Event::OutOfBand { endpoint },
            Source::Dma(endpoint) => {
                Event::Dma { endpoint, dma: DmaId::new(n, 0), result: Err(Ended::Silent) }
            }
        }
    }

    fn barrier(n: u32) -> Event {
        Event::Barrier { barrier: BarrierId::new(n, 0), result: Ok(()) }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Register(Source),
        Unregister(Source),
        Push(Source),
        PushPromised(Source),
        PushToAll,
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        let source = (0u8..3, (0u32..3, 0u32..2)).prop_map(|(kind, name)| source(kind, name));
        prop_oneof![
            2 => source.clone().prop_map(Step::Register),
            1 => source.clone().prop_map(Step::Unregister),
            6 => source.clone().prop_map(Step::Push),
            3 => source.prop_map(Step::PushPromised),
            2 => Just(Step::PushToAll),
            3 => Just(Step::Pop),
        ]
    }

    proptest! {
        /// Every event of a source that is registered comes out once and in its order,
        /// or is counted where it would have been; of others nothing comes out.
        #[test]
        fn the_event_queue_is_as_a_plain_list_is(
            steps in prop::collection::vec(step(), 0..300),
            capacity in 1usize..6,
            promises in 0usize..4,
        ) {
            let mut queue = EventQueue::new(capacity, promises);
            let mut model =
                Model { waiting: Vec::new(), registered: BTreeSet::new(), capacity, promises, promised: 0 };
            for (n, step) in steps.into_iter().enumerate() {
                let n = n as u32;
                match step {
                    Step::Register(source) => {
                        queue.register(source);
                        model.register(source);
                    }
                    Step::Unregister(source) => {
                        queue.unregister(source);
                        model.unregister(source);
                    }
                    Step::Push(source) => {
                        queue.push(event(source, n));
                        model.push(event(source, n), false);
                    }
                    Step::PushPromised(source) => {
                        let is_promised = queue.promise();
                        prop_assert_eq!(is_promised, model.promise());
                        if is_promised {
                            queue.push_promised(event(source, n));
                            model.push(event(source, n), true);
                        }
                    }
                    Step::PushToAll => {
                        queue.push(barrier(n));
                        model.push(barrier(n), false);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop(), model.pop()),
                }
                prop_assert_eq!(queue.len(), model.waiting.len());
                prop_assert!(queue.len() <= 2 * (capacity + promises) + 1);
                prop_assert_eq!(queue.promised, model.promised);
            }
            while let Some(event) = model.pop() {
                prop_assert_eq!(queue.pop(), Some(event));
            }
            prop_assert!(queue.is_empty() && queue.pop().is_none());
        }
    }

    #[test]
    fn an_overflow_stands_where_events_are_missing() {
        let mut queue = EventQueue::new(2, 1);
        for n in 0..5 {
            queue.push(barrier(n));
        }
        assert_eq!(queue.pop(), Some(barrier(0)));
        queue.push(barrier(5));
        assert!(queue.promise() && !queue.promise(), "one result has room besides");
        queue.push_promised(barrier(6));
        queue.push(barrier(7));
        let all: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        let lost = |lost| Event::Overflow { lost };
        assert_eq!(all, [barrier(1), lost(3), barrier(5), barrier(6), lost(1)]);
        assert!(queue.promise(), "a result that was taken leaves its place to another");
    }

    #[test]
    fn an_event_that_was_lost_does_not_keep_its_source_from_telling_again() {
        let mut queue = EventQueue::new(1, 0);
        let source = source(0, (7, 0));
        queue.register(source);
        queue.push(barrier(0));
        queue.push(event(source, 0));
        assert_eq!(queue.pop(), Some(barrier(0)));
        assert_eq!(queue.pop(), Some(Event::Overflow { lost: 1 }));
        queue.push(event(source, 0));
        assert_eq!(queue.pop(), Some(event(source, 0)));
    }

    #[test]
    fn gaps_do_not_pile_up_where_events_between_them_die() {
        let mut queue = EventQueue::new(1, 0);
        let source = source(2, (0, 0));
        for _ in 0..1000 {
            queue.register(source);
            queue.push(event(source, 0));
            queue.push(barrier(0));
            queue.unregister(source);
        }
        assert_eq!(queue.pop(), Some(Event::Overflow { lost: 1000 }));
        assert_eq!(queue.pop(), None);
    }
}
