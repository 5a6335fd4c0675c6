//! What users of CLAN began, and what must come of it.

use clan_dsm::{
    BarrierId, DmaId, EndpointId, LinkId, OperationId, ReadId, TripwireId, WindowId, WriteId,
};
use landfall_placement::Area;

/// Where what each kind of write writes lies in an aperture, and how much of it.
pub(super) const KINDS: [(u64, usize); 3] = [(0, 16_384), (16_384, 16_384), (32_768, 16_384)];
/// Words that are changed.
pub(super) const WORDS: u64 = 49_152;
/// How many.
pub(super) const WORD_COUNT: usize = 16;
/// The doorbell: how many writes were begun before it.
pub(super) const DOORBELL: u64 = WORDS + 8 * WORD_COUNT as u64;
/// An aperture.
pub(super) const APERTURE: usize = DOORBELL as usize + 8;

/// What a part of an aperture holds.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// Which write wrote each byte last.
    pub(super) writers: Vec<u32>,
    pub(super) writes: u32,
}

/// A write from memory, or a chain of the DMA engine, under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing<T> {
    pub(super) id: T,
    pub(super) nth: u32,
    /// Where in its part of the aperture.
    pub(super) at: usize,
    pub(super) area: Area,
    /// Where a chain reads back what it wrote.
    pub(super) back: Option<Area>,
}

/// A remote read under way.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) id: ReadId,
    pub(super) at: usize,
    pub(super) area: Area,
    pub(super) after: u32,
}

/// An aperture of one host, and the only window onto it, of another.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) id: WindowId,
    /// The link that its writes go over: over another one, some may be lost.
    pub(super) link: LinkId,
    pub(super) area: Area,
    pub(super) tripwire: Option<TripwireId>,
    pub(super) endpoint: Option<EndpointId>,
    pub(super) contents: Vec<Content>,
    pub(super) words: [u64; WORD_COUNT],
    pub(super) writing: Vec<Writing<WriteId>>,
    pub(super) chains: Vec<Writing<DmaId>>,
    pub(super) reads: Vec<Reading>,
    pub(super) changes: Vec<(OperationId, usize, u64)>,
    /// Barriers, with how many writes were begun before.
    pub(super) barriers: Vec<(BarrierId, u32)>,
    /// How many writes were begun before the last barrier.
    pub(super) flushed: u32,
    /// What the doorbell was seen to be.
    pub(super) rung: u64,
    /// What went through it is not known any more: its link failed, or a host was restarted.
    pub(super) is_dead: bool,
}

impl Content {
    pub(super) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len], writers: vec![0; len], writes: 0 }
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.writes += 1;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.writers[at..at + bytes.len()].fill(self.writes);
    }

    /// The first byte that is not as the writes up to this one left it; those that later
    /// writes write may be anything.
    pub(super) fn differs(&self, have: &[u8], upto: u32) -> Option<usize> {
        (0..self.bytes.len())
            .find(|n| self.writers[*n] <= upto && have.get(*n) != Some(&self.bytes[*n]))
    }
}

impl Window {
    pub(super) fn joins(&self, host: u8) -> bool {
        self.from == host || self.to == host
    }

    /// Writes that no barrier was asked for behind.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_dead || self.flushed == self.contents[0].writes
    }

    pub(super) fn under_way(&self) -> usize {
        self.writing.len()
            + self.chains.len()
            + self.reads.len()
            + self.changes.len()
            + self.barriers.len()
    }

    /// The host that it is of was restarted.
    pub(super) fn forget(&mut self) {
        self.writing.clear();
        self.chains.clear();
        self.reads.clear();
        self.changes.clear();
        self.barriers.clear();
    }
}
