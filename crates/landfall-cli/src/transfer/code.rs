//! The receiver's code, what is proven with it, and what is sealed with it.
//!
//! The code itself never crosses the wire. Both sides make a key of it, and each proves
//! that it has the key by a keyed hash over what both have just said: version, ports and
//! two fresh nonces. The sender proves first: whoever only knocks learns nothing that a
//! code could be guessed from at leisure. A second key of the same transcript seals every
//! bundle of messages afterwards, and with them the hashes of all contents: who does not
//! know the code can read on the way, but not change or add anything unnoticed.

use std::fmt;

use anyhow::{Context, Result};
use blake3::Hash;

use super::wire::{Nonce, VERSION};

/// What makes a key of a code differ from whatever else is hashed with BLAKE3.
const CONTEXT: &str = "landfall file transfer, version 1: the key of a code";
/// Sixteen symbols of five bits each: 80 bits.
const SYMBOLS: usize = 16;
/// No two of them look alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// With fewer symbols than this, guessing is worth somebody's while.
const SHORT: usize = 12;

/// A code, without what people add or change when they read it out: dashes, spaces, case.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Code(String);

impl Code {
    /// A fresh one.
    pub(crate) fn random() -> Result<Self> {
        let mut bytes = [0; SYMBOLS];
        getrandom::fill(&mut bytes)
            .map_err(|error| anyhow::anyhow!("{error}"))
            .context("the operating system gives no random bytes for a code")?;
        let symbol = |byte: u8| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]);
        Ok(Self(bytes.into_iter().map(symbol).collect()))
    }

    /// One that was chosen, or read out.
    pub(crate) fn given(text: &str) -> Result<Self, String> {
        let is_filler = |character: char| character.is_whitespace() || "-_.".contains(character);
        let code: String =
            text.chars().filter(|c| !is_filler(*c)).flat_map(char::to_lowercase).collect();
        if code.is_empty() {
            return Err("the code is empty: use the one that `landfall receive` prints".into());
        }
        Ok(Self(code))
    }

    /// Could it be guessed by somebody who listened?
    pub(crate) fn is_short(&self) -> bool {
        self.0.chars().count() < SHORT
    }

    pub(crate) fn key(&self) -> CodeKey {
        CodeKey(blake3::derive_key(CONTEXT, self.0.as_bytes()))
    }
}

/// For people: in groups of four.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, symbol) in self.0.chars().enumerate() {
            if nth > 0 && nth % 4 == 0 {
                f.write_str("-")?;
            }
            write!(f, "{symbol}")?;
        }
        Ok(())
    }
}

/// It is a secret: no debugging output has it.
impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(…)")
    }
}

/// What a code is turned into.
#[derive(Clone)]
pub(crate) struct CodeKey([u8; 32]);

/// Which side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

/// What both sides said and know before they prove that they know the code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    /// The port of STP.
    pub(crate) service: u16,
    /// The receiver's port of UDP.
    pub(crate) udp_port: u16,
    pub(crate) sender: Nonce,
    pub(crate) receiver: Nonce,
}

impl CodeKey {
    /// The proof of a side.
    pub(crate) fn proof(&self, side: Side, transcript: &Transcript) -> Hash {
        let label = match side {
            Side::Sender => b"the sender knows ",
            Side::Receiver => b"the receiver too ",
        };
        self.over(label, transcript)
    }

    /// What seals bundles of messages from now on.
    pub(crate) fn seals(&self, transcript: &Transcript) -> Seals {
        Seals(*self.over(b"seals of bundles ", transcript).as_bytes())
    }

    fn over(&self, label: &[u8; 17], transcript: &Transcript) -> Hash {
        let Transcript { service, udp_port, sender, receiver } = transcript;
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(label);
        for number in [VERSION, *service, *udp_port] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(sender).update(receiver).finalize()
    }
}

/// Seals what a side says, and checks the other's seals.
#[derive(Clone)]
pub(crate) struct Seals([u8; 32]);

/// The length of a seal.
pub(crate) const SEAL: usize = 32;

impl Seals {
    /// Appends the seal to a bundle: the `number`th transfer of this side.
    pub(crate) fn seal(&self, side: Side, number: u64, bundle: &mut Vec<u8>) {
        let seal = self.of(side, number, bundle);
        bundle.extend_from_slice(seal.as_bytes());
    }

    /// The bundle without its seal, if that is right.
    pub(crate) fn open<'a>(&self, side: Side, number: u64, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (bundle, seal) = sealed.split_last_chunk::<SEAL>()?;
        // `Hash` compares in constant time.
        (self.of(side, number, bundle) == Hash::from_bytes(*seal)).then_some(bundle)
    }

    fn of(&self, side: Side, number: u64, bundle: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[u8::from(side == Side::Sender)]);
        hasher.update(&number.to_le_bytes()).update(bundle).finalize()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRANSCRIPT: Transcript =
        Transcript { service: 1, udp_port: 2, sender: [3; 32], receiver: [4; 32] };

    #[test]
    fn a_fresh_code_is_long_and_reads_back_however_it_is_typed() {
        let (one, two) = (Code::random().unwrap(), Code::random().unwrap());
        assert!(one != two && !one.is_short());
        let text = one.to_string();
        assert_eq!(text.len(), SYMBOLS + 3);
        for typed in [text.clone(), text.to_uppercase(), text.replace('-', ""), format!(" {text}")]
        {
            assert!(Code::given(&typed).unwrap() == one, "{typed}");
        }
        assert!(Code::given(" - ").is_err());
        assert!(Code::given("1234").unwrap().is_short());
        assert!(!format!("{one:?}").contains(&text));
    }

    #[test]
    fn a_proof_is_of_one_side_one_code_and_one_transcript() {
        let key = Code::given("sesame").unwrap().key();
        let proof = key.proof(Side::Sender, &TRANSCRIPT);
        assert_eq!(proof, Code::given("SES-AME").unwrap().key().proof(Side::Sender, &TRANSCRIPT));
        let others = [
            Transcript { service: 9, ..TRANSCRIPT },
            Transcript { udp_port: 9, ..TRANSCRIPT },
            Transcript { sender: [9; 32], ..TRANSCRIPT },
            Transcript { receiver: [9; 32], ..TRANSCRIPT },
        ];
        for other in others {
            assert_ne!(proof, key.proof(Side::Sender, &other), "{other:?}");
        }
        assert_ne!(proof, key.proof(Side::Receiver, &TRANSCRIPT));
        let other = Code::given("sesame2").unwrap().key();
        assert_ne!(proof, other.proof(Side::Sender, &TRANSCRIPT));
    }

    proptest! {
        #[test]
        fn no_changed_bundle_passes_for_sealed(
            bundle in prop::collection::vec(any::<u8>(), 0..200),
            number in any::<u64>(),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let seals = Code::given("sesame").unwrap().key().seals(&TRANSCRIPT);
            let mut sealed = bundle.clone();
            seals.seal(Side::Sender, number, &mut sealed);
            prop_assert_eq!(seals.open(Side::Sender, number, &sealed), Some(&bundle[..]));
            prop_assert_eq!(seals.open(Side::Receiver, number, &sealed), None);
            prop_assert_eq!(seals.open(Side::Sender, number ^ 1, &sealed), None);
            prop_assert_eq!(seals.open(Side::Sender, number, &sealed[1..]), None);
            let at = at.index(sealed.len());
            sealed[at] ^= flip;
            prop_assert_eq!(seals.open(Side::Sender, number, &sealed), None);
        }
    }
}
