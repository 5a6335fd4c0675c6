//! Frames that were changed on their way, and frames that were made to harm.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::RegionId;

use super::naive::{ETHERNET, Naive, Reading, is_on_its_way, read, word};
use super::operations::{CHOICES, Setup};
use super::rig::Rig;
use super::traffic::{Flow, Shape, cut, seal};
use crate::cut::{Cutter, Df};

/// Where the two bytes with offset and flags of a piece are.
fn place_of_offset(frame: &[u8]) -> Option<usize> {
    match word(frame, 12)? {
        0x0800 if frame.len() >= 34 => Some(20),
        0x86dd => match *frame.get(20)? {
            44 => Some(56),
            0 => Some(ETHERNET + 40 + (usize::from(*frame.get(55)?) + 1) * 8 + 2),
            _ => None,
        },
        _ => None,
    }
    .filter(|at| at + 2 <= frame.len())
}

/// Where the bytes of a piece begin.
fn place_of_bytes(frame: &[u8]) -> Option<usize> {
    match place_of_offset(frame)? {
        20 => Some(ETHERNET + usize::from(frame[ETHERNET] & 15) * 4),
        at => Some(at + 6),
    }
}

/// Puts a piece somewhere else: `units` of eight bytes from the start, others to
/// follow or not.
pub(super) fn set_offset(frame: &mut [u8], units: u16, more: bool) {
    let Some(at) = place_of_offset(frame) else { return };
    let flags = if at == 20 {
        units & 0x1fff | if more { 0x2000 } else { 0 }
    } else {
        units << 3 | u16::from(more)
    };
    frame[at..at + 2].copy_from_slice(&flags.to_be_bytes());
    seal(frame);
}

/// Where a piece is, in units of eight bytes, and whether others follow.
pub(super) fn offset(frame: &[u8]) -> Option<(u16, bool)> {
    let at = place_of_offset(frame)?;
    let flags = word(frame, at)?;
    Some(if at == 20 {
        (flags & 0x1fff, flags & 0x2000 != 0)
    } else {
        (flags >> 3, flags & 1 != 0)
    })
}

/// Other bytes in the piece.
pub(super) fn invert_bytes(frame: &mut [u8]) {
    let at = place_of_bytes(frame).unwrap_or(frame.len()).min(frame.len());
    frame[at..].iter_mut().for_each(|byte| *byte ^= 0xff);
}

/// Says that the packet in this frame is as long as the frame.
fn set_length(frame: &mut [u8]) {
    let len = frame.len() - ETHERNET;
    match word(frame, 12) {
        Some(0x0800) => frame[16..18].copy_from_slice(&(len as u16).to_be_bytes()),
        Some(0x86dd) => frame[18..20].copy_from_slice(&((len - 40) as u16).to_be_bytes()),
        _ => {}
    }
    seal(frame);
}

/// A shorter piece: this many units of eight bytes, if it has more.
pub(super) fn shorten(frame: &mut Vec<u8>, units: usize) {
    let Some(at) = place_of_bytes(frame) else { return };
    if at + units * 8 < frame.len() {
        frame.truncate(at + units * 8);
        set_length(frame);
    }
}

/// Marks a piece.
pub(super) fn mark(frame: &mut [u8], ecn: u8) {
    match word(frame, 12) {
        Some(0x0800) if frame.len() >= 34 => frame[15] = frame[15] & !3 | ecn & 3,
        Some(0x86dd) if frame.len() >= 54 => frame[15] = frame[15] & !0x30 | (ecn & 3) << 4,
        _ => {}
    }
    seal(frame);
}

/// A frame that no reassembler has to do with.
pub(super) fn foreign(kind: u8, content: u64) -> Vec<u8> {
    let flow = Flow(kind);
    let mut frame = flow.small(content);
    match kind & 7 {
        // ARP.
        0 => {
            frame[12..14].copy_from_slice(&[8, 6]);
            frame.truncate(42);
        }
        // With a tag in front: a piece in it stays one for those who is above.
        1 => {
            let shape = Shape { len: 4096, id: content as u32, content, ..Shape::default() };
            frame = cut(&flow.packet(&shape), 1500, 1).swap_remove(0);
            frame.splice(12..12, [0x81, 0, 0, 5]);
        }
        // As long as the wire takes, and in one piece.
        2 => frame = flow.packet(&Shape { len: 1400, content, ..Shape::default() }),
        // Not even a link header.
        3 => frame.truncate(usize::from(kind >> 3) & 15),
        // An ethertype and no packet.
        4 => frame.truncate(14 + usize::from(kind >> 3)),
        // None at all: a descriptor is passed over.
        5 => frame.clear(),
        _ => {}
    }
    frame
}

