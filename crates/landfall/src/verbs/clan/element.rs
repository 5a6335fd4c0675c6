//! [`Element`]: what the two ends of a queue pair put into each other's queue.
//!
//! ```text
//!   0  kind, one byte; mark, one byte; zero, two bytes; number, four bytes
//!   8  two numbers of eight bytes, or the 32 bytes of a cookie
//! ```
//!
//! Numbers are little-endian, and what means nothing is zero. All else is no element, and who
//! puts it in does not follow the protocol.

use crate::clan::Cookie;
use crate::clan::layer::typed::fingerprint_of;

/// Bytes of an element.
pub(super) const LEN: usize = 40;
/// Both ends compare it: it changes with what elements mean.
pub(super) const LAYOUT: u64 = fingerprint_of("landfall verbs 1");

/// What one end says to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// My memory that you may write has this number from now on.
    Region { number: u32, cookie: Cookie },
    /// A part of the room for one of your messages.
    Room { region: u32, at: u64, len: u64, is_last: bool },
    /// A message is in the room whose turn it is.
    Arrived { len: u32, word: Option<u32> },
    /// A message is longer than the room whose turn it is.
    TooLong { len: u32 },
    /// I have had this many messages for you, with those that wait for room.
    Wanted { messages: u64 },
    /// Something failed: nothing will follow.
    Aborted,
}

const REGION: u8 = 1;
const ROOM: u8 = 2;
const ARRIVED: u8 = 3;
const TOO_LONG: u8 = 4;
const WANTED: u8 = 5;
const ABORTED: u8 = 6;

impl Element {
    pub(super) fn encode(&self) -> [u8; LEN] {
        let (kind, mark, number, first, second) = match *self {
            Self::Region { number, cookie } => {
                let mut bytes = header(REGION, false, number);
                bytes[8..].copy_from_slice(&cookie.to_bytes());
                return bytes;
            }
            Self::Room { region, at, len, is_last } => (ROOM, is_last, region, at, len),
            Self::Arrived { len, word } => {
                (ARRIVED, word.is_some(), word.unwrap_or(0), len.into(), 0)
            }
            Self::TooLong { len } => (TOO_LONG, false, 0, len.into(), 0),
            Self::Wanted { messages } => (WANTED, false, 0, messages, 0),
            Self::Aborted => (ABORTED, false, 0, 0, 0),
        };
        let mut bytes = header(kind, mark, number);
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        bytes[16..24].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// Nothing where no element is written so.
    pub(super) fn decode(bytes: &[u8; LEN]) -> Option<Self> {
        let [kind, mark, _, _, a, b, c, d, cookie @ ..] = *bytes;
        let (is_marked, number) = (mark == 1, u32::from_le_bytes([a, b, c, d]));
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let (first, second) = (word(8)?, word(16)?);
        let short = u32::try_from(first).ok();
        let element = match kind {
            REGION => Self::Region { number, cookie: Cookie::from_bytes(&cookie).ok()? },
            ROOM => Self::Room { region: number, at: first, len: second, is_last: is_marked },
            ARRIVED => Self::Arrived { len: short?, word: is_marked.then_some(number) },
            TOO_LONG => Self::TooLong { len: short? },
            WANTED => Self::Wanted { messages: first },
            ABORTED => Self::Aborted,
            _ => return None,
        };
        // What is written otherwise is none either.
        (element.encode() == *bytes).then_some(element)
    }
}

fn header(kind: u8, mark: bool, number: u32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    (bytes[0], bytes[1]) = (kind, mark.into());
    bytes[4..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use clan_dsm::{HostId, Key, Rights};

    use super::*;

    fn all() -> [Element; 8] {
        let key = Key::from_bits(0x0707_0707_0707_0707);
        let cookie = Cookie::new(HostId::new(3).unwrap(), 9, Rights::Write, key, 4096);
        [
            Element::Region { number: 5, cookie },
            Element::Room { region: 5, at: 8, len: u64::MAX, is_last: true },
            Element::Room { region: 0, at: 0, len: 0, is_last: false },
            Element::Arrived { len: 17, word: Some(0) },
            Element::Arrived { len: u32::MAX, word: None },
            Element::TooLong { len: 1 },
            Element::Wanted { messages: 1 << 40 },
            Element::Aborted,
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for element in all() {
            assert_eq!(Element::decode(&element.encode()), Some(element));
        }
    }

    /// Each bit of each element: it is another element, or none, and never the same.
    #[test]
    fn no_bit_is_ignored() {
        for element in all() {
            for bit in 0..LEN * 8 {
                let mut bytes = element.encode();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(Element::decode(&bytes), Some(element), "bit {bit} of {element:?}");
            }
        }
    }
}
