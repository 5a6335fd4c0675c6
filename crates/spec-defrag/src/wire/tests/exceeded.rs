//! The message that a packet was given up, and to whom it is not sent.

use std::vec::Vec;

use etherparse::{Icmpv4Type, Icmpv6Type, SlicedPacket, TransportSlice, icmpv4, icmpv6};
use proptest::prelude::*;

use super::frames::{Ipv4, Ipv6, padding, payload, piece};
use crate::wire::{parse, time_exceeded};

/// What is said of a frame whose first `known` bytes of payload are known.
fn said_of(frame: &[u8], known: usize) -> Option<Vec<u8>> {
    let parsed = parse(frame, frame.len() as u32).unwrap();
    let (head, payload) = frame.split_at(parsed.payload_at.into());
    time_exceeded(head, &parsed, &payload[..known.min(payload.len())])
}

fn first(protocol: u8, payload: Vec<u8>) -> Ipv4 {
    Ipv4 { flags_and_offset: 0x2000, protocol, payload, ..Ipv4::default() }
}

fn first_v6(protocol: u8, payload: Vec<u8>) -> Ipv6 {
    Ipv6 { headers: std::vec![piece(0, true, 3)], protocol, payload, ..Ipv6::default() }
}

#[test]
fn the_message_of_ipv4_byte_for_byte() {
    let frame = first(17, std::vec![0x11, 0x22, 0x33, 0x44, 0, 0x10, 0, 0]).frame();
    // Sums by hand. The IP header: 45c0 + 0038 + 4000 + 4001 + 0a00 + 0002 + 0a00 +
    // 0001 = d9fc. The message: 0b01, and the quoted header, which sums to ffff with
    // its own checksum (so adds nothing), and 1122 + 3344 + 0010: 4f77.
    let expected = [
        &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..],
        &[0x45, 0xc0, 0, 0x38, 0, 0, 0x40, 0, 64, 1, 0x26, 0x03, 10, 0, 0, 2, 10, 0, 0, 1],
        &[11, 1, 0xb0, 0x88, 0, 0, 0, 0],
        &frame[14..],
    ]
    .concat();
    assert_eq!(said_of(&frame, 8), Some(expected));
}

#[test]
fn others_understand_it() {
    for (len, quoted) in [(8, 8), (64, 64), (2000, 576 - 20 - 8 - 20)] {
        let frame = first(17, payload(len)).frame();
        let said = said_of(&frame, len).unwrap();
        let sliced = SlicedPacket::from_ethernet(&said).unwrap();
        let Some(TransportSlice::Icmpv4(icmp)) = sliced.transport else { panic!("{sliced:?}") };
        let code = icmpv4::TimeExceededCode::FragmentReassemblyTimeExceeded;
        assert_eq!(icmp.icmp_type(), Icmpv4Type::TimeExceeded(code));
        assert_eq!(icmp.icmp_type().calc_checksum(icmp.payload()), icmp.checksum());
        assert_eq!(icmp.payload(), &frame[14..34 + quoted]);
    }
    for (len, quoted) in [(8, 8), (1000, 1000), (1448, 1280 - 40 - 8 - 48)] {
        let frame = first_v6(17, payload(len)).frame();
        let said = said_of(&frame, len).unwrap();
        let sliced = SlicedPacket::from_ethernet(&said).unwrap();
        let Some(TransportSlice::Icmpv6(icmp)) = sliced.transport else { panic!("{sliced:?}") };
        let code = icmpv6::TimeExceededCode::FragmentReassemblyTimeExceeded;
        assert_eq!(icmp.icmp_type(), Icmpv6Type::TimeExceeded(code));
        let address = |host| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
        assert!(icmp.is_checksum_valid(address(2), address(1)));
        assert_eq!(icmp.payload(), &frame[14..62 + quoted]);
    }
}

#[test]
fn only_the_first_piece_of_a_packet_is_answered() {
    for (flags_and_offset, is_answered) in [(0x2000, true), (0x2001, false), (1, false), (0, false)]
    {
        let frame = Ipv4 { flags_and_offset, payload: payload(64), ..Ipv4::default() }.frame();
        assert_eq!(said_of(&frame, 64).is_some(), is_answered, "{flags_and_offset:x}");
    }
}

#[test]
fn groups_and_nobody_are_not_answered() {
    let plain = first(17, payload(64)).frame();
    let changes: [(usize, &[u8]); 9] = [
        (0, &[0xff; 6]),             // to all stations
        (0, &[0x01]),                // to a group of stations
        (6, &[0x01]),                // from a group of stations
        (26, &[224, 0, 0, 1]),       // from a group
        (26, &[127, 0, 0, 1]),       // from loopback
        (26, &[0, 0, 0, 0]),         // from nobody
        (26, &[255; 4]),             // from all
        (30, &[239, 1, 1, 1]),       // to a group
        (30, &[255, 255, 255, 255]), // to all
    ];
    for (at, bytes) in changes {
        let mut frame = plain.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        super::frames::seal(&mut frame);
        assert_eq!(said_of(&frame, 64), None, "{at}: {bytes:x?}");
    }
    let plain = first_v6(17, payload(64)).frame();
    for (at, bytes) in [(22, [0xff, 2]), (38, [0xff, 2])] {
        let mut frame = plain.clone();
        frame[at..at + 2].copy_from_slice(&bytes);
        assert_eq!(said_of(&frame, 64), None, "{at}");
    }
    for last in [0, 1] {
        let mut frame = plain.clone();
        frame[22..38].fill(0);
        frame[37] = last;
        assert_eq!(said_of(&frame, 64), None, "::{last}");
    }
}

#[test]
fn errors_are_not_answered_with_errors() {
    for kind in 0..=255 {
        let message = [&[kind][..], &payload(63)].concat();
        let said = said_of(&first(1, message.clone()).frame(), 64);
        assert_eq!(said.is_none(), [3, 4, 5, 11, 12].contains(&kind), "ICMP {kind}");
        let said = said_of(&first_v6(58, message.clone()).frame(), 64);
        assert_eq!(said.is_none(), kind < 128 || kind == 137, "ICMPv6 {kind}");
        // The message lies behind options for the last station.
        let mut behind = first_v6(58, message);
        behind.headers.push(padding(60, 1));
        let said = said_of(&behind.frame(), 80);
        assert_eq!(said.is_none(), kind < 128 || kind == 137, "ICMPv6 {kind}, behind options");
    }
    let echo = [&[128][..], &payload(63)].concat();
    assert_eq!(said_of(&first_v6(58, echo.clone()).frame(), 0), None, "it may be an error");
    assert_eq!(said_of(&first(1, echo).frame(), 0), None, "it may be an error");
}

proptest! {
    #[test]
    fn no_message_is_longer_than_every_link_carries(len in 0..2000_usize, known in 0..2000_usize) {
        let frame = first(17, payload(len.next_multiple_of(8).max(8))).frame();
        prop_assert!(said_of(&frame, known).unwrap().len() <= 14 + 576);
        let frame = first_v6(17, payload(len.next_multiple_of(8).max(8))).frame();
        prop_assert!(said_of(&frame, known).unwrap().len() <= 14 + 1280);
    }
}
