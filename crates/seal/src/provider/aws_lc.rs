//! The ciphers of AWS-LC: C and assembly for servers.

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};

use crate::aead::{Aead, CipherKey, Forged, NONCE_LEN, Suite, TAG_LEN, Tag};

/// A cipher of the crate `aws-lc-rs`.
pub struct AwsLc(LessSafeKey);

impl fmt::Debug for AwsLc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsLc(…)")
    }
}

/// Records bound both lengths far below what a cipher takes.
const LENGTH_FITS: &str = "lengths are bounded, and equal where two are given";

impl Aead for AwsLc {
    fn new(suite: Suite, key: &CipherKey) -> Self {
        let algorithm = match suite {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key.bytes(suite));
        Self(LessSafeKey::new(key.expect("a key has the length that its suite says")))
    }

    fn seal(&self, nonce: &[u8; NONCE_LEN], head: &[u8], payload: &mut [u8]) -> Tag {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(head), payload);
        let mut tag = Tag::default();
        tag.0.copy_from_slice(sealed.expect(LENGTH_FITS).as_ref());
        tag
    }

    fn seal_copy(&self, nonce: &[u8; NONCE_LEN], head: &[u8], from: &[u8], to: &mut [u8]) -> Tag {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut tag = [0; TAG_LEN];
        let aad = Aad::from(head);
        let sealed = self.0.seal_out_of_place_scatter(nonce, aad, from, to, &[], &mut tag);
        sealed.expect(LENGTH_FITS);
        Tag(tag)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        payload: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::from(head), &tag.0, payload);
        opened.map(drop).map_err(|_| Forged)
    }

    fn open_copy(
        &self,
        nonce: &[u8; NONCE_LEN],
        head: &[u8],
        from: &[u8],
        to: &mut [u8],
        tag: &Tag,
    ) -> Result<(), Forged> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0.open_separate_gather(nonce, Aad::from(head), from, &tag.0, to).map_err(|_| Forged)
    }
}
