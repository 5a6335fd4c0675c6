//! How the kernel treats raw IP sockets, one rule a test, over a cable between
//! two namespaces or within one. As an ordinary user each test skips with one
//! line.

use crate::support;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::thread;

use crate::support::packet::cable;
use crate::support::packet::rawip::{MTU, PROTOCOL, VERSIONS, Version, address, open, open_in};
use crate::support::transfer::PATH;
use crate::support::{
    LABEL, PATIENCE, Scripted, Sending, assert_same, become_nobody, contents, labelled_head, lent,
    pattern, turn_until,
};
use landfall_placement::checksum::checksum;
use landfall_placement::{
    Check, Ecn, Guess, Instant, Landing, PathState, Peer, Placement, Random, Refusal, RegionId,
    Ticket,
};
use landfall_testbed::{Namespace, VethEnd, VethPair, cpu, require_namespaces};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::{Driver, Feature, OpenError, Privilege};
use socket2::{Domain, Protocol, Socket, Type};

/// A socket that is not ours, at an end of a cable: what it sends is a packet
/// of that protocol.
fn stranger(end: &VethEnd, version: Version, protocol: u8) -> Socket {
    let domain = if version == Version::Four { Domain::IPV4 } else { Domain::IPV6 };
    let protocol = Some(Protocol::from(i32::from(protocol)));
    let open = || Socket::new(domain, Type::RAW, protocol);
    end.namespace.enter(open).unwrap().unwrap()
}

fn send_to(socket: &Socket, bytes: &[u8], to: IpAddr) {
    let sent = socket.send_to(bytes, &SocketAddr::new(to, 0).into()).unwrap();
    assert_eq!(sent, bytes.len());
}

/// A labelled unit with this payload.
fn unit(offset: u32, payload: &[u8]) -> Vec<u8> {
    let mut unit = labelled_head(offset);
    unit.extend(payload);
    unit
}

fn set_option(socket: &Socket, level: i32, name: i32, value: &[u8]) {
    let len = value.len() as libc::socklen_t;
    // SAFETY: `value` lives through the call, and `len` is its length.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn run(region: RegionId, len: usize, payload_len: u32) -> Vec<Guess> {
    vec![Guess { span: region.span(0, len as u32), head_len: LABEL as u16, payload_len }]
}

/// Sends a message in labelled units of 1024 bytes from one end of a cable to
/// the other, all before the first is received. Gives what arrived, the
/// drivers, and the receiving engine.
fn carry(
    cable: &VethPair,
    version: Version,
    message: &[u8],
    guesses: impl FnOnce(RegionId) -> Vec<Guess>,
) -> (Vec<u8>, [RawIpDriver; 2], Scripted) {
    // Packets of one sender overtake each other if its thread moves.
    cpu::pin_this_thread(cpu::allowed_cores().unwrap()[0]).unwrap();
    let (send_regions, source) = lent(message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let mut sender = open(&cable.a, version, &send_regions);
    let mut receiver = open(&cable.b, version, &regions);
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    to.guesses = guesses(target);
    let units = message.len().div_ceil(1024);
    let peer = Peer::Ip(address(&cable.b, version));
    from.send_labelled(peer, source.span(0, message.len() as u32), 1024);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == units);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == units);
    assert!(to.landings.iter().all(|(_, landing)| *landing == Landing::Unchecked));
    (contents(&regions, target), [sender, receiver], to)
}

#[test]
fn packets_move_many_a_call_straight_into_their_places() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(64 * 1024, 1);
    for version in VERSIONS {
        let guesses = |target| run(target, message.len(), 1024);
        let (arrived, [sender, receiver], to) = carry(&cable, version, &message, guesses);
        assert_same(&arrived, &message);
        let (sent, received) = (sender.counters(), receiver.counters());
        assert_eq!((received.guessed_right, received.guessed_wrong), (64, 0));
        assert_eq!((received.bytes_copied, received.payload_bytes), (0, 64 * 1024));
        assert_eq!((sent.bytes_copied, sent.send_calls), (0, 1));
        assert_eq!(received.receive_calls, 1 + 4, "the first alone, then 16 a call");
        let peer = Peer::Ip(address(&cable.a, version));
        assert!(to.seen.iter().all(|(from, ..)| *from == peer));
    }
}

