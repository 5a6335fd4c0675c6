//! Connections come, live and go, over good and bad networks.

use crate::world;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{
    Pair, add_host, connect, is_received, is_sent, noise, place, read, run_for, run_until,
};
use landfall_placement::{Engine as _, PathId, Peer};
use landfall_simnet::sim::Fate;
use landfall_simnet::{EngineConfig, Frame, LinkConfig, Loss, PortId, Probability, Sim, check};
use stp_core::{Admission, Config, Connect, Ended, Error, Event, wire::Reason};

fn ethernet() -> LinkConfig {
    LinkConfig::ethernet(10_000_000_000).delay(Duration::from_micros(5)).mtu(1_500)
}

fn terrible() -> LinkConfig {
    ethernet()
        .loss(Loss::Uniform(Probability::percent(20)))
        .duplication(Probability::percent(20))
        .reordering(Probability::percent(20), Duration::from_micros(300))
        .corruption(Probability::percent(5))
}

fn patient() -> Config {
    Config { give_up_after: 200, ..Config::default() }.with_checksum()
}

fn is_closed(event: &Event) -> bool {
    matches!(event, Event::Closed { .. })
}

#[test]
fn both_sides_learn_of_each_other_and_say_hello() {
    let pair = Pair::new(Sim::from_number(1), Config::default(), &[ethernet()]);
    let hello = pair.b_log.borrow().iter().find_map(|event| match event {
        Event::Accepted { hello, port, peer, .. } => Some((*hello, *port, *peer)),
        _ => None,
    });
    assert_eq!(hello, Some((42, world::PORT, Peer::Node(pair.a.id().0))));
}

#[test]
fn a_request_to_a_port_without_listener_is_refused_with_a_reason() {
    let mut sim = Sim::from_number(2);
    let (a, a_log) = add_host(&mut sim, "alice", Config::default(), EngineConfig::default());
    let (b, _) = add_host(&mut sim, "bob", Config::default(), EngineConfig::default());
    sim.connect(a.id(), b.id(), ethernet()).unwrap();
    run_for(&mut sim, Duration::from_millis(1));
    let now = sim.now();
    let nobody = Connect { port: 99, ..Connect::default() };
    let to = Peer::Node(b.id().0);
    let alice = sim.node_mut(a).unwrap().engine_mut();
    let id = alice.connect(now, PathId(0), to, nobody).unwrap();
    run_for(&mut sim, Duration::from_millis(1));
    let why = Some(Ended::There(Reason::NoListener));
    assert_eq!(*a_log.borrow(), [Event::Closed { connection: id, why }]);
    assert_eq!(sim.node(b).unwrap().engine().connections(), 0, "nothing is kept of it");
}

/// The network says that nobody receives at a peer's address, and anybody can forge that: it
/// ends the attempt that nobody there has answered, and neither other attempts nor connections.
#[test]
fn an_unreachable_peer_ends_attempts_and_no_connection() {
    let mut pair = Pair::new(Sim::from_number(2), Config::default(), &[ethernet()]);
    let (now, path) = (pair.now(), PathId(0));
    let there = Peer::Node(pair.b.id().0);
    assert!(!pair.alice().awaits_first_answer(path));
    let connect = Connect { port: world::PORT, ..Connect::default() };
    let nobody = Connect { port: 99, ..Connect::default() };
    let to_nobody = pair.alice().connect(now, path, Peer::Node(77), nobody).unwrap();
    let unanswered = pair.alice().connect(now, path, there, connect).unwrap();
    assert!(pair.alice().awaits_first_answer(path) && !pair.alice().awaits_first_answer(PathId(1)));
    // Another path, and another peer.
    pair.alice().handle_unreachable(now, PathId(1), there);
    pair.alice().handle_unreachable(now, path, Peer::Node(78));
    run_for(&mut pair.sim, Duration::from_millis(1));
    assert!(pair.alice().is_open(unanswered), "it was answered");
    // Connections to that peer, no matter who began them.
    pair.alice().handle_unreachable(now, path, there);
    let here = Peer::Node(pair.a.id().0);
    pair.bob().handle_unreachable(now, path, here);
    let from_a = pair.from_a;
    assert!(pair.alice().is_open(from_a) && pair.alice().is_open(unanswered));
    assert!(pair.alice().is_opening(to_nobody));
    pair.alice().handle_unreachable(now, path, Peer::Node(77));
    run_for(&mut pair.sim, Duration::from_millis(1));
    let why = Some(Ended::Unreachable);
    let ended = Event::Closed { connection: to_nobody, why };
    assert_eq!(pair.a_log.borrow().iter().filter(|event| is_closed(event)).count(), 1);
    assert!(pair.a_log.borrow().contains(&ended));
    assert!(!pair.alice().awaits_first_answer(path));
    pair.post(0, 5_000);
    pair.send(0, &noise(1, 5_000));
    pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
}

