//! Frames of which every byte is known.

use landfall_inet::{checksum, ipv4};
use landfall_placement::{Ecn, Refusal};

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
