//! [`Chap`]: both ends prove that they know a secret, without saying it (RFC 7143, section 12.1.3;
//! RFC 1994).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use super::keys::say;

/// The algorithm that every initiator has: MD5.
const MD5: &str = "5";
/// The longest challenge of an initiator, in bytes (RFC 7143).
const LONGEST_CHALLENGE: usize = 1024;

/// A name, and a secret that proves it.
///
/// ```
/// use landfall_scsi::iscsi::Account;
///
/// let account = Account::new("backup", "twelve bytes or more").unwrap();
/// assert_eq!(format!("{account:?}"), "Account(\"backup\")");
/// assert!(Account::new("backup", "too short").is_none());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    name: String,
    secret: String,
}

impl Account {
    /// The fewest bytes of a secret: 96 bits, as RFC 7143 has it for networks without IPsec. Anyone
    /// who hears a login can try guesses of it.
    pub const SHORTEST_SECRET: usize = 12;

    /// None: the name or the secret is empty, too short or too long.
    #[must_use]
    pub fn new(name: &str, secret: &str) -> Option<Self> {
        let lengths = (1..=255).contains(&name.len())
            && (Self::SHORTEST_SECRET..=255).contains(&secret.len());
        lengths.then(|| Self { name: name.to_owned(), secret: secret.to_owned() })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Have both the same secret?
    #[must_use]
    pub fn has_secret_of(&self, other: &Self) -> bool {
        self.secret.as_bytes().ct_eq(other.secret.as_bytes()).into()
    }

    fn response(&self, id: u8, challenge: &[u8]) -> [u8; 16] {
        let sum = Md5::new().chain_update([id]).chain_update(&self.secret);
        sum.chain_update(challenge).finalize().into()
    }
}

/// Secrets are in no log.
impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.name).finish()
    }
}

/// What an initiator has to prove, for one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// Who may come in.
    pub initiator: Account,
    /// What this end proves itself by, to those that ask for it. Its secret has to be another one:
    /// else an initiator could have this end answer its own question.
    pub target: Option<Account>,
    /// Random, and never used again.
    pub challenge: [u8; 16],
    /// Random as well.
    pub id: u8,
}

/// How far an initiator has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Proof {
    #[default]
    Nothing,
    /// CHAP was agreed on.
    Method,
    /// It has the challenge.
    Challenged,
    /// It knows the secret.
    Done,
}

impl Proof {
    /// Takes the keys of a message, and answers them. False: the initiator does not prove itself.
    pub(super) fn handle(&mut self, chap: &Chap, pairs: &[(&str, &str)], out: &mut String) -> bool {
        let find = |wanted| pairs.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
        let lists = |value: &str, one: &str| value.split(',').any(|listed| listed == one);
        if let Some(methods) = find("AuthMethod") {
            if *self != Self::Nothing || !lists(methods, "CHAP") {
                return false;
            }
            *self = Self::Method;
            say(out, "AuthMethod", "CHAP");
        }
        if let Some(algorithms) = find("CHAP_A") {
            if *self != Self::Method || !lists(algorithms, MD5) {
                return false;
            }
            *self = Self::Challenged;
            say(out, "CHAP_A", MD5);
            say(out, "CHAP_I", &alloc::format!("{}", chap.id));
            say(out, "CHAP_C", &hex(&chap.challenge));
        }
        let (name, response) = (find("CHAP_N"), find("CHAP_R"));
        if name.is_none() && response.is_none() {
            return true;
        }
        let (Self::Challenged, Some(name), Some(response)) = (*self, name, response) else {
            return false;
        };
        let expected = chap.initiator.response(chap.id, &chap.challenge);
        let is_right = binary(response).is_some_and(|given| given.ct_eq(&expected).into());
        if !is_right || name != chap.initiator.name {
            return false;
        }
        *self = Self::Done;
        match (find("CHAP_I"), find("CHAP_C")) {
            (None, None) => true,
            (Some(id), Some(challenge)) => answer(chap, id, challenge, out),
            _ => false,
        }
    }
}

/// Proves this end to the initiator. False: it cannot, or the question makes no sense.
fn answer(chap: &Chap, id: &str, challenge: &str, out: &mut String) -> bool {
    let (Some(own), Ok(id), Some(challenge)) = (&chap.target, id.parse::<u8>(), binary(challenge))
    else {
        return false;
    };
    // Its own question back would let it answer with what it hears here.
    if challenge.is_empty() || challenge == chap.challenge {
        return false;
    }
    say(out, "CHAP_N", &own.name);
    say(out, "CHAP_R", &hex(&own.response(id, &challenge)));
    true
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        text.push_str(&alloc::format!("{byte:02x}"));
    }
    text
}

/// Bytes as text has them: hexadecimal behind `0x`, base 64 behind `0b`.
fn binary(text: &str) -> Option<Vec<u8>> {
    let (kind, digits) = text.split_at_checked(2)?;
    let bits = match kind {
        "0x" | "0X" => 4,
        "0b" | "0B" => 6,
        _ => return None,
    };
    let digits = if bits == 6 { digits.trim_end_matches('=') } else { digits };
    if digits.len() * bits / 8 > LONGEST_CHALLENGE {
        return None;
    }
    let (mut bytes, mut held, mut count) = (Vec::new(), 0_u32, 0);
    if bits == 4 && digits.len() % 2 == 1 {
        // The first digit stands alone.
        count = 4;
    }
    for digit in digits.bytes() {
        let value = match (digit, bits) {
            (b'0'..=b'9', 4) => digit - b'0',
            (b'a'..=b'f', 4) => digit - b'a' + 10,
            (b'A'..=b'F', 4) => digit - b'A' + 10,
            (b'A'..=b'Z', _) => digit - b'A',
            (b'a'..=b'z', 6) => digit - b'a' + 26,
            (b'0'..=b'9', _) => digit - b'0' + 52,
            (b'+', 6) => 62,
            (b'/', 6) => 63,
            _ => return None,
        };
        if u32::from(value) >> bits != 0 {
            return None;
        }
        held = held << bits | u32::from(value);
        count += bits;
        if count >= 8 {
            count -= 8;
            bytes.push((held >> count) as u8);
            held &= (1 << count) - 1;
        }
    }
    // What is left over are filling bits.
    (held == 0 && count < bits).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_values_are_read_in_both_forms() {
        assert_eq!(binary("0x00ffA1").as_deref(), Some(&[0, 255, 0xa1][..]));
        assert_eq!(binary("0xfA1").as_deref(), Some(&[0x0f, 0xa1][..]));
        assert_eq!(binary("0bAP+h").as_deref(), Some(&[0, 255, 0xa1][..]));
        assert_eq!(binary("0bAP8=").as_deref(), Some(&[0, 255][..]));
        assert_eq!(binary("0x").as_deref(), Some(&[][..]));
        for wrong in ["", "0", "12", "0xg0", "0bA", "0b*A==", "0x\u{e9}0"] {
            assert_eq!(binary(wrong), None, "{wrong}");
        }
        let long = |digits| alloc::format!("0x{}", "0".repeat(digits));
        assert_eq!(binary(&long(2048)).map(|bytes| bytes.len()), Some(1024));
        assert_eq!(binary(&long(2050)), None);
    }

    /// Computed by `printf '\x27secretsecretsecret\x01\x02' | md5sum`.
    #[test]
    fn a_response_is_the_sum_of_the_number_the_secret_and_the_challenge() {
        let account = Account::new("user", "secretsecretsecret").unwrap();
        assert_eq!(hex(&account.response(0x27, &[1, 2])), "0xb841ea87319e4b4744b08559c7bc5e50");
    }
}
