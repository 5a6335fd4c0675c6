//! Nodes of several engines: what peers at different engines do to the same memory of one node.
//!
//! | file | what it proves |
//! | --- | --- |
//! | `messages` | endpoints, DMA queues, names and groups over all engines |
//! | `opening` | what is refused, how nodes end, stations of an Ethernet |

mod messages;
mod opening;

use std::collections::BTreeSet;
use std::thread;

use landfall::clan::network::{
    Builder, Config, Identity, KnownPeers, Link, Node, Peer, Window, WordFunction,
};
use landfall::clan::{
    Access, Action, ActionRule, ActionTripwire, Actions, Error, Event, Fabric, Local, Remote,
    Rights, Stage, Tripwire,
};
use landfall_transport::udp::UdpDriver;

use super::{builder, host, loopback, soon, until};

const ENGINES: usize = 3;
const PER_ENGINE: usize = 2;

pub(super) fn several(number: u16) -> Builder {
    builder(number).path(loopback()).threads(ENGINES)
}

/// Links that nobody says anything on stay silent: who sleeps for ever is not woken by them.
fn without_keep_alive() -> Config {
    Config { keep_alive: None, ..Config::shared_network() }
}

/// The engine of a node of this many that this one comes to.
pub(super) fn engine_of(peer: &Node, engines: usize) -> usize {
    let Some(Peer::Socket(at)) = peer.local() else { panic!("UDP") };
    UdpDriver::member_of(at, engines).expect("one of them")
}

/// A node of several engines, and peers of which this many have a link to each, which they or
/// the node have opened. Neighbours of the list are at different engines.
pub(super) fn star() -> (Node, Vec<Node>) {
    let here = several(1).config(without_keep_alive()).open().expect("loopback");
    assert_eq!(here.threads(), ENGINES);
    let mut of_each: [Vec<Node>; ENGINES] = Default::default();
    for number in 2..200 {
        let peer = builder(number).path(loopback()).config(without_keep_alive()).open();
        let peer = peer.expect("loopback");
        let of_engine = &mut of_each[engine_of(&peer, ENGINES)];
        if of_engine.len() < PER_ENGINE {
            of_engine.push(peer);
        }
        if of_each.iter().all(|of_engine| of_engine.len() == PER_ENGINE) {
            break;
        }
    }
    let mut peers = Vec::new();
    for nth in 0..PER_ENGINE {
        peers.extend(of_each.iter().map(|of_engine| of_engine[nth].clone()));
    }
    assert_eq!(peers.len(), ENGINES * PER_ENGINE, "each engine has its peers");
    for (nth, peer) in peers.iter().enumerate() {
        let (from, to) = if nth % 2 == 0 { (peer, &here) } else { (&here, peer) };
        let link = from.link(to.local().unwrap()).unwrap();
        assert_eq!(link.wait_up(soon()).unwrap(), to.host());
        to.wait_reached(from.host(), soon()).unwrap();
    }
    assert_eq!(here.stats().links, peers.len());
    (here, peers)
}

/// All that was written through this is in place.
pub(super) fn delivered(window: &mut Window) {
    window.commit().unwrap();
    window.wait_for(Stage::Delivered, soon()).unwrap();
}

/// Writes, and waits where there is no room.
pub(super) fn write(window: &mut Window, offset: u64, bytes: &[u8]) {
    while let Err(error) = window.write(offset, bytes) {
        assert!(matches!(error, Error::Busy), "{error}");
        window.commit().unwrap();
        window.wait_for(Stage::Room, soon()).unwrap();
    }
}

