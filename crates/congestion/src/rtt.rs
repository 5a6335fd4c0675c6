//! Round trips: smoothed, their variation, the shortest, and the time-out (RFC 6298).

use landfall_placement::{Duration, Instant};

use crate::config::Config;
use crate::ticks::Ticks;

/// What is known of the round trips of a path.
///
/// A round trip is from the moment that bytes were sent (or, where a receiver
/// grants them, from the grant) to the moment that they were known to have
/// arrived. Times are kept in steps of 64 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttEstimator {
    smoothed: Ticks,
    variation: Ticks,
    /// The shortest of this epoch and of the one before: a route that became
    /// longer is believed after two epochs.
    least: Ticks,
    least_before: Ticks,
    epoch: u16,
    backoff: u8,
}

/// 2^33 ns, about 8.6 s: BBR looks for the shortest round trip of 10 s.
const EPOCH_SHIFT: u32 = 33;

/// Enough doublings to reach any longest time-out.
const MOST_BACKOFF: u8 = 24;

impl RttEstimator {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            smoothed: Ticks::NONE,
            variation: Ticks::NONE,
            least: Ticks::NONE,
            least_before: Ticks::NONE,
            epoch: 0,
            backoff: 0,
        }
    }

    /// A round trip was measured: something that was sent then is known to
    /// have arrived. Not for bytes that were sent twice, as nobody knows which
    /// of the two arrived (Karn's rule).
    pub fn handle_sample(&mut self, now: Instant, sent: Instant) {
        let sample = Ticks::between(sent, now);
        if self.smoothed.is_none() {
            // RFC 6298, 2.2.
            (self.smoothed, self.variation) = (sample, Ticks(sample.0 / 2));
        } else {
            // RFC 6298, 2.3: first the variation, with the smoothed time of before.
            let error = sample.0.abs_diff(self.smoothed.0);
            self.variation = Ticks(moved(self.variation.0, error, 4));
            self.smoothed = Ticks(moved(self.smoothed.0, sample.0, 8).max(1));
        }
        self.backoff = 0;
        let epoch = (now.as_nanos() >> EPOCH_SHIFT) as u16;
        if epoch != self.epoch {
            let is_next = epoch == self.epoch.wrapping_add(1);
            self.least_before = if is_next { self.least } else { Ticks::NONE };
            self.least = Ticks::NONE;
            self.epoch = epoch;
        }
        self.least = self.least.least(sample);
    }

    /// Nothing came for a whole time-out: the next one is twice as long.
    pub fn handle_timeout(&mut self) {
        self.backoff = self.backoff.saturating_add(1).min(MOST_BACKOFF);
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn smoothed(&self) -> Option<Duration> {
        (!self.smoothed.is_none()).then(|| self.smoothed.duration())
    }

    /// How much round trips vary.
    #[must_use]
    pub fn variation(&self) -> Option<Duration> {
        (!self.smoothed.is_none()).then(|| self.variation.duration())
    }

    /// The shortest round trip of the last 9 to 17 seconds: what the path
    /// takes when no queue stands in it.
    #[must_use]
    pub fn shortest(&self) -> Option<Duration> {
        let base = self.base();
        (!base.is_none()).then(|| base.duration())
    }

    /// How long to wait before what was sent counts as lost (RFC 6298, 2).
    #[must_use]
    pub fn timeout(&self, config: &Config) -> Duration {
        let (least, most) = (config.min_timeout, config.max_timeout.max(config.min_timeout));
        let once = self.smoothed().map_or(config.initial_timeout, |smoothed| {
            smoothed.saturating_add(self.variation.duration().saturating_mul(4))
        });
        once.max(least).saturating_mul(1 << self.backoff).clamp(least, most)
    }

    /// How many time-outs there were since the last round trip.
    #[must_use]
    pub const fn backoff(&self) -> u8 {
        self.backoff
    }

    pub(crate) const fn smoothed_ticks(&self) -> Ticks {
        self.smoothed
    }

    pub(crate) fn base(&self) -> Ticks {
        self.least.least(self.least_before)
    }
}

