//! One queue for everything: tripwires, DMA completions, out-of-band messages.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::{channel_pair, pairs, soon, udp_pair, until};
use landfall::clan::network::{
    Event, Events, Notice, Port, PortAddress, Reason, Request, Tripwire as NodeTripwire,
};
use landfall::clan::{Access, Fabric, Local, Remote, Rights};
use landfall_transport::wait::until_ready;

fn wait(events: &mut Events) -> Event {
    events.wait(soon()).unwrap().expect("an event in a minute")
}

fn is_readable(events: &Events) -> bool {
    assert_eq!(events.as_raw_fd(), events.interest().fd);
    until_ready(&[events.interest()], Duration::ZERO).unwrap()
}

#[test]
fn each_source_has_one_event_until_it_is_taken_out() {
    for (name, (here, there)) in pairs() {
        let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
        let mut window = there.map(&cookie).unwrap();
        let mut events = here.events(16).unwrap();
        let tripwires: Vec<NodeTripwire> = (0..4)
            .map(|n| here.watch(&memory, n * 8..n * 8 + 8, Access::Write, None).unwrap())
            .collect();
        for (token, tripwire) in (10..).zip(&tripwires) {
            events.register(tripwire, token).unwrap();
        }
        assert_eq!(events.sources(), 4);
        for round in 1..=100 {
            for word in [0, 2, 2, 0] {
                window.store(word * 8, round).unwrap();
                window.commit().unwrap();
            }
            until(&here, || memory.load(16).unwrap() == round && memory.load(0).unwrap() == round);
            let mut seen = HashMap::new();
            // Both, once or (where the second write came later) twice.
            while !(seen.contains_key(&10) && seen.contains_key(&12)) {
                match wait(&mut events) {
                    Event::Tripwire(token) => *seen.entry(token).or_insert(0) += 1,
                    other => panic!("{name}: {other:?}"),
                }
            }
            assert_eq!(seen.len(), 2, "{name}: {seen:?}");
        }
        // Unregistered, it is silent; the others are not.
        events.unregister(&tripwires[0]).unwrap();
        while events.next().is_some() {}
        window.store(0, 1).unwrap();
        window.store(24, 1).unwrap();
        window.commit().unwrap();
        // What the last round wrote may be told as late as now.
        let mut told = wait(&mut events);
        while told == Event::Tripwire(12) {
            told = wait(&mut events);
        }
        assert_eq!(told, Event::Tripwire(13), "{name}");
        drop(tripwires);
        assert_eq!((events.next(), events.sources()), (None, 0), "{name}");
    }
}

#[test]
fn a_queue_that_is_too_short_says_how_much_it_lost_and_where() {
    let (here, there) = channel_pair();
    let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let mut events = here.events(2).unwrap();
    let tripwires: Vec<NodeTripwire> = (0..5)
        .map(|n| here.watch(&memory, n * 8..n * 8 + 8, Access::Write, None).unwrap())
        .collect();
    for (token, tripwire) in (0..).zip(&tripwires) {
        events.register(tripwire, token).unwrap();
    }
    for word in 0..5 {
        window.store(word * 8, 1).unwrap();
        window.commit().unwrap();
        until(&here, || memory.load(word * 8).unwrap() == 1);
    }
    until(&here, || !events.is_empty());
    // All five are in the memory: so the fifth event is in the queue or lost soon.
    let mut found = Vec::new();
    let count = |event: &Event| if let Event::Overflow { lost } = event { *lost } else { 1 };
    while found.iter().map(count).sum::<u64>() < 5 {
        found.push(wait(&mut events));
    }
    let place = found.iter().position(|event| matches!(event, Event::Overflow { .. })).unwrap();
    assert!(place >= 2, "{found:?}");
    assert_eq!(found[..2], [Event::Tripwire(0), Event::Tripwire(1)]);
    // After the gap it goes on.
    window.store(0, 2).unwrap();
    window.commit().unwrap();
    assert_eq!(wait(&mut events), Event::Tripwire(0));
}

