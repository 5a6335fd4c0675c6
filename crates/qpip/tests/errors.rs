//! Errors of ICMP: who may tell a connection what, and floods of strangers.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};
use landfall_placement::Engine;
use landfall_simnet::{Frame, PortId, check};
use qpip::wire::icmp::Trouble;
use qpip::wire::{Envelope, Flags, Options, Tcp, icmp4, icmp6, protocol, tcp};
use qpip::{CloseReason, Config, Event, Mapping, QueuePairId, Status};

/// What leaves a host, from now on.
fn watch(world: &mut World<'_>, host: usize) -> Rc<RefCell<Vec<Frame>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let keep = seen.clone();
    let direction = world.hosts[host].link.there();
    let look = move |_, frame: &mut Frame| {
        keep.borrow_mut().push(frame.clone());
        landfall_simnet::sim::Fate::Pass
    };
    world.sim.intercept(direction, look).unwrap();
    seen
}

/// What somebody on the way says about a frame of host 0.
enum Says {
    TooBig(u16),
    NobodyListens,
}

/// The error as a frame to host 0; `shift` moves the sequence number in what is
/// quoted.
fn error(version: Version, about: &Frame, says: &Says, shift: u32) -> Frame {
    let mut quoted = about.bytes[14..].to_vec();
    quoted.truncate(if version == Version::V4 { 28 } else { 48 + 12 });
    let at = if version == Version::V4 { 24 } else { 44 };
    let seq = u32::from_be_bytes(quoted[at..at + 4].try_into().unwrap()).wrapping_add(shift);
    quoted[at..at + 4].copy_from_slice(&seq.to_be_bytes());
    let (from, to) = ((mac(99), ip(99, version)), (mac(0), ip(0, version)));
    let number = if version == Version::V4 { protocol::ICMP4 } else { protocol::ICMP6 };
    let envelope = Envelope::new(from, to, number);
    let len = quoted.len() + 8;
    let mut bytes = vec![0; envelope.header_len() + len];
    let at = envelope.write(&mut bytes, len as u32).unwrap();
    let into = &mut bytes[at..];
    let pseudo = envelope.pseudo(len as u32);
    let written = match (version, says) {
        (Version::V4, Says::TooBig(mtu)) => icmp4::write_too_big(*mtu, &quoted, into),
        (Version::V4, Says::NobodyListens) => icmp4::write_port_unreachable(&quoted, into),
        (Version::V6, Says::TooBig(mtu)) => {
            icmp6::write_too_big(u32::from(*mtu), &quoted, into, pseudo)
        }
        (Version::V6, Says::NobodyListens) => icmp6::write_port_unreachable(&quoted, into, pseudo),
    };
    assert_eq!(written, Some(len));
    Frame::raw(bytes)
}

/// As if it came to host 0 from the network.
fn tell(world: &mut World<'_>, frames: impl IntoIterator<Item = Frame>) {
    let switch = world.switch;
    for frame in frames {
        world.sim.send(switch, PortId(0), frame).unwrap();
    }
    world.run_for(Duration::from_millis(6));
}

/// A connection whose last message is under way and not acknowledged.
fn under_way(
    world: &mut World<'_>,
    version: Version,
    port: u16,
) -> (QueuePairId, QueuePairId, Frame) {
    let (here, there) = world.pair_up((0, 1), version, port, Mapping::Message);
    let bytes = pattern(1, 4_000);
    world.post_receives(1, there, 1, 2, 4_000);
    let from = world.store(0, &bytes);
    world.run_for(Duration::from_millis(50));
    let seen = watch(world, 0);
    world.post_send(0, here, 1, from, None).unwrap();
    world.run_until("it left", |_| seen.borrow().iter().any(|frame| frame.len() > 1_000));
    let frame = seen.borrow().iter().find(|frame| frame.len() > 1_000).unwrap().clone();
    (here, there, frame)
}

