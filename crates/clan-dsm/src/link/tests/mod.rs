mod ends;
mod hostile;
mod pipe;

use landfall_placement::Duration;
use proptest::prelude::*;
use std::vec::Vec;

use crate::config::Config;
use pipe::{Faults, Host, World};

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
