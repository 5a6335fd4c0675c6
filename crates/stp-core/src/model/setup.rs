//! The configurations that are tried.

use landfall_congestion as congestion;
use landfall_placement::{Duration, PathLimits};

use crate::config::{Config, Policy};
use crate::connection::Admission;

/// After this many repetitions somebody is given up. Of one request there are not more than
/// timeouts that ran.
pub(super) const PATIENCE: u8 = 40;

/// How a run is set up: three bytes of choices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup([u8; 3]);

impl Setup {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut choices = [0; 3];
        for (choice, byte) in choices.iter_mut().zip(bytes) {
            *choice = *byte;
        }
        Self(choices)
    }

    const fn has(self, bit: u8) -> bool {
        self.0[bit as usize / 8] >> (bit % 8) & 1 == 1
    }

    /// How many ends there are.
    pub(super) const fn sides(self) -> usize {
        if self.has(0) && self.has(1) { 3 } else { 2 }
    }

    /// Does every payload carry a checksum, so that a flipped bit is noticed?
    pub(super) const fn has_checksum(self) -> bool {
        self.has(2)
    }

    /// Does nobody give up who is not answered for a while?
    pub(super) const fn is_patient(self) -> bool {
        !self.has(3) || !self.has(4)
    }

    /// May landings fail?
    pub(super) const fn may_fail(self) -> bool {
        self.has(5) && self.has(6)
    }

    /// Is there a connection from the start?
    pub(super) const fn begins_connected(self) -> bool {
        self.has(7) || self.has(8)
    }

    /// What a listener does.
    pub(super) const fn admission(self) -> Admission {
        if self.has(9) { Admission::Ask } else { Admission::Open }
    }

    pub(super) fn config(self) -> Config {
        let is_small = self.has(10);
        let few = |small: usize, usual: usize| if is_small { small } else { usual };
        let shared = congestion::Config::new(64);
        Config {
            max_stu: 7,
            tail: if self.has(19) && self.has(20) && !self.has(23) { 24 } else { 0 },
            block_stus: self.0[2] & 3,
            buffer: 9,
            eager: if self.has(21) || self.has(22) { 64 } else { 0 },
            blocks_ahead: few(1, 3) as u16,
            window: few(256, 2048) as u64,
            policy: if self.has(11) { Policy::ShortestFirst } else { Policy::Fair },
            congestion: self.has(12).then_some(shared),
            checksum: self.has_checksum(),
            progress: self.has(13),
            retry_after: Duration::from_millis(1),
            retry_floor: Duration::from_micros(300),
            give_up_after: if self.is_patient() { PATIENCE } else { 2 },
            connect_within: Duration::from_secs(60),
            keep_alive: self.has(14).then_some(Duration::from_millis(20)),
            paths: 2,
            connections: few(3, 12),
            half_open: few(2, 8),
            links: few(4, 16),
            sends: few(2, 16),
            receives: few(8, 24),
            blocks: few(3, 32),
            slots: few(2, 8) as u16,
            posted: few(2, 16),
            exposed: few(2, 8),
            operations: few(2, 16),
            puts_ahead: few(32, 100) as u16,
            adapters: 0,
            queue: few(16, 128),
        }
    }

    /// The limits of a path: two of different sizes.
    pub(super) const fn limits(self, path: u16) -> PathLimits {
        match path {
            0 => PathLimits::plain(if self.has(15) { 200 } else { 128 }),
            _ => PathLimits::plain(170),
        }
    }
}
