//! What several tests share.

// Each test binary uses its part of this.
pub mod numbered;
pub mod stream;

use landfall_testkit::model::Faults;

/// Bytes that differ from place to place and from salt to salt.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n * 31 + salt) ^ (n >> 8)) as u8).collect()
}

/// Everything that can go wrong, often.
pub const BAD: Faults = Faults {
    loss: 30_000,
    duplication: 30_000,
    reordering: 100_000,
    corruption: 10_000,
    cutting: 500_000,
    failing: 10_000,
};
