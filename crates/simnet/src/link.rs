//! What a link does to the frames that cross it.

use landfall_placement::Duration;

use crate::queue::TailDrop;

/// Names a link: two ways, one in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// The way from the node that was named first to the other.
    #[must_use]
    pub const fn there(self) -> DirectionId {
        DirectionId(self.0 * 2)
    }

    /// The way from the node that was named second to the other.
    #[must_use]
    pub const fn back(self) -> DirectionId {
        DirectionId(self.0 * 2 + 1)
    }
}

/// Names one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectionId(pub(crate) u32);

impl DirectionId {
    /// The link that it is a direction of.
    #[must_use]
    pub const fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }

    /// The other direction.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl core::fmt::Display for DirectionId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let direction = if self.0.is_multiple_of(2) { "there" } else { "back" };
        write!(f, "link {} {direction}", self.0 / 2)
    }
}

/// How often something happens, in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u32);

impl Probability {
    /// Not once.
    pub const NEVER: Self = Self(0);
    /// Each time.
    pub const ALWAYS: Self = Self(1_000_000);

    /// This many times in a hundred.
    #[must_use]
    pub const fn percent(percent: u32) -> Self {
        Self::per_million(percent.saturating_mul(10_000))
    }

    /// This many times in a million; more than a million means always.
    #[must_use]
    pub const fn per_million(parts: u32) -> Self {
        Self(if parts > 1_000_000 { 1_000_000 } else { parts })
    }

    /// In parts per million.
    #[must_use]
    pub const fn parts_per_million(self) -> u32 {
        self.0
    }
}

/// Which frames are lost on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability.
    Uniform(Probability),
    /// In bursts (the model of Gilbert and Elliott): before each frame the
    /// link may change between a good and a bad state, each with its own loss.
    Bursty {
        /// From good to bad.
        start: Probability,
        /// From bad to good; the mean length of a burst is its inverse.
        stop: Probability,
        /// Loss while it is good.
        good: Probability,
        /// Loss while it is bad.
        bad: Probability,
    },
}

impl Loss {
    /// Bursts of `length` frames on average in which everything is lost, so
    /// that in the long run about `share` of all frames are. A share of more
    /// than half cannot be kept to; it becomes half.
    #[must_use]
    pub fn bursts(share: Probability, length: u32) -> Self {
        let stop = 1_000_000 / length.max(1);
        let share = u64::from(share.0.min(500_000));
        // In balance, good × start = bad × stop, and bad is the share.
        let start = u64::from(stop) * share / (1_000_000 - share);
        Self::Bursty {
            start: Probability::per_million(start as u32),
            stop: Probability::per_million(stop),
            good: Probability::NEVER,
            bad: Probability::ALWAYS,
        }
    }
}

/// Some frames take longer, so that later ones overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reordering {
    /// How many.
    pub probability: Probability,
    /// By how much at most; each by a random part of it.
    pub extra_delay: Duration,
}

/// Some frames have bits flipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corruption {
    /// How many.
    pub probability: Probability,
    /// How many bits in each of them at most. One flipped bit is found by
    /// every checksum, several need not be.
    pub most_bits: u32,
}

/// What one direction of a link does to frames.
///
/// ```
/// use landfall_simnet::{LinkConfig, Loss, Probability};
/// use std::time::Duration;
///
/// let dsl = LinkConfig::new()
///     .rate(16_000_000)
///     .delay(Duration::from_millis(10))
///     .mtu(1492)
///     .queue_bytes(64 * 1024)
///     .loss(Loss::Uniform(Probability::percent(1)));
/// assert_eq!(dsl.mtu, 1492);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bits per second; `None` is as fast as one likes.
    pub rate: Option<u64>,
    /// Bytes that the medium adds to each frame while it is sent: on Ethernet
    /// 24 for preamble, checksum and gap.
    pub overhead: u32,
    /// From the last bit that leaves to the last bit that arrives, or from the first to the
    /// first.
    pub delay: Duration,
    /// The longest frame; longer ones are dropped.
    pub mtu: u32,
    /// The queue in front of the link.
    pub queue: TailDrop,
    /// Which frames are lost.
    pub loss: Loss,
    /// How many frames arrive twice.
    pub duplication: Probability,
    /// Which frames are overtaken.
    pub reordering: Reordering,
    /// Which frames are damaged.
    pub corruption: Corruption,
    /// The far end has a frame when its first bit arrives, not its last.
    pub heads_first: bool,
}

