//! What records need of a cipher: seal and open a payload in place, with the tag apart.

use core::fmt;

use zeroize::Zeroize;

/// The length of a tag, with each suite.
pub const TAG_LEN: usize = 16;
/// The length of a nonce, with each suite.
pub const NONCE_LEN: usize = 12;
/// The longest payload of one record: 16 MiB.
pub const MOST_PAYLOAD: usize = 16 << 20;
/// The longest head of one record.
pub const MOST_HEAD: usize = 64 << 10;

/// The proof that a record is what its sender sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(pub [u8; TAG_LEN]);

/// What a record is sealed with beside its key. Each key sees each nonce once.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// A cipher with its authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// AES with keys of 128 bits in Galois/counter mode. Fastest where the processor has
    /// instructions for AES.
    Aes128Gcm,
    /// AES with keys of 256 bits in Galois/counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305 (RFC 8439). Constant time without special instructions.
    ChaCha20Poly1305,
}

/// How much one key may do. RFC 9001, appendix B, has the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of 16 bytes, heads included, that one key seals.
    pub blocks: u64,
    /// Records that one key finds to be forged.
    pub forgeries: u64,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// The number of the suite in handshakes.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Aes128Gcm => 1,
            Self::Aes256Gcm => 2,
            Self::ChaCha20Poly1305 => 3,
        }
    }

    /// The length of a key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The limits of one key.
    ///
    /// AES is told from a random function by blocks that never repeat: after 2³⁵ blocks
    /// (512 GiB) with probability 2⁻⁵⁹. ChaCha20 is no permutation of blocks, so that its
    /// limit is that of the counter. Forgeries are limited so that all of them together
    /// succeed with probability 2⁻⁵⁷ at most.
    #[must_use]
    pub const fn limits(self) -> Limits {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => Limits { blocks: 1 << 35, forgeries: 1 << 46 },
            Self::ChaCha20Poly1305 => Limits { blocks: 1 << 60, forgeries: 1 << 30 },
        }
    }
}

/// A record is not what its sender sealed, or was sealed with another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tag does not fit: the record was changed, or sealed with another key")]
pub struct Forged;

/// The key material of one cipher. It is erased when it is dropped.
pub struct CipherKey([u8; 32]);

impl CipherKey {
    /// Takes over key material, of which a suite uses as much as its keys are long.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As many bytes as the suite takes.
    #[must_use]
    pub fn bytes(&self, suite: Suite) -> &[u8] {
        &self.0[..suite.key_len()]
    }
}

impl Drop for CipherKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// It is a secret: no debugging output has it.
impl fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CipherKey(…)")
    }
}

/// A keyed cipher of a provider.
///
/// Providers are interchangeable: what one seals every other opens. Records choose nonces
/// ([`Sealer`](crate::Sealer)); nobody else should.
///
/// Payloads have at most [`MOST_PAYLOAD`] bytes and heads [`MOST_HEAD`]; records see to it.
pub trait Aead: Sized {
    /// A cipher with this key.
    fn new(suite: Suite, key: &CipherKey) -> Self;

    /// Encrypts the payload in place; the tag authenticates it and the head.
    fn seal(&self, nonce: &[u8; NONCE_LEN], head: &[u8], payload: &mut [u8]) -> Tag;

    /// Encrypts from one place to another of the same length.
    fn seal_copy(&self, nonce: &[u8; NONCE_LEN], head: &[u8], from: &[u8], to: &mut [u8]) -> Tag {
        to.copy_from_slice(from);
        self.seal(nonce, head, to)
    }

    /// Decrypts the payload in place, if the tag fits. Otherwise the payload holds nothing
    /// of use.
    ///
    /// # Errors
    ///
    /// [`Forged`] if the tag does not fit.
    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        payload: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged>;

    /// Decrypts from one place to another of the same length. If the tag does not fit, the
    /// second place holds nothing of use.
    ///
    /// # Errors
    ///
    /// [`Forged`] if the tag does not fit.
    fn open_copy(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        from: &[u8],
        to: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        to.copy_from_slice(from);
        self.open(nonce, head, to, tag)
    }
}
