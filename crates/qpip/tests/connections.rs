//! Connections between two adapters: how they open, carry messages and end.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, check};
use qpip::{
    CloseReason, Config, CongestionControl, Error, Event, Mapping, Object, Operation, Pacing,
    PostError, QueuePairId, Service, Status, TcpConfig,
};

use crate::world::{BOTH, Shape, Version, World, address, pattern};

const ALL: [Mapping; 3] = [Mapping::Segment, Mapping::Message, Mapping::Stream];

/// Sends messages of these lengths, each to a request of its own, and looks at
/// what came.
fn exchange(
    world: &mut World<'_>,
    (from, here): (usize, QueuePairId),
    (to, there): (usize, QueuePairId),
    lens: &[u32],
) {
    let all: Vec<Vec<u8>> =
        lens.iter().map(|len| pattern(u64::from(*len), *len as usize)).collect();
    let mut places = Vec::new();
    for (n, bytes) in all.iter().enumerate() {
        let place = (world.allocate(to, bytes.len() as u32), bytes.len() as u32);
        world.post_receive(to, there, n as u64, place).unwrap();
        places.push(place);
    }
    for (n, bytes) in all.iter().enumerate() {
        let place = world.store(from, bytes);
        world.post_send(from, here, n as u64, place, None).unwrap();
    }
    let sent = world.await_completions(from, lens.len());
    let mut ended = 0;
    while ended < lens.len() {
        let got = world.await_completions(to, 1)[0];
        assert_eq!((got.operation, got.status), (Operation::Receive, Status::Success));
        ended += usize::from(got.ends_request);
    }
    for (n, done) in sent.iter().enumerate() {
        assert_eq!(
            (done.id, done.operation, done.status),
            (n as u64, Operation::Send, Status::Success)
        );
        assert_eq!(done.len, lens[n]);
    }
    for (bytes, (at, len)) in all.iter().zip(places) {
        assert!(world.read(to, at, len) == *bytes, "a message of {len} bytes");
    }
}

fn close(world: &mut World<'_>, ends: [(usize, QueuePairId); 2]) {
    for (host, pair) in ends {
        let now = world.now();
        world.adapter(host).shutdown(now, pair).unwrap();
    }
    for (host, pair) in ends {
        let finished = world.await_event(host);
        assert_eq!(finished, Event::PeerFinished { queue_pair: pair });
        let closed = world.await_event(host);
        assert_eq!(closed, Event::Closed { queue_pair: pair, reason: CloseReason::Finished });
    }
}

#[test]
fn every_mapping_carries_messages_both_ways_over_both_versions() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape { memory: 8 << 20, ..Shape::default() });
        for (n, version) in BOTH.into_iter().enumerate() {
            for (m, mapping) in ALL.into_iter().enumerate() {
                let port = 80 + (n * 3 + m) as u16;
                let (here, there) = world.pair_up((0, 1), version, port, mapping);
                let lens = [1, 100, 1_460, 1_461, 5_000, 20_000, 60_000, 3];
                exchange(&mut world, (0, here), (1, there), &lens);
                exchange(&mut world, (1, there), (0, here), &lens);
                close(&mut world, [(0, here), (1, there)]);
            }
        }
    });
}

#[test]
fn segmentation_offload_keeps_messages_apart() {
    for batch in [1, 32] {
        check(1..=2, |sim| {
            let engine = EngineConfig::guessing(batch);
            let shape = Shape { memory: 8 << 20, engine, ..Shape::default() }.segmentation();
            let mut world = World::new(sim, &shape);
            for (n, version) in BOTH.into_iter().enumerate() {
                let ends = (0, 1);
                let (here, there) = world.pair_up(ends, version, 80 + n as u16, Mapping::Message);
                let lens: Vec<u32> = (0..40).map(|n| 1 + n * 977).collect();
                exchange(&mut world, (0, here), (1, there), &lens);
            }
            let stats = *world.engine(0).stats();
            assert!(stats.segments_sent < 400, "long segments leave uncut: {stats:?}");
        });
    }
}

