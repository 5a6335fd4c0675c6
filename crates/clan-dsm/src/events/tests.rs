//! The event queue beside a list that is searched from end to end.

use super::*;
use crate::error::Ended;
use crate::ids::{BarrierId, DmaId};
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
    TripwireId::new((index, generation))
}

fn endpoint((index, generation): (u32, u32)) -> EndpointId {
    EndpointId::new((index, generation))
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
            Event::Dma { endpoint, dma: DmaId::new((n, 0)), result: Err(Ended::Silent) }
        }
    }
}

fn barrier(n: u32) -> Event {
    Event::Barrier { barrier: BarrierId::new((n, 0)), result: Ok(()) }
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