#[test]
fn without_batches_one_packet_moves_a_call() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = lent(&[7; 4096], Rights::READ | Rights::WRITE);
    let plain = |end: &VethEnd| {
        let config = RawIpConfig { batch: false, ..RawIpConfig::new(end.ipv4.into(), 253, MTU) };
        open_in(&end.namespace, &config, &regions).unwrap()
    };
    let (mut sender, mut receiver) = (plain(&cable.a), plain(&cable.b));
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(region));
    from.send_labelled(Peer::Ip(cable.b.ipv4.into()), region.span(0, 2000), 500);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 4);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 4);
    assert_eq!((sender.counters().send_calls, receiver.counters().receive_calls), (4, 4));
    let missing = sender.capabilities().require(Feature::BatchedSend).unwrap_err();
    assert!(missing.to_string().contains("configuration"), "{missing}");
}

#[test]
fn invariant_4_whatever_is_guessed_nothing_is_lost() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(40 * 1024 + 100, 2);
    for version in VERSIONS {
        for (start, posted, payload_len) in [
            (0, 0, 1),               // nothing
            (0, 5 * 1024, 1024),     // too little
            (0, 40 * 1024, 500),     // too short a unit
            (0, 40 * 1024, 1500),    // too long a unit
            (1024, 39 * 1024, 1024), // the neighbours' places
        ] {
            let guesses = |target: RegionId| {
                let span = target.span(start, posted);
                vec![Guess { span, head_len: LABEL as u16, payload_len }]
            };
            let (arrived, [_, receiver], _) = carry(&cable, version, &message, guesses);
            assert_same(&arrived, &message);
            let counters = receiver.counters();
            assert!(counters.bytes_copied > 0, "{version:?} {posted} {payload_len}");
            if posted == 0 {
                assert_eq!(counters.bytes_copied, message.len() as u64, "each byte once");
            }
        }
    }
}

#[test]
fn guesses_that_keep_missing_are_done_without() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(400 * 100, 7);
    let (regions, target) = lent(&vec![0; 1 << 16], Rights::WRITE);
    let mut receiver = open(&cable.b, Version::Four, &regions);
    let mut to = Scripted::labelled(target);
    // A place that nothing belongs to.
    let span = target.span((1 << 16) - 100, 100);
    to.guesses = vec![Guess { span, head_len: LABEL as u16, payload_len: 100 }];
    let socket = stranger(&cable.a, Version::Four, PROTOCOL);
    for nth in 0..400 {
        let part = &message[nth * 100..][..100];
        send_to(&socket, &unit(nth as u32 * 100, part), cable.b.ipv4.into());
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == nth + 1);
    }
    let counters = receiver.counters();
    assert!(counters.guessed_wrong >= 2, "{counters:?}");
    assert!(counters.bytes_copied < 42_000, "hardly any byte twice: {counters:?}");
    assert_same(&contents(&regions, target)[..40_000], &message);
}

#[test]
fn runs_that_follow_each_other_are_received_together() {
    require_namespaces!();
    let cable = cable();
    // Three messages of two units, the second one short, at places of their own.
    let message = pattern(3 * 1500, 3);
    let (send_regions, source) = lent(&message, Rights::READ);
    let (regions, target) = lent(&[0; 3 * 1500], Rights::WRITE);
    let mut sender = open(&cable.a, Version::Four, &send_regions);
    let mut receiver = open(&cable.b, Version::Four, &regions);
    let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
    cpu::pin_this_thread(cpu::allowed_cores().unwrap()[0]).unwrap();
    let peer = Peer::Ip(cable.b.ipv4.into());
    for nth in 0..3 {
        let span = target.span(nth * 1500, 1500);
        to.guesses.push(Guess { span, head_len: LABEL as u16, payload_len: 1000 });
        for (at, len) in [(0, 1000), (1000, 500)] {
            let offset = nth * 1500 + at;
            from.send(peer, labelled_head(offset as u32), &[source.span(offset, len)]);
        }
    }
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 6);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 6);
    let counters = receiver.counters();
    assert_eq!((counters.receive_calls, counters.bytes_copied), (2, 0), "the first alone");
    assert_same(&contents(&regions, target), &message);
}

