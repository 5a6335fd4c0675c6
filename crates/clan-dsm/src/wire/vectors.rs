//! The frames that `docs/spec/clan.md` shows, byte by byte.

use landfall_placement::WordFunction;
use landfall_testkit::document::{self, Vector};
use std::vec::Vec;

use crate::address::{Address, HostId, Key, Kind, WHOLE};
use crate::endpoint::{OutOfBand, OutOfBandKind, Port};
use crate::error::Reason;
use crate::event::GroupKey;
use crate::link::spoken::{self, Hello, Stage, Stranger};
use crate::wire::frame::{Entry, Frame, FrameFlags, FrameHeader, FrameKind, HEADER_LEN};
use crate::wire::{Command, ReplyTo};

/// Every vector of the document.
fn documented() -> Vec<Vector> {
    document::vectors(&document::page("docs/spec/clan.md"))
}

const TAG: u64 = 0x1122_3344_5566_7788;
const KEY: Key = Key::from_bits(0x00aa_bbcc_ddee_ff01);
const REPLY: ReplyTo = ReplyTo { slot: 9, nonce: Key::from_bits(0x0001_0203_0405_0607) };

fn header(kind: FrameKind) -> FrameHeader {
    FrameHeader {
        kind,
        flags: FrameFlags::default(),
        tag: TAG,
        seq: 7,
        ack: 5,
        sack: 0,
        credit: 1024,
        marks: 0,
        entries: 0,
        payload_len: 0,
    }
}

fn at(word: u32, mask: u8) -> Address {
    let host = HostId::new(2).unwrap();
    Address { kind: Kind::Burst, host, slot: 3, word, mask, key: KEY }
}

fn data(header: FrameHeader, entries: &[Entry], payload: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; HEADER_LEN];
    bytes.extend(entries.iter().flat_map(|entry| entry.to_bytes()));
    bytes.extend(payload);
    let (entries, payload_len) = (entries.len() as u8, payload.len() as u16);
    FrameHeader { entries, payload_len, ..header }.write(&mut bytes);
    bytes
}

fn body(header: FrameHeader, body: &[u8]) -> Vec<u8> {
    data(header, &[], body)
}

fn command(command: Command) -> Vec<u8> {
    let (address, parameters) = command.encode(HostId::new(2).unwrap());
    let words = parameters.len().div_ceil(8) as u16;
    data(header(FrameKind::Data), &[Entry { address, words }], &parameters)
}

/// What does not belong to a link that exists says nothing of frames.
fn hello(stage: Stage, to: u64, tag: u64) -> Vec<u8> {
    let hello = Hello {
        stage,
        wants_sums: stage == Stage::Answer,
        host: HostId::new(if stage == Stage::Answer { 2 } else { 1 }).unwrap(),
        frames: 1024,
        tag,
        incarnation: 0xa1a2_a3a4_a5a6_a7a8 + u64::from(stage == Stage::Answer),
        early_bytes: 1 << 20,
    };
    let header = FrameHeader { tag: to, ..bare(FrameKind::Hello) };
    body(header, &hello.to_bytes())
}

fn bare(kind: FrameKind) -> FrameHeader {
    FrameHeader { seq: 0, ack: 0, credit: 0, ..header(kind) }
}

const STREAM: u64 = 0x3132_3334_3536_3738;

/// The first word of a group's memory.
fn in_group() -> Address {
    let host = HostId::new(2).unwrap();
    Address { kind: Kind::Multicast, host, slot: 3, word: 0, mask: WHOLE, key: KEY }
}

fn invite() -> Command {
    let secret = core::array::from_fn(|at| at as u8);
    let key = Some(GroupKey { number: 0xc1c2_c3c4, secret });
    Command::GroupInvite { group: in_group(), tag: STREAM, ack_tag: TAG, seq: 7, key }
}

