//! The two engines as the [`World`](super::World) drives them; what is found out about a run: what
//! is wrong, a digest of what happened, its story.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::net::Ipv4Addr;

use landfall_placement::{
    Area, Duration, Instant, Offloads, PathId, PathLimits, Peer, WordFunction, WordWidth,
};

use super::world::{ModelEvent, Operations, Subject, World};
use crate::engines::numbered::{self, Numbered};
use crate::engines::stream::{self, Framing, Station, Stream};

const PATH: PathId = PathId(0);

impl Subject for Numbered {
    const IS_STREAM: bool = false;

    fn pair(config: u8) -> [Self; 2] {
        let config = numbered::Config {
            unit: 64,
            window: 64 * if config & 2 == 0 { 16 } else { 80 },
            ack_every: 4,
            checksum: Self::has_checksum(config),
            eager: config & 4 == 0,
            retransmit_after: Duration::from_millis(1),
            give_up_after: if config & 8 == 0 { 3 } else { 30 },
            connections: 2,
            incoming: 4,
            outgoing: 4,
            posted: 8,
            ..numbered::Config::default()
        };
        [1, 2].map(|seed| Self::new(config, [seed; 32]))
    }

    fn limits() -> PathLimits {
        PathLimits::plain(128)
    }

    fn has_checksum(config: u8) -> bool {
        config & 1 == 0
    }

    fn post(&mut self, area: Area) -> bool {
        self.receive_into(area).is_ok()
    }

    fn make_room(&mut self) {
        while self.take_back_posted().is_some() {}
    }

    fn submit(&mut self, now: Instant, to: Peer, area: Area) -> Option<u64> {
        self.send(now, PATH, to, area).ok().map(|id| id.0)
    }

    fn special(&mut self, now: Instant, to: Peer, value: u8) {
        let word = (u64::from(value & 7) * 8, WordWidth::Eight);
        let function = match value >> 6 {
            0 => WordFunction::Add(1),
            1 => WordFunction::CompareSwap { expected: 3, new: u64::from(value) },
            2 => WordFunction::Swap(u64::from(value)),
            _ => WordFunction::Load,
        };
        // At a bound it is not asked: that is an answer too.
        let _ = self.fetch(now, PATH, to, word, function);
    }

    fn serve(&mut self, area: Area) {
        let served = self.serve_words(Some(area));
        debug_assert!(served.is_ok());
    }

    fn told(event: numbered::Event) -> ModelEvent {
        use numbered::Event;
        match event {
            Event::Delivered { posted, len, .. } => ModelEvent::Received { posted, len },
            Event::ReceiveFailed { posted, .. } => ModelEvent::Returned { posted },
            Event::Sent { message } => ModelEvent::Sent { key: Some(message.0) },
            Event::SendFailed { message } => ModelEvent::Failed { key: Some(message.0) },
            Event::Fetched { .. } | Event::FetchFailed { .. } => ModelEvent::Other,
        }
    }
}

impl Subject for Stream {
    const IS_STREAM: bool = true;

    fn pair(config: u8) -> [Self; 2] {
        let station =
            |n| Station { mac: [2, 0, 0, 0, 0, n], ip: Ipv4Addr::new(10, 0, 0, n), port: 7 };
        let framing = if config & 2 == 0 {
            Framing::Bare { peer: Peer::Node(1), local_port: 1, remote_port: 2 }
        } else {
            Framing::EthernetIpv4Tcp { local: station(1), remote: station(2) }
        };
        let config = stream::Config {
            window: if config & 4 == 0 { 4096 } else { 1 << 20 },
            short_head_every: 3,
            checksum: Self::has_checksum(config),
            retransmit_after: Duration::from_millis(1),
            give_up_after: if config & 8 == 0 { 6 } else { 60 },
            areas: 8,
            under_way: 16,
            islands: if config & 16 == 0 { 4 } else { 16 },
            ..stream::Config::new(framing, PATH)
        };
        let other = stream::Config { framing: framing.reversed(Peer::Node(0)), ..config };
        [Self::connect(config, [1; 32]), Self::listen(other, [2; 32])]
    }

    fn limits() -> PathLimits {
        PathLimits {
            super_unit: 1300,
            segments: 12,
            offloads: Offloads { segment_tcp4: true, ..Offloads::default() },
            ..PathLimits::plain(166)
        }
    }

    fn has_checksum(config: u8) -> bool {
        config & 3 != 1
    }

    fn post(&mut self, area: Area) -> bool {
        self.receive_into(area).is_ok()
    }