#[test]
fn the_descriptor_is_readable_when_the_armed_queue_is_not_empty() {
    let (here, there) = udp_pair();
    let (memory, cookie) = here.expose(64, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    let mut events = here.events(4).unwrap();
    events.register(&tripwire, 1).unwrap();
    for round in 0..50 {
        assert!(events.arm());
        assert!(!is_readable(&events));
        window.store(0, round).unwrap();
        window.commit().unwrap();
        // Nobody here drives the node: its own thread does, and the descriptor tells.
        assert!(until_ready(&[events.interest()], Duration::from_secs(60)).unwrap());
        assert_eq!(events.next(), Some(Event::Tripwire(1)));
        assert!(!is_readable(&events), "taken out");
        assert_eq!(events.next(), None);
    }
    // With something in the queue it is not armed.
    window.store(0, 1).unwrap();
    window.commit().unwrap();
    until(&here, || !events.is_empty());
    assert!(!events.arm());
    assert_eq!(wait(&mut events), Event::Tripwire(1));
    // Select sleeps at the node's own descriptors, and at those of others.
    window.store(0, 2).unwrap();
    window.commit().unwrap();
    while events.is_empty() {
        events.select(&[], soon()).unwrap();
    }
    let bell = landfall_transport::Bell::new().unwrap();
    assert_eq!(events.next(), Some(Event::Tripwire(1)));
    bell.arm();
    bell.ring();
    for _ in 0..10 {
        events.select(&[bell.interest()], soon()).unwrap();
    }
    assert_eq!(events.next(), None);
}

#[test]
fn tasks_of_any_runtime_wait_for_events_and_for_the_descriptor() {
    let (here, there) = udp_pair();
    let (memory, cookie) = here.expose(64, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    let mut events = here.events(4).unwrap();
    events.register(&tripwire, 1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limit = Duration::from_secs(60);
    runtime.block_on(async {
        for round in 0..20 {
            window.store(0, round).unwrap();
            window.commit().unwrap();
            let event = tokio::time::timeout(limit, events.recv()).await.unwrap();
            assert_eq!(event.unwrap(), Event::Tripwire(1));
        }
    });
}

/// What chains do is in `dma`, on every carrier: here a queue is that of an endpoint.
#[test]
fn an_endpoint_has_one_dma_queue_at_a_time() {
    for (name, (here, there)) in pairs() {
        let (memory, cookie) = here.expose(64, Rights::Write).unwrap();
        let window = there.map(&cookie).unwrap();
        let endpoint = there.endpoint(None).unwrap();
        for word in 1..=2 {
            let mut queue = endpoint.dma_queue(8).unwrap();
            assert!(endpoint.dma_queue(8).is_err(), "{name}: one at a time");
            let mut events = there.events(4).unwrap();
            events.register(&queue, 3).unwrap();
            queue.push(&[Request::Word { to: &window, offset: 0, word }]).unwrap();
            assert_eq!(wait(&mut events), Event::Dma(3), "{name}");
            queue.try_done().expect("a chain").result.unwrap();
            assert_eq!(memory.load(0).unwrap(), word, "{name}");
        }
    }
}

#[test]
fn connections_come_and_go_and_their_endpoints_are_used_again() {
    for (name, (here, there)) in pairs() {
        let at = PortAddress { host: here.host(), port: Port(7) };
        let listener = here.endpoint(Some(at.port)).unwrap();
        assert!(here.endpoint(Some(at.port)).is_err(), "{name}: taken");
        listener.listen().unwrap();
        let (asking, answering) = (there.endpoint(None).unwrap(), here.endpoint(None).unwrap());
        let next =
            |end: &landfall::clan::network::Endpoint| end.wait_next(soon()).unwrap().unwrap();
        for round in 0..20u8 {
            asking.connect(at, [round; 40]).unwrap();
            let Notice::Request(request) = next(&listener) else { panic!("{name}") };
            assert_eq!(request.body, [round; 40]);
            answering.accept(&request, [round + 1; 40]).unwrap();
            let Notice::Accepted { body, by } = next(&asking) else { panic!("{name}") };
            assert_eq!((body, by.port), ([round + 1; 40], answering.port()));
            for n in 0..10 {
                asking.send([n; 40]).unwrap();
                answering.send([n + 1; 40]).unwrap();
            }
            for n in 0..10 {
                assert!(
                    matches!(next(&answering), Notice::Message { body, .. } if body == [n; 40])
                );
                assert!(
                    matches!(next(&asking), Notice::Message { body, .. } if body == [n + 1; 40])
                );
            }
            asking.disconnect([9; 40]).unwrap();
            assert!(matches!(next(&answering), Notice::Disconnected { .. }), "{name}");
            answering.disconnect([9; 40]).unwrap();
            assert!(matches!(next(&answering), Notice::Closed), "{name}");
            assert!(matches!(next(&asking), Notice::Disconnected { .. }), "{name}");
            assert!(matches!(next(&asking), Notice::Closed), "{name}");
        }
        asking.connect(at, [0; 40]).unwrap();
        let Notice::Request(request) = next(&listener) else { panic!("{name}") };
        listener.refuse(&request, Reason::Refused, [1; 40]).unwrap();
        assert!(matches!(next(&asking), Notice::Ended { body, .. } if body == [1; 40]), "{name}");
        // Nobody is there.
        let nowhere = PortAddress { port: Port(8), ..at };
        asking.send_to(nowhere, [0; 40]).unwrap();
        assert!(matches!(next(&asking), Notice::Undelivered { to, .. } if to == nowhere), "{name}");
    }
}
