//! The size of packets: found out link by link, and again when it changes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{Pair, add_host, is_received, is_sent, noise, read, run_for};
use landfall_placement::{Engine as _, PathId, Peer, Refusal};

use landfall_simnet::sim::Fate;
use landfall_simnet::{DirectionId, EngineConfig, LinkConfig, Loss, Probability, Sim, check};
use stp_core::wire::{Header, Op};
use stp_core::{Config, Event};

/// What every way carries, and what interfaces of 9000 bytes do.
const SURE: u32 = 1200;
const JUMBO: u32 = 8972;
/// Data with the longest STU that such an interface carries: a multiple of 8 bytes.
const FULL: u32 = 8928 + 40;
/// What is tried behind 1500 bytes over IPv4: an STU twice as long.
const TWICE: u32 = 2 * 1432 + 40;

fn how() -> EngineConfig {
    EngineConfig { sure: SURE, ..EngineConfig::default() }
}

fn jumbo() -> LinkConfig {
    LinkConfig::ethernet(10_000_000_000).delay(Duration::from_micros(20)).mtu(JUMBO)
}

/// A way that carries packets up to a length, which may change; longer ones are lost without
/// a word. No Data may be longer than what was seen to arrive, nor than what is sure.
#[derive(Clone, Debug, Default)]
struct Narrow {
    carries: Rc<Cell<u32>>,
    proven: Rc<Cell<u32>>,
    /// The longest Data that was sent.
    longest: Rc<Cell<u32>>,
    /// Data that was lost here.
    lost: Rc<Cell<u32>>,
    /// Data that came through, in bytes.
    bytes: Rc<Cell<u64>>,
}

impl Narrow {
    fn of(sim: &mut Sim, direction: DirectionId, carries: u32) -> Self {
        let narrow = Self::default();
        narrow.carries.set(carries);
        let seen = narrow.clone();
        let look = move |op: Option<Op>, len: u32| {
            let is_data = op == Some(Op::Data);
            if is_data {
                seen.longest.set(seen.longest.get().max(len));
                let most = seen.proven.get().max(SURE);
                assert!(len <= most, "Data of {len} bytes where {most} are proven");
            }
            if len > seen.carries.get() {
                seen.lost.set(seen.lost.get() + u32::from(is_data));
                return Fate::Drop;
            }
            if is_data {
                seen.bytes.set(seen.bytes.get() + u64::from(len));
            } else {
                seen.proven.set(seen.proven.get().max(len));
            }
            Fate::Pass
        };
        sim.intercept(direction, move |_, frame| {
            let op = Header::read(&frame.bytes).and_then(|header| Op::from_number(header.op));
            look(op, frame.bytes.len() as u32)
        })
        .unwrap();
        narrow
    }
}

/// Two hosts with jumbo interfaces, and between them what carries less in both directions.
fn pair_over(mut sim: Sim, config: &Config, link: LinkConfig, carries: u32) -> (Pair, Narrow) {
    let a = add_host(&mut sim, "alice", config.clone(), how());
    let b = add_host(&mut sim, "bob", config.clone(), how());
    let link = sim.connect(a.0.id(), b.0.id(), link).unwrap();
    let there = Narrow::of(&mut sim, link.there(), carries);
    let back = Narrow::of(&mut sim, link.back(), carries);
    assert_eq!(back.lost.get(), 0);
    (Pair::between(sim, a, b, vec![link]), there)
}

fn pair(config: &Config, carries: u32) -> (Pair, Narrow) {
    pair_over(Sim::from_number(1), config, jumbo(), carries)
}

/// What Bob knows of packets from Alice.
fn proven(pair: &mut Pair) -> u32 {
    let alice = Peer::Node(pair.a.id().0);
    pair.bob().proven_unit(PathId(0), alice).unwrap()
}

