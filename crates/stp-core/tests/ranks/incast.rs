//! All send to one at the same moment.

use std::time::Duration;

use stp_core::Config;

use super::{Network, Outcome, World};

/// Each rank but the first sends this many bytes to the first.
pub(crate) fn incast(ranks: usize, bytes: usize, network: Network, config: &Config) -> Outcome {
    let mut world = World::new(ranks, network, config);
    let pairs: Vec<_> = (1..ranks).map(|rank| (rank, 0)).collect();
    world.connect(&pairs);
    let sources: Vec<_> =
        (1..ranks).map(|rank| world.lend(rank, vec![rank as u8; bytes])).collect();
    let mut places = Vec::new();
    for rank in 1..ranks {
        let place = world.lend(0, vec![0; bytes]);
        world.post(0, rank, place);
        places.push(place);
    }
    let mut left = ranks - 1;
    world.react(0, move |_, _, _, _| {
        left -= 1;
        left == 0
    });
    // Posted memory is no traffic, but its side of the run begins in peace.
    world.sim.run_until(world.sim.now() + Duration::from_millis(1)).unwrap();
    let all = (bytes * (ranks - 1)) as u64;
    let outcome = world.measure(&[0], all, |world| {
        for (rank, source) in (1..).zip(sources) {
            world.send(rank, 0, source);
        }
    });
    let memory = world.sim.node(world.ranks[0].host).unwrap().memory();
    for (rank, place) in (1..).zip(places) {
        let got = memory.bytes(place.region).unwrap();
        assert!(got.iter().all(|byte| *byte == rank as u8), "what rank {rank} sent");
    }
    assert!(world.ranks[1..].iter().all(|rank| rank.state.borrow().sent == 1));
    outcome
}
