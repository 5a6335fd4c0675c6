//! The receiver's code, what is proven with it, and what is sealed with it.
//!
//! The code itself never crosses the wire. Both sides make a key of it, and each proves
//! that it has the key by a keyed hash over what both have just said: version, ports and
//! two fresh nonces. The sender proves first: whoever only knocks learns nothing that a
//! code could be guessed from at leisure. A second key of the same transcript seals every
//! transfer afterwards: who does not know the code can read on the way, but not change or
//! add anything unnoticed.
//!
//! A made code cannot be guessed. One that somebody chose may be, by who has heard a
//! greeting: such a code is stretched by Argon2id with a salt of the receiver, so that each
//! guess takes time and memory, and it is refused where it is too short for even that.

use std::fmt;

use anyhow::{Context, Result, anyhow};
use argon2::{Algorithm, Argon2, Params};
use blake3::Hash;

use super::wire::{FrameKind, Nonce, Salt, VERSION};

/// What makes a key of a code differ from whatever else is hashed with BLAKE3.
const CONTEXT: &str = "landfall file transfer, version 2: the key of a code";
/// The same for one that was stretched.
const STRETCHED: &str = "landfall file transfer, version 2: the key of a chosen code";
/// Sixteen symbols of five bits each: 80 bits.
const SYMBOLS: usize = 16;
/// No two of them look alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// A made code has more digits than this, and so a word is none.
const FEW_DIGITS: usize = 1;
/// A chosen code that seems to have fewer bits is refused.
const LEAST_BITS: f64 = 55.0;
/// What one guess at a chosen code takes: KiB of memory, and passes over it.
const STRETCH: (u32, u32) = (19 * 1024, 2);

/// A code, without what people add or change when they read it out: dashes, spaces, case.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Code(String);

