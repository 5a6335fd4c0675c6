//! The primitives that Noise is run with: X25519, SHA-256 and ChaCha20-Poly1305, all of them
//! from the crates that the rest of this one uses, and random bytes from a seed.

use alloc::boxed::Box;

use curve25519_dalek::montgomery::MontgomeryPoint;
use sha2::{Digest, Sha256};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::aead::{Aead, CipherKey, NONCE_LEN, Suite, TAG_LEN, Tag};
use crate::provider::RustCrypto;

/// Resolves what Noise asks for. The random bytes are those of an ephemeral key.
pub(super) struct Primitives {
    pub(super) random: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SingleUse(Some(self.random.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(X25519::default())),
            _ => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        match choice {
            HashChoice::SHA256 => Some(Box::new(Sha(Sha256::new()))),
            _ => None,
        }
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        match choice {
            CipherChoice::ChaChaPoly => Some(Box::new(ChaChaPoly(keyed(&[0; 32])))),
            _ => None,
        }
    }
}

/// Random bytes for one key: a second one would be the same, and is refused.
struct SingleUse(Option<Zeroizing<[u8; 32]>>);

impl Random for SingleUse {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let random = self.0.take().filter(|random| random.len() == dest.len()).ok_or(Error::Rng)?;
        dest.copy_from_slice(&*random);
        Ok(())
    }
}

/// The public key of a secret one.
pub(super) fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    MontgomeryPoint::mul_base_clamped(*secret).to_bytes()
}

#[derive(Default)]
struct X25519 {
    secret: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, privkey: &[u8]) {
        self.secret.copy_from_slice(privkey);
        self.public = public_key(&self.secret);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        rng.try_fill_bytes(&mut *self.secret)?;
        self.public = public_key(&self.secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let pubkey = pubkey.first_chunk().ok_or(Error::Dh)?;
        let mut common = MontgomeryPoint(*pubkey).mul_clamped(*self.secret).to_bytes();
        // A key of small order: then the result is known to everybody.
        let is_known = bool::from(common.ct_eq(&[0; 32]));
        out.get_mut(..32).ok_or(Error::Dh)?.copy_from_slice(&common);
        common.zeroize();
        if is_known { Err(Error::Dh) } else { Ok(()) }
    }
}

struct Sha(Sha256);

impl Hash for Sha {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Sha256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

struct ChaChaPoly(RustCrypto);

fn keyed(key: &[u8; 32]) -> RustCrypto {
    RustCrypto::new(Suite::ChaCha20Poly1305, &CipherKey::new(*key))
}

impl ChaChaPoly {
    fn nonce(number: u64) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[4..].copy_from_slice(&number.to_le_bytes());
        nonce
    }
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = keyed(key);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (payload, tag) = out.split_at_mut(plaintext.len());
        let sealed = self.0.seal_copy(&Self::nonce(nonce), authtext, plaintext, payload);
        tag[..TAG_LEN].copy_from_slice(&sealed.0);
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (payload, tag) = ciphertext.split_last_chunk().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..payload.len()).ok_or(Error::Decrypt)?;
        let opened = self.0.open_copy(&Self::nonce(nonce), authtext, payload, out, &Tag(*tag));
        opened.map(|()| payload.len()).map_err(|_| Error::Decrypt)
    }
}
