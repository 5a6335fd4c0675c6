//! Which pieces make a packet, and which do not.

use super::*;
use crate::packet::Way;

/// A packet in pieces of 1,000 bytes, in this order, comes out as if in one frame.
#[test]
fn pieces_in_any_order_become_the_packet() {
    let sent = bytes(3000);
    for from in [V4, V6, From { options: 8, ..V4 }] {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut host = Host::small();
            for (n, at) in order.into_iter().enumerate() {
                let part = &sent[at * 1000..(at + 1) * 1000];
                let packet = host.piece(from, (7, at as u32 * 1000, at < 2), part).unwrap();
                assert_eq!(packet.is_some(), n == 2);
                let Some(packet) = packet else { continue };
                assert_eq!(packet.way, Way::Conventional);
                assert_eq!(packet.body_len, 2992, "what is behind the split starts the page");
                let id = if from.is_v6 { 0 } else { 7 };
                let whole = if from.is_v6 { None } else { Some((id, 0, false)) };
                assert_eq!(host.take(&packet), frame(from, whole, &sent));
            }
            assert!(host.reassembly.is_empty() && host.is_clean());
            assert_eq!(host.reassembly.counters().whole, 1);
        }
    }
}

#[test]
fn packets_that_come_together_are_kept_apart() {
    let (a, b) = (bytes(16), bytes(32));
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &a[..8]).unwrap();
    host.piece(V4, (2, 0, true), &b[..16]).unwrap();
    let second = host.piece(V4, (2, 16, false), &b[16..]).unwrap().unwrap();
    let first = host.piece(V4, (1, 8, false), &a[8..]).unwrap().unwrap();
    assert_eq!(host.take(&first), frame(V4, Some((1, 0, false)), &a));
    assert_eq!(host.take(&second), frame(V4, Some((2, 0, false)), &b));
}

/// RFC 5722: the packet is given up, with all that still comes of it.
#[test]
fn overlapping_pieces_refuse_their_packet() {
    let sent = bytes(64);
    for (from, to, more) in
        [(8, 24, true), (0, 24, true), (0, 8, true), (8, 16, true), (16, 32, true), (16, 40, true)]
    {
        for changed in [0, 1] {
            let mut host = Host::small();
            host.piece(V6, (1, 0, true), &sent[..16]).unwrap();
            host.piece(V6, (1, 24, true), &sent[24..40]).unwrap();
            let mut other = sent[from..to].to_vec();
            other[0] ^= changed;
            let again = host.piece(V6, (1, from as u32, more), &other);
            assert_eq!(again, Err(Refusal::Forbidden), "{from}..{to}");
            assert!(host.is_clean(), "it holds no buffer any more");
            for (from, to, more) in [(0, 16, true), (16, 24, true), (40, 64, false)] {
                let later = host.piece(V6, (1, from as u32, more), &sent[from..to]);
                assert_eq!(later, Err(Refusal::Forbidden), "what still comes: {from}..{to}");
            }
            assert_eq!(host.reassembly.counters().refused, 1);
            assert!(host.reassembly.contains(&read(V6, (1, 0, true), &sent[..8]).0.key));
            host.at(NOW + Duration::from_secs(60));
            assert_eq!(host.reassembly.counters().expired, 0, "it was counted before");
            assert!(host.reassembly.is_empty());
        }
    }
}

/// A second piece that lies wholly inside of the first, as the tool teardrop sends.
#[test]
fn teardrop_is_refused() {
    let sent = bytes(64);
    let mut host = Host::small();
    host.piece(V4, (242, 0, true), &sent[..32]).unwrap();
    assert_eq!(host.piece(V4, (242, 24, false), &sent[24..28]), Err(Refusal::Forbidden));
    assert!(host.is_clean());
}

#[test]
fn an_exact_repetition_is_passed_over_and_the_first_stays() {
    let sent = bytes(32);
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &sent[..16]).unwrap();
    assert_eq!(host.piece(V4, (1, 0, true), &[9; 16]), Err(Refusal::Duplicate));
    let marked = From { ecn: Ecn::CongestionExperienced, ..V4 };
    assert_eq!(host.piece(marked, (1, 0, true), &sent[..16]), Err(Refusal::Duplicate));
    let whole = host.piece(V4, (1, 16, false), &sent[16..]).unwrap().unwrap();
    assert_eq!(host.take(&whole), frame(V4, Some((1, 0, false)), &sent));
    assert_eq!(host.reassembly.counters().repeated, 2);

    host.piece(V4, (2, 16, true), &sent[16..]).unwrap();
    let last = host.piece(V4, (2, 16, false), &sent[16..]);
    assert_eq!(last, Err(Refusal::Forbidden), "the same bytes, but the last ones");
    host.piece(V4, (3, 16, false), &sent[16..29]).unwrap();
    assert_eq!(host.piece(V4, (3, 16, false), &sent[16..29]), Err(Refusal::Duplicate));
    let longer = host.piece(V4, (3, 16, true), &sent[16..]);
    assert_eq!(longer, Err(Refusal::Forbidden), "in the same 8 bytes it ends");
    host.piece(V4, (4, 16, false), &sent[16..29]).unwrap();
    assert_eq!(host.piece(V4, (4, 16, false), &sent[16..30]), Err(Refusal::Forbidden));
}

