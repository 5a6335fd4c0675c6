//! CPace: a key exchange that both ends tie to a code (draft-irtf-cfrg-cpace,
//! CPACE-RISTR255-SHA512, initiator and responder).
//!
//! Each end raises a secret power of a group element that it makes of the code. Who listens
//! sees two random group elements; who takes part learns whether one code is right, and only
//! by being told.

use alloc::vec;
use alloc::vec::Vec;

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

const DSI: &[u8] = b"CPaceRistretto255";
const DSI_ISK: &[u8] = b"CPaceRistretto255_ISK";
/// The input block of SHA-512.
const BLOCK: usize = 128;

pub(super) type Share = [u8; 32];
pub(super) type Isk = Zeroizing<[u8; 64]>;

/// What both ends say in the open, beside their shares.
#[derive(Clone, Copy)]
pub(super) struct Public<'a> {
    /// What both ends know of the connection (CI).
    pub(super) channel: &'a [u8],
    /// The number of this try.
    pub(super) session: &'a [u8],
}

/// One end's part. Used once.
pub(super) struct Exponent {
    scalar: Zeroizing<Scalar>,
    pub(super) share: Share,
}

impl Exponent {
    pub(super) fn new(code: &[u8], public: Public<'_>, random: &[u8; 64]) -> Self {
        Self::with(Scalar::from_bytes_mod_order_wide(random), code, public)
    }

    fn with(scalar: Scalar, code: &[u8], public: Public<'_>) -> Self {
        let share = (generator(code, public) * scalar).compress().to_bytes();
        Self { scalar: Zeroizing::new(scalar), share }
    }

    /// The common key, if the other share is a group element that is good for one.
    pub(super) fn agree(
        self,
        other: &Share,
        public: Public<'_>,
        transcript: &Transcript<'_>,
    ) -> Option<Isk> {
        let other = CompressedRistretto(*other).decompress()?;
        let common = other * *self.scalar;
        if common.is_identity() {
            return None;
        }
        let common = Zeroizing::new(common.compress().to_bytes());
        let mut hash = Sha512::new();
        for part in [DSI_ISK, public.session, &*common] {
            hash.update(prefixed(part));
        }
        hash.update(transcript.to_bytes());
        Some(Zeroizing::new(hash.finalize().into()))
    }
}

/// The shares with what was said beside them, the initiator's first.
#[derive(Clone, Copy)]
pub(super) struct Transcript<'a> {
    pub(super) initiator: (&'a Share, &'a [u8]),
    pub(super) responder: (&'a Share, &'a [u8]),
}

impl Transcript<'_> {
    fn to_bytes(self) -> Vec<u8> {
        [of_side(self.initiator), of_side(self.responder)].concat()
    }
}

fn of_side((share, data): (&Share, &[u8])) -> Vec<u8> {
    [prefixed(share), prefixed(data)].concat()
}

/// The proof of a side that it has the key: over what it has said.
pub(super) fn proof(isk: &Isk, session: &[u8], side: (&Share, &[u8])) -> [u8; 32] {
    let mut key = Sha512::new_with_prefix(b"CPaceMac");
    key.update(session);
    key.update(&isk[..]);
    let key = Zeroizing::new(<[u8; 64]>::from(key.finalize()));
    let mut mac = Hmac::<Sha512>::new_from_slice(&*key).expect("any length is a key");
    mac.update(&of_side(side));
    let mut proof = [0; 32];
    proof.copy_from_slice(&mac.finalize().into_bytes()[..32]);
    proof
}

fn generator(code: &[u8], public: Public<'_>) -> RistrettoPoint {
    let hash = Sha512::digest(&*generator_string(code, public));
    RistrettoPoint::from_uniform_bytes(&Zeroizing::new(hash.into()))
}

/// The code fills a whole block of the hash with its padding, so that how long hashing takes
/// does not depend on what follows.
fn generator_string(code: &[u8], public: Public<'_>) -> Zeroizing<Vec<u8>> {
    let (dsi, code) = (prefixed(DSI), Zeroizing::new(prefixed(code)));
    let padding = (BLOCK - 1).saturating_sub(code.len() + dsi.len());
    let (padding, channel) = (prefixed(&vec![0; padding]), prefixed(public.channel));
    Zeroizing::new([&dsi[..], &code, &padding, &channel, &prefixed(public.session)].concat())
}

/// Bytes behind their length in LEB128.
fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    let mut length = bytes.len();
    while length > 127 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let mut bytes = [0; N];
        assert_eq!(text.len(), 2 * N);
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        }
        bytes
    }

    /// The vectors of the draft, appendix "CPace using group ristretto255 and hash SHA-512".
    #[test]
    fn cpace_gives_what_the_draft_says() {
        let session: [u8; 16] = hex("7e4b4791d6a8ef019b936c79fb7f2c57");
        let public = Public { channel: b"\x0bA_initiator\x0bB_responder", session: &session };
        let code = b"Password";
        assert_eq!(generator_string(code, public).len(), 170);
        assert_eq!(
            generator(code, public).compress().to_bytes(),
            hex("222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56")
        );
        let scalar = |text| Scalar::from_bytes_mod_order(hex(text));
        let a = scalar("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08");
        let b = scalar("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d");
        let (a, b) = (Exponent::with(a, code, public), Exponent::with(b, code, public));
        let shares = (a.share, b.share);
        assert_eq!(
            shares.0,
            hex("d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157")
        );
        assert_eq!(
            shares.1,
            hex("3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258")
        );
        let transcript =
            Transcript { initiator: (&shares.0, b"ADa"), responder: (&shares.1, b"ADb") };
        let isk: [u8; 64] = hex("b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd\
             2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447");
        assert_eq!(*a.agree(&shares.1, public, &transcript).unwrap(), isk);
        assert_eq!(*b.agree(&shares.0, public, &transcript).unwrap(), isk);
    }

    /// Bytes that are no group element, and the neutral element.
    #[test]
    fn shares_that_are_good_for_no_key_are_refused() {
        let public = Public { channel: b"", session: b"" };
        for other in [[0; 32], [0xff; 32], hex("01".repeat(32).as_str())] {
            let exponent = Exponent::new(b"code", public, &[9; 64]);
            let own = exponent.share;
            let transcript = Transcript { initiator: (&own, b""), responder: (&other, b"") };
            assert!(exponent.agree(&other, public, &transcript).is_none(), "{other:?}");
        }
    }

    #[test]
    fn lengths_are_written_as_leb128() {
        assert_eq!(prefixed(b""), [0]);
        assert_eq!(prefixed(b"1234"), b"\x041234");
        assert_eq!(prefixed(&[7; 127])[..2], [127, 7]);
        assert_eq!(prefixed(&[7; 128])[..3], [0x80, 1, 7]);
        assert_eq!(prefixed(&[7; 300])[..3], [0xac, 2, 7]);
    }
}
