//! Frames to read and to cut, written field by field.
//!
//! The message that a packet was given up, and to whom it is not sent.
//!
//! Reading is total, does not depend on how much is shown at once, and says what
//! others say.

use std::vec::Vec;

use etherparse::{Icmpv4Type, Icmpv6Type, SlicedPacket, TransportSlice, icmpv4, icmpv6};
use landfall_placement::Ecn;
use proptest::prelude::*;

use crate::memory::Head;
use crate::model::{Reading, read};
use crate::wire::parse::parse_any;
use crate::wire::{Parsed, Stop, adapt, parse, time_exceeded, transport_len, whole_head};

/// The stations of all frames here.
const LINK: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// The bytes of a payload: no two neighbours, and no two places 8 apart, are alike.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(167) >> 3 ^ n) as u8).collect()
}

/// The Internet checksum, as RFC 1071 words it.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 frame; `flags_and_offset` as in the header, the options padded already.
#[derive(Clone, Debug)]
pub(crate) struct Ipv4 {
    pub(crate) options: Vec<u8>,
    pub(crate) id: u16,
    pub(crate) flags_and_offset: u16,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl Default for Ipv4 {
    fn default() -> Self {
        Self {
            options: Vec::new(),
            id: 0x1234,
            flags_and_offset: 0,
            traffic_class: 0,
            protocol: 17,
            payload: payload(4104),
        }
    }
}

impl Ipv4 {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let mut frame = LINK.to_vec();
        frame.extend([8, 0, 0x40 | (header_len / 4) as u8, self.traffic_class]);
        frame.extend(((header_len + self.payload.len()) as u16).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
        frame.extend(self.flags_and_offset.to_be_bytes());
        frame.extend([64, self.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(&self.options);
        seal(&mut frame);
        frame.extend(&self.payload);
        frame
    }
}

/// Fills in the checksum of the IPv4 header that the frame has room for.
pub(crate) fn seal(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15) * 4;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv6 frame with headers (kind and all bytes behind its first) before what it
/// carries.
#[derive(Clone, Debug)]
pub(crate) struct Ipv6 {
    pub(crate) headers: Vec<(u8, Vec<u8>)>,
    pub(crate) traffic_class: u8,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl Default for Ipv6 {
    fn default() -> Self {
        Self { headers: Vec::new(), traffic_class: 0, protocol: 17, payload: payload(4104) }
    }
}

impl Ipv6 {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut kinds: Vec<u8> = self.headers.iter().map(|(kind, _)| *kind).collect();
        kinds.push(self.protocol);
        let len: usize = self.headers.iter().map(|(_, bytes)| 1 + bytes.len()).sum();
        let mut frame = LINK.to_vec();
        frame.extend([0x86, 0xdd, 0x60 | self.traffic_class >> 4, self.traffic_class << 4, 0, 7]);
        frame.extend(((len + self.payload.len()) as u16).to_be_bytes());
        frame.extend([kinds[0], 64]);
        for host in 1..=2 {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        for ((_, bytes), next) in self.headers.iter().zip(&kinds[1..]) {
            frame.push(*next);
            frame.extend(bytes);
        }
        frame.extend(&self.payload);
        frame
    }
}

/// Options that pad (RFC 8200, section 4.2), in a header of `8 + more * 8` bytes.
pub(crate) fn padding(kind: u8, more: u8) -> (u8, Vec<u8>) {
    let len = 6 + more * 8;
    let mut bytes = std::vec![more, 1, len - 2];
    bytes.resize(1 + usize::from(len), 0);
    (kind, bytes)
}

/// A routing header with one address; `left` more stations are on the way.
pub(crate) fn routing(left: u8) -> (u8, Vec<u8>) {
    let mut bytes = std::vec![2, 2, left];
    bytes.resize(23, 0xfd);
    (43, bytes)
}

/// A fragment header.
pub(crate) fn piece(offset: u16, more: bool, id: u32) -> (u8, Vec<u8>) {
    let mut bytes = std::vec![0];
    bytes.extend((offset & !7 | u16::from(more)).to_be_bytes());
    bytes.extend(id.to_be_bytes());
    (44, bytes)
}

/// Options of IPv4, well formed and padded.
pub(crate) fn options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(std::vec![1]),
        (any::<u8>(), 2..12_u8).prop_map(|(kind, len)| {
            // Neither the end nor nothing: these have no length.
            let mut option = std::vec![kind.max(2), len];
            option.resize(usize::from(len), 0xab);
            option
        }),
    ];
    prop::collection::vec(one, 0..6).prop_map(|list| {
        let mut all = Vec::new();
        for option in list {
            if all.len() + option.len() <= 40 {
                all.extend(option);
            }
        }
        all.resize(all.len().next_multiple_of(4), 0);
        all
    })
}

/// Lengths of payloads around the sizes of pages, odd ones too.
pub(crate) fn payload_len(most: usize) -> impl Strategy<Value = usize> {
    let around = |page: usize| page - 20..page + 80;
    prop_oneof![0..3000_usize, around(4096), around(8192), around(16_384), 0..=most]
        .prop_map(move |len| len.min(most))
}

/// Frames of IPv4, whole or pieces that are as they have to be.
pub(crate) fn any_ipv4() -> impl Strategy<Value = Ipv4> {
    (
        options(),
        any::<u16>(),
        any::<bool>(),
        any::<u8>(),
        prop::sample::select(&[1, 6, 17, 132][..]),
    )
        .prop_flat_map(|(options, id, dont_fragment, traffic_class, protocol)| {
            payload_len(65_515 - options.len()).prop_map(move |len| Ipv4 {
                options: options.clone(),
                id,
                flags_and_offset: u16::from(dont_fragment) << 14,
                traffic_class,
                protocol,
                payload: payload(len),
            })
        })
}

/// The headers that may stand before a fragment header.
pub(crate) fn per_fragment() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    (prop::option::of(0..3_u8), prop::option::of(0..2_u8), any::<bool>()).prop_map(
        |(hop_by_hop, options, is_routed)| {
            let mut headers = Vec::new();
            headers.extend(hop_by_hop.map(|more| padding(0, more)));
            if is_routed {
                headers.extend(options.map(|more| padding(60, more)));
                headers.push(routing(0));
            }
            headers
        },
    )
}

/// Frames of IPv6 without a fragment header.
pub(crate) fn any_ipv6() -> impl Strategy<Value = Ipv6> {
    (per_fragment(), any::<u8>(), prop::sample::select(&[6, 17, 58, 132][..])).prop_flat_map(
        |(headers, traffic_class, protocol)| {
            let used: usize = headers.iter().map(|(_, bytes)| 1 + bytes.len()).sum();
            payload_len(65_535 - used).prop_map(move |len| Ipv6 {
                headers: headers.clone(),
                traffic_class,
                protocol,
                payload: payload(len.max(1)),
            })
        },
    )
}

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
        seal(&mut frame);
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

/// Frames that nearly mean something.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let ipv4 = (any_ipv4(), any::<u16>()).prop_map(|(mut packet, flags_and_offset)| {
        packet.payload.truncate(2000);
        packet.flags_and_offset = flags_and_offset;
        packet.frame()
    });
    let ipv6 = (any_ipv6(), any::<u16>(), any::<bool>(), any::<u32>()).prop_map(
        |(mut packet, offset, more, id)| {
            packet.payload.truncate(2000);
            packet.headers.push(piece(offset, more, id));
            packet.frame()
        },
    );
    let many_headers = prop::collection::vec((0..4_u8, 0..20_u8), 0..30).prop_map(|kinds| {
        let headers = kinds.into_iter().map(|(kind, more)| match kind {
            0 => padding(0, more),
            1 => padding(60, more),
            2 => routing(more / 19),
            _ => piece(u16::from(more) << 3, more % 2 == 0, 1),
        });
        Ipv6 { headers: headers.collect(), payload: payload(64), ..Ipv6::default() }.frame()
    });
    let anything = prop::collection::vec(any::<u8>(), 0..300);
    let of_ethertype = (prop::sample::select(&[[8, 0], [0x86, 0xdd]][..]), anything.clone())
        .prop_map(|(ethertype, rest)| [&[0; 12][..], &ethertype, &rest].concat());
    let whole =
        prop_oneof![3 => ipv4, 3 => ipv6, 2 => many_headers, 1 => of_ethertype, 1 => anything];
    let change = (any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
    (whole, prop::option::of(change), prop::option::of(any::<prop::sample::Index>())).prop_map(
        |(mut frame, change, end)| {
            if let Some((at, value, sealed)) = change.filter(|_| frame.len() >= 74) {
                let at = at.index(74);
                frame[at] = value;
                if sealed && frame[12..14] == [8, 0] {
                    seal(&mut frame);
                }
            }
            if let Some(end) = end {
                frame.truncate(end.index(frame.len() + 1));
            }
            frame
        },
    )
}

