//! What the two sides say to each other.
//!
//! | file | what it is |
//! | --- | --- |
//! | `greeting` | who knows the code: before anything else, one message a transfer |
//! | `message` | afterwards: bundles of messages, each bundle with its seal |
//! | `state` | what came, and what is asked for again |
//! | `cursor` | numbers and strings in bytes |
//! | `properties` | what holds for any bytes: for the fuzz target `transfer_wire` |
//!
//! A transfer of STP is a bundle, a piece of the contents of the file that is open at that
//! place, or a word about transfers ([`State`]); four bytes beside it ([`Label`]) say which,
//! and number it, since transfers may overtake each other. Whatever comes is checked, bounded, and refused
//! with a reason where it makes no sense: nothing here panics.
//!
//! What does not live here: seals (`code`), order and windows (`pipe`).

mod cursor;
mod greeting;
mod message;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod state;

pub(crate) use cursor::Malformed;
pub(crate) use greeting::{Greeting, MOST_GREETING, Nonce, Refusal, Salt};
pub(crate) use message::{Address, Answer, Bundle, Entry, FileTime, Kind, ToReceiver, ToSender};
pub(crate) use state::{Ask, State};

/// The version of what is said here.
pub(crate) const VERSION: u16 = 2;
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
/// So many entries may be announced and not dealt with.
pub(crate) const MOST_ANNOUNCED: usize = 4096;

/// What a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Messages.
    Bundle,
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
            0 => FrameKind::Bundle,
            1 => FrameKind::State,
            2 => FrameKind::Piece,
            _ => FrameKind::Unknown,
        }
    }
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
            use FrameKind::{Bundle, Piece, State, Unknown};
            let kind = [Bundle, State, Piece, Unknown][kind];
            let label = Label { number: next + ahead, kind };
            prop_assert_eq!(Label::from_wire(label.to_wire(), next), label);
        }
    }
}
