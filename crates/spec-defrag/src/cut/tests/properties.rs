//! Whatever is cut can be joined again, by anybody.

use std::vec::Vec;

use etherparse::defrag::IpDefragPool;
use etherparse::{Ipv6ExtensionSlice, NetSlice, SlicedPacket};
use landfall_placement::{Duration, Instant};
use proptest::prelude::*;

use super::{R, cut, cutter};
use crate::cut::{Cutter, Df};
use crate::model::Naive;
use crate::wire::tests::frames::{any_ipv4, any_ipv6, seal};
use crate::wire::{Fragment, parse, whole_head};

type Frames = Vec<Vec<u8>>;

/// The packets that the model makes of these frames.
fn joined_by_the_model(frames: &[Vec<u8>]) -> Frames {
    let mut model = Naive::new(Duration::from_secs(30));
    frames.iter().filter_map(|frame| model.receive(Instant::ZERO, frame)).collect()
}

/// The payload that somebody else makes of them.
fn joined_by_etherparse(frames: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut joined = None;
    for frame in frames {
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        assert!(joined.is_none(), "a piece after the last one");
        joined = pool.process_sliced_packet(&sliced, (), ()).unwrap();
    }
    joined.map(|packet| packet.payload)
}

/// Which piece somebody else takes the frame for, with the length of its payload.
fn read_by_etherparse(frame: &[u8]) -> (Fragment, usize) {
    match SlicedPacket::from_ethernet(frame).unwrap().net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            let piece = Fragment {
                id: header.identification().into(),
                offset: header.fragments_offset().byte_offset().into(),
                more: header.more_fragments(),
            };
            (piece, ip.payload().payload.len())
        }
        NetSlice::Ipv6(ip) => {
            let mut headers = ip.extensions().clone().into_iter();
            let piece = headers.find_map(|header| match header {
                Ipv6ExtensionSlice::Fragment(header) => Some(Fragment {
                    id: header.identification(),
                    offset: header.fragment_offset().byte_offset().into(),
                    more: header.more_fragments(),
                }),
                _ => None,
            });
            (piece.unwrap(), ip.payload().payload.len())
        }
        NetSlice::Arp(_) => panic!("no IP"),
    }
}

/// Each piece is as it has to be, by our own reading and that of somebody else, and
/// starts where the one before ends; gives the frames alone.
fn check_pieces(pieces: Vec<(Vec<u8>, usize)>, start: u32, mtu: u16) -> Frames {
    let mut end = start;
    for (frame, head_len) in &pieces {
        assert!(frame.len() <= 14 + usize::from(mtu));
        let parsed = parse(frame, frame.len() as u32).unwrap();
        let piece = parsed.fragment.unwrap();
        assert_eq!(read_by_etherparse(frame), (piece, parsed.payload_len as usize));
        assert_eq!(frame.len(), usize::from(parsed.payload_at) + parsed.payload_len as usize);
        assert!(*head_len >= usize::from(parsed.payload_at), "IP headers lie in the head");
        assert_eq!(piece.offset, end);
        end += parsed.payload_len;
    }
    let (all_but_last, _) = pieces.split_at(pieces.len() - 1);
    let room = |(frame, _): &(Vec<u8>, usize)| 14 + usize::from(mtu) - frame.len();
    assert!(all_but_last.iter().all(|piece| room(piece) < 8), "each is as long as it may be");
    pieces.into_iter().map(|(frame, _)| frame).collect()
}

/// The head of the whole packet, from that of its first piece.
fn head_of_whole(first: &[u8], payload_len: usize) -> Vec<u8> {
    let parsed = parse(first, first.len() as u32).unwrap();
    whole_head(first, &parsed, payload_len as u32, parsed.ecn).unwrap().to_vec()
}