#[test]
fn a_path_that_carries_less_is_believed_only_about_what_is_under_way() {
    check(1..=2, |sim| {
        let shape = Shape {
            link: Shape::default().link.delay(Duration::from_millis(5)),
            ..Shape::default()
        };
        let mut world = World::new(sim, &shape);
        for (n, version) in BOTH.into_iter().enumerate() {
            let (here, there, frame) = under_way(&mut world, version, 80 + n as u16);
            let before = *world.engine(0).stats();
            // Somebody who does not see what we send; and numbers that cannot be,
            // below what IP allows or above what was sent.
            let blind = [1 << 20, u32::MAX, 1 << 31];
            let mut all = blind.map(|by| error(version, &frame, &Says::TooBig(1_300), by)).to_vec();
            let nonsense = if version == Version::V4 { 9_000 } else { 1_279 };
            all.push(error(version, &frame, &Says::TooBig(nonsense), 0));
            tell(&mut world, all);
            let after = *world.engine(0).stats();
            assert_eq!(after.icmp_ignored, before.icmp_ignored + 4);
            assert_eq!(after.icmp_believed, before.icmp_believed);
            tell(&mut world, [error(version, &frame, &Says::TooBig(1_300), 0)]);
            assert_eq!(world.engine(0).stats().icmp_believed, before.icmp_believed + 1);
            assert_eq!(world.await_completions(1, 1)[0].len, 4_000);
            world.await_completions(0, 1);
            // From now on packets are shorter.
            let seen = watch(&mut world, 0);
            let from = world.store(0, &pattern(2, 4_000));
            world.post_send(0, here, 2, from, None).unwrap();
            world.await_completions(0, 1);
            let longest = seen.borrow().iter().map(Frame::len).max().unwrap();
            assert!(longest <= 1_300 + 14 && longest > 1_200, "{longest}");
            assert_eq!(world.await_completions(1, 1)[0].queue_pair, there);
        }
    });
}

#[test]
fn an_open_connection_survives_hard_errors_and_one_that_opens_does_not() {
    check(1..=2, |sim| {
        let shape = Shape {
            link: Shape::default().link.delay(Duration::from_millis(5)),
            ..Shape::default()
        };
        let mut world = World::new(sim, &shape);
        for (n, version) in BOTH.into_iter().enumerate() {
            let (_, _, frame) = under_way(&mut world, version, 80 + n as u16);
            tell(&mut world, [error(version, &frame, &Says::NobodyListens, 0)]);
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            assert_eq!(world.await_completions(1, 1)[0].len, 4_000);
            let seen = watch(&mut world, 0);
            let pair = world.connect(0, address(1, version, 9), Mapping::Message);
            world.run_until("the opening left", |_| !seen.borrow().is_empty());
            let opening = seen.borrow()[0].clone();
            tell(&mut world, [error(version, &opening, &Says::NobodyListens, 1)]);
            assert!(world.hosts[0].events.is_empty(), "another number is nobody's");
            tell(&mut world, [error(version, &opening, &Says::NobodyListens, 0)]);
            let event = world.await_event(0);
            assert_eq!(event, Event::Closed { queue_pair: pair, reason: CloseReason::Refused });
        }
    });
}

/// An opening from a stranger.
fn opening(n: u32, to: SocketAddr, host: usize) -> Frame {
    let from = (mac(99), std::net::Ipv4Addr::from_bits(0x0a00_4000 + n).into());
    let envelope = Envelope::new(from, (mac(host), to.ip()), protocol::TCP);
    let header = Tcp {
        source: 1_024 + (n % 60_000) as u16,
        destination: to.port(),
        seq: n.wrapping_mul(0x9e37_79b9),
        flags: Flags::SYN,
        window: 1_000,
        options: Options { mss: Some(1_460), ..Options::default() },
        ..Tcp::default()
    };
    let len = header.header_len();
    let mut bytes = vec![0; envelope.header_len() + len];
    let at = envelope.write(&mut bytes, len as u32).unwrap();
    header.write(&mut bytes[at..], envelope.pseudo(len as u32)).unwrap();
    let sum = landfall_placement::checksum::checksum(&bytes[at..]);
    let slot = at + usize::from(tcp::SUM_OFFSET);
    bytes[slot..slot + 2].copy_from_slice(&sum.to_be_bytes());
    Frame::raw(bytes)
}

