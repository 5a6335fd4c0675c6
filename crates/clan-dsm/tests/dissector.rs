//! `docs/wireshark/clan.lua`, run by tshark where it is installed: it must agree
//! with the codec about every frame, good or bad.

use clan_dsm::Kind;
use clan_dsm::wire::frame::{ETHERTYPE, HEADER_LEN, UDP_PORT};
use clan_dsm::wire::{Command, Entry, Frame, FrameFlags, FrameKind, Incomplete};
use landfall_placement::checksum::{checksum, sum_of};
use landfall_placement::{Check, Random, Refusal, crc32c as crc};
use landfall_testkit::document::{self, Vector};
use landfall_testkit::tshark::Dissector;

const CLAN: Dissector<'_> = Dissector {
    script: "clan",
    protocol: "clan",
    fields: &["kind"],
    marks: &[Refusal::Truncated, Refusal::Unsupported, Refusal::Malformed, Refusal::BadChecksum],
};

/// Every vector of the document.
fn vectors() -> Vec<Vector> {
    document::vectors(&document::page("docs/spec/clan.md"))
}

fn on_ethernet(frame: &[u8]) -> Vec<u8> {
    const SHORTEST: usize = 60;
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(frame);
    bytes.resize(bytes.len().max(SHORTEST), 0);
    bytes
}

