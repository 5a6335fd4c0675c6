//! What makes a packet, clause by clause.

use std::slice;

use landfall_placement::Duration;
use spec_defrag::model::{Flow, Shape, cut, seal};
use spec_defrag::reassembly::{Config, DropReason, Link, Outcome, Reassembler};

use super::*;
use crate::support::{Sent, TCP6, UDP, moved, resized, twin};

#[test]
fn rfc791_3_2_fragments_in_any_order_make_the_packet_with_a_mended_header() {
    const ORDERS: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for flow in [UDP, Flow(1), Flow(6), TCP6] {
        for order in ORDERS {
            let mut reassembler = reassembler();
            let Sent { packet, pieces } = sent(flow, 9, 4096);
            let frames = order.map(|at| pieces[at].clone());
            assert_eq!(packets(&mut reassembler, &frames), slice::from_ref(&packet), "{order:?}");
            assert_eq!((reassembler.packets(), reassembler.counters().packets), (0, 1));
            // A second opinion on what came out.
            let read = etherparse::SlicedPacket::from_ethernet(&packet).unwrap();
            assert!(!read.is_ip_payload_fragmented());
        }
    }
}

#[test]
fn pieces_lie_where_they_came_and_those_in_order_are_one() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let Sent { packet, pieces } = sent(flow, 1, 4096);
        let [a, b, c] = &pieces[..] else { panic!() };
        for frame in [a, b] {
            assert!(matches!(reassembler.offer(NOW, frame), Outcome::Kept));
        }
        let whole = reassembler.offer(NOW, c).packet().unwrap();
        let lists: Vec<&[u8]> = whole.pieces().collect();
        assert_eq!(lists.len(), 2, "what was kept, and the frame that came last");
        assert!(c.as_ptr_range().contains(&lists[1].as_ptr()), "it was not copied");
        assert_eq!([whole.head(), lists[0], lists[1]].concat(), packet);
        assert_eq!((whole.len(), whole.fragments()), (packet.len(), 3));
        assert!(whole.copy_to(&mut vec![0; packet.len() - 1]).is_err());
    }
}

#[test]
fn what_is_no_fragment_is_passed_on() {
    let mut reassembler = reassembler();
    let whole = UDP.packet(&Shape { len: 100, ..Shape::default() });
    let mut arp = whole.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    for frame in [&whole[..], &arp, &whole[..9], &[], &whole[..14], &whole[..20]] {
        assert!(matches!(reassembler.offer(NOW, frame), Outcome::NotFragment));
    }
    assert_eq!(reassembler.counters().not_fragments, 6);
}

#[test]
fn rfc1122_3_3_2_time_runs_from_the_fragment_that_came_first() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let lifetime = config().lifetime;
        let Sent { packet, pieces } = sent(flow, 1, 4096);
        assert!(matches!(reassembler.offer(NOW, &pieces[1]), Outcome::Kept));
        let almost = NOW + lifetime - Duration::from_nanos(1);
        assert!(matches!(reassembler.offer(almost, &pieces[0]), Outcome::Kept));
        assert_eq!(reassembler.poll_timeout(), Some(NOW + lifetime));
        // A fragment that is late begins the packet anew.
        assert!(matches!(reassembler.offer(NOW + lifetime, &pieces[2]), Outcome::Kept));
        assert_eq!(reassembler.counters().expired, 1);
        let rest = &pieces[..2];
        let late: Vec<_> = rest
            .iter()
            .filter_map(|frame| packet_at(&mut reassembler, NOW + lifetime, frame))
            .collect();
        assert_eq!(late, [packet]);
        assert_eq!(reassembler.poll_timeout(), None);
    }
}

#[test]
fn rfc5722_an_overlap_ends_the_packet_silently_with_all_that_follows() {
    for flow in BOTH {
        for (units, len) in [(1, 8), (184, 16), (180, 1400)] {
            let mut reassembler = reassembler();
            let Sent { packet, pieces } = sent(flow, 1, 4096);
            assert!(packets(&mut reassembler, &pieces[..2]).is_empty());
            let over = moved(&resized(&pieces[1], len), units, true);
            expect_dropped(&mut reassembler, &over, DropReason::Overlap);
            for piece in &pieces {
                expect_dropped(&mut reassembler, piece, DropReason::Ended);
            }
            reassembler.handle_timeout(NOW + config().lifetime);
            assert_eq!(reassembler.poll_ended(), None, "silently");
            let came: Vec<_> = pieces
                .iter()
                .filter_map(|frame| packet_at(&mut reassembler, NOW + config().lifetime, frame))
                .collect();
            assert_eq!(came, [packet], "its time is over");
        }
    }
}

