//! Packets by hand: extension headers and their rules, what is refused and why.

use core::net::{IpAddr, Ipv6Addr};
use std::vec::Vec;

use landfall_placement::Refusal;

use super::foreign::{MACS, envelope, ip_of};
use crate::ndp::{Advertisement, Neighbour, Solicitation};
use crate::*;

const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x11, 1);
const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x22, 2);

/// An IPv6 frame whose first header is `next` and that carries `rest`.
fn frame(next: u8, rest: &[u8]) -> Vec<u8> {
    let outer = envelope((A.into(), B.into()), next);
    let mut frame = std::vec![0; outer.header_len()];
    outer.write(&mut frame, rest.len() as u32).unwrap();
    frame.extend(rest);
    frame
}

fn read(frame: &[u8]) -> Result<Packet, Stop> {
    parse(frame, frame.len() as u32)
}

fn problem(code: ProblemCode, pointer: u32, even_to_group: bool) -> Result<Packet, Stop> {
    let (source, destination) = (A, B);
    Err(Stop::Answer(Problem { source, destination, code, pointer, even_to_group }))
}

#[test]
fn all_known_extension_headers_are_passed_over() {
    let rest = [
        &[60, 0, 5, 2, 0, 0, 1, 0][..], // hop-by-hop: router alert, PadN
        &[43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // destination: PadN
        &[44, 0, 0, 0, 0, 0, 0, 0],     // routing, used up
        &[60, 0, 0, 0, 0, 0, 0, 7],     // an atomic fragment
        &[17, 0, 0x1e, 4, 1, 2, 3, 4],  // destination: unknown, may be skipped
        &[0, 1, 0, 2, 0, 8, 0, 9],      // UDP
    ]
    .concat();
    let bytes = frame(0, &rest);
    let ip = ip_of(&bytes);
    assert_eq!((ip.protocol, ip.payload_len, ip.fragment), (17, 8, None));
    assert_eq!((ip.header_len, ip.payload_at), (88, 102));
    assert_eq!(ip.protocol_at, 80, "named by the last destination options");
    // However little is at hand, what is missing is asked for, until all is there.
    for at_hand in 0..102 {
        match parse(&bytes[..at_hand], bytes.len() as u32) {
            Err(Stop::NeedHead(more)) => assert!((at_hand + 1..=102).contains(&usize::from(more))),
            other => panic!("{at_hand} bytes: {other:?}"),
        }
    }
    assert!(parse(&bytes[..102], bytes.len() as u32).is_ok());
    for len in 0..bytes.len() {
        assert_eq!(read(&bytes[..len]), Err(Stop::Refused(Refusal::Truncated)), "cut at {len}");
    }
}

#[test]
fn an_unknown_option_means_what_its_number_says() {
    for (kind, expected) in [
        (0x3e, None),
        (0x7e, Some(Err(Stop::Refused(Refusal::Unsupported)))),
        (0xbe, Some(problem(ProblemCode::UnknownOption, 42, true))),
        (0xfe, Some(problem(ProblemCode::UnknownOption, 42, false))),
    ] {
        for next in [protocol::HOP_BY_HOP, protocol::DESTINATION_OPTIONS] {
            let read = read(&frame(next, &[59, 0, kind, 4, 0, 0, 0, 0]));
            match &expected {
                None => assert!(read.is_ok(), "{kind:#x}"),
                Some(expected) => assert_eq!(read, *expected, "{kind:#x}"),
            }
        }
    }
    let past_the_end = [59, 0, 0x1e, 5, 0, 0, 0, 0];
    assert_eq!(read(&frame(0, &past_the_end)), Err(Stop::Refused(Refusal::Malformed)));
    let no_length = [59, 0, 1, 3, 0, 0, 0, 0x1e];
    assert_eq!(read(&frame(0, &no_length)), Err(Stop::Refused(Refusal::Malformed)));
}

#[test]
fn hop_by_hop_options_come_first_or_are_unknown() {
    let rest = [[0, 0, 1, 4, 0, 0, 0, 0], [59, 0, 1, 4, 0, 0, 0, 0]].concat();
    assert_eq!(
        read(&frame(protocol::DESTINATION_OPTIONS, &rest)),
        problem(ProblemCode::UnknownHeader, 40, false)
    );
}

#[test]
fn a_route_that_goes_on_is_refused() {
    assert_eq!(
        read(&frame(protocol::ROUTING, &[17, 0, 9, 1, 0, 0, 0, 0])),
        problem(ProblemCode::ErroneousField, 42, false)
    );
}

#[test]
fn the_walk_over_headers_is_bounded() {
    let mut rest = Vec::new();
    for _ in 0..200 {
        rest.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    }
    assert_eq!(read(&frame(60, &rest)), Err(Stop::Refused(Refusal::Unsupported)), "too many");
    let mut rest = std::vec![0; 8 * 65];
    rest[..2].copy_from_slice(&[59, 64]);
    assert_eq!(read(&frame(60, &rest)), Err(Stop::Refused(Refusal::Unsupported)), "too long");
    for (second, is_read) in [(31, true), (32, false)] {
        let mut rest = std::vec![0; 8 * 32 + 8 * (second + 1)];
        rest[..2].copy_from_slice(&[60, 31]);
        rest[256..258].copy_from_slice(&[59, second as u8]);
        assert_eq!(read(&frame(60, &rest)).is_ok(), is_read, "too long together");
    }
}

#[test]
fn a_piece_of_a_piece_is_refused() {
    let atomic = [44, 0, 0, 0, 0, 0, 0, 1];
    let piece = [17, 0, 0, 1, 0, 0, 0, 2];
    let nested = [atomic, piece].concat();
    assert_eq!(read(&frame(44, &nested)), Err(Stop::Refused(Refusal::Malformed)));
    let ip = ip_of(&frame(44, &piece));
    let whole = [&piece[..], &[0; 8]].concat();
    let inner = Ip { protocol: protocol::FRAGMENT, ..ip };
    assert_eq!(inner.reassembled(&whole), Err(Stop::Refused(Refusal::Malformed)));
}

#[test]
fn what_pieces_were_cut_from_is_read_on() {
    let ip = ip_of(&frame(44, &[60, 0, 0, 1, 0, 0, 0, 2]));
    assert_eq!((ip.protocol, ip.payload_len), (60, 0));
    let payload = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &[0, 1, 0, 2, 0, 8, 0, 9]].concat();
    let whole = ip.reassembled(&payload).unwrap();
    assert_eq!((whole.protocol, whole.payload_at, whole.payload_len), (17, 8, 8));
    assert_eq!((whole.fragment, whole.protocol_at), (None, 40));
    assert_eq!(whole.udp(&payload).unwrap().header.destination.get(), 2);
    let unknown = whole.unknown_protocol().unwrap();
    assert_eq!((unknown.pointer, unknown.code), (40, ProblemCode::UnknownHeader));
}

