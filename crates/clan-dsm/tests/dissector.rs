//! `docs/wireshark/clan.lua`, run by tshark where it is installed: it must agree
//! with the codec about every frame, good or bad.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use clan_dsm::Kind;
use clan_dsm::wire::frame::{ETHERTYPE, HEADER_LEN, UDP_PORT};
use clan_dsm::wire::{Command, Entry, Frame, FrameFlags, FrameKind, Incomplete, crc};
use landfall_placement::checksum::{checksum, sum_of};
use landfall_placement::{Check, Instant, Random, Refusal};
use landfall_simnet::{Encapsulation, Frame as Wire, LinkConfig, Outbox, PortId, Sim};

/// Every vector of the document: its name and its bytes.
fn vectors() -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/clan.md");
    let document = std::fs::read_to_string(path).expect("the document is in the repository");
    let blocks = document.split("```").filter_map(|block| block.strip_prefix("text\nvector "));
    let vectors = blocks.map(|block| {
        let (name, lines) = block.split_once('\n').expect("a vector has bytes");
        let hex = lines.lines().map(|line| line.split(';').next().unwrap_or_default());
        let digits: Vec<_> = hex.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).expect("hex");
        (name.to_owned(), digits.chunks(2).map(byte).collect())
    });
    vectors.collect()
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

/// A capture that is gone when the test is over, also when it fails.
struct CaptureFile(PathBuf);

impl CaptureFile {
    fn of_frames(frames: &[Vec<u8>], name: &str) -> Self {
        let silent = |_: Instant, _: PortId, _: Wire, _: &mut Outbox<'_>| {};
        let mut sim = Sim::from_number(1);
        let (a, b) = (sim.add("a", silent).unwrap(), sim.add("b", silent).unwrap());
        let link = sim.connect(a, b, LinkConfig::new()).unwrap();
        sim.tap(link.there(), Encapsulation::Ethernet).unwrap();
        for frame in frames {
            sim.send(a.id(), PortId(0), Wire::raw(frame.clone())).unwrap();
            sim.run_until(Instant::FAR_FUTURE).unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "the name of a file, nothing of the run")]
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("landfall-clan-{process}-{name}.pcapng"));
        std::fs::write(&path, sim.captured()).expect("there is room for a capture");
        Self(path)
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What the dissector says of a frame.
#[derive(Debug, PartialEq, Eq)]
struct Dissected {
    /// The kind, where it was taken for one of ours.
    kind: Option<u8>,
    info: String,
    fault: Option<Refusal>,
}

fn parse(line: &str) -> Dissected {
    let cells: Vec<_> = line.split('\t').collect();
    let [kind, info, truncated, unsupported, malformed, checksum, too_far, error] = cells[..]
    else {
        panic!("not eight cells: {line:?}")
    };
    assert_eq!(error, "", "the dissector itself failed: {line:?}");
    let faults = [
        (truncated, Refusal::Truncated),
        (unsupported, Refusal::Unsupported),
        (malformed, Refusal::Malformed),
        (checksum, Refusal::BadChecksum),
    ];
    let fault = faults.into_iter().find(|(cell, _)| !cell.is_empty()).map(|(_, fault)| fault);
    // Wireshark marks what our own words mark, and what is read beyond its end.
    assert!(too_far.is_empty() || fault.is_some(), "read too far: {line:?}");
    Dissected { kind: kind.parse().ok(), info: info.to_owned(), fault }
}

/// What tshark says of each frame that the filter lets through; `None`, and a
/// line that says so, where there is no tshark.
fn dissect(frames: &[Vec<u8>], name: &str, filter: &str, more: &[&str]) -> Option<Vec<Dissected>> {
    let capture = CaptureFile::of_frames(frames, name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wireshark/clan.lua");
    let mut command = Process::new("tshark");
    command.arg("-r").arg(&capture.0);
    command.arg("-X").arg(format!("lua_script:{}", script.display()));
    command.args(["-T", "fields", "-E", "separator=/t", "-Y", filter]).args(more);
    for field in [
        "clan.kind",
        "_ws.col.Info",
        "clan.expert.truncated",
        "clan.expert.unsupported",
        "clan.expert.malformed",
        "clan.expert.checksum",
        "_ws.malformed",
        "_ws.lua.error",
    ] {
        command.args(["-e", field]);
    }
    let text = landfall_testkit::tshark::run(&mut command)?;
    Some(text.lines().map(parse).collect())
}

/// What the codec, and the pass over the payload that it asks for, find wrong.
fn fault_of(bytes: &[u8]) -> Option<Refusal> {
    let frame = match Frame::parse(bytes, bytes.len() as u32) {
        Ok(frame) => frame,
        Err(Incomplete::Refused(refusal)) => return Some(refusal),
        Err(Incomplete::Need(_)) => unreachable!("all is at hand"),
    };
    if let Check::InternetSum { from, len, seed: 0 } = frame.check()
        && frame.kind() == FrameKind::Data
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
    let is_data = bytes[2] & 0xf == FrameKind::Data as u8;
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
    ];
    let expected = || {
        let expected = vectors.iter().zip(&infos);
        expected.map(|((_, bytes), info)| Dissected {
            kind: Some(bytes[2] & 0xf),
            info: info.clone(),
            fault: None,
        })
    };
    let frames = vectors.iter().map(|(_, bytes)| on_ethernet(bytes));
    let frames: Vec<_> =
        frames.chain(vectors.iter().map(|(_, bytes)| in_udp(UDP_PORT, bytes))).collect();
    let Some(dissected) = dissect(&frames, "vectors", "clan", &[]) else { return };
    assert_eq!(dissected, expected().chain(expected()).collect::<Vec<_>>());
}

#[test]
fn every_field_is_shown_by_its_name() {
    let vectors: Vec<_> = vectors().iter().map(|(_, bytes)| on_ethernet(bytes)).collect();
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
        let Some(dissected) = dissect(&vectors, "fields", filter, &[]) else { return };
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
    for (_, good) in vectors() {
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
    let Some(dissected) = dissect(&packets, "agree", "clan", &[]) else { return };
    assert_eq!(dissected.len(), frames.len());
    let mut refused = 0;
    for (seen, bytes) in dissected.iter().zip(&frames) {
        let mut expected = fault_of(bytes);
        // An Ask carries no tag: that too is the link's rule.
        let is_ask = bytes.len() > 40 && bytes[2] == 0x12 && bytes[40] == 1;
        if expected.is_none() && is_ask && bytes[4..12] != [0; 8] {
            expected = Some(Refusal::Malformed);
        }
        assert_eq!(seen.fault, expected, "{bytes:02x?}: {seen:?}");
        refused += usize::from(expected.is_some());
    }
    assert!(refused > frames.len() / 4, "{refused} of {}", frames.len());
}

#[test]
fn others_on_the_ethertype_are_left_alone_and_another_port_can_be_chosen() {
    let good = vectors()[0].1.clone();
    let other = on_ethernet(b"LFAC and whatever follows it");
    let frames = [other, in_udp(40_000, &good), on_ethernet(&good)];
    let Some(seen) = dissect(&frames, "others", "frame", &[]) else { return };
    assert_eq!(seen.iter().map(|one| one.kind).collect::<Vec<_>>(), [None, None, Some(0)]);
    let seen = dissect(&frames, "port", "clan", &["-o", "clan.udp_port:40000"]).unwrap();
    assert_eq!(seen.len(), 2);
}