/// Sends this to Bob, and checks that it comes.
fn carry(pair: &mut Pair, seed: u64, len: usize) {
    let bytes = noise(seed, len);
    let before = pair.count_b(is_received);
    let area = pair.post(100, len);
    pair.send(7, &bytes);
    pair.run_until("the transfer", |a, b| {
        b.iter().filter(|e| is_received(e)).count() > before && a.iter().any(is_sent)
    });
    assert!(read(&pair.sim, pair.b, area) == bytes);
}

#[test]
fn each_way_is_used_as_far_as_it_carries() {
    // 1280, 1500 and 9000, less the headers of IPv6 and IPv4; and something between.
    let cases = [
        (1232, SURE, SURE),
        (1452, 1452, 1448),
        (1472, 1472, 1472),
        (5000, TWICE, TWICE),
        (8952, 8952, 8952),
        (8972, JUMBO, FULL),
    ];
    for (carries, wanted, data) in cases {
        let (mut pair, narrow) = pair(&Config::default(), carries);
        run_for(&mut pair.sim, Duration::from_millis(1));
        assert_eq!(proven(&mut pair), wanted, "of a way that carries {carries}");
        carry(&mut pair, 1, 2 << 20);
        assert_eq!((narrow.longest.get(), narrow.lost.get()), (data, 0), "of {carries}");
        assert_eq!(pair.bob().stats().sizes_lost, 0);
    }
}

#[test]
fn where_all_is_sure_nothing_is_asked() {
    let link = jumbo();
    let mut pair = Pair::new(Sim::from_number(1), Config::default(), &[link]);
    let narrow = Narrow::of(&mut pair.sim, pair.links[0].there(), JUMBO);
    narrow.proven.set(JUMBO);
    run_for(&mut pair.sim, Duration::from_millis(1));
    let before = pair.sim.stats(pair.links[0].there()).sent_bytes;
    run_for(&mut pair.sim, Duration::from_millis(100));
    assert_eq!(pair.sim.stats(pair.links[0].there()).sent_bytes, before);
    carry(&mut pair, 1, 1 << 20);
    assert_eq!(narrow.longest.get(), FULL, "at once");
}

/// The first question goes out with the first packet: anyone who has a round trip's time has
/// the size.
#[test]
fn a_size_is_known_a_round_trip_after_the_connection() {
    let (mut pair, _) = pair(&Config::default(), JUMBO);
    run_for(&mut pair.sim, Duration::from_micros(150));
    assert_eq!(proven(&mut pair), JUMBO);
}

#[test]
fn a_way_that_becomes_narrow_in_mid_transfer_loses_nothing() {
    for (seed, config) in [(1, Config::default()), (2, Config::shared_network())] {
        let (mut pair, narrow) = pair_over(Sim::from_number(seed), &config, jumbo(), JUMBO);
        carry(&mut pair, 1, 1 << 20);
        assert_eq!(proven(&mut pair), JUMBO);
        let bytes = noise(seed, 32 << 20);
        let area = pair.post(100, bytes.len());
        pair.send(7, &bytes);
        let (before, came) = (narrow.bytes.get(), narrow.clone());
        pair.run_until("a third", |_, _| came.bytes.get() > before + (10 << 20));
        narrow.carries.set(1472);
        let lost = narrow.lost.clone();
        pair.run_until("the hole", |_, _| lost.get() > 0);
        pair.run_until("the transfer", |_, b| b.iter().filter(|e| is_received(e)).count() == 2);
        assert!(read(&pair.sim, pair.b, area) == bytes);
        assert_eq!((proven(&mut pair), pair.bob().stats().sizes_lost), (SURE, 1));
    }
}

#[test]
fn a_way_that_becomes_wide_again_is_used_again() {
    let (mut pair, narrow) = pair(&Config::default(), JUMBO);
    carry(&mut pair, 1, 1 << 20);
    for _ in 0..3 {
        narrow.carries.set(1472);
        carry(&mut pair, 2, 4 << 20);
        run_for(&mut pair.sim, Duration::from_secs(1));
        assert_eq!(proven(&mut pair), 1472, "it was looked for anew");
        narrow.carries.set(JUMBO);
        run_for(&mut pair.sim, Duration::from_secs(601));
        assert_eq!(proven(&mut pair), JUMBO, "after the timer of ten minutes");
        carry(&mut pair, 3, 4 << 20);
    }
    assert_eq!(pair.bob().stats().sizes_lost, 3);
}

