//! The ciphers of RustCrypto: Rust alone, no operating system.

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use alloc::boxed::Box;
use chacha20poly1305::ChaCha20Poly1305;
use core::fmt;

use crate::aead::{Aead, CipherKey, Forged, NONCE_LEN, Suite, TAG_LEN, Tag};

/// A cipher of the crates `aes-gcm` and `chacha20poly1305`.
pub struct RustCrypto(Cipher);

/// Boxed: expanded keys have hundreds of bytes.
enum Cipher {
    Aes128Gcm(Box<Aes128Gcm>),
    Aes256Gcm(Box<Aes256Gcm>),
    ChaCha20Poly1305(Box<ChaCha20Poly1305>),
}

impl fmt::Debug for RustCrypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RustCrypto(…)")
    }
}

/// The right length of a key is the suite's.
const KEY_FITS: &str = "a key has the length that its suite says";
/// Records bound both lengths far below what a cipher takes.
const LENGTH_FITS: &str = "lengths are bounded, and equal where two are given";

impl Aead for RustCrypto {
    fn new(suite: Suite, key: &CipherKey) -> Self {
        fn keyed<C: KeyInit>(suite: Suite, key: &CipherKey) -> Box<C> {
            Box::new(C::new_from_slice(key.bytes(suite)).expect(KEY_FITS))
        }
        Self(match suite {
            Suite::Aes128Gcm => Cipher::Aes128Gcm(keyed(suite, key)),
            Suite::Aes256Gcm => Cipher::Aes256Gcm(keyed(suite, key)),
            Suite::ChaCha20Poly1305 => Cipher::ChaCha20Poly1305(keyed(suite, key)),
        })
    }

    fn seal(&self, nonce: &[u8; NONCE_LEN], head: &[u8], payload: &mut [u8]) -> Tag {
        self.encrypt(nonce, head, payload.into())
    }

    fn seal_copy(&self, nonce: &[u8; NONCE_LEN], head: &[u8], from: &[u8], to: &mut [u8]) -> Tag {
        self.encrypt(nonce, head, InOutBuf::new(from, to).expect(LENGTH_FITS))
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        payload: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        self.decrypt(nonce, head, payload.into(), tag)
    }

    fn open_copy(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        from: &[u8],
        to: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        self.decrypt(nonce, head, InOutBuf::new(from, to).expect(LENGTH_FITS), tag)
    }
}

impl RustCrypto {
    fn encrypt(&self, nonce: &[u8; NONCE_LEN], head: &[u8], payload: InOutBuf<'_, '_, u8>) -> Tag {
        let nonce = nonce.into();
        let tag: [u8; TAG_LEN] = match &self.0 {
            Cipher::Aes128Gcm(cipher) => cipher.encrypt_inout_detached(nonce, head, payload),
            Cipher::Aes256Gcm(cipher) => cipher.encrypt_inout_detached(nonce, head, payload),
            Cipher::ChaCha20Poly1305(cipher) => cipher.encrypt_inout_detached(nonce, head, payload),
        }
        .expect(LENGTH_FITS)
        .into();
        Tag(tag)
    }

    fn decrypt(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        payload: InOutBuf<'_, '_, u8>,
        tag: &Tag,
    ) -> Result<(), Forged> {
        let (nonce, tag) = (nonce.into(), (&tag.0).into());
        match &self.0 {
            Cipher::Aes128Gcm(cipher) => cipher.decrypt_inout_detached(nonce, head, payload, tag),
            Cipher::Aes256Gcm(cipher) => cipher.decrypt_inout_detached(nonce, head, payload, tag),
            Cipher::ChaCha20Poly1305(cipher) => {
                cipher.decrypt_inout_detached(nonce, head, payload, tag)
            }
        }
        .map_err(|_| Forged)
    }
}