#[test]
fn a_listener_may_ask_first() {
    let mut sim = Sim::from_number(3);
    let (a, a_log) = add_host(&mut sim, "alice", Config::default(), EngineConfig::default());
    let (b, b_log) = add_host(&mut sim, "bob", Config::default(), EngineConfig::default());
    sim.connect(a.id(), b.id(), ethernet()).unwrap();
    sim.node_mut(b).unwrap().engine_mut().listen(8, Admission::Ask).unwrap();
    run_for(&mut sim, Duration::from_millis(1));
    let to = Peer::Node(b.id().0);
    for hello in [1, 2] {
        let now = sim.now();
        let ask = Connect { port: 8, hello, ..Connect::default() };
        sim.node_mut(a).unwrap().engine_mut().connect(now, PathId(0), to, ask).unwrap();
    }
    run_until(&mut sim, Duration::from_secs(1), "two questions", || b_log.borrow().len() == 2);
    let asked: Vec<_> = b_log
        .borrow()
        .iter()
        .map(|event| match event {
            Event::Incoming { connection, hello, port: 8, .. } => (*hello, *connection),
            other => panic!("{other:?}"),
        })
        .collect();
    let now = sim.now();
    let bob = sim.node_mut(b).unwrap().engine_mut();
    for (hello, connection) in asked {
        if hello == 1 {
            bob.admit(now, connection, 7).unwrap();
            assert_eq!(bob.admit(now, connection, 7), Err(Error::NotOpen));
        } else {
            bob.turn_away(connection, Reason::Refused).unwrap();
        }
    }
    run_until(&mut sim, Duration::from_secs(1), "both answers", || {
        let log = a_log.borrow();
        log.iter().any(|e| matches!(e, Event::Connected { hello: 7, .. }))
            && log.iter().any(|e| {
                matches!(e, Event::Closed { why: Some(Ended::There(Reason::Refused)), .. })
            })
            && b_log.borrow().iter().any(|e| matches!(e, Event::Accepted { hello: 1, .. }))
    });
}

#[test]
fn both_may_ask_at_once() {
    check(1..=20, |sim| {
        let mut sim = std::mem::replace(sim, Sim::from_number(0));
        let (a, a_log) = add_host(&mut sim, "alice", patient(), EngineConfig::default());
        let (b, b_log) = add_host(&mut sim, "bob", patient(), EngineConfig::default());
        sim.connect(a.id(), b.id(), terrible()).unwrap();
        run_for(&mut sim, Duration::from_millis(1));
        let (to_a, to_b) = (Peer::Node(a.id().0), Peer::Node(b.id().0));
        let now = sim.now();
        let ask = |local, port| Connect { port, local_port: Some(local), hello: 1 };
        sim.node_mut(a).unwrap().engine_mut().connect(now, PathId(0), to_b, ask(100, 200)).unwrap();
        sim.node_mut(b).unwrap().engine_mut().connect(now, PathId(0), to_a, ask(200, 100)).unwrap();
        let connected = |event: &Event| matches!(event, Event::Connected { .. });
        run_until(&mut sim, Duration::from_secs(60), "one connection", || {
            a_log.borrow().iter().any(connected) && b_log.borrow().iter().any(connected)
        });
        run_for(&mut sim, Duration::from_secs(1));
        for host in [a, b] {
            assert_eq!(sim.node(host).unwrap().engine().connections(), 1);
        }
        assert_eq!((a_log.borrow().len(), b_log.borrow().len()), (1, 1));
    });
}

