//! What may happen on the wire and at the receiver, decoded from any bytes: the
//! same for property tests and fuzzing.

use landfall_placement::{Duration, Seed};
use landfall_testkit::model::Choices;

use super::memory::{LONGEST_FRAME, Sizes};
use crate::buffers::LEAD;
use crate::conventional;
use crate::memory::Head;
use crate::predict::Prediction;
use crate::receiver::{Config, Foreign, Lend};
use crate::shape::{HeadLens, PayloadLens, Shape};

/// One thing that happens. `which` picks one of the frames under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// Packets of a flow are cut and sent.
    Send(Sending),
    /// The driver receives this many of the frames under way.
    Receive { count: u8, lies: bool },
    /// A frame is lost.
    Lose { which: u8 },
    /// A frame is doubled; the copy comes `later` frames later.
    Double { which: u8, later: u8 },
    /// Two frames change places.
    Swap { which: u8, other: u8 },
    /// A bit of a frame is flipped; of a header, mostly.
    Flip { which: u8, bit: u16 },
    /// A byte of a header is another one, and the checksum is made right.
    Change { which: u8, at: u8, value: u8 },
    /// A frame that is cut off, or padded.
    Resize { which: u8, len: u8 },
    /// A piece with other bytes that overlaps one that is under way.
    Overlap { which: u8, shift: u8, before: bool },
    /// A piece with the name of a packet under way, anywhere in it.
    Spoof { which: u8, place: u8 },
    /// A piece is congested, or does not understand congestion.
    Mark { which: u8, ecn: u8 },
    /// A frame that has nothing to do with pieces.
    Foreign { kind: u8, place: u8 },
    /// A packet made to break somebody.
    Attack { kind: u8, flow: u8 },
    /// A frame that came long ago comes again.
    Replay { which: u8 },
    /// These bytes come, behind the headers of a flow or alone.
    Inject { flow: u8, bytes: &'a [u8] },
    /// Time passes: up to the next timeout, or by this many quarters of a second.
    Wait { quarters: Option<u8> },
    /// The user is done with some of its packets.
    Release { count: u8, newest_first: bool },
    /// Everything that is under way arrives.
    Settle,
}

/// What is sent, and how it meets what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) flow: u8,
    /// This many packets.
    pub(super) count: u8,
    /// How long they are, and what is special about them.
    pub(super) shape: u8,
    pub(super) fine: u8,
    /// How they are cut.
    pub(super) mtu: u8,
    /// In which order the pieces come, and among which others.
    pub(super) pattern: u8,
}

/// Decodes operations until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Operations<'a> {
    choices: Choices<'a>,
}

impl<'a> Operations<'a> {
    /// The operations that these bytes stand for.
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { choices: Choices::new(bytes) }
    }

    fn byte(&mut self) -> u8 {
        self.choices.byte()
    }

    fn sending(&mut self) -> Sending {
        let (flow, shape) = (self.byte(), self.byte());
        let (fine, rest) = (self.byte(), self.byte());
        // Streams of page after page are what the engine is for, and learns from.
        let count = if shape < 0x80 { [2, 5, 10, 25][usize::from(rest >> 6)] } else { 1 };
        Sending { flow, count, shape, fine, mtu: rest & 7, pattern: rest >> 3 & 7 }
    }

    fn of_frames(&mut self, code: u8) -> Operation<'a> {
        let which = self.byte();
        match code {
            32..=33 => Operation::Lose { which },
            34 => Operation::Double { which, later: self.byte() },
            35..=36 => Operation::Swap { which, other: self.byte() },
            37 => Operation::Flip { which, bit: self.choices.word() },
            38..=39 => Operation::Change { which, at: self.byte(), value: self.byte() },
            40 => Operation::Resize { which, len: self.byte() },
            41..=42 => {
                let shift = self.byte();
                Operation::Overlap { which, shift: shift & 0x7f, before: shift > 0x7f }
            }
            43 => Operation::Spoof { which, place: self.byte() },
            44 => Operation::Mark { which, ecn: self.byte() & 3 },
            45 => Operation::Replay { which },
            46..=47 => Operation::Foreign { kind: which, place: self.byte() },
            48 => Operation::Attack { kind: which, flow: self.byte() },
            _ => {
                let len = usize::from(self.byte() & 63);
                Operation::Inject { flow: which, bytes: self.choices.raw(len) }
            }
        }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        if self.choices.is_over() {
            return None;
        }
        Some(match self.byte() & 63 {
            0..=15 => Operation::Send(self.sending()),
            16..=31 => {
                let how = self.byte();
                Operation::Receive { count: how & 0x3f, lies: how & 0x40 != 0 }
            }
            code @ 32..=50 => self.of_frames(code),
            51..=54 => {
                let time = self.byte();
                Operation::Wait { quarters: (time & 7 != 7).then_some(time >> 3) }
            }
            55..=59 => {
                let how = self.byte();
                Operation::Release { count: how & 0x1f, newest_first: how & 0x80 != 0 }
            }
            _ => Operation::Settle,
        })
    }
}

// The configurations that are tried.

/// How many bytes choose a setup.
pub const CHOICES: usize = 4;

/// How a run is set up: four bytes of choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup([u8; CHOICES]);