#[test]
fn pieces_that_disagree_about_the_end_refuse_their_packet() {
    let sent = bytes(64);
    for (from, to, more) in [(40, 48, false), (40, 48, true), (16, 24, false)] {
        let mut host = Host::small();
        host.piece(V6, (1, 0, true), &sent[..16]).unwrap();
        host.piece(V6, (1, 32, false), &sent[32..40]).unwrap();
        let late = host.piece(V6, (1, from as u32, more), &sent[from..to]);
        assert_eq!(late, Err(Refusal::Forbidden), "{from}..{to}");
    }
    let mut host = Host::small();
    host.piece(V6, (1, 32, true), &sent[32..40]).unwrap();
    let end = host.piece(V6, (1, 16, false), &sent[16..24]);
    assert_eq!(end, Err(Refusal::Forbidden), "an end before what is there");
}

#[test]
fn what_no_piece_can_be_is_refused_and_leaves_no_trace() {
    let sent = bytes(1480);
    let (good, frame) = read(V4, (1, 8, true), &sent);
    let fragment = |offset, more| Some(Fragment { id: 1, offset, more });
    let lies = [
        (Parsed { fragment: None, ..good }, Refusal::Unexpected),
        (Parsed { payload_len: 0, ..good }, Refusal::Malformed),
        (Parsed { payload_len: 12, ..good }, Refusal::Malformed),
        (Parsed { fragment: fragment(3, true), ..good }, Refusal::Malformed),
        (Parsed { fragment: fragment(65_528, false), ..good }, Refusal::OutOfBounds),
        (Parsed { fragment: fragment(u32::MAX - 7, true), ..good }, Refusal::OutOfBounds),
        (Parsed { payload_len: 1488, ..good }, Refusal::Truncated),
        (Parsed { payload_len: u32::MAX - 7, ..good }, Refusal::OutOfBounds),
        (Parsed { payload_at: u16::MAX, ..good }, Refusal::Truncated),
        (
            Parsed { fragment: fragment(0, true), payload_at: 200, payload_len: 8, ..good },
            Refusal::NoRoom,
        ),
    ];
    let mut host = Host::small();
    for (parsed, expected) in lies {
        let pieces = Pieces::one(FRAME.span(0, frame.len() as u32));
        let arrived = Arrived { parsed: &parsed, head: &frame, frame: &pieces, split: 8 };
        let result = host.reassembly.insert(NOW, &arrived, &mut host.buffers, &mut host.bytes);
        assert_eq!(result, Err(expected), "{parsed:?}");
        assert!(host.is_clean() && host.reassembly.is_empty());
    }
}

/// The last piece shows that the packet is longer than one can be: IPv4 counts the
/// header of the first as well.
#[test]
fn a_packet_longer_than_its_length_field_is_refused() {
    let sent = bytes(65_535);
    for (options, total, fits) in [(0, 65_515, true), (4, 65_515, false), (4, 65_511, true)] {
        let mut host = Host::small();
        for start in (8..total).step_by(8000).rev() {
            let end = (start + 8000).min(total);
            let piece = (1, start as u32, end < total);
            assert_eq!(host.piece(V4, piece, &sent[start..end]), Ok(None));
        }
        let first = host.piece(From { options, ..V4 }, (1, 0, true), &sent[..8]);
        if fits {
            let whole = host.take(&first.unwrap().unwrap());
            assert_eq!(whole.len(), 14 + 20 + options + total);
            assert_eq!(whole[34 + options..], sent[..total]);
        } else {
            assert_eq!(first, Err(Refusal::OutOfBounds));
            assert_eq!(host.reassembly.counters().refused, 1);
        }
        assert!(host.is_clean());
    }
}

/// The smallest pieces there are, with a transport header in three of them: the
/// packet is passed on whole, so that nobody is fooled.
#[test]
fn tiny_pieces_become_the_packet_in_any_order() {
    let sent = bytes(5000);
    for from in [V4, V6] {
        for split in [0, 8, 20, 128] {
            let mut host = Host::small();
            let starts = (0..5000).step_by(8);
            // Every second one first: as many holes as can be.
            let order = starts.clone().step_by(2).rev().chain(starts.skip(1).step_by(2));
            let mut out = None;
            for start in order {
                assert_eq!(out, None);
                let end = (start + 8).min(5000);
                let piece = frame(from, Some((1, start as u32, end < 5000)), &sent[start..end]);
                out = host.receive(NOW, &piece, split).unwrap();
            }
            let whole = host.take(&out.unwrap());
            let id = if from.is_v6 { None } else { Some((1, 0, false)) };
            assert_eq!(whole, frame(from, id, &sent));
            assert!(host.is_clean());
        }
    }
}

