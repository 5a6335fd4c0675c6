//! Frames, read and sealed in the most naive way: a second opinion on the
//! adapter's own.

use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, InternetSum};
use landfall_testkit::model::Packet;

use super::ledger::Stage;
use super::operations::Operation;
use super::world::World;

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const FRAGMENT: u8 = 44;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;

/// Where the parts of a frame with a packet of IP lie.
#[derive(Clone, Copy, Debug)]
struct Parts {
    is_v4: bool,
    /// Where the protocol's header starts, and what protocol.
    at: usize,
    protocol: u8,
    /// Where the packet ends: padding may follow.
    end: usize,
    /// It is a piece of a packet, and the first one or not; and of which packet.
    piece: Option<bool>,
    identification: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn parts(frame: &[u8]) -> Option<Parts> {
    let parts = match word(frame, 12)? {
        0x0800 => {
            let at = ETHERNET + usize::from(frame.get(ETHERNET)? & 15) * 4;
            let piece = word(frame, 20)? & 0x3fff;
            let piece = (piece != 0).then_some(piece & 0x1fff == 0);
            let end = ETHERNET + usize::from(word(frame, 16)?);
            let identification = word(frame, 18)?.into();
            Parts { is_v4: true, at, protocol: *frame.get(23)?, end, piece, identification }
        }
        0x86dd => {
            let end = ETHERNET + 40 + usize::from(word(frame, 18)?);
            match *frame.get(20)? {
                FRAGMENT => {
                    let piece = word(frame, 56)? & 0xfff9;
                    let piece = (piece != 0).then_some(piece & 0xfff8 == 0);
                    let identification = number(frame, 58)?;
                    let protocol = *frame.get(54)?;
                    Parts { is_v4: false, at: 62, protocol, end, piece, identification }
                }
                protocol => {
                    Parts { is_v4: false, at: 54, protocol, end, piece: None, identification: 0 }
                }
            }
        }
        _ => return None,
    };
    (parts.at <= parts.end && parts.end <= frame.len()).then_some(parts)
}

/// Of which packet this is a piece, if it is one.
pub(super) fn identification(frame: &[u8]) -> Option<u32> {
    let parts = parts(frame)?;
    parts.piece.map(|_| parts.identification)
}

/// What a frame says about a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFacts {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    /// The shift of windows, where an opening has one.
    pub(super) shift: Option<u8>,
    /// The word of the message that ends with it.
    pub(super) word: Option<u32>,
    /// Where in the frame the payload is; of a piece of a packet nobody knows.
    pub(super) payload: Option<(usize, usize)>,
}

impl SegmentFacts {
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// What a frame says, if it is one of TCP, or the first piece of one.
pub(super) fn read(frame: &[u8]) -> Option<SegmentFacts> {
    let Parts { at, protocol, end, piece, .. } = parts(frame)?;
    if protocol != TCP || piece == Some(false) {
        return None;
    }
    let payload = at + usize::from(frame.get(at + 12)? >> 4) * 4;
    Some(SegmentFacts {
        from: word(frame, at)?,
        to: word(frame, at + 2)?,
        seq: number(frame, at + 4)?,
        ack: number(frame, at + 8)?,
        flags: *frame.get(at + 13)?,
        window: word(frame, at + 14)?,
        shift: find_option(frame.get(at + 20..payload)?, &[3, 3])
            .and_then(|bytes| bytes.first().copied()),
        word: find_option(frame.get(at + 20..payload)?, &[253, 8, b'L', b'F'])
            .and_then(|bytes| number(bytes, 0)),
        payload: piece.is_none().then_some((payload, end)),
    })
}

/// What is behind the option that begins so.
fn find_option<'a>(mut options: &'a [u8], begins: &[u8]) -> Option<&'a [u8]> {
    loop {
        if let Some(behind) = options.strip_prefix(begins) {
            return Some(behind);
        }
        match options {
            [1, rest @ ..] => options = rest,
            [kind, len, ..] if *kind != 0 && *len >= 2 => {
                options = options.get(usize::from(*len)..)?;
            }
            _ => return None,
        }
    }
}

/// Does it ask for a station, or tell where one is, over IPv4?
pub(super) fn is_arp(frame: &[u8]) -> bool {
    word(frame, 12) == Some(0x0806)
}

/// Marks a frame whose sender understands it: there was congestion.
pub(super) fn mark(frame: &mut [u8]) {
    match word(frame, 12) {
        Some(0x0800) if frame.len() > 33 && frame[15] & 3 != 0 => {
            frame[15] |= 3;
            seal_v4(frame);
        }
        Some(0x86dd) if frame.len() > 53 && frame[15] >> 4 & 3 != 0 => frame[15] |= 0x30,
        _ => {}
    }
}

