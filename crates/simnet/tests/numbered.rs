//! The scheduled test engine over every kind of bad network: the memory is in
//! the end what it is over a good one.

use crate::common;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use crate::common::silent;
use landfall_placement::{
    Engine, Instant, PathId, Peer, Random, RegionId, WordFunction, WordWidth,
};
use landfall_simnet::{
    EngineConfig, EngineNode, Error, Handle, LinkConfig, LinkId, Loss, Memory, NodeId, Probability,
    Sim, Switch, check,
};
use landfall_testkit::engines::numbered::{Config, Event};
use landfall_testkit::engines::{Area, Numbered};
use landfall_testkit::trials::noise;

type Host = EngineNode<Numbered>;

const LONG_ENOUGH: Instant = Instant::from_millis(60_000);
const MESSAGE: usize = 100_000;

fn config() -> Config {
    Config { give_up_after: 1_000, window: 64 << 10, ..Config::with_unit(1_000).with_checksum() }
}

fn host(sim: &mut Sim, name: &str, how: EngineConfig) -> Handle<Host> {
    let seed = [name.as_bytes()[0]; 32];
    sim.add(name, EngineNode::with_config(Numbered::new(config(), seed), how)).unwrap()
}

/// A host that freezes what was delivered to it: anyone who writes there again
/// ends the run (invariant 1).
fn receiver(sim: &mut Sim, how: EngineConfig) -> (Handle<Host>, Rc<RefCell<Vec<Area>>>) {
    let delivered = common::shared();
    let list = delivered.clone();
    let node = EngineNode::with_config(Numbered::new(config(), [1; 32]), how).on_event(
        move |_, _: &mut Numbered, memory: &mut Memory, event| {
            if let Event::Delivered { posted, len, .. } = event {
                memory.freeze(posted.region.span(posted.offset, len as u32)).unwrap();
                list.borrow_mut().push(Area { len, ..posted });
            }
        },
    );
    (sim.add("receiver", node).unwrap(), delivered)
}

fn lend(sim: &mut Sim, host: Handle<Host>, bytes: Vec<u8>) -> RegionId {
    sim.node_mut(host).unwrap().memory_mut().lend(bytes).unwrap()
}

/// Posts this many places behind each other, in one region.
fn post(sim: &mut Sim, host: Handle<Host>, places: usize) -> RegionId {
    let region = lend(sim, host, vec![0; places * MESSAGE]);
    let engine = sim.node_mut(host).unwrap().engine_mut();
    for n in 0..places {
        engine.receive_into(Area::new(region, (n * MESSAGE) as u64, MESSAGE as u64)).unwrap();
    }
    region
}

fn send(sim: &mut Sim, from: Handle<Host>, port: u16, to: Peer, bytes: Vec<u8>) {
    let (now, len) = (sim.now(), bytes.len() as u64);
    let region = lend(sim, from, bytes);
    let engine = sim.node_mut(from).unwrap().engine_mut();
    engine.send(now, PathId(port), to, Area::new(region, 0, len)).unwrap();
}

/// Runs until this many messages are delivered, and then until nothing is under way.
fn run_until_delivered(sim: &mut Sim, delivered: &RefCell<Vec<Area>>, messages: usize) {
    sim.run_until_with(LONG_ENOUGH, |_| match delivered.borrow().len() < messages {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    })
    .unwrap();
    assert_eq!(delivered.borrow().len(), messages, "at {}", sim.now());
    let end = sim.now() + Duration::from_millis(500);
    sim.run_until(end).unwrap();
}

/// What was delivered, in the order of its first bytes.
fn contents(sim: &Sim, host: Handle<Host>, delivered: &RefCell<Vec<Area>>) -> Vec<Vec<u8>> {
    let memory = sim.node(host).unwrap().memory();
    let read = |area: &Area| memory.read(area.span(0, area.len as u32)).unwrap().to_vec();
    let mut all: Vec<_> = delivered.borrow().iter().map(read).collect();
    all.sort_unstable();
    all
}

/// One sender and one receiver, three messages, over whatever connects them.
fn exchange(
    sim: &mut Sim,
    how: EngineConfig,
    connect: impl FnOnce(&mut Sim, NodeId, NodeId),
) -> Hosts {
    let (to, delivered) = receiver(sim, how);
    let from = host(sim, "sender", how);
    connect(sim, from.id(), to.id());
    post(sim, to, 3);
    let mut sent: Vec<_> = [MESSAGE, 1, 54_321].map(|len| noise(len as u64, len)).into();
    for message in &sent {
        send(sim, from, 0, to.peer(), message.clone());
    }
    run_until_delivered(sim, &delivered, 3);
    sent.sort_unstable();
    assert!(contents(sim, to, &delivered) == sent, "the memory differs");
    Hosts { to, from }
}

struct Hosts {
    to: Handle<Host>,
    from: Handle<Host>,
}

