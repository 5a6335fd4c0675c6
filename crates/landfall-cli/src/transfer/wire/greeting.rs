//! Before anything else: a key exchange that is tied to the code, and confirmed by both.
//!
//! ```text
//! sender    Hello     { version, session and share }
//! receiver  Challenge { version, share }               or Refused
//! sender    Proof     { proof }
//! receiver  Welcome   { proof }                        or Refused
//! ```
//!
//! What the four carry is the code's handshake of `landfall-seal`.

use super::{Cursor, Malformed, VERSION};

/// The first message of the handshake: the number of the try, and the sender's share.
pub(crate) type First = [u8; 48];
/// The receiver's share.
pub(crate) type Share = [u8; 32];

/// No greeting is longer.
pub(crate) const MOST_GREETING: usize = 64;
const MAGIC: [u8; 4] = *b"LFft";

/// A message before the two sides have proven themselves to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    Hello {
        version: u16,
        /// Zeros where the version is another one.
        first: First,
    },
    Challenge {
        version: u16,
        /// Zeros where the version is another one.
        share: Share,
    },
    Proof([u8; 32]),
    Welcome([u8; 32]),
    /// The receiver does not go on; it speaks this version.
    Refused {
        version: u16,
        why: Refusal,
    },
}

/// Why a receiver does not go on: a byte of which later versions may know more values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) u8);

impl Refusal {
    /// It speaks another version.
    pub(crate) const VERSION: Self = Self(0);
    /// The proof is not of its code.
    pub(crate) const WRONG: Self = Self(1);
    /// Too many wrong proofs came from that address: in a moment it hears another.
    pub(crate) const LATER: Self = Self(2);
    /// Another sender is being served.
    pub(crate) const BUSY: Self = Self(3);
}

impl Greeting {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        match self {
            Self::Hello { version, first } => {
                out.push(1);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&first);
            }
            Self::Challenge { version, share } => {
                out.push(2);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&share);
            }
            Self::Proof(proof) | Self::Welcome(proof) => {
                out.push(if matches!(self, Self::Proof(_)) { 3 } else { 4 });
                out.extend_from_slice(&proof);
            }
            Self::Refused { version, why } => {
                out.push(5);
                out.extend_from_slice(&version.to_le_bytes());
                out.push(why.0);
            }
        }
        out
    }

    /// Of another version's first two messages nothing but the version is read, so that each
    /// side can say which one it speaks.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        if cursor.array()? != MAGIC {
            return Err(Malformed("it is no greeting of a file transfer"));
        }
        Ok(match cursor.u8()? {
            1 => {
                let version = cursor.u16()?;
                let first = if version == VERSION { cursor.array()? } else { [0; 48] };
                Self::Hello { version, first }
            }
            2 => {
                let version = cursor.u16()?;
                let share = if version == VERSION { cursor.array()? } else { [0; 32] };
                Self::Challenge { version, share }
            }
            3 => Self::Proof(cursor.array()?),
            4 => Self::Welcome(cursor.array()?),
            5 => Self::Refused { version: cursor.u16()?, why: Refusal(cursor.u8()?) },
            _ => return Err(Malformed("an unknown greeting")),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn greetings() -> impl Strategy<Value = Greeting> {
        let proof = any::<[u8; 32]>;
        prop_oneof![
            (proof(), any::<[u8; 16]>()).prop_map(|(share, session)| Greeting::Hello {
                version: VERSION,
                first: [&session[..], &share].concat().try_into().unwrap(),
            }),
            proof().prop_map(|share| Greeting::Challenge { version: VERSION, share }),
            proof().prop_map(Greeting::Proof),
            proof().prop_map(Greeting::Welcome),
            (any::<u16>(), any::<u8>())
                .prop_map(|(version, why)| Greeting::Refused { version, why: Refusal(why) }),
        ]
    }

    proptest! {
        #[test]
        fn greetings_survive_the_wire_and_none_that_is_cut_passes(
            greeting in greetings(),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = greeting.to_bytes();
            prop_assert!(bytes.len() <= MOST_GREETING);
            prop_assert_eq!(Greeting::parse(&bytes), Ok(greeting));
            prop_assert!(Greeting::parse(&bytes[..cut.index(bytes.len())]).is_err());
        }

        /// Whatever another version says first, it is told which one this is.
        #[test]
        fn of_another_version_the_version_is_read(
            version in any::<u16>(),
            which in 1u8..3,
            rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            prop_assume!(version != VERSION);
            let bytes = [&MAGIC[..], &[which], &version.to_le_bytes(), &rest].concat();
            let heard = Greeting::parse(&bytes).unwrap();
            let (Greeting::Hello { version: read, .. } | Greeting::Challenge { version: read, .. }) =
                heard
            else {
                panic!("{heard:?}")
            };
            prop_assert_eq!(read, version);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Greeting::parse(&bytes);
            let _ = Greeting::parse(&[&MAGIC[..], &bytes].concat());
        }
    }
}
