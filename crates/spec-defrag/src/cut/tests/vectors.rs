//! Pieces of which every byte, or every length, is known.

use std::vec::Vec;

use super::{cut, cutter};
use crate::cut::Df;
use crate::wire::tests::frames::{Ipv4, Ipv6, padding, payload};

/// Head and payload lengths of the pieces.
fn lens(frame: &[u8], head_len: usize, mtu: u16) -> Vec<(usize, usize)> {
    let pieces = cut(&mut cutter(Df::Refuse), frame, head_len, mtu).unwrap();
    pieces.iter().map(|(bytes, head_len)| (*head_len, bytes.len() - head_len)).collect()
}

#[test]
fn a_page_leaves_in_the_six_parts_of_the_paper() {
    let udp = Ipv4::default().frame();
    assert_eq!(lens(&udp, 42, 1500), [(42, 1472), (34, 1480), (34, 1144)]);
    let tcp = Ipv4 { protocol: 6, payload: payload(4096 + 20), ..Ipv4::default() }.frame();
    assert_eq!(lens(&tcp, 54, 1500), [(54, 1460), (34, 1480), (34, 1156)]);
    let tcp = Ipv4 { protocol: 6, payload: payload(4096 + 32), ..Ipv4::default() }.frame();
    assert_eq!(lens(&tcp, 66, 1500), [(66, 1448), (34, 1480), (34, 1168)]);
    let udp = Ipv6::default().frame();
    assert_eq!(lens(&udp, 62, 1500), [(70, 1440), (62, 1448), (62, 1208)]);
}

#[test]
fn larger_pages_leave_in_more() {
    for (page, pieces) in [(8192, 6), (16_384, 12), (65_507, 45)] {
        let frame = Ipv4 { payload: payload(8 + page), ..Ipv4::default() }.frame();
        let lens = lens(&frame, 42, 1500);
        assert_eq!(lens.len(), pieces, "{page}");
        assert_eq!(lens.iter().map(|(_, payload)| payload).sum::<usize>(), page);
    }
    let longest = Ipv6 { payload: payload(65_535), ..Ipv6::default() }.frame();
    assert_eq!(lens(&longest, 62, 1500).len(), 46);
}

/// The sums by hand: 4501 + 0007 + 4011 + 0a00 + 0001 + 0a00 + 0002 = 991c, and with
/// the length and the place of each piece 991c + 05dc + 2000 = bef8, 991c + 05dc +
/// 20b9 = bfb1, 991c + 048c + 0172 = 9f1a.
#[test]
fn the_headers_of_a_page_byte_for_byte() {
    let frame = Ipv4 { id: 0x0007, traffic_class: 1, ..Ipv4::default() }.frame();
    let pieces = cut(&mut cutter(Df::Refuse), &frame, 42, 1500).unwrap();
    let expected: [[u8; 20]; 3] = [
        [0x45, 1, 0x05, 0xdc, 0, 7, 0x20, 0x00, 64, 17, 0x41, 0x07, 10, 0, 0, 1, 10, 0, 0, 2],
        [0x45, 1, 0x05, 0xdc, 0, 7, 0x20, 0xb9, 64, 17, 0x40, 0x4e, 10, 0, 0, 1, 10, 0, 0, 2],
        [0x45, 1, 0x04, 0x8c, 0, 7, 0x01, 0x72, 64, 17, 0x60, 0xe5, 10, 0, 0, 1, 10, 0, 0, 2],
    ];
    for ((piece, _), header) in pieces.iter().zip(&expected) {
        assert_eq!(piece[..14], frame[..14]);
        assert_eq!(piece[14..34], *header);
    }
    assert_eq!(pieces[1].0[34..], frame[34 + 1480..34 + 2960]);
}

#[test]
fn the_headers_of_a_page_over_ipv6_byte_for_byte() {
    let frame = Ipv6 { headers: std::vec![padding(0, 0)], ..Ipv6::default() }.frame();
    let mut cutter = cutter(Df::Refuse);
    let pieces = cut(&mut cutter, &frame, 70, 1500).unwrap();
    let id = &pieces[0].0[66..70];
    for (nth, (len, offset_and_more)) in
        [(0x05b0_u16, 0x0001_u16), (0x05b0, 0x05a1), (0x04d8, 0x0b40)].into_iter().enumerate()
    {
        let mut expected = frame[..62].to_vec();
        expected[18..20].copy_from_slice(&len.to_be_bytes());
        expected[54] = 44;
        expected.extend([17, 0]);
        expected.extend(offset_and_more.to_be_bytes());
        expected.extend(id);
        assert_eq!(pieces[nth].0[..70], expected, "piece {nth}");
    }
    let next = cut(&mut cutter, &frame, 70, 1500).unwrap();
    assert_ne!(&next[0].0[66..70], id, "another packet has another name");
}

#[test]
fn the_shortest_mtu_carries_the_longest_headers() {
    // 60 bytes of header leave 8; half of the TCP header comes in the second piece.
    let options = [&[7, 39, 4][..], &[0; 36], &[0]].concat();
    let frame = Ipv4 { options, protocol: 6, payload: payload(60), ..Ipv4::default() }.frame();
    assert_eq!(lens(&frame, 74 + 20, 68), [(74 + 8, 0), (34 + 12, 36), (34, 4)]);
}