fn gigabit() -> LinkConfig {
    LinkConfig::ethernet(1_000_000_000).delay(Duration::from_micros(20))
}

fn every_fault() -> LinkConfig {
    gigabit()
        .queue_frames(40)
        .loss(Loss::bursts(Probability::percent(3), 5))
        .duplication(Probability::percent(3))
        .reordering(Probability::percent(10), Duration::from_micros(200))
        .corruption(Probability::percent(3))
}

/// The ways in which a node can drive its engine.
fn drivers() -> [EngineConfig; 4] {
    let late = EngineConfig {
        send_delay: Duration::from_micros(30),
        send_ring: 8,
        ..EngineConfig::guessing(16)
    };
    [EngineConfig::default(), EngineConfig::guessing(1), EngineConfig::guessing(32), late]
}

#[test]
fn over_a_good_link_guesses_are_right_and_nothing_is_copied() {
    check(1..=2, |sim| {
        let hosts = exchange(sim, EngineConfig::guessing(8), |sim, a, b| {
            sim.connect(a, b, gigabit()).unwrap();
        });
        let counters = *sim.node(hosts.to).unwrap().counters();
        assert!(counters.guessed_right > 140, "{counters:?}");
        assert!(counters.copied_bytes <= 20_000, "{counters:?}");
        assert_eq!(sim.node(hosts.from).unwrap().engine().retransmitted(), 0);
    });
}

#[test]
fn over_links_with_each_fault() {
    let faults = [
        ("loss", gigabit().loss(Loss::Uniform(Probability::percent(5)))),
        ("bursts", gigabit().loss(Loss::bursts(Probability::percent(5), 10))),
        ("duplication", gigabit().duplication(Probability::percent(20))),
        ("reordering", gigabit().reordering(Probability::percent(30), Duration::from_micros(500))),
        ("corruption", gigabit().corruption(Probability::percent(5))),
        ("a short queue", gigabit().queue_frames(3)),
        ("a slow link", gigabit().rate(5_000_000)),
        ("a small MTU", gigabit().mtu(300)),
        ("everything", every_fault()),
    ];
    for (fault, link) in faults {
        for how in drivers() {
            check(1..=3, |sim| {
                println!("{fault}, {how:?}");
                exchange(sim, how, |sim, a, b| {
                    sim.connect(a, b, link).unwrap();
                });
            });
        }
    }
}

#[test]
fn through_switches_with_every_fault() {
    check(1..=5, |sim| {
        exchange(sim, EngineConfig::guessing(4), |sim, a, b| {
            let one = sim.add("one", Switch::learning()).unwrap();
            let latency = Duration::from_micros(3);
            let other = sim.add("other", Switch::learning().latency(latency)).unwrap();
            sim.connect(a, one, every_fault()).unwrap();
            sim.connect(one, other, every_fault()).unwrap();
            sim.connect(other, b, every_fault()).unwrap();
        });
    });
}

#[test]
fn a_link_that_is_killed_in_the_middle_and_comes_back() {
    check(1..=5, |sim| {
        let hosts = exchange(sim, EngineConfig::guessing(4), |sim, a, b| {
            let link = sim.connect(a, b, every_fault()).unwrap();
            sim.schedule_link(Instant::from_micros(400), link, false).unwrap();
            sim.schedule_link(Instant::from_millis(90), link, true).unwrap();
        });
        assert!(sim.now() > Instant::from_millis(90));
        assert!(sim.node(hosts.from).unwrap().engine().retransmitted() > 0);
    });
}

#[test]
fn over_several_links_one_of_which_is_killed() {
    check(1..=5, |sim| {
        let (to, delivered) = receiver(sim, EngineConfig::guessing(4));
        let from = host(sim, "sender", EngineConfig::default());
        let links: [LinkId; 3] = [(); 3].map(|()| sim.connect(from, to, every_fault()).unwrap());
        post(sim, to, 6);
        let mut sent: Vec<_> = (0..6).map(|n| noise(n, 50_000)).collect();
        for (n, message) in sent.iter().enumerate() {
            send(sim, from, (n % 3) as u16, to.peer(), message.clone());
        }
        sim.schedule_link(Instant::from_micros(300), links[1], false).unwrap();
        sim.schedule_link(Instant::from_millis(150), links[1], true).unwrap();
        run_until_delivered(sim, &delivered, 6);
        sent.sort_unstable();
        assert!(contents(sim, to, &delivered) == sent, "the memory differs");
        for link in links {
            assert!(sim.stats(link.there()).delivered >= 100, "{}", sim.stats(link.there()));
        }
    });
}