fn seal_v4(frame: &mut [u8]) {
    let end = ETHERNET + usize::from(frame[ETHERNET] & 15) * 4;
    if end < 34 || end > frame.len() {
        return;
    }
    frame[24..26].fill(0);
    let sum = landfall_placement::checksum::checksum(&frame[ETHERNET..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Makes the checksums of a frame right, where it is whole enough to have them:
/// for tests that change frames and want them heard.
pub fn seal(frame: &mut [u8]) {
    if word(frame, 12) == Some(0x0800) && frame.len() >= 34 {
        seal_v4(frame);
    }
    let Some(Parts { is_v4, at, protocol, end, piece: None, .. }) = parts(frame) else { return };
    let (slot, has_addresses) = match protocol {
        TCP => (16, true),
        UDP => (6, true),
        ICMP6 => (2, true),
        1 => (2, false),
        _ => return,
    };
    if at + slot + 2 > end || at < 34 {
        return;
    }
    frame[at + slot..at + slot + 2].fill(0);
    let mut sum = InternetSum::new();
    if has_addresses {
        sum.add(if is_v4 { &frame[26..34] } else { &frame[22..54] });
        sum.add_word(u16::from(protocol));
        sum.add_word((end - at) as u16);
    }
    sum.add(&frame[at..end]);
    let sum = match sum.checksum() {
        0 if protocol == UDP => 0xffff,
        sum => sum,
    };
    frame[at + slot..at + slot + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The first piece of a frame comes last, the others in order.
pub(super) fn last_first(pieces: &mut [Vec<u8>]) {
    pieces.rotate_right(1.min(pieces.len()));
}

// One adapter under any frames from somebody who sees what is said: real frames
// that are changed, and frames made of any bytes.

/// The side that is attacked, in the name of the other one.
const VICTIM: usize = 1;

/// What is open and under way before the attack begins.
fn prepare(world: &mut World) {
    for operation in [
        Operation::Offer { side: 0 },
        Operation::Connect { side: VICTIM },
        Operation::Settle,
        Operation::Offer { side: VICTIM },
    ] {
        world.apply(operation);
    }
    for side in [0, VICTIM] {
        for which in 0..4 {
            world.apply(Operation::Receive { side, which, len: 700, pieces: 1 });
            world.apply(Operation::Receive { side, which, len: 2_000, pieces: 0 });
            world.apply(Operation::Send { side, which, len: 500, pieces: 2 });
            world.apply(Operation::Send { side, which, len: 1_900, pieces: 0 });
        }
        world.apply(Operation::Arm { side, solicited: false });
    }
    // Answers to what is under way are under way, too.
    world.round();
    world.transmit(0, 64, false);
}

/// Takes bytes for one frame after another: a template, and changes to it.
pub(super) fn withstand(bytes: &[u8], with_story: bool) -> Vec<String> {
    let (choice, mut bytes) = bytes.split_at(bytes.len().min(1));
    let choice = choice.first().copied().unwrap_or(0);
    // Connections from the start, enough room, and neighbours that are known.
    let mut world = World::new(&[choice | 0x80, choice & 0x07, 0x80], with_story);
    prepare(&mut world);
    let mut wrong = world.findings.take_failures();
    world.is_attacked = true;
    while let [kind, which, rest @ ..] = bytes {
        let end = &world.ends[VICTIM];
        let known: Vec<&Packet> = end.under_way.known().collect();
        let template = known.get(usize::from(*which) % known.len().max(1));
        let Some(mut packet) = template.map(|packet| (*packet).clone()) else { break };
        bytes = change(&mut packet.bytes, rest, *kind);
        packet.is_changed = true;
        if *kind & 0x80 == 0 {
            seal(&mut packet.bytes);
        }
        world.ends[VICTIM].under_way.enqueue_first(packet);
        world.turn(VICTIM, 1 + usize::from(*kind >> 6 & 1), 0, *which == 0);
        match *kind >> 4 & 3 {
            1 => world.scatter(VICTIM),
            2 => world.wait(None),
            _ => {}
        }
        world.transmit(VICTIM, 4, *kind & 8 == 0);
        world.hear();
    }
    wrong.extend(world.findings.take_failures());
    aftermath(&mut world);
    wrong.extend(world.findings.take_failures());
    let mut story = world.findings.into_story();
    story.append(&mut wrong);
    story
}

/// Honest clients are served as before, and nothing was lost.
fn aftermath(world: &mut World) {
    for side in [0, VICTIM] {
        world.release(side, false);
    }
    world.let_go();
    world.check_returned();
    world.judge_contract();
    world.is_attacked = false;
    world.apply(Operation::Offer { side: VICTIM });
    world.apply(Operation::Connect { side: 0 });
    let client = world.ledger.pairs.len() - 1;
    world.run_until(Duration::from_secs(100), |world| {
        let pair = &world.ledger.pairs[client];
        pair.peer.is_some() || pair.stage != Stage::Opening
    });
    if world.ledger.pairs[client].peer.is_none() {
        world.fail(VICTIM, "does not answer an honest client any more");
    }
}

/// Overwrites fields, takes a part away, or changes all that is not the Ethernet
/// header, with what comes next.
fn change<'a>(frame: &mut Vec<u8>, mut bytes: &'a [u8], kind: u8) -> &'a [u8] {
    if kind & 7 == 7 {
        let len = bytes.len().min(64);
        let until = (14 + len).min(frame.len());
        frame.splice(14.min(until)..until, bytes[..len].iter().copied());
        return &bytes[len..];
    }
    for _ in 0..kind & 7 {
        let [at, value, rest @ ..] = bytes else { break };
        // Headers more often than payload.
        let at = usize::from(*at);
        let at = if at < 192 { 12 + at / 2 } else { at * 7 };
        match frame.get_mut(at) {
            Some(byte) => *byte = *value,
            None => frame.truncate(usize::from(*value).max(14)),
        }
        bytes = rest;
    }
    bytes
}
