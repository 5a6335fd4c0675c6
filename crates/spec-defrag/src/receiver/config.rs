//! What a receiver is told at its beginning, and what it counts.

use landfall_placement::{Area, Duration};
use thiserror::Error;

use crate::buffers::{Buffers, LARGE};
use crate::memory::HEAD_SLOT;
use crate::predict::Prediction;
use crate::reassembly;

/// What happens to frames that are no IP fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Foreign {
    /// They come out as they came, at the cost of a copy.
    #[default]
    Deliver,
    /// They are counted. For a receiver beside an IP stack that has them anyway.
    Ignore,
}

/// How frames that lie somewhere already are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lend {
    /// Joined in a page.
    #[default]
    Copy,
    /// As a list of where the pieces lie, if all came together and in order: else
    /// joined in a page.
    List,
}

/// The configuration of a receiver.
#[derive(Clone, Debug)]
pub struct Config {
    /// The length of a page: of the body of a packet that is worth to be guessed for.
    pub page_len: u32,
    /// The most descriptors that are posted at once.
    pub burst: u16,
    /// The longest frame that arrives.
    pub frame_max: u32,
    /// How it is guessed what comes next.
    pub prediction: Prediction,
    /// How long a packet that was begun in a page may take there. After that the
    /// conventional path waits for the rest.
    pub patience: Duration,
    /// What happens to frames that are no fragments.
    pub foreign: Foreign,
    /// How frames are delivered that lie somewhere already.
    pub lend: Lend,
    /// The most lists that are lent at once.
    pub lists: u16,
    /// The bounds of the conventional path. It gets half of the pages at most.
    pub reassembly: reassembly::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            page_len: 4096,
            burst: 96,
            frame_max: 65_535 + 18,
            prediction: Prediction::default(),
            patience: Duration::from_millis(5),
            foreign: Foreign::default(),
            lend: Lend::default(),
            lists: 1024,
            reassembly: reassembly::Config::default(),
        }
    }
}

/// The most descriptors of one list.
pub const MOST_BURST: u16 = 1024;

/// The memory of a receiver: registered by its driver, named by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// The pages: [`Buffers::bytes_needed`] for as many as there shall be.
    pub pages: Area,
    /// The large buffers, for packets and frames that are longer than a page.
    pub large: Area,
    /// The head slots: [`HEAD_SLOT`] bytes for each descriptor.
    pub heads: Area,
    /// The spill slots: `frame_max` bytes for each descriptor.
    pub spill: Area,
}

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not a page.
    #[error("page_len is {0}: use a multiple of 4096 from 4096 to {LARGE}")]
    PageLen(u32),
    /// No descriptors, or too many.
    #[error("burst is {0}: use 1 to {MOST_BURST} descriptors")]
    Burst(u16),
    /// Too few pages for the list.
    #[error("there is room for {pages} pages: make the area longer, {needed} or more are needed")]
    Pages {
        /// So many there are.
        pages: usize,
        /// Two for each descriptor, and as many for the conventional path.
        needed: usize,
    },
    /// An area is too short.
    #[error("the area of {what} has {len} bytes: {needed} are needed")]
    Area {
        /// Which one.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The length that is needed.
        needed: u64,
    },
}

impl Config {
    pub(super) fn check(&self, areas: &Areas, buffers: &Buffers) -> Result<(), ConfigError> {
        if !(4096..=LARGE).contains(&self.page_len) || !self.page_len.is_multiple_of(4096) {
            return Err(ConfigError::PageLen(self.page_len));
        }
        if !(1..=MOST_BURST).contains(&self.burst) {
            return Err(ConfigError::Burst(self.burst));
        }
        let (pages, needed) = (buffers.free_pages(), (4 * usize::from(self.burst)).max(8));
        if pages < needed {
            return Err(ConfigError::Pages { pages, needed });
        }
        let slots = u64::from(self.burst);
        for (what, area, each) in
            [("heads", areas.heads, HEAD_SLOT), ("spill", areas.spill, self.frame_max)]
        {
            let needed = slots * u64::from(each);
            if area.len < needed {
                return Err(ConfigError::Area { what, len: area.len, needed });
            }
        }
        Ok(())
    }
}

/// Frames and packets since the beginning. Refused frames are counted by reason, in
/// `Receiver::refusals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames that arrived.
    pub frames: u64,
    /// Frames whose payload had landed where it belongs.
    pub in_place: u64,
    /// Frames for which a place was guessed, and which were not what belongs there.
    pub astray: u64,
    /// Packets that were joined without a copy.
    pub speculated: u64,
    /// Packets that were begun in a page, and given to the conventional path.
    pub broken: u64,
    /// Packets that the conventional path joined.
    pub conventional: u64,
    /// Packets that were lent as a list.
    pub lent: u64,
    /// Frames that came out as they came.
    pub whole: u64,
    /// Frames that were no fragments and not delivered, as configured.
    pub ignored: u64,
    /// Bytes of payload that were copied.
    pub bytes_copied: u64,
}
