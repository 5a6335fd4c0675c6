//! `docs/wireshark/lfac.lua`, run by tshark where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_placement::{Instant, Random, Refusal};
use landfall_simnet::{Encapsulation, Frame, LinkConfig, Outbox, PortId, Sim};
use spec_defrag::admission::{ControlFrame, is_control};

use super::document;

/// A capture that is gone when the test is over, also when it fails.
struct CaptureFile(PathBuf);

impl CaptureFile {
    fn of_frames(frames: &[Vec<u8>], name: &str) -> Self {
        let silent = |_: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>| {};
        let mut sim = Sim::from_number(1);
        let (a, b) = (sim.add("a", silent).unwrap(), sim.add("b", silent).unwrap());
        let link = sim.connect(a, b, LinkConfig::new()).unwrap();
        sim.tap(link.there(), Encapsulation::Ethernet).unwrap();
        for frame in frames {
            sim.send(a.id(), PortId(0), Frame::raw(frame.clone())).unwrap();
            sim.run_until(Instant::FAR_FUTURE).unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "the name of a file, nothing of the run")]
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("landfall-lfac-{process}-{name}.pcapng"));
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
    /// The kind, where it was taken for a control frame.
    kind: Option<u8>,
    info: String,
    refusal: Option<Refusal>,
}

fn parse(line: &str) -> Dissected {
    let cells: Vec<_> = line.split('\t').collect();
    let [kind, info, truncated, unsupported, malformed, malformed_at_all, error] = cells[..] else {
        panic!("not seven cells: {line:?}")
    };
    assert_eq!(error, "", "the dissector itself failed: {line:?}");
    let faults = [
        (truncated, Refusal::Truncated),
        (unsupported, Refusal::Unsupported),
        (malformed, Refusal::Malformed),
    ];
    let refusal = faults.into_iter().find(|(cell, _)| !cell.is_empty()).map(|(_, fault)| fault);
    // Wireshark marks what our own words mark, and what is read beyond its end.
    assert!(malformed_at_all.is_empty() || refusal.is_some(), "read too far: {line:?}");
    Dissected { kind: kind.parse().ok(), info: info.to_owned(), refusal }
}

/// What tshark says of each frame that the filter lets through; `None`, and a line that
/// says so, where there is no tshark.
fn dissect(frames: &[Vec<u8>], name: &str, filter: &str) -> Option<Vec<Dissected>> {
    let capture = CaptureFile::of_frames(frames, name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wireshark/lfac.lua");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&capture.0);
    command.arg("-X").arg(format!("lua_script:{}", script.display()));
    command.args(["-T", "fields", "-E", "separator=/t", "-Y", filter]);
    for field in [
        "lfac.kind",
        "_ws.col.Info",
        "lfac.expert.truncated",
        "lfac.expert.unsupported",
        "lfac.expert.malformed",
        "_ws.malformed",
        "_ws.lua.error",
    ] {
        command.args(["-e", field]);
    }
    let text = landfall_testkit::tshark::run(&mut command)?;
    Some(text.lines().map(parse).collect())
}

#[test]
fn every_vector_is_dissected() {
    let vectors = document::vectors();
    let frames: Vec<_> = vectors.iter().map(|vector| vector.bytes.clone()).collect();
    let Some(dissected) = dissect(&frames, "vectors", "lfac") else { return };
    let infos = [
        "Fast_Req 1",
        "Fast_Req 2 with ticket",
        "Fast_Ack 2 for 100000 us",
        "Fast_NAck 1 show your ticket",
        "Fast_NAck 2 place 4, ask again after 20000 us",
        "Fast_NAck 2 invitation",
        "Fast_NAck 7 turn over",
        "Refresh 7",
        "Release 7",
        "Fast_Req 1",
    ];
    let expected: Vec<_> = frames
        .iter()
        .zip(infos)
        .map(|(frame, info)| Dissected {
            kind: Some(frame[if frame[12] == 0x81 { 23 } else { 19 }]),
            info: info.to_owned(),
            refusal: None,
        })
        .collect();
    assert_eq!(dissected, expected);
}

#[test]
fn every_field_is_shown_by_its_name() {
    let frames = [document::vector("Fast_Ack"), document::vector("Fast_NAck with a place")];
    for (filter, kind) in [
        (
            "lfac.version == 1 && lfac.nonce == 0x1122334455667788 && lfac.serial == 2 \
             && lfac.time == 100000 && lfac.lease == 0xa1b2c3d4e5f60718",
            2,
        ),
        ("lfac.magic == \"LFAC\" && lfac.position == 4 && lfac.ticket == 0x0badcafe12345678", 3),
    ] {
        let Some(dissected) = dissect(&frames, "fields", filter) else { return };
        let kinds: Vec<_> = dissected.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [Some(kind)], "{filter}");
    }
}

/// Vectors with a byte or two changed, or cut: what the codec refuses, the dissector
/// marks, for the same reason.
#[test]
fn the_dissector_and_the_codec_agree() {
    let mut random = Random::from_number(11);
    let vectors: Vec<_> = document::vectors()
        .into_iter()
        .map(|vector| vector.bytes)
        .filter(|bytes| bytes[12] == 0x88)
        .collect();
    let mut frames = Vec::new();
    for round in 0..1_500 {
        let mut bytes = vectors[round % vectors.len()].clone();
        for _ in 0..=random.below(2) {
            // Anywhere but in the ethertype and the magic number; mostly small values.
            let at = match random.below(40) {
                at @ 0..12 => at,
                at => at + 6,
            };
            let value = if random.chance(500_000) { random.below(8) } else { random.below(256) };
            bytes[at as usize] = value as u8;
        }
        if random.chance(50_000) {
            bytes.truncate(18 + random.below(32) as usize);
        }
        frames.push(bytes);
    }
    let Some(dissected) = dissect(&frames, "changed", "frame") else { return };
    assert_eq!(dissected.len(), frames.len());
    let mut refused = 0;
    for (frame, dissected) in frames.iter().zip(dissected) {
        assert!(is_control(frame));
        let refusal = ControlFrame::parse(frame).err();
        assert_eq!(dissected.refusal, refusal, "{dissected:?} {frame:02x?}");
        refused += usize::from(refusal.is_some());
    }
    assert!((300..1_300).contains(&refused), "{refused}");
}

#[test]
fn what_others_do_with_the_ethertype_is_left_alone() {
    let mut frame = document::vector("Fast_Req");
    frame[17] = b'X';
    let Some(dissected) = dissect(&[frame], "others", "frame") else { return };
    assert_eq!(dissected.len(), 1);
    assert_eq!((dissected[0].kind, dissected[0].refusal), (None, None));
}
