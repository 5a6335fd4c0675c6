//! Frames of which every byte is known.
//!
//! IPv6, and what may stand before its fragment header.

use std::vec::Vec;

use landfall_inet::{checksum, ipv4};
use landfall_placement::{Ecn, Refusal};

use super::frames::{Ipv6, padding, payload, piece, routing};
use crate::wire::{Fragment, Key, Parsed, Stop, adapt, parse, transport_len, whole_head};

/// The second of three pieces of 4096 bytes over UDP. The sum by hand:
/// 4500 + 05dc + 1234 + 20b9 + 4011 + 0a00 + 0001 + 0a00 + 0002 = d1dd.
const SECOND: [u8; 34] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // stations, IPv4
    0x45, 0x00, 0x05, 0xdc, 0x12, 0x34, 0x20, 0xb9, // 1500 bytes, id, more, offset 1480
    0x40, 0x11, 0x2e, 0x22, // 64 routers, UDP, !d1dd
    10, 0, 0, 1, 10, 0, 0, 2,
];

#[test]
fn a_plain_piece_is_read() {
    let expected = Parsed {
        key: Key { source: 0x0a00_0001, destination: 0x0a00_0002, id: 0x1234, protocol: 17 },
        fragment: Some(Fragment { id: 0x1234, offset: 1480, more: true }),
        protocol: 17,
        network_at: 14,
        payload_at: 34,
        payload_len: 1480,
        ecn: Ecn::NotCapable,
    };
    assert_eq!(parse(&SECOND, 1514), Ok(expected));
    assert_eq!(parse(&SECOND, 1518), Ok(expected), "padding does not count");
    assert_eq!(parse(&SECOND, 1513), Err(Stop::Refused(Refusal::Truncated)));
    assert_eq!(parse(&SECOND[..33], 1514), Err(Stop::NeedHead(34)));
}

#[test]
fn every_flipped_bit_of_a_piece_is_noticed() {
    for bit in 14 * 8..SECOND.len() * 8 {
        let mut frame = SECOND;
        frame[bit / 8] ^= 1 << (bit % 8);
        let read = parse(&frame, 1514);
        assert!(!matches!(read, Ok(Parsed { fragment: Some(_), .. })), "bit {bit}: {read:?}");
    }
}

#[test]
fn the_whole_head_of_a_packet_in_pieces() {
    let mut first = SECOND;
    first[21] = 0; // offset 0: the sum is 00b9 less
    first[24..26].copy_from_slice(&[0x2e, 0xdb]);
    let parsed = parse(&first, 1514).unwrap();
    let whole = whole_head(&first, &parsed, 4104, Ecn::CongestionExperienced).unwrap();
    // 4503 + 101c + 1234 + 0000 + 4011 + 0a00 + 0001 + 0a00 + 0002 = bb67
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0x03, 0x10, 0x1c, 0x12, 0x34, 0, 0,
        0x40, 0x11, 0x44, 0x98, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    assert_eq!(whole.as_slice(), expected);
    let with_transport = [&first[..], &[7; 8]].concat();
    let adapted = adapt(&with_transport, 34, 4096).unwrap();
    assert_eq!(adapted[34..], [7; 8]);
    let unmarked = whole_head(&first, &parsed, 4104, Ecn::NotCapable).unwrap();
    assert_eq!(adapted[..34], *unmarked);
    assert_eq!(adapt(&with_transport, 34, 65_535 - 27), None, "too long");
    assert_eq!(adapt(&with_transport, 43, 8), None);
    let most = 65_535 - 20;
    assert!(whole_head(&first, &parsed, most, Ecn::NotCapable).is_ok());
    for len in [most + 1, u32::MAX] {
        let refused = whole_head(&first, &parsed, len, Ecn::NotCapable);
        assert_eq!(refused, Err(Refusal::OutOfBounds));
    }
    assert_eq!(whole_head(&first[..33], &parsed, 8, parsed.ecn), Err(Refusal::Truncated));
}

#[test]
fn a_header_is_sealed_whatever_its_sum_was() {
    let mut header = SECOND[14..].to_vec();
    header[10..12].fill(0xaa);
    ipv4::seal(&mut header);
    assert_eq!(header, SECOND[14..]);
    // With options: d1dd + 0100 (the header is a word longer) + 0102 + fffe = d3de.
    header[0] = 0x46;
    header.extend([0x01, 0x02, 0xff, 0xfe]);
    ipv4::seal(&mut header);
    assert_eq!(header[10..12], [0x2c, 0x21]);
    assert_eq!(checksum::sum_of_words(&header), 0xffff);
    let mut short = [7; 19];
    ipv4::seal(&mut short);
    assert_eq!(short, [7; 19]);
}

