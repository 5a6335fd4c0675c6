//! What ends: apertures, links, hosts.
//!
//! Who shares a link, or an adapter: endpoints, those who are held back.

use std::time::Duration;

use clan_dsm::{
    Access, Action, Config, DmaRequest, Ended, Error, Event, HostId, Nic, Notice, PortAddress,
    Reason, Rights, Source,
};
use landfall_placement::{Engine, PathId, PathLimits, PathState, WordFunction, WordWidth};
use landfall_simnet::{LinkConfig, Sim};

use crate::world::{Pair, fired, noise, open};

fn pair() -> Pair {
    let config = Config { keep_alive: Some(Duration::from_millis(500)), ..Config::default() };
    Pair::new(Sim::from_number(3), config, LinkConfig::ethernet(100_000_000))
}

/// Side 1 starts anew and knows nothing any more.
fn restart(pair: &mut Pair, seed: u8) {
    let mut nic = Nic::new(Config::default(), HostId::new(2).unwrap(), [seed; 32]).unwrap();
    nic.handle_path(pair.now(), PathId(0), PathState::Up(PathLimits::plain(1500)));
    *pair.nic(1) = nic;
}

#[test]
fn after_a_revocation_nothing_more_is_placed() {
    for after in 0..40 {
        let mut pair = pair();
        let (area, aperture, window) = pair.window(60_000);
        let trip =
            pair.nic(1).watch(aperture, 0..60_000, Access::Both, Action::Event, false).unwrap();
        let from = pair.lend(0, &noise(1, 60_000));
        let now = pair.now();
        let write = pair.nic(0).write_from(now, window, 0, from).unwrap();
        pair.run_for(Duration::from_micros(130 * after));
        pair.nic(1).revoke(aperture).unwrap();
        pair.logs[1].borrow_mut().clear();
        let held = pair.bytes(1, area);
        pair.run_until("the end of the write", |a, _| {
            a.contains(&Event::Written { write, result: Ok(()) })
        });
        pair.run_for(Duration::from_millis(50));
        assert!(pair.bytes(1, area) == held, "revoked after {after}");
        let fired = Event::Tripwire { tripwire: trip };
        assert!(!pair.logs[1].borrow().contains(&fired), "its tripwire is gone");
    }
}

#[test]
fn a_slot_that_is_used_again_is_safe_from_earlier_cookies() {
    let mut pair = pair();
    let (_, aperture, window) = pair.window(64);
    pair.nic(1).revoke(aperture).unwrap();
    let (area, again, _) = pair.expose(1, 64, Rights::ReadWrite);
    assert_eq!(again.index(), aperture.index(), "the slot is used again");
    let trip = pair.nic(1).watch(again, 0..64, Access::Write, Action::State, false).unwrap();
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[7; 64]).unwrap();
    pair.flush();
    pair.run_until("the exception", |a, _| {
        a.iter().any(|e| matches!(e, Event::Exception { reason: Reason::BadKey, .. }))
    });
    assert_eq!(pair.bytes(1, area), [0; 64]);
    assert!(!pair.nic(1).has_fired(trip).unwrap());
}

#[test]
fn memory_that_is_gone_is_reported_and_nothing_stands_still() {
    let mut pair = pair();
    let (area, _, window) = pair.window(64);
    let (other, _, elsewhere) = pair.window(64);
    let node = pair.sim.node_mut(pair.hosts[1]).unwrap();
    node.memory_mut().take_back(area.region).unwrap();
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[1; 8]).unwrap();
    let word = WordFunction::Add(1);
    let operation = pair.nic(0).change(now, window, 0, WordWidth::Eight, word).unwrap();
    pair.flush();
    let now = pair.now();
    pair.nic(0).write(now, elsewhere, 0, &[2; 8]).unwrap();
    pair.flush();
    let gone = Ended::There(Reason::MemoryFailed);
    pair.run_until("the complaints", |a, _| {
        a.iter().any(|e| matches!(e, Event::Exception { reason: Reason::MemoryFailed, .. }))
            && a.contains(&Event::Word { operation, result: Err(gone) })
    });
    assert_eq!(pair.bytes(1, other)[..8], [2; 8]);
}