#[test]
fn a_graceful_close_loses_nothing_and_leaves_nothing() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let bytes = noise(5, 100_000);
        let areas = [pair.post(0, bytes.len()), pair.post(5, bytes.len())];
        pair.send(0, &bytes);
        pair.send(3, &bytes);
        let (now, id) = (pair.now(), pair.from_a);
        pair.alice().close(now, id).unwrap();
        let spare = place(&mut pair.sim, pair.a, 0, &[1; 10]);
        assert_eq!(pair.alice().send(now, id, spare, 0), Err(Error::NotOpen));
        pair.run_until("both closed", |a, b| a.iter().any(is_closed) && b.iter().any(is_closed));
        assert_eq!((pair.count_a(is_sent), pair.count_b(is_received)), (2, 2));
        for area in areas {
            assert!(read(&pair.sim, pair.b, area) == bytes);
        }
        for log in [&pair.a_log, &pair.b_log] {
            assert!(log.borrow().iter().any(|e| matches!(e, Event::Closed { why: None, .. })));
        }
        run_for(&mut pair.sim, Duration::from_secs(600));
        assert_eq!((pair.alice().connections(), pair.bob().connections()), (0, 0));
    });
}

#[test]
fn both_may_close_at_once() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let mut pair = Pair::new(sim, patient(), &[terrible()]);
        let now = pair.now();
        let (a, b) = (pair.from_a, pair.from_b);
        pair.alice().close(now, a).unwrap();
        pair.bob().close(now, b).unwrap();
        pair.run_until("both closed", |a, b| a.iter().any(is_closed) && b.iter().any(is_closed));
        run_for(&mut pair.sim, Duration::from_secs(600));
        assert_eq!((pair.alice().connections(), pair.bob().connections()), (0, 0));
        assert_eq!((pair.count_a(is_closed), pair.count_b(is_closed)), (1, 1));
    });
}

#[test]
fn an_abort_ends_all_at_once_on_both_sides() {
    let mut pair = Pair::new(Sim::from_number(7), Config::default(), &[ethernet()]);
    let area = pair.post(0, 8 << 20);
    pair.send(0, &vec![7; 8 << 20]);
    run_for(&mut pair.sim, Duration::from_micros(200));
    let (now, id) = (pair.now(), pair.from_a);
    pair.alice().abort(now, id, Reason::Cancelled).unwrap();
    pair.run_until("both closed", |a, b| a.iter().any(is_closed) && b.iter().any(is_closed));
    assert_eq!(pair.count_a(|e| matches!(e, Event::SendEnded { why: Ended::Here, .. })), 1);
    let given_back =
        pair.b_log.borrow().iter().any(
            |event| matches!(event, Event::ReceiveEnded { memory, .. } if *memory == Some(area)),
        );
    assert!(given_back, "{:?}", pair.b_log.borrow());
    run_for(&mut pair.sim, Duration::from_secs(60));
    assert_eq!((pair.alice().connections(), pair.bob().connections()), (0, 0));
    assert_eq!((pair.alice().granted_bytes(), pair.bob().granted_bytes()), (0, 0));
}