impl LinkConfig {
    /// A perfect link: no faults, no delay, any rate, frames of any length.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rate: None,
            overhead: 0,
            delay: Duration::ZERO,
            mtu: u32::MAX,
            queue: TailDrop::default(),
            loss: Loss::None,
            duplication: Probability::NEVER,
            reordering: Reordering::default(),
            corruption: Corruption::default(),
            heads_first: false,
        }
    }

    /// An Ethernet of `rate` bits per second: frames of 1514 bytes (without
    /// their checksum), the overhead of the medium, 1 µs of delay.
    #[must_use]
    pub fn ethernet(rate: u64) -> Self {
        Self {
            rate: Some(rate),
            overhead: 24,
            delay: Duration::from_micros(1),
            mtu: 1514,
            ..Self::new()
        }
    }

    /// Sends this many bits per second.
    #[must_use]
    pub fn rate(self, bits_per_second: u64) -> Self {
        Self { rate: Some(bits_per_second), ..self }
    }

    /// Takes so long from end to end.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Carries frames of up to this many bytes.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Has a queue of this many frames.
    #[must_use]
    pub fn queue_frames(self, frames: u32) -> Self {
        Self { queue: TailDrop { frames, ..self.queue }, ..self }
    }

    /// Has a queue of this many bytes.
    #[must_use]
    pub fn queue_bytes(self, bytes: u64) -> Self {
        Self { queue: TailDrop { bytes, ..self.queue }, ..self }
    }

    /// Loses frames.
    #[must_use]
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// Delivers some frames twice.
    #[must_use]
    pub fn duplication(self, duplication: Probability) -> Self {
        Self { duplication, ..self }
    }

    /// Delays some frames by up to `extra_delay`, so that others overtake them.
    #[must_use]
    pub fn reordering(self, probability: Probability, extra_delay: Duration) -> Self {
        Self { reordering: Reordering { probability, extra_delay }, ..self }
    }

    /// Flips one bit of some frames.
    #[must_use]
    pub fn corruption(self, probability: Probability) -> Self {
        Self { corruption: Corruption { probability, most_bits: 1 }, ..self }
    }

    /// Leads into a switch that cuts through: that has a frame when its first bit arrives,
    /// and the sender is busy with the others meanwhile.
    #[must_use]
    pub fn heads_first(self) -> Self {
        Self { heads_first: true, ..self }
    }

    /// How long a frame of `len` bytes takes to leave.
    #[must_use]
    pub fn sending_time(&self, len: usize) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let bits = (len as u128 + u128::from(self.overhead)) * 8;
        // Rounded up: a frame never leaves faster than the rate allows. A rate
        // of zero is a link on which nothing ever arrives.
        let nanos = (bits * 1_000_000_000).div_ceil(u128::from(rate).max(1));
        let nanos = if rate == 0 { u64::MAX } else { u64::try_from(nanos).unwrap_or(u64::MAX) };
        Duration::from_nanos(nanos)
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_take_the_time_that_the_rate_says() {
        let gigabit = LinkConfig::ethernet(1_000_000_000);
        assert_eq!(gigabit.sending_time(1514), Duration::from_nanos(12_304));
        assert_eq!(LinkConfig::new().sending_time(1 << 30), Duration::ZERO);
        assert_eq!(LinkConfig::new().rate(0).sending_time(1), Duration::from_nanos(u64::MAX));
        assert_eq!(LinkConfig::new().rate(7).sending_time(1), Duration::from_nanos(1_142_857_143));
    }

    #[test]
    fn ways_know_their_link_and_each_other() {
        let link = LinkId(21);
        assert_eq!((link.there().link(), link.back().link()), (link, link));
        assert_eq!(link.there().reverse(), link.back());
        assert_eq!(link.back().reverse(), link.there());
    }

    #[test]
    fn probabilities_stay_within_bounds() {
        assert_eq!(Probability::percent(u32::MAX), Probability::ALWAYS);
        assert_eq!(Probability::percent(3), Probability::per_million(30_000));
    }
}