fn in_udp(port: u16, frame: &[u8]) -> Vec<u8> {
    let len = 28 + frame.len() as u16;
    let mut ip = vec![0x45, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [port, port, len - 20, 0].map(u16::to_be_bytes).concat();
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([&ip[..], &udp, frame].concat());
    bytes
}

/// What the codec, and the pass over the payload that it asks for, find wrong.
fn fault_of(bytes: &[u8]) -> Option<Refusal> {
    let frame = match Frame::parse(bytes, bytes.len() as u32) {
        Ok(frame) => frame,
        Err(Incomplete::Refused(refusal)) => return Some(refusal),
        Err(Incomplete::Need(_)) => unreachable!("all is at hand"),
    };
    if let Check::InternetSum { from, len, seed: 0 } = frame.check()
        && frame.kind().is_data()
        && sum_of(&bytes[usize::from(from)..][..len as usize]) != 0xffff
    {
        return Some(Refusal::BadChecksum);
    }
    let mut payload = frame.payload();
    let mut faults = frame.entries().filter_map(|entry| {
        let (this, rest) = payload.split_at(entry.payload_len() as usize);
        payload = rest;
        let is_command = entry.address.kind == Kind::Command;
        is_command.then(|| Command::parse(&entry.address, this).err()).flatten()
    });
    faults.next()
}

/// With a CRC, and a sum, that fit again.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let is_data = [FrameKind::Data, FrameKind::GroupData].map(|kind| kind as u8);
    let is_data = is_data.contains(&(bytes[2] & 0xf));
    let table = HEADER_LEN + usize::from(bytes[31]) * Entry::LEN;
    let end = table + usize::from(u16::from_be_bytes([bytes[32], bytes[33]]));
    let covered = if is_data { table } else { end }.min(bytes.len());
    let crc = crc::extend(crc::crc32c(&bytes[..34]), &bytes[HEADER_LEN..covered]);
    bytes[34..38].copy_from_slice(&crc.to_be_bytes());
    if is_data && bytes[3] & FrameFlags::SUM.0 != 0 {
        bytes[38..40].fill(0);
        let sum = checksum(&bytes[38..end.min(bytes.len())]);
        bytes[38..40].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

#[test]
fn every_vector_is_dissected() {
    let vectors = vectors();
    let data = |words: &str| format!("Data 7 ack 5: {words}");
    let infos = [
        data("Burst slot 3 word 16 +16, Burst slot 3 word 64 +2"),
        data("Burst slot 3 word 16 +16"),
        "Ack ack 5".to_owned(),
        "Ack ack 5".to_owned(),
        "Hello: Ask host 1".to_owned(),
        "Hello: Answer host 2".to_owned(),
        "Hello: Confirm host 1".to_owned(),
        "Bye: refused".to_owned(),
        "Stranger".to_owned(),
        data("Read 4096 bytes from slot 3 word 32"),
        data("ReadRefused out of bounds"),
        data("WordOp compare and swap slot 3 word 33"),
        data("WordReply slot 9"),
        data("OutOfBand Message 1000 to 2000"),
        data("Exception slot 3 word 16: no such aperture or key"),
        data("Barrier 6"),
        data("BarrierReached 6"),
        data("GroupInvite host 2 slot 3 from 7"),
        data("GroupStart from 7"),
        data("GroupEnd "),
        "GroupProbe".to_owned(),
        "GroupData 7: Multicast slot 3 word 0 +16".to_owned(),
        "GroupAck ack 5".to_owned(),
    ];
    let expected = || {
        let expected = vectors.iter().zip(&infos);
        expected.map(|(vector, info)| (Some(vector.bytes[2] & 0xf), info.as_str(), None))
    };
    let frames = vectors.iter().map(|vector| on_ethernet(&vector.bytes));
    let frames: Vec<_> =
        frames.chain(vectors.iter().map(|vector| in_udp(UDP_PORT, &vector.bytes))).collect();
    let Some(dissected) = CLAN.dissect(&frames, "clan", &[]) else { return };
    let seen: Vec<_> =
        dissected.iter().map(|one| (one.number_in(0), one.info.as_str(), one.fault())).collect();
    assert_eq!(seen, expected().chain(expected()).collect::<Vec<_>>());
}

#[test]
fn every_field_is_shown_by_its_name() {
    let vectors: Vec<_> = vectors().iter().map(|vector| on_ethernet(&vector.bytes)).collect();
    let cases = [
        (
            "clan.seq == 7 && clan.ack == 5 && clan.credit == 1024 && clan.words == 2 && clan.mask == 0x0c",
            "Data",
        ),
        ("clan.flags.sum == 1 && clan.flags.ask == 1 && clan.tag == 0x1122334455667788", "Data"),
        ("clan.flags.xoff == 1 && clan.sack == 5 && clan.marks == 3", "Ack"),
        (
            "clan.hello.stage == 2 && clan.hello.wants_sums == 1 && clan.hello.frames == 1024",
            "Hello",
        ),
        ("clan.reason == 8 && clan.kind == 3", "Bye"),
        ("clan.stranger.tag == 0x1122334455667788", "Stranger"),
        ("clan.word.function == 7 && clan.word.operand == 2 && clan.reply.slot == 9", "Data"),
        ("clan.oob.from == 1000 && clan.oob.to_session == 0x6162636465666768", "Data"),
    ];
    for (filter, kind) in cases {
        let Some(dissected) = CLAN.dissect(&vectors, filter, &[]) else { return };
        assert_eq!(dissected.len(), 1, "{filter}: {dissected:?}");
        assert!(dissected[0].info.starts_with(kind), "{filter}: {dissected:?}");
    }
}

/// Vectors with a byte or two changed, or cut: what the codec refuses, the
/// dissector marks, for the same reason.
#[test]
fn the_dissector_and_the_codec_agree() {
    let mut random = Random::from_number(88);
    let mut frames = Vec::new();
    for Vector { bytes: good, .. } in vectors() {
        for len in [2, 3, 17, 39, good.len() - 1] {
            frames.push(good[..len.min(good.len() - 1)].to_vec());
        }
        for n in 0..60 {
            let mut frame = good.clone();
            for _ in 0..=random.below(2) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
            // Whose CRC is wrong is not looked at further: most get a right one.
            // Of what is said beside data the link alone knows the rules.
            let same = |range: core::ops::Range<usize>| frame[range.clone()] == good[range];
            let is_checked_by_link = matches!(frame[2] & 0xf, 2..=4)
                && !(same(2..3) && same(32..34) && same(40..good.len()));
            frames.push(if n % 4 == 0 || is_checked_by_link { frame } else { resealed(frame) });
        }
    }
    // What begins otherwise is none of ours.
    frames.retain(|frame| frame.len() >= 4 && frame[..2] == *b"CL");
    let packets: Vec<_> = frames.iter().map(|frame| in_udp(UDP_PORT, frame)).collect();
    let Some(dissected) = CLAN.dissect(&packets, "clan", &[]) else { return };
    assert_eq!(dissected.len(), frames.len());
    let mut refused = 0;
    for (seen, bytes) in dissected.iter().zip(&frames) {
        let mut expected = fault_of(bytes);
        // An Ask carries no tag: that too is the link's rule.
        let is_ask = bytes.len() > 40 && bytes[2] == 0x12 && bytes[40] == 1;
        if expected.is_none() && is_ask && bytes[4..12] != [0; 8] {
            expected = Some(Refusal::Malformed);
        }
        assert_eq!(seen.fault(), expected, "{bytes:02x?}: {seen:?}");
        refused += usize::from(expected.is_some());
    }
    assert!(refused > frames.len() / 4, "{refused} of {}", frames.len());
}

#[test]
fn others_on_the_ethertype_are_left_alone_and_another_port_can_be_chosen() {
    let good = vectors()[0].bytes.clone();
    let other = on_ethernet(b"LFAC and whatever follows it");
    let frames = [other, in_udp(40_000, &good), on_ethernet(&good)];
    let Some(seen) = CLAN.dissect(&frames, "frame", &[]) else { return };
    assert_eq!(seen.iter().map(|one| one.number_in(0)).collect::<Vec<_>>(), [None, None, Some(0)]);
    let seen = CLAN.dissect(&frames, "clan", &["-o", "clan.udp_port:40000"]).unwrap();
    assert_eq!(seen.len(), 2);
}
