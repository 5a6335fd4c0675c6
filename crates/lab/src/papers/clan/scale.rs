//! How much is measured.

use std::time::Duration;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) rounds: usize,
    /// How long a point of a curve is measured in a round.
    pub(super) time: Duration,
    /// Lengths of messages, the shortest first: multiples of eight.
    pub(super) sizes: &'static [u32],
    /// Numbers of endpoints, the fewest first.
    pub(super) endpoints: &'static [usize],
    /// Round trips of the kernel's sockets at the start that are not recorded.
    pub(super) warm_up: u64,
    /// So many requests find the server asleep.
    pub(super) idle: u32,
    /// Longer than anything takes that goes right.
    pub(super) limit: Duration,
}

impl Scale {
    /// Below two minutes.
    pub(super) const FULL: Self = Self {
        rounds: 3,
        time: Duration::from_millis(60),
        sizes: &[8, 64, 256, 512, 752, 1024, 2048, 4096, 16_384, 65_536, 262_144],
        endpoints: &[1, 10, 100, 1000, 10_000],
        warm_up: 100,
        idle: 200,
        limit: Duration::from_secs(60),
    };

    /// To see that it works.
    pub(super) const QUICK: Self = Self {
        rounds: 1,
        time: Duration::from_millis(5),
        sizes: &[8, 752, 16_384],
        endpoints: &[1, 10, 100],
        warm_up: 5,
        idle: 5,
        limit: Duration::from_secs(60),
    };
}
