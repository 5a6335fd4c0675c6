//!
//! Links that end, hosts that come back, hosts that hold each other back.

use std::vec::Vec;

use hostile::{Faults, Host, World};
use landfall_placement::Duration;
use proptest::prelude::*;

use crate::config::Config;
use crate::error::{Ended, Error, Reason};

mod hostile;

fn config() -> Config {
    Config { frames: 64, early_bytes: 64 << 10, ..Config::default() }
}

fn serials(count: u32) -> Vec<u32> {
    (0..count).collect()
}

/// Runs until both have what the other sent, and know it.
fn exchange(world: &mut World, count: u32) {
    world.hosts[0].to_send = count;
    world.hosts[1].to_send = count;
    world.connect(0, 1);
    let is_done = |hosts: &[Host]| {
        hosts
            .iter()
            .all(|host| host.received.len() as u32 >= count && host.noted.len() as u32 >= count)
    };
    let is_done = world.run(Duration::from_secs(600), is_done);
    for host in &world.hosts {
        assert!(host.down.is_empty(), "{:?}", host.down);
        assert_eq!(host.received, serials(count));
        assert_eq!(host.noted, serials(count));
        assert_eq!(host.up.len(), 1);
    }
    assert!(is_done);
}

#[test]
fn a_clean_network_carries_everything_and_nothing_twice() {
    let mut world = World::new(2, &config(), Faults::default(), 1);
    exchange(&mut world, 1_000);
    let sent: usize = world.hosts.iter().map(|host| host.sent_frames).sum();
    assert!(sent < 2_300, "{sent} frames for 2,000 and their acknowledgements");
}

#[test]
fn two_that_ask_at_the_same_time_have_one_link() {
    let mut world = World::new(2, &config(), Faults::default(), 2);
    world.connect(1, 0);
    exchange(&mut world, 10);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn invariants_1_and_2_each_cargo_arrives_once_and_in_order(
        seed: u64,
        lost in 0u32..200_000,
        twice in 0u32..200_000,
        late in 0u32..300_000,
        damaged in 0u32..100_000,
        kept in 0u32..300_000,
        dropped in 0u32..100_000,
        marked in 0u32..100_000,
        shared: bool,
    ) {
        let faults = Faults { lost, twice, late, damaged, marked, kept, dropped };
        let base = config();
        let congestion = shared.then(|| landfall_congestion::Config::new(1_460));
        let mut world = World::new(2, &Config { congestion, ..base }, faults, seed);
        exchange(&mut world, 200);
    }
}

const LONG: Duration = Duration::from_secs(120);

fn all_received(count: u32) -> impl Fn(&[Host]) -> bool {
    move |hosts: &[Host]| {
        hosts.iter().all(|host| host.received.len() as u32 >= count && host.to_send == 0)
    }
}

#[test]
fn a_silent_peer_is_given_up_and_its_cargo_comes_back() {
    let mut world = World::new(2, &config(), Faults::default(), 3);
    exchange(&mut world, 5);
    world.hosts[1].is_dead = true;
    world.hosts[0].to_send = 20;
    let is_done = |hosts: &[Host]| hosts[0].gone == 1;
    assert!(world.run(LONG, is_done));
    assert_eq!(world.hosts[0].down, [Ended::Silent]);
    assert_eq!(world.hosts[0].noted, serials(25), "each comes back once, in order");
}

#[test]
fn an_idle_link_notices_that_the_other_side_is_gone() {
    let mut world = World::new(2, &config(), Faults::default(), 4);
    exchange(&mut world, 1);
    assert!(!world.run(LONG, |hosts| !hosts[0].down.is_empty()), "both are alive");
    world.hosts[1].is_dead = true;
    assert!(world.run(LONG, |hosts| hosts[0].gone == 1));
    assert_eq!(world.hosts[0].down, [Ended::Silent]);
}

#[test]
fn nobody_answers_a_call() {
    let mut world = World::new(2, &config(), Faults::default(), 5);
    world.hosts[1].is_dead = true;
    let link = world.connect(0, 1);
    assert!(world.run(LONG, |hosts| hosts[0].gone == 1));
    assert_eq!(world.hosts[0].down, [Ended::Silent]);
    let gone = world.hosts[0].links.close(world.now, link, Reason::Refused);
    assert_eq!(gone, Err(Error::Unknown));
    world.connect(0, 1);
}