#[test]
fn a_bad_wire_changes_nothing_but_the_time() {
    check(1..=6, |sim| {
        let mut shape = Shape { memory: 8 << 20, ..Shape::default() };
        shape.link = shape
            .link
            .loss(Loss::Uniform(Probability::percent(2)))
            .duplication(Probability::percent(2))
            .reordering(Probability::percent(5), Duration::from_micros(200));
        let mut world = World::new(sim, &shape);
        for (n, mapping) in ALL.into_iter().enumerate() {
            let (here, there) = world.pair_up((0, 1), Version::V6, 80 + n as u16, mapping);
            let lens: Vec<u32> = (0..50).map(|n| 1 + n * 397).collect();
            exchange(&mut world, (0, here), (1, there), &lens);
            exchange(&mut world, (1, there), (0, here), &lens);
            close(&mut world, [(0, here), (1, there)]);
        }
    });
}

#[test]
fn a_port_that_nobody_listens_on_refuses() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let pair = world.connect(0, address(1, version, 9), Mapping::Stream);
            world.post_receive(0, pair, 1, (0, 100)).unwrap();
            world.post_send(0, pair, 2, (100, 100), None).unwrap();
            let event = world.await_event(0);
            assert_eq!(event, Event::Closed { queue_pair: pair, reason: CloseReason::Refused });
            let done = world.await_completions(0, 2);
            assert!(done.iter().all(|done| done.status == Status::Reset), "{done:?}");
            assert_eq!(world.post_send(0, pair, 3, (0, 10), None), Err(PostError::Ended));
            assert_eq!(world.post_receive(0, pair, 3, (0, 10)), Err(PostError::Ended));
        }
        assert_eq!(world.engine(1).stats().resets_sent, 2);
    });
}

#[test]
fn an_aborted_connection_flushes_here_and_resets_there() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let (here, there) = world.pair_up((0, 1), Version::V4, 80, Mapping::Message);
        world.post_receives(0, here, 0, 2, 100);
        world.post_receives(1, there, 0, 3, 100);
        let now = world.now();
        world.adapter(0).abort(now, here).unwrap();
        assert_eq!(
            world.await_event(0),
            Event::Closed { queue_pair: here, reason: CloseReason::Aborted }
        );
        assert!(world.await_completions(0, 2).iter().all(|done| done.status == Status::Flushed));
        assert_eq!(
            world.await_event(1),
            Event::Closed { queue_pair: there, reason: CloseReason::Reset }
        );
        assert!(world.await_completions(1, 3).iter().all(|done| done.status == Status::Reset));
    });
}

#[test]
fn a_destroyed_queue_pair_resets_and_gives_all_back() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let (here, there) = world.pair_up((0, 1), Version::V4, 80, Mapping::Stream);
        world.post_receives(0, here, 0, 2, 100);
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, here).unwrap();
        assert_eq!(world.await_completions(0, 2).len(), 2);
        assert_eq!(
            world.await_event(1),
            Event::Closed { queue_pair: there, reason: CloseReason::Reset }
        );
        let key = world.hosts[0].key;
        world.adapter(0).deregister(key).unwrap();
        let (domain, queue) = (world.hosts[0].domain, world.hosts[0].queue);
        world.adapter(0).destroy_domain(domain).unwrap();
        world.adapter(0).destroy_completion_queue(queue).unwrap();
        assert!(world.hosts[0].events.is_empty(), "nobody is told of what he ended himself");
    });
}

#[test]
fn offers_are_mated_in_their_order_and_without_one_a_connection_waits() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let local = address(1, Version::V4, 80);
        let (listener, first) = world.serve(1, local, Mapping::Message);
        let second = world.queue_pair(1, qpip::Service::Tcp(Mapping::Message));
        world.adapter(1).offer(listener, second).unwrap();
        assert_eq!(world.adapter(1).offer(listener, second), Err(Error::NotIdle));
        for expected in [first, second] {
            world.connect(0, local, Mapping::Message);
            let Event::Accepted { queue_pair, listener: at, .. } = world.await_event(1) else {
                panic!("no connection came in");
            };
            assert_eq!((queue_pair, at), (expected, listener));
        }
        world.hosts[0].events.clear();
        world.connect(0, local, Mapping::Message);
        world.run_for(Duration::from_millis(500));
        assert!(world.hosts[1].events.is_empty(), "nobody was offered");
        let third = world.queue_pair(1, qpip::Service::Tcp(Mapping::Message));
        world.adapter(1).offer(listener, third).unwrap();
        let before = world.now();
        let event = world.await_event(1);
        assert!(world.now().since(before) < Duration::from_millis(1), "it had proved itself");
        assert!(matches!(event, Event::Accepted { queue_pair, .. } if queue_pair == third));
    });
}

