//! The byte-stream test engine over every kind of bad network: what one side
//! sent is in the end what the other side has, in both directions.

use crate::common;
use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use landfall_placement::{Instant, PathId, Random, RegionId};
use landfall_simnet::{
    Encapsulation, EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Loss, Memory, NodeId,
    Probability, Sim, Switch, check,
};
use landfall_testkit::engines::stream::{Config, Event, Framing, Station};
use landfall_testkit::engines::{Area, Stream};

type Host = EngineNode<Stream>;

const LONG_ENOUGH: Instant = Instant::from_millis(120_000);
const LENGTH: usize = 150_000;
/// The areas that the stream fills are no multiple of its segments.
const AREA: usize = 20_011;

fn station<Ip>(n: u8, ip: Ip) -> Station<Ip> {
    Station { mac: [2, 0, 0, 0, 0, n], ip, port: 4_000 + u16::from(n) }
}

fn ipv4() -> Framing {
    let ip = |n| Ipv4Addr::new(10, 0, 0, n);
    Framing::EthernetIpv4Tcp { local: station(1, ip(1)), remote: station(2, ip(2)) }
}

fn ipv6() -> Framing {
    let ip = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    Framing::EthernetIpv6Tcp { local: station(1, ip(1)), remote: station(2, ip(2)) }
}

/// The hosts are the first two nodes.
fn bare() -> Framing {
    Framing::Bare { peer: NodeId(1).peer(), local_port: 1, remote_port: 2 }
}

fn config(framing: Framing) -> Config {
    Config {
        window: 256 << 10,
        checksum: true,
        give_up_after: 1_000,
        ..Config::new(framing, PathId(0))
    }
}

/// What is known of one host: its node, where it receives, and how far it is.
struct HostState {
    host: Handle<Host>,
    region: RegionId,
    sent: Vec<u8>,
    finished: Rc<RefCell<Vec<bool>>>,
}

fn side(sim: &mut Sim, name: &str, engine: Stream, how: EngineConfig) -> HostState {
    let finished = common::shared();
    let list = finished.clone();
    let mut node = EngineNode::with_config(engine, how).on_event(
        move |_, _: &mut Stream, memory: &mut Memory, event| match event {
            Event::Received { posted, len } if len > 0 => {
                memory.freeze(posted.span(0, len as u32)).unwrap();
            }
            Event::Finished => list.borrow_mut().push(true),
            Event::SendFailed { .. } | Event::Failed => panic!("{event:?}"),
            _ => {}
        },
    );
    let mut random = Random::from_number(name.len() as u64);
    let sent: Vec<u8> = (0..LENGTH).map(|_| random.next_u32() as u8).collect();
    let source = node.memory_mut().lend(sent.clone()).unwrap();
    let region = node.memory_mut().lend(vec![0; LENGTH.next_multiple_of(AREA)]).unwrap();
    let engine = node.engine_mut();
    for start in (0..LENGTH).step_by(AREA) {
        engine.receive_into(Area::new(region, start as u64, AREA as u64)).unwrap();
    }
    for (start, len) in [(0, 100), (100, 1), (101, LENGTH - 101)] {
        engine.send(Area::new(source, start, len as u64)).unwrap();
    }
    engine.close();
    HostState { host: sim.add(name, node).unwrap(), region, sent, finished }
}

