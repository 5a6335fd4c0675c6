use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use landfall_placement::{Duration, Instant};
use proptest::prelude::*;

use super::*;
use crate::wire::icmp::Trouble;
use crate::wire::ndp::Neighbour;
use crate::wire::{Content, Fragment, Packet, Stop, parse};

const US: Mac = [2, 0, 0, 0, 0, 1];
const THEM: Mac = [2, 0, 0, 0, 0, 2];
const OURS6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const THEIRS6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const OURS4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THEIRS4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

const PAIRS: [(IpAddr, IpAddr); 2] =
    [(IpAddr::V4(OURS4), IpAddr::V4(THEIRS4)), (IpAddr::V6(OURS6), IpAddr::V6(THEIRS6))];

/// A packet from them to us.
fn packet((ours, theirs): (IpAddr, IpAddr), protocol: u8, payload: &[u8]) -> Vec<u8> {
    sent(&Envelope::new((THEM, theirs), (US, ours), protocol), payload)
}

fn sent(envelope: &Envelope, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![0; envelope.header_len()];
    envelope.write(&mut frame, payload.len() as u32).unwrap();
    frame.extend(payload);
    frame
}

fn read(frame: &[u8]) -> (Packet, Ip) {
    let packet = parse(frame, frame.len() as u32).unwrap();
    let Content::Ip(ip) = packet.content else { panic!("no IP") };
    (packet, ip)
}

/// The error about a frame, read as its receiver reads it.
fn complaint(frame: &[u8], room: usize) -> Option<(Vec<u8>, Trouble)> {
    let (packet, ip) = read(frame);
    let about = Arrived { ethernet: &packet.ethernet, ip: &ip, head: frame };
    let mut out = std::vec![0; room];
    let len = port_unreachable(&about, &mut out)?;
    out.truncate(len);
    let trouble = trouble_of(&out);
    Some((out, trouble))
}

fn trouble_of(frame: &[u8]) -> Trouble {
    let (packet, ip) = read(frame);
    assert_eq!((packet.ethernet.source, packet.ethernet.destination), (US, THEM));
    let message = ip.payload(frame).unwrap();
    match ip.protocol {
        protocol::ICMP4 => match icmp4::read(message) {
            Ok(icmp4::Message::Report(report)) => report.trouble,
            other => panic!("{other:?}"),
        },
        _ => match icmp6::read(message, ip.pseudo(ip.payload_len)) {
            Ok(icmp6::Message::Report(report)) => report.trouble,
            other => panic!("{other:?}"),
        },
    }
}

#[test]
fn a_datagram_for_nobody_is_complained_about() {
    for (ours, theirs) in PAIRS {
        let frame = packet((ours, theirs), protocol::UDP, &[0xaa; 2000]);
        for room in [256, 4000] {
            let (error, trouble) = complaint(&frame, room).unwrap();
            assert_eq!(trouble, Trouble::PortUnreachable);
            let (_, ip) = read(&error);
            assert_eq!((ip.source, ip.destination), (ours, theirs));
            let longest = if ours.is_ipv4() { 576 } else { 1280 };
            assert_eq!(error.len(), room.min(longest + 14), "as much as may be, and fits");
        }
        assert_eq!(complaint(&frame, 60), None, "what does not tell which one is not sent");
    }
}

#[test]
fn an_unknown_protocol_is_complained_about() {
    for hosts in PAIRS {
        let frame = packet(hosts, 200, &[0; 16]);
        let (packet, ip) = read(&frame);
        let about = Arrived { ethernet: &packet.ethernet, ip: &ip, head: &frame };
        let mut out = [0; 256];
        let len = protocol_unreachable(&about, &mut out).unwrap();
        assert_eq!(trouble_of(&out[..len]), Trouble::ProtocolUnreachable);
    }
    let frame = packet(PAIRS[1], protocol::NO_NEXT_HEADER, &[0; 16]);
    let (packet, ip) = read(&frame);
    let about = Arrived { ethernet: &packet.ethernet, ip: &ip, head: &frame };
    assert_eq!(protocol_unreachable(&about, &mut [0; 256]), None, "nothing is wrong with nothing");
}

