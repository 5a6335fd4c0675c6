//! What carriers tell each other: frames, each of a connection, in batches.
//!
//! A frame is 16 bytes, and behind [`Frame::Bytes`] the bytes themselves:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | which frame it is |
//! | 1 to 3 | a small number: a length, or how something ended |
//! | 4 to 7 | the connection, as anyone who called the other carrier numbers it |
//! | 8 to 15 | a large number: a position in the stream, or what memory says |
//!
//! A batch has whole frames only. Bytes have a position, so that what travels beside the
//! batches ([`super::link`]) finds its place among them.

use crate::between_hosts::LEFT;
use crate::connection::{CLOSED, SHUT};
use crate::registry::Name;
use crate::segment::CARRIED_CAPACITY;

/// Bytes of a frame without what follows it.
pub(super) const HEAD: usize = 16;
/// This many bytes of a program at most are in one frame.
pub(super) const LONGEST: usize = 64 * 1024;
/// A batch has no more bytes than this.
pub(super) const BATCH: usize = 2 * LONGEST;

/// One thing that is told of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Nothing has happened, and somebody is here. Of no connection.
    Alive,
    /// A program calls one of the other host; the name of the connection follows.
    Open,
    /// Whether memory was made for it there.
    Opened(bool),
    /// The program here knows of the memory.
    Here,
    /// The program sends by memory from now on; the number is as in memory, never zero.
    Switched(u64),
    /// The program there can know of that now: a byte by TCP is a ring.
    Known,
    /// This many bytes follow, which belong at this position.
    Bytes { len: usize, at: u64 },
    /// The program has taken this many bytes, from the beginning on.
    Taken(u64),
    /// Nothing comes from the program behind this position, and how it ended; see `has_ended`.
    Ended { how: u32, at: u64 },
    /// The program takes nothing more.
    Unwanted(u32),
    /// The program has not taken the memory, and will not.
    Nobody,
    /// The connection is broken: both programs hear of a reset.
    Broken,
}

/// It makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Frame {
    /// The frame as it travels; `connection` is zero where it is of none.
    pub(super) fn to_bytes(self, connection: u32) -> [u8; HEAD] {
        let (kind, small, large) = match self {
            Self::Alive => (0, 0, 0),
            Self::Open => (1, Name::LEN, 0),
            Self::Opened(is_taken) => (2, usize::from(is_taken), 0),
            Self::Here => (3, 0, 0),
            Self::Switched(number) => (4, 0, number),
            Self::Known => (5, 0, 0),
            Self::Bytes { len, at } => (6, len, at),
            Self::Taken(sum) => (7, 0, sum),
            Self::Ended { how, at } => (8, how as usize, at),
            Self::Unwanted(how) => (9, how as usize, 0),
            Self::Nobody => (10, 0, 0),
            Self::Broken => (11, 0, 0),
        };
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&(small as u32).to_be_bytes());
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&connection.to_be_bytes());
        bytes[8..].copy_from_slice(&large.to_be_bytes());
        bytes
    }

    /// The frame, and of which connection.
    pub(super) fn from_bytes(bytes: &[u8; HEAD]) -> Result<(u32, Self), Malformed> {
        let [kind, s0, s1, s2, c0, c1, c2, c3, large @ ..] = *bytes;
        let small = u32::from_be_bytes([0, s0, s1, s2]);
        let large = u64::from_be_bytes(large);
        let connection = u32::from_be_bytes([c0, c1, c2, c3]);
        let alone = |frame| (small == 0 && large == 0).then_some(frame);
        let how = |first: u32, last: u32| (first..=last).contains(&small).then_some(small);
        let frame = match kind {
            0 if connection == 0 => alone(Self::Alive),
            1 => (small as usize == Name::LEN && large == 0).then_some(Self::Open),
            2 => how(0, 1).filter(|_| large == 0).map(|taken| Self::Opened(taken == 1)),
            3 => alone(Self::Here),
            4 => (small == 0 && large != 0).then_some(Self::Switched(large)),
            5 => alone(Self::Known),
            6 => how(1, LONGEST as u32).map(|len| Self::Bytes { len: len as usize, at: large }),
            7 => (small == 0).then_some(Self::Taken(large)),
            8 => how(SHUT, LEFT).map(|how| Self::Ended { how, at: large }),
            9 => how(SHUT, CLOSED).filter(|_| large == 0).map(Self::Unwanted),
            10 => alone(Self::Nobody),
            11 => alone(Self::Broken),
            _ => None,
        };
        frame.map(|frame| (connection, frame)).ok_or(Malformed)
    }

    /// How many bytes follow it.
    pub(super) const fn tail(self) -> usize {
        match self {
            Self::Open => Name::LEN,
            Self::Bytes { len, .. } => len,
            _ => 0,
        }
    }
}