#[test]
fn options_in_the_header_displace_the_payload_and_nothing_more() {
    require_namespaces!();
    let cable = cable();
    let message = pattern(30 * 100, 4);
    for guessed in [true, false] {
        let (regions, target) = lent(&[0; 3000], Rights::WRITE);
        let mut receiver = open(&cable.b, Version::Four, &regions);
        let mut to = Scripted::labelled(target);
        if guessed {
            to.guesses = run(target, 3000, 100);
        }
        let socket = stranger(&cable.a, Version::Four, PROTOCOL);
        for nth in 0..30 {
            // None, one and ten words of options: no operation, end of list.
            let words = [0, 1, 10][nth % 3];
            let mut options = vec![1; 4 * words];
            if let Some(last) = options.last_mut() {
                *last = 0;
            }
            set_option(&socket, libc::IPPROTO_IP, libc::IP_OPTIONS, &options);
            let part = &message[nth * 100..][..100];
            send_to(&socket, &unit(nth as u32 * 100, part), cable.b.ipv4.into());
        }
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 30);
        assert!(to.seen.iter().all(|(from, head, len)| {
            *from == Peer::Ip(cable.a.ipv4.into()) && head[..4] == *b"Here" && *len == 108
        }));
        let counters = receiver.counters();
        assert_eq!((counters.malformed, counters.guessed_right > 0), (0, guessed));
        assert_same(&contents(&regions, target), &message);
    }
}

#[test]
fn fragments_arrive_joined_and_are_placed_whole() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        for guessed in [0, 60_000] {
            let payload = pattern(60_000, 5);
            let (regions, target) = lent(&[0; 60_000], Rights::WRITE);
            let mut receiver = open(&cable.b, version, &regions);
            let mut to = Scripted::labelled(target);
            if guessed > 0 {
                to.guesses = run(target, guessed, guessed as u32);
            }
            let socket = stranger(&cable.a, version, PROTOCOL);
            let (level, name) = match version {
                Version::Four => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
                Version::Six => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
            };
            set_option(&socket, level, name, &libc::IP_PMTUDISC_DONT.to_ne_bytes());
            send_to(&socket, &unit(0, &payload), address(&cable.b, version));
            turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
            assert_eq!(receiver.counters().bytes_copied == 0, guessed > 0);
            assert_same(&contents(&regions, target), &payload);
        }
    }
}

#[test]
fn the_unit_fills_a_packet_and_one_byte_more_is_lost() {
    require_namespaces!();
    let cable = cable();
    for (version, fits) in VERSIONS.into_iter().zip([1480, 1460]) {
        let (send_regions, source) = lent(&pattern(2000, 6), Rights::READ);
        let (regions, target) = lent(&[0; 2000], Rights::WRITE);
        let mut sender = open(&cable.a, version, &send_regions);
        let mut receiver = open(&cable.b, version, &regions);
        assert_eq!(sender.limits().unit, fits);
        let (mut from, mut to) = (Scripted::sender(), Scripted::labelled(target));
        let peer = Peer::Ip(address(&cable.b, version));
        for len in [fits + 1, fits] {
            from.send(peer, labelled_head(0), &[source.span(0, len - LABEL as u32)]);
        }
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 2);
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        assert_eq!(to.seen[0].2, fits);
        assert_eq!((sender.counters().send_failed, sender.counters().units_sent), (1, 1));
        assert_eq!(from.paths, [], "the path is as it was");
    }
}

#[test]
fn a_smaller_mtu_is_told_to_the_engine() {
    require_namespaces!();
    for version in VERSIONS {
        for connected in [true, false] {
            let cable = cable();
            let (regions, source) = lent(&[0; 2000], Rights::READ);
            let mut sender = open(&cable.a, version, &regions);
            let peer = address(&cable.b, version);
            if connected {
                sender.connect(peer).unwrap();
            }
            cable.set_mtu(1300).unwrap();
            let fits = 1300 - (1500 - sender.limits().unit);
            let mut from = Scripted::sender();
            for len in [1400, fits] {
                from.send(Peer::Ip(peer), vec![0; 8], &[source.span(0, len - 8)]);
            }
            turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 2);
            assert_eq!(sender.limits().unit, fits, "{version:?}, connected: {connected}");
            assert_eq!(from.paths, [PathState::Up(sender.limits())]);
            assert_eq!((sender.counters().send_failed, sender.counters().units_sent), (1, 1));
        }
    }
}

