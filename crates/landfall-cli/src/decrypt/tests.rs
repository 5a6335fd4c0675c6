//! What is opened, what stays, and that no capture does harm.

use proptest::prelude::*;

use super::*;

/// The vector of `docs/spec/seal.md`.
const LINE: &str = "LANDFALL_TO_RESPONDER_0 010a0b0c0d01020304 893d8233d9c3630361255900ffd68e044164c521f85d9356c51db244c390a3ccebf282403e789dd641022b81b7713e13";
const UNIT: &str = "e0c65b0801020304a8a719929cf31e2604b88032f9186eafe947d998aa1f30bc\
    28a538c51073caf909dc2a842ce4731a71d4d3e060709a71d9d21abf726be3b62d250ce4a8c8113a\
    4412a1516a2ce0ec6e21166c";

fn unit() -> Vec<u8> {
    let digits = UNIT.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// What it is when it is opened.
fn plain() -> Vec<u8> {
    (0..40).chain(*b"in its place").collect()
}

const ETHERNET: u16 = 1;

fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &ethertype.to_be_bytes(), packet].concat()
}

/// The same, with lengths and checksums of their own: what `Place::replace` is to make.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut head = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    head[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    let sum = landfall_placement::checksum::checksum(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    [head, payload.to_vec()].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut head = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    head[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    head.extend([1; 16].into_iter().chain([2; 16]));
    [head, payload.to_vec()].concat()
}

/// Without a checksum.
fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let fields = [40_000, port, len, 0].map(u16::to_be_bytes);
    [fields.as_flattened(), payload].concat()
}

/// A capture of these frames, in the format that this writes.
fn pcap(link_type: u16, frames: &[(Vec<u8>, u32)]) -> Vec<u8> {
    let mut sheet = Sheet::new(Vec::new());
    for (nth, (bytes, len)) in (0..).zip(frames) {
        let (nanos, bytes, len) = (nth * 1_000_000_007, bytes.clone(), *len);
        let packet = Recorded { link_type, nanos, len, bytes };
        sheet.write(&packet, &packet.bytes, len).unwrap();
    }
    sheet.file
}

fn whole(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<(Vec<u8>, u32)> {
    frames.into_iter().map(|frame| (frame.clone(), frame.len() as u32)).collect()
}

fn read_all(bytes: &[u8]) -> Result<(Vec<Recorded>, bool), recording::BadCapture> {
    let mut recording = Recording::new(bytes)?;
    let mut all = Vec::new();
    while let Some(packet) = recording.next()? {
        all.push(packet);
    }
    Ok((all, recording.is_cut))
}

/// Opens a capture; gives the frames of what is written.
fn open(capture: &[u8], lines: &str) -> Result<(Vec<Recorded>, Summary)> {
    let mut summary = Summary::default();
    let opener = read_keys(lines.as_bytes(), &mut summary)?;
    let mut sheet = Sheet::new(Vec::new());
    open_all(Recording::new(capture)?, opener, &mut sheet, &mut summary)?;
    let written = if sheet.file.is_empty() { Vec::new() } else { read_all(&sheet.file)?.0 };
    Ok((written, summary))
}

#[test]
fn a_unit_is_opened_whatever_carries_it() {
    let (unit, plain) = (unit(), plain());
    let cooked = |rest: &[u8]| [&[0; 14][..], &0x0800u16.to_be_bytes(), rest].concat();
    let cooked_2 = |rest: &[u8]| [&0x86ddu16.to_be_bytes()[..], &[0; 18], rest].concat();
    type Wrap<'a> = (u16, &'a dyn Fn(&[u8]) -> Vec<u8>);
    let wraps: [Wrap<'_>; 8] = [
        (ETHERNET, &|unit| ethernet(0x8181, unit)),
        (ETHERNET, &|unit| ethernet(0x8100, &[&[0, 7, 0x81, 0x81], unit].concat())),
        (ETHERNET, &|unit| ethernet(0x0800, &ipv4(118, unit))),
        (ETHERNET, &|unit| ethernet(0x86dd, &ipv6(118, unit))),
        (101, &|unit| ipv4(118, unit)),
        (101, &|unit| ipv6(118, unit)),
        (113, &|unit| cooked(&ipv4(118, unit))),
        (276, &|unit| cooked_2(&ipv6(118, unit))),
    ];
    for (nth, (link_type, wrap)) in wraps.iter().enumerate() {
        let capture = pcap(*link_type, &whole([wrap(&unit)]));
        let (written, summary) = open(&capture, LINE).unwrap();
        assert_eq!((summary.opened, summary.packets), (1, 1), "{nth}");
        assert_eq!(written[0].bytes, wrap(&plain), "{nth}");
        assert_eq!((written[0].nanos, written[0].link_type), (0, *link_type));
    }
}