#[test]
fn a_dead_peer_is_found_by_asking() {
    let mut pair = Pair::new(Sim::from_number(8), Config::default(), &[ethernet()]);
    run_for(&mut pair.sim, Duration::from_secs(60));
    assert_eq!((pair.count_a(is_closed), pair.count_b(is_closed)), (0, 0), "it is only idle");
    pair.sim
        .configure(pair.links[0].there(), ethernet().loss(Loss::Uniform(Probability::percent(100))))
        .unwrap();
    pair.sim
        .configure(pair.links[0].back(), ethernet().loss(Loss::Uniform(Probability::percent(100))))
        .unwrap();
    pair.run_until("both gave up", |a, b| {
        let silent = |e: &Event| matches!(e, Event::Closed { why: Some(Ended::Silent), .. });
        a.iter().any(silent) && b.iter().any(silent)
    });
    assert_eq!((pair.alice().connections(), pair.bob().connections()), (0, 0));
}

#[test]
fn a_flood_of_requests_harms_nobody_who_is_connected() {
    let config = Config { connections: 200, half_open: 50, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(9), config, &[ethernet()]);
    // Mallory asks for one connection after another, and hears no answer.
    let how = EngineConfig::default();
    let many = Config { connections: 5_000, ..Config::default() };
    let (m, _) = add_host(&mut pair.sim, "mallory", many, how);
    let link = pair.sim.connect(m.id(), pair.b.id(), ethernet()).unwrap();
    run_for(&mut pair.sim, Duration::from_millis(1));
    let deaf = ethernet().loss(Loss::Uniform(Probability::percent(100)));
    pair.sim.configure(link.back(), deaf).unwrap();
    let to = Peer::Node(pair.b.id().0);
    let bytes = noise(1, 200_000);
    for round in 1..=10 {
        for _ in 0..300 {
            connect(&mut pair.sim, m, PathId(0), to);
        }
        let area = pair.post(0, bytes.len());
        pair.send(0, &bytes);
        pair.run_until("a transfer in the flood", |a, _| {
            a.iter().filter(|e| is_sent(e)).count() == round
        });
        assert!(read(&pair.sim, pair.b, area) == bytes);
        assert!(pair.bob().connections() <= 51, "{}", pair.bob().connections());
    }
    assert!(pair.bob().stats().half_open_dropped > 100);
    let refused = pair.bob().refusals().total();
    assert!(refused < 100_000, "{}", pair.bob().refusals());
    // Who comes properly is let in still.
    let now = pair.now();
    let ask = Connect { port: world::PORT, ..Connect::default() };
    let id = pair.alice().connect(now, PathId(0), to, ask).unwrap();
    pair.run_until("another connection", |a, _| {
        a.iter().any(|e| matches!(e, Event::Connected { connection, .. } if *connection == id))
    });
}

#[test]
fn sizes_are_negotiated_down_to_what_both_can() {
    let small = Config { max_stu: 8, ..Config::default() };
    let mut pair = Pair::with(
        Sim::from_number(10),
        Config::default(),
        small,
        EngineConfig::default(),
        &[ethernet()],
    );
    let bytes = noise(2, 10_000);
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    assert_eq!(read(&pair.sim, pair.b, area), bytes);
    assert_eq!(pair.bob().stats().stus_received, 10_000u64.div_ceil(256));
}

#[test]
fn slots_bound_what_is_asked_for_at_a_time() {
    let few = Config { slots: 3, ..Config::default() };
    let mut pair = Pair::with(
        Sim::from_number(11),
        Config::default(),
        few,
        EngineConfig::default(),
        &[ethernet()],
    );
    let area = place(&mut pair.sim, pair.a, 0, &[1; 100]);
    let (now, id) = (pair.now(), pair.from_a);
    for _ in 0..3 {
        assert_eq!(pair.alice().can_send(id), Ok(true));
        pair.alice().send(now, id, area, 0).unwrap();
    }
    assert_eq!(pair.alice().can_send(id), Ok(false));
    assert_eq!(pair.alice().send(now, id, area, 0), Err(Error::Busy));
    pair.post(0, 100);
    pair.run_until("one transfer", |a, _| a.iter().any(is_sent));
    let now = pair.now();
    pair.alice().send(now, id, area, 0).unwrap();
}