/// `old` moved towards `new` by one part in `parts`, rounded away from `old`,
/// so that it gets there.
fn moved(old: u32, new: u32, parts: u32) -> u32 {
    let step = old.abs_diff(new).div_ceil(parts);
    if new > old { old + step } else { old - step }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: Config = Config::new(1_000);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A round trip that ends at this many milliseconds, counted from late enough.
    fn sample(rtt: &mut RttEstimator, millis: u64, took: Duration) {
        let now = Instant::from_millis((1 << 33) / 1_000_000 * 100 + millis);
        rtt.handle_sample(now, now - took);
    }

    /// Equal but for the steps in which times are kept.
    fn assert_close(a: Option<Duration>, b: Duration) {
        let a = a.expect("measured");
        assert!(a.abs_diff(b) <= Duration::from_nanos(256), "{a:?}, not {b:?}");
    }

    #[test]
    fn the_first_samples_count_as_rfc_6298_says() {
        let mut rtt = RttEstimator::new();
        assert_eq!((rtt.smoothed(), rtt.shortest()), (None, None));
        assert_eq!(rtt.timeout(&CONFIG), Duration::from_secs(1));
        sample(&mut rtt, 1, ms(80));
        assert_close(rtt.smoothed(), ms(80));
        assert_close(rtt.variation(), ms(40));
        assert_close(Some(rtt.timeout(&CONFIG)), ms(240));
        sample(&mut rtt, 2, ms(160));
        assert_close(rtt.variation(), ms(50));
        assert_close(rtt.smoothed(), ms(90));
        assert_close(rtt.shortest(), ms(80));
    }

    #[test]
    fn each_silence_doubles_the_timeout_up_to_its_bound_and_a_sample_ends_that() {
        let mut rtt = RttEstimator::new();
        sample(&mut rtt, 0, ms(10));
        let once = rtt.timeout(&CONFIG);
        rtt.handle_timeout();
        rtt.handle_timeout();
        assert_eq!(rtt.timeout(&CONFIG), once * 4);
        for _ in 0..1_000 {
            rtt.handle_timeout();
        }
        assert_eq!(rtt.timeout(&CONFIG), CONFIG.max_timeout);
        sample(&mut rtt, 0, ms(10));
        assert!(rtt.timeout(&CONFIG) <= once);
    }

    #[test]
    fn a_longer_route_is_believed_after_two_epochs() {
        let mut rtt = RttEstimator::new();
        let mut at = |seconds: u64, took| {
            sample(&mut rtt, 1_000 * seconds, ms(took));
            rtt.shortest().unwrap().as_micros().div_ceil(1_000)
        };
        assert_eq!(at(1, 20), 20);
        assert_eq!(at(9, 50), 20, "one epoch later");
        assert_eq!(at(18, 50), 50, "two epochs later");
        assert_eq!(at(100, 90), 90, "after a long silence");
    }

    proptest! {
        #[test]
        fn estimates_stay_between_the_samples(samples in prop::collection::vec(any::<u64>(), 1..200)) {
            let mut rtt = RttEstimator::new();
            for (n, sample) in samples.iter().enumerate() {
                let now = Instant::from_nanos(*sample).max(Instant::from_millis(n as u64));
                rtt.handle_sample(now, now - Duration::from_nanos(*sample));
            }
            let most = Ticks(u32::MAX).duration();
            let clamped = |n: &u64| Duration::from_nanos(*n).clamp(Ticks(1).duration(), most);
            let least = samples.iter().map(clamped).min().unwrap();
            let longest = samples.iter().map(clamped).max().unwrap();
            let smoothed = rtt.smoothed().unwrap() + Ticks(1).duration();
            prop_assert!(least <= smoothed && rtt.smoothed().unwrap() <= longest);
            let timeout = rtt.timeout(&CONFIG);
            prop_assert!(CONFIG.min_timeout <= timeout && timeout <= CONFIG.max_timeout);
        }
    }
}