#[test]
fn each_peer_writes_in_its_order_whichever_engine_has_its_link() {
    const ROUNDS: u64 = 400;
    // A flag, and what was written before it: short, and long enough to be sent from memory.
    const PLACE: u64 = 1024;
    const WORDS: usize = 64;
    let (here, peers) = star();
    let (memory, cookie) = here.expose(PLACE * peers.len() as u64, Rights::Write).unwrap();
    thread::scope(|scope| {
        for (nth, peer) in peers.iter().enumerate() {
            scope.spawn(move || {
                let (mut window, at) = (peer.map(&cookie).unwrap(), PLACE * nth as u64);
                for round in 1..=ROUNDS {
                    let body = [round; WORDS].map(u64::to_le_bytes).concat();
                    let len = if round % 3 == 0 { body.len() } else { 64 };
                    write(&mut window, at + 8, &body[..len]);
                    write(&mut window, at, &round.to_le_bytes());
                    window.commit().unwrap();
                }
                window.wait_for(Stage::Delivered, soon()).unwrap();
            });
        }
        let mut last = vec![0; peers.len()];
        until(&here, || {
            for (nth, last) in last.iter_mut().enumerate() {
                let at = PLACE * nth as u64;
                let flag = memory.load(at).unwrap();
                assert!(flag >= *last, "peer {nth} goes back from {last} to {flag}");
                *last = flag;
                for word in 1..=8 {
                    let found = memory.load(at + 8 * word).unwrap();
                    assert!(found >= flag, "peer {nth}: {found} behind the flag {flag}");
                }
                // Every third is long.
                let found = memory.load(at + 8 * WORDS as u64).unwrap();
                assert!(found >= flag / 3 * 3, "peer {nth}: {found} behind the flag {flag}");
            }
            last.iter().all(|last| *last == ROUNDS)
        });
    });
}

#[test]
fn words_are_changed_in_one_step_by_peers_at_all_engines() {
    const ROUNDS: u64 = 200;
    let (here, peers) = star();
    let (memory, cookie) = here.expose(64, Rights::ReadWrite).unwrap();
    let mut seen = thread::scope(|scope| {
        let changing = peers.iter().map(|peer| {
            scope.spawn(move || {
                let window = peer.map(&cookie).unwrap();
                let add = |_| window.wait_change(8, WordFunction::Add(1), soon()).unwrap();
                (0..ROUNDS).map(add).collect::<Vec<_>>()
            })
        });
        let changing: Vec<_> = changing.collect();
        let own = (0..ROUNDS).map(|_| {
            here.turn();
            memory.change(8, WordFunction::Add(1)).unwrap()
        });
        let mut seen: Vec<u64> = own.collect();
        for changing in changing {
            let of_peer = changing.join().unwrap();
            assert!(of_peer.is_sorted(), "one after the other");
            seen.extend(of_peer);
        }
        seen
    });
    let sum = ROUNDS * (peers.len() as u64 + 1);
    assert_eq!(memory.load(8).unwrap(), sum);
    // Each of them has found another number: none was lost, and none counted twice.
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..sum));
}

#[test]
fn a_tripwire_fires_from_every_engine_and_is_told_once() {
    let (here, peers) = star();
    let (memory, cookie) = here.expose(4096, Rights::ReadWrite).unwrap();
    let mut windows: Vec<_> = peers.iter().map(|peer| peer.map(&cookie).unwrap()).collect();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    let reads = here.watch(&memory, 0..8, Access::Read, None).unwrap();
    // Often enough that what nobody waits for is switched off in between.
    for round in 1..=10 {
        for (window, at) in windows.iter_mut().zip(1..) {
            let word = round << 16 | at;
            tripwire.arm();
            window.write(8, &[at as u8; 256]).unwrap();
            window.store(0, word).unwrap();
            window.commit().unwrap();
            assert!(tripwire.wait(soon()).unwrap());
            assert_eq!(memory.load(0).unwrap(), word, "told when it is there");
            let mut body = [0; 256];
            memory.copy_out(8, &mut body).unwrap();
            assert_eq!(body, [at as u8; 256], "and what was before it");
            // Not armed: nothing is told of it.
            for _ in 0..3 {
                window.store(0, word).unwrap();
                delivered(window);
            }
            tripwire.disarm();
            assert!(!tripwire.has_fired());
        }
    }
    reads.arm();
    windows[1].read(0, &mut [0; 8], soon()).unwrap();
    assert!(reads.wait(soon()).unwrap());

    // As events: one for all that happens until it is taken out.
    let mut events = here.events(4).unwrap();
    events.register(&tripwire, 7).unwrap();
    while events.next().is_some() {}
    for _ in 0..3 {
        for window in &mut windows {
            window.store(0, 1).unwrap();
            delivered(window);
        }
        until(&here, || !events.is_empty());
        assert_eq!(events.next(), Some(Event::Tripwire(7)));
        // All has been delivered, and no engine tells of it again.
        assert_eq!(events.next(), None);
    }
    events.unregister(&tripwire).unwrap();
    assert_eq!(events.sources(), 0);
    windows[0].store(0, 2).unwrap();
    delivered(&mut windows[0]);
    here.turn();
    assert_eq!(events.next(), None);
}

