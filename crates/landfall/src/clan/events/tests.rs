//! One program over every fabric: what an event queue promises, wherever it is.

use std::collections::VecDeque;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use landfall_testkit::TemporaryFolder;
use landfall_transport::wait::until_ready;
use proptest::prelude::*;

use super::*;
use crate::clan::network::{HostId, Node, Transport};
use crate::clan::shared::{SharedConfig, SharedNode};
use crate::clan::{Access, Local, Remote, Rights, Threads, Tripwire};

/// More than any of this takes.
fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

fn processes() -> (TemporaryFolder, SharedNode, SharedNode) {
    let folder = TemporaryFolder::new("events");
    let open = || SharedNode::open(SharedConfig::new(folder.path())).unwrap();
    let (here, there) = (open(), open());
    (folder, here, there)
}

fn hosts() -> (Node, Node) {
    let transport = || Transport::udp(([127, 0, 0, 1], 0).into());
    let open = |host| Node::open(HostId::new(host).unwrap(), transport()).unwrap();
    let (here, there) = (open(1), open(2));
    there.link(here.local().unwrap()).unwrap().wait_up(soon()).unwrap();
    (here, there)
}

/// Memory with a tripwire on each of the first words.
struct Words<F: Eventful> {
    memory: F::Local,
    wires: Vec<F::Tripwire>,
    window: F::Remote,
}

impl<F: Eventful> Words<F> {
    fn new(here: &F, there: &F, count: u64) -> Self {
        let (memory, cookie) = here.expose(8 * count, Rights::ReadWrite).unwrap();
        let watch = |nth| here.watch(&memory, 8 * nth..8 * nth + 8, Access::Write, None).unwrap();
        let wires = (0..count).map(watch).collect();
        Self { window: there.map(&cookie).unwrap(), memory, wires }
    }

    fn write(&mut self, word: u64, value: u64) {
        self.window.store(8 * word, value).unwrap();
        self.window.commit().unwrap();
    }
}

/// A queue as plain as can be.
#[derive(Default)]
struct Model {
    capacity: usize,
    queue: VecDeque<(usize, u64)>,
    lost: u64,
    /// The token, the number of the registration, and whether an event of it waits.
    registered: Vec<Option<(u64, u64, bool)>>,
    registrations: u64,
}

impl Model {
    fn register(&mut self, wire: usize, token: u64) {
        self.registrations += 1;
        self.registered[wire] = Some((token, self.registrations, false));
    }

    fn touch(&mut self, wire: usize) {
        let Some((_, number, is_queued)) = &mut self.registered[wire] else { return };
        if *is_queued {
            return;
        }
        if self.lost == 0 && self.queue.len() < self.capacity {
            *is_queued = true;
            self.queue.push_back((wire, *number));
        } else {
            self.lost += 1;
        }
    }

    fn next(&mut self) -> Option<Event> {
        while let Some((wire, number)) = self.queue.pop_front() {
            if let Some((token, known, is_queued)) = &mut self.registered[wire]
                && *known == number
            {
                *is_queued = false;
                return Some(Event::Tripwire(*token));
            }
        }
        let lost = std::mem::take(&mut self.lost);
        (lost > 0).then_some(Event::Overflow { lost })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Next,
    Register(usize, u64),
    Unregister(usize),
}

const WIRES: usize = 6;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..WIRES).prop_map(Step::Write),
        3 => Just(Step::Next),
        2 => (0..WIRES, 0..100u64).prop_map(|(wire, token)| Step::Register(wire, token)),
        1 => (0..WIRES).prop_map(Step::Unregister),
    ]
}