#[test]
fn addresses_that_nobody_can_have_are_refused() {
    for (source, destination) in [
        ("224.0.0.1", "192.0.2.1"),
        ("255.255.255.255", "192.0.2.1"),
        ("127.0.0.1", "192.0.2.1"),
        ("ff02::1", "fe80::1"),
        ("::1", "fe80::1"),
    ] {
        let outer = envelope((source.parse().unwrap(), destination.parse().unwrap()), 17);
        let mut bytes = std::vec![0; outer.header_len()];
        outer.write(&mut bytes, 0).unwrap();
        assert_eq!(read(&bytes), Err(Stop::Refused(Refusal::Malformed)), "{source}");
    }
}

#[test]
fn a_packet_that_is_cut_off_is_refused() {
    for (hosts, len) in [(("192.0.2.1", "192.0.2.2"), 34), (("fe80::1", "fe80::2"), 54)] {
        let hosts = (hosts.0.parse().unwrap(), hosts.1.parse().unwrap());
        let mut bytes = std::vec![0; len + 100];
        envelope(hosts, protocol::UDP).write(&mut bytes, 100).unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Err(Stop::Refused(Refusal::Truncated)), "{cut}");
        }
        assert!(read(&bytes).is_ok());
        // What is said of lengths is believed before the rest is there.
        assert_eq!(parse(&bytes[..len], bytes.len() as u32), read(&bytes));
    }
}

