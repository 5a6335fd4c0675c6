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
}