/// Of admission control the frame becomes what it would be in clear: what is around the unit goes.
#[test]
fn a_unit_of_admission_control_is_opened() {
    let (unit, plain) = (unit(), plain());
    let len = (unit.len() as u16).to_be_bytes();
    let sealed = [b"LFAC\x01\x06", &len[..], &unit, &[0; 9]].concat();
    for head in [&[][..], &[0xa0, 0, 0x88, 0xb5]] {
        let frame = |rest: &[u8]| {
            ethernet(if head.is_empty() { 0x88b5 } else { 0x8100 }, &[head, rest].concat())
        };
        let (written, summary) =
            open(&pcap(ETHERNET, &whole([frame(&sealed), frame(b"LFAC\x01\x06")])), LINE).unwrap();
        assert_eq!((summary.opened, summary.packets), (1, 2));
        assert_eq!(written[0].bytes, frame(&plain));
        assert_eq!(written[1].bytes, frame(b"LFAC\x01\x06"));
    }
}

/// A checksum of UDP is made anew: summed up with what it is of it is all ones.
#[test]
fn a_datagram_that_was_opened_has_a_good_checksum() {
    type Wrap = fn(u8, &[u8]) -> Vec<u8>;
    for (ethertype, wrap, at, addresses) in
        [(0x0800, ipv4 as Wrap, 34, 26..34), (0x86dd, ipv6 as Wrap, 54, 22..54)]
    {
        let frame = |unit: &[u8]| ethernet(ethertype, &wrap(17, &udp(7, unit)));
        let (written, summary) = open(&pcap(ETHERNET, &whole([frame(&unit())])), LINE).unwrap();
        assert_eq!(summary.opened, 1);
        let bytes = &written[0].bytes;
        let mut sum = landfall_placement::checksum::InternetSum::new();
        sum.add(&bytes[addresses]);
        sum.add(&[0, 17, 0, (bytes.len() - at) as u8]);
        sum.add(&bytes[at..]);
        assert_eq!(sum.sum(), 0xffff);
        // But for that it is what was to be expected.
        let mut without = bytes.clone();
        without[at + 6..at + 8].fill(0);
        assert_eq!(without, frame(&plain()));
    }
}

