//! A token bucket that may go into debt.

use landfall_placement::{Duration, Instant};

const SECOND: i128 = 1_000_000_000;

/// Gives bytes at a steady rate, up to a burst.
///
/// What is in the bucket says whether something may be sent, not how long it may be: a
/// packet longer than the burst passes, and its debt is paid before the next one. So
/// no size of burst can stop a packet for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    /// Bytes per second.
    rate: u64,
    /// In bytes × seconds / 10⁹, so that no fraction is lost.
    burst: i128,
    level: i128,
    at: Instant,
}

impl Throttle {
    /// A full bucket.
    pub(super) fn new(rate: u64, burst: u32) -> Self {
        let burst = i128::from(burst) * SECOND;
        Self { rate, burst, level: burst, at: Instant::ZERO }
    }

    fn level(&self, now: Instant) -> i128 {
        let gained = i128::from(now.since(self.at).as_nanos() as u64) * i128::from(self.rate);
        self.burst.min(self.level.saturating_add(gained))
    }

    /// How many bytes are in it: while there are any, a packet may be sent.
    pub(super) fn bytes(&self, now: Instant) -> u64 {
        let bytes = self.level(now).div_euclid(SECOND);
        u64::try_from(bytes).unwrap_or(0)
    }

    /// When there is at least one byte in it.
    pub(super) fn open_at(&self, now: Instant) -> Instant {
        let missing = SECOND - self.level(now);
        if missing <= 0 {
            return now;
        }
        let nanos = missing.unsigned_abs().div_ceil(u128::from(self.rate).max(1));
        now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// So many bytes were sent.
    pub(super) fn take(&mut self, now: Instant, bytes: u64) {
        self.level = self.level(now).saturating_sub(i128::from(bytes) * SECOND);
        self.at = self.at.max(now);
    }
}

// How many bytes were sent of late.

/// A window is counted in so many parts.
const PARTS: usize = 8;

/// One more than the parts: a window may begin within one.
const COUNTERS: usize = PARTS + 1;

/// Counts bytes over a window that moves in steps of an eighth of its length.
///
/// It counts a whole window and up to an eighth more, so that no window with too many
/// bytes is missed, wherever it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    part: Duration,
    /// The number of the part that `bytes[0]` counts.
    newest: u64,
    bytes: [u64; COUNTERS],
    last: Option<Instant>,
}

impl Meter {
    pub(super) fn new(window: Duration) -> Self {
        let part = (window / PARTS as u32).max(Duration::from_nanos(1));
        Self { part, newest: 0, bytes: [0; COUNTERS], last: None }
    }

    /// So many bytes were sent; gives how many within the last window.
    pub(super) fn count(&mut self, now: Instant, bytes: u64) -> u64 {
        let part = now.as_nanos() / self.part.as_nanos().max(1) as u64;
        let steps = part.saturating_sub(self.newest).min(COUNTERS as u64) as usize;
        self.bytes.rotate_right(steps % COUNTERS);
        self.bytes[..steps].fill(0);
        self.newest = self.newest.max(part);
        self.bytes[0] = self.bytes[0].saturating_add(bytes);
        self.last = Some(now);
        self.bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// When something was sent last.
    pub(super) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.bytes = [0; COUNTERS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_longer_than_the_burst_passes_and_is_paid_for() {
        let mut throttle = Throttle::new(1_000, 10);
        let start = Instant::from_millis(5);
        assert_eq!((throttle.bytes(start), throttle.open_at(start)), (10, start));
        throttle.take(start, 110);
        assert_eq!(throttle.bytes(start), 0);
        // 100 bytes of debt and one to be open, at a byte each millisecond.
        let open = throttle.open_at(start);
        assert_eq!(open, Instant::from_millis(5 + 101));
        assert_eq!(throttle.bytes(open - Duration::from_nanos(1)), 0);
        assert_eq!(throttle.bytes(open), 1);
        assert_eq!(throttle.bytes(Instant::FAR_FUTURE), 10, "no more than the burst");
    }

    #[test]
    fn in_the_long_run_it_is_the_rate() {
        let mut throttle = Throttle::new(2_000_003, 16_384);
        let (mut now, mut sent) = (Instant::ZERO, 0);
        while now < Instant::from_millis(10_000) {
            now = throttle.open_at(now);
            throttle.take(now, 4_096);
            sent += 4_096;
        }
        let most = 20_000_030 + 16_384 + 2 * 4_096;
        assert!((20_000_030..=most).contains(&sent), "{sent}");
    }

    #[test]
    fn no_numbers_overflow() {
        let mut throttle = Throttle::new(u64::from(u32::MAX) * 1_000, u32::MAX);
        for now in [Instant::FAR_FUTURE, Instant::ZERO] {
            throttle.take(now, u64::MAX);
            assert_eq!(throttle.bytes(now), 0);
            assert!(throttle.open_at(now) >= now);
        }
    }

    #[test]
    fn it_counts_a_window_and_at_most_an_eighth_more() {
        let window = Duration::from_millis(8);
        for start in 0..20 {
            let start = Instant::from_micros(start * 137);
            let mut meter = Meter::new(window);
            assert_eq!(meter.count(start, 5), 5);
            assert_eq!(meter.count(start + window, 7), 12, "within one window");
            let later = start + window + Duration::from_millis(9);
            assert_eq!(meter.count(later, 1), 1, "both are too long ago");
        }
    }

    #[test]
    fn time_that_stands_still_or_leaps_is_counted() {
        let mut meter = Meter::new(Duration::from_nanos(1));
        assert_eq!(meter.count(Instant::ZERO, u64::MAX), u64::MAX);
        assert_eq!(meter.count(Instant::ZERO, 1), u64::MAX);
        assert_eq!(meter.count(Instant::FAR_FUTURE, 3), 3);
        assert_eq!(meter.last(), Some(Instant::FAR_FUTURE));
        meter.clear();
        assert_eq!(meter.count(Instant::FAR_FUTURE, 4), 4);
    }
}
