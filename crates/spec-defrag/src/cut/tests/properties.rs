//! Whatever is cut can be joined again, by anybody.
//!
//! What is cut, what is refused, and what every piece repeats.

use std::vec::Vec;

use etherparse::defrag::IpDefragPool;
use etherparse::{Ipv6ExtensionSlice, NetSlice, SlicedPacket};
use landfall_placement::{Duration, Instant, Refusal};
use proptest::prelude::*;

use super::{R, cut, cutter, split};
use crate::cut::{CutError, Cutter, Df};
use crate::model::Naive;
use crate::wire::tests::frames::{
    Ipv4, Ipv6, any_ipv4, any_ipv6, padding, payload, piece, routing, seal,
};
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

#[test]
fn a_packet_that_others_cut_has_a_name_of_its_own() {
    let whole = Ipv4 { payload: payload(4000), ..Ipv4::default() }.frame();
    let with = |flags: u8| {
        let mut frame = whole.clone();
        frame[20] = flags;
        seal(&mut frame);
        frame
    };
    let mut cutter = Cutter::new(Df::Override, [1; 32]);
    let mut names = Vec::new();
    for _ in 0..3 {
        let mut frame = with(0x40);
        cutter.let_cut(&mut frame).unwrap();
        assert_eq!(frame[20], 0, "it may be cut");
        let mut expected = with(0);
        expected[18..20].copy_from_slice(&frame[18..20]);
        seal(&mut expected);
        assert_eq!(frame, expected);
        names.push([frame[18], frame[19]]);
    }
    names.dedup();
    assert_eq!(names.len(), 3);
    let (mut may, mut kept) = (with(0), with(0x40));
    cutter.let_cut(&mut may).unwrap();
    assert_eq!(may, with(0), "its own is good");
    let refused = Cutter::new(Df::Refuse, [1; 32]).let_cut(&mut kept);
    assert_eq!((refused, kept), (Err(CutError::DoNotFragment), with(0x40)));
    let mut ipv6 = Ipv6 { payload: payload(4000), ..Ipv6::default() }.frame();
    let before = ipv6.clone();
    cutter.let_cut(&mut ipv6).unwrap();
    assert_eq!(ipv6, before);
}

fn error(df: Df, frame: &[u8], head_len: usize, mtu: u16) -> Option<CutError> {
    cut(&mut cutter(df), frame, head_len, mtu).err()
}

#[test]
fn what_fits_leaves_as_it_came() {
    let ip = Ipv4 { payload: payload(1480), ..Ipv4::default() }.frame();
    let mut corrupt = ip.clone();
    corrupt[24] ^= 1;
    let arp = [&[0xff; 12][..], &[0x08, 0x06], &[1; 46]].concat();
    for frame in [ip, corrupt, arp] {
        let pieces = cut(&mut cutter(Df::Refuse), &frame, 34, 1500).unwrap();
        assert_eq!(pieces, [(frame.clone(), 34)]);
    }
}

#[test]
fn padding_is_no_part_of_the_packet() {
    let mut frame = Ipv4 { payload: payload(1470), ..Ipv4::default() }.frame();
    let len = frame.len();
    frame.resize(len + 100, 0xee);
    let pieces = cut(&mut cutter(Df::Refuse), &frame, 34, 1500).unwrap();
    assert_eq!(pieces, [(frame[..len].to_vec(), 34)], "it fits without");
    let pieces = cut(&mut cutter(Df::Refuse), &frame, 34, 1000).unwrap();
    assert_eq!(pieces.iter().map(|(bytes, _)| bytes.len() - 34).sum::<usize>(), 1470);
    let mut frame = Ipv6 { payload: payload(2000), ..Ipv6::default() }.frame();
    frame.resize(frame.len() + 9, 0xee);
    let pieces = cut(&mut cutter(Df::Refuse), &frame, 54, 1500).unwrap();
    assert_eq!(pieces.iter().map(|(bytes, _)| bytes.len() - 62).sum::<usize>(), 2000);
}

