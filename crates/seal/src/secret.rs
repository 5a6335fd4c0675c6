//! Secrets, and what is derived of them.

use core::fmt;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroize;

/// Thirty-two secret bytes. They are erased when they are dropped, are not copied and are
/// never printed.
pub struct Secret([u8; 32]);

impl Secret {
    /// Takes over secret bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret itself, for a key of something else.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A secret that says nothing about this one, nor about those with another label or
    /// context.
    #[must_use]
    pub fn derive(&self, label: &str, context: &[u8]) -> Self {
        let mut derived = Self([0; 32]);
        self.expand(label, context, &mut derived.0);
        derived
    }

    /// That of the next generation of keys. There is no way back.
    pub(crate) fn next_generation(&self) -> Self {
        self.derive("update", &[])
    }

    /// Expands to as many bytes as are asked for: HKDF-Expand with SHA-256, over the length,
    /// the label and the context, each behind its own length.
    pub(crate) fn expand(&self, label: &str, context: &[u8], out: &mut [u8]) {
        let length = |len: usize| (len as u64).to_be_bytes();
        let hkdf = Hkdf::<Sha256>::from_prk(&self.0).expect("32 bytes are a hash of SHA-256");
        let info: [&[u8]; 6] = [
            b"landfall ",
            &length(out.len()),
            &length(label.len()),
            label.as_bytes(),
            &length(context.len()),
            context,
        ];
        hkdf.expand_multi_info(&info, out).expect("what is derived is short");
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// It is a secret: no debugging output has it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Fresh random bytes for one handshake, from the operating system or another source that
/// nobody can predict.
///
/// A handshake takes its seed by value and is a function of it: who gives two handshakes the
/// same bytes lets others compute their keys.
#[derive(Debug)]
pub struct Seed(Secret);

impl Seed {
    /// Takes over random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(Secret::new(bytes))
    }

    /// Random bytes by this label.
    pub(crate) fn fill(&self, label: &str, out: &mut [u8]) {
        self.0.expand(label, b"seed", out);
    }
}