#[test]
fn all_that_went_over_a_link_ends_with_it() {
    let mut pair = pair();
    let (_, _, window) = pair.window(1 << 20);
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let from = pair.lend(0, &noise(1, 1 << 20));
    let into = pair.lend(0, &[0; 100]);
    let (now, link) = (pair.now(), pair.links[0]);
    let nic = pair.nic(0);
    let write = nic.write_from(now, window, 0, from).unwrap();
    let chain = [DmaRequest::Write { from, window, offset: 0 }];
    let dma = nic.dma(now, endpoint, &chain).unwrap();
    let read = nic.read(now, window, 0, into).unwrap();
    let word = WordFunction::Add(1);
    let operation = nic.change(now, window, 0, WordWidth::Eight, word).unwrap();
    let barrier = nic.barrier(now, link).unwrap();
    pair.run_for(Duration::from_millis(1));
    pair.sim.set_link(pair.wire, false).unwrap();
    pair.run_until("the end", |a, _| a.iter().any(|e| matches!(e, Event::LinkDown { .. })));
    pair.run_for(Duration::from_secs(5));
    let events = pair.logs[0].borrow().clone();
    let why = Err(Ended::Silent);
    for wanted in [
        Event::Written { write, result: why },
        Event::Dma { endpoint, dma, result: why },
        Event::Read { read, result: why },
        Event::Word { operation, result: Err(Ended::Silent) },
        Event::Barrier { barrier, result: why },
        Event::LinkDown { link, why: Ended::Silent },
    ] {
        let times = events.iter().filter(|event| **event == wanted).count();
        assert_eq!(times, 1, "{wanted:?} in {events:?}");
    }
}

#[test]
fn a_host_that_started_anew_is_noticed_and_old_keys_open_nothing() {
    let mut pair = pair();
    let (_, _, window) = pair.window(64);
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[1; 8]).unwrap();
    pair.flush();
    restart(&mut pair, 77);
    let (area, _, _) = pair.expose(1, 64, Rights::ReadWrite);
    let now = pair.now();
    let _ = pair.nic(0).write(now, window, 0, &[2; 8]);
    let link = pair.links[0];
    pair.run_until("the end of the link", |a, _| {
        a.contains(&Event::LinkDown { link, why: Ended::Restarted })
    });
    pair.links = open(&mut pair.sim, pair.hosts, &pair.logs);
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[3; 8]).unwrap();
    pair.run_until("the exception", |a, _| {
        a.iter().any(|e| matches!(e, Event::Exception { reason: Reason::BadKey, .. }))
    });
    assert_eq!(pair.bytes(1, area), [0; 64]);
}

#[test]
fn a_link_that_was_closed_can_be_opened_again() {
    let mut pair = pair();
    let (area, _, window) = pair.window(64);
    for round in 1..=5 {
        let (now, link) = (pair.now(), pair.links[0]);
        pair.nic(0).close_link(now, link).unwrap();
        pair.run_until("the end", |a, b| {
            let down = |e: &Event| matches!(e, Event::LinkDown { .. });
            a.iter().filter(|e| down(e)).count() == round
                && b.iter().filter(|e| down(e)).count() == round
        });
        pair.run_for(Duration::from_secs(2));
        pair.links = open(&mut pair.sim, pair.hosts, &pair.logs);
        let now = pair.now();
        pair.nic(0).write(now, window, 0, &[round as u8; 64]).unwrap();
        pair.flush();
        assert_eq!(pair.bytes(1, area), [round as u8; 64]);
    }
}

/// Few frames are under way at a time, so that there is something to wait for.
fn narrow_pair() -> Pair {
    let config = Config { frames: 16, ..Config::default() };
    Pair::new(Sim::from_number(4), config, LinkConfig::ethernet(100_000_000))
}