/// Packets that have broken reassemblers.
pub(super) fn attack(kind: u8, flow: u8, content: u64) -> Vec<Vec<u8>> {
    let flow = Flow(flow);
    let packet = |len| flow.packet(&Shape { len, id: content as u32, content, ..Shape::default() });
    let mut pieces = cut(&packet(4096), 1500, content as u32);
    match kind & 7 {
        // Teardrop: the second lies within the first.
        0 => {
            pieces.truncate(2);
            shorten(&mut pieces[1], 1);
            set_offset(&mut pieces[1], 2, false);
        }
        // Tiny: eight bytes each, so that no piece has a whole transport header.
        1 => pieces = cut(&packet(100), 68 + 8 * usize::from(!flow.is_v4()), content as u32),
        // Beyond the longest packet.
        2 => {
            let last = pieces.len() - 1;
            set_offset(&mut pieces[last], 0x1fff, false);
        }
        // Just so long that the header makes it too long.
        3 => {
            let mut last = pieces.swap_remove(1);
            shorten(&mut last, 3);
            set_offset(&mut last, (NEARLY_ALL / 8) as u16, false);
            pieces = whole_range(flow, content);
            pieces.push(last);
        }
        // Of no length, in the middle and at the end.
        4 => {
            for (nth, more) in [(1, true), (2, false)] {
                let at = place_of_bytes(&pieces[nth]).unwrap_or(0);
                pieces[nth].truncate(at);
                set_length(&mut pieces[nth]);
                let (units, _) = offset(&pieces[nth]).unwrap_or_default();
                set_offset(&mut pieces[nth], units, more);
            }
        }
        // A length that is no multiple of eight, and others to follow.
        5 => {
            let len = pieces[0].len() - 3;
            pieces[0].truncate(len);
            set_length(&mut pieces[0]);
        }
        // Two ends.
        6 => {
            let mut second = pieces[2].clone();
            let (units, _) = offset(&second).unwrap_or_default();
            set_offset(&mut second, units + 200, false);
            pieces.insert(1, second);
        }
        // A whole packet behind a fragment header, with the name of one in pieces.
        _ => {
            let mut atomic = pieces[0].clone();
            set_offset(&mut atomic, 0, false);
            pieces.insert(1, atomic);
        }
    }
    pieces
}

/// A few bytes less than the longest packet carries, in whole units.
const NEARLY_ALL: usize = 65_504;

/// Pieces that leave no hole up to there, and no end.
fn whole_range(flow: Flow, content: u64) -> Vec<Vec<u8>> {
    let shape = Shape { len: 65_520, id: content as u32, content, ..Shape::default() };
    let mut pieces = cut(&flow.packet(&shape), 9000, content as u32);
    let mut covered = 0;
    for piece in &mut pieces {
        let at = place_of_bytes(piece).unwrap_or(0);
        let len = (piece.len() - at) & !7;
        let len = len.min(NEARLY_ALL - covered);
        shorten(piece, len / 8);
        set_offset(piece, (covered / 8) as u16, true);
        covered += len;
    }
    pieces
}

/// This many bytes behind the headers of a flow, as a piece.
pub(super) fn injected(flow: u8, bytes: &[u8]) -> Vec<u8> {
    if flow & 0x80 != 0 {
        return bytes.to_vec();
    }
    let shape = Shape { len: 4096, id: 7, ..Shape::default() };
    let mut frame = cut(&Flow(flow & 7).packet(&shape), 1500, 7).swap_remove(0);
    frame.truncate(if flow & 1 == 0 { 34 } else { 62 });
    frame.extend_from_slice(bytes);
    let keeps_header = flow & 0x40 != 0;
    if keeps_header {
        set_length(&mut frame);
    } else {
        // The bytes replace the headers behind the link header.
        frame = [&frame[..ETHERNET], bytes, &[0; 20]].concat();
        seal(&mut frame);
    }
    frame
}