fn follow_the_model<F: Eventful>(here: &F, there: &F, capacity: usize, steps: &[Step]) {
    let mut words = Words::new(here, there, WIRES as u64);
    let mut events = here.events(capacity).unwrap();
    let mut model = Model { capacity, registered: vec![None; WIRES], ..Model::default() };
    for (nth, step) in steps.iter().enumerate() {
        match *step {
            Step::Write(wire) => {
                words.write(wire as u64, nth as u64);
                // Takes in what came, also where the queue has something to give.
                assert!(!words.wires[wire].has_fired());
                model.touch(wire);
            }
            Step::Next => assert_eq!(events.next(), model.next(), "{nth}: {steps:?}"),
            Step::Register(wire, token) => {
                events.register(&words.wires[wire], token).unwrap();
                model.register(wire, token);
            }
            Step::Unregister(wire) => {
                events.unregister(&words.wires[wire]).unwrap();
                model.registered[wire] = None;
            }
        }
        let is_empty = model.queue.is_empty() && model.lost == 0;
        assert_eq!(events.is_empty(), is_empty, "{nth}: {steps:?}");
        let sources = model.registered.iter().flatten().count();
        assert_eq!(events.sources() as usize, sources, "{nth}: {steps:?}");
    }
    drop(words);
    assert_eq!(events.sources(), 0);
    // Nobody is there any more that an event could be of.
    model.registered.fill(None);
    assert_eq!(events.next(), model.next());
    assert_eq!(events.next(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_event_queue_of_a_fabric_is_as_a_plain_list_is(
        capacity in 1..5usize,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let (here, there) = Threads::pair().unwrap();
        follow_the_model(&here, &there, capacity, &steps);
        let (_folder, here, there) = processes();
        follow_the_model(&here, &there, capacity, &steps);
    }
}

/// One writes, as fast as it can; the other looks at nothing but what events name, and
/// sees all in the end.
fn nothing_is_missed<F: Eventful>(here: &F, there: &F, capacity: usize) {
    const COUNT: u64 = 8;
    const ROUNDS: u64 = 2_000;
    let mut words = Words::new(here, there, COUNT);
    let mut events = here.events(capacity).unwrap();
    for (token, wire) in (0..).zip(&words.wires) {
        events.register(wire, token).unwrap();
    }
    let memory = words.memory.clone();
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for round in 1..=ROUNDS {
                (0..COUNT).for_each(|word| words.write((word * 5 + round) % COUNT, round));
            }
            // Its tripwires are registered for as long as somebody looks.
            words
        });
        let mut seen = [0; COUNT as usize];
        while seen != [ROUNDS; COUNT as usize] {
            let words = match events.wait(soon()).unwrap() {
                Some(Event::Tripwire(word)) => word..word + 1,
                Some(Event::Overflow { .. }) => 0..COUNT,
                other => panic!("{other:?} at {seen:?}"),
            };
            for word in words {
                let now = memory.load(8 * word).unwrap();
                assert!(now >= seen[word as usize], "{now} after {seen:?}");
                seen[word as usize] = now;
            }
        }
        drop(writer.join().unwrap());
    });
}

#[test]
fn no_touch_is_missed_by_who_looks_only_at_what_events_name() {
    let (_folder, here, there) = processes();
    let threads = Threads::pair().unwrap();
    for capacity in [1, 3, 8] {
        nothing_is_missed(&threads.0, &threads.1, capacity);
        nothing_is_missed(&here, &there, capacity);
    }
}

fn is_readable<E: EventQueue>(events: &E, within: Duration) -> bool {
    assert_eq!(events.as_raw_fd(), events.interest().fd);
    until_ready(&[events.interest()], within).unwrap()
}

fn the_descriptor_tells<F: Eventful>(here: &F, there: &F) {
    let mut words = Words::new(here, there, 2);
    let mut events = here.events(4).unwrap();
    events.register(&words.wires[0], 7).unwrap();
    for round in 1..=50 {
        assert!(events.arm() && !is_readable(&events, Duration::ZERO));
        words.write(1, round);
        assert!(!is_readable(&events, Duration::from_millis(1)), "nobody asked for that");
        words.write(0, round);
        assert!(is_readable(&events, Duration::from_secs(60)));
        assert_eq!(events.next(), Some(Event::Tripwire(7)));
        assert!(!is_readable(&events, Duration::ZERO), "it is taken out");
        assert_eq!(events.next(), None);
        // Another one, while nobody sleeps there.
        words.write(0, round);
        assert!(!events.arm(), "there is one");
        assert_eq!(events.next(), Some(Event::Tripwire(7)));
    }
    // Too many, too.
    let mut events = here.events(1).unwrap();
    for (token, wire) in (0..).zip(&words.wires) {
        events.register(wire, token).unwrap();
    }
    words.write(1, 1);
    words.write(0, 1);
    assert_eq!(events.next(), Some(Event::Tripwire(1)));
    assert!(matches!(events.next(), Some(Event::Overflow { lost: 1 } | Event::Tripwire(0))));
    assert!(events.arm());
    words.write(0, 2);
    assert!(is_readable(&events, Duration::from_secs(60)));
}

#[test]
fn the_descriptor_is_readable_when_the_armed_queue_of_a_fabric_is_not_empty() {
    let (here, there) = Threads::pair().unwrap();
    the_descriptor_tells(&here, &there);
    let (_folder, here, there) = processes();
    the_descriptor_tells(&here, &there);
}