#[test]
fn what_is_not_opened_stays_and_is_counted() {
    let unit = unit();
    let mut forged = unit.clone();
    forged[50] ^= 1;
    let mut stranger = unit.clone();
    stranger[7] ^= 1;
    let mut fragment = ipv4(17, &udp(8181, &unit));
    fragment[6] = 0x20;
    let frames = [
        ethernet(0x8181, &unit),
        ethernet(0x8181, &forged),
        ethernet(0x8181, &stranger),
        ethernet(0x8181, &[0xe1, 1, 1, 1]),
        ethernet(0x8181, &[0xe0, 1, 1]),
        ethernet(0x8181, &[1; 40]),
        ethernet(0x0800, &fragment),
        ethernet(0x0800, &ipv4(17, &udp(8181, &stranger))),
        // QUIC looks so, on its ports.
        ethernet(0x0800, &ipv4(17, &udp(443, &stranger))),
        ethernet(0x0800, &ipv4(6, &[0xe0; 40])),
        ethernet(0x0806, &[0; 28]),
        Vec::new(),
    ];
    let mut frames = whole(frames);
    // The last of its bytes was not recorded.
    frames.push((ethernet(0x8181, &unit[..unit.len() - 1]), 14 + unit.len() as u32));
    let lines = format!("# a comment\nCLIENT_RANDOM 00 00\n{LINE}\n{LINE}0\n");
    let (written, summary) = open(&pcap(ETHERNET, &frames), &lines).unwrap();
    let expected = Summary {
        packets: 13,
        opened: 1,
        handshakes: 1,
        no_key: 2,
        cut: 2,
        forged: 1,
        fragments: 1,
        other: 5,
        bad_lines: 1,
        is_cut: false,
    };
    assert_eq!(summary, expected);
    assert_eq!(written[0].bytes, ethernet(0x8181, &plain()));
    for (was, is) in frames.iter().zip(&written).skip(1) {
        assert_eq!((&was.0, was.1), (&is.bytes, is.len));
    }
}

/// A device that cuts datagrams shows several units as one: each becomes a packet.
#[test]
fn units_that_were_recorded_as_one_become_packets_of_their_own() {
    let (unit, plain) = (unit(), plain());
    let mut forged = unit.clone();
    forged[80] ^= 1;
    let frame = |units: &[u8]| ethernet(0x0800, &ipv4(118, units));
    let run = [&unit[..], &unit, &forged, &unit].concat();
    let (written, summary) = open(&pcap(ETHERNET, &whole([frame(&run)])), LINE).unwrap();
    assert_eq!((summary.packets, summary.opened, summary.forged), (1, 3, 1));
    let bytes: Vec<_> = written.into_iter().map(|packet| packet.bytes).collect();
    assert_eq!(bytes, [frame(&plain), frame(&plain), frame(&forged), frame(&plain)]);
}