#[test]
fn rfc8200_4_5_an_exact_duplicate_is_passed_over_and_one_with_other_bytes_ends_the_packet() {
    for flow in BOTH {
        for at in 0..2 {
            let mut reassembler = reassembler();
            let Sent { packet, pieces } = sent(flow, 1, 4096);
            assert!(packets(&mut reassembler, &pieces[..2]).is_empty());
            expect_dropped(&mut reassembler, &pieces[at], DropReason::Duplicate);
            assert_eq!(packets(&mut reassembler, &pieces[2..]), [packet]);
            assert!(packets(&mut reassembler, &pieces[..2]).is_empty());
            expect_dropped(&mut reassembler, &twin(&pieces[at]), DropReason::Overlap);
            expect_dropped(&mut reassembler, &pieces[2], DropReason::Ended);
        }
    }
}

#[test]
fn fragments_that_disagree_where_the_packet_ends_end_it() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let Sent { pieces, .. } = sent(flow, 1, 4096);
        assert!(packets(&mut reassembler, &pieces[1..]).is_empty());
        let beyond = moved(&pieces[1], 1000, true);
        expect_dropped(&mut reassembler, &beyond, DropReason::Overlap);
        expect_dropped(&mut reassembler, &pieces[0], DropReason::Ended);
    }
}

#[test]
fn rfc8200_4_5_a_length_that_is_no_multiple_of_eight_is_dropped_alone() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let Sent { packet, pieces } = sent(flow, 1, 4096);
        for len in [1, 7, 1001] {
            expect_dropped(&mut reassembler, &resized(&pieces[0], len), DropReason::BadLength);
        }
        assert_eq!(reassembler.packets(), 0);
        expect_dropped(&mut reassembler, &resized(&pieces[1], 0), DropReason::BadLength);
        assert_eq!(packets(&mut reassembler, &pieces), [packet]);
    }
}

#[test]
fn rfc8200_4_5_beyond_65535_is_dropped_alone_and_the_longest_packet_comes_out() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let Sent { packet, pieces } = sent(flow, 1, 65_535);
        let last = moved(&pieces[0], 0x1fff, false);
        expect_dropped(&mut reassembler, &last, DropReason::TooLong);
        assert_eq!(packets(&mut reassembler, &pieces), [packet]);
    }
}

/// The "ping of death" with a header that just makes it too long.
#[test]
fn rfc791_3_1_a_packet_longer_than_its_length_field_can_say_does_not_come_out() {
    let mut reassembler = reassembler();
    let shape = Shape { len: 65_000, id: 1, options: 5, ..Shape::default() };
    let mut pieces = cut(&UDP.packet(&shape), 1500, 1);
    let last = pieces.pop().unwrap();
    let at = u16::from_be_bytes([last[20], last[21]]) & 0x1fff;
    assert!(packets(&mut reassembler, &pieces).is_empty());
    // With the shortest header it fits, with the first fragment's options it does not.
    let mut long = last[..34].to_vec();
    long[14] = 0x45;
    let len = 65_515 - usize::from(at) * 8;
    let long = moved(&resized(&long, len), at, false);
    expect_dropped(&mut reassembler, &long, DropReason::TooLong);
    expect_dropped(&mut reassembler, &last, DropReason::Ended);
}

#[test]
fn rfc6946_an_atomic_fragment_meets_no_other() {
    let mut reassembler = reassembler();
    let flow = Flow(1);
    let Sent { packet, pieces } = sent(flow, 5, 4096);
    assert!(packets(&mut reassembler, &pieces[..2]).is_empty());
    // The same name, in one piece.
    let atomic = moved(&pieces[0], 0, false);
    let came = super::packet(&mut reassembler, &atomic).unwrap();
    assert_eq!(came[..12], atomic[..12]);
    assert_eq!((came.len(), came[20]), (atomic.len() - 8, 17), "its fragment header is gone");
    assert_eq!(came[54..], atomic[62..]);
    assert_eq!(packets(&mut reassembler, &pieces[2..]), [packet], "the others go on");
    assert_eq!(reassembler.counters().atomic, 1);
}