#[test]
fn invariant_5_a_flood_of_openings_fills_one_table_and_hosts_still_connect() {
    check(1..=1, |sim| {
        let config = Config { half_open: 64, answers_per_second: 50, ..Config::default() };
        let mut world = World::new(sim, &Shape { config, ..Shape::default() });
        let local = address(1, Version::V4, 80);
        let (_, there) = world.serve(1, local, Mapping::Stream);
        let node = world.hosts[0].node;
        for n in 0..2_000 {
            world.sim.send(node, PortId(0), opening(n, local, 1)).unwrap();
            if n % 100 == 0 {
                world.run_for(Duration::from_millis(1));
            }
        }
        world.run_for(Duration::from_millis(10));
        let stats = *world.engine(1).stats();
        assert_eq!((stats.cookies_sent, stats.half_open_dropped), (2_000 - 64, 0));
        let here = world.connect(0, local, Mapping::Stream);
        let connected = world.await_event(0);
        assert!(matches!(connected, Event::Connected { queue_pair, .. } if queue_pair == here));
        let accepted = world.await_event(1);
        assert!(matches!(accepted, Event::Accepted { queue_pair, .. } if queue_pair == there));
        // To a port that nobody listens on, only this many answers are drawn.
        let before = world.engine(1).stats().resets_sent;
        for n in 0..500 {
            let closed = address(1, Version::V4, 81);
            world.sim.send(node, PortId(0), opening(n, closed, 1)).unwrap();
        }
        world.run_for(Duration::from_millis(20));
        let resets = world.engine(1).stats().resets_sent - before;
        assert!((1..=52).contains(&resets), "{resets}");
    });
}

#[test]
fn invariant_8_damaged_frames_of_every_kind_do_no_harm() {
    check(1..=4, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let seen = watch(&mut world, 0);
        let (here, there) = world.pair_up((0, 1), Version::V6, 80, Mapping::Message);
        let udp = [world.udp(0, Version::V4, 1), world.udp(1, Version::V4, 2)];
        world.post_receives(1, there, 0, 10, 9_000);
        world.post_receives(1, udp[1], 100, 10, 9_000);
        let from = world.store(0, &pattern(1, 5_000));
        for id in 0..3 {
            world.post_send(0, here, id, from, None).unwrap();
            let to = Some(address(1, Version::V4, 2));
            world.post_send(0, udp[0], 10 + id, from, to).unwrap();
        }
        world.await_completions(0, 6);
        let frames = seen.borrow().clone();
        let mut random = landfall_placement::Random::from_number(world.sim.digest());
        let node = world.hosts[0].node;
        for n in 0..3_000 {
            let mut frame = frames[random.below(frames.len() as u64) as usize].clone();
            for _ in 0..=random.below(4) {
                let at = random.below(frame.len().min(120) as u64) as usize;
                frame.bytes[at] = random.next_u32() as u8;
            }
            // For that station, or it would not be looked at; and from this one,
            // or the switch would learn what is not so.
            frame.bytes[..6].copy_from_slice(&mac(1));
            frame.bytes[6..12].copy_from_slice(&mac(0));
            if random.chance(200_000) {
                let len = random.below(frame.len() as u64) as usize;
                frame.bytes.truncate(len.max(14));
            }
            world.sim.send(node, PortId(0), frame).unwrap();
            if n % 50 == 0 {
                world.run_for(Duration::from_millis(1));
            }
        }
        world.run_for(Duration::from_secs(40));
        assert!(world.engine(1).refusals().total() > 1_000);
        // And both still work, unless a reset was guessed, which is not so here.
        world.hosts[1].done.clear();
        world.post_send(0, here, 50, from, None).unwrap();
        assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
    });
}

#[test]
fn a_link_that_goes_down_and_comes_up_smaller_loses_no_byte() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape { memory: 4 << 20, ..Shape::default() });
        let (here, there) = world.pair_up((0, 1), Version::V4, 80, Mapping::Message);
        let bytes = pattern(5, 300_000);
        let at = world.post_receives(1, there, 0, 1, 300_000);
        let from = world.store(0, &bytes);
        world.post_send(0, here, 1, from, None).unwrap();
        world.run_for(Duration::from_micros(500));
        let (link, direction) = (world.hosts[0].link, world.hosts[0].link.there());
        world.sim.set_link(link, false).unwrap();
        world.run_for(Duration::from_secs(2));
        let smaller = Shape::default().link.mtu(900 + 14);
        world.sim.configure(direction, smaller).unwrap();
        world.sim.configure(direction.reverse(), smaller).unwrap();
        world.sim.set_link(link, true).unwrap();
        assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
        assert_eq!(world.await_completions(1, 1)[0].len, 300_000);
        assert!(world.read(1, at, 300_000) == bytes);
    });
}

/// From now on what is longer than this, from its IP header on, gets lost on its way from host 0,
/// and nobody says so.
fn swallow_longer_than(world: &mut World<'_>, mtu: usize) {
    let direction = world.hosts[0].link.there();
    let swallow = move |_, frame: &mut Frame| match frame.bytes.len() > mtu + 14 {
        true => landfall_simnet::sim::Fate::Drop,
        false => landfall_simnet::sim::Fate::Pass,
    };
    world.sim.intercept(direction, swallow).unwrap();
}

