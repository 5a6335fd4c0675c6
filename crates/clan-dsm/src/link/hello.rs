//! How two sides get to know each other, and how they part: what the bodies of
//! Hello, Bye and Stranger say.
//!
//! ```text
//! Ask      tag 0          my tag, my host, …        who are you?
//! Answer   asker's tag    a tag that proves …       this is who I am; I keep nothing yet
//! Confirm  that tag       my tag, my host, …        now keep it
//! ```
//!
//! Who is asked keeps nothing until it is confirmed: the tag of the answer is a
//! keyed hash of who asked and what was said, so the confirmation brings all
//! back (as SYN cookies do; RFC 4987, 3.6). A stranger who cannot hear the
//! answer can neither open a link nor take room.

use landfall_placement::Refusal;

use crate::address::HostId;
use crate::error::Reason;

/// What a Hello is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Ask = 1,
    Answer = 2,
    Confirm = 3,
}

/// What the other side has said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) stage: Stage,
    /// It wants a sum over every payload.
    pub(crate) wants_sums: bool,
    pub(crate) host: HostId,
    /// The most frames that it takes behind what it has acknowledged.
    pub(crate) frames: u16,
    /// How it wants to be spoken to from now on.
    pub(crate) tag: u64,
    /// Drawn when it was started.
    pub(crate) incarnation: u64,
    /// How many bytes of frames it keeps that came too early.
    pub(crate) early_bytes: u32,
}

const WANTS_SUMS: u8 = 1;

impl Hello {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.stage as u8;
        bytes[1] = if self.wants_sums { WANTS_SUMS } else { 0 };
        bytes[2..4].copy_from_slice(&self.host.number().to_be_bytes());
        bytes[4..6].copy_from_slice(&self.frames.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.early_bytes.to_be_bytes());
        bytes
    }

    pub(crate) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let bytes: &[u8; Self::LEN] = body.try_into().map_err(|_| Refusal::Malformed)?;
        let long = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let stage = match bytes[0] {
            1 => Stage::Ask,
            2 => Stage::Answer,
            3 => Stage::Confirm,
            _ => return Err(Refusal::Malformed),
        };
        let is_zero = bytes[6..8] == [0; 2] && bytes[28..] == [0; 4] && bytes[1] <= WANTS_SUMS;
        let (frames, tag) = (short(4), long(8));
        if !is_zero || tag == 0 || frames == 0 {
            return Err(Refusal::Malformed);
        }
        Ok(Self {
            stage,
            wants_sums: bytes[1] == WANTS_SUMS,
            host: HostId::new(short(2)).ok_or(Refusal::Malformed)?,
            frames,
            tag,
            incarnation: long(16),
            early_bytes: (long(24) >> 32) as u32,
        })
    }
}

/// The body of a Bye: why.
pub(crate) const fn bye(reason: Reason) -> [u8; 8] {
    [reason as u8, 0, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn bye_from(body: &[u8]) -> Result<Reason, Refusal> {
    match body {
        [code, 0, 0, 0, 0, 0, 0, 0] => Reason::from_code(*code).ok_or(Refusal::Malformed),
        _ => Err(Refusal::Malformed),
    }
}

/// The body of a Stranger: the tag of the frame that came for a link that does
/// not exist, and when the sender was started. The tag is the proof that the
/// sender has seen that frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stranger {
    pub(crate) tag: u64,
    pub(crate) incarnation: u64,
}

impl Stranger {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.tag) << 64 | u128::from(self.incarnation)).to_be_bytes()
    }

    pub(crate) fn from_body(body: &[u8]) -> Result<Self, Refusal> {
        let bytes: [u8; 16] = body.try_into().map_err(|_| Refusal::Malformed)?;
        let both = u128::from_be_bytes(bytes);
        Ok(Self { tag: (both >> 64) as u64, incarnation: both as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn what_is_said_is_heard(
            stage in 1u8..=3, wants_sums: bool, host in 0u16..4096, frames in 1u16..,
            tag in 1u64.., incarnation: u64, early_bytes: u32,
        ) {
            let stage = [Stage::Ask, Stage::Answer, Stage::Confirm][usize::from(stage) - 1];
            let host = HostId::new(host).unwrap();
            let hello = Hello { stage, wants_sums, host, frames, tag, incarnation, early_bytes };
            prop_assert_eq!(Hello::from_body(&hello.to_bytes()), Ok(hello));
            let stranger = Stranger { tag, incarnation };
            prop_assert_eq!(Stranger::from_body(&stranger.to_bytes()), Ok(stranger));
        }

        #[test]
        fn whatever_is_understood_is_said_alike(mut body: Vec<u8>, stage in 0u8..5) {
            if let Some(first) = body.first_mut() { *first = stage; }
            if let Ok(hello) = Hello::from_body(&body) {
                prop_assert_eq!(&hello.to_bytes()[..], &body[..]);
            }
            if let Ok(reason) = bye_from(&body) {
                prop_assert_eq!(&bye(reason)[..], &body[..]);
            }
            let _ = Stranger::from_body(&body);
        }

        #[test]
        fn of_a_hello_every_byte_counts(host in 0u16..4096, tag in 1u64.., at in 0usize..Hello::LEN) {
            let host = HostId::new(host).unwrap();
            let hello = Hello {
                stage: Stage::Ask, wants_sums: false, host, frames: 7, tag, incarnation: 1, early_bytes: 9,
            };
            let mut body = hello.to_bytes();
            body[at] ^= 0x10;
            prop_assert_ne!(Hello::from_body(&body), Ok(hello));
        }
    }
}
