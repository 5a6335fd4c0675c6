use super::*;
use crate::address::{HostId, Key};
use proptest::prelude::*;
use std::vec::Vec;

fn burst(word: u32, words: u16) -> Entry {
    let host = HostId::new(2).unwrap();
    let key = Key::from_bits(0x0011_2233_4455_6677);
    Entry { address: Address { kind: Kind::Burst, host, slot: 5, word, mask: WHOLE, key }, words }
}

const HEADER: FrameHeader = FrameHeader {
    kind: FrameKind::Data,
    flags: FrameFlags(0),
    tag: 0x0102_0304_0506_0708,
    seq: 0x1112_1314,
    ack: 0x2122_2324,
    sack: 0x3132_3334_3536_3738,
    credit: 0x4142,
    marks: 0x51,
    entries: 0,
    payload_len: 0,
};

fn built(header: FrameHeader, entries: &[Entry], payload: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; HEADER_LEN];
    bytes.extend(entries.iter().flat_map(|entry| entry.to_bytes()));
    bytes.extend(payload);
    let entries = entries.len() as u8;
    FrameHeader { entries, payload_len: payload.len() as u16, ..header }.write(&mut bytes);
    bytes
}

fn parse(bytes: &[u8]) -> Result<Frame<'_>, Incomplete> {
    Frame::parse(bytes, bytes.len() as u32)
}

