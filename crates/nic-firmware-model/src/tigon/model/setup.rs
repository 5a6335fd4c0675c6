//! The configurations that are tried.

use landfall_placement::Duration;
use landfall_simnet::link::{Corruption, Reordering};
use landfall_simnet::{LinkConfig, Loss, Probability, TailDrop};
use landfall_testkit::model::Choices;
use stp_core::{Config, Policy};

use super::super::{Config as Firmware, Cycles, Reports, Tables, Tigon};
use crate::machine::Sizes;

/// How many bytes say how a run is set up.
const BYTES: usize = 6;

/// How a run is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup([u8; BYTES]);

impl Setup {
    /// The set-up that the first bytes stand for.
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        Self(choices.array())
    }

    const fn bit(self, nth: usize) -> bool {
        self.0[nth / 8] >> (nth % 8) & 1 == 1
    }

    /// The luck of the network.
    pub(super) fn seed(self) -> u64 {
        u64::from(self.0[0]) << 8 | u64::from(self.0[1])
    }

    /// How many links there are.
    pub(super) const fn links(self) -> usize {
        if self.bit(16) { 2 } else { 1 }
    }

    /// How many Blocks the engine has; the adapter may have fewer.
    const fn blocks(self) -> usize {
        if self.bit(17) { 64 } else { 6 }
    }

    /// The engine of the host under test, and that of its peer.
    pub(super) fn engine(self, adapters: u8) -> Config {
        let stus = if self.bit(19) { 2 } else { 5 };
        Config {
            max_stu: 6 + (self.0[3] & 3),
            block_stus: stus,
            buffer: 12,
            blocks_ahead: if self.bit(20) { 1 } else { 4 },
            window: if self.bit(21) { 700 } else { 1 << 20 },
            policy: if self.bit(22) { Policy::ShortestFirst } else { Policy::Fair },
            congestion: Config::shared_network().congestion.filter(|_| self.bit(23)),
            checksum: self.bit(26),
            progress: self.bit(27),
            retry_after: Duration::from_millis(2),
            retry_floor: Duration::from_micros(100),
            give_up_after: 4,
            keep_alive: self.bit(28).then_some(Duration::from_millis(40)),
            blocks: self.blocks(),
            adapters,
            ..Config::default()
        }
    }

    /// What the links do to frames.
    pub(super) fn link(self) -> LinkConfig {
        let percent = |byte: u8, most: u32| Probability::percent(u32::from(byte) * most / 255);
        let faults = self.0[4];
        LinkConfig {
            rate: Some(if self.bit(29) { 1_000_000_000 } else { 20_000_000 }),
            overhead: 24,
            delay: Duration::from_micros(30),
            mtu: 1_500,
            queue: TailDrop::default(),
            loss: if faults & 1 == 1 { Loss::Uniform(percent(self.0[5], 20)) } else { Loss::None },
            duplication: if faults & 2 == 2 {
                Probability::percent(10)
            } else {
                Probability::NEVER
            },
            reordering: Reordering {
                probability: percent(faults & 4, 2000),
                extra_delay: Duration::from_micros(200),
            },
            corruption: Corruption { probability: percent(faults & 8, 320), most_bits: 1 },
            heads_first: false,
        }
    }

    /// The firmware of the adapter.
    pub(super) fn firmware(self) -> Tigon<'static> {
        let blocks = if self.bit(18) { self.blocks() / 2 } else { self.blocks() };
        let stus = if self.bit(30) { 64 } else { 16 };
        let config =
            Firmware { checksum: self.bit(26), reports: Reports::Each, cycles: Cycles::TIGON };
        Tigon::new(Tables::owned(blocks, stus), config)
    }

    /// The adapter's slots and rings.
    pub(super) fn sizes(self) -> Sizes {
        Sizes {
            arrivals: 8,
            departures: 8,
            frame: 2_048,
            orders: if self.bit(31) { 4 } else { 64 },
            reports: 64,
            buffers: 8,
        }
    }
}