#[test]
fn marks_of_all_engines_are_one() {
    let (here, peers) = star();
    let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
    let rule = |range, action| ActionRule::new(range, action);
    let count = here.act_on(&memory, &rule(0..8, Action::Count(3))).unwrap();
    let bit = here.act_on(&memory, &rule(8..16, Action::Bit(9))).unwrap();
    let _names: Vec<_> = (0..peers.len() as u64)
        .map(|nth| {
            let at = 64 + 8 * nth;
            here.act_on(&memory, &rule(at..at + 8, Action::Identify(nth))).unwrap()
        })
        .collect();
    let writing = |at: u64, peer: &Node, nth: u64| {
        let mut window = peer.map(&cookie).unwrap();
        window.store(at + 8 * nth, 1).unwrap();
        delivered(&mut window);
    };
    peers.iter().for_each(|peer| writing(0, peer, 0));
    let all = peers.len() as u64;
    until(&here, || here.counter(3) == all);
    assert_eq!(count.firings(), all);
    assert!(!here.take_bit(9));
    // Set at several engines, it is taken once.
    peers.iter().for_each(|peer| writing(8, peer, 0));
    until(&here, || bit.firings() == all);
    assert!(here.take_bit(9) && !here.take_bit(9));
    bit.disarm();
    assert!(!bit.is_armed());
    peers.iter().for_each(|peer| writing(8, peer, 0));
    assert!(!here.take_bit(9));
    for (peer, nth) in peers.iter().zip(0..) {
        writing(64, peer, nth);
    }
    let mut told = BTreeSet::new();
    until(&here, || {
        told.extend(here.next_identifier());
        told.len() == peers.len()
    });
    assert!(told.into_iter().eq(0..all));
    assert_eq!((here.next_identifier(), here.take_lost()), (None, 0));
}

#[test]
fn a_mark_that_is_left_once_is_left_by_one_engine() {
    let (here, peers) = star();
    let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
    let once = |action| here.act_on(&memory, &ActionRule::new(0..8, action).once()).unwrap();
    let wires = [once(Action::Count(5)), once(Action::Bit(6)), once(Action::Identify(7))];
    let all = here.act_on(&memory, &ActionRule::new(0..8, Action::Count(4))).unwrap();
    let mut windows: Vec<_> = peers.iter().map(|peer| peer.map(&cookie).unwrap()).collect();
    for round in 1..=4 {
        for window in &mut windows {
            window.store(0, round).unwrap();
            window.commit().unwrap();
        }
        until(&here, || all.firings() == round * peers.len() as u64);
        until(&here, || wires.iter().all(|wire| !wire.is_armed()));
        assert_eq!((here.counter(5), wires[0].firings()), (round, round));
        assert!(here.take_bit(6) && !here.take_bit(6));
        assert_eq!((here.next_identifier(), here.next_identifier()), (Some(7), None));
        for wire in &wires {
            wire.arm().unwrap();
            assert!(wire.is_armed());
        }
    }
    // Disarmed, and gone with its memory.
    wires[0].disarm();
    windows[1].store(0, 9).unwrap();
    delivered(&mut windows[1]);
    until(&here, || here.take_bit(6));
    assert_eq!(here.counter(5), 4);
    // What it has left means nothing when it is gone.
    let [counting, _bit, naming] = wires;
    until(&here, || !naming.is_armed());
    drop(naming);
    assert_eq!(here.next_identifier(), None);
    memory.revoke();
    assert!(!counting.is_armed());
    assert!(matches!(counting.arm(), Err(Error::StaleCookie)));
    for action in [Action::Count(u32::MAX), Action::Bit(u32::MAX)] {
        let (memory, _) = here.expose(64, Rights::Write).unwrap();
        let wrong = here.act_on(&memory, &ActionRule::new(0..8, action).once());
        assert!(matches!(wrong, Err(Error::NoRoom(_))), "{wrong:?}");
    }
}