    fn submit(&mut self, _now: Instant, _to: Peer, area: Area) -> Option<u64> {
        self.send(area).ok().map(|()| 0)
    }

    fn special(&mut self, _now: Instant, _to: Peer, value: u8) {
        if value == 0 {
            self.close();
        }
    }

    fn serve(&mut self, _area: Area) {}

    fn told(event: stream::Event) -> ModelEvent {
        use stream::Event;
        match event {
            Event::Received { posted, len } => ModelEvent::Received { posted, len },
            Event::Sent { .. } => ModelEvent::Sent { key: None },
            Event::SendFailed { .. } => ModelEvent::Failed { key: None },
            Event::Failed => ModelEvent::Broken,
            Event::Connected | Event::Finished | Event::Closed => ModelEvent::Other,
        }
    }
}

/// Runs the operations that these bytes stand for: the first byte chooses
/// engine and configuration. Gives everything that was found wrong.
#[must_use]
pub fn placement_bookkeeping(bytes: &[u8]) -> Vec<alloc::string::String> {
    let Some((first, rest)) = bytes.split_first() else { return Vec::new() };
    if first & 0x80 == 0 { run::<Numbered>(*first, rest) } else { run::<Stream>(*first, rest) }
}

fn run<E: Subject>(config: u8, bytes: &[u8]) -> Vec<alloc::string::String> {
    let mut world = World::<E>::new(config);
    for operation in Operations::new(bytes) {
        world.apply(operation);
    }
    world.finish()
}

/// What is known of a run so far.
#[derive(Clone, Debug)]
pub struct Findings {
    failures: Vec<String>,
    digest: u64,
    story: Option<Vec<String>>,
}

impl Default for Findings {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Findings {
    /// More failures say nothing new.
    const MOST: usize = 20;

    /// Nothing yet. The story is told where somebody wants to read it.
    #[must_use]
    pub fn new(with_story: bool) -> Self {
        let story = with_story.then(Vec::new);
        Self { failures: Vec::new(), digest: 0xcbf2_9ce4_8422_2325, story }
    }

    /// From now on the story is told.
    pub fn begin_story(&mut self) {
        self.story = Some(Vec::new());
    }

    /// Whether the story is told.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.story.is_some()
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    /// Something is wrong.
    pub fn fail(&mut self, what: String) {
        if self.failures.len() < Self::MOST {
            self.failures.push(what);
        }
    }

    /// These bytes were sent or told.
    pub fn add(&mut self, bytes: &[u8]) {
        self.digest = digest(self.digest, bytes);
    }

    /// The digest of all that was sent and told: equal runs have equal ones.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// What is wrong.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Takes what is wrong; what comes next is counted anew.
    pub fn take_failures(&mut self) -> Vec<String> {
        mem::take(&mut self.failures)
    }

    /// The story, if it was told, and all that is wrong at its end.
    #[must_use]
    pub fn into_story(self) -> Vec<String> {
        let mut story = self.story.unwrap_or_default();
        story.extend(self.failures);
        story
    }
}

/// The digest of what was before and of these bytes: equal runs have equal ones, and runs
/// that differ somewhere hardly ever do. Nobody is meant to be kept out by it.
pub(super) fn digest(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // As FNV-1a, of words: a shift brings the upper bits down, which a product never does.
    let step = |digest: u64, word: &[u8; 8]| {
        let mixed = digest ^ u64::from_le_bytes(*word);
        (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let digest = words.iter().fold(before ^ bytes.len() as u64, step);
    step(digest, &last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_its_place_and_their_number_count() {
        let bytes: Vec<u8> = (0..40).collect();
        let mut all: Vec<u64> = (0..bytes.len()).map(|len| digest(1, &bytes[..len])).collect();
        all.extend((0..bytes.len()).map(|at| {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            digest(1, &other)
        }));
        all.extend([digest(1, &[0; 3]), digest(1, &[0; 4]), digest(2, &bytes)]);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(digest(1, &bytes), digest(1, &bytes.clone()));
    }

    #[test]
    fn failures_are_bounded_and_stand_at_the_end_of_the_story() {
        let mut findings = Findings::new(true);
        findings.tell(|| "it begins".into());
        (0..30).for_each(|n| findings.fail(alloc::format!("wrong {n}")));
        assert_eq!(findings.failures().len(), 20);
        findings.take_failures();
        findings.fail("wrong at last".into());
        assert_eq!(findings.into_story(), ["it begins", "wrong at last"]);
        let mut findings = Findings::new(false);
        findings.tell(|| unreachable!("nobody reads it"));
        findings.fail("wrong".into());
        assert_eq!(findings.into_story(), ["wrong"]);
    }
}
