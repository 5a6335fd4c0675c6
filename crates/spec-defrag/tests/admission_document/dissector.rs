//! `docs/wireshark/lfac.lua`, run by tshark where it is installed.

use landfall_placement::{Random, Refusal};
use landfall_testkit::tshark::Dissector;
use spec_defrag::admission::{ControlFrame, is_control};

use super::{vector, vectors};

const LFAC: Dissector<'_> = Dissector {
    script: "lfac",
    protocol: "lfac",
    fields: &["kind"],
    marks: &[Refusal::Truncated, Refusal::Unsupported, Refusal::Malformed],
};

#[test]
fn every_vector_is_dissected() {
    let vectors = vectors();
    let frames: Vec<_> = vectors.iter().map(|vector| vector.bytes.clone()).collect();
    let Some(dissected) = LFAC.dissect(&frames, "lfac", &[]) else { return };
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
        .map(|(frame, info)| (Some(frame[if frame[12] == 0x81 { 23 } else { 19 }]), info, None))
        .collect();
    let seen: Vec<_> =
        dissected.iter().map(|one| (one.number_in(0), one.info.as_str(), one.fault())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn every_field_is_shown_by_its_name() {
    let frames = [vector("Fast_Ack"), vector("Fast_NAck with a place")];
    for (filter, kind) in [
        (
            "lfac.version == 1 && lfac.nonce == 0x1122334455667788 && lfac.serial == 2 \
             && lfac.time == 100000 && lfac.lease == 0xa1b2c3d4e5f60718",
            2,
        ),
        ("lfac.magic == \"LFAC\" && lfac.position == 4 && lfac.ticket == 0x0badcafe12345678", 3),
    ] {
        let Some(dissected) = LFAC.dissect(&frames, filter, &[]) else { return };
        let kinds: Vec<_> = dissected.iter().map(|one| one.number_in(0)).collect();
        assert_eq!(kinds, [Some(kind)], "{filter}");
    }
}

/// Vectors with a byte or two changed, or cut: what the codec refuses, the dissector
/// marks, for the same reason.
#[test]
fn the_dissector_and_the_codec_agree() {
    let mut random = Random::from_number(11);
    let vectors: Vec<_> = vectors()
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
    let Some(dissected) = LFAC.dissect(&frames, "frame", &[]) else { return };
    assert_eq!(dissected.len(), frames.len());
    let mut refused = 0;
    for (frame, dissected) in frames.iter().zip(dissected) {
        assert!(is_control(frame));
        let refusal = ControlFrame::parse(frame).err();
        assert_eq!(dissected.fault(), refusal, "{dissected:?} {frame:02x?}");
        refused += usize::from(refusal.is_some());
    }
    assert!((300..1_300).contains(&refused), "{refused}");
}

#[test]
fn what_others_do_with_the_ethertype_is_left_alone() {
    let mut frame = vector("Fast_Req");
    frame[17] = b'X';
    let Some(dissected) = LFAC.dissect(&[frame], "frame", &[]) else { return };
    assert_eq!(dissected.len(), 1);
    assert_eq!((dissected[0].number_in(0), dissected[0].fault()), (None, None));
}