#[test]
fn transport_headers_have_their_lengths() {
    let mut tcp = [0; 60];
    tcp[12] = 0x80;
    assert_eq!(transport_len(6, &tcp), Some(32));
    assert_eq!(transport_len(6, &tcp[..31]), None);
    assert_eq!(transport_len(6, &tcp[..12]), None);
    tcp[12] = 0x40;
    assert_eq!(transport_len(6, &tcp), Some(0), "no TCP header is so short");
    for protocol in [1, 17, 58] {
        assert_eq!(transport_len(protocol, &tcp[..8]), Some(8));
        assert_eq!(transport_len(protocol, &tcp[..7]), None);
    }
    assert_eq!(transport_len(132, &[]), Some(0));
}

/// A first piece with 16 bytes of hop-by-hop options, byte for byte.
const FIRST: [u8; 78] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, // stations, IPv6
    0x60, 0x20, 0x00, 0x07, 0x05, 0xa8, 0x00, 0x40, // ECT(0), 1448 bytes, hop-by-hop, 64
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    0x2c, 0x01, 0x01, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // a fragment header follows
    0x11, 0x00, 0x00, 0x01, 0xde, 0xad, 0xbe, 0xef, // UDP, offset 0, more
];

const PARSED: Parsed = Parsed {
    key: Key {
        source: 0xfd << 120 | 1,
        destination: 0xfd << 120 | 2,
        id: 0xdead_beef,
        protocol: Key::IPV6,
    },
    fragment: Some(Fragment { id: 0xdead_beef, offset: 0, more: true }),
    protocol: 17,
    network_at: 14,
    payload_at: 78,
    payload_len: 1424,
    ecn: Ecn::Capable0,
};

fn refused(refusal: Refusal) -> Result<Parsed, Stop> {
    Err(Stop::Refused(refusal))
}

fn read(frame: &Ipv6) -> Result<Parsed, Stop> {
    let bytes = frame.frame();
    parse(&bytes, bytes.len() as u32)
}

#[test]
fn a_piece_behind_options_is_read() {
    assert_eq!(parse(&FIRST, 1502), Ok(PARSED));
    assert_eq!(parse(&FIRST, 1600), Ok(PARSED), "padding does not count");
    assert_eq!(parse(&FIRST, 1501), refused(Refusal::Truncated));
    assert_eq!(parse(&FIRST[..77], 1502), Err(Stop::NeedHead(78)));
    assert_eq!(parse(&FIRST[..56], 1502), Err(Stop::NeedHead(62)));
    assert_eq!(parse(&FIRST[..40], 1502), Err(Stop::NeedHead(54)));
}

#[test]
fn its_fragment_header_is_taken_out() {
    let whole = whole_head(&FIRST, &PARSED, 4104, Ecn::CongestionExperienced).unwrap();
    let mut expected = FIRST[..70].to_vec();
    expected[15] = 0x30; // congestion
    expected[18..20].copy_from_slice(&[0x10, 0x18]); // 16 + 4104
    expected[54] = 0x11; // UDP follows the options
    assert_eq!(whole.as_slice(), expected);

    let adapted = adapt(&[&FIRST[..], &[7; 8]].concat(), 78, 4096).unwrap();
    expected[15] = 0x20;
    assert_eq!(adapted.as_slice(), [&expected[..], &[7; 8]].concat());

    assert!(whole_head(&FIRST, &PARSED, 65_535 - 16, Ecn::Capable0).is_ok());
    let too_long = whole_head(&FIRST, &PARSED, 65_535 - 15, Ecn::Capable0);
    assert_eq!(too_long, Err(Refusal::OutOfBounds));
}

#[test]
fn without_options_the_ipv6_header_names_what_follows() {
    let frame = Ipv6 { headers: std::vec![piece(0, true, 9)], ..Ipv6::default() }.frame();
    let parsed = parse(&frame, frame.len() as u32).unwrap();
    assert_eq!((parsed.payload_at, parsed.payload_len), (62, 4104));
    let whole = whole_head(&frame, &parsed, 8, Ecn::NotCapable).unwrap();
    assert_eq!(whole.len(), 54);
    assert_eq!(whole[18..21], [0, 8, 17]);
}

