//! What may happen, decoded from any bytes: the same for property tests and fuzzing; and
//! frames that nobody sent so: what once came to the host, altered.

use landfall_placement::{Duration, InternetSum};
use landfall_simnet::link::{Corruption, Reordering};
use landfall_simnet::{Frame, LinkConfig, Loss, Probability, TailDrop};
use landfall_testkit::model::Choices;
use stp_core::{Config, Policy};

use super::super::{Config as Firmware, Cycles, Reports, Tables, Tigon};
use crate::machine::Sizes;

/// One thing that happens. `side` is the end that it happens to: 0 is the host
/// under test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user asks for a connection.
    Connect { side: usize },
    /// The user sends so many bytes.
    Send { side: usize, which: u8, len: u32 },
    /// The user posts memory, that begins so far into its region.
    Post { side: usize, which: u8, len: u32, lead: u8 },
    /// The user asks for a Transfer.
    Read { side: usize, which: u8, len: u32 },
    /// The user asks for a region.
    Ask { side: usize, which: u8 },
    /// The user reads from a region of the other side, writes to it, or
    /// modifies a word of it.
    Remote { side: usize, which: u8, how: u8, len: u32 },
    /// The user ends what it sends or receives.
    Cancel { side: usize, which: u8, is_send: bool },
    /// The user closes a connection, gracefully or at once.
    Close { side: usize, which: u8, at_once: bool },
    /// The user adds the other path to a connection.
    AddLink { side: usize, which: u8 },
    /// A link goes down, or comes up again.
    Link { which: u8, is_up: bool },
    /// A frame that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: so many units of 50 µs.
    Wait { units: u8 },
    /// Much time passes.
    Settle,
}

impl Step {
    /// The next one that bytes stand for.
    pub(super) fn next(choices: &mut Choices<'_>) -> Self {
        let code = choices.byte();
        let side = usize::from(code >> 7);
        let which = choices.byte();
        match code & 63 {
            0 | 1 => Self::Connect { side },
            2..=9 => Self::Send { side: 1, which, len: len(choices) },
            10 => Self::Send { side: 0, which, len: len(choices) },
            11..=18 => Self::Post { side: 0, which, len: len(choices), lead: choices.byte() },
            19 => Self::Post { side: 1, which, len: len(choices), lead: choices.byte() },
            20..=22 => Self::Read { side, which, len: len(choices) },
            23..=24 => Self::Ask { side, which },
            25..=28 => Self::Remote { side, which, how: choices.byte(), len: len(choices) },
            29..=31 => Self::Cancel { side, which, is_send: code & 64 != 0 },
            32 => Self::Close { side, which, at_once: code & 64 != 0 },
            33..=34 => Self::AddLink { side, which },
            35..=36 => Self::Link { which, is_up: code & 64 != 0 },
            37..=47 => Self::Forge { which, how: choices.byte(), by: choices.byte() },
            48 => Self::Junk { seed: which, len: choices.byte() },
            49..=61 => Self::Wait { units: which },
            _ => Self::Settle,
        }
    }
}

/// Short ones sometimes, and up to 8 KiB.
fn len(choices: &mut Choices<'_>) -> u32 {
    let (shape, fine) = (u32::from(choices.byte()), u32::from(choices.byte()));
    match shape >> 6 {
        0 => fine % 80,
        1 => fine + 1,
        _ => ((shape & 31) << 8 | fine) + 1,
    }
}

/// Where the fields of the Schedule Header are that are worth altering.
const FIELDS: [(usize, usize); 14] = [
    (0, 1),  // Op
    (1, 1),  // Flags
    (2, 2),  // Param
    (4, 2),  // D_Port
    (6, 2),  // S_Port
    (8, 4),  // D_Key
    (12, 2), // Cksum
    (14, 2), // Sync
    (16, 4), // B_num
    (20, 4), // Bufx
    (24, 4), // Offset
    (28, 8), // T_len
    (36, 2), // D_id
    (38, 2), // S_id
];

/// Alters a frame. The lowest bits of `how` say in which way, the highest whether
/// the checksum is made right again.
pub(super) fn forge(frame: &mut Frame, how: u8, by: u8) {
    let bytes = &mut frame.bytes;
    let had = bytes.len();
    match how & 31 {
        // As it was.
        0..=3 => {}
        // Other payload.
        4..=6 => {
            for byte in bytes.iter_mut().skip(40) {
                *byte ^= by | 1;
            }
        }
        7 => bytes.truncate(had.saturating_sub(usize::from(by % 64) + 1)),
        8 => bytes.extend(std::iter::repeat_n(by, usize::from(by % 64) + 1)),
        // To one of the next STUs, perhaps with another key.
        9..=12 => {
            add(bytes, 24, 4, 64 * u64::from(by & 31));
            add(bytes, 8, 4, u64::from(how >> 6 & 1));
        }
        13 => add(bytes, 24, 4, u64::from(by)),
        14 => add(bytes, 16, 4, 1),
        15 => add(bytes, 20, 4, u64::from(by & 7)),
        // An earlier generation of the same place.
        16 => add(bytes, 20, 4, 0xffff_0000),
        code => {
            let (at, len) = FIELDS[usize::from(code) % FIELDS.len()];
            add(bytes, at, len, u64::from(by) + 1);
        }
    }
    if how & 128 == 0 {
        seal(bytes);
    }
}

/// Adds to a number in the header.
fn add(bytes: &mut [u8], at: usize, len: usize, by: u64) {
    let Some(field) = bytes.get_mut(at..at + len) else { return };
    let mut number = 0u64;
    for byte in field.iter() {
        number = number << 8 | u64::from(*byte);
    }
    number = number.wrapping_add(by);
    for byte in field.iter_mut().rev() {
        *byte = number as u8;
        number >>= 8;
    }
}

/// Makes the checksum right, where there is one.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < 40 || bytes[1] & stp_core::wire::Flags::SUM.0 == 0 {
        return;
    }
    bytes[12..14].fill(0);
    let mut sum = InternetSum::new();
    sum.add(bytes);
    let sum = !sum.sum();
    bytes[12..14].copy_from_slice(&sum.to_be_bytes());
}

// The configurations that are tried.

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