#[test]
fn only_ip_can_be_cut() {
    let mut frame = Ipv4::default().frame();
    frame[12..14].copy_from_slice(&[0x81, 0x00]);
    assert_eq!(error(Df::Override, &frame, 42, 1500), Some(CutError::NotIp));
    let mut frame = Ipv4::default().frame();
    frame[14] = 0x65;
    assert_eq!(error(Df::Override, &frame, 42, 1500), Some(CutError::NotIp));
    assert_eq!(error(Df::Override, &[0; 100], 13, 64), Some(CutError::BadHead));
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let plain = Ipv4::default().frame();
    let refused = |at: usize, value: u8, refusal| {
        let mut frame = plain.clone();
        frame[at] = value;
        seal(&mut frame);
        assert_eq!(error(Df::Override, &frame, 64, 1500), Some(refusal), "{at}");
    };
    refused(14, 0x44, CutError::Refused(Refusal::Malformed)); // a header too short
    refused(16, 0xff, CutError::Refused(Refusal::Truncated)); // longer than the frame
    let mut corrupt = plain.clone();
    corrupt[22] ^= 1;
    let bad_sum = CutError::Refused(Refusal::BadChecksum);
    assert_eq!(error(Df::Override, &corrupt, 42, 1500), Some(bad_sum));
    let mut short = plain.clone();
    short[16..18].copy_from_slice(&[0, 19]);
    seal(&mut short);
    let malformed = CutError::Refused(Refusal::Malformed);
    assert_eq!(error(Df::Override, &short, 42, 1500), Some(malformed));
    for options in [[0x83, 1, 0, 0], [0x83, 5, 0, 0], [1, 1, 1, 0x83]] {
        let frame = Ipv4 { options: options.to_vec(), ..Ipv4::default() }.frame();
        assert_eq!(error(Df::Override, &frame, 64, 1500), Some(malformed), "{options:x?}");
    }
    let mut jumbo = Ipv6::default().frame();
    jumbo[18..20].fill(0);
    let unsupported = CutError::Refused(Refusal::Unsupported);
    assert_eq!(error(Df::Override, &jumbo, 54, 1500), Some(unsupported));
}

#[test]
fn the_head_holds_the_headers() {
    let options = std::vec![1; 40];
    let frame = Ipv4 { options, ..Ipv4::default() }.frame();
    for head_len in 14..74 {
        assert_eq!(error(Df::Refuse, &frame, head_len, 1500), Some(CutError::BadHead));
    }
    for head_len in 74..=192 {
        assert_eq!(error(Df::Refuse, &frame, head_len, 1500), None, "{head_len}");
    }
    assert_eq!(error(Df::Refuse, &frame, 193, 1500), Some(CutError::BadHead));

    let frame = Ipv6 { headers: std::vec![padding(0, 2)], ..Ipv6::default() }.frame();
    for head_len in 14..78 {
        // The first two bytes of the options say all that has to be known of them,
        // but every piece repeats the rest.
        assert_eq!(error(Df::Refuse, &frame, head_len, 1500), Some(CutError::BadHead));
    }
    for head_len in 78..=184 {
        assert_eq!(error(Df::Refuse, &frame, head_len, 1500), None, "{head_len}");
    }
    assert_eq!(error(Df::Refuse, &frame, 185, 1500), Some(CutError::BadHead));
}

#[test]
fn no_link_carries_less_than_ip_asks_for() {
    let frame = Ipv4::default().frame();
    assert_eq!(error(Df::Refuse, &frame, 42, 67), Some(CutError::MtuTooSmall));
    assert_eq!(error(Df::Refuse, &frame, 42, 68), None);
    let frame = Ipv6::default().frame();
    assert_eq!(error(Df::Refuse, &frame, 62, 1279), Some(CutError::MtuTooSmall));
    assert_eq!(error(Df::Refuse, &frame, 62, 1280), None);
}

#[test]
fn do_not_fragment_is_obeyed_or_overridden() {
    let frame = Ipv4 { flags_and_offset: 0x4000, id: 0, ..Ipv4::default() }.frame();
    assert_eq!(error(Df::Refuse, &frame, 42, 1500), Some(CutError::DoNotFragment));
    let mut cutter = cutter(Df::Override);
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..65_536_u32 {
        let (head, body) = split(&frame, 42);
        let pieces = cutter.cut(head, body, 4000).unwrap().map(|piece| piece.head);
        let pieces: std::vec::Vec<_> = pieces.collect();
        assert_eq!(pieces[0][18..20], pieces[1][18..20]);
        assert_eq!((pieces[0][20], pieces[1][20] & 0xe0), (0x60, 0x40), "the flag stays");
        ids.insert([pieces[0][18], pieces[0][19]]);
    }
    assert_eq!(ids.len(), 65_536, "no name comes again before all others came");
}

#[test]
fn a_packet_with_an_identification_keeps_it() {
    for flags_and_offset in [0, 0x2000, 0x6000, 0x6001] {
        let frame = Ipv4 { flags_and_offset, ..Ipv4::default() }.frame();
        let pieces = cut(&mut cutter(Df::Override), &frame, 34, 1500).unwrap();
        assert!(pieces.iter().all(|(piece, _)| piece[18..20] == [0x12, 0x34]));
    }
}

#[test]
fn identifications_depend_on_seed_and_addresses() {
    let id = |seed, host| {
        let mut frame = Ipv6::default().frame();
        frame[37] = host;
        let (head, body) = split(&frame, 62);
        let mut cutter = crate::cut::Cutter::new(Df::Refuse, [seed; 32]);
        let piece = cutter.cut(head, body, 1500).unwrap().next().unwrap();
        piece.head[58..62].to_vec()
    };
    assert_eq!(id(1, 1), id(1, 1));
    assert_ne!(id(1, 1), id(2, 1));
    assert_ne!(id(1, 1), id(1, 2));
}

