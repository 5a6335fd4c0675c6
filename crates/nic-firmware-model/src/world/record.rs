//! [`Record`]: all that can be seen of a run, and in what two runs differ: what a host behind
//! an adapter and one without are compared by.

use std::collections::BTreeMap;
use std::fmt::Display;

use landfall_placement::{Engine, RegionId};
use landfall_simnet::DropReason;

use super::{Runs, World};

/// All that can be seen of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Every frame on every link, with its time: pcapng.
    pub frames: Vec<u8>,
    /// What the user of each side was told, and what became of its calls.
    pub told: [Vec<String>; 2],
    /// All memory that each side lent, by region.
    pub memory: [BTreeMap<u32, Vec<u8>>; 2],
    /// What each side counted, and what it refused, line by line.
    pub counts: [Vec<String>; 2],
    /// What went wrong with the run itself.
    pub wrong: Vec<String>,
    /// How many frames each side sent over the links between the two.
    pub sent: [u64; 2],
    /// How many units adapters placed of how many that came, as far as somebody counts them.
    pub placed: (u64, u64),
}

impl<E: Engine, H: Runs<E>, P: Runs<E>> World<E, H, P> {
    /// What was seen so far: of memory, these regions of each side. What users were told and
    /// what engines counted is theirs to add.
    #[must_use]
    pub fn record(&self, regions: [&[RegionId]; 2]) -> Record {
        let memory = [0, 1].map(|side: usize| {
            let bytes = |region: RegionId| self.memory(side).bytes(region).unwrap_or_default();
            regions[side].iter().map(|region| (region.index, bytes(*region).to_vec())).collect()
        });
        let mut wrong = self.wrong().to_vec();
        let missed = self.sim().capture_missed();
        if missed > 0 {
            wrong.push(format!("{missed} frames were not captured"));
        }
        let sent = |direction| self.sim().stats(direction).sent;
        Record {
            frames: self.sim().captured().to_vec(),
            memory,
            wrong,
            sent: [
                self.links().iter().map(|link| sent(link.there())).sum(),
                self.links().iter().map(|link| sent(link.back())).sum(),
            ],
            ..Record::default()
        }
    }
}

impl Record {
    /// All in which this run differs from that of a host without an adapter; and what went
    /// wrong with either.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = self.wrong.clone();
        all.extend(other.wrong.iter().map(|wrong| format!("without an adapter: {wrong}")));
        for side in 0..2 {
            let name = ["host", "peer"][side];
            let mut first = |what: &str, ours: &[String], theirs: &[String]| {
                let most = ours.len().max(theirs.len());
                let differs = (0..most).find(|nth| ours.get(*nth) != theirs.get(*nth));
                if let Some(nth) = differs {
                    let shown = |list: &[String]| list.get(nth).cloned().unwrap_or_default();
                    let (ours, theirs) = (shown(ours), shown(theirs));
                    let what = format!("{what} {nth} of the {name}");
                    all.push(format!("{what}: {ours}, without an adapter {theirs}"));
                }
            };
            first("event", &self.told[side], &other.told[side]);
            first("count", &self.counts[side], &other.counts[side]);
            all.extend(memory_differs(name, &self.memory[side], &other.memory[side]));
        }
        all.extend(frames_differ(&self.frames, &other.frames));
        all
    }

    /// Events, memory and counts, line by line.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut lines: Vec<String> = self.told.iter().flatten().cloned().collect();
        for (side, memory) in self.memory.iter().enumerate() {
            let line = |(region, bytes): (&u32, &Vec<u8>)| {
                format!("side {side}: region {region}, {}", digest(bytes))
            };
            lines.extend(memory.iter().map(line));
        }
        lines.extend(self.counts.iter().flatten().cloned());
        lines.extend(self.wrong.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }

    /// How much happened: events, frames of the host, frames of its peer.
    #[must_use]
    pub fn size(&self) -> (usize, u64, u64) {
        (self.told.iter().map(Vec::len).sum(), self.sent[0], self.sent[1])
    }

    /// Adds a line to what a side counted.
    pub(crate) fn count(&mut self, side: usize, what: impl Display) {
        self.counts[side].push(what.to_string());
    }
}

type Regions = BTreeMap<u32, Vec<u8>>;

fn memory_differs(name: &str, ours: &Regions, theirs: &Regions) -> Option<String> {
    if !ours.keys().eq(theirs.keys()) {
        let (ours, theirs) = (ours.len(), theirs.len());
        return Some(format!("{ours} regions of the {name}, without an adapter {theirs}"));
    }
    let differs = |region: &&u32| ours[*region] != theirs[*region];
    let region = ours.keys().find(differs)?;
    let at = first_difference(&ours[region], &theirs[region]);
    Some(format!("region {region} of the {name}: other memory from byte {at} on"))
}

fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()))
}

/// The first packet in which two captures differ, of each end of a link and direction.
fn frames_differ(ours: &[u8], theirs: &[u8]) -> Vec<String> {
    let (ours, theirs) = (by_end(ours), by_end(theirs));
    let mut all = Vec::new();
    for ((end, direction), ours) in &ours {
        let theirs = theirs.get(&(*end, *direction)).map_or(&[][..], Vec::as_slice);
        let differ = ours.iter().zip(theirs).position(|(one, other)| one != other);
        let nth = differ.unwrap_or(ours.len().min(theirs.len()));
        if let (Some(one), other) | (None, other @ Some(one)) = (ours.get(nth), theirs.get(nth)) {
            let at = other.map_or(0, |other| first_difference(one, other));
            all.push(format!("end {end}: other frames from number {nth} on, byte {at}"));
        }
    }
    if ours.len() != theirs.len() {
        let (ours, theirs) = (ours.len(), theirs.len());
        all.push(format!("{ours} ends of links, without an adapter {theirs}"));
    }
    all
}

/// The packets of a capture by the end of a link and the direction in which they crossed it.
/// What crosses two ends, or one in both directions, at the same moment has no order that
/// anybody could tell. Frames that nobody knows a route for a card does not send; without a
/// card, somebody takes them away in front of the link.
fn by_end(mut capture: &[u8]) -> BTreeMap<(u32, Option<u32>), Vec<&[u8]>> {
    /// An Enhanced Packet Block (draft-ietf-opsawg-pcapng, 4.3).
    const PACKET: u32 = 6;
    let word = |block: &[u8], at: usize| {
        block.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes))
    };
    let comment = format!("dropped: {}", DropReason::Intercepted);
    let mut ends = BTreeMap::<_, Vec<_>>::new();
    while let (Some(kind), Some(len)) = (word(capture, 0), word(capture, 4)) {
        let Some((block, rest)) = capture.split_at_checked(len.max(8) as usize) else { break };
        capture = rest;
        let is_taken = block.windows(comment.len()).any(|bytes| bytes == comment.as_bytes());
        if let Some(end) = word(block, 8).filter(|_| kind == PACKET && !is_taken) {
            // The last option, in front of the end of options and the length.
            let direction = block.len().checked_sub(12).and_then(|at| word(block, at));
            ends.entry((end, direction)).or_default().push(block);
        }
    }
    ends
}

/// A fingerprint of bytes, to be compared; no cryptographic hash.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{} bytes {hash:016x}", bytes.len())
}
