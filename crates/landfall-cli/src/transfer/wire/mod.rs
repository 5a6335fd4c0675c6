//! What the two sides say to each other. Numbers are little-endian, each string stands
//! behind its length.
//!
//! | file | what it is |
//! | --- | --- |
//! | `greeting` | who knows the code: before anything else, one message a transfer |
//! | `message` | afterwards: bundles of messages, each bundle sealed |
//! | `state` | what came, and what is asked for again |
//! | `properties` | what holds for any bytes: for the fuzz target `transfer_wire` |
//!
//! A transfer of STP is a bundle, a piece of the contents of the file that is open at that
//! place, or a word about transfers ([`State`]); four bytes beside it ([`Label`]) say which,
//! and number it, since transfers may overtake each other. Whatever comes is checked, bounded, and refused
//! with a reason where it makes no sense: nothing here panics.
//!
//! What does not live here: seals (`seals`), order and windows (`pipe`).

mod greeting;
mod message;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod state;

use std::fmt;

use crate::printable::printable_bytes;

pub(crate) use greeting::{First, Greeting, MOST_GREETING, Refusal, Share};
pub(crate) use message::{
    Address, Answer, Entry, FileTime, Kind, ToReceiver, ToSender, TransferMessages,
};
pub(crate) use state::{Ask, State};

/// The version of what is said here.
pub(crate) const VERSION: u16 = 3;
/// The port of STP at which a receiver listens; it has nothing to do with ports of UDP.
pub(crate) const SERVICE: u16 = 8182;
/// No transfer is longer: so much memory waits for each.
pub(crate) const MOST_PIECE: usize = 1 << 20;
/// Files up to this length travel within bundles.
pub(crate) const SMALL: u64 = 64 << 10;
/// A bundle is sent when it is so long.
pub(crate) const FULL_BUNDLE: usize = 256 << 10;
/// Answers are sent when they are so long.
pub(crate) const FULL_ANSWERS: usize = 48 << 10;
/// No bundle of answers is longer.
pub(crate) const MOST_ANSWERS: usize = 64 << 10;
/// This many entries may be announced and not dealt with.
pub(crate) const MOST_ANNOUNCED: usize = 4096;

/// What a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Messages.
    Messages,
    /// What came and what is asked for again; numbered apart from the others.
    State,
    /// A part of a file.
    Piece,
    /// Nothing that this version sends.
    Unknown,
}

/// The four bytes beside a transfer: its number, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) number: u64,
    pub(crate) kind: FrameKind,
}

/// Numbers cross the wire without their upper bits.
const NUMBER: u32 = (1 << 30) - 1;

impl Label {
    pub(crate) const fn to_wire(self) -> u32 {
        (self.number as u32 & NUMBER) | (self.kind as u32) << NUMBER.count_ones()
    }

    /// The label, where the next number that is expected is known: the number is that one
    /// or the first behind it that ends in the same bits.
    pub(crate) const fn from_wire(bits: u32, next: u64) -> Self {
        let ahead = (bits & NUMBER).wrapping_sub(next as u32 & NUMBER) & NUMBER;
        Self { number: next.wrapping_add(ahead as u64), kind: Self::kind_of(bits) }
    }

    pub(crate) const fn kind_of(bits: u32) -> FrameKind {
        match bits >> NUMBER.count_ones() {
            0 => FrameKind::Messages,
            1 => FrameKind::State,
            2 => FrameKind::Piece,
            _ => FrameKind::Unknown,
        }
    }
}

/// Bytes that mean nothing: which, and where they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side sent a message that makes no sense ({0})")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Takes values from the front of bytes.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed("it is cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their length of two bytes.
    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.bytes(len.into())
    }

    /// Text for people: at most so long, and safe to print, whatever was sent.
    pub(crate) fn text(&mut self, most: usize) -> Result<String, Malformed> {
        let bytes = self.short_bytes()?;
        if bytes.len() > most {
            return Err(Malformed("a text is too long"));
        }
        // It may be printed. What is shown as an escape takes more room than it took.
        let mut text = printable_bytes(bytes);
        text.truncate(text.floor_char_boundary(most));
        Ok(text)
    }
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

/// Appends bytes behind their length of two bytes; what is longer is cut.
pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&bytes[..usize::from(len)]);
}

/// Appends text, cut where it is longer than allowed.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    put_short_bytes(out, &text.as_bytes()[..text.floor_char_boundary(most)]);
}

#[cfg(test)]
mod tests {
    use landfall_testkit::corpus::replay;
    use proptest::prelude::*;

    use super::*;

    /// What the fuzz target `transfer_wire` runs, over its corpus: so that what was found
    /// stays found.
    #[test]
    fn the_corpus_of_the_fuzz_target_breaks_no_rule() {
        replay("transfer_wire", 10, properties::check);
    }

    proptest! {
        #[test]
        fn any_bytes_break_no_rule(
            which in 0u8..4,
            first in prop_oneof![1u8..12, 0x81u8..0x85, any::<u8>()],
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            properties::check(&[&[which, first][..], &bytes].concat());
        }

        #[test]
        fn labels_survive_the_wire(next in 0u64..1 << 40, ahead in 0u64..64, kind in 0usize..4) {
            use FrameKind::{Messages, Piece, State, Unknown};
            let kind = [Messages, State, Piece, Unknown][kind];
            let label = Label { number: next + ahead, kind };
            prop_assert_eq!(Label::from_wire(label.to_wire(), next), label);
        }
    }
}