/// What a router answers whose next link is too narrow (RFC 1191, 4): the MTU
/// of that link, and the beginning of the packet.
fn too_narrow(from: &VethEnd, to: &VethEnd, mtu: u16) -> Vec<u8> {
    let mut answer = vec![3, 4, 0, 0, 0, 0];
    answer.extend(mtu.to_be_bytes());
    answer.extend([0x45, 0, 0x05, 0x78, 0, 0, 0x40, 0, 64, PROTOCOL, 0, 0]);
    answer.extend(from.ipv4.octets());
    answer.extend(to.ipv4.octets());
    answer.extend([0; 8]);
    let sum = checksum(&answer);
    answer[2..4].copy_from_slice(&sum.to_be_bytes());
    answer
}

#[test]
fn a_router_that_cannot_pass_a_packet_on_is_heard() {
    require_namespaces!();
    for connected in [true, false] {
        let cable = cable();
        let (regions, source) = lent(&[0; 2000], Rights::READ);
        let mut sender = open(&cable.a, Version::Four, &regions);
        let mut from = Scripted::sender();
        let peer = IpAddr::from(cable.b.ipv4);
        if connected {
            sender.connect(peer).unwrap();
        }
        let router = stranger(&cable.b, Version::Four, 1);
        send_to(&router, &too_narrow(&cable.a, &cable.b, 1000), cable.a.ipv4.into());
        // It does not end the path, and sooner or later a packet is too long.
        let deadline = std::time::Instant::now() + PATIENCE;
        while sender.limits().unit != 980 {
            assert!(std::time::Instant::now() < deadline, "{:?}", sender.counters());
            from.send(Peer::Ip(peer), vec![0; 8], &[source.span(0, 1372)]);
            sender.turn(&mut from, Instant::ZERO).unwrap();
        }
        assert_eq!(from.paths, [PathState::Up(sender.limits())], "connected: {connected}");
        let (before, left) = (*sender.counters(), from.to_send.len() as u64);
        from.send(Peer::Ip(peer), vec![0; 8], &[source.span(0, 972)]);
        let all = from.sent.len() + from.to_send.len();
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == all);
        let after = sender.counters();
        assert!(before.send_failed >= 1, "{before:?}");
        // What fits leaves; what is too long and was still there does not.
        assert_eq!(after.units_sent, before.units_sent + 1, "{after:?}");
        assert_eq!(after.send_failed, before.send_failed + left, "{after:?}");
    }
}

#[test]
fn congestion_marks_cross_in_both_versions() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let (regions, _) = lent(&[0; 64], Rights::WRITE);
        let mut sender = open(&cable.a, version, &regions);
        let mut receiver = open(&cable.b, version, &regions);
        assert!(sender.capabilities().has(Feature::Ecn));
        let (mut from, mut to) = (Scripted::sender(), Scripted::sender());
        let marks = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::CongestionExperienced];
        for ecn in marks {
            from.to_send.push_back(Sending {
                to: Peer::Ip(address(&cable.b, version)),
                head: vec![1; 20],
                payload: vec![],
                segment: None,
                checksum: None,
                sum_only: 0,
                ecn,
            });
        }
        turn_until(&mut sender, &mut from, |from, _| from.sent.len() == marks.len());
        turn_until(&mut receiver, &mut to, |to, _| to.marks.len() == marks.len());
        assert_eq!(to.marks, marks, "{version:?}");
    }
}

#[test]
fn other_protocols_are_not_heard() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let (regions, _) = lent(&[0; 64], Rights::WRITE);
        let mut receiver = open(&cable.b, version, &regions);
        for protocol in [254, 17, 118, 255, PROTOCOL] {
            let socket = stranger(&cable.a, version, protocol);
            if protocol == 255 {
                continue; // its packets need a header of their own
            }
            send_to(&socket, &[protocol; 40], address(&cable.b, version));
        }
        let mut to = Scripted::sender();
        turn_until(&mut receiver, &mut to, |to, _| !to.seen.is_empty());
        assert_eq!(to.seen.len(), 1);
        assert_eq!(to.seen[0].1, [PROTOCOL; 40], "{version:?}");
    }
}