const _: () = assert!(LONGEST as u64 <= CARRIED_CAPACITY && LONGEST < 1 << 24);

/// Frames that are about to leave together.
#[derive(Debug, Default)]
pub(super) struct Batch(Vec<u8>);

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes there is room for behind one more head.
    pub(super) fn room(&self) -> usize {
        (BATCH - HEAD).saturating_sub(self.0.len())
    }

    /// Adds a frame that nothing follows. There are always fewer of these than there is
    /// room for.
    pub(super) fn push(&mut self, connection: u32, frame: Frame) {
        self.push_with(connection, frame, &[]);
    }

    /// Adds a frame and what follows it.
    pub(super) fn push_with(&mut self, connection: u32, frame: Frame, tail: &[u8]) {
        debug_assert_eq!(tail.len(), frame.tail());
        self.0.extend_from_slice(&frame.to_bytes(connection));
        self.0.extend_from_slice(tail);
    }

    /// Adds this many bytes of a program, which `fill` writes.
    pub(super) fn push_bytes(
        &mut self,
        connection: u32,
        at: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        self.0.extend_from_slice(&Frame::Bytes { len, at }.to_bytes(connection));
        let start = self.0.len();
        self.0.resize(start + len, 0);
        fill(&mut self.0[start..]);
    }

    /// Takes what is there, to be sent.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// The frames of a batch that came, each with what follows it.
#[derive(Debug)]
pub(super) struct Frames<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = Result<(u32, Frame, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.0.split_first_chunk().ok_or(Malformed).and_then(|(head, rest)| {
            let (connection, frame) = Frame::from_bytes(head)?;
            let (tail, rest) = rest.split_at_checked(frame.tail()).ok_or(Malformed)?;
            self.0 = rest;
            Ok((connection, frame, tail))
        });
        if read.is_err() {
            self.0 = &[];
        }
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is understood is what was meant, to the last bit.
        #[test]
        fn each_frame_has_one_form(
            kind in 0_u8..13, small in prop_oneof![0..8_u32, 0..70_000_u32],
            connection: u32, large in prop_oneof![Just(0), any::<u64>()],
        ) {
            let mut bytes = [0; HEAD];
            bytes[..4].copy_from_slice(&small.to_be_bytes());
            bytes[0] = kind;
            bytes[4..8].copy_from_slice(&connection.to_be_bytes());
            bytes[8..].copy_from_slice(&large.to_be_bytes());
            if let Ok((connection, frame)) = Frame::from_bytes(&bytes) {
                prop_assert_eq!(frame.to_bytes(connection), bytes);
            }
        }

        /// Whatever comes, reading a batch ends, and never goes beyond it.
        #[test]
        fn any_batch_is_read_to_its_end(bytes: Vec<u8>) {
            let mut read = 0;
            for frame in Frames(&bytes) {
                match frame {
                    Ok((_, frame, tail)) => {
                        prop_assert_eq!(frame.tail(), tail.len());
                        read += HEAD + tail.len();
                    }
                    Err(Malformed) => return Ok(()),
                }
            }
            prop_assert_eq!(read, bytes.len());
        }
    }

    #[test]
    fn all_that_is_told_is_understood() {
        let name = [7; Name::LEN];
        let mut batch = Batch::default();
        let told = [
            Frame::Alive,
            Frame::Opened(true),
            Frame::Here,
            Frame::Switched(u64::MAX),
            Frame::Known,
            Frame::Taken(1 << 40),
            Frame::Ended { how: LEFT, at: 9 },
            Frame::Unwanted(CLOSED),
            Frame::Nobody,
            Frame::Broken,
        ];
        for frame in told {
            batch.push(u32::from(frame != Frame::Alive), frame);
        }
        batch.push_with(3, Frame::Open, &name);
        batch.push_bytes(4, 77, 5, |into| into.copy_from_slice(b"bytes"));
        let bytes = batch.take();
        let read: Vec<_> = Frames(&bytes).map(Result::unwrap).collect();
        assert_eq!(read[..told.len()].iter().map(|read| read.1).collect::<Vec<_>>(), told);
        assert_eq!(
            read[told.len()..],
            [(3, Frame::Open, &name[..]), (4, Frame::Bytes { len: 5, at: 77 }, b"bytes"),]
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            Frame::Switched(0),
            Frame::Bytes { len: LONGEST + 1, at: 0 },
            Frame::Bytes { len: 0, at: 0 },
            Frame::Ended { how: 9, at: 0 },
        ] {
            assert_eq!(Frame::from_bytes(&wrong.to_bytes(1)), Err(Malformed));
        }
    }
}
