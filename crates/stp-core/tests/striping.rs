//! One Transfer over several links: one-to-many, many-to-one, many-to-many.

use std::time::Duration;

use crate::world::{Pair, connect, is_received, is_sent, noise, place, read, run_for};
use landfall_placement::{Engine as _, PathId, Peer};
use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, Sim, check};
use stp_core::{Config, Ended, Error, Event};

fn link(bits_per_second: u64) -> LinkConfig {
    LinkConfig::ethernet(bits_per_second).delay(Duration::from_micros(5)).mtu(1_500)
}

pub(crate) fn striped(sim: Sim, config: Config, links: &[LinkConfig]) -> Pair {
    let mut pair = Pair::new(sim, config, links);
    let (id, to) = (pair.from_a, Peer::Node(pair.b.id().0));
    for path in 1..links.len() as u16 {
        let now = pair.now();
        pair.alice().add_link(now, id, PathId(path), to).unwrap();
        assert_eq!(pair.alice().add_link(now, id, PathId(path), to), Err(Error::Taken));
    }
    let wanted = links.len() - 1;
    pair.run_until("all links", |_, b| {
        b.iter().filter(|e| matches!(e, Event::LinkUp { .. })).count() == wanted
    });
    pair
}

fn small_blocks() -> Config {
    // Blocks of 16 KiB, and a window that is filled in some of them.
    Config { block_stus: 4, blocks_ahead: 64, window: 512 << 10, ..Config::default() }
}