#[test]
fn an_ipv4_header_is_checked_with_its_options() {
    let hosts = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let mut bytes = std::vec![0; 38 + 8];
    envelope(hosts, protocol::UDP).write(&mut bytes, 4 + 8).unwrap();
    bytes[14] = 0x46; // one word of options
    bytes[34..38].copy_from_slice(&[0x94, 4, 0, 0]); // router alert
    bytes[24..26].fill(0);
    let sum = checksum::checksum(&bytes[14..38]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!((ip_of(&bytes).payload_at, ip_of(&bytes).payload_len), (38, 8));
    assert_eq!(parse(&bytes[..34], 46), Err(Stop::NeedHead(38)));
    bytes[36] = 1;
    assert_eq!(read(&bytes), Err(Stop::Refused(Refusal::BadChecksum)));
}

#[test]
fn lengths_of_tcp_and_udp_are_checked_against_the_packet() {
    let hosts: (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let mut bytes = std::vec![0; 34 + 24];
    envelope(hosts, protocol::TCP).write(&mut bytes, 24).unwrap();
    for (words, expected) in
        [(5, None), (6, None), (4, Some(Refusal::Malformed)), (7, Some(Refusal::Truncated))]
    {
        bytes[34 + 12] = words << 4;
        let tcp = ip_of(&bytes).tcp(&bytes);
        match expected {
            None => assert_eq!(tcp.unwrap().payload_len, 24 - 4 * u32::from(words)),
            Some(refusal) => assert_eq!(tcp, Err(Stop::Refused(refusal)), "{words} words"),
        }
    }
    bytes[34 + 12] = 6 << 4;
    assert_eq!(ip_of(&bytes).tcp(&bytes[..54]), Err(Stop::NeedHead(58)));

    envelope(hosts, protocol::UDP).write(&mut bytes, 24).unwrap();
    for (len, expected) in [
        (8, None),
        (24, None),
        (7, Some(Refusal::Malformed)),
        (0, Some(Refusal::Malformed)),
        (25, Some(Refusal::Truncated)),
    ] {
        bytes[34 + 5] = len;
        let udp = ip_of(&bytes).udp(&bytes);
        match expected {
            None => assert_eq!(udp.unwrap().payload_len, u32::from(len) - 8),
            Some(refusal) => assert_eq!(udp, Err(Stop::Refused(refusal)), "length {len}"),
        }
    }
    let bytes = frame(protocol::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]);
    let udp = ip_of(&bytes).udp(&bytes);
    assert_eq!(udp, Err(Stop::Refused(Refusal::BadChecksum)), "IPv6 wants a checksum");
}

/// A message about neighbours in its frame, read back.
fn discovery(
    (source, destination): (Ipv6Addr, Ipv6Addr),
    hop_limit: u8,
    write: impl Fn(&mut [u8], u16) -> Option<usize>,
) -> Result<Neighbour, Refusal> {
    let mut message = [0; ndp::LEN];
    let len = write(&mut message, 0).unwrap();
    let outer =
        Envelope { hop_limit, ..envelope((source.into(), destination.into()), protocol::ICMP6) };
    let mut bytes = std::vec![0; outer.header_len() + len];
    let at = outer.write(&mut bytes, len as u32).unwrap();
    write(&mut bytes[at..], outer.pseudo(len as u32)).unwrap();
    let ip = ip_of(&bytes);
    let message = ip.payload(&bytes).unwrap();
    assert_eq!(icmp6::read(message, ip.pseudo(ip.payload_len)), Ok(icmp6::Message::Discovery));
    ndp::read(&ip, message)
}

#[test]
fn neighbours_ask_and_answer() {
    let asked = Solicitation { target: B, station: Some(MACS.0) };
    let group = ndp::solicited_node(B);
    assert_eq!(group, "ff02::1:ff22:2".parse::<Ipv6Addr>().unwrap());
    assert_eq!(ndp::group_mac(group), [0x33, 0x33, 0xff, 0x22, 0, 2]);
    let read = discovery((A, group), 255, |into, sum| asked.write(into, sum));
    assert_eq!(read, Ok(Neighbour::Solicitation(asked)));
    for (is_router, is_solicited, is_override) in
        [(true, false, false), (false, true, false), (false, false, true), (false, true, true)]
    {
        let station = Some(MACS.1);
        let answer = Advertisement { target: B, station, is_router, is_solicited, is_override };
        let read = discovery((B, A), 255, |into, sum| answer.write(into, sum));
        assert_eq!(read, Ok(Neighbour::Advertisement(answer)));
    }
}

#[test]
fn messages_that_break_a_rule_of_discovery_are_refused() {
    let asked = Solicitation { target: B, station: Some(MACS.0) };
    let write = |into: &mut [u8], sum| asked.write(into, sum);
    assert_eq!(discovery((A, B), 254, write), Err(Refusal::Forbidden), "through a router");
    let nobody = Ipv6Addr::UNSPECIFIED;
    let group = ndp::solicited_node(B);
    assert_eq!(discovery((nobody, group), 255, write), Err(Refusal::Malformed));
    let probe = Solicitation { target: B, station: None };
    let write = |into: &mut [u8], sum| probe.write(into, sum);
    assert_eq!(discovery((nobody, group), 255, write), Ok(Neighbour::Solicitation(probe)));
    assert_eq!(discovery((nobody, B), 255, write), Err(Refusal::Malformed), "not to the group");
    let to_group = Solicitation { target: group, station: None };
    let write = |into: &mut [u8], sum| to_group.write(into, sum);
    assert_eq!(discovery((A, group), 255, write), Err(Refusal::Malformed));
    let answer = Advertisement {
        target: B,
        station: Some(MACS.1),
        is_router: false,
        is_solicited: true,
        is_override: true,
    };
    let write = |into: &mut [u8], sum| answer.write(into, sum);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(discovery((B, all_nodes), 255, write), Err(Refusal::Malformed));
    let of_group = Advertisement { station: Some([1, 0, 0, 0, 0, 0]), ..answer };
    let write = |into: &mut [u8], sum| of_group.write(into, sum);
    assert_eq!(discovery((B, A), 255, write), Err(Refusal::Malformed));
}

#[test]
fn an_envelope_says_no_to_what_cannot_be() {
    let mixed = envelope((A.into(), "192.0.2.1".parse().unwrap()), 6);
    assert_eq!(mixed.write(&mut [0; 100], 0), None, "two versions");
    let outer = envelope((A.into(), B.into()), 6);
    assert_eq!(outer.write(&mut [0; 53], 0), None, "no room");
    assert_eq!(outer.write(&mut [0; 54], 65_536), None, "too long");
    assert_eq!(outer.write(&mut [0; 54], u32::MAX), None, "much too long");
    assert_eq!(outer.write(&mut [0; 54], 65_535), Some(54));
}