#[test]
fn names_that_are_taken_or_not_ours_are_refused() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let local = address(1, Version::V4, 80);
        let (_, pair) = world.serve(1, local, Mapping::Message);
        assert_eq!(world.adapter(1).listen(local), Err(Error::Taken(local)));
        let foreign = address(0, Version::V4, 80);
        assert_eq!(world.adapter(1).listen(foreign), Err(Error::NotOurs(foreign.ip())));
        let now = world.now();
        let to = address(0, Version::V4, 9);
        assert_eq!(world.adapter(1).connect(now, pair, None, to), Err(Error::NotIdle));
        let idle = world.queue_pair(1, qpip::Service::Tcp(Mapping::Message));
        assert_eq!(world.adapter(1).connect(now, idle, Some(local), to), Err(Error::Taken(local)));
        let nowhere = "192.0.2.1:80".parse().unwrap();
        assert_eq!(
            world.adapter(1).connect(now, idle, None, nowhere),
            Err(Error::NoRoute(nowhere.ip()))
        );
        let group = "224.0.0.1:80".parse().unwrap();
        assert_eq!(world.adapter(1).connect(now, idle, None, group), Err(Error::BadAddress(group)));
        assert_eq!(world.adapter(1).shutdown(now, idle), Err(Error::NotConnected));
        let datagrams = world.udp(1, Version::V4, 7);
        assert_eq!(world.adapter(1).connect(now, datagrams, None, to), Err(Error::WrongService));
        assert_eq!(world.adapter(1).bind(idle, local), Err(Error::WrongService));
        let again = world.udp(1, Version::V4, 8);
        assert_eq!(world.adapter(1).bind(again, local), Err(Error::NotIdle));
        let other = world.queue_pair(1, qpip::Service::Udp);
        let taken = address(1, Version::V4, 8);
        assert_eq!(world.adapter(1).bind(other, taken), Err(Error::Taken(taken)));
        world.adapter(1).destroy_queue_pair(now, again).unwrap();
        world.adapter(1).bind(other, taken).unwrap();
        assert_eq!(
            world.adapter(1).destroy_queue_pair(now, again),
            Err(Error::Unknown(Object::QueuePair))
        );
    });
}

/// RFC 7413: each opening brings its data or does not, and is lost, doubled, late or damaged;
/// what the server gets is what was sent, once for each connection.
#[test]
fn openings_with_data_survive_a_bad_line() {
    check(1..=3, |sim| {
        let link = LinkConfig::ethernet(1_000_000_000)
            .delay(Duration::from_micros(20))
            .loss(Loss::Uniform(Probability::percent(10)))
            .duplication(Probability::percent(10))
            .corruption(Probability::percent(5))
            .reordering(Probability::percent(10), Duration::from_micros(200));
        let mut config = Config::default();
        config.tcp.fast_open = true;
        let mut world =
            World::new(sim, &Shape { config, link, memory: 8 << 20, ..Shape::default() });
        let at = address(1, Version::V4, 80);
        let listener = world.adapter(1).listen(at).unwrap();
        for n in 0..40 {
            let bytes = pattern(n, 600);
            let (here, there) =
                [0, 1].map(|host| world.queue_pair(host, Service::Tcp(Mapping::Message))).into();
            let place = (world.allocate(1, 600), 600);
            world.post_receive(1, there, n, place).unwrap();
            world.adapter(1).offer(listener, there).unwrap();
            let from = world.store(0, &bytes);
            world.post_send(0, here, n, from, None).unwrap();
            let now = world.now();
            world.adapter(0).connect(now, here, None, at).unwrap();
            let got = world.await_completions(1, 1)[0];
            assert_eq!((got.queue_pair, got.id, got.len), (there, n, 600));
            assert!(world.read(1, place.0, 600) == bytes, "message {n}");
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            assert!(matches!(world.await_event(0), Event::Connected { .. }));
            assert!(matches!(world.await_event(1), Event::Accepted { .. }));
            close(&mut world, [(0, here), (1, there)]);
        }
        let stats = *world.engine(1).stats();
        assert!(stats.accepted >= 40);
        assert!(stats.fast_opened > 10, "{} of 40", stats.fast_opened);
    });
}