#[test]
fn the_program_does_not_wait_for_the_dma_engine_nor_that_for_it() {
    let mut pair = narrow_pair();
    let (area, aperture, window) = pair.window(1 << 20);
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let data = noise(1, 900_000);
    let from = pair.lend(0, &data);
    let now = pair.now();
    let chain = [DmaRequest::Write { from, window, offset: 0 }];
    let dma = pair.nic(0).dma(now, endpoint, &chain).unwrap();
    pair.run_for(Duration::from_millis(1));
    let flag =
        pair.nic(1).watch(aperture, 1_000_000..1_000_008, Access::Write, Action::Event, false);
    let now = pair.now();
    pair.nic(0).write_word(now, window, 1_000_000, 1).unwrap();
    pair.run_until("the word", |_, b| fired(b, flag.unwrap()));
    let done = Event::Dma { endpoint, dma, result: Ok(()) };
    assert!(!pair.logs[0].borrow().contains(&done), "the word overtook the DMA engine");
    // Now the program writes without a pause.
    for n in 0.. {
        let now = pair.now();
        let _ = pair.nic(0).write(now, window, 950_000 + 8 * (n % 1000), &[1; 16]);
        if pair.logs[0].borrow().contains(&done) {
            break;
        }
        assert!(n < 100_000, "the program starves the DMA engine");
        pair.run_for(Duration::from_micros(20));
    }
    assert!(pair.bytes(1, area)[..900_000] == data);
}

#[test]
fn endpoints_take_turns_at_the_dma_engine() {
    let config = Config { dma_turn: 8192, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(4), config, LinkConfig::ethernet(100_000_000));
    let (_, _, window) = pair.window(4 << 20);
    let long = pair.lend(0, &noise(1, 2 << 20));
    let short = pair.lend(0, &noise(2, 10_000));
    let [greedy, modest] = [(); 2].map(|()| pair.nic(0).open_endpoint(None).unwrap());
    let now = pair.now();
    let much = [DmaRequest::Write { from: long, window, offset: 0 }];
    let little = [DmaRequest::Write { from: short, window, offset: 3 << 20 }];
    let much = pair.nic(0).dma(now, greedy, &much).unwrap();
    let little = pair.nic(0).dma(now, modest, &little).unwrap();
    pair.run_until("both", |a, _| a.iter().filter(|e| matches!(e, Event::Dma { .. })).count() == 2);
    let order: Vec<_> = pair.logs[0]
        .borrow()
        .iter()
        .filter_map(|e| match e {
            Event::Dma { dma, result: Ok(()), .. } => Some(*dma),
            _ => None,
        })
        .collect();
    assert_eq!(order, [little, much]);
}

#[test]
fn what_is_cancelled_ends_and_the_rest_goes_on() {
    let mut pair = narrow_pair();
    let (_, _, window) = pair.window(1 << 20);
    let from = pair.lend(0, &noise(1, 1 << 19));
    let [one, other] = [(); 2].map(|()| pair.nic(0).open_endpoint(None).unwrap());
    let now = pair.now();
    let chain = [DmaRequest::Write { from, window, offset: 0 }];
    let given_up = pair.nic(0).dma(now, one, &chain).unwrap();
    let kept = pair.nic(0).dma(now, other, &chain).unwrap();
    pair.run_for(Duration::from_millis(2));
    let now = pair.now();
    pair.nic(0).cancel_dma(now, one).unwrap();
    pair.run_until("both", |a, _| a.iter().filter(|e| matches!(e, Event::Dma { .. })).count() == 2);
    let result = Err(clan_dsm::Ended::Here);
    assert!(pair.logs[0].borrow().contains(&Event::Dma { endpoint: one, dma: given_up, result }));
    assert!(pair.logs[0].borrow().contains(&Event::Dma {
        endpoint: other,
        dma: kept,
        result: Ok(())
    }));
}