#[test]
fn the_protocol_of_an_ipv6_packet_is_that_of_its_first_piece() {
    let sent = bytes(24);
    for (from, is_whole) in [(V6, true), (V4, false)] {
        let mut host = Host::small();
        host.piece(From { protocol: 99, ..from }, (1, 16, false), &sent[16..]).unwrap();
        let whole = host.piece(from, (1, 0, true), &sent[..16]).unwrap();
        assert_eq!(whole.is_some(), is_whole);
        if let Some(packet) = whole {
            assert_eq!(host.take(&packet), frame(V6, None, &sent));
        }
    }
}

/// RFC 3168, section 5.3: a signal on one piece is one on the packet.
#[test]
fn congestion_on_a_piece_is_congestion_of_the_packet() {
    use Ecn::{Capable0, Capable1, CongestionExperienced, NotCapable};
    let sent = bytes(24);
    for (first, last, expected) in [
        (NotCapable, NotCapable, Ok(NotCapable)),
        (Capable0, Capable0, Ok(Capable0)),
        (Capable0, Capable1, Ok(Capable0)),
        (Capable0, CongestionExperienced, Ok(CongestionExperienced)),
        (CongestionExperienced, Capable1, Ok(CongestionExperienced)),
        (CongestionExperienced, CongestionExperienced, Ok(CongestionExperienced)),
        (NotCapable, CongestionExperienced, Err(Refusal::Malformed)),
        (Capable0, NotCapable, Err(Refusal::Malformed)),
    ] {
        for from in [V4, V6] {
            let mut host = Host::small();
            host.piece(From { ecn: first, ..from }, (1, 0, true), &sent[..16]).unwrap();
            let whole = host.piece(From { ecn: last, ..from }, (1, 16, false), &sent[16..]);
            let id = if from.is_v6 { None } else { Some((1, 0, false)) };
            let expected = expected.map(|ecn| frame(From { ecn, ..from }, id, &sent));
            let whole = whole.map(|packet| host.take(&packet.unwrap()));
            assert_eq!(whole, expected, "{first:?}, {last:?}");
            assert!(host.is_clean());
            assert_eq!(host.reassembly.is_empty(), whole.is_ok(), "what still comes is refused");
        }
    }
}

/// RFC 6946: it is no piece of the packet of the same name.
#[test]
fn an_atomic_piece_passes_alone() {
    let sent = bytes(48);
    let mut host = Host::small();
    host.piece(V6, (1, 0, true), &sent[..24]).unwrap();
    for split in [0, 8, 100] {
        let alone = frame(V6, Some((1, 0, false)), &[7; 50]);
        let packet = host.receive(NOW, &alone, split).unwrap().unwrap();
        assert_eq!(packet.way, Way::Whole);
        assert_eq!(host.take(&packet), frame(V6, None, &[7; 50]));
    }
    let whole = host.piece(V6, (1, 24, false), &sent[24..]).unwrap().unwrap();
    assert_eq!(host.take(&whole), frame(V6, None, &sent));
    assert_eq!((host.reassembly.counters().atomic, host.is_clean()), (3, true));
}

#[test]
fn an_atomic_piece_may_be_empty() {
    let mut host = Host::small();
    for split in [0, 8, 100] {
        let packet =
            host.receive(NOW, &frame(V6, Some((1, 0, false)), &[]), split).unwrap().unwrap();
        assert_eq!(host.take(&packet), frame(V6, None, &[]));
    }
    assert_eq!((host.reassembly.counters().atomic, host.is_clean()), (3, true));
}

#[test]
fn invariant_1_a_piece_that_comes_late_touches_nothing_delivered() {
    let sent = bytes(48);
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &sent[..24]).unwrap();
    let whole = host.piece(V4, (1, 24, false), &sent[24..]).unwrap().unwrap();
    assert_eq!(host.piece(V4, (1, 0, true), &[9; 24]), Ok(None), "the beginning of another");
    assert_eq!(host.piece(V4, (1, 24, true), &[9; 24]), Ok(None));
    assert_eq!(host.take(&whole), frame(V4, Some((1, 0, false)), &sent));
}

#[test]
fn a_head_at_hand_that_ends_early_is_enough() {
    let sent = bytes(48);
    let mut host = Host::small();
    for (id, shown) in [(1, 34), (2, 38), (3, 42), (4, 58)] {
        for start in [0, 24] {
            let (parsed, frame) =
                read(V4, (id, start as u32, start == 0), &sent[start..start + 24]);
            host.bytes.0[2][..frame.len()].copy_from_slice(&frame);
            // The frame lies in three places.
            let (head, rest) = FRAME.span(0, frame.len() as u32).split_at(40);
            let pieces = Pieces::new([head, rest.split_at(3).0, rest.split_at(3).1]);
            let head = &frame[..shown];
            let arrived = Arrived { parsed: &parsed, head, frame: &pieces, split: 8 };
            let packet =
                host.reassembly.insert(NOW, &arrived, &mut host.buffers, &mut host.bytes).unwrap();
            if let Some(packet) = packet {
                assert_eq!(host.take(&packet), super::frame(V4, Some((id, 0, false)), &sent));
            }
        }
    }
    assert!(host.is_clean() && host.reassembly.counters().whole == 4);
}
