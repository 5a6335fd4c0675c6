//! The configurations that are tried.

use clan_dsm::offload::Secret;
use clan_dsm::{HostId, NativeConfig, Nic};
use landfall_placement::{Duration, Random};
use landfall_simnet::link::Reordering;
use landfall_simnet::{LinkConfig, Loss, Probability, TailDrop};
use landfall_testkit::model::Choices;

use super::super::{Clan, Config, Entries, Tables};
use crate::machine::Sizes;

/// How many bytes say how a run is set up.
const BYTES: usize = 5;

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
        u64::from(self.0[0])
    }

    /// The host at an end.
    pub(super) fn host(side: usize) -> HostId {
        HostId::new(side as u16 + 1).unwrap_or_default()
    }

    /// The native link of a host.
    fn native(self, adapter: bool) -> NativeConfig {
        NativeConfig {
            room: if self.bit(8) { 1024 } else { 40 },
            patience: Duration::from_millis(5),
            pio_burst: if self.bit(9) { 8 } else { 3 },
            dma_burst: if self.bit(10) { 128 } else { 9 },
            adapter,
            ..NativeConfig::default()
        }
    }

    /// The host at an end.
    pub(super) fn nic(self, side: usize, adapter: bool) -> Nic {
        let config = clan_dsm::Config {
            apertures: 12,
            groups: 6,
            tripwires: 24,
            reads: 4,
            dma_requests: 6,
            write_buffer: 9_600,
            events: 200,
            native: Some(self.native(adapter)),
            ..clan_dsm::Config::default()
        };
        Nic::new(config, Self::host(side), [side as u8 + 1; 32])
    }

    /// What the link does to units: native links lose nothing, unless they are damaged.
    pub(super) fn link(self) -> LinkConfig {
        let percent = |byte: u8, most: u32| Probability::percent(u32::from(byte) * most / 255);
        let faults = self.0[4];
        LinkConfig {
            rate: Some(if self.bit(11) { 1_500_000_000 } else { 50_000_000 }),
            overhead: 4,
            delay: Duration::from_micros(2),
            mtu: if self.bit(12) { 1_500 } else { 152 },
            queue: TailDrop::default(),
            loss: if faults & 1 == 1 { Loss::Uniform(percent(self.0[3], 4)) } else { Loss::None },
            duplication: if faults & 2 == 2 { Probability::percent(2) } else { Probability::NEVER },
            reordering: Reordering {
                probability: percent(faults & 4, 300),
                extra_delay: Duration::from_micros(20),
            },
            ..LinkConfig::ethernet(1)
        }
    }

    /// The firmware of the adapter: its tables may be smaller than the host's.
    pub(super) fn firmware(self) -> Clan<'static> {
        let entries = Entries {
            apertures: if self.bit(13) { 12 } else { 3 },
            groups: if self.bit(14) { 8 } else { 2 },
            tripwires: if self.bit(15) { 24 } else { 8 },
            cam: if self.bit(16) { 64 } else { 6 },
        };
        let config = Config::new(Self::host(0), self.native(true).room);
        let secret = Secret::new(&mut Random::from_number(self.seed()));
        Clan::new(Tables::owned(&entries, secret), config)
    }

    /// The adapter's slots and rings.
    pub(super) fn sizes(self) -> Sizes {
        Sizes {
            arrivals: 8,
            departures: 8,
            frame: 2_048,
            orders: if self.bit(17) { 4 } else { 64 },
            reports: 64,
            buffers: 8,
        }
    }
}
