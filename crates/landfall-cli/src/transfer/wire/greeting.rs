//! Before anything else: both sides prove that they know the code.
//!
//! ```text
//! sender    Hello     { version, nonce }
//! receiver  Challenge { version, nonce }     or Refused
//! sender    Proof     { keyed hash }
//! receiver  Welcome   { keyed hash }         or Refused
//! ```

use super::cursor::{Cursor, Malformed};

/// Fresh random bytes of a side.
pub(crate) type Nonce = [u8; 32];

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
    },
    Proof([u8; 32]),
    Welcome([u8; 32]),
    /// The receiver does not go on; it speaks this version, and so many wrong proofs are
    /// left before it ends.
    Refused {
        version: u16,
        tries_left: u8,
    },
}

impl Greeting {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        match self {
            Self::Hello { version, nonce } | Self::Challenge { version, nonce } => {
                out.push(if matches!(self, Self::Hello { .. }) { 1 } else { 2 });
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&nonce);
            }
            Self::Proof(hash) | Self::Welcome(hash) => {
                out.push(if matches!(self, Self::Proof(_)) { 3 } else { 4 });
                out.extend_from_slice(&hash);
            }
            Self::Refused { version, tries_left } => {
                out.push(5);
                out.extend_from_slice(&version.to_le_bytes());
                out.push(tries_left);
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
            2 => Self::Challenge { version: cursor.u16()?, nonce: cursor.array()? },
            3 => Self::Proof(cursor.array()?),
            4 => Self::Welcome(cursor.array()?),
            5 => Self::Refused { version: cursor.u16()?, tries_left: cursor.u8()? },
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
            (version(), any::<Nonce>())
                .prop_map(|(version, nonce)| Greeting::Challenge { version, nonce }),
            any::<[u8; 32]>().prop_map(Greeting::Proof),
            any::<[u8; 32]>().prop_map(Greeting::Welcome),
            (version(), any::<u8>())
                .prop_map(|(version, tries_left)| Greeting::Refused { version, tries_left }),
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
