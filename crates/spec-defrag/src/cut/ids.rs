//! Identifications for packets that have none.

use core::hash::Hash;

use landfall_placement::{Random, Seed};
use landfall_tables::HashIndex;

/// A counter that starts elsewhere for each pair of addresses (RFC 7739, section
/// 5.3): no identification of a pair comes again before all others came, and who
/// sees those of one pair cannot say those of another.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    next: u32,
    /// Only its keyed hash is used.
    starts: HashIndex,
}

impl Ids {
    pub(super) fn new(seed: Seed) -> Self {
        let mut random = Random::new(seed);
        let secret = (random.next_u64(), random.next_u64());
        Self { next: random.next_u32(), starts: HashIndex::new(secret) }
    }

    /// The next one for a pair of addresses.
    pub(super) fn next(&mut self, pair: &impl Hash) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next.wrapping_add(self.starts.hash(pair))
    }
}
