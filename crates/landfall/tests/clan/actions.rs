//! What tripwires do, the same program over every carrier: marks, tripsets, own accesses, reads,
//! and words that are changed in one step.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use landfall::clan::{
    Access, Action, ActionRule, ActionTripwire, Actions, Error, Eventful, Fabric, Local, Remote,
    Rights, Stage, Tripset, Tripwire, WordFunction,
};
use landfall_placement::Random;

use super::{on_every_carrier, shared_pair, soon};

/// Looks until it is so.
fn until<F: Fabric>(node: &F, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = soon();
    while !is_so() {
        node.relax();
        assert!(Some(Instant::now()) < deadline, "{what} never came to be");
    }
}

/// All that was written through this is in place, and every tripwire has heard of it.
fn delivered<R: Remote>(window: &mut R) {
    window.commit().expect("a peer");
    window.wait_for(Stage::Delivered, soon()).expect("delivered");
}

fn marks<F: Actions>(name: &str, here: &F, there: &F) {
    let (memory, cookie) = here.expose(4096, Rights::ReadWrite).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let rule = |range, action| ActionRule::new(range, action);
    let counting = here.act_on(&memory, &rule(64..128, Action::Count(3))).unwrap();
    let once = here.act_on(&memory, &rule(64..128, Action::Count(4)).once()).unwrap();
    let bit = here.act_on(&memory, &rule(96..97, Action::Bit(70))).unwrap();
    let reads = rule(64..72, Action::Count(5)).on(Access::Read);
    let reads = here.act_on(&memory, &reads).unwrap();
    assert!(counting.is_armed() && once.is_armed(), "{name}: from the start");

    // Beside what is watched, over its edge, and within a word.
    window.write(0x38, &[1; 8]).unwrap();
    window.write(0x3c, &[2; 8]).unwrap();
    window.store(120, 3).unwrap();
    delivered(&mut window);
    until(here, "the counter", || here.counter(3) == 2);
    assert_eq!((counting.firings(), once.firings(), here.counter(4)), (2, 1, 1), "{name}");
    assert!(!once.is_armed() && counting.is_armed(), "{name}");
    assert!(!here.take_bit(70), "{name}: not touched");
    assert_eq!(reads.firings(), 0, "{name}: nobody has read");

    // Armed again, it fires once again; disarmed, not at all.
    once.arm().unwrap();
    counting.disarm();
    window.store(96, 1).unwrap();
    window.store(96, 2).unwrap();
    delivered(&mut window);
    until(here, "the bit", || here.take_bit(70));
    assert!(!here.take_bit(70), "{name}: it was taken");
    until(here, "the count of once", || here.counter(4) == 2);
    assert_eq!((here.counter(3), counting.firings()), (2, 2), "{name}: disarmed");

    let mut word = [0; 8];
    window.read(64, &mut word, soon()).unwrap();
    until(here, "the read", || here.counter(5) == 1);
    assert_eq!(here.take_lost(), 0, "{name}");
    drop(bit);
    window.store(96, 1).unwrap();
    delivered(&mut window);
    assert!(!here.take_bit(70), "{name}: dropped");

    assert!(
        matches!(
            here.act_on(&memory, &rule(4090..4097, Action::Bit(1))),
            Err(Error::OutOfBounds { .. })
        ),
        "{name}"
    );
    for action in [Action::Bit(u32::MAX), Action::Count(4096)] {
        let refused = here.act_on(&memory, &rule(0..8, action));
        assert!(matches!(refused, Err(Error::NoRoom(_))), "{name}: {action:?}");
    }
}