impl Setup {
    /// Room for everything, pages of 4 KiB, and a predictor that learns.
    pub const PLAIN: Self = Self([0, 0x35, 0x20, 3]);
    /// The same with one flow and one shape: pages over UDP and IPv4.
    pub const PAPER: Self = Self([0, 0x33, 0x20, 1]);
    /// Nothing is guessed.
    pub const OFF: Self = Self([0, 0x35, 0x20, 0]);
    /// What lies somewhere is lent as a list.
    pub const LENT: Self = Self([0, 0x35, 0x60, 3]);
    /// The same, and nothing waits there from one call to the next.
    pub const LENT_AT_ONCE: Self = Self([0, 0x35, 0xe0, 3]);
    /// As few pages as can be configured, and a conventional path for four packets.
    pub const TIGHT: Self = Self([3, 0x31, 0x20, 3]);

    /// The same, with a user that keeps its packets.
    #[must_use]
    pub const fn lazy(self) -> Self {
        let Self([first, rest @ ..]) = self;
        Self([first | 4, rest[0], rest[1], rest[2]])
    }

    /// What these bytes choose; what is missing is zero.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut choices = [0; CHOICES];
        for (choice, byte) in choices.iter_mut().zip(bytes) {
            *choice = *byte;
        }
        Self(choices)
    }

    const fn has(self, bit: usize) -> bool {
        self.0[bit / 8] >> (bit % 8) & 1 == 1
    }

    /// Is there room for everything that a short run brings?
    #[must_use]
    pub const fn is_roomy(self) -> bool {
        !(self.has(0) && self.has(1))
    }

    /// Does the user keep packets until it is told to release some?
    #[must_use]
    pub const fn is_lazy(self) -> bool {
        self.has(2)
    }

    /// Do packets come out that are no fragments?
    #[must_use]
    pub const fn delivers_foreign(self) -> bool {
        !(self.has(3) && self.has(4))
    }

    /// May packets that are not complete wait where their frames lie?
    #[must_use]
    pub const fn keeps_bunches(self) -> bool {
        self.has(22) && !self.has(23)
    }

    /// The most frames of one burst.
    #[must_use]
    pub const fn burst(self) -> u16 {
        match self.0[1] & 7 {
            0 => 1,
            1 => 3,
            2 => 6,
            3 => 7,
            4 => 40,
            _ => 24,
        }
    }

    /// How long a packet is waited for.
    #[must_use]
    pub const fn lifetime(self) -> Duration {
        if self.has(11) { Duration::from_secs(1) } else { Duration::from_secs(30) }
    }

    const fn page_len(self) -> u32 {
        match self.0[1] >> 4 & 7 {
            0 => 8192,
            1 => 16_384,
            2 => 65_536,
            _ => 4096,
        }
    }

    /// How much memory there is.
    #[must_use]
    pub const fn sizes(self) -> Sizes {
        let slots = self.burst();
        // Fewer cannot be configured.
        let fewest = if slots > 2 { 4 * slots as u32 } else { 8 };
        let many = (12 << 20) / (self.page_len() + LEAD);
        let pages = if self.is_roomy() { fewest + many } else { fewest + (self.0[2] & 3) as u32 };
        let large = if self.is_roomy() { 64 } else { 1 + (self.0[2] >> 2 & 3) as u32 };
        Sizes { slots, pages, page_len: self.page_len(), large, frames: 1 << 20 }
    }

    /// What the receiver is told.
    #[must_use]
    pub fn config(self) -> Config {
        let sizes = self.sizes();
        let few = conventional::Config {
            packets: 4,
            bytes: 90_000,
            bytes_per_source: 66_000,
            lifetime: self.lifetime(),
            ..conventional::Config::default()
        };
        let many = conventional::Config {
            packets: 10_000,
            bytes: 1 << 30,
            bytes_per_source: 1 << 30,
            told_per_second: u32::MAX,
            ..few
        };
        let patience = match self.0[2] >> 4 & 3 {
            0 => Duration::ZERO,
            1 => Duration::from_secs(10),
            _ => Duration::from_millis(5),
        };
        Config {
            page_len: sizes.page_len,
            burst: sizes.slots,
            frame_max: LONGEST_FRAME,
            prediction: self.prediction(),
            patience,
            foreign: if self.delivers_foreign() { Foreign::Deliver } else { Foreign::Ignore },
            lists: 64,
            lend: if self.has(22) { Lend::List } else { Lend::Copy },
            reassembly: if self.is_roomy() { many } else { few },
        }
    }

    fn prediction(self) -> Prediction {
        // The page of the paper, over UDP and IPv4.
        let paper = Shape::new(
            3,
            HeadLens { first: 42, rest: 34 },
            PayloadLens { first: 1472, middle: 1480, last: 1144 },
        );
        match (self.0[3] & 7, paper) {
            (0, _) => Prediction::Off,
            (1, Some(shape)) => Prediction::Single(shape),
            (2, _) => Prediction::Learned { flows: 1 },
            _ => Prediction::default(),
        }
    }

    /// What the receiver draws its secrets from.
    #[must_use]
    pub fn seed(self) -> Seed {
        [self.0[3]; 32]
    }
}

/// Heads longer than this are nobody's.
const _: () = assert!(Head::MOST == super::naive::LONGEST_HEAD);
