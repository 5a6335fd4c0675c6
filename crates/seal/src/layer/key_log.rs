//! Keys handed out, for captures to be opened with.

use alloc::string::String;
use core::fmt::Write as _;
use core::str::FromStr;

use super::unit::{MASK_KEY, mask_key};
use crate::aead::Suite;
use crate::keys::{Keys, Role};
use crate::secret::Secret;

/// The labels of lines, by who sends what the keys are for.
const LABELS: [(&str, Role); 2] =
    [("LANDFALL_TO_RESPONDER_0", Role::Initiator), ("LANDFALL_TO_INITIATOR_0", Role::Responder)];
/// Suite, and what the two ends call the association.
const ID_LEN: usize = 1 + 4 + 4;
/// The secret of the records, and the key of the cover.
const SECRET_LEN: usize = 32 + MASK_KEY;

/// Is told the keys of associations, by [`Sealed::log_keys`](crate::Sealed::log_keys).
///
/// ```
/// use landfall_seal::{KeyLog, TrafficKeys};
///
/// /// Lines for a file that only its owner reads.
/// struct Lines(Vec<String>);
///
/// impl KeyLog for Lines {
///     fn log(&mut self, keys: &TrafficKeys) {
///         self.0.push(keys.line());
///     }
/// }
/// ```
pub trait KeyLog: Send {
    /// An association has keys: called once for each of its two directions.
    fn log(&mut self, keys: &TrafficKeys);
}

/// All that opens one direction of an association: later generations of keys are derived of it.
///
/// As a line of text, in the manner of `SSLKEYLOGFILE`: a label that says whom the units go to, an
/// identifier, and the secret, in hexadecimal digits. The identifier is what packets show: the
/// number of the suite (1 byte), and what the initiator and the responder call the association
/// (4 bytes each). The secret is that of the records (32 bytes) and the key that covers heads (16).
///
/// ```
/// # use landfall_seal::TrafficKeys;
/// let line = format!("LANDFALL_TO_RESPONDER_0 010a0b0c0d01020304 {}", "07".repeat(48));
/// let keys: TrafficKeys = line.parse()?;
/// assert_eq!((keys.initiator(), keys.responder()), (0x0a0b_0c0d, 0x0102_0304));
/// assert_eq!(keys.line(), line);
/// // It is a secret: no debugging output has it.
/// assert!(!format!("{keys:?}").contains("0707"));
/// # Ok::<(), landfall_seal::BadKeyLine>(())
/// ```
#[derive(Debug)]
pub struct TrafficKeys {
    sender: Role,
    suite: Suite,
    initiator: u32,
    responder: u32,
    records: Secret,
    /// The key of the cover, with zeros behind it.
    heads: Secret,
}

impl TrafficKeys {
    /// Those of what this role sends.
    pub(super) fn of(keys: &Keys, sender: Role, initiator: u32, responder: u32) -> Self {
        let records = keys.traffic_secret(sender);
        let heads = padded(&mask_key(keys, sender));
        Self { sender, suite: keys.suite(), initiator, responder, records, heads }
    }

    /// Who seals with them.
    #[must_use]
    pub const fn sender(&self) -> Role {
        self.sender
    }

    /// The suite of the records.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// What the initiator calls the association.
    #[must_use]
    pub const fn initiator(&self) -> u32 {
        self.initiator
    }

    /// What the responder calls it.
    #[must_use]
    pub const fn responder(&self) -> u32 {
        self.responder
    }

    /// The number in the units that they are for: what the receiver calls the association.
    pub(super) const fn to(&self) -> u32 {
        match self.sender {
            Role::Initiator => self.responder,
            Role::Responder => self.initiator,
        }
    }

    pub(super) const fn records(&self) -> &Secret {
        &self.records
    }

    pub(super) fn mask_key(&self) -> [u8; MASK_KEY] {
        self.heads.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.sender == other.sender
            && self.suite == other.suite
            && self.to() == other.to()
            && self.records.as_bytes() == other.records.as_bytes()
            && self.heads.as_bytes() == other.heads.as_bytes()
    }

    /// The line of a key log, without an end of line. **Who has it can open what was recorded.**
    #[must_use]
    pub fn line(&self) -> String {
        let label = LABELS.iter().find(|(_, sender)| *sender == self.sender);
        let mut line = String::from(label.map_or("", |(label, _)| label));
        let ids = [self.initiator.to_be_bytes(), self.responder.to_be_bytes()];
        line.push(' ');
        push_hex(&mut line, &[self.suite.code()]);
        push_hex(&mut line, ids.as_flattened());
        line.push(' ');
        push_hex(&mut line, self.records.as_bytes());
        push_hex(&mut line, &self.mask_key());
        line
    }
}

fn padded(key: &[u8; MASK_KEY]) -> Secret {
    let mut bytes = [0; 32];
    bytes[..MASK_KEY].copy_from_slice(key);
    Secret::new(bytes)
}

fn push_hex(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // A string takes whatever is written.
        let _ = write!(line, "{byte:02x}");
    }
}

/// A line of a key log has no keys of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKeyLine {
    /// It is empty, a comment, or of another program.
    #[error("the line is of another program")]
    Other,
    /// It begins as one of ours, and does not go on as one.
    #[error(
        "a line has a label, 18 hexadecimal digits of an identifier with a known suite, and 96 of a secret"
    )]
    Malformed,
}

impl FromStr for TrafficKeys {
    type Err = BadKeyLine;

    fn from_str(line: &str) -> Result<Self, BadKeyLine> {
        let mut words = line.split_ascii_whitespace();
        let label = words.next().ok_or(BadKeyLine::Other)?;
        let known = LABELS.iter().find(|(known, _)| *known == label);
        let (_, sender) = *known.ok_or(BadKeyLine::Other)?;
        let (Some(id), Some(secret), None) = (words.next(), words.next(), words.next()) else {
            return Err(BadKeyLine::Malformed);
        };
        let id: [u8; ID_LEN] = hex(id).ok_or(BadKeyLine::Malformed)?;
        let secret: [u8; SECRET_LEN] = hex(secret).ok_or(BadKeyLine::Malformed)?;
        let [suite, a, b, c, d, e, f, g, h] = id;
        let suite = Suite::ALL.into_iter().find(|known| known.code() == suite);
        let (records, heads) = secret.split_first_chunk().ok_or(BadKeyLine::Malformed)?;
        let heads = heads.first_chunk().ok_or(BadKeyLine::Malformed)?;
        Ok(Self {
            sender,
            suite: suite.ok_or(BadKeyLine::Malformed)?,
            initiator: u32::from_be_bytes([a, b, c, d]),
            responder: u32::from_be_bytes([e, f, g, h]),
            records: Secret::new(*records),
            heads: padded(heads),
        })
    }
}

fn hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}
