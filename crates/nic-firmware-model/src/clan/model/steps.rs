//! What may happen, decoded from any bytes: the same for property tests and fuzzing; and
//! frames that nobody sent so: what once came to the host, altered.

use clan_dsm::offload::Secret;
use clan_dsm::{Address, HostId, NativeConfig, Nic, WORD};
use landfall_placement::{Duration, Random};
use landfall_simnet::link::Reordering;
use landfall_simnet::{Frame, LinkConfig, Loss, Probability, TailDrop};
use landfall_testkit::model::Choices;

use super::super::{Clan, Config, Entries, Tables};
use crate::machine::Sizes;

/// One thing that happens. `side` is the end that it happens to: 0 is the host under
/// test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user exposes memory of so many bytes.
    Expose { side: usize, len: u16 },
    /// The user ends the rights to an aperture.
    Revoke { side: usize, which: u8 },
    /// The user watches bytes of an aperture.
    Watch { side: usize, which: u8, at: u16, len: u16, how: u8 },
    /// The user arms, disarms, asks or removes a tripwire.
    Change { side: usize, which: u8, how: u8 },
    /// The user writes bytes to an aperture of the other side.
    Write { side: usize, which: u8, at: u16, len: u16, how: u8 },
    /// The user writes words from memory.
    Move { side: usize, which: u8, at: u16, len: u16 },
    /// The user reads words.
    Read { side: usize, which: u8, at: u16, len: u16 },
    /// The user founds a group, joins one or leaves it.
    Group { side: usize, which: u8, how: u8 },
    /// The user writes to a group.
    Publish { side: usize, which: u8, at: u16, len: u16 },
    /// The link goes down, or comes up again.
    Link { is_up: bool },
    /// A unit that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: so many microseconds.
    Wait { micros: u8 },
    /// Much time passes.
    Settle,
}

impl Step {
    /// The next one that bytes stand for.
    pub(super) fn next(choices: &mut Choices<'_>) -> Self {
        let code = choices.byte();
        // Most happens to the host under test by way of its peer.
        let side = usize::from(code >> 7);
        let other = 1 - side.min(usize::from(code >> 6 & 1));
        let which = choices.byte();
        match code & 63 {
            0..=4 => Self::Expose { side: 1 - other, len: len(choices) },
            5..=6 => Self::Revoke { side: 1 - other, which },
            7..=13 => Self::Watch {
                side: 1 - other,
                which,
                at: at(choices),
                len: len(choices),
                how: choices.byte(),
            },
            14..=16 => Self::Change { side: 1 - other, which, how: choices.byte() },
            17..=31 => Self::Write {
                side: other,
                which,
                at: at(choices),
                len: len(choices),
                how: choices.byte(),
            },
            32..=38 => Self::Move { side: other, which, at: at(choices), len: len(choices) },
            39..=41 => Self::Read { side, which, at: at(choices), len: len(choices) },
            42..=44 => Self::Group { side: 1 - other, which, how: choices.byte() },
            45..=47 => Self::Publish { side: other, which, at: at(choices), len: len(choices) },
            48 => Self::Link { is_up: code & 64 != 0 },
            49..=54 => Self::Forge { which, how: choices.byte(), by: choices.byte() },
            55 => Self::Junk { seed: which, len: choices.byte() },
            56..=61 => Self::Wait { micros: which },
            _ => Self::Settle,
        }
    }
}

/// Mostly short, and up to 1 KiB.
fn len(choices: &mut Choices<'_>) -> u16 {
    let (shape, fine) = (u16::from(choices.byte()), u16::from(choices.byte()));
    match shape >> 6 {
        0 => fine % 9 + 1,
        1 => fine % 70 + 1,
        _ => ((shape & 3) << 8 | fine) + 1,
    }
}

/// A place, often at the beginning of a word.
fn at(choices: &mut Choices<'_>) -> u16 {
    let at = u16::from(choices.byte());
    if at & 1 == 0 { at * 4 } else { at }
}

/// Alters a unit. The lowest bits of `how` say in which way.
pub(super) fn forge(frame: &mut Frame, how: u8, by: u8) {
    let bytes = &mut frame.bytes;
    let word = WORD as usize;
    match how & 15 {
        // As it was.
        0..=2 => {}
        // Other words.
        3..=4 => bytes.iter_mut().skip(Address::LEN).for_each(|byte| *byte ^= by | 1),
        // A word less or more.
        5 => bytes.truncate(bytes.len().saturating_sub(word)),
        6 => bytes.extend(std::iter::repeat_n(by, word)),
        7 => bytes.truncate(bytes.len().saturating_sub(usize::from(by % 9) + 1)),
        // Another word, slot, host or kind.
        8..=9 => add(bytes, 7, by & 15),
        10 => add(bytes, 3, by & 3),
        11 => add(bytes, 1, by & 1),
        12 => add(bytes, 0, (by & 3) << 4),
        // Another mask, another key.
        13 => add(bytes, 8, by),
        _ => add(bytes, 15, by | 1),
    }
}

fn add(bytes: &mut [u8], at: usize, by: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = byte.wrapping_add(by);
    }
}

// The configurations that are tried.

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
