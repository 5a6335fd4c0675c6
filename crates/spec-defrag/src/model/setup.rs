//! The configurations that are tried.

use landfall_placement::{Duration, Seed};

use super::memory::{LONGEST_FRAME, Sizes};
use crate::buffers::LEAD;
use crate::packet::Head;
use crate::predict::Prediction;
use crate::reassembly;
use crate::receiver::{Config, Foreign, Lend};
use crate::shape::Shape;

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
        let few = reassembly::Config {
            packets: 4,
            bytes: 90_000,
            bytes_per_source: 66_000,
            lifetime: self.lifetime(),
            ..reassembly::Config::default()
        };
        let many = reassembly::Config {
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
        let paper = Shape::new(3, (42, 34), (1472, 1480, 1144));
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
const _: () = assert!(Head::MOST == super::read::LONGEST_HEAD);