#[test]
fn options_are_copied_by_their_flag() {
    let options = [
        &[0x44, 4, 5, 0][..],      // a time stamp: not copied
        &[1],                      // nothing
        &[0x83, 7, 4, 1, 2, 3, 4], // a route: copied
        &[0x94, 4, 0, 0],          // router alert: copied
        &[0, 0x83, 9, 9],          // the end, and what is behind does not count
    ]
    .concat();
    let frame = Ipv4 { options: options.clone(), ..Ipv4::default() }.frame();
    let pieces = cut(&mut cutter(Df::Refuse), &frame, 54 + 8, 1500).unwrap();
    assert_eq!(pieces[0].0[34..54], options);
    assert_eq!(pieces[0].0.len(), 14 + 40 + 1456, "1460 is no multiple of 8");
    for (piece, head_len) in &pieces[1..] {
        assert_eq!((piece[14], *head_len), (0x48, 46));
        assert_eq!(piece[34..46], [0x83, 7, 4, 1, 2, 3, 4, 0x94, 4, 0, 0, 0]);
    }
    assert_eq!(pieces[1].0.len(), 14 + 32 + 1464, "1468 is no multiple of 8");
}

#[test]
fn the_fragment_header_stands_behind_what_routers_read() {
    let (options, last) = (padding(0, 0), padding(60, 1));
    // Where the fragment header stands, and where the byte that says so.
    let cases = [
        (std::vec![], 54, 20),
        (std::vec![last.clone()], 54, 20),
        (std::vec![options.clone(), last.clone()], 62, 54),
        (std::vec![last.clone(), routing(1), last.clone()], 94, 70),
        (std::vec![options, last.clone(), routing(1), last], 102, 78),
    ];
    for (headers, at, named_at) in cases {
        let frame = Ipv6 { headers, ..Ipv6::default() }.frame();
        for (piece, _) in cut(&mut cutter(Df::Refuse), &frame, 150, 1500).unwrap() {
            let mut expected = frame[..at].to_vec();
            expected[18..20].copy_from_slice(&piece[18..20]);
            expected[named_at] = 44;
            assert_eq!(piece[..at], expected);
            assert_eq!(piece[at], frame[named_at]);
        }
    }
}

#[test]
fn pieces_of_ipv6_are_their_sources_to_cut() {
    let with = |offset, more| Ipv6 {
        headers: std::vec![piece(offset, more, 9)],
        payload: payload(4096),
        ..Ipv6::default()
    };
    for (offset, more) in [(0, true), (8, true), (8, false)] {
        let frame = with(offset, more).frame();
        assert_eq!(error(Df::Refuse, &frame, 62, 1500), Some(CutError::DoNotFragment));
        let pieces = cut(&mut cutter(Df::Override), &frame, 62, 1500).unwrap();
        assert!(pieces.iter().all(|(piece, _)| piece[58..62] == [0, 0, 0, 9]), "its name stays");
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[2].0[57] & 1, u8::from(more), "what follows still follows");
    }
    let atomic = with(0, false).frame();
    let pieces = cut(&mut cutter(Df::Refuse), &atomic, 62, 1500).unwrap();
    assert_eq!(pieces.len(), 3, "one header is enough");
}

#[test]
fn pieces_that_cannot_be_are_not_cut() {
    let odd = Ipv4 { flags_and_offset: 0x2000, payload: payload(4001), ..Ipv4::default() };
    let malformed = Some(CutError::Refused(Refusal::Malformed));
    assert_eq!(error(Df::Override, &odd.frame(), 34, 1500), malformed);
    let beyond = Ipv4 { flags_and_offset: 0x1fff, payload: payload(4000), ..Ipv4::default() };
    let out_of_bounds = Some(CutError::Refused(Refusal::OutOfBounds));
    assert_eq!(error(Df::Override, &beyond.frame(), 34, 1500), out_of_bounds);
    let beyond = Ipv6 { headers: std::vec![piece(0xfff8, false, 1)], ..Ipv6::default() };
    assert_eq!(error(Df::Override, &beyond.frame(), 62, 1500), out_of_bounds);
}

#[test]
fn a_body_that_is_shorter_than_the_packet_is_refused() {
    let frame = Ipv4::default().frame();
    let truncated = CutError::Refused(Refusal::Truncated);
    let refused = cutter(Df::Refuse).cut(&frame[..42], R.span(0, 4095), 1500).err();
    assert_eq!(refused, Some(truncated));
    assert!(cutter(Df::Refuse).cut(&frame[..42], R.span(0, 4096), 1500).is_ok());
}

// Pieces of which every byte, or every length, is known.

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
