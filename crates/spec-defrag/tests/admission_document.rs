//! `docs/spec/spec-defrag.md` on admission control: its vectors are what is sent, its
//! tables those of the code, the tests it names exist, and the dissector agrees.
//!
//! `docs/wireshark/lfac.lua`, run by tshark where it is installed.

use std::collections::BTreeSet;

use landfall_placement::{Duration, Instant, Random, Refusal};
use landfall_testkit::document::{self, Vector, features, functions_below, unproven};
use landfall_testkit::root;
use landfall_testkit::tshark::Dissector;
use spec_defrag::admission::frame::{FRAME_LEN, Nonce};
use spec_defrag::admission::{
    ControlFrame, Envelope, Gate, GateConfig, Lease, Mac, Message, Priority, Requester,
    RequesterConfig, Ticket, envelope, is_control,
};

const RECEIVER: Mac = [2, 0, 0, 0, 0, 2];
const SENDER: Mac = [2, 0, 0, 0, 0, 1];

/// What each vector says, in the order of the document.
fn expected() -> [(&'static str, ControlFrame); 10] {
    let lease = Lease::from_number(0xa1b2_c3d4_e5f6_0718);
    let number = Ticket::from_number(0x0bad_cafe_1234_5678);
    let ticket = Some(number);
    let frame = |serial, message| ControlFrame {
        to: RECEIVER,
        from: SENDER,
        priority: None,
        nonce: Nonce::from_number(0x1122_3344_5566_7788),
        serial,
        message,
    };
    let answer =
        |serial, message| ControlFrame { to: SENDER, from: RECEIVER, ..frame(serial, message) };
    let nack = |serial, ticket, position, micros| {
        let wait = Duration::from_micros(micros);
        answer(serial, Message::FastNAck { ticket, position, wait })
    };
    let time = Duration::from_millis(100);
    let plain = frame(1, Message::FastReq { ticket: None });
    [
        ("Fast_Req", plain),
        ("Fast_Req with ticket", frame(2, Message::FastReq { ticket })),
        ("Fast_Ack", answer(2, Message::FastAck { lease, time })),
        ("Fast_NAck, show your ticket", nack(1, ticket, None, 0)),
        ("Fast_NAck with a place", nack(2, ticket, Some(4), 20_000)),
        ("Fast_NAck, an invitation", nack(2, ticket, Some(0), 0)),
        ("Fast_NAck, turn over", nack(7, None, None, 0)),
        ("Refresh", frame(7, Message::Refresh { lease })),
        ("Release", frame(7, Message::Release { what: lease.0 })),
        ("Fast_Req with priority tag", ControlFrame { priority: Priority::new(5), ..plain }),
    ]
}

#[test]
fn the_vectors_of_the_document_are_what_is_sent() {
    let vectors = vectors();
    let names: Vec<_> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    assert_eq!(names, expected().map(|(name, _)| name));
    for (vector, (name, frame)) in vectors.iter().zip(expected()) {
        assert_eq!(vector.bytes.len(), FRAME_LEN, "{name}");
        assert_eq!(vector.bytes, frame.to_bytes(), "{name}");
        assert_eq!(ControlFrame::parse(&vector.bytes), Ok(frame), "{name}");
    }
}

/// The same conversation between the two state machines: they send nothing else.
#[test]
fn the_state_machines_speak_as_the_document_says() {
    let (now, soon) = (Instant::from_millis(5), Instant::from_millis(6));
    let config =
        RequesterConfig { priority: Priority::new(5), ..RequesterConfig::new(SENDER, RECEIVER) };
    let mut requester = Requester::new(config, [1; 32]).unwrap();
    let mut gate = Gate::new(GateConfig::new(RECEIVER), [2; 32]).unwrap();
    requester.ask(now).unwrap();
    let request = requester.poll_transmit(now).unwrap();
    let vector = vector("Fast_Req with priority tag");
    // All but the nonce, which is random.
    assert_eq!((&request[..26], &request[34..]), (&vector[..26], &vector[34..]));
    gate.handle_frame(soon, &request).unwrap();
    let answer = gate.poll_transmit(soon).unwrap();
    let parsed = ControlFrame::parse(&answer).unwrap();
    let granted = matches!(parsed.message, Message::FastAck { time, .. } if time == GateConfig::new(RECEIVER).trial);
    assert!(granted, "{parsed:?}");
    assert_eq!((parsed.to, parsed.from, parsed.serial), (SENDER, RECEIVER, 1));
    requester.handle_frame(soon, &answer).unwrap();
}

#[test]
fn the_tables_of_the_document_are_those_of_the_code() {
    let page = section();
    let gate = GateConfig::new(RECEIVER);
    let requester = RequesterConfig::new(SENDER, RECEIVER);
    let timers = [
        ("lease", gate.lease, "100 ms"),
        ("trial", gate.trial, "20 ms"),
        ("turn", gate.turn, "500 ms"),
        ("ask again", gate.ask_again, "20 ms"),
        ("reserve", gate.reserve, "5 ms"),
        ("retry", requester.retry, "1 ms, doubled each time"),
        ("silent retry", requester.silent_retry, "1 s"),
        ("linger", requester.linger, "20 ms"),
        ("delay", requester.delay, "0"),
    ];
    for (name, time, words) in timers {
        assert!(page.contains(&format!("| {name} | {words} |")), "{name}");
        let number: u64 = words.split(' ').next().unwrap().parse().unwrap();
        let unit = if words.contains("ms") { 1 } else { 1_000 };
        assert_eq!(time, Duration::from_millis(number * unit), "{name}");
    }
    assert_eq!((gate.streams, gate.waiting, requester.attempts), (1, 256, 5));
    assert_eq!((requester.implicit, requester.slow_rate), (Some(256 << 10), 2_000_000));
    assert_eq!((requester.slow_burst, requester.window), (16 << 10, Duration::from_millis(10)));
    for words in ["(256 places)", "after 5 requests", "2 MB/s, 16 KiB", "256 KiB", "within 10 ms"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn the_tests_that_the_section_names_exist() {
    let mut functions = BTreeSet::new();
    for folder in ["src/admission", "tests"] {
        functions.extend(functions_below(&root().join("crates/spec-defrag").join(folder)));
    }
    let page = section();
    let (_, table) =
        page.split_once("\n### Features of admission control and their tests\n").unwrap();
    let features = features(table);
    assert!(features.len() >= 20, "{}", features.len());
    let wrong = unproven(&features, &functions);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What the page says on admission control.
fn section() -> String {
    let page = document::page("docs/spec/spec-defrag.md");
    let (_, section) = page.split_once("\n## Admission control\n").expect("it has the section");
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Every vector of the section.
fn vectors() -> Vec<Vector> {
    document::vectors(&section())
}

/// The bytes of one vector.
fn vector(name: &str) -> Vec<u8> {
    document::vector(&section(), name)
}

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
        let refusal = if frame.get(18..20) == Some(&[1, envelope::KIND]) {
            Envelope::parse(frame).err()
        } else {
            ControlFrame::parse(frame).err()
        };
        assert_eq!(dissected.fault(), refusal, "{dissected:?} {frame:02x?}");
        refused += usize::from(refusal.is_some());
    }
    assert!((300..1_300).contains(&refused), "{refused}");
}

#[test]
fn a_sealed_frame_is_dissected() {
    let (to, from, unit) = (RECEIVER, SENDER, &[0xe0; 64][..]);
    let frame = |priority| Envelope { to, from, priority, unit }.to_bytes().expect("it fits");
    let frames = [frame(None), frame(Priority::new(5))];
    let Some(dissected) = LFAC.dissect(&frames, "lfac.len == 64 && lfac.unit", &[]) else { return };
    let seen: Vec<_> =
        dissected.iter().map(|one| (one.number_in(0), one.info.as_str(), one.fault())).collect();
    assert_eq!(seen, [(Some(envelope::KIND), "Sealed, 64 bytes", None); 2]);
}

#[test]
fn what_others_do_with_the_ethertype_is_left_alone() {
    let mut frame = vector("Fast_Req");
    frame[17] = b'X';
    let Some(dissected) = LFAC.dissect(&[frame], "frame", &[]) else { return };
    assert_eq!(dissected.len(), 1);
    assert_eq!((dissected[0].number_in(0), dissected[0].fault()), (None, None));
}
