//! Many connections share one bottleneck.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{Shape, Version, World};
use landfall_simnet::{LinkConfig, check};
use qpip::{Config, CongestionControl, Mapping, Operation, TcpConfig};

const FLOWS: usize = 16;
const MESSAGE: u32 = 64 << 10;

/// Lets every flow send for so long; gives how many bytes each brought across.
fn share(world: &mut World<'_>, time: Duration, mapping: Mapping) -> Vec<u64> {
    let server = FLOWS;
    let pairs: Vec<_> = (0..FLOWS)
        .map(|n| world.pair_up((n, server), Version::V4, 7_000 + n as u16, mapping))
        .collect();
    let sources: Vec<_> = (0..FLOWS).map(|n| world.store(n, &vec![n as u8; 65_536])).collect();
    let mut places = BTreeMap::new();
    for (n, (here, there)) in pairs.iter().enumerate() {
        for id in 0..8 {
            let place = (world.allocate(server, MESSAGE), MESSAGE);
            places.insert((*there, id), place);
            world.post_receive(server, *there, id, place).unwrap();
            world.post_send(n, *here, id, sources[n], None).unwrap();
        }
    }
    let end = world.now() + time;
    let mut bytes = vec![0; FLOWS];
    while world.now() < end {
        world.run_for(Duration::from_millis(2));
        for n in 0..FLOWS {
            while let Some(done) = world.hosts[n].done.pop_front() {
                world.post_send(n, pairs[n].0, done.id, sources[n], None).unwrap();
            }
        }
        while let Some(done) = world.hosts[server].done.pop_front() {
            assert_eq!(done.operation, Operation::Receive);
            let n = pairs.iter().position(|(_, there)| *there == done.queue_pair).unwrap();
            bytes[n] += u64::from(done.len);
            if done.ends_request {
                let place = places[&(done.queue_pair, done.id)];
                world.post_receive(server, done.queue_pair, done.id, place).unwrap();
            }
        }
    }
    bytes
}

/// R. Jain's index: one where all have the same.
fn fairness(bytes: &[u64]) -> f64 {
    let sum: f64 = bytes.iter().map(|b| *b as f64).sum();
    let squares: f64 = bytes.iter().map(|b| (*b as f64).powi(2)).sum();
    sum * sum / (bytes.len() as f64 * squares)
}

#[test]
fn sixteen_flows_share_a_bottleneck_fairly() {
    for congestion in [CongestionControl::Cubic, CongestionControl::NewReno] {
        check(1..=1, |sim| {
            let shape = Shape {
                hosts: FLOWS + 1,
                config: Config {
                    tcp: TcpConfig { congestion, ..TcpConfig::default() },
                    ..Config::default()
                },
                memory: 16 << 20,
                ..Shape::default()
            };
            let mut world = World::new(sim, &shape);
            // The way to the server: 100 Mbit/s, 20 ms there and back, a queue of
            // one bandwidth-delay product.
            let slow = LinkConfig::ethernet(100_000_000)
                .delay(Duration::from_millis(10))
                .queue_bytes(250_000);
            let way = world.hosts[FLOWS].link.back();
            world.sim.configure(way, slow).unwrap();
            let bytes = share(&mut world, Duration::from_secs(60), Mapping::Stream);
            let fairness = fairness(&bytes);
            let total: u64 = bytes.iter().sum();
            let rate = total as f64 / 60.0 / 12.5e6;
            assert!(fairness >= 0.95, "{congestion:?}: {fairness}, {bytes:?}");
            assert!(rate >= 0.85, "{congestion:?}: {rate} of the link is used");
        });
    }
}