pub(super) fn is_refused(window: &mut Window) -> bool {
    let read = window.read(0, &mut [0; 8], soon());
    match read {
        Ok(()) => false,
        Err(Error::Refused(_) | Error::StaleCookie) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_cookie_that_is_revoked_opens_nothing_at_any_engine() {
    let (here, peers) = star();
    let mut old = Vec::new();
    // Slots of memory are used again, and their old cookies open nothing.
    for round in 0..3 {
        let (memory, all) = here.expose(4096, Rights::ReadWrite).unwrap();
        let (_other, _) = here.expose(64, Rights::Read).unwrap();
        let reading = memory.cookie(Rights::Read).unwrap();
        memory.store(0, round).unwrap();
        let map = |cookie| peers.iter().map(move |peer| peer.map(&cookie).unwrap());
        let mut windows: Vec<_> = map(all).chain(map(reading)).collect();
        for window in &mut windows {
            let mut word = [0; 8];
            window.read(0, &mut word, soon()).unwrap();
            assert_eq!(u64::from_le_bytes(word), round);
        }
        old.extend(windows);
        if round % 2 == 0 {
            memory.revoke();
        } else {
            drop(memory);
        }
        assert!(old.iter_mut().all(is_refused), "round {round}");
    }
}

pub(super) fn keyed(number: u16, identity: &Identity) -> Builder {
    let builder = builder(number).path(loopback()).encrypt_loopback();
    builder.identity(identity.clone()).known_peers(KnownPeers::in_memory())
}

/// A node with this key and number that has a link to `here` at this engine.
pub(super) fn at_engine(
    number: u16,
    identity: &Identity,
    here: &Node,
    engine: usize,
) -> (Node, Link) {
    for _ in 0..200 {
        let node = keyed(number, identity).open().unwrap();
        if engine_of(&node, ENGINES) == engine {
            let link = node.link(here.local().unwrap()).unwrap();
            return (node, link);
        }
    }
    panic!("the kernel chose no port of engine {engine}");
}

#[test]
fn a_cookie_for_one_host_and_the_number_of_a_host_hold_at_all_engines() {
    let [own, friends, thiefs] = [(); 3].map(|()| Identity::generate().unwrap());
    let here = keyed(1, &own).threads(ENGINES).open().unwrap();
    let (friend, link) = at_engine(2, &friends, &here, 0);
    link.wait_up(soon()).unwrap();
    here.wait_reached(friend.host(), soon()).unwrap();
    let (memory, _) = here.expose(64, Rights::ReadWrite).unwrap();
    let cookie = memory.cookie_for(Rights::ReadWrite, friend.host()).unwrap();
    assert!(!is_refused(&mut friend.map(&cookie).unwrap()));

    // Nobody else is that host, at no engine, while it is there nor when it is gone.
    for engine in 0..ENGINES {
        let (_thief, link) = at_engine(2, &thiefs, &here, engine);
        link.wait_up(soon()).unwrap_err();
        // And the host itself is at one engine at a time.
        if engine > 0 {
            let (_again, link) = at_engine(2, &friends, &here, engine);
            link.wait_down(soon()).unwrap().unwrap();
            assert!(!is_refused(&mut friend.map(&cookie).unwrap()));
        }
        let (thief, link) = at_engine(3, &thiefs, &here, engine);
        link.wait_up(soon()).unwrap();
        here.wait_reached(thief.host(), soon()).unwrap();
        assert!(is_refused(&mut thief.map(&cookie).unwrap()));
        assert_eq!(close(thief), Ok(()));
        until(&here, || here.link_to(host(3)).is_none());
    }
    // With another port it comes to another engine, where its cookie is as good.
    for engine in [1, 2, 0] {
        let gone = here.link_to(friend.host()).map(|link| link.close());
        assert!(gone.is_some() || engine != 1);
        until(&here, || here.link_to(host(2)).is_none());
        let (again, link) = at_engine(2, &friends, &here, engine);
        link.wait_up(soon()).unwrap();
        here.wait_reached(again.host(), soon()).unwrap();
        assert!(!is_refused(&mut again.map(&cookie).unwrap()), "engine {engine}");
        assert_eq!(memory.cookie_for(Rights::ReadWrite, again.host()).unwrap(), cookie);
        if engine == 0 {
            memory.revoke_from(again.host());
            assert!(is_refused(&mut again.map(&cookie).unwrap()));
            let new = memory.cookie_for(Rights::ReadWrite, again.host()).unwrap();
            assert!(new != cookie && !is_refused(&mut again.map(&new).unwrap()));
            assert!(is_refused(&mut again.map(&cookie).unwrap()));
        }
        close(again).unwrap();
    }
}

pub(super) fn close(node: Node) -> Result<(), ()> {
    let driving = node.clone();
    driving.wait_for(node.close(), soon()).map_err(drop)?.ok_or(())
}