/// A capture of one packet as pcapng, with everything that such a file may have.
fn pcapng(is_big_endian: bool, resolution: u8, ticks: u64) -> Vec<u8> {
    let word = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
    let half = |half: u16| if is_big_endian { half.to_be_bytes() } else { half.to_le_bytes() };
    let block = |kind: u32, body: &[u8]| {
        let len = word(body.len() as u32 + 12);
        [&word(kind), &len, body, &len].concat()
    };
    let section = [&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
    let other = [&half(147)[..], &[0; 2], &word(0)].concat();
    let options = [&half(9)[..], &half(1), &[resolution, 0, 0, 0], &[0; 4]].concat();
    let interface = [&half(ETHERNET)[..], &[0; 2], &word(3), &options].concat();
    let packet =
        [&[1, ticks >> 32, ticks, 5, 9].map(|n| word(n as u32)).concat()[..], b"abcde\0\0\0"];
    let parts = [
        block(0x0a0d_0d0a, &section),
        block(1, &other),
        block(1, &interface),
        block(4, b"namename"),
        block(6, &packet.concat()),
        block(0x0a0d_0d0a, &section),
        block(1, &interface),
        block(3, &[&word(9)[..], b"abc\0"].concat()),
    ];
    parts.concat()
}

#[test]
fn pcapng_is_read_in_either_byte_order() {
    for is_big_endian in [false, true] {
        for (resolution, ticks) in [(6, 3_000_001), (9, 3_000_001_000), (0x80 | 32, 3 << 32 | 4295)]
        {
            let bytes = pcapng(is_big_endian, resolution, ticks);
            let (packets, is_cut) = read_all(&bytes).unwrap();
            let nanos = 3_000_001_000;
            let first = Recorded { link_type: ETHERNET, nanos, len: 9, bytes: b"abcde".to_vec() };
            let second = Recorded { nanos: 0, bytes: b"abc".to_vec(), ..first.clone() };
            assert_eq!((packets, is_cut), (vec![first, second], false));
        }
    }
    assert!(read_all(&pcapng(false, 100, 1)).is_err(), "there is no such clock");
}

#[test]
fn pcap_is_read_in_either_byte_order() {
    for (magic, is_big_endian, part) in
        [(0xa1b2_c3d4_u32, false, 7), (0xa1b2_c3d4, true, 7), (0xa1b2_3c4d, true, 7_000)]
    {
        let word = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        // The upper half of the link type tells of a checksum behind each frame.
        let words = [magic, 0, 0, 0, 65_536, 0x5000_0001, 2, part, 3, 60];
        let bytes = [words.map(word).as_flattened(), b"abc"].concat();
        let (packets, is_cut) = read_all(&bytes).unwrap();
        let bytes = b"abc".to_vec();
        let expected = Recorded { link_type: ETHERNET, nanos: 2_000_007_000, len: 60, bytes };
        assert_eq!((packets, is_cut), (vec![expected], false));
    }
}

/// What is cut off anywhere gives the packets before, and says so.
#[test]
fn a_capture_that_was_cut_off_is_opened_up_to_there() {
    let frames = whole([ethernet(0x8181, &unit()), ethernet(0x0806, &[1; 28])]);
    for capture in [pcap(ETHERNET, &frames), pcapng(false, 6, 1), pcapng(true, 6, 1)] {
        let (all, _) = read_all(&capture).unwrap();
        for len in 0..capture.len() {
            let Ok((some, is_cut)) = read_all(&capture[..len]) else {
                assert!(len < 28, "{len}");
                continue;
            };
            assert!(some.len() < all.len() || !is_cut, "{len}");
            assert_eq!(some[..], all[..some.len()], "{len}");
        }
    }
}

#[test]
fn captures_of_several_link_types_are_an_error_that_says_what_to_do() {
    let mut sheet = Sheet::new(Vec::new());
    let packet = |link_type| Recorded { link_type, nanos: 0, len: 1, bytes: vec![1] };
    sheet.write(&packet(1), &[1], 1).unwrap();
    let error = sheet.write(&packet(101), &[1], 1).unwrap_err();
    assert!(error.to_string().contains("one interface"), "{error}");
}

proptest! {
    /// Whatever somebody calls a capture: an error or packets, and nothing that panics.
    #[test]
    fn no_capture_makes_it_panic(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        junk in prop::collection::vec(any::<u8>(), 0..200),
        link_type in prop::sample::select(vec![1u16, 12, 101, 113, 276, 147]),
    ) {
        let unit = unit();
        let ip = [
            ethernet(0x0800, &ipv4(17, &udp(8181, &unit))),
            ethernet(0x86dd, &ipv6(118, &unit)),
            ethernet(0x8181, &[&unit[..], &unit].concat()),
            ipv4(118, &unit),
            junk.clone(),
        ];
        let mut capture = match which {
            0 => pcap(link_type, &whole(ip)),
            1 => pcapng(false, 9, 7),
            2 => pcapng(true, 6, 7),
            _ => junk,
        };
        for (at, byte) in changes {
            if !capture.is_empty() {
                let at = at.index(capture.len());
                capture[at] = byte;
            }
        }
        let _ = open(&capture, LINE);
    }

    /// Nor does any frame, cut anywhere.
    #[test]
    fn no_frame_makes_it_panic(
        mut frame in prop::collection::vec(any::<u8>(), 0..120),
        kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x8181]),
        protocol in prop::sample::select(vec![17u8, 118, 44, 6]),
        version in prop::sample::select(vec![0x45u8, 0x4f, 0x60]),
        len in 0usize..200,
    ) {
        if frame.len() > 40 {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            (frame[14], frame[20], frame[23]) = (version, protocol, protocol);
            frame[20..22].fill(0);
        }
        for link_type in [1, 101, 113, 276] {
            if let Content::Unit(place) = frame::look(link_type, &frame, len.max(frame.len()))
                && !place.unit(&frame).is_empty()
            {
                let _ = place.replace(&frame, b"something else");
            }
        }
    }
}