#[test]
fn who_was_started_anew_is_told_from_who_was_there() {
    let mut world = World::new(2, &config(), Faults::default(), 6);
    exchange(&mut world, 5);
    world.restart(1);
    // It calls, and the old link ends at once.
    world.connect(1, 0);
    assert!(world.run(LONG, |hosts| hosts[0].up.len() == 2 && hosts[1].up.len() == 1));
    assert_eq!(world.hosts[0].down, [Ended::Restarted]);
    world.hosts[0].received.clear();
    world.hosts[1].to_send = 7;
    assert!(world.run(LONG, |hosts| hosts[0].received.len() == 7));
    assert_eq!(world.hosts[0].received, serials(7));
}

#[test]
fn who_was_started_anew_says_so_when_it_is_spoken_to() {
    let mut world = World::new(2, &config(), Faults::default(), 7);
    exchange(&mut world, 5);
    world.restart(1);
    world.hosts[0].to_send = 1;
    let soon = Duration::from_millis(10);
    assert!(world.run(soon, |hosts| hosts[0].gone == 1), "without waiting for a time-out");
    assert_eq!(world.hosts[0].down, [Ended::Restarted]);
}

#[test]
fn a_link_that_is_closed_ends_at_both_sides() {
    let mut world = World::new(2, &config(), Faults::default(), 8);
    exchange(&mut world, 5);
    let (link, host) = world.hosts[0].up[0];
    assert_eq!(world.hosts[0].links.to_host(host), Some(link));
    world.hosts[0].links.close(world.now, link, Reason::Refused).unwrap();
    assert!(world.run(LONG, |hosts| hosts.iter().all(|host| host.gone == 1)));
    assert_eq!(world.hosts[0].down, [Ended::Here]);
    assert_eq!(world.hosts[1].down, [Ended::There(Reason::Refused)]);
    assert_eq!(world.hosts[0].links.to_host(host), None);
    assert_eq!(world.hosts[0].links.poll_timeout().map(|timeout| timeout.at), None);
    world.connect(0, 1);
    assert!(world.run(LONG, |hosts| hosts.iter().all(|host| host.up.len() == 2)));
}

#[test]
fn of_two_hosts_with_one_name_the_first_stays() {
    let mut world = World::new(3, &config(), Faults::default(), 9);
    world.connect(0, 1);
    assert!(world.run(LONG, |hosts| hosts[1].up.len() == 1));
    // The third has the name of the first.
    let mut random = landfall_placement::Random::from_number(1);
    let taken = crate::HostId::new(1).unwrap();
    world.hosts[2].links = crate::link::Links::new(&config(), taken, &mut random);
    world.connect(2, 1);
    assert!(world.run(LONG, |hosts| hosts[2].gone == 1));
    assert_eq!(world.hosts[2].down, [Ended::There(Reason::Refused)]);
    assert_eq!(world.hosts[1].up.len(), 1);
    assert!(world.hosts[1].down.is_empty());
    // Once the first is gone, the name is free.
    world.hosts[0].is_dead = true;
    world.connect(2, 1);
    assert!(world.run(LONG, |hosts| hosts[2].up.len() == 1));
    assert_eq!(world.hosts[1].down, [Ended::Silent]);
}

#[test]
fn nobody_has_a_link_to_a_host_of_its_own_name() {
    let mut world = World::new(2, &config(), Faults::default(), 10);
    let mut random = landfall_placement::Random::from_number(2);
    let same = crate::HostId::new(1).unwrap();
    world.hosts[1].links = crate::link::Links::new(&config(), same, &mut random);
    world.connect(1, 0);
    assert!(world.run(LONG, |hosts| hosts[1].gone == 1));
    assert_eq!(world.hosts[1].down, [Ended::There(Reason::Refused)]);
}

#[test]
fn what_is_held_back_goes_on_although_every_xon_was_lost() {
    let mut world = World::new(2, &config(), Faults::default(), 11);
    exchange(&mut world, 5);
    let link = world.hosts[1].up[0].0;
    world.hosts[1].links.set_xoff(link, true);
    assert!(!world.run(Duration::from_millis(1), |_| false));
    world.hosts[0].to_send = 50;
    let before = world.hosts[1].received.len();
    assert!(!world.run(Duration::from_secs(10), |hosts| hosts[1].received.len() > before));
    assert!(world.hosts[0].down.is_empty(), "who holds back is alive");
    world.faults.lost = 1_000_000;
    world.hosts[1].links.set_xoff(link, false);
    assert!(!world.run(Duration::from_millis(1), |_| false));
    world.faults.lost = 0;
    assert!(world.run(LONG, |hosts| hosts[1].received.len() == before + 50));
}

