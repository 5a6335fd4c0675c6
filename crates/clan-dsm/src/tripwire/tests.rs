//! The tables against the naive model, in which every tripwire is looked at for
//! every word.

use std::vec;
use std::vec::Vec;

use landfall_placement::Random;
use proptest::prelude::*;

use super::model::{Fired, Model, ROOM};
use super::{Action, Firing, Place, Touched, Tripwires, Watch};
use crate::address::{HostId, TripsetId, TripwireId};
use crate::config::Config;
use crate::cookie::Access;
use crate::error::Error;

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Both];
/// Words of all apertures there can be.
const ALL_WORDS: u64 = 1 << 32;

fn tripwires(most: usize) -> Tripwires {
    let config = Config { tripwires: most, tripsets: 2, ..Config::default() };
    Tripwires::new(&config, &mut Random::from_number(3))
}

fn touch(tripwires: &mut Tripwires, place: Place, from: u64, to: u64, how: Access) -> Vec<Firing> {
    let mut firings = Vec::new();
    tripwires.touch(place, from..to, how, &mut |firing| firings.push(firing));
    firings
}

/// What the model says, in runs: a tripwire is named when it first fires, with
/// the number of words that it fires at.
fn runs(fired: &[Fired]) -> Vec<Firing> {
    let mut runs: Vec<Firing> = Vec::new();
    for Fired { id, word, tells } in fired {
        match runs.iter_mut().find(|run| run.tripwire == *id) {
            Some(run) => {
                assert_eq!(u64::from(run.word) + run.words, u64::from(*word));
                run.words += 1;
            }
            None => runs.push(Firing { tripwire: *id, word: *word, words: 1, tells: *tells }),
        }
    }
    runs
}

/// A tripwire and the same in the model, and what both say at the end.
struct Pair {
    tripwires: Tripwires,
    model: Model,
    /// All names that there ever were.
    names: Vec<TripwireId>,
    sets: [TripsetId; 2],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Watch(Watch),
    Touch(Place, u64, u64, Access),
    Enable(usize),
    Disable(usize),
    Remove(usize),
    Clear(usize),
    Reported(usize),
    Pop,
    Forget(Place),
    Join(usize, usize),
    Leave(usize),
    Poll(usize),
}

impl Pair {
    fn new() -> Self {
        let mut tripwires = tripwires(ROOM);
        let sets = [tripwires.new_set().unwrap(), tripwires.new_set().unwrap()];
        assert_eq!(tripwires.new_set(), Err(Error::NoRoom));
        Self { tripwires, model: Model::default(), names: vec![], sets }
    }

    fn watch(&mut self, watch: Watch) {
        match self.tripwires.watch(&watch) {
            Ok(id) => {
                assert!(self.model.get(id).is_none(), "names are not given twice");
                self.model.watch(id, watch);
                self.names.push(id);
            }
            Err(error) => assert_eq!((error, self.model.wires.len()), (Error::NoRoom, ROOM)),
        }
    }

    fn touch(&mut self, place: Place, from: u64, to: u64, how: Access) {
        let expected = runs(&self.model.touch(place, from, to, how));
        assert_eq!(touch(&mut self.tripwires, place, from, to, how), expected);
    }