/// RFC 1122, section 3.2.2, and RFC 4443, section 2.4, point by point.
#[test]
fn errors_groups_pieces_and_nobody_are_not_complained_about() {
    let payload = [0; 64];
    let error4 = [3, 3, 0, 0];
    let error6 = [1, 4, 0, 0];
    let four = Envelope::new((THEM, THEIRS4.into()), (US, OURS4.into()), protocol::UDP);
    let six = Envelope::new((THEM, THEIRS6.into()), (US, OURS6.into()), protocol::UDP);
    let silent = [
        (Envelope { protocol: protocol::ICMP4, ..four }, [&error4[..], &payload].concat()),
        (Envelope { protocol: protocol::ICMP6, ..six }, [&error6[..], &payload].concat()),
        (Envelope { destination_mac: ethernet::BROADCAST, ..four }, payload.to_vec()),
        (Envelope { destination_mac: [0x33, 0x33, 0, 0, 0, 1], ..six }, payload.to_vec()),
        (Envelope { destination: IpAddr::V4(Ipv4Addr::BROADCAST), ..four }, payload.to_vec()),
        (Envelope { destination: "224.0.0.1".parse().unwrap(), ..four }, payload.to_vec()),
        (Envelope { destination: ALL_NODES.into(), ..six }, payload.to_vec()),
        (Envelope { source: IpAddr::V4(Ipv4Addr::UNSPECIFIED), ..four }, payload.to_vec()),
        (Envelope { source: IpAddr::V6(Ipv6Addr::UNSPECIFIED), ..six }, payload.to_vec()),
        (
            Envelope { fragment: Some(Fragment { id: 1, offset: 8, more: true }), ..four },
            payload.to_vec(),
        ),
        (
            Envelope { fragment: Some(Fragment { id: 1, offset: 8, more: true }), ..six },
            payload.to_vec(),
        ),
    ];
    for (envelope, payload) in silent {
        assert_eq!(complaint(&sent(&envelope, &payload), 256), None, "{envelope:?}");
    }
    for envelope in [four, six] {
        assert!(complaint(&sent(&envelope, &payload), 256).is_some(), "{envelope:?}");
    }
    let asked = Envelope { protocol: protocol::ICMP4, ..four };
    let echo = [&[8, 0, 0, 0][..], &payload].concat();
    assert!(complaint(&sent(&asked, &echo), 256).is_some(), "an echo is no error");
}

/// The complaint about an IPv6 packet that could not be read.
fn problem_about(frame: &[u8], us: IpAddr) -> Option<Trouble> {
    let Err(Stop::Answer(problem)) = parse(frame, frame.len() as u32) else {
        panic!("it was read")
    };
    let (ethernet, _) = <ethernet::Header as zerocopy::FromBytes>::read_from_prefix(frame).unwrap();
    let mut out = [0; 256];
    let us = Host { mac: US, address: us };
    let len = parameter_problem(us, &ethernet, &problem, frame, &mut out)?;
    Some(trouble_of(&out[..len]))
}

