//! The receiver's code.
//!
//! The code itself never crosses the wire, nor anything that it could be guessed from: the
//! greeting is a key exchange that is tied to it (`greet`). Each guess at a code is a try at
//! the receiver, which counts and slows them down (`allowance`); who records a greeting can
//! try none. So a code is not stretched: that would cost honest people time, and slow down
//! nobody who has to ask the receiver for each guess.

use std::fmt;

use anyhow::{Context, Result, anyhow};

/// Sixteen symbols of five bits each: 80 bits.
const SYMBOLS: usize = 16;
/// No two of them look alike.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// A chosen code that seems to have fewer bits is refused. What it seems to have is the most
/// that it can have: people choose worse.
const LEAST_BITS: f64 = 55.0;

/// A code, without what people add or change when they read it out: dashes, spaces, case.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Code(String);

impl Code {
    /// A fresh one.
    pub(crate) fn random() -> Result<Self> {
        let mut bytes = [0; SYMBOLS];
        getrandom::fill(&mut bytes)
            .map_err(|error| anyhow!("{error}"))
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

    /// What both sides have to have the same of.
    pub(crate) const fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_code_is_long_and_reads_back_however_it_is_typed() {
        let (one, two) = (Code::random().unwrap(), Code::random().unwrap());
        assert!(one != two);
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
}