#[test]
fn who_is_on_its_way_is_not_joined() {
    for (left, is_foreign) in [(0, false), (1, true), (255, true)] {
        let headers = std::vec![padding(60, 0), routing(left), piece(8, false, 1)];
        let parsed = read(&Ipv6 { headers, ..Ipv6::default() });
        assert_eq!(parsed == Err(Stop::Foreign), is_foreign, "{left} stations left: {parsed:?}");
    }
}

#[test]
fn headers_longer_than_a_head_are_for_whoever_is_above() {
    // 14 + 40 + 136 = 190 bytes fit in 192, the next 8 do not.
    for (more, fits) in [(16, true), (17, false)] {
        let headers = std::vec![padding(0, more), piece(0, true, 1)];
        let frame = Ipv6 { headers, ..Ipv6::default() };
        match read(&frame) {
            Ok(parsed) => {
                assert!(fits && whole_head(&frame.frame(), &parsed, 8, parsed.ecn).is_ok());
            }
            Err(stop) => assert!(!fits && stop == Stop::Foreign, "{stop:?}"),
        }
    }
}

#[test]
fn pieces_that_cannot_be_are_refused() {
    let with = |offset, more, len| Ipv6 {
        headers: std::vec![piece(offset, more, 1)],
        payload: payload(len),
        ..Ipv6::default()
    };
    assert_eq!(read(&with(0, true, 1447)), refused(Refusal::Malformed), "no multiple of 8");
    assert_eq!(read(&with(8, true, 0)), refused(Refusal::Malformed), "empty");
    assert_eq!(read(&with(8, false, 0)), refused(Refusal::Malformed), "empty");
    assert_eq!(read(&with(0, true, 0)), refused(Refusal::Malformed), "empty");
    assert_eq!(read(&with(65_528, false, 8)), refused(Refusal::OutOfBounds));
    assert!(read(&with(65_528, false, 7)).is_ok(), "the last byte that a packet may have");
    assert!(read(&with(65_528, true, 8)).is_err());
    let mut cut_off = with(8, false, 1).frame();
    cut_off[18..20].copy_from_slice(&[0, 7]);
    assert_eq!(parse(&cut_off, 300), refused(Refusal::Truncated), "half of a fragment header");
}

#[test]
fn atomic_pieces_are_whole_packets() {
    for len in [0, 1, 1000] {
        let frame = Ipv6 {
            headers: std::vec![piece(0, false, 5)],
            payload: payload(len),
            ..Ipv6::default()
        };
        let parsed = read(&frame).unwrap();
        assert!(parsed.fragment.unwrap().is_atomic() && parsed.payload_len == len as u32);
    }
}

#[test]
fn whole_packets_of_any_kind_pass() {
    let parsed = read(&Ipv6::default()).unwrap();
    assert_eq!((parsed.fragment, parsed.payload_at, parsed.key.id), (None, 54, 0));
    // A proof of who sent: nothing here looks behind it.
    let headers = std::vec![(51, std::vec![4; 23])];
    assert_eq!(read(&Ipv6 { headers, ..Ipv6::default() }).unwrap().protocol, 51);
    let mut jumbo = Ipv6 { headers: std::vec![padding(0, 0)], ..Ipv6::default() }.frame();
    jumbo[18..20].fill(0);
    assert_eq!(parse(&jumbo, jumbo.len() as u32), Err(Stop::Foreign));
}

#[test]
fn any_other_frame_is_foreign() {
    let plain = Ipv6 { payload: payload(100), ..Ipv6::default() }.frame();
    let odd: [(usize, &[u8]); 4] = [
        (12, &[0x81, 0x00]), // a VLAN tag
        (12, &[0x08, 0x06]), // ARP
        (14, &[0x40]),       // a version that the link does not name
        (18, &[0x40, 0x00]), // longer than the frame
    ];
    for (at, bytes) in odd {
        let mut frame: Vec<u8> = plain.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(parse(&frame, frame.len() as u32), Err(Stop::Foreign), "{at}: {bytes:x?}");
    }
    for len in 0..54 {
        assert_eq!(parse(&plain, len), Err(Stop::Foreign), "a frame of {len}");
    }
}
