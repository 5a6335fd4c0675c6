//! What carriers say to each other on a stream: a byte that says what it is, a number, and
//! behind [`Frame::Bytes`] so many bytes.

use crate::connection::{CLOSED, SHUT};
use crate::far::LEFT;

/// Bytes before those of the program.
pub(super) const HEAD: usize = 9;
/// So many bytes of a program at most go in one piece.
pub(super) const PIECE: usize = 64 * 1024;

/// One thing that is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Nothing has happened, and somebody is here.
    Alive,
    /// The program here knows of the memory.
    Here,
    /// The program has changed its way; the number is as in memory, never zero.
    Switched(u64),
    /// The program there can know of that now: a byte by TCP is a ring.
    Known,
    /// So many bytes follow.
    Bytes(usize),
    /// Nothing more comes from the program, and how it ended; see `has_ended`.
    Ended(u32),
    /// The program takes nothing more.
    Unwanted(u32),
    /// The program has not taken the memory, and will not.
    Nobody,
}

/// It makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

impl Frame {
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let (kind, number) = match self {
            Self::Alive => (0, 0),
            Self::Here => (1, 0),
            Self::Switched(number) => (2, number),
            Self::Known => (3, 0),
            Self::Bytes(len) => (4, len as u64),
            Self::Ended(how) => (5, how.into()),
            Self::Unwanted(how) => (6, how.into()),
            Self::Nobody => (7, 0),
        };
        let mut bytes = [kind; HEAD];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; HEAD]) -> Result<Self, Nonsense> {
        let [kind, number @ ..] = *bytes;
        let number = u64::from_be_bytes(number);
        let within = |first: u64, last: u64| (first..=last).contains(&number).then_some(number);
        let of_word = |number: u64| number as u32;
        let alone = |frame| (number == 0).then_some(frame);
        match kind {
            0 => alone(Self::Alive),
            1 => alone(Self::Here),
            2 => within(1, u64::MAX).map(Self::Switched),
            3 => alone(Self::Known),
            4 => within(1, PIECE as u64).map(|len| Self::Bytes(len as usize)),
            5 => within(SHUT.into(), LEFT.into()).map(|how| Self::Ended(of_word(how))),
            6 => within(SHUT.into(), CLOSED.into()).map(|how| Self::Unwanted(of_word(how))),
            7 => alone(Self::Nobody),
            _ => None,
        }
        .ok_or(Nonsense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is understood is what was meant, to the last bit.
        #[test]
        fn each_text_has_one_meaning(kind in 0_u8..10, number in prop_oneof![0..70_000_u64, any::<u64>()]) {
            let mut bytes = [kind; HEAD];
            bytes[1..].copy_from_slice(&number.to_be_bytes());
            if let Ok(frame) = Frame::from_bytes(&bytes) {
                prop_assert_eq!(frame.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn all_that_is_said_is_understood() {
        for frame in [
            Frame::Alive,
            Frame::Here,
            Frame::Switched(1),
            Frame::Switched(u64::MAX),
            Frame::Known,
            Frame::Bytes(1),
            Frame::Bytes(PIECE),
            Frame::Ended(SHUT),
            Frame::Ended(LEFT),
            Frame::Unwanted(CLOSED),
            Frame::Nobody,
        ] {
            assert_eq!(Frame::from_bytes(&frame.to_bytes()), Ok(frame));
        }
        for wrong in [Frame::Switched(0), Frame::Bytes(PIECE + 1), Frame::Ended(9)] {
            assert_eq!(Frame::from_bytes(&wrong.to_bytes()), Err(Nonsense));
        }
    }
}