/// A request of an earlier time comes while we ask ourselves: it looks as if
/// both asked at once, until the true answer comes.
#[test]
fn an_old_request_that_meets_ours_does_not_stand_for_the_answer() {
    let mut sim = Sim::from_number(12);
    let (a, a_log) = add_host(&mut sim, "alice", Config::default(), EngineConfig::default());
    let (b, b_log) = add_host(&mut sim, "bob", Config::default(), EngineConfig::default());
    let link = sim.connect(a.id(), b.id(), ethernet()).unwrap();
    run_for(&mut sim, Duration::from_millis(1));
    let first: Rc<RefCell<Option<Frame>>> = Rc::default();
    let kept = first.clone();
    sim.intercept(link.back(), move |_, frame| {
        kept.borrow_mut().get_or_insert_with(|| frame.clone());
        Fate::Pass
    })
    .unwrap();
    let ask = |local, port| Connect { port, local_port: Some(local), hello: 1 };
    let (to_a, to_b, now) = (a.peer(), b.peer(), sim.now());
    sim.node_mut(b).unwrap().engine_mut().connect(now, PathId(0), to_a, ask(200, 100)).unwrap();
    run_for(&mut sim, Duration::from_millis(5));
    assert!(b_log.borrow().iter().any(is_closed), "nobody listens there");

    sim.node_mut(b).unwrap().engine_mut().listen(200, Admission::Open).unwrap();
    let now = sim.now();
    let id =
        sim.node_mut(a).unwrap().engine_mut().connect(now, PathId(0), to_b, ask(100, 200)).unwrap();
    let old = first.borrow().clone().unwrap();
    sim.send(b.id(), PortId(0), old).unwrap();
    run_for(&mut sim, Duration::from_secs(30));
    assert!(!a_log.borrow().iter().any(is_closed), "{:?}", a_log.borrow());
    let area = place(&mut sim, a, 0, &[1; 10]);
    let now = sim.now();
    sim.node_mut(a).unwrap().engine_mut().send(now, id, area, 0).unwrap();
    run_until(&mut sim, Duration::from_secs(1), "an offer", || {
        b_log.borrow().iter().any(|e| matches!(e, Event::Offered { len: 10, .. }))
    });
}

/// Who asks for a connection where nobody is gives up within the time that is configured,
/// however long repetitions would go on.
#[test]
fn a_connection_is_given_up_in_time() {
    for within in [1u64, 5] {
        let limit = Duration::from_secs(within);
        let config = Config { connect_within: limit, ..Config::shared_network() };
        let mut sim = Sim::from_number(1);
        let (a, log) = add_host(&mut sim, "alice", config, EngineConfig::default());
        let (nobody, _) = add_host(&mut sim, "nobody", Config::default(), EngineConfig::default());
        let cable = sim.connect(a.id(), nobody.id(), ethernet()).unwrap();
        run_for(&mut sim, Duration::from_millis(1));
        let nothing = ethernet().loss(Loss::Uniform(Probability::percent(100)));
        sim.configure(cable.there(), nothing).unwrap();
        let (now, to) = (sim.now(), Peer::Node(nobody.id().0));
        let connect = Connect { port: world::PORT, ..Connect::default() };
        let node = sim.node_mut(a).unwrap();
        node.engine_mut().connect(now, PathId(0), to, connect).unwrap();
        run_for(&mut sim, limit - Duration::from_millis(1));
        assert!(log.borrow().is_empty(), "{:?}", log.borrow());
        run_for(&mut sim, Duration::from_millis(2));
        let ended = log.borrow_mut().pop();
        let is_silent = matches!(ended, Some(Event::Closed { why: Some(Ended::Silent), .. }));
        assert!(is_silent, "{ended:?}");
    }
}