// Any frames at all: into the receiver, both ways, and through the cutter.

/// Frames from bytes: two that say what follows, and up to 255 that follow.
struct Frames<'a>(&'a [u8]);

impl Iterator for Frames<'_> {
    /// A frame, and a byte of choices.
    type Item = (Vec<u8>, u8);

    fn next(&mut self) -> Option<Self::Item> {
        let [choices, len, rest @ ..] = self.0 else { return None };
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        self.0 = rest;
        let mut frame = injected(*choices & 0xc7, bytes);
        if choices & 0x38 == 0x38 {
            // Long enough to be cut.
            frame.resize(frame.len() + 40 * usize::from(*len), *len);
        }
        Some((frame, *choices))
    }
}

/// Returns whatever these bytes stand for to a receiver, in bursts, and to the
/// cutter, and gives all that is wrong then.
pub(super) fn withstand(bytes: &[u8]) -> Vec<String> {
    let (choices, bytes) = bytes.split_at(bytes.len().min(CHOICES));
    let setup = Setup::new(choices);
    let mut rig = Rig::new(setup, false);
    let mut burst = Vec::new();
    let mut wrong = Vec::new();
    let mut lies = false;
    for (frame, choices) in Frames(bytes) {
        for mtu in [68, 576, 1280, 1500] {
            wrong.extend(cut_and_join(&frame, mtu, setup));
        }
        burst.push(frame);
        if choices & 0x18 == 0 {
            rig.receive(&core::mem::take(&mut burst), lies);
            lies = !lies;
        }
    }
    rig.receive(&burst, lies);
    rig.finish();
    wrong.extend_from_slice(rig.failures());
    wrong
}

/// What is cut is joined to what it was; says what is wrong.
fn cut_and_join(frame: &[u8], mtu: u16, setup: Setup) -> Option<String> {
    let (head, body) = frame.split_at(frame.len().min(128));
    let region = RegionId::new(9, 1);
    let mut cutter = Cutter::new(Df::Override, setup.seed());
    if let Err(wrong) = left_to_others(head, setup) {
        return Some(wrong);
    }
    let pieces = cutter.cut(head, region.span(0, body.len() as u32), mtu).ok()?;
    let frames: Vec<Vec<u8>> = pieces
        .map(|piece| {
            let at = piece.payload.offset as usize;
            [&piece.head[..], &body[at..at + piece.payload.len as usize]].concat()
        })
        .collect();
    let is_cut = frames.len() > 1;
    if is_cut && frames.iter().any(|piece| piece.len() > ETHERNET + usize::from(mtu)) {
        return Some(format!("a piece is longer than {mtu} bytes"));
    }
    // A piece that is cut again is no packet alone.
    if read(frame) != Reading::Whole || !is_cut || is_on_its_way(frame) {
        return None;
    }
    let mut naive = Naive::new(setup.lifetime());
    let joined: Vec<_> =
        frames.iter().filter_map(|frame| naive.receive(Default::default(), frame)).collect();
    let len = joined.first().map_or(0, Vec::len).min(frame.len());
    let mut was = frame[..len].to_vec();
    if word(&was, 12) == Some(0x0800) && was.len() > 34 && was[20] & 0x40 != 0 {
        // A packet that is not to be cut has no name of its own: here it gets one.
        was[18..20].copy_from_slice(&joined[0][18..20]);
        was[24..26].copy_from_slice(&joined[0][24..26]);
    }
    (joined != [was]).then(|| format!("{frame:02x?}, cut for {mtu}, is joined to {joined:02x?}"))
}

/// Of a packet that others are to cut nothing changes but what says that they may.
fn left_to_others(head: &[u8], setup: Setup) -> Result<(), String> {
    let mut left = head.to_vec();
    let let_cut = Cutter::new(Df::Override, setup.seed()).let_cut(&mut left);
    let may_change = |at: usize| matches!(at, 18..=20 | 24 | 25) && let_cut.is_ok();
    let differs = |at: &usize| head[*at] != left[*at] && !may_change(*at);
    match (0..head.len()).find(differs) {
        Some(at) => Err(format!("{head:02x?} is left to others with another byte at {at}")),
        None => Ok(()),
    }
}
