//! Before anything else: both sides prove that they know the code.
//!
//! ```text
//! sender    Hello     { version, nonce }
//! receiver  Challenge { version, nonce, salt }   or Refused
//! sender    Proof     { keyed hash }
//! receiver  Welcome   { keyed hash }             or Refused
//! ```

use super::{Cursor, Malformed};

/// Fresh random bytes of a side.
pub(crate) type Nonce = [u8; 32];

/// What a receiver stretches a chosen code with.
pub(crate) type Salt = [u8; 16];

/// No greeting is longer.
pub(crate) const MOST_GREETING: usize = 64;
const MAGIC: [u8; 4] = *b"LFft";

/// A message before the code is known to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    Hello {
        version: u16,
        nonce: Nonce,
    },
    Challenge {
        version: u16,
        nonce: Nonce,
        salt: Salt,
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
            Self::Hello { version, nonce } => {
                out.push(1);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&nonce);
            }
            Self::Challenge { version, nonce, salt } => {
                out.push(2);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&nonce);
                out.extend_from_slice(&salt);
            }
            Self::Proof(hash) | Self::Welcome(hash) => {
                out.push(if matches!(self, Self::Proof(_)) { 3 } else { 4 });
                out.extend_from_slice(&hash);
            }
            Self::Refused { version, why } => {
                out.push(5);
                out.extend_from_slice(&version.to_le_bytes());
                out.push(why.0);
            }
        }
        out
    }

    /// Whatever later versions append to their first two messages is passed over, so that
    /// each side can say which version it speaks.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        if cursor.array()? != MAGIC {
            return Err(Malformed("it is no greeting of a file transfer"));
        }
        Ok(match cursor.u8()? {
            1 => Self::Hello { version: cursor.u16()?, nonce: cursor.array()? },
            2 => {
                let (version, nonce) = (cursor.u16()?, cursor.array()?);
                // The first version had none, and is told apart by its number.
                let salt = if version == 1 { Salt::default() } else { cursor.array()? };
                Self::Challenge { version, nonce, salt }
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
        let version = any::<u16>;
        prop_oneof![
            (version(), any::<Nonce>())
                .prop_map(|(version, nonce)| Greeting::Hello { version, nonce }),
            (2u16.., any::<Nonce>(), any::<Salt>())
                .prop_map(|(version, nonce, salt)| Greeting::Challenge { version, nonce, salt }),
            any::<[u8; 32]>().prop_map(Greeting::Proof),
            any::<[u8; 32]>().prop_map(Greeting::Welcome),
            (version(), any::<u8>())
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

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Greeting::parse(&bytes);
            let _ = Greeting::parse(&[&MAGIC[..], &bytes].concat());
        }
    }
}
