//! What nodes say to each other at their sockets: who asks for memory, and what of
//! it is handed over.
//!
//! All numbers are little-endian, for both ends are on one machine. What a peer says
//! is checked here for its form, and by its reader for its meaning.

use arrayvec::ArrayVec;
use clan_dsm::{Cookie, HostId};

/// The version of all this. Processes that speak another one do not talk.
const VERSION: u16 = 2;

/// What is said; descriptors go beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlMessage {
    /// First of all, from who came.
    Hello { host: HostId },
    /// The answer, with the memory for news and the doorbell.
    Welcome { host: HostId },
    /// Asks for the memory of a cookie.
    Map { request: u32, cookie: Cookie },
    /// It is granted under this tag, with the descriptors of memory and filter.
    Mapped { request: u32, tag: u32 },
    /// It is not: there is no such memory, or it is not for this cookie.
    Refused { request: u32 },
    /// What was mapped is used no more.
    Unmap { tag: u32 },
    /// What was mapped is withdrawn.
    Withdrawn { tag: u32 },
}

/// The bytes of a message.
pub(super) type Body = ArrayVec<u8, { 4 + Cookie::LEN }>;

impl ControlMessage {
    /// As kind and bytes.
    pub(super) fn encode(self) -> (u16, Body) {
        let mut body = Body::new();
        let mut add = |bytes: &[u8]| {
            // The longest fits: see `Body`.
            let _ = body.try_extend_from_slice(bytes);
        };
        let kind = match self {
            Self::Hello { host } | Self::Welcome { host } => {
                add(&VERSION.to_le_bytes());
                add(&host.number().to_le_bytes());
                if matches!(self, Self::Hello { .. }) { 1 } else { 2 }
            }
            Self::Map { request, cookie } => {
                add(&request.to_le_bytes());
                add(&cookie.to_bytes());
                3
            }
            Self::Mapped { request, tag } => {
                add(&request.to_le_bytes());
                add(&tag.to_le_bytes());
                4
            }
            Self::Refused { request } => {
                add(&request.to_le_bytes());
                5
            }
            Self::Unmap { tag } => {
                add(&tag.to_le_bytes());
                6
            }
            Self::Withdrawn { tag } => {
                add(&tag.to_le_bytes());
                7
            }
        };
        (kind, body)
    }

    /// From kind and bytes; none if it is nothing of all that.
    pub(super) fn decode(kind: u16, body: &[u8]) -> Option<Self> {
        let (number, rest) = match body.split_first_chunk::<4>() {
            Some((number, rest)) => (u32::from_le_bytes(*number), rest),
            None => return None,
        };
        Some(match (kind, rest) {
            (1 | 2, []) => {
                let host = HostId::new((number >> 16) as u16)?;
                if number as u16 != VERSION {
                    return None;
                }
                if kind == 1 { Self::Hello { host } } else { Self::Welcome { host } }
            }
            (3, cookie) => {
                let cookie = Cookie::from_bytes(cookie.try_into().ok()?).ok()?;
                Self::Map { request: number, cookie }
            }
            (4, tag) => {
                let tag = u32::from_le_bytes(tag.try_into().ok()?);
                Self::Mapped { request: number, tag }
            }
            (5, []) => Self::Refused { request: number },
            (6, []) => Self::Unmap { tag: number },
            (7, []) => Self::Withdrawn { tag: number },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use clan_dsm::{Key, Rights};

    use super::*;

    #[test]
    fn everything_that_is_said_is_understood_and_nothing_else() {
        let host = HostId::new(0xabc).unwrap();
        let cookie = Cookie::new(host, 7, Rights::Read, Key::from_bits(9), 4096);
        let all = [
            ControlMessage::Hello { host },
            ControlMessage::Welcome { host },
            ControlMessage::Map { request: 1, cookie },
            ControlMessage::Mapped { request: 2, tag: 3 },
            ControlMessage::Refused { request: 4 },
            ControlMessage::Unmap { tag: 5 },
            ControlMessage::Withdrawn { tag: 6 },
        ];
        for control in all {
            let (kind, body) = control.encode();
            assert_eq!(ControlMessage::decode(kind, &body), Some(control));
            assert_eq!(ControlMessage::decode(kind, &body[..body.len() - 1]), None);
            assert_eq!(ControlMessage::decode(kind + 7, &body), None);
            let longer = [&body[..], &[0]].concat();
            assert_eq!(ControlMessage::decode(kind, &longer), None);
        }
        assert_eq!(ControlMessage::decode(1, &[9, 0, 1, 0]), None, "another version");
    }
}
