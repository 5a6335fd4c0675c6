//! [`Parameters`]: what both ends of a session agree on, by text.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::pdu::Digests;

/// The longest data of one message that comes.
pub const LONGEST_DATA: u32 = 256 << 10;
/// The most data of one burst.
const MOST_BURST: u32 = 1 << 20;
/// The most data that come without being asked for.
const MOST_FIRST_BURST: u32 = 256 << 10;
/// This many keys are read of one text.
const MOST_KEYS: usize = 64;

/// The keys and values of a text; None where it is none.
pub(crate) fn pairs(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let text = core::str::from_utf8(text).ok()?;
    let parts = text.split('\0').filter(|part| !part.is_empty());
    let pairs: Option<Vec<_>> = parts.map(|part| part.split_once('=')).collect();
    pairs.filter(|pairs| pairs.len() <= MOST_KEYS)
}

/// Adds a key and its value.
pub(crate) fn say(out: &mut String, key: &str, value: &str) {
    out.push_str(&format!("{key}={value}\0"));
}

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) digests: Digests,
    /// The longest data of one message that the initiator takes.
    pub(crate) send: u32,
    pub(crate) burst: u32,
    pub(crate) first_burst: u32,
    /// Nothing comes without being asked for, but with its command.
    pub(crate) initial_r2t: bool,
    /// Data come with their command.
    pub(crate) immediate: bool,
}

impl Default for Parameters {
    /// What holds where nothing is said.
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            send: 8192,
            burst: 256 << 10,
            first_burst: 64 << 10,
            initial_r2t: true,
            immediate: true,
        }
    }
}

impl Parameters {
    /// Takes a key of the operational stage, and answers it. False: the value makes no sense.
    pub(crate) fn negotiate(&mut self, key: &str, value: &str, out: &mut String) -> bool {
        match key {
            "HeaderDigest" => digest(key, value, &mut self.digests.header, out),
            "DataDigest" => digest(key, value, &mut self.digests.data, out),
            "MaxRecvDataSegmentLength" => match length(value, 512) {
                // It is said, not agreed on.
                Some(most) => self.send = most,
                None => return false,
            },
            "MaxBurstLength" => match length(value, 512) {
                Some(most) => {
                    self.burst = most.min(MOST_BURST);
                    say(out, key, &self.burst.to_string());
                }
                None => return false,
            },
            "FirstBurstLength" => match length(value, 512) {
                Some(most) => {
                    self.first_burst = most.min(MOST_FIRST_BURST);
                    say(out, key, &self.first_burst.to_string());
                }
                None => return false,
            },
            "InitialR2T" => match flag(value) {
                Some(wanted) => {
                    self.initial_r2t = wanted;
                    say(out, key, value);
                }
                None => return false,
            },
            "ImmediateData" => match flag(value) {
                Some(wanted) => {
                    self.immediate = wanted;
                    say(out, key, value);
                }
                None => return false,
            },
            // One connection, which is not mended; transfers in order, one at a time.
            "MaxConnections" | "MaxOutstandingR2T" => say(out, key, "1"),
            "ErrorRecoveryLevel" | "DefaultTime2Retain" => say(out, key, "0"),
            "DefaultTime2Wait" => say(out, key, value),
            "DataPDUInOrder" | "DataSequenceInOrder" => say(out, key, "Yes"),
            "IFMarker" | "OFMarker" => say(out, key, "No"),
            "OFMarkInt" | "IFMarkInt" => say(out, key, "Irrelevant"),
            _ => say(out, key, "NotUnderstood"),
        }
        true
    }
}

/// A sum, if the initiator has the one that there is.
fn digest(key: &str, value: &str, is_on: &mut bool, out: &mut String) {
    let choice = value.split(',').find(|choice| matches!(*choice, "CRC32C" | "None"));
    *is_on = choice == Some("CRC32C");
    say(out, key, choice.unwrap_or("Reject"));
}

/// A length within what the standard allows.
fn length(value: &str, least: u32) -> Option<u32> {
    value.parse().ok().filter(|length| (least..1 << 24).contains(length))
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}