    fn step(&mut self, step: Step) {
        let Self { tripwires, model, names, sets } = self;
        let name = |n: usize| names.get(n % names.len().max(1)).copied();
        let known = |is_known: bool| if is_known { Ok(()) } else { Err(Error::Unknown) };
        match step {
            Step::Watch(watch) => self.watch(watch),
            Step::Touch(place, from, to, how) => self.touch(place, from, to, how),
            Step::Enable(n) => {
                let Some(id) = name(n) else { return };
                assert_eq!(tripwires.enable(id), known(model.enable(id)));
            }
            Step::Disable(n) => {
                let Some(id) = name(n) else { return };
                let known = known(model.get(id).map(|wire| wire.is_armed = false).is_some());
                assert_eq!(tripwires.disable(id), known);
            }
            Step::Remove(n) => {
                let Some(id) = name(n) else { return };
                assert_eq!(tripwires.remove(id), known(model.remove(id)));
            }
            Step::Clear(n) => {
                let Some(id) = name(n) else { return };
                assert_eq!(tripwires.clear(id).ok(), model.clear(id));
            }
            Step::Reported(n) => {
                let Some(id) = name(n) else { return };
                // Only of those that the user is told of; the queue knows of its own.
                if let Some(wire) = model.get(id)
                    && wire.watch.action == Action::Event
                {
                    wire.is_told = false;
                    tripwires.event_taken(id);
                }
            }
            Step::Pop => assert_eq!(tripwires.pop_identifier(), model.pop()),
            Step::Forget(place) => {
                tripwires.forget(place);
                model.forget(place);
            }
            Step::Join(set, n) => {
                let Some(id) = name(n) else { return };
                let expected = match model.get(id) {
                    None => Err(Error::Unknown),
                    Some(wire) if wire.set.is_some() => Err(Error::Taken),
                    Some(wire) => {
                        wire.set = Some(set);
                        if wire.has_fired {
                            model.sets[set].push_back(id);
                        }
                        Ok(())
                    }
                };
                assert_eq!(tripwires.join_set(sets[set], id), expected);
            }
            Step::Leave(n) => {
                let Some(id) = name(n) else { return };
                let was = model.get(id).and_then(|wire| wire.set.take()).is_some();
                model.sets.iter_mut().for_each(|set| set.retain(|member| *member != id));
                assert_eq!(tripwires.leave_set(id), known(was));
            }
            Step::Poll(set) => {
                let expected = model.sets[set].front().copied();
                assert_eq!(tripwires.has_fired_set(sets[set]), Ok(expected.is_some()));
                assert_eq!(tripwires.poll_set(sets[set]), Ok(expected));
                expected.map(|id| model.clear(id));
            }
        }
    }

    fn check(&mut self) {
        let Self { tripwires, model, names, .. } = self;
        for id in names {
            let wire = model.get(*id);
            let wire = wire.ok_or(Error::Unknown);
            let [mut armed, mut fired, mut count] = [const { Err(Error::Unknown) }; 3];
            if let Ok(wire) = wire {
                armed = Ok(u64::from(wire.is_armed));
                fired = Ok(u64::from(wire.has_fired));
                count = Ok(wire.count);
            }
            assert_eq!(tripwires.is_armed(*id).map(u64::from), armed);
            assert_eq!(tripwires.has_fired(*id).map(u64::from), fired);
            assert_eq!(tripwires.count(*id), count);
        }
        for number in 0..4 {
            assert_eq!(tripwires.counter(number), model.counters[number as usize]);
            assert_eq!(tripwires.bit(number), model.bits[number as usize]);
        }
        assert_eq!(tripwires.take_lost() > 0, core::mem::take(&mut model.has_lost));
    }
}

fn places() -> impl Strategy<Value = Place> {
    prop::sample::select(vec![
        Place::Local(0),
        Place::Local(0xffff),
        Place::Remote(HostId::default(), 0),
        Place::Remote(HostId::new(HostId::MAX).unwrap(), 0xffff),
    ])
}

/// Words around which everything happens: where pages and tiers begin and end.
fn corners() -> impl Strategy<Value = u64> {
    let corners = vec![0, 64, 4096, 1 << 18, 1 << 31, ALL_WORDS - 200];
    (prop::sample::select(corners), 0u64..200).prop_map(|(corner, by)| (corner + by) * 8)
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..16, (1u64..9).prop_map(|n| n * 8), 16u64..600, 600u64..6000]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (corners(), prop_oneof![Just(0u64), 0u64..8], bytes())
        .prop_map(|(from, by, len)| (from + by, (from + by + len).min(ALL_WORDS * 8)))
}

/// Tripwires may also watch very much.
fn watched() -> impl Strategy<Value = (u64, u64)> {
    let long = (corners(), 0u64..ALL_WORDS * 8)
        .prop_map(|(from, len)| (from, (from + len + 1).min(ALL_WORDS * 8)));
    prop_oneof![3 => range(), 1 => long]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::State),
        Just(Action::Identifier),
        (0u32..4).prop_map(Action::Bit),
        (0u32..4).prop_map(Action::Count),
        Just(Action::Event),
    ]
}

fn accesses() -> impl Strategy<Value = Access> {
    prop::sample::select(&ACCESSES[..])
}