#[test]
fn an_option_that_is_not_known_is_told_to_its_sender() {
    let option = |kind| [&[17, 0, kind, 4, 0, 0, 0, 0][..], &[0; 8]].concat();
    let to_us = |kind| packet(PAIRS[1], protocol::HOP_BY_HOP, &option(kind));
    let expected = Some(Trouble::ParameterProblem { code: 2, pointer: 42 });
    assert_eq!(problem_about(&to_us(0x80), OURS6.into()), expected);
    assert_eq!(problem_about(&to_us(0xc0), OURS6.into()), expected);
    let to_group = |kind| {
        let to = (ndp::group_mac(ALL_NODES), ALL_NODES.into());
        sent(&Envelope::new((THEM, THEIRS6.into()), to, protocol::HOP_BY_HOP), &option(kind))
    };
    assert_eq!(problem_about(&to_group(0x80), OURS6.into()), expected, "even then");
    assert_eq!(problem_about(&to_group(0xc0), OURS6.into()), None);
    let error = [&[58, 0, 0x80, 4, 0, 0, 0, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let about_error = packet(PAIRS[1], protocol::HOP_BY_HOP, &error);
    assert_eq!(problem_about(&about_error, OURS6.into()), None, "it carries an error");
}

#[test]
fn an_echo_comes_back() {
    let echo = Echo { id: 7, sequence: 9, data: b"are you there?" };
    for (ours, theirs) in PAIRS {
        let (us, them) = (Host { mac: US, address: ours }, Host { mac: THEM, address: theirs });
        let mut out = [0; 128];
        let len = echo_reply(us, them, &echo, &mut out).unwrap();
        let (_, ip) = read(&out[..len]);
        let message = ip.payload(&out[..len]).unwrap();
        if ours.is_ipv4() {
            assert_eq!(icmp4::read(message), Ok(icmp4::Message::EchoReply(echo)));
        } else {
            let read = icmp6::read(message, ip.pseudo(ip.payload_len));
            assert_eq!(read, Ok(icmp6::Message::EchoReply(echo)));
        }
        assert_eq!(echo_reply(us, them, &echo, &mut out[..len - 1]), None, "no room");
        let nobody = Host { mac: THEM, address: IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        assert_eq!(echo_reply(us, nobody, &echo, &mut out), None);
    }
}

#[test]
fn stations_are_asked_and_answered() {
    let mut out = [0; 128];
    let us = Host { mac: US, address: OURS4.into() };
    let len = question(us, THEIRS4.into(), None, &mut out).unwrap();
    let packet = parse(&out[..len], len as u32).unwrap();
    assert_eq!(packet.ethernet.destination, ethernet::BROADCAST);
    let Content::Arp(asked) = packet.content else { panic!("no ARP") };
    assert_eq!((asked.sender_mac, asked.sender, asked.target), (US, OURS4, THEIRS4));
    let len = arp_reply(THEM, &asked, &mut out).unwrap();
    let packet = parse(&out[..len], len as u32).unwrap();
    assert_eq!(packet.ethernet.destination, US);
    let Content::Arp(reply) = packet.content else { panic!("no ARP") };
    assert_eq!((reply.sender_mac, reply.sender), (THEM, THEIRS4));
    assert_eq!((reply.target_mac, reply.target), (US, OURS4));

    let us = Host { mac: US, address: OURS6.into() };
    for station in [None, Some(THEM)] {
        let len = question(us, THEIRS6.into(), station, &mut out).unwrap();
        let (packet, ip) = read(&out[..len]);
        let group = ndp::solicited_node(THEIRS6);
        let to = station.map_or((ndp::group_mac(group), group), |mac| (mac, THEIRS6));
        assert_eq!((packet.ethernet.destination, ip.destination), (to.0, to.1.into()));
        let message = ip.payload(&out[..len]).unwrap();
        assert!(icmp6::read(message, ip.pseudo(ip.payload_len)).is_ok());
        let asked = Solicitation { target: THEIRS6, station: Some(US) };
        assert_eq!(ndp::read(&ip, message), Ok(Neighbour::Solicitation(asked)));
    }
    assert_eq!(question(us, THEIRS4.into(), None, &mut out), None, "two versions");
    for (asker, to, is_solicited) in
        [(OURS6, OURS6, true), (Ipv6Addr::UNSPECIFIED, ALL_NODES, false)]
    {
        let len =
            advertisement(THEM, THEIRS6, Host6 { mac: US, address: asker }, &mut out).unwrap();
        let (_, ip) = read(&out[..len]);
        assert_eq!(ip.destination, IpAddr::V6(to));
        let Ok(Neighbour::Advertisement(answer)) = ndp::read(&ip, ip.payload(&out[..len]).unwrap())
        else {
            panic!("no answer")
        };
        assert_eq!((answer.target, answer.station), (THEIRS6, Some(THEM)));
        assert_eq!((answer.is_solicited, answer.is_override), (is_solicited, true));
    }
}

#[test]
fn an_interface_announces_itself() {
    let mut out = [0; 128];
    let len = announcement(Host { mac: US, address: OURS4.into() }, &mut out).unwrap();
    let Content::Arp(arp) = parse(&out[..len], len as u32).unwrap().content else { panic!() };
    assert_eq!((arp.operation, arp.sender, arp.target), (arp::Operation::Request, OURS4, OURS4));
    let len = announcement(Host { mac: US, address: OURS6.into() }, &mut out).unwrap();
    assert_eq!(read(&out[..len]).1.destination, IpAddr::V6(ALL_NODES));
}

#[test]
fn a_limiter_allows_a_burst_and_then_a_rate() {
    let mut limiter = Limiter::new(10, 3);
    let at = Instant::from_millis;
    let allowed = |limiter: &mut Limiter, now| (0..100).filter(|_| limiter.allow(now)).count();
    assert_eq!(allowed(&mut limiter, at(0)), 3);
    assert_eq!(allowed(&mut limiter, at(99)), 0);
    assert_eq!(allowed(&mut limiter, at(100)), 1);
    assert_eq!(allowed(&mut limiter, at(299)), 1);
    assert_eq!(allowed(&mut limiter, at(300)), 1, "what is left of a pause is not lost");
    assert_eq!(allowed(&mut limiter, at(1_000_000)), 3, "no more than the burst is saved");
    let mut never = Limiter::new(0, 2);
    assert_eq!(allowed(&mut never, at(0)) + allowed(&mut never, at(1_000_000)), 2);
    let mut closed = Limiter::new(10, 0);
    assert_eq!(allowed(&mut closed, at(5000)), 0);
}

proptest! {
    #[test]
    fn a_limiter_keeps_its_rate(
        (rate, burst) in (1..5000u32, 0..100u32),
        steps in prop::collection::vec(0..50_000u64, 0..300),
    ) {
        let mut limiter = Limiter::new(rate, burst);
        let (mut now, mut allowed) = (Instant::ZERO, 0);
        for step in steps {
            now += Duration::from_micros(step);
            allowed += u64::from(limiter.allow(now));
            let limit = u64::from(burst) + now.as_nanos() / u64::from(1_000_000_000 / rate);
            prop_assert!(allowed <= limit);
        }
    }

    #[test]
    fn about_any_frame_there_is_an_error_or_none(
        payload in prop::collection::vec(any::<u8>(), 0..100),
        protocol in prop::sample::select(std::vec![0u8, 1, 6, 17, 43, 44, 58, 59, 60, 200]),
        which in 0..2usize,
        (at_hand, room) in (0..200usize, 0..300usize),
    ) {
        let frame = packet(PAIRS[which], protocol, &payload);
        let head = &frame[..at_hand.min(frame.len())];
        let mut out = std::vec![0; room];
        match parse(head, frame.len() as u32) {
            Ok(Packet { ethernet, content: Content::Ip(ip) }) => {
                let about = Arrived { ethernet: &ethernet, ip: &ip, head };
                for len in [
                    port_unreachable(&about, &mut out),
                    protocol_unreachable(&about, &mut out),
                ] {
                    prop_assert!(len.is_none_or(|len| len <= room));
                }
            }
            Err(Stop::Answer(problem)) => {
                let (ethernet, _) =
                    <ethernet::Header as zerocopy::FromBytes>::read_from_prefix(head).unwrap();
                let us = Host { mac: US, address: OURS6.into() };
                let len = parameter_problem(us, &ethernet, &problem, head, &mut out);
                prop_assert!(len.is_none_or(|len| len <= room));
            }
            _ => {}
        }
    }
}
