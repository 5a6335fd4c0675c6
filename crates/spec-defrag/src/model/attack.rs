//! Any frames at all: into the receiver, both ways, and through the cutter.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::RegionId;

use super::forge::injected;
use super::naive::Naive;
use super::read::{ETHERNET, Reading, is_on_its_way, read, word};
use super::rig::Rig;
use super::setup::{CHOICES, Setup};
use crate::cut::{Cutter, Df};

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

/// Gives whatever these bytes stand for to a receiver, in bursts, and to the
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