fn refused(bytes: &[u8]) -> Option<Refusal> {
    match parse(bytes) {
        Err(Incomplete::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

#[test]
fn a_header_stands_on_the_wire_as_described() {
    let bytes = built(HEADER, &[burst(7, 1)], &[0xaa; 8]);
    assert_eq!(bytes[..4], [b'C', b'L', 0x10, 0]);
    assert_eq!(bytes[4..12], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[12..20], [0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24]);
    assert_eq!(bytes[20..28], [0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38]);
    assert_eq!(bytes[28..34], [0x41, 0x42, 0x51, 1, 0, 8]);
    let mut covered = bytes[..34].to_vec();
    covered.extend(&bytes[40..58]);
    assert_eq!(bytes[34..38], crc::crc32c(&covered).to_be_bytes());
    assert_eq!(bytes[38..40], [0, 0], "the driver's");
    assert_eq!(bytes[56..58], [0, 1]);
}

#[test]
fn a_short_head_is_asked_for_more() {
    let bytes = built(HEADER, &[burst(7, 2), burst(9, 1)], &[0xaa; 24]);
    let len = bytes.len() as u32;
    for at_hand in 0..bytes.len() {
        let seen = Frame::parse(&bytes[..at_hand], len);
        match at_hand {
            ..40 => assert_eq!(seen.err(), Some(Incomplete::Need(40))),
            40..76 => assert_eq!(seen.err(), Some(Incomplete::Need(76))),
            _ => assert_eq!(seen.unwrap().payload().len(), at_hand - 76),
        }
    }
    for len in 0..len {
        let cut = Frame::parse(&bytes[..len as usize], len).err();
        assert_eq!(cut, Some(Incomplete::Refused(Refusal::Truncated)));
    }
}

#[test]
fn padding_is_no_part_of_the_frame() {
    let mut bytes = built(HEADER, &[burst(7, 1)], &[0xaa; 8]);
    bytes.extend([0xff; 20]);
    let frame = parse(&bytes).unwrap();
    assert_eq!((frame.payload(), frame.end()), (&[0xaa; 8][..], 66));
}

#[test]
fn what_the_crc_covers_cannot_change_unnoticed() {
    let bytes = built(HEADER, &[burst(7, 2)], &[0xaa; 16]);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let is_covered = !(38..40).contains(&(bit / 8)) && bit / 8 < 58;
        assert_eq!(parse(&damaged).is_err(), is_covered, "bit {bit}");
    }
}

#[test]
fn entries_that_nobody_writes_are_refused() {
    let good = burst(7, 1);
    let command = |word, mask| Address { kind: Kind::Command, word, mask, ..good.address };
    let cases = [
        Entry { words: 0, ..good },
        Entry { words: 2, address: Address { word: u32::MAX, ..good.address } },
        Entry { words: 2, address: Address { mask: 1, ..good.address } },
        Entry { words: 0, address: command(0, WHOLE) },
        Entry { words: 13, address: command(97, WHOLE) },
        Entry { words: 1, address: command(9, WHOLE) },
        Entry { words: 1, address: command(8, 1) },
    ];
    for entry in cases {
        let payload = std::vec![0; entry.payload_len() as usize];
        assert_eq!(
            refused(&built(HEADER, &[entry], &payload)),
            Some(Refusal::Malformed),
            "{entry:?}"
        );
    }
    let payload = [0; 16];
    assert_eq!(refused(&built(HEADER, &[good], &payload)), Some(Refusal::Malformed), "too long");
    assert_eq!(refused(&built(HEADER, &[], &[])), Some(Refusal::Malformed), "without any");
    let many = [good; MAX_ENTRIES + 1];
    assert_eq!(
        refused(&built(HEADER, &many, &[0; 8 * (MAX_ENTRIES + 1)])),
        Some(Refusal::Malformed)
    );
    let ack = FrameHeader { kind: FrameKind::Ack, ..HEADER };
    assert_eq!(refused(&built(ack, &[good], &[0; 8])), Some(Refusal::Malformed));
    assert_eq!(refused(&built(ack, &[], &[0; MAX_BODY + 1])), Some(Refusal::Malformed));
    let flags = FrameHeader { flags: FrameFlags(16), ..HEADER };
    assert_eq!(refused(&built(flags, &[good], &[0; 8])), Some(Refusal::Malformed));
}

#[test]
fn strangers_on_the_ethertype_are_not_ours() {
    let bytes = built(HEADER, &[burst(7, 1)], &[0; 8]);
    for (at, with) in [(0, b'L'), (1, b'F'), (2, 0x20), (2, 0x18)] {
        let mut other = bytes.clone();
        other[at] = with;
        assert_eq!(refused(&other), Some(Refusal::Unsupported));
    }
}

#[test]
fn the_sum_covers_table_and_payload() {
    let flags = FrameFlags::SUM;
    let mut bytes = built(FrameHeader { flags, ..HEADER }, &[burst(7, 1)], &[0xa5; 8]);
    let sum = landfall_placement::checksum::checksum(&bytes[usize::from(SUM_SLOT.start)..]);
    bytes[38..40].copy_from_slice(&sum.to_be_bytes());
    bytes.extend([0; 4]);
    let Check::InternetSum { from, len, seed: 0 } = parse(&bytes).unwrap().check() else {
        panic!("a sum is wanted")
    };
    let covered = &bytes[usize::from(from)..][..len as usize];
    assert_eq!(landfall_placement::checksum::sum_of(covered), 0xffff);
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(
        tag: u64, seq: u32, ack: u32, sack: u64, credit: u16, marks: u8, flags in 0u8..16,
        lens in prop::collection::vec((any::<u32>(), 1u16..40, 0u32..8, 1u32..=8), 1..=MAX_ENTRIES),
    ) {
        let entries: Vec<_> = lens.iter().map(|(word, words, from, len)| {
            let mask = Address::mask_of(*from, (*len).min(8 - from)).unwrap();
            let words = if mask == WHOLE { *words } else { 1 };
            let word = (*word).min(u32::MAX - 40);
            Entry { address: Address { word, mask, ..burst(0, 1).address }, words }
        }).collect();
        let len: u32 = entries.iter().map(Entry::payload_len).sum();
        let header = FrameHeader { tag, seq, ack, sack, credit, marks, flags: FrameFlags(flags), ..HEADER };
        let bytes = built(header, &entries, &std::vec![7; len as usize]);
        let frame = parse(&bytes).unwrap();
        prop_assert_eq!(frame.entries().collect::<Vec<_>>(), entries);
        prop_assert_eq!(frame.end() as usize, bytes.len());
        let read = *frame.header();
        let expected = FrameHeader { entries: read.entries, payload_len: len as u16, ..header };
        prop_assert_eq!(read, expected);
        let mut again = bytes.clone();
        read.write(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn invariant_8_no_bytes_panic(mut bytes: Vec<u8>, unit: u32, kind in 0u8..6, entries in 0u8..14) {
        let _ = Frame::parse(&bytes, unit);
        if bytes.len() < HEADER_LEN { return Ok(()); }
        // And with all that is checked first put right.
        bytes[..3].copy_from_slice(&[b'C', b'L', 0x10 | kind]);
        bytes[31] = entries;
        let covered = (HEADER_LEN + usize::from(entries) * Entry::LEN).min(bytes.len());
        let crc = crc_of(&bytes[..covered]);
        bytes[34..38].copy_from_slice(&crc.to_be_bytes());
        if let Ok(frame) = parse(&bytes) {
            prop_assert!(frame.payload().len() <= bytes.len());
            let sum: u32 = frame.entries().map(|entry| entry.payload_len()).sum();
            prop_assert!(frame.kind() != FrameKind::Data || sum == frame.payload_len());
        }
    }
}