fn watches() -> impl Strategy<Value = Watch> {
    (places(), watched(), accesses(), actions(), any::<bool>()).prop_map(
        |(place, (from, to), access, action, once)| Watch { place, from, to, access, action, once },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => watches().prop_map(Step::Watch),
        12 => (places(), range(), accesses())
            .prop_map(|(place, (from, to), how)| Step::Touch(place, from, to, how)),
        4 => any::<usize>().prop_map(Step::Enable),
        1 => any::<usize>().prop_map(Step::Disable),
        2 => any::<usize>().prop_map(Step::Remove),
        2 => any::<usize>().prop_map(Step::Clear),
        2 => any::<usize>().prop_map(Step::Reported),
        2 => Just(Step::Pop),
        1 => places().prop_map(Step::Forget),
        3 => (0usize..2, any::<usize>()).prop_map(|(set, n)| Step::Join(set, n)),
        1 => any::<usize>().prop_map(Step::Leave),
        2 => (0usize..2).prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn tripwires_fire_as_in_the_naive_model(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }

    /// The match of many at once looks ahead: what fires on the way, and is disarmed by
    /// it, fires no more for those behind.
    #[test]
    fn what_is_touched_together_fires_as_one_by_one(
        watches in prop::collection::vec(watches(), 1..20),
        frames in prop::collection::vec(prop::collection::vec((range(), accesses()), 0..40), 1..4),
    ) {
        let mut pair = Pair::new();
        for watch in watches {
            pair.watch(Watch { place: Place::Local(0), ..watch });
        }
        for frame in frames {
            let touched = |((from, to), how): &((u64, u64), Access)| {
                Touched::new(Place::Local(0), *from, *to, *how)
            };
            let all: Vec<Touched> = frame.iter().filter_map(touched).collect();
            let mut expected = Vec::new();
            for ((from, to), how) in frame {
                expected.extend(runs(&pair.model.touch(Place::Local(0), from, to, how)));
            }
            let mut firings = Vec::new();
            pair.tripwires.touch_all(&all, &mut |firing| firings.push(firing));
            prop_assert_eq!(firings, expected);
            pair.check();
        }
    }

    /// However a burst is split, each word's tripwires fire in the same order, and
    /// what is left behind is the same.
    #[test]
    fn where_a_burst_is_split_does_not_matter(
        watches in prop::collection::vec(watches(), 1..20),
        from in corners(),
        pieces in prop::collection::vec(1u64..80, 1..8),
        access in accesses(),
    ) {
        let (mut whole, mut split) = (Pair::new(), Pair::new());
        for watch in watches {
            whole.watch(Watch { place: Place::Local(0), ..watch });
            split.watch(Watch { place: Place::Local(0), ..watch });
        }
        let mut at = from;
        for words in pieces {
            let to = (at + words * 8).min(ALL_WORDS * 8);
            split.touch(Place::Local(0), at, to, access);
            at = to;
        }
        whole.touch(Place::Local(0), from, at, access);
        // The model of the whole saw single words, so it is the model of any split.
        split.model = whole.model.clone();
        split.check();
        loop {
            let name = split.tripwires.pop_identifier();
            prop_assert_eq!(name, whole.tripwires.pop_identifier());
            if name.is_none() {
                break;
            }
        }
    }
}

/// Two tripwires, each over any words of six, once or not, and any burst.
#[test]
fn every_small_case_is_as_in_the_naive_model() {
    let ranges: Vec<(u64, u64)> =
        (0..6).flat_map(|from| (from + 1..=6).map(move |to| (from * 8, to * 8))).collect();
    let watch = |(from, to), access, once| {
        let (place, action) = (Place::Local(1), Action::Identifier);
        Watch { place, from, to, access, action, once }
    };
    for (first, second) in ranges.iter().flat_map(|a| ranges.iter().map(move |b| (*a, *b))) {
        for kind in 0..36 {
            let [one, two] = [ACCESSES[kind % 3], ACCESSES[kind / 3 % 3]];
            for (from, to) in &ranges {
                let mut pair = Pair::new();
                pair.watch(watch(first, one, kind / 9 % 2 == 0));
                pair.watch(watch(second, two, kind / 18 == 0));
                pair.touch(Place::Local(1), *from, *to, ACCESSES[kind % 2]);
                pair.step(Step::Enable(0));
                pair.touch(Place::Local(1), *from, *to, Access::Both);
                pair.check();
                pair.step(Step::Pop);
                pair.step(Step::Pop);
            }
        }
    }
}

#[test]
fn memory_that_cannot_be_watched_is_refused() {
    let mut tripwires = tripwires(4);
    let watch = |from, to, action| Watch {
        place: Place::Local(0),
        from,
        to,
        access: Access::Write,
        action,
        once: false,
    };
    assert_eq!(tripwires.watch(&watch(8, 8, Action::State)), Err(Error::BadMemory));
    let end = ALL_WORDS * 8;
    assert_eq!(tripwires.watch(&watch(0, end + 1, Action::State)), Err(Error::BadMemory));
    assert_eq!(tripwires.watch(&watch(0, u64::MAX, Action::State)), Err(Error::BadMemory));
    assert_eq!(tripwires.watch(&watch(0, 8, Action::Bit(64))), Err(Error::NoRoom));
    assert_eq!(tripwires.watch(&watch(0, 8, Action::Bit(u32::MAX))), Err(Error::NoRoom));
    assert_eq!(tripwires.watch(&watch(0, 8, Action::Count(4))), Err(Error::NoRoom));
    assert!(tripwires.watch(&watch(0, end, Action::Count(3))).is_ok());
    let all = touch(&mut tripwires, Place::Local(0), end - 9, u64::MAX, Access::Write);
    assert_eq!((all.len(), all[0].words), (1, 2));
    let none = touch(&mut tripwires, Place::Local(0), u64::MAX - 1, u64::MAX, Access::Write);
    assert!(none.is_empty());
}

/// Invariant 7 (stale is harmless) and invariant 5 (everything is bounded).
#[test]
fn invariants_5_and_7_a_full_table_is_used_again_under_other_names() {
    let mut tripwires = tripwires(3);
    let watch = Watch {
        place: Place::Local(0),
        from: 0,
        to: 80,
        access: Access::Both,
        action: Action::Identifier,
        once: true,
    };
    let mut old = Vec::new();
    for _ in 0..100 {
        let ids: Vec<TripwireId> = (0..3).map(|_| tripwires.watch(&watch).unwrap()).collect();
        assert_eq!(tripwires.watch(&watch), Err(Error::NoRoom));
        let fired = touch(&mut tripwires, Place::Local(0), 79, 80, Access::Read);
        assert!(fired.iter().map(|firing| firing.tripwire).eq(ids.iter().copied()));
        assert!(touch(&mut tripwires, Place::Local(0), 0, 80, Access::Write).is_empty());
        for id in &old {
            assert_eq!(tripwires.remove(*id), Err(Error::Unknown));
            assert_eq!(tripwires.enable(*id), Err(Error::Unknown));
            tripwires.event_taken(*id);
        }
        assert_eq!(tripwires.pop_identifier(), Some(ids[0]));
        for id in &ids {
            tripwires.remove(*id).unwrap();
        }
        // The other two names are in the queue, and name nothing.
        assert_eq!(tripwires.pop_identifier(), None);
        old.extend(ids);
    }
}

/// A queue that is too short for the names tells so, and the tripwires know.
#[test]
fn names_that_find_no_room_are_counted() {
    let mut tripwires = tripwires(2);
    let watch = |word: u64| Watch {
        place: Place::Local(0),
        from: word * 8,
        to: word * 8 + 8,
        access: Access::Write,
        action: Action::Identifier,
        once: false,
    };
    for round in 1..=3 {
        let [a, b] = [0, 1].map(|word| tripwires.watch(&watch(word)).unwrap());
        touch(&mut tripwires, Place::Local(0), 0, 16, Access::Write);
        // Names of tripwires that are gone still take their room.
        let lost = tripwires.take_lost();
        assert_eq!(lost, if round == 1 { 0 } else { 2 });
        assert_eq!((tripwires.has_fired(a), tripwires.has_fired(b)), (Ok(true), Ok(true)));
        tripwires.remove(a).unwrap();
        tripwires.remove(b).unwrap();
    }
}

#[test]
fn a_tripset_that_is_gone_lets_its_tripwires_go() {
    let mut tripwires = tripwires(2);
    let (place, access, action) = (Place::Local(0), Access::Write, Action::State);
    let watch = Watch { place, from: 0, to: 8, access, action, once: false };
    let [a, b] = [(); 2].map(|()| tripwires.watch(&watch).unwrap());
    let set = tripwires.new_set().unwrap();
    tripwires.join_set(set, a).unwrap();
    tripwires.join_set(set, b).unwrap();
    touch(&mut tripwires, place, 0, 8, Access::Write);
    tripwires.remove_set(set).unwrap();
    assert_eq!(tripwires.poll_set(set), Err(Error::Unknown));
    assert_eq!(tripwires.join_set(set, a), Err(Error::Unknown));
    let other = tripwires.new_set().unwrap();
    tripwires.join_set(other, b).unwrap();
    assert_eq!(tripwires.poll_set(other), Ok(Some(b)), "it had fired before it joined");
    assert_eq!(tripwires.poll_set(other), Ok(None));
    assert_eq!((tripwires.has_fired(a), tripwires.has_fired(b)), (Ok(true), Ok(false)));
}
