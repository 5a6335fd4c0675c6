//! The flow that others must be fair to: [`NewReno`].

use landfall_placement::{Duration, Instant};

use super::{Acknowledged, Control};

/// Slow start, congestion avoidance, one halving in each round trip with loss
/// or marks, and a start from one segment after silence (RFC 5681, RFC 6582
/// with selective acknowledgements, RFC 3168, RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewReno {
    segment: u64,
    window: u64,
    threshold: u64,
    /// Bytes acknowledged since the window grew last.
    credit: u64,
    /// The last halving: what was sent before tells nothing new.
    halved: Instant,
    /// How often it was halved.
    halvings: u64,
    smoothed: Option<Duration>,
    variation: Duration,
    backoff: u32,
    /// The time-out is never shorter; RFC 6298 has a second.
    pub least_timeout: Duration,
}

impl NewReno {
    /// For segments of so many bytes, ten of which may leave at once (RFC 6928).
    #[must_use]
    pub fn new(segment: u32) -> Self {
        let segment = u64::from(segment).max(1);
        Self {
            segment,
            window: 10 * segment,
            threshold: u64::MAX,
            credit: 0,
            halved: Instant::ZERO,
            halvings: 0,
            smoothed: None,
            variation: Duration::ZERO,
            backoff: 0,
            least_timeout: Duration::from_millis(200),
        }
    }

    /// How often loss or marks halved the window.
    #[must_use]
    pub const fn halvings(&self) -> u64 {
        self.halvings
    }

    fn measure(&mut self, rtt: Duration) {
        self.backoff = 0;
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation) = (Some(rtt), rtt / 2);
            return;
        };
        self.variation = (self.variation * 3 + rtt.abs_diff(smoothed)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    fn halve(&mut self, now: Instant, sent: Instant) {
        if sent >= self.halved {
            self.threshold = (self.window / 2).max(2 * self.segment);
            self.window = self.threshold;
            self.credit = 0;
            self.halved = now;
            self.halvings += 1;
        }
    }

    fn grow(&mut self, bytes: u64) {
        if self.window < self.threshold {
            self.window = self.window.saturating_add(bytes);
            return;
        }
        self.credit += bytes;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window = self.window.saturating_add(self.segment);
        }
    }
}

impl Control for NewReno {
    fn window(&self) -> u64 {
        self.window
    }

    fn timeout(&self) -> Duration {
        let once = self.smoothed.map_or(Duration::from_secs(1), |rtt| rtt + self.variation * 4);
        let backed_off = once.max(self.least_timeout) * (1 << self.backoff);
        backed_off.min(Duration::from_secs(60))
    }

    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged) {
        self.measure(now.since(segment.sent));
        if segment.marked {
            self.halve(now, segment.sent);
        } else if segment.sent >= self.halved {
            let is_used = segment.under_way.saturating_add(self.segment) >= self.window;
            if is_used || self.window < self.threshold {
                self.grow(segment.bytes);
            }
        }
    }

    fn handle_lost(&mut self, now: Instant, sent: Instant, _bytes: u64) {
        self.halve(now, sent);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.backoff == 0 {
            self.threshold = (self.window / 2).max(2 * self.segment);
        }
        self.backoff = (self.backoff + 1).min(16);
        self.window = self.segment;
        self.credit = 0;
        self.halved = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1_000;

    /// Acknowledges a whole window, sent `at`, in the round trip after it.
    fn round(reno: &mut NewReno, at: Instant, marked: bool) -> Instant {
        let (window, now) = (reno.window, at + Duration::from_millis(10));
        for _ in 0..window / u64::from(SEGMENT) {
            let bytes = u64::from(SEGMENT);
            reno.handle_acknowledged(
                now,
                &Acknowledged { bytes, sent: at, marked, under_way: window },
            );
        }
        now
    }

    #[test]
    fn it_doubles_until_it_halves_and_then_adds_one() {
        let mut reno = NewReno::new(SEGMENT);
        let now = round(&mut reno, Instant::ZERO, false);
        assert_eq!(reno.window(), 20_000);
        reno.handle_lost(now, now, 1_000);
        reno.handle_lost(now, Instant::ZERO, 1_000);
        assert_eq!((reno.window(), reno.halvings()), (10_000, 1), "once in a round trip");
        let now = round(&mut reno, now, false);
        assert_eq!(reno.window(), 11_000);
        let now = round(&mut reno, now, true);
        assert_eq!((reno.window(), reno.halvings()), (5_500, 2), "marks count like losses");
        reno.handle_timeout(now);
        assert_eq!((reno.window(), reno.threshold), (1_000, 2_750));
    }

    #[test]
    fn silence_doubles_the_timeout() {
        let mut reno = NewReno::new(SEGMENT);
        round(&mut reno, Instant::ZERO, false);
        let once = reno.timeout();
        reno.handle_timeout(Instant::ZERO);
        reno.handle_timeout(Instant::ZERO);
        assert_eq!(reno.timeout(), once * 4);
        (0..100).for_each(|_| reno.handle_timeout(Instant::ZERO));
        assert_eq!(reno.timeout(), Duration::from_secs(60));
    }
}