/// Both sides send at once, over whatever connects them.
fn exchange(
    sim: &mut Sim,
    framing: Framing,
    how: EngineConfig,
    connect: impl FnOnce(&mut Sim, NodeId, NodeId),
) -> [HostState; 2] {
    let (ours, theirs) = (config(framing), config(framing.reversed(NodeId(0).peer())));
    let there = side(sim, "there", Stream::connect(ours, [1; 32]), how);
    let back = side(sim, "back", Stream::listen(theirs, [2; 32]), how);
    connect(sim, there.host.id(), back.host.id());
    sim.run_until_with(LONG_ENOUGH, |_| {
        let both = there.finished.borrow().len() + back.finished.borrow().len() == 2;
        if both { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    // Whatever is still on its way must not change anything.
    let end = sim.now() + Duration::from_millis(500);
    sim.run_until(end).unwrap();
    for (from, to) in [(&there, &back), (&back, &there)] {
        let node = sim.node(to.host).unwrap();
        assert_eq!(node.engine().received(), LENGTH as u64, "at {}", sim.now());
        let got = node.memory().bytes(to.region).unwrap();
        assert!(got[..LENGTH] == from.sent, "the memory differs");
    }
    [there, back]
}

fn gigabit() -> LinkConfig {
    LinkConfig::ethernet(1_000_000_000).delay(Duration::from_micros(20))
}

fn every_fault() -> LinkConfig {
    gigabit()
        .queue_frames(60)
        .loss(Loss::bursts(Probability::percent(2), 4))
        .duplication(Probability::percent(3))
        .reordering(Probability::percent(10), Duration::from_micros(100))
        .corruption(Probability::percent(3))
}

fn connected_by(link: LinkConfig) -> impl FnOnce(&mut Sim, NodeId, NodeId) {
    move |sim, a, b| {
        sim.connect(a, b, link).unwrap();
    }
}

/// Long segments are cut by the node, and memory is read late.
fn with_segmentation() -> EngineConfig {
    EngineConfig {
        segmentation: Some((64 << 10, 64)),
        send_delay: Duration::from_micros(5),
        ..EngineConfig::guessing(8)
    }
}

#[test]
fn over_links_with_each_fault() {
    let faults = [
        ("none", gigabit()),
        ("loss", gigabit().loss(Loss::Uniform(Probability::percent(3)))),
        ("bursts", gigabit().loss(Loss::bursts(Probability::percent(3), 8))),
        ("duplication", gigabit().duplication(Probability::percent(20))),
        ("reordering", gigabit().reordering(Probability::percent(20), Duration::from_micros(200))),
        ("corruption", gigabit().corruption(Probability::percent(3))),
        ("a short queue", gigabit().queue_frames(3)),
        ("a small MTU", gigabit().mtu(400)),
        ("everything", every_fault()),
    ];
    for (fault, link) in faults {
        for framing in [ipv4(), ipv6(), bare()] {
            for how in [EngineConfig::default(), EngineConfig::guessing(4), with_segmentation()] {
                check(1..=2, |sim| {
                    println!("{fault}, {framing:?}, {how:?}");
                    exchange(sim, framing, how, connected_by(link));
                });
            }
        }
    }
}

#[test]
fn through_ethernet_switches_with_every_fault() {
    check(1..=3, |sim| {
        exchange(sim, ipv4(), with_segmentation(), |sim, a, b| {
            let one = sim.add("one", Switch::ethernet()).unwrap();
            let other = sim.add("other", Switch::ethernet()).unwrap();
            let stranger = sim.add("stranger", common::silent).unwrap();
            for (near, far) in [(a, one.id()), (one.id(), other.id()), (other.id(), b)] {
                sim.connect(near, far, every_fault()).unwrap();
            }
            sim.connect(one, stranger, gigabit()).unwrap();
        });
    });
}

#[test]
fn a_link_that_is_killed_in_the_middle_and_comes_back() {
    check(1..=5, |sim| {
        let [there, _] = exchange(sim, ipv4(), EngineConfig::guessing(4), |sim, a, b| {
            let link: LinkId = sim.connect(a, b, every_fault()).unwrap();
            sim.schedule_link(Instant::from_micros(700), link, false).unwrap();
            sim.schedule_link(Instant::from_millis(90), link, true).unwrap();
        });
        assert!(sim.now() > Instant::from_millis(90));
        assert!(sim.node(there.host).unwrap().engine().retransmitted() > 0);
    });
}

#[test]
fn sixteen_connections_through_one_switch() {
    check(1..=2, |sim| {
        let switch = sim.add("switch", Switch::ethernet()).unwrap();
        let mut sides = Vec::new();
        for n in 0..16 {
            let ip = |host| Ipv4Addr::new(10, 0, n, host);
            let mac = |host| [2, 0, 0, 0, n, host];
            let [local, remote] = [1, 2].map(|h| Station { mac: mac(h), ..station(h, ip(h)) });
            let framing = Framing::EthernetIpv4Tcp { local, remote };
            let there = Stream::connect(config(framing), [n; 32]);
            let back = Stream::listen(config(framing.reversed(NodeId(0).peer())), [n; 32]);
            let there = side(sim, "there", there, EngineConfig::guessing(4));
            let back = side(sim, "back", back, EngineConfig::default());
            for host in [&there, &back] {
                let link = gigabit().queue_bytes(32 << 10);
                sim.connect(host.host, switch, link).unwrap();
            }
            sides.push([there, back]);
        }
        sim.run_until(Instant::from_millis(3_000)).unwrap();
        for [there, back] in &sides {
            for (from, to) in [(there, back), (back, there)] {
                let got = sim.node(to.host).unwrap().memory().bytes(to.region).unwrap();
                assert!(got[..LENGTH] == from.sent, "the memory differs");
            }
        }
    });
}

/// Checksums that the node filled in and segments that it cut, seen by a stranger.
#[test]
fn tshark_finds_nothing_wrong_with_what_crosses_the_link() {
    for framing in [ipv4(), ipv6()] {
        let mut sim = Sim::from_number(1);
        exchange(&mut sim, framing, with_segmentation(), |sim, a, b| {
            let link = sim.connect(a, b, gigabit()).unwrap();
            sim.tap(link.there(), Encapsulation::Ethernet).unwrap();
        });
        let file = landfall_testkit::tshark::CaptureFile::new(sim.captured());
        let fields = ["tcp.checksum.status", "tcp.analysis.flags"];
        let Some(lines) = common::tshark(&file, &fields) else { return };
        assert!(lines.len() > 2 * LENGTH / 1_500, "{}", lines.len());
        // Status 1 is "good".
        let wrong: Vec<_> = lines.iter().filter(|line| line.trim() != "1").collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