/// Addresses of one host.
fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

#[test]
fn one_path_serves_many_peers() {
    require_namespaces!();
    let namespace = Namespace::new().unwrap();
    let (regions, _) = lent(&[0; 64], Rights::READ);
    let at = |last| {
        let config = RawIpConfig::new(host(last), PROTOCOL, MTU);
        open_in(&namespace, &config, &regions).unwrap()
    };
    let mut server = at(1);
    let mut peers: Vec<_> = (2..12).map(at).collect();
    for (nth, peer) in peers.iter_mut().enumerate() {
        let mut engine = Scripted::sender();
        engine.send(Peer::Ip(host(1)), vec![nth as u8; 30], &[]);
        turn_until(peer, &mut engine, |engine, _| engine.sent.len() == 1);
    }
    let mut engine = Scripted::sender();
    turn_until(&mut server, &mut engine, |engine, _| engine.seen.len() == 10);
    for (peer, head, _) in engine.seen.clone() {
        engine.send(peer, head, &[]);
    }
    turn_until(&mut server, &mut engine, |engine, _| engine.sent.len() == 10);
    for (nth, peer) in peers.iter_mut().enumerate() {
        let mut engine = Scripted::sender();
        turn_until(peer, &mut engine, |engine, _| !engine.seen.is_empty());
        assert_eq!(engine.seen, [(Peer::Ip(host(1)), vec![nth as u8; 30], 30)]);
    }
}

#[test]
fn paths_to_several_peers_share_an_address() {
    require_namespaces!();
    let namespace = Namespace::new().unwrap();
    let (regions, _) = lent(&[0; 64], Rights::READ);
    let at = |last| {
        let config = RawIpConfig::new(host(last), PROTOCOL, MTU);
        open_in(&namespace, &config, &regions).unwrap()
    };
    let (mut two, mut three) = (at(2), at(3));
    let mut to_two = at(1);
    to_two.connect(host(2)).unwrap();
    let mut to_three = at(1);
    to_three.connect(host(3)).unwrap();
    for (driver, name) in [(&mut two, 2), (&mut three, 3)] {
        let mut engine = Scripted::sender();
        engine.send(Peer::Ip(host(1)), vec![name; 9], &[]);
        turn_until(driver, &mut engine, |engine, _| engine.sent.len() == 1);
    }
    for (driver, name) in [(&mut to_two, 2), (&mut to_three, 3)] {
        let mut engine = Scripted::sender();
        turn_until(driver, &mut engine, |engine, _| !engine.seen.is_empty());
        assert_eq!(engine.seen, [(Peer::Ip(host(name)), vec![name; 9], 9)]);
        // And it reaches nobody else.
        engine.send(Peer::Ip(host(5 - name)), vec![0; 9], &[]);
        engine.send(Peer::Ip(host(name)), vec![1; 9], &[]);
        turn_until(driver, &mut engine, |engine, _| engine.sent.len() == 2);
        assert_eq!((driver.counters().send_failed, driver.counters().units_sent), (1, 1));
    }
}

#[test]
fn units_that_cannot_be_sent_are_lost_not_fatal() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = lent(&[0; 70_000], Rights::READ);
    let mut sender = open(&cable.a, Version::Four, &regions);
    let mut from = Scripted::sender();
    let peer = Peer::Ip(cable.b.ipv4.into());
    from.send(peer, vec![0; 8], &[region.span(0, 66_000)]);
    from.send(Peer::Unaddressed, vec![0; 8], &[]);
    from.send(Peer::Ip(cable.b.ipv6.into()), vec![0; 8], &[]);
    from.send(Peer::Socket(SocketAddr::new(cable.b.ipv4.into(), 7)), vec![0; 8], &[]);
    // A network without a route, and one's own broadcast address.
    from.send(Peer::Ip(host(1)), vec![0; 8], &[]);
    from.send(Peer::Ip(Ipv4Addr::new(192, 0, 2, 1).into()), vec![0; 8], &[]);
    from.send(Peer::Ip(Ipv4Addr::BROADCAST.into()), vec![0; 8], &[]);
    from.send(peer, vec![0; 8], &[region.span(69_000, 2000)]);
    from.send(peer, vec![0; 8], &[]);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 9);
    // Whether a packet to loopback from another address fails is the kernel's affair.
    let counters = sender.counters();
    assert!((7..=8).contains(&counters.send_failed), "{counters:?}");
    assert_eq!(counters.units_sent + counters.send_failed, 9, "{counters:?}");
}