#[test]
fn rfc7112_5_a_first_fragment_without_all_headers_is_dropped() {
    // Destination options of 24 bytes before UDP, of which the first fragment has 16.
    let mut reassembler = reassembler();
    let mut first = resized(&sent(Flow(1), 1, 4096).pieces[0], 16);
    first[54] = 60;
    first[62..70].copy_from_slice(&[17, 2, 1, 20, 0, 0, 0, 0]);
    expect_dropped(&mut reassembler, &first, DropReason::HeadersMissing);
    // All of them, and not all of UDP: 24 bytes; with 32 it is whole.
    for (len, is_good) in [(24, false), (32, true)] {
        let mut first = resized(&first, len);
        first[62..70].copy_from_slice(&[17, 2, 1, 20, 0, 0, 0, 0]);
        match reassembler.offer(NOW, &first) {
            Outcome::Kept => assert!(is_good),
            other => {
                assert!(matches!(other, Outcome::Dropped(DropReason::HeadersMissing)) != is_good);
            }
        }
    }
}

#[test]
fn rfc1858_3_1_a_first_fragment_with_part_of_a_tcp_header_is_dropped() {
    for flow in [Flow(6), TCP6] {
        for (len, reason) in [(8, true), (16, true), (24, true), (32, false)] {
            // The header has 32 bytes.
            let mut reassembler = reassembler();
            let first = resized(&sent(flow, 1, 4096).pieces[0], len);
            match reassembler.offer(NOW, &first) {
                Outcome::Dropped(DropReason::HeadersMissing) => assert!(reason, "{len}"),
                Outcome::Kept => assert!(!reason, "{len}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn rfc3128_a_fragment_that_starts_within_a_tcp_header_is_dropped() {
    let mut reassembler = reassembler();
    for units in [1, 2] {
        let within = moved(&sent(Flow(6), 1, 4096).pieces[1], units, true);
        expect_dropped(&mut reassembler, &within, DropReason::WithinHeader);
    }
    let behind = moved(&sent(Flow(6), 1, 4096).pieces[1], 3, true);
    assert!(matches!(reassembler.offer(NOW, &behind), Outcome::Kept));
}

#[test]
fn rfc6864_4_an_identification_is_free_again_once_its_packet_came_out() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        for content in 0..20 {
            let shape = Shape { len: 4096, id: 7, content, ..Shape::default() };
            let whole = flow.packet(&shape);
            assert_eq!(packets(&mut reassembler, &cut(&whole, 1500, 7)), [whole]);
        }
    }
}

#[test]
fn rfc6864_an_identification_that_comes_again_too_early_never_mixes_what_can_be_told_apart() {
    for flow in BOTH {
        let of = |content| {
            let whole = flow.packet(&Shape { len: 4096, id: 7, content, ..Shape::default() });
            cut(&whole, 1500, 7)
        };
        let (old, new) = (of(1), of(2));
        let mut reassembler = reassembler();
        // The end of the old one was lost.
        assert!(packets(&mut reassembler, &old[..2]).is_empty());
        assert!(packets(&mut reassembler, &new).is_empty(), "a mixture, or nothing");
        assert_eq!(reassembler.counters().dropped(DropReason::Overlap), 1);
        reassembler.handle_timeout(NOW + config().lifetime);
        assert_eq!(reassembler.packets(), 0);
    }
}

#[test]
fn rfc3168_5_3_congestion_on_one_is_that_of_the_packet_and_a_mixture_ends_it() {
    let marked = |mark: u8| {
        let shape = Shape { len: 4096, id: 1, ecn: 2, ..Shape::default() };
        let mut pieces = cut(&UDP.packet(&shape), 1500, 1);
        pieces[1][15] = pieces[1][15] & !3 | mark;
        seal(&mut pieces[1]);
        pieces
    };
    let mut reassembler = reassembler();
    let came = packets(&mut reassembler, &marked(3));
    assert_eq!(came[0][15] & 3, 3);
    let mixed = marked(0);
    assert!(packets(&mut reassembler, &mixed[..2]).is_empty());
    expect_dropped(&mut reassembler, &mixed[2], DropReason::MixedCongestion);
    expect_dropped(&mut reassembler, &mixed[2], DropReason::Ended);
}

#[test]
fn rfc1071_a_wrong_header_checksum_and_a_frame_cut_short_are_dropped() {
    let mut reassembler = reassembler();
    let Sent { packet, pieces } = sent(UDP, 1, 4096);
    let mut bad = pieces[0].clone();
    bad[22] ^= 1;
    expect_dropped(&mut reassembler, &bad, DropReason::BadChecksum);
    expect_dropped(&mut reassembler, &pieces[0][..1000], DropReason::Truncated);
    let mut padded = pieces.clone();
    padded.iter_mut().for_each(|piece| piece.extend([7; 9]));
    assert_eq!(packets(&mut reassembler, &padded), [packet], "padding is no part of a packet");
}

/// Tags in front of a frame.
fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

#[test]
fn ieee_802_1q_and_802_1ad_tags_stay_and_vlans_never_mix() {
    const ONE: [u8; 4] = [0x81, 0, 0, 5];
    const OTHER: [u8; 4] = [0x81, 0, 0, 6];
    const TWO: [u8; 8] = [0x88, 0xa8, 0, 9, 0x81, 0, 0, 5];
    for flow in BOTH {
        let mut reassembler = reassembler();
        let Sent { packet, pieces } = sent(flow, 1, 4096);
        let lists: Vec<Vec<Vec<u8>>> = [&[][..], &ONE, &OTHER, &TWO]
            .map(|tags| pieces.iter().map(|piece| tagged(piece, tags)).collect())
            .to_vec();
        // One and the same name, all at once.
        let between: Vec<_> =
            (0..3).flat_map(|at| lists.iter().map(move |l| l[at].clone())).collect();
        let wanted = [&[][..], &ONE, &OTHER, &TWO].map(|tags| tagged(&packet, tags));
        assert_eq!(packets(&mut reassembler, &between), wanted);
        let last = tagged(&pieces[2], &TWO);
        packets(&mut reassembler, &[tagged(&pieces[0], &TWO), tagged(&pieces[1], &TWO)]);
        assert_eq!(reassembler.offer(NOW, &last).packet().unwrap().vlans(), [9, 5]);
        // A priority alone names no VLAN.
        let priority = [0x81, 0, 0xe0, 0];
        let frames = [tagged(&pieces[0], &priority), pieces[1].clone(), pieces[2].clone()];
        assert_eq!(packets(&mut reassembler, &frames), [tagged(&packet, &priority)]);
    }
}

#[test]
fn packets_without_a_link_header_are_joined() {
    for flow in BOTH {
        let mut reassembler = Reassembler::new(Config { link: Link::Ip, ..config() });
        let Sent { packet, pieces } = sent(flow, 1, 60_000);
        let bare: Vec<_> = pieces.iter().map(|piece| piece[14..].to_vec()).collect();
        assert_eq!(packets(&mut reassembler, &bare), [packet[14..].to_vec()]);
    }
}

#[test]
fn rfc8200_4_5_headers_before_the_fragment_header_stay_and_too_many_hide_nothing() {
    let mut reassembler = reassembler();
    let shape = |options| Shape { len: 4096, id: 1, options, ..Shape::default() };
    let whole = Flow(1).packet(&shape(3));
    assert_eq!(packets(&mut reassembler, &cut(&whole, 1500, 1)), [whole]);
    // 256 bytes of options, then a fragment header.
    let mut long = cut(&Flow(1).packet(&shape(0)), 1500, 1).swap_remove(0);
    long[20] = 0;
    let options = [&[44, 31, 1, 252][..], &[0; 252]].concat();
    long.splice(54..54, options);
    let len = (long.len() - 54) as u16;
    long[18..20].copy_from_slice(&len.to_be_bytes());
    expect_dropped(&mut reassembler, &long, DropReason::HeadersTooLong);
}
