//! Handshakes: state machines that take messages, give messages, and hand keys over.
//!
//! | file | what it is |
//! | --- | --- |
//! | `noise`, `primitives` | Noise: key pairs (XX) and pre-shared keys (NNpsk0), by `snow` |
//! | `pake`, `cpace` | a code that people read out, by CPace |
//! | `tls` | certificates and raw public keys, by rustls (feature `rustls`) |
//!
//! Anyone who carries the messages (a datagram, a stream, an operation of a protocol) keeps
//! their borders and their order; a lost message is the carrier's to repeat. A handshake
//! needs no clock and no source of randomness: a [`Seed`](crate::Seed) goes into its
//! constructor. Only TLS takes both from the configuration of rustls.

mod cpace;
mod noise;
mod pake;
mod primitives;
#[cfg(feature = "rustls")]
mod tls;

use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest, Sha256};

use crate::aead::Suite;
use crate::keys::Keys;
use crate::secret::Secret;

pub use noise::{Noise, NoiseConfig, StaticKey};
pub use pake::Pake;
#[cfg(feature = "rustls")]
pub use tls::{Tls, TlsError, tls_provider};

/// No message of a handshake is longer.
pub const MOST_MESSAGE: usize = 16 << 10;

/// What a handshake needs to be carried.
///
/// Drain [`poll_message`](Self::poll_message) after the constructor and after each
/// [`handle_message`](Self::handle_message). An error is final: the handshake answers nothing
/// any more, and a new try needs a new handshake.
pub trait Handshake: Sized {
    /// A message of the peer came.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]: why there are no keys and will be none.
    fn handle_message(&mut self, message: &[u8]) -> Result<(), HandshakeError>;

    /// The next message for the peer.
    fn poll_message(&mut self) -> Option<Vec<u8>>;

    /// Has the peer proven itself, and has this side said all that it has to say?
    fn is_finished(&self) -> bool;

    /// Hands over the keys.
    ///
    /// # Errors
    ///
    /// [`HandshakeError::Unfinished`] before the peer has proven itself.
    fn finish(self) -> Result<Established, HandshakeError>;
}

/// What a handshake hands over.
#[derive(Debug)]
pub struct Established {
    /// The keys that only this peer has, too.
    pub keys: Keys,
    /// Who the peer is.
    pub peer: PeerIdentity,
}

/// What the peer has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// It knows the code.
    Code,
    /// It has the pre-shared key.
    PresharedKey,
    /// It has the secret key of this public key. Whether that is the right one is for the
    /// caller to say, unless it was pinned.
    PublicKey(PublicKey),
    /// It has the secret key of this certificate or raw public key, which was accepted by the
    /// configuration of TLS.
    #[cfg(feature = "rustls")]
    Certificate(Fingerprint),
    /// It has proven nothing: a client of TLS from which no certificate was asked.
    #[cfg(feature = "rustls")]
    Anonymous,
}

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// A message has the wrong length, or bytes that mean nothing.
    #[error("a message of the handshake makes no sense: {0}")]
    Malformed(&'static str),
    /// The peer has another secret, or other ideas of what was agreed on.
    #[error(
        "the peer does not have the same key or code, or it means another version, suite or context"
    )]
    NotProven,
    /// The peer has another key than the one that was pinned.
    #[error("the peer has the key {0}, which is not the one that was expected")]
    WrongPeer(Fingerprint),
    /// It is not the peer's turn, or the handshake has failed before.
    #[error("a message of the handshake is out of turn")]
    OutOfTurn,
    /// The peer has not proven itself yet.
    #[error("the handshake is not finished")]
    Unfinished,
    /// TLS says why not.
    #[cfg(feature = "rustls")]
    #[error(transparent)]
    Tls(TlsError),
}

/// A public key of X25519.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// What people compare.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(b"landfall public key", &self.0)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}

/// 160 bits of a hash of a public key, printed in eight groups of four symbols.
///
/// ```
/// let fingerprint = landfall_seal::PublicKey([1; 32]).fingerprint();
/// let text = fingerprint.to_string();
/// assert_eq!(text.len(), 8 * 4 + 7);
/// assert_eq!(text.parse(), Ok(fingerprint));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 20]);

impl Fingerprint {
    /// That of a certificate, or of a raw public key, as it is encoded (DER).
    #[cfg(feature = "rustls")]
    #[must_use]
    pub fn of_certificate(der: &[u8]) -> Self {
        Self::of(b"landfall certificate", der)
    }

    /// That of some bytes, by what they are.
    fn of(kind: &[u8], bytes: &[u8]) -> Self {
        let hash = Sha256::new_with_prefix(kind).chain_update(bytes).finalize();
        let mut fingerprint = Self([0; 20]);
        fingerprint.0.copy_from_slice(&hash[..20]);
        fingerprint
    }
}

/// No two of them look alike.
const SYMBOLS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (group, bytes) in self.0.chunks(5).enumerate() {
            let bits = bytes.iter().fold(0, |bits: u64, byte| bits << 8 | u64::from(*byte));
            for nth in 0..8 {
                if nth % 4 == 0 && group + nth > 0 {
                    f.write_str("-")?;
                }
                let symbol = SYMBOLS[(bits >> (35 - 5 * nth) & 31) as usize];
                write!(f, "{}", char::from(symbol))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a fingerprint has 32 symbols of 0123456789abcdefghjkmnpqrstvwxyz, and dashes between them"
)]
pub struct BadFingerprint;

impl core::str::FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let mut fingerprint = Self([0; 20]);
        let mut symbols = text.bytes().filter(|byte| *byte != b'-');
        for bytes in fingerprint.0.chunks_mut(5) {
            let mut bits = 0u64;
            for _ in 0..8 {
                let symbol = symbols.next().ok_or(BadFingerprint)?.to_ascii_lowercase();
                let value = SYMBOLS.iter().position(|s| *s == symbol).ok_or(BadFingerprint)?;
                bits = bits << 5 | value as u64;
            }
            bytes.copy_from_slice(&bits.to_be_bytes()[3..]);
        }
        if symbols.next().is_some() { Err(BadFingerprint) } else { Ok(fingerprint) }
    }
}

/// What both ends must agree on before there are keys: it is hashed into them, so that
/// nobody on the way can make two ends of different versions or suites agree.
fn agreement(kind: &str, suite: Suite, context: &[u8]) -> Vec<u8> {
    let mut agreed = Vec::with_capacity(64);
    agreed.extend_from_slice(b"landfall handshake 1, ");
    agreed.extend_from_slice(kind.as_bytes());
    agreed.extend_from_slice(&[0, suite.code()]);
    agreed.extend_from_slice(context);
    agreed
}

/// The secret of a finished handshake.
fn master(parts: &[&[u8]]) -> Secret {
    let mut hash = Sha256::new_with_prefix(b"landfall handshake secret");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Secret::new(hash.finalize().into())
}
