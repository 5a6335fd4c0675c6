//! [`Record`]: all that can be seen of a run.

use std::collections::BTreeMap;

use landfall_simnet::DropReason;
use qpip::{Completion, Event, Stats};

/// All that can be seen of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Every frame on every link, with its time: pcapng.
    pub frames: Vec<u8>,
    /// What each host was told in its completion queue.
    pub done: Vec<Vec<Completion>>,
    /// What else it was told.
    pub events: Vec<Vec<Event>>,
    /// What is in its memory.
    pub memory: Vec<Vec<u8>>,
    /// What it counted, but for what the seam took.
    pub stats: Vec<Stats>,
    /// What it refused, by the check that refused it.
    pub refusals: Vec<String>,
    /// What the simulation has found wrong by itself.
    pub wrong: Vec<String>,
    /// How many units the seam took of how many, all hosts together.
    pub placed: (u64, u64),
}

fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()))
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

impl Record {
    /// All in which this run differs from the other.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = self.wrong.clone();
        all.extend(other.wrong.iter().map(|wrong| format!("without a card: {wrong}")));
        for host in 0..self.memory.len() {
            if self.memory[host] != other.memory[host] {
                let at = first_difference(&self.memory[host], &other.memory[host]);
                all.push(format!("host {host}: other memory from byte {at} on"));
            }
            let (done, others) = (&self.done[host], &other.done[host]);
            if done != others {
                let at = done.iter().zip(others).position(|(a, b)| a != b);
                let at = at.unwrap_or(done.len().min(others.len()));
                all.push(format!(
                    "host {host}: other completions from number {at} on: {:?}, without a card {:?}",
                    done.get(at),
                    others.get(at)
                ));
            }
            if self.events[host] != other.events[host] {
                let (ours, theirs) = (&self.events[host], &other.events[host]);
                all.push(format!("host {host}: other events: {ours:?}, without a card {theirs:?}"));
            }
            if self.stats[host] != other.stats[host] {
                let (ours, theirs) = (&self.stats[host], &other.stats[host]);
                all.push(format!("host {host}: other counts: {ours:?}, without a card {theirs:?}"));
            }
            if self.refusals[host] != other.refusals[host] {
                let (ours, theirs) = (&self.refusals[host], &other.refusals[host]);
                all.push(format!("host {host}: refused {ours}, without a card {theirs}"));
            }
        }
        let (ours, theirs) = (by_end(&self.frames), by_end(&other.frames));
        for ((end, direction), ours) in &ours {
            let theirs = theirs.get(&(*end, *direction)).map_or(&[][..], Vec::as_slice);
            let differ = ours.iter().zip(theirs).position(|(one, other)| one != other);
            let nth = differ.unwrap_or(ours.len().min(theirs.len()));
            if let (Some(one), other) | (None, other @ Some(one)) = (ours.get(nth), theirs.get(nth))
            {
                let at = other.map_or(0, |other| first_difference(one, other));
                all.push(format!("end {end}: other frames from number {nth} on, byte {at}"));
            }
        }
        if ours.len() != theirs.len() {
            all.push(format!("{} ends of links, without a card {}", ours.len(), theirs.len()));
        }
        all
    }
}