#[test]
fn a_hole_that_swallows_long_packets_is_passed_by_shorter_ones() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape { memory: 4 << 20, ..Shape::default() });
        for (n, version) in BOTH.into_iter().enumerate() {
            let port = 80 + n as u16;
            let (here, there) = world.pair_up((0, 1), version, port, Mapping::Message);
            let bytes = pattern(n as u64, 300_000);
            let at = world.post_receives(1, there, 0, 1, 300_000);
            let from = world.store(0, &bytes);
            swallow_longer_than(&mut world, 1_280);
            world.post_send(0, here, 1, from, None).unwrap();
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            assert_eq!(world.await_completions(1, 1)[0].len, 300_000);
            assert!(world.read(1, at, 300_000) == bytes);
            assert_eq!(world.engine(0).stats().black_holes, n as u64 + 1);
        }
    });
}

#[test]
fn a_peer_that_was_silent_gets_long_packets_again() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape { memory: 4 << 20, ..Shape::default() });
        let (here, there) = world.pair_up((0, 1), Version::V4, 80, Mapping::Message);
        world.post_receives(1, there, 0, 2, 100_000);
        let from = world.store(0, &pattern(7, 100_000));
        swallow_longer_than(&mut world, 0);
        world.post_send(0, here, 1, from, None).unwrap();
        // The third time-out blames long packets; the sixth says that it was not that.
        for _ in 0..60 {
            if world.engine(0).connection_stats(here).unwrap().timeouts < 6 {
                world.run_for(Duration::from_secs(1));
            }
        }
        assert_eq!(world.engine(0).stats().black_holes, 1);
        let seen = watch(&mut world, 0);
        assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
        let longest = seen.borrow().iter().map(Frame::len).max();
        assert_eq!(longest, Some(1_500 + 14));
    });
}

/// Where a frame's payload lies in its packet, if it is a fragment.
fn fragment_offset(frame: &Frame) -> Option<usize> {
    let ip = &frame.bytes[14..];
    if ip[0] >> 4 == 4 {
        let field = u16::from_be_bytes([ip[6], ip[7]]);
        return (field & 0x3fff != 0).then_some(usize::from(field & 0x1fff) * 8);
    }
    (ip[6] == 44).then(|| usize::from(u16::from_be_bytes([ip[42], ip[43]]) & 0xfff8))
}

/// What is said about packets of which some fragments are missing, after a while.
fn said_of_missing(world: &mut World<'_>, version: Version, is_missing: fn(usize) -> bool) -> u64 {
    let (here, there) = (world.udp(0, version, 1_000), world.udp(1, version, 2_000));
    world.post_receives(1, there, 50, 2, 4_096);
    let swallow = move |_, frame: &mut Frame| match fragment_offset(frame).is_some_and(is_missing) {
        true => landfall_simnet::sim::Fate::Drop,
        false => landfall_simnet::sim::Fate::Pass,
    };
    world.sim.intercept(world.hosts[0].link.there(), swallow).unwrap();
    let (from, remote) = (world.store(0, &pattern(1, 4_000)), address(1, version, 2_000));
    world.post_send(0, here, 7, from, Some(remote)).unwrap();
    let before = world.engine(1).stats().control_queued;
    world.run_for(Duration::from_secs(29));
    assert_eq!(world.engine(1).stats().control_queued, before, "they may come yet");
    world.run_for(Duration::from_secs(4));
    world.hosts[1].done.clear();
    let said = world.engine(1).stats().control_queued - before;
    if said > 0 {
        let trouble = Trouble::TimeExceeded { code: 1 };
        let told = Event::Undelivered { queue_pair: here, remote, trouble };
        assert_eq!(world.await_event(0), told, "the sender knows which datagram it was");
    }
    said
}

#[test]
fn who_sent_fragments_of_which_some_are_missing_is_told_if_the_first_came() {
    for version in BOTH {
        check(1..=2, |sim| {
            let mut world = World::new(sim, &Shape::default());
            assert_eq!(said_of_missing(&mut world, version, |offset| offset > 0), 1);
        });
        check(1..=2, |sim| {
            let mut world = World::new(sim, &Shape::default());
            assert_eq!(said_of_missing(&mut world, version, |offset| offset == 0), 0);
        });
        check(1..=2, |sim| {
            let mut world = World::new(sim, &Shape::default());
            assert_eq!(said_of_missing(&mut world, version, |_| false), 0, "nothing is missing");
        });
    }
}