#[test]
fn sixteen_senders_to_one_receiver_through_a_switch() {
    check(1..=3, |sim| {
        let (to, delivered) = receiver(sim, EngineConfig::guessing(8));
        let switch = sim.add("switch", Switch::learning()).unwrap();
        let last = sim.connect(switch, to, gigabit().queue_bytes(64 << 10)).unwrap();
        post(sim, to, 16);
        let mut sent: Vec<_> = (0..16).map(|n| noise(n, 40_000)).collect();
        for message in &sent {
            let from = host(sim, "sender", EngineConfig::default());
            sim.connect(from, switch, gigabit()).unwrap();
            send(sim, from, 0, to.peer(), message.clone());
        }
        run_until_delivered(sim, &delivered, 16);
        sent.sort_unstable();
        assert!(contents(sim, to, &delivered) == sent, "the memory differs");
        let stats = sim.stats(last.there());
        assert!(stats.dropped_total() > 0, "the queue never overflowed: {stats}");
        assert!(stats.queue_high_bytes <= 64 << 10);
    });
}

#[test]
fn words_are_changed_exactly_once() {
    check(1..=5, |sim| {
        let (to, _) = receiver(sim, EngineConfig::default());
        let region = lend(sim, to, vec![0; 64]);
        let words = Area::new(region, 0, 64);
        sim.node_mut(to).unwrap().engine_mut().serve_words(Some(words)).unwrap();
        let olds = common::shared();
        let (list, peer) = (olds.clone(), to.peer());
        let add = move |engine: &mut Numbered, now| {
            let word = (8, WordWidth::Eight);
            engine.fetch(now, PathId(0), peer, word, WordFunction::Add(3)).is_ok()
        };
        let mut left = 92;
        let node = EngineNode::new(Numbered::new(config(), [9; 32])).on_event(
            move |now, engine: &mut Numbered, _: &mut Memory, event| {
                let Event::Fetched { old, .. } = event else { panic!("{event:?}") };
                list.borrow_mut().push(old);
                while left > 0 && add(engine, now) {
                    left -= 1;
                }
            },
        );
        let from = sim.add("sender", node).unwrap();
        sim.connect(from, to, every_fault()).unwrap();
        for _ in 0..8 {
            assert!(add(sim.node_mut(from).unwrap().engine_mut(), Instant::ZERO));
        }
        sim.run_until(LONG_ENOUGH).unwrap();
        olds.borrow_mut().sort_unstable();
        assert!(olds.borrow().iter().copied().eq((0..100).map(|n| 3 * n)), "{olds:?}");
        let memory = sim.node(to).unwrap().memory();
        assert_eq!(memory.read(region.span(8, 8)), Ok(&300u64.to_ne_bytes()[..]));
    });
}

#[test]
fn invariant_6_the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut sim = Sim::from_number(seed);
        exchange(&mut sim, EngineConfig::guessing(4), |sim, a, b| {
            sim.connect(a, b, every_fault()).unwrap();
        });
        (sim.digest(), sim.now())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn junk_on_the_link_changes_nothing_that_was_delivered() {
    check(1..=5, |sim| {
        let (to, delivered) = receiver(sim, EngineConfig::guessing(2));
        let from = host(sim, "sender", EngineConfig::default());
        let vandal = sim.add("vandal", silent).unwrap();
        let switch = sim.add("switch", Switch::learning()).unwrap();
        for node in [to.id(), from.id(), vandal.id()] {
            sim.connect(node, switch, gigabit()).unwrap();
        }
        post(sim, to, 3);
        let mut sent: Vec<_> = (0..3).map(|n| noise(n, MESSAGE)).collect();
        for message in &sent {
            send(sim, from, 0, to.peer(), message.clone());
        }
        let mut random = Random::from_number(7);
        let before_the_end = |delivered: &RefCell<Vec<Area>>| delivered.borrow().len() < 3;
        while before_the_end(&delivered) && sim.now() < LONG_ENOUGH {
            let bytes = noise(random.next_u64(), random.below(1_200) as usize);
            let junk = landfall_simnet::Frame::addressed(vandal.peer(), to.peer(), bytes);
            sim.send(vandal, landfall_simnet::PortId(0), junk).unwrap();
            sim.run_until(sim.now() + Duration::from_micros(15)).unwrap();
        }
        run_until_delivered(sim, &delivered, 3);
        sent.sort_unstable();
        assert!(contents(sim, to, &delivered) == sent, "the memory differs");
        assert!(sim.node(to).unwrap().engine().refusals().total() > 50);
    });
}

#[test]
fn a_write_into_delivered_memory_ends_the_run() {
    let mut sim = Sim::from_number(1);
    let to = host(&mut sim, "receiver", EngineConfig::guessing(1));
    let from = host(&mut sim, "sender", EngineConfig::default());
    sim.connect(from, to, gigabit()).unwrap();
    let region = post(&mut sim, to, 1);
    // Too early: nothing was delivered yet.
    sim.node_mut(to).unwrap().memory_mut().freeze(region.span(50_000, 10)).unwrap();
    send(&mut sim, from, 0, to.peer(), noise(1, MESSAGE));
    match sim.run_until(LONG_ENOUGH) {
        Err(Error::Broken { node, what, .. }) => {
            assert_eq!(node, to.id());
            assert!(what.contains("final"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}
