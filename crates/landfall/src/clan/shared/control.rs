//! The control messages of nodes at their sockets: who asks for memory, and what of
//! it is handed over.
//!
//! All numbers are little-endian, for both ends are on one machine. What a peer says
//! is checked here for its form, and by its reader for its meaning.

use arrayvec::ArrayVec;
use clan_dsm::{Cookie, HostId, OutOfBand};

use crate::clan::names::{Greeting, MAX_GREETING, MAX_NAME, Name};

/// The version of the protocol. Processes with different versions do not connect.
const VERSION: u16 = 4;

/// A control message; descriptors go beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Asks those who offer this name.
    Ask { request: u32, name: Name, greeting: Greeting },
    /// Their answer.
    Answered { request: u32, answer: Greeting },
    /// From an endpoint there to one here.
    OutOfBand { message: OutOfBand },
}

/// The bytes of a message.
pub(super) type Body = ArrayVec<u8, { 5 + MAX_NAME + MAX_GREETING }>;

impl ControlMessage {
    /// As kind and bytes.
    pub(super) fn encode(&self) -> (u16, Body) {
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
            Self::Ask { request, name, greeting } => {
                add(&request.to_le_bytes());
                add(&[name.len() as u8]);
                add(name);
                add(greeting);
                8
            }
            Self::Answered { request, answer } => {
                add(&request.to_le_bytes());
                add(answer);
                9
            }
            Self::OutOfBand { message } => {
                add(&message.to_bytes());
                10
            }
        };
        (kind, body)
    }

    /// From kind and bytes; none if it is nothing of all that.
    pub(super) fn decode(kind: u16, body: &[u8]) -> Option<Self> {
        if kind == 10 {
            let message = OutOfBand::from_bytes(body.try_into().ok()?)?;
            return Some(Self::OutOfBand { message });
        }
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
            (8, [len, rest @ ..]) => {
                let (name, greeting) = rest.split_at_checked(usize::from(*len))?;
                let name = name.try_into().ok()?;
                Self::Ask { request: number, name, greeting: greeting.try_into().ok()? }
            }
            (9, answer) => Self::Answered { request: number, answer: answer.try_into().ok()? },
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
        let mut out_of_band = [7; OutOfBand::LEN];
        out_of_band[10..12].fill(0);
        let all = [
            ControlMessage::Hello { host },
            ControlMessage::Welcome { host },
            ControlMessage::Map { request: 1, cookie },
            ControlMessage::Mapped { request: 2, tag: 3 },
            ControlMessage::Refused { request: 4 },
            ControlMessage::Unmap { tag: 5 },
            ControlMessage::Withdrawn { tag: 6 },
            ControlMessage::OutOfBand { message: OutOfBand::from_bytes(&out_of_band).unwrap() },
        ];
        for control in all {
            let (kind, body) = control.encode();
            assert_eq!(ControlMessage::decode(kind, &body), Some(control.clone()));
            assert_eq!(ControlMessage::decode(kind, &body[..body.len() - 1]), None);
            assert_eq!(ControlMessage::decode(kind + 10, &body), None);
            let longer = [&body[..], &[0]].concat();
            assert_eq!(ControlMessage::decode(kind, &longer), None);
        }
        assert_eq!(ControlMessage::decode(1, &[9, 0, 1, 0]), None, "another version");
    }

    /// These end with as many bytes as there are, up to a bound.
    #[test]
    fn names_and_what_is_said_to_them_have_their_bounds() {
        let bytes = |len: usize| vec![7; len];
        for len in [0, 1, MAX_NAME] {
            for greeting in [0, 1, MAX_GREETING] {
                let (name, greeting) = (bytes(len), bytes(greeting));
                let answer = greeting[..].try_into().unwrap();
                let ask = ControlMessage::Ask {
                    request: 9,
                    name: name[..].try_into().unwrap(),
                    greeting: greeting[..].try_into().unwrap(),
                };
                for control in [ask, ControlMessage::Answered { request: 9, answer }] {
                    let (kind, body) = control.encode();
                    assert_eq!(ControlMessage::decode(kind, &body), Some(control));
                }
            }
        }
        let ask = |len: u8, there: usize| {
            let body = [&[0, 0, 0, 0, len][..], &bytes(there)].concat();
            ControlMessage::decode(8, &body)
        };
        assert!(ask(5, 4).is_none(), "a name that is not all there");
        assert!(ask(65, 65).is_none(), "a name that is too long");
        assert!(ask(64, 64 + 129).is_none(), "more than is said");
        assert!(ControlMessage::decode(8, &[0; 4]).is_none());
        assert!(ControlMessage::decode(9, &bytes(4 + 129)).is_none());
    }
}
