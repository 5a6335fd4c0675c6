//! All that was seen of a run, and in what two runs differ: what a host behind an adapter
//! and one without are compared by.
//!
//! What does not live here: the runs, which are those of each adapter's `model`.

use std::collections::BTreeMap;

use landfall_placement::{Instant, Refusals};
use landfall_simnet::Frame;

/// A frame, or a unit of a native link, that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) link: usize,
    pub(crate) frame: Frame,
}

/// All that was seen of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the users were told, and what became of their calls.
    pub(crate) told: Vec<String>,
    /// What the host under test sent, and what its peer did.
    pub(crate) frames: [Vec<Sent>; 2],
    /// All memory that was lent at either end.
    pub(crate) memory: [BTreeMap<u32, Vec<u8>>; 2],
    /// Why what came was refused at the host under test: by the engine, by the node.
    pub(crate) refusals: [Refusals; 2],
    /// Why the run ended early.
    pub(crate) failure: Option<String>,
}

impl Record {
    /// All in which this one differs from that of another host.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let mut first = |what: &str, ours: &[String], theirs: &[String]| {
            let most = ours.len().max(theirs.len());
            let differs = (0..most).find(|nth| ours.get(*nth) != theirs.get(*nth));
            if let Some(nth) = differs {
                let shown = |list: &[String]| list.get(nth).cloned().unwrap_or("nothing".into());
                all.push(format!("{what} {nth}: {} instead of {}", shown(ours), shown(theirs)));
            }
        };
        first("event", &self.told, &other.told);
        for (side, name) in ["frame of the host", "frame of its peer"].into_iter().enumerate() {
            let lines = |record: &Self| record.frames[side].iter().map(line).collect::<Vec<_>>();
            first(name, &lines(self), &lines(other));
        }
        for (side, name) in ["region of the host", "region of its peer"].into_iter().enumerate() {
            let lines = |record: &Self| {
                record.memory[side].values().map(|bytes| digest(bytes)).collect::<Vec<_>>()
            };
            first(name, &lines(self), &lines(other));
        }
        let refused =
            |record: &Self| record.refusals.iter().map(ToString::to_string).collect::<Vec<_>>();
        first("refusals", &refused(self), &refused(other));
        if self.failure != other.failure {
            all.push(format!("it ended by {:?} instead of {:?}", self.failure, other.failure));
        }
        all
    }

    /// Events, memory and refusals, line by line.
    pub(crate) fn lines(&self) -> String {
        let mut lines = self.told.clone();
        for (side, memory) in self.memory.iter().enumerate() {
            let line = |(region, bytes): (&u32, &Vec<u8>)| {
                format!("side {side}: region {region}, {}", digest(bytes))
            };
            lines.extend(memory.iter().map(line));
        }
        lines.extend(self.refusals.iter().map(ToString::to_string));
        lines.extend(self.failure.clone());
        lines.push(String::new());
        lines.join("\n")
    }

    /// How much happened: events, frames of the host, frames of its peer.
    #[must_use]
    pub fn size(&self) -> (usize, usize, usize) {
        (self.told.len(), self.frames[0].len(), self.frames[1].len())
    }

    /// What went wrong with the run itself.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

fn line(sent: &Sent) -> String {
    let Sent { at, link, frame } = sent;
    let head = &frame.bytes[..frame.bytes.len().min(40)];
    format!("at {at} on link {link}, {} bytes, {head:02x?} {}", frame.len(), digest(&frame.bytes))
}

/// A fingerprint of bytes, to be compared; no cryptographic hash.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{} bytes {hash:016x}", bytes.len())
}