/// Each of them is short enough: they come whole, again and again, and tell nothing of the
/// long one that does not.
#[test]
fn short_transfers_beside_it_do_not_hide_that_long_packets_are_lost() {
    let (mut pair, narrow) = pair(&Config::default(), JUMBO);
    carry(&mut pair, 1, 1 << 20);
    narrow.carries.set(1472);
    let bytes = noise(2, 1 << 20);
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    let start = pair.now();
    while pair.bob().stats().sizes_lost == 0 {
        assert!(pair.now().since(start) < Duration::from_secs(2), "it is never found out");
        pair.post(0, 500);
        pair.send(0, &noise(3, 500));
        run_for(&mut pair.sim, Duration::from_millis(1));
    }
    pair.run_until("the long one", |_, b| {
        b.iter().any(|e| matches!(e, Event::Received { len, .. } if *len == 1 << 20))
    });
    assert!(read(&pair.sim, pair.b, area) == bytes);
}

/// It says nothing of sizes: when the link is back, they are what they were.
#[test]
fn a_link_that_is_silent_for_a_while_keeps_its_size() {
    let (mut pair, narrow) = pair(&Config::default(), JUMBO);
    carry(&mut pair, 1, 1 << 20);
    let bytes = noise(2, 8 << 20);
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    run_for(&mut pair.sim, Duration::from_millis(2));
    narrow.carries.set(0);
    run_for(&mut pair.sim, Duration::from_millis(300));
    narrow.carries.set(JUMBO);
    pair.run_until("the transfer", |_, b| b.iter().filter(|e| is_received(e)).count() == 2);
    assert!(read(&pair.sim, pair.b, area) == bytes);
    assert_eq!((proven(&mut pair), pair.bob().stats().sizes_lost), (JUMBO, 0));
}

#[test]
fn sizes_are_found_whatever_is_lost() {
    check(1..=20, |sim| {
        let seed = sim.now().as_nanos();
        let sim = std::mem::replace(sim, Sim::from_number(seed));
        let lossy = jumbo()
            .loss(Loss::Uniform(Probability::percent(30)))
            .duplication(Probability::percent(20))
            .reordering(Probability::percent(20), Duration::from_micros(300));
        let config = Config { give_up_after: 200, ..Config::default() };
        let (mut pair, _) = pair_over(sim, &config, lossy, 5000);
        carry(&mut pair, 1, 1 << 20);
        let start = pair.now();
        while proven(&mut pair) < TWICE {
            assert!(pair.now().since(start) < Duration::from_secs(7200));
            run_for(&mut pair.sim, Duration::from_secs(60));
        }
        carry(&mut pair, 2, 1 << 20);
        assert_eq!(pair.bob().refusals().of(Refusal::Malformed), 0);
    });
}

#[test]
fn who_does_not_answer_gets_what_is_sure() {
    let mut sim = Sim::from_number(1);
    // The one at the other end has nothing to fill packets up with.
    let a = add_host(&mut sim, "alice", Config::default(), EngineConfig::default());
    let b = add_host(&mut sim, "bob", Config::default(), how());
    let link = sim.connect(a.0.id(), b.0.id(), jumbo()).unwrap();
    let narrow = Narrow::of(&mut sim, link.there(), JUMBO);
    let mut pair = Pair::between(sim, a, b, vec![link]);
    carry(&mut pair, 1, 1 << 20);
    assert_eq!((proven(&mut pair), narrow.longest.get()), (SURE, SURE));
    assert!(pair.alice().refusals().of(Refusal::Unsupported) >= 3);
    run_for(&mut pair.sim, Duration::from_secs(1));
    let asked = pair.alice().refusals().total();
    run_for(&mut pair.sim, Duration::from_secs(590));
    assert_eq!(pair.alice().refusals().total(), asked, "it is not asked without end");
}