#[test]
fn who_is_held_back_gets_answers_and_sends_later() {
    let mut pair = narrow_pair();
    let (area, _, window) = pair.window(4096);
    let (_, _, back) = pair.expose(0, 4096, Rights::ReadWrite);
    let back = pair.nic(1).map(&back).unwrap();
    let (there, into) = (pair.links[1], pair.lend(1, &[0; 500]));
    pair.nic(1).hold(there, true).unwrap();
    // What is said first says Xoff as well.
    let now = pair.now();
    pair.nic(1).write(now, back, 0, &[1; 8]).unwrap();
    pair.run_for(Duration::from_millis(1));
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[7; 100]).unwrap();
    let read = pair.nic(1).read(now, back, 0, into).unwrap();
    pair.run_until("the answer", |_, b| b.contains(&Event::Read { read, result: Ok(()) }));
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.bytes(1, area)[..100], [0; 100], "it is held back");
    pair.nic(1).hold(there, false).unwrap();
    pair.flush();
    assert_eq!(pair.bytes(1, area)[..100], [7; 100]);
}

#[test]
fn messages_and_connections_go_through() {
    let mut pair = narrow_pair();
    let listener = pair.nic(1).open_endpoint(Some(clan_dsm::Port(7))).unwrap();
    pair.nic(1).listen(listener).unwrap();
    let caller = pair.nic(0).open_endpoint(None).unwrap();
    let to = PortAddress { host: HostId::new(2).unwrap(), port: clan_dsm::Port(7) };
    pair.nic(0).connect(caller, to, [5; 40]).unwrap();
    pair.run_until("the request", |_, b| b.contains(&Event::OutOfBand { endpoint: listener }));
    let Some(Notice::Request(request)) = pair.nic(1).poll_notice(listener) else { panic!() };
    assert_eq!(request.body, [5; 40]);
    let server = pair.nic(1).open_endpoint(None).unwrap();
    pair.nic(1).accept(server, &request, [6; 40]).unwrap();
    pair.run_until("the answer", |a, _| a.contains(&Event::OutOfBand { endpoint: caller }));
    assert!(
        matches!(pair.nic(0).poll_notice(caller), Some(Notice::Accepted { body, .. }) if body == [6; 40])
    );
    pair.nic(1).send(server, [7; 40]).unwrap();
    pair.clear();
    pair.run_until("the message", |a, _| a.contains(&Event::OutOfBand { endpoint: caller }));
    assert!(
        matches!(pair.nic(0).poll_notice(caller), Some(Notice::Message { body, .. }) if body == [7; 40])
    );
    // Who is not there is told of.
    let nobody = PortAddress { host: HostId::new(9).unwrap(), ..to };
    assert_eq!(pair.nic(0).send_to(caller, nobody, [0; 40]), Err(Error::NoLink));
    pair.sim.set_link(pair.wire, false).unwrap();
    let now = pair.now();
    let window = pair.window(64).2;
    pair.nic(0).write(now, window, 0, &[1]).unwrap();
    pair.run_until("the end", |a, _| a.iter().any(|e| matches!(e, Event::LinkDown { .. })));
    assert!(matches!(pair.nic(0).poll_notice(caller), Some(Notice::Ended { .. })));
}

#[test]
fn what_is_not_registered_is_not_told() {
    let mut pair = narrow_pair();
    let (_, aperture, window) = pair.window(64);
    let trip = pair.nic(1).watch(aperture, 0..64, Access::Write, Action::Event, false).unwrap();
    pair.nic(1).unregister(Source::Tripwire(trip));
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[1; 8]).unwrap();
    pair.flush();
    assert!(!fired(&pair.logs[1].borrow(), trip));
    assert!(pair.nic(1).has_fired(trip).unwrap(), "it is remembered");
    pair.nic(1).register(Source::Tripwire(trip));
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[2; 8]).unwrap();
    pair.run_until("the event", |_, b| fired(b, trip));
}