// Many connections share one bottleneck.

const FLOWS: usize = 16;
const MESSAGE: u32 = 64 << 10;

/// Each flow's queue pair that sends, and how many bytes it brought across.
type Shares = Vec<(QueuePairId, u64)>;

/// Lets every host but the last send to the last for so long.
fn share(world: &mut World<'_>, time: Duration, mapping: Mapping) -> Shares {
    let server = world.hosts.len() - 1;
    let pairs: Vec<_> = (0..server)
        .map(|n| world.pair_up((n, server), Version::V4, 7_000 + n as u16, mapping))
        .collect();
    let sources: Vec<_> = (0..server).map(|n| world.store(n, &vec![n as u8; 65_536])).collect();
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
    let mut shares: Shares = pairs.iter().map(|(here, _)| (*here, 0)).collect();
    while world.now() < end {
        world.run_for(Duration::from_millis(2));
        for n in 0..server {
            while let Some(done) = world.hosts[n].done.pop_front() {
                world.post_send(n, pairs[n].0, done.id, sources[n], None).unwrap();
            }
        }
        while let Some(done) = world.hosts[server].done.pop_front() {
            assert_eq!(done.operation, Operation::Receive);
            let n = pairs.iter().position(|(_, there)| *there == done.queue_pair).unwrap();
            shares[n].1 += u64::from(done.len);
            if done.ends_request {
                let place = places[&(done.queue_pair, done.id)];
                world.post_receive(server, done.queue_pair, done.id, place).unwrap();
            }
        }
    }
    shares
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
            let direction = world.hosts[FLOWS].link.back();
            world.sim.configure(direction, slow).unwrap();
            let shares = share(&mut world, Duration::from_secs(60), Mapping::Stream);
            let bytes: Vec<u64> = shares.iter().map(|share| share.1).collect();
            let fairness = fairness(&bytes);
            let total: u64 = bytes.iter().sum();
            let rate = total as f64 / 60.0 / 12.5e6;
            assert!(fairness >= 0.95, "{congestion:?}: {fairness}, {bytes:?}");
            assert!(rate >= 0.85, "{congestion:?}: {rate} of the link is used");
        });
    }
}

/// What part of a path one flow uses in its first second: 100 Mbit/s, 20 ms there and back,
/// and a queue of an eighth of what is under way.
fn first_second(pacing: Pacing) -> f64 {
    let mut used = 0.0;
    check(1..=1, |sim| {
        let config =
            Config { tcp: TcpConfig { pacing, ..TcpConfig::default() }, ..Config::default() };
        let mut world =
            World::new(sim, &Shape { hosts: 2, config, memory: 16 << 20, ..Shape::default() });
        let slow =
            LinkConfig::ethernet(100_000_000).delay(Duration::from_millis(10)).queue_bytes(30_000);
        let direction = world.hosts[1].link.back();
        world.sim.configure(direction, slow).unwrap();
        let shares = share(&mut world, Duration::from_secs(1), Mapping::Stream);
        used = shares[0].1 as f64 / 12.5e6;
    });
    used
}

#[test]
fn a_short_queue_is_filled_sooner_without_bursts() {
    let (paced, bursts) = (first_second(Pacing::default()), first_second(Pacing::Never));
    assert!(paced > bursts + 0.05, "{paced} of the path paced, {bursts} in bursts");
}