fn mtu4() -> impl Strategy<Value = u16> {
    prop_oneof![Just(1500_u16), 68..200_u16, 68..9000_u16]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ipv4_that_was_cut_can_be_joined(
        packet in any_ipv4(),
        behind in 0..60_usize,
        mtu in mtu4(),
        order in any::<prop::sample::Index>(),
    ) {
        let frame = packet.frame();
        let header_len = 34 + packet.options.len();
        let pieces = cut(&mut cutter(Df::Override), &frame, header_len + behind, mtu).unwrap();
        if frame.len() <= 14 + usize::from(mtu) {
            prop_assert_eq!(&pieces[0].0, &frame);
            return Ok(());
        }
        let mut frames = check_pieces(pieces, 0, mtu);
        // A packet that says "don't fragment" has got a name of its own.
        let mut expected = frame.clone();
        expected[18..20].copy_from_slice(&frames[0][18..20]);
        seal(&mut expected);
        prop_assert_eq!(packet.flags_and_offset != 0 || expected == frame, true);
        prop_assert_eq!(head_of_whole(&frames[0], packet.payload.len()), &expected[..header_len]);
        let count = frames.len();
        frames.rotate_left(order.index(count));
        prop_assert!(joined_by_the_model(&frames) == [expected]);
        prop_assert!(joined_by_etherparse(&frames) == Some(packet.payload));
    }

    #[test]
    fn pieces_of_ipv4_can_be_cut_again(
        packet in any_ipv4(),
        mtu in 200..4000_u16,
        smaller in 68..1500_u16,
    ) {
        let mut cutter = cutter(Df::Override);
        let pieces = cut(&mut cutter, &packet.frame(), 74, mtu).unwrap();
        let mut frames = Vec::new();
        for (piece, _) in pieces {
            let start = parse(&piece, piece.len() as u32).unwrap().fragment;
            let again = cut(&mut cutter, &piece, 74, smaller).unwrap();
            match start {
                Some(start) => frames.extend(check_pieces(again, start.offset, smaller)),
                None => frames.extend(again.into_iter().map(|(frame, _)| frame)),
            }
        }
        frames.reverse();
        let joined = joined_by_the_model(&frames);
        prop_assert_eq!(joined.len(), 1);
        let mut expected = packet.frame();
        expected[18..20].copy_from_slice(&joined[0][18..20]);
        seal(&mut expected);
        prop_assert!(joined[0] == expected);
    }

    #[test]
    fn ipv6_that_was_cut_can_be_joined(
        packet in any_ipv6(),
        behind in 0..60_usize,
        mtu in prop_oneof![Just(1500_u16), 1280..9000_u16],
        again in 1280..1500_u16,
    ) {
        let frame = packet.frame();
        let header_len = frame.len() - packet.payload.len();
        let mut cutter = cutter(Df::Override);
        let pieces = cut(&mut cutter, &frame, header_len + behind, mtu).unwrap();
        if frame.len() <= 14 + usize::from(mtu) {
            prop_assert_eq!(&pieces[0].0, &frame);
            return Ok(());
        }
        let frames = check_pieces(pieces, 0, mtu);
        prop_assert_eq!(head_of_whole(&frames[0], packet.payload.len()), &frame[..header_len]);
        prop_assert!(joined_by_etherparse(&frames) == Some(packet.payload));
        prop_assert!(joined_by_the_model(&frames) == [frame.clone()]);
        // The link below cuts what is a piece already.
        let mut smaller = Vec::new();
        for piece in &frames {
            let start = parse(piece, piece.len() as u32).unwrap().fragment.unwrap().offset;
            let pieces = cut(&mut cutter, piece, header_len + 8, again).unwrap();
            smaller.extend(check_pieces(pieces, start, again));
        }
        prop_assert!(joined_by_the_model(&smaller) == [frame]);
    }

    #[test]
    fn invariant_8_no_panic_on_any_packet(
        head in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..220),
            any_ipv4().prop_map(|packet| packet.frame()[..34].to_vec()),
            any_ipv6().prop_map(|packet| packet.frame()[..55].to_vec()),
        ],
        ethertype in prop::option::of(prop::sample::select(&[[8, 0], [0x86, 0xdd]][..])),
        change in prop::option::of((12..70_usize, any::<u8>(), any::<bool>())),
        body_len in prop_oneof![0..5000_u32, any::<u32>()],
        mtu: u16,
        overrides: bool,
    ) {
        let mut head = head;
        if let (Some(ethertype), Some(bytes)) = (ethertype, head.get_mut(12..14)) {
            bytes.copy_from_slice(&ethertype);
        }
        if let Some((at, value, sealed)) = change.filter(|(at, ..)| *at < head.len()) {
            head[at] = value;
            let has_header = head.len() >= 34 && head.len() >= 14 + usize::from(head[14] & 15) * 4;
            if sealed && has_header && head[14] & 15 >= 5 {
                seal(&mut head);
            }
        }
        let df = if overrides { Df::Override } else { Df::Refuse };
        let body = R.span(0, body_len);
        if let Ok(cut) = Cutter::new(df, [1; 32]).cut(&head, body, mtu) {
            let count = cut.len();
            prop_assert!(count <= 8192, "no packet has more");
            prop_assert_eq!(cut.count(), count);
        }
    }
}