#[test]
fn an_interface_may_go_down_and_come_up_again() {
    require_namespaces!();
    let cable = cable();
    let (regions, _) = lent(&[0], Rights::READ);
    let mut sender = open(&cable.a, Version::Four, &regions);
    let mut receiver = open(&cable.b, Version::Four, &regions);
    let (mut from, mut to) = (Scripted::sender(), Scripted::sender());
    let peer = Peer::Ip(cable.b.ipv4.into());
    cable.a.set_up(false).unwrap();
    from.send(peer, vec![1; 8], &[]);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == 1);
    assert_eq!(sender.counters().send_failed, 1);
    cable.a.set_up(true).unwrap();
    turn_until(&mut receiver, &mut to, |to, _| {
        from.send(peer, vec![2; 8], &[]);
        sender.turn(&mut from, Instant::ZERO).unwrap();
        !to.seen.is_empty()
    });
    assert_eq!(to.seen[0].1, [2; 8]);
}

#[test]
fn invariant_3_junk_is_refused_and_changes_nothing() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let (regions, target) = lent(&vec![0; 1 << 16], Rights::WRITE);
        let canary = pattern(1 << 12, 14);
        let canary_id = regions.lend(Memory::from_bytes(&canary), Rights::READ).unwrap();
        let mut receiver = open(&cable.b, version, &regions);
        let socket = stranger(&cable.a, version, PROTOCOL);
        let mut to = Scripted::labelled(target);
        let span = target.span(1000, 5000);
        to.guesses = vec![Guess { span, head_len: LABEL as u16, payload_len: 500 }];
        let mut random = Random::from_number(14);
        for n in 0..300usize {
            let len = [0, 1, 7, 8, 9, 507, 508, 509, 1400, 1460][n % 10];
            let junk: Vec<u8> = (0..len).map(|_| random.next_u32() as u8 | 0x80).collect();
            send_to(&socket, &junk, address(&cable.b, version));
            let refused = n as u64 + 1;
            turn_until(&mut receiver, &mut to, |_, receiver| {
                receiver.counters().refused == refused
            });
        }
        assert!(to.landings.is_empty());
        let memory = contents(&regions, target);
        assert!(memory[..1000].iter().chain(&memory[6000..]).all(|byte| *byte == 0));
        assert_same(&contents(&regions, canary_id), &canary);
    }
}

#[test]
fn sums_are_checked_wherever_the_payload_landed() {
    require_namespaces!();
    let cable = cable();
    let payload = pattern(1001, 12);
    for (guessed, corrupt) in [(0, false), (1001, false), (100, false), (0, true), (1001, true)] {
        let (regions, target) = lent(&[0; 2048], Rights::WRITE);
        let mut receiver = open(&cable.b, Version::Four, &regions);
        let mut sum = landfall_placement::InternetSum::new();
        sum.add(&payload);
        let seed = if corrupt { 0 } else { sum.checksum() };
        let mut to = Scripted::new(move |unit, into| {
            if unit.head.len() < LABEL {
                return Err(Refusal::Truncated);
            }
            into.push(target.span(0, 1001)).unwrap();
            let check = Check::InternetSum { from: LABEL as u16, len: 1001, seed };
            Ok(Placement::Into { at: LABEL as u16, check, ticket: Ticket::from_raw(1) })
        });
        if guessed > 0 {
            to.guesses = run(target, guessed, guessed as u32);
        }
        let socket = stranger(&cable.a, Version::Four, PROTOCOL);
        send_to(&socket, &unit(0, &payload), cable.b.ipv4.into());
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        let expected = if corrupt { Landing::Corrupt } else { Landing::Verified };
        assert_eq!(to.landings[0].1, expected, "guessed {guessed}");
        let arrived = contents(&regions, target);
        if !corrupt {
            assert_same(&arrived[..1001], &payload);
        } else if guessed == 0 {
            assert_eq!(arrived, [0; 2048], "never written where not guessed");
        }
    }
}