#[test]
fn the_bound_of_links_holds() {
    let few = Config { links: 2, ..config() };
    let mut world = World::new(4, &few, Faults::default(), 12);
    world.connect(0, 1);
    world.connect(0, 2);
    let peer = world.hosts[3].peer;
    let refused = world.hosts[0].links.connect(world.now, hostile::PATH, peer);
    assert_eq!(refused, Err(Error::NoRoom));
    assert!(world.run(LONG, |hosts| hosts[0].up.len() == 2));
    world.connect(3, 0);
    assert!(world.run(LONG, |hosts| hosts[3].gone == 1));
    assert_eq!(world.hosts[3].down, [Ended::There(Reason::Refused)]);
}

#[test]
fn who_pauses_for_seconds_is_not_given_up() {
    let mut world = World::new(2, &config(), Faults::default(), 13);
    exchange(&mut world, 5);
    world.hosts[1].is_dead = true;
    world.hosts[0].to_send = 20;
    assert!(!world.run(Duration::from_secs(4), |hosts| !hosts[0].down.is_empty()));
    world.hosts[1].is_dead = false;
    assert!(world.run(LONG, |hosts| hosts[1].received.len() == 25 && hosts[0].noted.len() == 25));
    assert_eq!(world.hosts[1].received, serials(25));
    assert!(world.hosts.iter().all(|host| host.down.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Xoff comes and goes, frames get lost: in the end everything arrives.
    #[test]
    fn flow_control_never_stops_a_link_for_good(seed: u64, lost in 0u32..300_000) {
        let mut world = World::new(2, &config(), Faults { lost, ..Faults::default() }, seed);
        world.connect(0, 1);
        prop_assert!(world.run(LONG, |hosts| hosts.iter().all(|host| host.up.len() == 1)));
        world.hosts[0].to_send = 300;
        world.hosts[1].to_send = 300;
        for step in 0..20 {
            let host = &mut world.hosts[step % 2];
            let link = host.up[0].0;
            host.links.set_xoff(link, step % 4 < 2);
            world.run(Duration::from_micros(300), |_| false);
        }
        for host in &mut world.hosts {
            let link = host.up[0].0;
            host.links.set_xoff(link, false);
        }
        prop_assert!(world.run(LONG, all_received(300)));
        for host in &world.hosts {
            prop_assert_eq!(&host.received, &serials(300));
        }
    }

    /// Either side is started anew, at any time and while frames of before are
    /// still on their way: nothing of before is taken for something of now.
    #[test]
    fn invariant_7_frames_of_an_earlier_life_do_nothing(
        seed: u64, lost in 0u32..100_000, late in 0u32..500_000, at in 0u64..5_000, which in 0usize..2,
    ) {
        let faults = Faults { lost, late, ..Faults::default() };
        let mut world = World::new(2, &config(), faults, seed);
        world.connect(0, 1);
        world.hosts[0].to_send = 100;
        world.hosts[1].to_send = 100;
        world.run(Duration::from_micros(at), |_| false);
        world.restart(which);
        world.connect(which, 1 - which);
        let other = 1 - which;
        world.hosts[other].to_send = 0;
        let updates = world.hosts[other].up.len();
        prop_assert!(world.run(LONG, |hosts| hosts[which].up.len() == 1));
        prop_assert!(world.run(LONG, |hosts| hosts[other].up.len() > updates.min(1) || updates == 0));
        world.hosts[other].received.clear();
        world.hosts[which].received.clear();
        world.hosts[which].to_send = 50;
        prop_assert!(world.run(LONG, |hosts| hosts[other].received.len() >= 50));
        prop_assert_eq!(&world.hosts[other].received, &serials(50));
        // And everything that was ever sent, once more.
        for packet in world.seen.clone() {
            world.inject(packet);
        }
        world.run(Duration::from_millis(50), |_| false);
        prop_assert_eq!(&world.hosts[other].received, &serials(50));
        prop_assert!(world.hosts[which].received.is_empty());
        prop_assert!(world.hosts[which].down.is_empty());
        let last = *world.hosts[other].up.last().unwrap();
        prop_assert!(world.hosts[other].links.is_up(last.0));
    }
}