#[test]
fn blocks_go_over_from_a_wide_link_to_a_narrow_one() {
    let config = Config { block_stus: 4, blocks_ahead: 64, window: 512 << 10, ..Config::default() };
    let narrow = jumbo().mtu(1_472);
    let mut pair =
        Pair::with(Sim::from_number(3), config.clone(), config, how(), &[jumbo(), narrow]);
    let (id, now, bob) = (pair.from_a, pair.now(), Peer::Node(pair.b.id().0));
    pair.alice().add_link(now, id, PathId(1), bob).unwrap();
    pair.run_until("the link", |_, b| b.iter().any(|e| matches!(e, Event::LinkUp { .. })));
    run_for(&mut pair.sim, Duration::from_millis(1));
    assert_eq!(proven(&mut pair), JUMBO);
    let bytes = noise(1, 8 << 20);
    let area = pair.post(100, bytes.len());
    pair.send(7, &bytes);
    run_for(&mut pair.sim, Duration::from_millis(2));
    assert_eq!(pair.count_b(is_received), 0, "it is under way");
    let wide = pair.links[0];
    pair.sim.set_link(wide, false).unwrap();
    pair.run_until("the transfer", |_, b| b.iter().any(is_received));
    assert!(read(&pair.sim, pair.b, area) == bytes);
    assert!(pair.bob().stats().blocks_moved > 0);
}

/// What IPv4 and IPv6 leave of 1500 and 9000 bytes, of the loopback interface, and of a
/// datagram that is sure to arrive.
#[test]
fn an_stu_fills_the_packet_whatever_carries_it() {
    let cases = [
        (1472, 0, 1432),
        (1452, 0, 1408),
        (8972, 0, 8928),
        (8952, 0, 8912),
        (65_507, 0, 65_408),
        (1200, 0, 1160),
        (1472, 24, 1408),
        (1452, 24, 1384),
        (65_507, 24, 65_408),
    ];
    for (unit, tail, stu) in cases {
        let config = Config { tail, ..Config::default() };
        let link = jumbo().mtu(unit);
        let mut pair = Pair::new(Sim::from_number(1), config, &[link]);
        let narrow = Narrow::of(&mut pair.sim, pair.links[0].there(), unit);
        narrow.proven.set(unit);
        let len = 1_000_000;
        carry(&mut pair, 1, len);
        assert_eq!(narrow.longest.get(), stu + 40, "packets of {unit}, tail {tail}");
        // One in each Block is what is left of it.
        let stats = pair.bob().stats();
        let whole = (len as u32).div_ceil(stu);
        let most = u64::from(whole) + stats.block_notifications;
        assert!((whole.into()..=most).contains(&stats.stus_received), "{stats:?}");
    }
}

/// Who wants more room for what seals packets has it, whatever the other side wants.
#[test]
fn a_tail_stays_free_in_every_packet() {
    let unit = 1472;
    for (there, here) in [(0, 24), (24, 0), (16, 24)] {
        let config = |tail| Config { tail, ..Config::default() };
        let mut pair = Pair::with(
            Sim::from_number(1),
            config(there),
            config(here),
            EngineConfig::default(),
            &[jumbo().mtu(unit)],
        );
        let longest = Rc::new(Cell::new(0));
        for direction in [pair.links[0].there(), pair.links[0].back()] {
            let longest = longest.clone();
            pair.sim
                .intercept(direction, move |_, frame| {
                    longest.set(longest.get().max(frame.bytes.len() as u32));
                    Fate::Pass
                })
                .unwrap();
        }
        carry(&mut pair, 1, 100_000);
        assert_eq!(longest.get(), 1408 + 40, "tails of {there} and {here}");
    }
}