#[test]
fn a_grant_that_ended_is_refused_in_both_directions() {
    require_namespaces!();
    let cable = cable();
    let (regions, target) = lent(&[0; 4096], Rights::WRITE | Rights::READ);
    let mut receiver = open(&cable.b, Version::Four, &regions);
    let mut to = Scripted::labelled(target);
    to.guesses = run(target, 4096, 100);
    assert_eq!(contents(&regions, target), [0; 4096]);
    let socket = stranger(&cable.a, Version::Four, PROTOCOL);
    send_to(&socket, &unit(0, &[7; 100]), cable.b.ipv4.into());
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
    assert_eq!(to.landings[0].1, Landing::Failed);
    to.send(Peer::Ip(cable.a.ipv4.into()), labelled_head(0), &[target.span(0, 100)]);
    turn_until(&mut receiver, &mut to, |to, _| to.sent.len() == 1);
    assert_eq!(receiver.counters().send_failed, 1);
}

#[test]
fn an_interface_restricts_a_path() {
    require_namespaces!();
    let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let one = support::packet::cable_between(&a, &b, 0);
    let two = support::packet::cable_between(&a, &b, 1);
    let (regions, _) = lent(&[0], Rights::READ);
    for interface in [two.b.name.as_str().into(), two.b.index.into()] {
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let config =
            RawIpConfig { interface: Some(interface), ..RawIpConfig::new(any, PROTOCOL, MTU) };
        let mut receiver = open_in(&b, &config, &regions).unwrap();
        for cable in [&one, &two] {
            let socket = stranger(&cable.a, Version::Four, PROTOCOL);
            send_to(&socket, &cable.b.ipv4.octets(), cable.b.ipv4.into());
        }
        let mut to = Scripted::sender();
        turn_until(&mut receiver, &mut to, |to, _| !to.seen.is_empty());
        assert_eq!(to.seen.len(), 1);
        assert_eq!(to.seen[0].1, two.b.ipv4.octets());
    }
}

#[test]
fn what_is_not_possible_is_told_in_clear_words() {
    require_namespaces!();
    let cable = cable();
    let try_open = |bind: IpAddr, protocol, interface: Option<&str>| {
        let interface = interface.map(Into::into);
        let config = RawIpConfig { interface, ..RawIpConfig::new(bind, protocol, MTU) };
        open_in(&cable.a.namespace, &config, &Regions::new(1)).map(drop)
    };
    let here = IpAddr::from(cable.a.ipv4);
    for protocol in [0, 1, 6, 17, 41, 58, 255] {
        let error = try_open(here, protocol, None).unwrap_err();
        assert!(matches!(error, OpenError::NotForUs(number) if number == protocol), "{error}");
        assert!(error.to_string().contains("253"), "{error}");
    }
    for elsewhere in [cable.b.ipv4.into(), cable.b.ipv6.into()] {
        let error = try_open(elsewhere, PROTOCOL, None).unwrap_err();
        assert!(matches!(error, OpenError::NoAddress(address) if address == elsewhere), "{error}");
    }
    let error = try_open(here, PROTOCOL, Some("eth77")).unwrap_err();
    assert!(matches!(&error, OpenError::NoInterface(_)), "{error}");
    assert!(error.to_string().contains("no interface eth77 in this network namespace"));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn without_the_privilege_the_error_says_how_to_get_it() {
    let opened = thread::spawn(|| {
        become_nobody();
        let config = RawIpConfig::new(host(1), PROTOCOL, MTU);
        RawIpDriver::open(PATH, &config, &Regions::new(1)).map(drop)
    });
    let error = opened.join().unwrap().unwrap_err();
    assert!(matches!(error, OpenError::NoPrivilege(Privilege::RawSockets)), "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::PermissionDenied);
}