/// Nothing in here knows what carries the memory.
fn one_program<F: Eventful>(here: &F, there: &F) {
    let mut words = Words::new(here, there, 3);
    let mut events = here.events(8).unwrap();
    for (token, wire) in (10..).zip(&words.wires) {
        events.register(wire, token).unwrap();
    }
    assert_eq!(events.sources(), 3);
    for round in 1..=20 {
        for word in [2, 0] {
            words.write(word, round);
            loop {
                let event = events.wait(soon()).unwrap();
                // What was told before the look that saw it may be told once more.
                if event == Some(Event::Tripwire(10 + word))
                    && words.memory.load(8 * word).unwrap() == round
                {
                    break;
                }
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let other = thread::scope(|scope| {
        scope.spawn(|| words.write(1, 1));
        runtime.block_on(async {
            loop {
                match events.recv().await.unwrap() {
                    Event::Tripwire(11) => break,
                    Event::Tripwire(10 | 12) => {}
                    other => return Some(other),
                }
            }
            None
        })
    });
    assert_eq!(other, None);
    assert_eq!(words.memory.load(8).unwrap(), 1);
    words.wires.iter().for_each(|wire| events.unregister(wire).unwrap());
    (0..3).for_each(|word| words.write(word, 99));
    assert_eq!((events.next(), events.sources()), (None, 0));
}

#[test]
fn a_program_that_is_written_for_one_queue_runs_over_the_others() {
    let (here, there) = Threads::pair().unwrap();
    one_program(&here, &there);
    let (_folder, here, there) = processes();
    one_program(&here, &there);
    let (here, there) = hosts();
    one_program(&here, &there);
}

fn the_end_is_told<F: Eventful>(here: &F, there: &F, end: impl FnOnce(), end_here: impl FnOnce()) {
    let (memory, _) = here.expose(64, Rights::Write).unwrap();
    let (_theirs, cookie) = there.expose(64, Rights::Write).unwrap();
    let peer = here.map(&cookie).unwrap();
    let watch = || here.watch(&memory, 0..8, Access::Write, Some(&peer)).unwrap();
    let wire = watch();
    let mut events = here.events(4).unwrap();
    events.register(&wire, 1).unwrap();
    assert!(events.arm());
    end();
    assert!(is_readable(&events, Duration::from_secs(60)), "its peer is lost");
    assert_eq!(events.next(), Some(Event::Tripwire(1)));
    assert!(wire.has_fired());
    assert_eq!(events.next(), None, "it is told once");
    // One that is made when the peer is lost already tells at once.
    let late = watch();
    events.register(&late, 2).unwrap();
    assert_eq!(events.next(), Some(Event::Tripwire(2)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| events.wait(soon()));
        end_here();
        assert!(matches!(waiter.join().unwrap(), Err(Error::NodeGone)));
    });
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(events.poll_recv(&mut context), Poll::Ready(Err(Error::NodeGone))));
}

#[test]
fn a_queue_tells_of_peers_that_are_lost_and_of_its_own_end() {
    let (here, there) = Threads::pair().unwrap();
    the_end_is_told(&here, &there, || there.end(), || here.end());
    let (_folder, here, there) = processes();
    the_end_is_told(&here, &there, || there.close(), || here.close());
}

#[test]
fn a_tripwire_that_has_fired_tells_when_it_is_registered_and_moves_with_it() {
    let (_folder, here, there) = processes();
    let mut words = Words::new(&here, &there, 1);
    let (mut first, mut second) = (here.events(2).unwrap(), here.events(2).unwrap());
    words.wires[0].arm();
    words.write(0, 1);
    assert!(words.wires[0].has_fired());
    first.register(&words.wires[0], 1).unwrap();
    assert_eq!(first.next(), Some(Event::Tripwire(1)));
    // In its second queue nothing is told that waits in the first.
    words.write(0, 2);
    assert!(!first.is_empty());
    words.wires[0].disarm();
    second.register(&words.wires[0], 2).unwrap();
    assert_eq!((first.next(), second.next()), (None, None));
    words.write(0, 3);
    assert_eq!((first.next(), second.next()), (None, Some(Event::Tripwire(2))));
    assert_eq!((first.sources(), second.sources()), (0, 1));
    // Another node's is refused.
    let events = there.events(1).unwrap();
    assert!(matches!(events.register(&words.wires[0], 1), Err(Error::BadConfig(_))));
    // A queue that is gone is told nothing, and nobody pays for it.
    drop(second);
    words.write(0, 4);
    assert!(!words.wires[0].has_fired());
}