impl Code {
    /// A fresh one.
    pub(crate) fn random() -> Result<Self> {
        loop {
            let mut bytes = [0; SYMBOLS];
            getrandom::fill(&mut bytes)
                .map_err(|error| anyhow!("{error}"))
                .context("the operating system gives no random bytes for a code")?;
            let symbol = |byte: u8| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]);
            let code = Self(bytes.into_iter().map(symbol).collect());
            // Of fifty there is one that has too few digits: a thirtieth of a bit.
            if code.looks_made() {
                return Ok(code);
            }
        }
    }

    /// One that was chosen, or read out.
    pub(crate) fn given(text: &str) -> Result<Self, String> {
        let is_filler = |character: char| character.is_whitespace() || "-_.".contains(character);
        let code: String =
            text.chars().filter(|c| !is_filler(*c)).flat_map(char::to_lowercase).collect();
        if code.is_empty() {
            return Err("the code is empty: use the one that `landfall receive` prints".into());
        }
        let code = Self(code);
        let bits = code.bits();
        if bits < LEAST_BITS {
            return Err(format!(
                "the code is too easy to guess (about {bits:.0} bits of {LEAST_BITS:.0} that it \
                 takes; repetitions and sequences hardly count): use four words or more, or 12 \
                 letters, or 11 letters and digits; best of all none: `landfall receive` makes one"
            ));
        }
        Ok(code)
    }

    /// Does it have the form of those that are made?
    fn looks_made(&self) -> bool {
        let is_symbol = |byte: u8| ALPHABET.contains(&byte);
        let digits = self.0.bytes().filter(u8::is_ascii_digit).count();
        self.0.len() == SYMBOLS && self.0.bytes().all(is_symbol) && digits > FEW_DIGITS
    }

    /// At most so hard is it to guess, if its characters have nothing to do with each other.
    fn bits(&self) -> f64 {
        let has = |kind: fn(char) -> bool| self.0.chars().any(kind);
        let symbols = [
            (has(|c| c.is_ascii_digit()), 10),
            (has(|c| c.is_ascii_lowercase()), 26),
            (has(|c| c.is_ascii_punctuation()), 32),
            (has(|c| !c.is_ascii()), 100),
        ];
        let symbols: u32 = symbols.iter().filter(|(has, _)| *has).map(|(_, many)| many).sum();
        let each = f64::from(symbols.max(2)).log2();
        let codes: Vec<i64> = self.0.chars().map(|c| i64::from(u32::from(c))).collect();
        // What goes on as the two before did: 111, abc, 987; or repeats what was: abab.
        let goes_on = |at: usize| {
            at >= 2 && {
                let step = codes[at] - codes[at - 1];
                step.abs() <= 1 && step == codes[at - 1] - codes[at - 2]
            }
        };
        let repeats = |at: usize| {
            (1..=at / 2).any(|len| {
                let (before, now) = (at + 1 - 2 * len, at + 1 - len);
                len >= 2 && codes[before..now] == codes[now..=at]
            })
        };
        let counts = (0..codes.len()).filter(|at| !goes_on(*at) && !repeats(*at)).count();
        each * counts as f64
    }

    /// The key, which takes a moment for a code that was chosen.
    pub(crate) fn key(&self, salt: &Salt) -> Result<CodeKey> {
        if self.looks_made() {
            return Ok(CodeKey(blake3::derive_key(CONTEXT, self.0.as_bytes())));
        }
        let (memory, passes) = STRETCH;
        let mut stretched = [0; 32];
        Params::new(memory, passes, 1, Some(stretched.len()))
            .map(|params| Argon2::new(Algorithm::Argon2id, argon2::Version::V0x13, params))
            .and_then(|argon| argon.hash_password_into(self.0.as_bytes(), salt, &mut stretched))
            .map_err(|error| anyhow!("cannot make a key of the code: {error}"))?;
        Ok(CodeKey(blake3::derive_key(STRETCHED, &stretched)))
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

impl Side {
    /// The one that it speaks to.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
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

    /// What seals everything that is sent from now on.
    pub(crate) fn seals(&self, transcript: &Transcript) -> Seals {
        Seals(*self.over(b"seals after that ", transcript).as_bytes())
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
    /// Appends the seal to the `number`th transfer of this side: all of a bundle or state is
    /// sealed, and of a piece its hash.
    pub(crate) fn seal(&self, side: Side, kind: FrameKind, number: u64, content: &mut Vec<u8>) {
        let seal = self.of(side, kind, number, content);
        content.extend_from_slice(seal.as_bytes());
    }

    /// What was sealed without its seal, if that is right.
    pub(crate) fn open<'a>(
        &self,
        side: Side,
        kind: FrameKind,
        number: u64,
        sealed: &'a [u8],
    ) -> Option<&'a [u8]> {
        let (content, seal) = sealed.split_last_chunk::<SEAL>()?;
        // `Hash` compares in constant time.
        (self.of(side, kind, number, content) == Hash::from_bytes(*seal)).then_some(content)
    }

    /// The seal itself.
    pub(crate) fn of(&self, side: Side, kind: FrameKind, number: u64, content: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[u8::from(side == Side::Sender), kind as u8]);
        hasher.update(&number.to_le_bytes()).update(content).finalize()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRANSCRIPT: Transcript =
        Transcript { service: 1, udp_port: 2, sender: [3; 32], receiver: [4; 32] };

    const SALT: Salt = [6; 16];

    fn key(code: &str) -> CodeKey {
        Code::given(code).unwrap().key(&SALT).unwrap()
    }

    #[test]
    fn a_fresh_code_is_long_and_reads_back_however_it_is_typed() {
        let (one, two) = (Code::random().unwrap(), Code::random().unwrap());
        assert!(one != two && one.looks_made());
        let text = one.to_string();
        assert_eq!(text.len(), SYMBOLS + 3);
        for typed in [text.clone(), text.to_uppercase(), text.replace('-', ""), format!(" {text}")]
        {
            assert!(Code::given(&typed).unwrap() == one, "{typed}");
        }
        assert!(Code::given(" - ").is_err());
        assert!(!format!("{one:?}").contains(&text));
    }

    #[test]
    fn codes_that_are_easily_guessed_are_refused_with_what_would_do() {
        let weak = [
            "1234",
            "sesame",
            "password",
            "password12345",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "abcdefghijklmnopqrstuvwxyz",
            "9876543210987654321098765",
            "abababababababababababab",
            "sesame-sesame-sesame",
            "0815-4711-0815",
        ];
        for code in weak {
            let why = Code::given(code).unwrap_err();
            assert!(
                why.contains("too easy to guess") && why.contains("12 letters"),
                "{code}: {why}"
            );
            assert!(!why.contains(code), "it is a secret");
        }
        for code in
            ["correct horse battery staple", "3vq7-kw0z-x9j", "grün wie Ölbäume", "f7?k!9_x+2#q"]
        {
            assert!(Code::given(code).is_ok(), "{code}");
        }
    }

    #[test]
    fn made_codes_are_always_taken() {
        for _ in 0..2000 {
            let code = Code::random().unwrap();
            assert!(Code::given(&code.to_string()).is_ok(), "{code}");
        }
    }

    /// Who has heard one greeting cannot use a table of another receiver.
    #[test]
    fn a_chosen_code_is_stretched_with_the_receivers_salt() {
        let chosen = Code::given("correct horse battery staple").unwrap();
        assert!(!chosen.looks_made());
        let proof = |key: CodeKey| key.proof(Side::Sender, &TRANSCRIPT);
        assert_ne!(proof(chosen.key(&SALT).unwrap()), proof(chosen.key(&[7; 16]).unwrap()));
        let quick = CodeKey(blake3::derive_key(CONTEXT, chosen.0.as_bytes()));
        assert_ne!(proof(chosen.key(&SALT).unwrap()), proof(quick));
    }

    #[test]
    fn a_proof_is_of_one_side_one_code_and_one_transcript() {
        let right = key("open sesame and more");
        let proof = right.proof(Side::Sender, &TRANSCRIPT);
        assert_eq!(proof, key("OPEN-SESAME-AND.MORE").proof(Side::Sender, &TRANSCRIPT));
        let others = [
            Transcript { service: 9, ..TRANSCRIPT },
            Transcript { udp_port: 9, ..TRANSCRIPT },
            Transcript { sender: [9; 32], ..TRANSCRIPT },
            Transcript { receiver: [9; 32], ..TRANSCRIPT },
        ];
        for other in others {
            assert_ne!(proof, right.proof(Side::Sender, &other), "{other:?}");
        }
        assert_ne!(proof, right.proof(Side::Receiver, &TRANSCRIPT));
        let other = key("open sesame and more 2");
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
            let seals = CodeKey([5; 32]).seals(&TRANSCRIPT);
            let mut sealed = bundle.clone();
            let kind = FrameKind::Bundle;
            seals.seal(Side::Sender, kind, number, &mut sealed);
            let open = |side, kind, number, sealed| seals.open(side, kind, number, sealed);
            prop_assert_eq!(open(Side::Sender, kind, number, &sealed), Some(&bundle[..]));
            prop_assert_eq!(open(Side::Receiver, kind, number, &sealed), None);
            prop_assert_eq!(open(Side::Sender, FrameKind::Piece, number, &sealed), None);
            prop_assert_eq!(open(Side::Sender, kind, number ^ 1, &sealed), None);
            prop_assert_eq!(open(Side::Sender, kind, number, &sealed[1..]), None);
            let at = at.index(sealed.len());
            sealed[at] ^= flip;
            prop_assert_eq!(seals.open(Side::Sender, kind, number, &sealed), None);
        }
    }
}