fn of_stream(kind: FrameKind) -> FrameHeader {
    FrameHeader { tag: STREAM, ack: 0, credit: 0, ..header(kind) }
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let (mine, yours) = (0x0102_0304_0506_0708, TAG);
    let two =
        [Entry { address: at(0x10, WHOLE), words: 2 }, Entry { address: at(0x40, 0x0c), words: 1 }];
    let payload: Vec<u8> = (0..18).collect();
    let mut summed = data(
        FrameHeader { flags: FrameFlags::SUM.with(FrameFlags::ASK), ..header(FrameKind::Data) },
        &two[..1],
        &payload[..16],
    );
    let sum = landfall_placement::checksum::checksum(&summed[38..]);
    summed[38..40].copy_from_slice(&sum.to_be_bytes());
    let ack =
        FrameHeader { sack: 0b101, marks: 3, flags: FrameFlags::XOFF, ..header(FrameKind::Ack) };
    let out_of_band = OutOfBand {
        from: Port(1000),
        to: Port(2000),
        kind: OutOfBandKind::Message,
        reason: None,
        number: 4,
        from_session: 0x5152_5354_5556_5758,
        to_session: 0x6162_6364_6566_6768,
        body: *b"forty bytes from one endpoint to another",
    };
    let stranger = Stranger { tag: TAG, incarnation: 0xa1a2_a3a4_a5a6_a7a9 };
    std::vec![
        ("Data", data(header(FrameKind::Data), &two, &payload)),
        ("Data with a sum", summed),
        ("Ack", body(ack, &[])),
        (
            "Ack with more",
            body(
                FrameHeader { sack: u64::MAX << 1, ..header(FrameKind::Ack) },
                &7u64.to_be_bytes()
            )
        ),
        ("Hello, Ask", hello(Stage::Ask, 0, mine)),
        ("Hello, Answer", hello(Stage::Answer, mine, yours)),
        ("Hello, Confirm", hello(Stage::Confirm, yours, mine)),
        ("Bye", body(bare(FrameKind::Bye), &spoken::bye(Reason::Refused))),
        (
            "Stranger",
            body(FrameHeader { tag: 0, ..bare(FrameKind::Stranger) }, &stranger.to_bytes())
        ),
        ("Read", command(Command::Read { from: at(0x20, WHOLE), len: 4096, reply: REPLY })),
        (
            "ReadRefused",
            command(Command::ReadRefused { reply: REPLY, reason: Reason::OutOfBounds })
        ),
        (
            "WordOp",
            command(Command::WordOp {
                at: at(0x21, 0xf0),
                function: WordFunction::CompareSwap { expected: 1, new: 2 },
                reply: REPLY,
            })
        ),
        ("WordReply", command(Command::WordReply { reply: REPLY, result: Ok(1) })),
        ("OutOfBand", command(Command::OutOfBand(out_of_band.to_bytes()))),
        (
            "Exception",
            command(Command::Exception { address: at(0x10, WHOLE), reason: Reason::BadKey })
        ),
        ("Barrier", command(Command::Barrier { number: 6 })),
        ("BarrierReached", command(Command::BarrierReached { number: 6 })),
    ]
}

/// What is said of groups that multicast.
fn samples_of_groups() -> Vec<(&'static str, Vec<u8>)> {
    let payload: Vec<u8> = (0..16).collect();
    std::vec![
        ("GroupInvite", command(invite())),
        ("GroupStart", command(Command::GroupStart { tag: STREAM, seq: 7 })),
        ("GroupEnd", command(Command::GroupEnd { tag: STREAM })),
        ("GroupProbe", body(of_stream(FrameKind::GroupProbe), &[])),
        (
            "GroupData",
            data(
                of_stream(FrameKind::GroupData),
                &[Entry { address: in_group(), words: 2 }],
                &payload
            )
        ),
        ("GroupAck", body(FrameHeader { sack: 0b10, seq: 0, ..header(FrameKind::GroupAck) }, &[])),
    ]
}

#[test]
fn the_document_shows_the_bytes_that_are_sent() {
    let (documented, mut samples) = (documented(), samples());
    samples.extend(samples_of_groups());
    let names: Vec<&str> = documented.iter().map(|vector| vector.name.as_str()).collect();
    let expected: Vec<&str> = samples.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected);
    for (shown, (name, sent)) in documented.iter().zip(&samples) {
        assert_eq!(&shown.bytes, sent, "{name}");
    }
}

#[test]
fn every_documented_frame_is_understood() {
    for Vector { name, bytes } in documented() {
        let frame = Frame::parse(&bytes, bytes.len() as u32).unwrap();
        assert_eq!(frame.end() as usize, bytes.len(), "{name}");
        let mut payload = frame.payload();
        for entry in frame.entries() {
            let (this, rest) = payload.split_at(entry.payload_len() as usize);
            payload = rest;
            if entry.address.kind == Kind::Command {
                let command = Command::parse(&entry.address, this).unwrap();
                assert!(std::format!("{command:?}").starts_with(&name), "{name}: {command:?}");
            }
        }
    }
}
