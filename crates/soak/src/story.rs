//! [`Story`]: what happened, for the diagram of a run that failed. In other runs nothing is
//! written down.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use landfall_placement::{Instant, Peer};
use landfall_simnet::Frame;

use crate::net::at;
use crate::plan::Plan;
use crate::world::run_with;

/// A line of a story.
#[derive(Clone, Debug)]
pub(crate) enum StoryLine {
    /// A frame left a host.
    Sent { at: Instant, host: u8, what: String, hash: u64 },
    /// A frame reached an engine of a host.
    Arrived { host: u8, hash: u64 },
    /// Something happened at a host, or everywhere.
    Note { at: Instant, host: Option<u8>, what: String },
}

/// This many lines are kept, the newest.
const MOST: usize = 4_000;

/// What happened, if it is to be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story(Option<Rc<RefCell<std::collections::VecDeque<StoryLine>>>>);

impl Story {
    pub(crate) fn new(is_told: bool) -> Self {
        Self(is_told.then(Rc::default))
    }

    fn add(&self, line: impl FnOnce() -> StoryLine) {
        let Some(lines) = &self.0 else { return };
        let mut lines = lines.borrow_mut();
        if lines.len() >= MOST {
            lines.pop_front();
        }
        lines.push_back(line());
    }

    pub(crate) fn sent(&self, at: Instant, host: u8, frame: &Frame) {
        self.add(|| StoryLine::Sent { at, host, what: outline(frame), hash: hash(frame) });
    }

    pub(crate) fn arrived(&self, host: u8, frame: &Frame) {
        self.add(|| StoryLine::Arrived { host, hash: hash(frame) });
    }

    pub(crate) fn note(&self, at: Instant, host: Option<u8>, what: impl FnOnce() -> String) {
        self.add(|| StoryLine::Note { at, host, what: what() });
    }

    pub(crate) fn lines(&self) -> Vec<StoryLine> {
        self.0.as_ref().map_or_else(Vec::new, |lines| lines.borrow().iter().cloned().collect())
    }
}

/// Runs a plan, and tells what happened, a line each.
#[must_use]
pub fn told(plan: &Plan) -> String {
    let mut told = String::new();
    for line in run_with(plan, true).lines {
        let (when, who, what) = match line {
            StoryLine::Sent { at: when, host, what, hash } => {
                (Some(when), Some(host), format!("{what}, {hash:016x}"))
            }
            StoryLine::Arrived { host, hash } => (None, Some(host), format!("hears {hash:016x}")),
            StoryLine::Note { at: when, host, what } => (Some(when), host, what),
        };
        let who = who.map_or_else(|| "all".to_string(), |host| format!("host {host}"));
        let when = when.map_or_else(String::new, at);
        told.push_str(&format!("{when:>14}  {who}: {what}\n"));
    }
    told
}

/// Tells frames apart; a damaged one is another.
fn hash(frame: &Frame) -> u64 {
    let mut hasher = DefaultHasher::new();
    frame.bytes.hash(&mut hasher);
    hasher.finish()
}

/// A frame in a few words.
fn outline(frame: &Frame) -> String {
    let len = frame.len();
    let byte = |at: usize| frame.bytes.get(at).copied().unwrap_or(0);
    match frame.to {
        Peer::Unaddressed if byte(12) == 8 && byte(13) == 0 => {
            let is_fragment = u16::from_be_bytes([byte(20), byte(21)]) & 0x3fff != 0;
            let protocol = match byte(23) {
                6 => "TCP",
                17 => "UDP",
                1 => "ICMP",
                _ => "IP",
            };
            let piece = if is_fragment { ", a fragment" } else { "" };
            format!("{protocol}, {len} bytes{piece}")
        }
        Peer::Unaddressed => format!("Ethernet, {len} bytes"),
        _ => format!("{:02x}, {len} bytes", byte(0)),
    }
}