/// Reads with more and more at hand, as it is asked for.
fn read_step_by_step(frame: &[u8]) -> Result<Parsed, Stop> {
    let mut shown = 0;
    loop {
        match parse(&frame[..shown], frame.len() as u32) {
            Err(Stop::NeedHead(len)) => {
                assert!(shown < usize::from(len), "it has that already");
                assert!(usize::from(len) <= frame.len(), "there is no more");
                assert!(usize::from(len) <= Head::MOST + 8, "more than a head");
                shown = len.into();
            }
            read => return read,
        }
    }
}

proptest! {
    #[test]
    fn invariant_8_no_panic_on_any_frame(
        bytes in prop_oneof![frame(), prop::collection::vec(any::<u8>(), 0..200)],
        frame_len in prop_oneof![Just(None), any::<u32>().prop_map(Some)],
        payload_len: u32,
    ) {
        let frame_len = frame_len.unwrap_or(bytes.len() as u32);
        for shown in 0..=bytes.len().min(300) {
            let _ = parse(&bytes[..shown], frame_len);
        }
        if let Ok(parsed) = parse(&bytes, frame_len) {
            for shown in [bytes.len(), parsed.payload_at.into(), 40, 0] {
                let head = &bytes[..shown.min(bytes.len())];
                let _ = whole_head(head, &parsed, payload_len, Ecn::Capable1);
                let _ = time_exceeded(head, &parsed, &bytes);
            }
        }
        let _ = adapt(&bytes, payload_len as u16 % 256, frame_len);
        let _ = transport_len(payload_len as u8 % 60, &bytes);
    }

    #[test]
    fn how_much_is_shown_does_not_matter(frame in frame()) {
        let len = frame.len() as u32;
        let read = parse(&frame, len);
        prop_assert_eq!(read_step_by_step(&frame), read);
        prop_assert_eq!(parse_any(&frame, len), read, "the short way and the long one");
        for shown in 0..frame.len().min(300) {
            let partly = parse(&frame[..shown], len);
            prop_assert!(partly == read || matches!(partly, Err(Stop::NeedHead(_))), "{}", shown);
        }
        let behind = [&frame[..], &[0xff; 64]].concat();
        prop_assert_eq!(parse(&behind, len), read, "what is behind the frame does not count");
    }

    #[test]
    fn the_model_reads_the_same(frame in frame()) {
        let ours = parse(&frame, frame.len() as u32);
        match read(&frame) {
            Reading::Whole => prop_assert!(
                matches!(ours, Ok(Parsed { fragment: None, .. }) | Err(Stop::Foreign)),
                "{:?}", ours
            ),
            Reading::Bad => prop_assert!(matches!(ours, Err(Stop::Refused(_))), "{:?}", ours),
            Reading::Piece(theirs) => {
                let parsed = ours.unwrap();
                let piece = parsed.fragment.unwrap();
                prop_assert_eq!(piece.offset as usize, theirs.offset);
                prop_assert_eq!((piece.more, piece.id), (theirs.more, theirs.name.id));
                prop_assert_eq!(parsed.ecn as u8, theirs.ecn);
                let from = usize::from(parsed.payload_at);
                prop_assert_eq!(&frame[from..from + parsed.payload_len as usize], theirs.bytes);
            }
        }
    }
}
