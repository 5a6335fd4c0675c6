//! What ends: apertures, links, hosts.

use std::time::Duration;

use crate::world::{Pair, noise, open};
use clan_dsm::{Access, Action, Config, DmaRequest, Ended, Event, HostId, Nic, Reason, Rights};
use landfall_placement::{Engine, PathId, PathLimits, PathState, WordFunction, WordWidth};
use landfall_simnet::{LinkConfig, Sim};

fn pair() -> Pair {
    let config = Config { keep_alive: Some(Duration::from_millis(500)), ..Config::default() };
    Pair::new(Sim::from_number(3), config, LinkConfig::ethernet(100_000_000))
}

/// Side 1 starts anew and knows nothing any more.
fn restart(pair: &mut Pair, seed: u8) {
    let mut nic = Nic::new(Config::default(), HostId::new(2).unwrap(), [seed; 32]);
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