#[test]
fn a_transfer_fills_links_of_unequal_rates_in_proportion() {
    let links = [link(1_000_000_000), link(3_000_000_000), link(6_000_000_000)];
    let mut pair = striped(Sim::from_number(1), small_blocks(), &links);
    let bytes = noise(1, 8 << 20);
    let area = pair.post(100, bytes.len());
    let before = pair.now();
    pair.send(7, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    let took = pair.now().since(before);
    assert!(read(&pair.sim, pair.b, area) == bytes);
    let shares: Vec<u64> =
        pair.links.iter().map(|link| pair.sim.stats(link.there()).delivered).collect();
    let sum: u64 = shares.iter().sum();
    for (share, wanted) in shares.iter().zip([10, 30, 60]) {
        let percent = share * 100 / sum;
        assert!(percent.abs_diff(wanted) <= 8, "{shares:?}: {percent} % instead of {wanted} %");
    }
    // Together they are nearly as fast as one link of 10 Gbit/s: 6.7 ms.
    assert!(took < Duration::from_millis(9), "{took:?}, {shares:?}");
}

/// How many bytes a second one Transfer has over these links.
fn rate_over(config: &Config, links: &[LinkConfig], len: usize) -> f64 {
    let mut pair = striped(Sim::from_number(6), config.clone(), links);
    let bytes = noise(1, len);
    pair.post(0, bytes.len());
    let before = pair.now();
    pair.send(7, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    len as f64 / pair.now().since(before).as_secs_f64()
}

/// Links of unlike rates together give 0.9 of what they give alone, added up: also where a Block
/// is more than the window of a link, and waits there for what the link carries.
#[test]
fn striping_gains_what_links_have_together() {
    let few = [&[1_000, 3_000, 6_000][..], &[100, 1_000]];
    let all = [few[0], few[1], &[1_000, 1_000, 1_000, 1_000]];
    let cases = [(small_blocks(), &all[..]), (Config::shared_network(), &few)];
    for (config, cases) in cases {
        for rates in cases {
            let links: Vec<LinkConfig> = rates.iter().map(|rate| link(rate * 1_000_000)).collect();
            let alone = |link: &LinkConfig| rate_over(&config, &[*link], 8 << 20);
            let sum: f64 = links.iter().map(alone).sum();
            let together = rate_over(&config, &links, 48 << 20);
            assert!(together >= sum * 0.9, "{together:.0} of {sum:.0} bytes a second: {rates:?}");
        }
    }
}

/// Virtual time, so this is no matter of the machine's speed.
#[test]
fn each_block_returns_over_the_link_that_its_grant_came_from() {
    let links = [link(1_000_000_000), link(1_000_000_000)];
    let mut pair = striped(Sim::from_number(2), small_blocks(), &links);
    let bytes = noise(1, 1 << 20);
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    assert!(read(&pair.sim, pair.b, area) == bytes);
    // Data over the wrong link would have been refused.
    assert_eq!(pair.bob().refusals().total(), 0, "{}", pair.bob().refusals());
    for link in &pair.links {
        assert!(pair.sim.stats(link.there()).delivered > 300);
    }
}

#[test]
fn a_link_that_dies_in_mid_transfer_loses_nothing() {
    check(1..=20, |sim| {
        let seed = sim.now().as_nanos();
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let links = [link(1_000_000_000); 3];
        let mut pair = striped(sim, small_blocks(), &links);
        let bytes = noise(seed, 2 << 20);
        let area = pair.post(0, bytes.len());
        pair.send(0, &bytes);
        run_for(&mut pair.sim, Duration::from_millis(2));
        assert_eq!(pair.count_b(is_received), 0);
        let dead = pair.links[1];
        pair.sim.set_link(dead, false).unwrap();
        pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
        assert!(read(&pair.sim, pair.b, area) == bytes);
        assert!(pair.bob().stats().blocks_moved > 0, "{:?}", pair.bob().stats());
        assert_eq!(pair.count_b(|e| matches!(e, Event::LinkDown { .. })), 1);
        // It comes back, and carries its share again.
        pair.sim.set_link(dead, true).unwrap();
        let before = pair.sim.stats(dead.there()).delivered;
        run_for(&mut pair.sim, Duration::from_secs(10));
        let again = pair.post(0, bytes.len());
        pair.send(0, &bytes);
        pair.run_until("another", |a, _| a.iter().filter(|e| is_sent(e)).count() == 2);
        assert!(read(&pair.sim, pair.b, again) == bytes);
        assert!(pair.sim.stats(dead.there()).delivered > before + 300);
    });
}

/// The receiver cannot see that such a link is dead: its own end is up.
#[test]
fn a_link_that_swallows_everything_is_found_and_left() {
    check(1..=10, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let links = [link(1_000_000_000); 3];
        let mut pair = striped(sim, small_blocks(), &links);
        let bytes = noise(1, 2 << 20);
        let area = pair.post(0, bytes.len());
        pair.send(0, &bytes);
        run_for(&mut pair.sim, Duration::from_millis(2));
        let black_hole = links[0].loss(Loss::Uniform(Probability::percent(100)));
        pair.sim.configure(pair.links[0].there(), black_hole).unwrap();
        pair.sim.configure(pair.links[0].back(), black_hole).unwrap();
        pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
        assert!(read(&pair.sim, pair.b, area) == bytes);
        assert_eq!(pair.count_b(|e| matches!(e, Event::LinkDown { .. })), 1);
    });
}

/// Another connection found the link dead. What has only this one is granted there all the
/// same: so it is found out whether its sender is there.
#[test]
fn what_has_only_a_lost_link_ends_when_its_sender_is_gone() {
    let links = [link(1_000_000_000); 2];
    let config = Config { keep_alive: None, ..small_blocks() };
    let mut pair = striped(Sim::from_number(4), config, &links);
    let to = Peer::Node(pair.b.id().0);
    let other = connect(&mut pair.sim, pair.a, PathId(0), to);
    let (now, area) = (pair.now(), place(&mut pair.sim, pair.a, 0, &[1; 41]));
    pair.run_until("the other connection", |a, _| {
        a.iter().filter(|event| matches!(event, Event::Connected { .. })).count() == 2
    });
    pair.alice().send(now, other, area, 0).unwrap();
    pair.run_until("the offer", |_, b| b.iter().any(|e| matches!(e, Event::Offered { .. })));
    let offered = pair.b_log.borrow().iter().find_map(|event| match event {
        Event::Offered { receive, .. } => Some(*receive),
        _ => None,
    });
    let bytes = noise(1, 2 << 20);
    pair.post(0, bytes.len());
    pair.send(0, &bytes);
    run_for(&mut pair.sim, Duration::from_millis(2));
    let black_hole = links[0].loss(Loss::Uniform(Probability::percent(100)));
    for way in [pair.links[0].there(), pair.links[0].back()] {
        pair.sim.configure(way, black_hole).unwrap();
    }
    pair.run_until("both ends", |a, b| {
        a.iter().any(|e| matches!(e, Event::SendEnded { why: Ended::Silent, .. }))
            && b.iter().any(is_received)
            && b.iter().any(|e| matches!(e, Event::LinkDown { .. }))
    });
    for way in [pair.links[0].there(), pair.links[0].back()] {
        pair.sim.configure(way, links[0]).unwrap();
    }
    let (now, memory) = (pair.now(), place(&mut pair.sim, pair.b, 0, &[0; 41]));
    pair.bob().accept(now, offered.unwrap(), memory, false).unwrap();
    pair.run_until("the end of what nobody sends", |_, b| {
        b.iter().any(|e| matches!(e, Event::ReceiveEnded { .. }))
    });
}

#[test]
fn striping_survives_every_mix_of_faults() {
    let terrible = |rate| {
        link(rate)
            .loss(Loss::Uniform(Probability::percent(15)))
            .duplication(Probability::percent(15))
            .reordering(Probability::percent(15), Duration::from_micros(300))
            .corruption(Probability::percent(5))
    };
    let config = Config { give_up_after: 200, ..small_blocks() }.with_checksum();
    for how in [EngineConfig::default(), EngineConfig::guessing(16)] {
        check(1..=10, |sim| {
            let sim = std::mem::replace(sim, Sim::from_number(0));
            let links = [terrible(1_000_000_000), terrible(10_000_000_000)];
            let mut pair = Pair::with(sim, config.clone(), config.clone(), how, &links);
            let (now, id, to) = (pair.now(), pair.from_a, Peer::Node(pair.b.id().0));
            pair.alice().add_link(now, id, PathId(1), to).unwrap();
            let bytes = noise(3, 600_000);
            let areas = [pair.post(1, bytes.len()), pair.post(0, bytes.len())];
            pair.send(0, &bytes);
            pair.send(9, &bytes);
            pair.run_until("both transfers", |a, b| {
                a.iter().filter(|e| is_sent(e)).count() == 2
                    && b.iter().filter(|e| is_received(e)).count() == 2
            });
            for area in areas {
                assert!(read(&pair.sim, pair.b, area) == bytes);
            }
        });
    }
}

/// Requests, grants and answers over one link, Data over another.
#[test]
fn control_operations_and_data_may_use_different_links() {
    let links = [link(10_000_000_000), link(10_000_000_000)];
    let mut pair = striped(Sim::from_number(5), small_blocks(), &links);
    let (id, to) = (pair.from_b, Peer::Node(pair.a.id().0));
    pair.bob().set_data_link(id, PathId(0), to, false).unwrap();
    let before = pair.sim.stats(pair.links[0].there()).delivered;
    let bytes = noise(1, 500_000);
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("the transfer", |a, _| a.iter().any(is_sent));
    assert!(read(&pair.sim, pair.b, area) == bytes);
    let control = pair.sim.stats(pair.links[0].there()).delivered - before;
    assert!(control <= 5, "{control}: the request to send, a question or two, and no data");
    // Without the other, Data comes over it all the same.
    pair.sim.set_link(pair.links[1], false).unwrap();
    let area = pair.post(0, bytes.len());
    pair.send(0, &bytes);
    pair.run_until("another", |a, _| a.iter().filter(|e| is_sent(e)).count() == 2);
    assert!(read(&pair.sim, pair.b, area) == bytes);
}

/// Each Transfer comes over the link that was chosen for it before it had memory, and over
/// another where that is down.
#[test]
fn an_offer_is_led_to_the_link_that_is_chosen_for_it() {
    let links = [link(10_000_000_000), link(1_000_000_000)];
    let mut pair = striped(Sim::from_number(5), small_blocks(), &links);
    let to = Peer::Node(pair.a.id().0);
    let bytes = noise(1, 500_000);
    let mut units = [0, 0];
    for (nth, (chosen, is_up)) in [(1, true), (0, true), (1, false)].into_iter().enumerate() {
        pair.sim.set_link(pair.links[1], is_up).unwrap();
        let before = [0, 1].map(|nth| pair.sim.stats(pair.links[nth].there()).delivered);
        pair.send(0, &bytes);
        let is_offered = |event: &Event| matches!(event, Event::Offered { .. });
        pair.run_until("the offer", |_, b| b.iter().filter(|e| is_offered(e)).count() > nth);
        let offer = pair.b_log.borrow().iter().rev().find_map(|event| match event {
            Event::Offered { receive, .. } => Some(*receive),
            _ => None,
        });
        let offer = offer.unwrap();
        let (now, area) = (pair.now(), place(&mut pair.sim, pair.b, 0, &vec![0; bytes.len()]));
        let nobody = pair.bob().choose_link(offer, PathId(1), Peer::Node(77));
        assert_eq!(nobody, Err(Error::Unknown));
        pair.bob().choose_link(offer, PathId(chosen), to).unwrap();
        pair.bob().accept(now, offer, area, false).unwrap();
        pair.run_until("the transfer", |a, _| a.iter().filter(|e| is_sent(e)).count() > nth);
        assert!(read(&pair.sim, pair.b, area) == bytes);
        for (units, (nth, before)) in units.iter_mut().zip(before.into_iter().enumerate()) {
            *units = pair.sim.stats(pair.links[nth].there()).delivered - before;
        }
        let least = (bytes.len() / 1_500) as u64;
        let [fast, slow] = units;
        assert_eq!((fast >= least, slow >= least), (chosen == 0 || !is_up, chosen == 1 && is_up));
        // What is not Data takes the first link.
        assert!(fast.min(slow) < 20, "{units:?}");
    }
}

#[test]
fn a_link_that_dies_among_faults_loses_nothing() {
    let terrible = link(1_000_000_000)
        .loss(Loss::Uniform(Probability::percent(10)))
        .duplication(Probability::percent(10))
        .reordering(Probability::percent(10), Duration::from_micros(300))
        .corruption(Probability::percent(2));
    let config = Config { give_up_after: 100, ..small_blocks() }.with_checksum();
    for dead in [0, 1] {
        check(1..=10, |sim| {
            let sim = std::mem::replace(sim, Sim::from_number(0));
            let mut pair = striped(sim, config.clone(), &[terrible; 2]);
            let bytes = noise(3, 2 << 20);
            let area = pair.post(0, bytes.len());
            pair.send(0, &bytes);
            run_for(&mut pair.sim, Duration::from_millis(5));
            assert_eq!(pair.count_b(is_received), 0);
            pair.sim.set_link(pair.links[dead], false).unwrap();
            pair.run_until("the transfer", |a, b| {
                a.iter().any(is_sent) && b.iter().any(is_received)
            });
            assert!(read(&pair.sim, pair.b, area) == bytes);
        });
    }
}

/// The question, the challenge, the question again and the answer may be lost, come
/// twice, late, or damaged: in the end the link is there, and carries its share.
#[test]
fn a_link_joins_whatever_becomes_of_its_packets() {
    check(1..=20, |sim| {
        let sim = std::mem::replace(sim, Sim::from_number(0));
        let terrible = link(1_000_000_000)
            .loss(Loss::Uniform(Probability::percent(30)))
            .duplication(Probability::percent(30))
            .reordering(Probability::percent(30), Duration::from_millis(30))
            .corruption(Probability::percent(5));
        let config = Config { give_up_after: 200, ..small_blocks() }.with_checksum();
        let mut pair = striped(sim, config, &[terrible, terrible, terrible]);
        let bytes = noise(3, 1 << 20);
        let area = pair.post(0, bytes.len());
        pair.send(0, &bytes);
        pair.run_until("the transfer", |a, b| a.iter().any(is_sent) && b.iter().any(is_received));
        assert!(read(&pair.sim, pair.b, area) == bytes);
        for link in &pair.links {
            assert!(pair.sim.stats(link.there()).delivered > 50);
        }
    });
}