fn identifiers<F: Actions>(name: &str, here: &F, there: &F) {
    let (memory, cookie) = here.expose(64, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let identify = |range, number| {
        here.act_on(&memory, &ActionRule::new(range, Action::Identify(number))).unwrap()
    };
    let (first, second) = (identify(0..8, 1 << 40), identify(8..16, 2));
    // Identifiers wait once each, in the order of their firings.
    for at in [8, 0, 8, 0] {
        window.store(at, 1).unwrap();
        delivered(&mut window);
    }
    until(here, "the identifiers", || first.firings() == 2 && second.firings() == 2);
    assert_eq!(here.next_identifier(), Some(2), "{name}");
    assert_eq!(here.next_identifier(), Some(1 << 40), "{name}");
    assert_eq!(here.next_identifier(), None, "{name}");
    // Dropped, it waits no more, and what it watched fires nothing.
    window.store(0, 1).unwrap();
    window.store(8, 1).unwrap();
    delivered(&mut window);
    until(here, "the identifiers", || first.firings() == 3 && second.firings() == 3);
    drop(first);
    assert_eq!(here.next_identifier(), Some(2), "{name}: the other is gone");
    assert_eq!(here.next_identifier(), None, "{name}");
}

#[test]
fn one_program_has_bits_counters_and_identifiers_on_every_carrier() {
    on_every_carrier!(marks);
    on_every_carrier!(identifiers);
}

/// Counters and bits against a list of all words.
fn counts<F: Actions>(name: &str, here: &F, there: &F) {
    const WORDS: u64 = 64;
    let mut random = Random::from_number(25);
    let (memory, cookie) = here.expose(8 * WORDS, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let mut rules = Vec::new();
    for number in 0..40u32 {
        let start = random.below(8 * WORDS);
        let range = start..start + 1 + random.below(8 * WORDS - start);
        let rule = ActionRule::new(range.clone(), Action::Count(number));
        rules.push((here.act_on(&memory, &rule).unwrap(), range, 0));
    }
    for _ in 0..200 {
        let at = random.below(8 * WORDS);
        let len = 1 + random.below((8 * WORDS - at).min(200));
        window.write(at, &vec![1; len as usize]).unwrap();
        delivered(&mut window);
        for (_, range, expected) in &mut rules {
            let (first, last) = (at.max(range.start / 8 * 8) / 8, (at + len - 1) / 8);
            *expected += (last.min((range.end - 1) / 8) + 1).saturating_sub(first);
        }
    }
    for (number, (tripwire, range, expected)) in (0..).zip(&rules) {
        until(here, "a counter", || here.counter(number) >= *expected);
        let found = (here.counter(number), tripwire.firings());
        assert_eq!(found, (*expected, *expected), "{name}: {range:?}");
    }
    assert_eq!(here.take_lost(), 0, "{name}");
}

#[test]
fn counters_count_each_touched_word_on_every_carrier() {
    on_every_carrier!(counts);
}

fn tripsets<F: Eventful>(name: &str, here: &F, there: &F) {
    const MEMBERS: u64 = 300;
    let (memory, cookie) = here.expose(8 * MEMBERS, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let mut set = Tripset::new(here, MEMBERS as usize).unwrap();
    let watch = |word: u64| here.watch(&memory, 8 * word..8 * word + 8, Access::Write, None);
    for word in 0..MEMBERS {
        assert_eq!(set.add(watch(word).unwrap()).unwrap(), word as usize);
    }
    assert!(matches!(set.add(watch(0).unwrap()), Err(Error::NoRoom(_))), "{name}: full");
    assert_eq!(set.len(), MEMBERS as usize);
    assert_eq!(set.next_fired(), None, "{name}");
    let tick = || Some(Instant::now() + Duration::from_millis(1));
    assert_eq!(set.wait(tick()).unwrap(), None, "{name}");
    for round in 1..=50 {
        for word in [299, 3, 150] {
            window.store(8 * word, round).unwrap();
            delivered(&mut window);
        }
        let mut found = Vec::new();
        while found.len() < 3 {
            let place = set.wait(soon()).unwrap().expect("a member");
            // The same again: it was told before its look.
            if !found.contains(&place) {
                found.push(place);
            }
        }
        assert_eq!(found, [299, 3, 150], "{name}: that which fired first is first");
        while set.next_fired().is_some() {}
    }
    // What is taken out is silent; its place is used again.
    let taken = set.remove(3).unwrap().expect("a member");
    assert!(set.remove(3).unwrap().is_none() && set.member(3).is_none(), "{name}");
    for word in [3, 4] {
        window.store(8 * word, 0).unwrap();
    }
    delivered(&mut window);
    assert_eq!(set.wait(soon()).unwrap(), Some(4), "{name}");
    // That it fired is not told to a set that it joins later.
    assert_eq!(set.add(taken).unwrap(), 3, "{name}");
    // More often than the set has places: still each is told.
    for _ in 0..2 * MEMBERS {
        window.store(24, 7).unwrap();
        delivered(&mut window);
        let taken = set.remove(3).unwrap().expect("a member");
        assert_eq!(set.add(taken).unwrap(), 3, "{name}");
    }
    window.store(24, 8).unwrap();
    delivered(&mut window);
    let mut is_found = false;
    while !is_found {
        is_found = set.wait(soon()).unwrap() == Some(3);
    }
}

#[test]
fn one_program_has_tripsets_on_every_carrier() {
    on_every_carrier!(tripsets);
}

fn own_accesses<F: Actions + Eventful>(name: &str, here: &F, there: &F) {
    let (memory, cookie) = there.expose(4096, Rights::ReadWrite).unwrap();
    let (mut window, mut other) = (here.map(&cookie).unwrap(), here.map(&cookie).unwrap());
    let writes = here.watch_own(&window, 8..16, Access::Write).unwrap();
    let reads = here.watch_own(&window, 8..16, Access::Read).unwrap();
    let rule = ActionRule::new(0..4096, Action::Count(9)).on(Access::Both);
    let counted = here.act_on_own(&window, &rule).unwrap();
    writes.arm();
    reads.arm();
    window.store(16, 1).unwrap();
    delivered(&mut window);
    assert!(!writes.has_fired(), "{name}: beside it");
    // On the memory, whichever handle it is touched through.
    other.store(8, 7).unwrap();
    other.commit().unwrap();
    assert!(here.wait(&[&writes], soon()).unwrap(), "{name}");
    assert_eq!(memory.load(8).unwrap(), 7, "{name}: it has arrived");
    assert!(!reads.has_fired(), "{name}");
    writes.arm();
    let mut bytes = [0; 2];
    window.read(9, &mut bytes, soon()).unwrap();
    assert!(here.wait(&[&reads], soon()).unwrap(), "{name}");
    assert!(!writes.has_fired(), "{name}: it was read");
    other.change(8, WordFunction::Add(1), soon()).unwrap();
    assert!(here.wait(&[&writes], soon()).unwrap(), "{name}: an operation is a write");
    until(here, "the counter", || here.counter(9) == 4);
    assert_eq!(counted.firings(), 4, "{name}");
    // One queue tells of them, too.
    let mut set = Tripset::new(here, 2).unwrap();
    assert_eq!(set.add(writes).unwrap(), 0);
    while set.next_fired().is_some() {}
    for round in 0..20 {
        window.store(8, round).unwrap();
        window.commit().unwrap();
        assert_eq!(set.wait(soon()).unwrap(), Some(0), "{name}");
    }
    // What the other node does there is not this node's.
    drop(set);
    let writes = here.watch_own(&window, 8..16, Access::Write).unwrap();
    writes.arm();
    memory.store(8, 1).unwrap();
    assert!(!writes.has_fired(), "{name}");
    assert!(
        matches!(
            here.watch_own(&window, 4090..4100, Access::Write),
            Err(Error::OutOfBounds { .. })
        ),
        "{name}"
    );
}

#[test]
fn one_program_hears_of_its_own_writes_and_reads_on_every_carrier() {
    on_every_carrier!(own_accesses);
}

fn reads_are_heard<F: Eventful>(name: &str, here: &F, there: &F) {
    let (memory, cookie) = here.expose(64, Rights::Read).unwrap();
    let mut window = there.map(&cookie).unwrap();
    memory.store(8, 5).unwrap();
    let read = here.watch(&memory, 8..16, Access::Read, None).unwrap();
    let both = here.watch(&memory, 8..16, Access::Both, None).unwrap();
    for _ in 0..20 {
        read.arm();
        both.arm();
        let mut word = [0; 8];
        window.read(16, &mut word, soon()).unwrap();
        assert!(!read.has_fired(), "{name}: beside it");
        window.read(12, &mut word[..1], soon()).unwrap();
        assert!(here.wait(&[&read], soon()).unwrap(), "{name}");
        assert!(here.wait(&[&both], soon()).unwrap(), "{name}");
    }
}

#[test]
fn one_program_hears_of_reads_on_every_carrier() {
    on_every_carrier!(reads_are_heard);
}

/// Operations of both sides at once, none of which is lost.
fn operations<F: Fabric>(name: &str, here: &F, there: &F) {
    const EACH: u64 = 200;
    let (memory, cookie) = here.expose(64, Rights::ReadWrite).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut window = there.map(&cookie).unwrap();
                for _ in 0..EACH {
                    window.change(8, WordFunction::Add(1), soon()).unwrap();
                }
            });
        }
        for _ in 0..EACH {
            memory.change(8, WordFunction::Add(1)).unwrap();
        }
    });
    assert_eq!(memory.load(8).unwrap(), 3 * EACH, "{name}");
    let mut window = there.map(&cookie).unwrap();
    // What it held before, what it holds then.
    let steps = BTreeMap::from([
        (0, (WordFunction::Load, 3 * EACH)),
        (1, (WordFunction::Swap(12), 12)),
        (2, (WordFunction::And(6), 4)),
        (3, (WordFunction::Or(3), 7)),
        (4, (WordFunction::Xor(5), 2)),
        (5, (WordFunction::CompareSwap { expected: 3, new: 9 }, 2)),
        (6, (WordFunction::CompareSwap { expected: 2, new: 9 }, 9)),
        (7, (WordFunction::Add(u64::MAX), 8)),
        (8, (WordFunction::Store(1), 1)),
    ]);
    let mut held = 3 * EACH;
    for (function, then) in steps.values() {
        assert_eq!(window.change(8, *function, soon()).unwrap(), held, "{name}: {function:?}");
        held = *then;
        assert_eq!(memory.load(8).unwrap(), held, "{name}: {function:?}");
    }
    // It is a write for anyone who waits for one.
    let tripwire = here.watch(&memory, 8..16, Access::Write, None).unwrap();
    tripwire.arm();
    window.change(8, WordFunction::Add(1), soon()).unwrap();
    assert!(here.wait(&[&tripwire], soon()).unwrap(), "{name}");
    let (reading, writing) = (here.expose(64, Rights::Read), here.expose(64, Rights::Write));
    for (_memory, cookie) in [reading.unwrap(), writing.unwrap()] {
        let mut window = there.map(&cookie).unwrap();
        let refused = window.change(0, WordFunction::Load, soon());
        assert!(matches!(refused, Err(Error::Forbidden)), "{name}: {refused:?}");
    }
    let refused = window.change(12, WordFunction::Load, soon());
    assert!(matches!(refused, Err(Error::Unaligned(12))), "{name}: {refused:?}");
    assert!(matches!(memory.change(64, WordFunction::Load), Err(Error::OutOfBounds { .. })));
}

#[test]
fn one_program_changes_words_in_one_step_on_every_carrier() {
    on_every_carrier!(operations);
}

/// Reports that find no room are not silent: everything has fired at least once, and the loss is
/// told.
#[test]
fn reports_that_overflow_set_every_bit_and_are_told() {
    let (_folder, (here, there)) = shared_pair();
    let (memory, cookie) = here.expose(1 << 16, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let rule = ActionRule::new(0..1 << 16, Action::Identify(5));
    let _all = here.act_on(&memory, &rule).unwrap();
    let _bit = here.act_on(&memory, &ActionRule::new(8..16, Action::Bit(0))).unwrap();
    // Apart from each other, so that none is joined with another; nobody looks meanwhile.
    for place in 0..4000 {
        window.store(16 * place, 1).unwrap();
    }
    window.commit().unwrap();
    assert_eq!(here.next_identifier(), Some(5));
    assert!(here.take_bit(0), "it may have been touched");
    assert_eq!(here.take_lost(), 1);
    window.store(16, 1).unwrap();
    window.commit().unwrap();
    assert_eq!(here.next_identifier(), Some(5));
    assert!(!here.take_bit(0), "nothing is lost any more");
    assert_eq!(here.take_lost(), 0);
}
