//! The round trip and the retransmission time-out (RFC 6298).
//!
//! Which round trips may be measured (never those of data sent twice, except by
//! timestamps: Karn's rule, RFC 7323) is the caller's knowledge.

use landfall_placement::{Duration, Instant};

/// The time-out before the first measurement (RFC 6298, rule 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// After a lost SYN, data begins with this time-out (rule 5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// The least round trip is that of one to two such spans.
const LEAST_SPAN: Duration = Duration::from_secs(150);

const UNKNOWN: u64 = u64::MAX;

/// The bounds of the retransmission time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeoutLimits {
    /// The least time-out. RFC 6298, rule 2.4, says a second; every large
    /// system uses less, Linux 200 ms.
    pub(crate) least: Duration,
    /// The largest, also after doubling (rule 2.5: not below 60 s).
    pub(crate) most: Duration,
}

impl Default for TimeoutLimits {
    fn default() -> Self {
        Self { least: Duration::from_millis(200), most: Duration::from_secs(120) }
    }
}

/// The round trip of one connection, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    smoothed: u64,
    variation: u64,
    /// The least sample since `span_start`, and in the span before.
    least: u64,
    least_before: u64,
    span_start: Instant,
    /// How often the time-out was doubled.
    doubled: u8,
    is_syn_lost: bool,
}

impl Default for RoundTrip {
    fn default() -> Self {
        Self {
            smoothed: UNKNOWN,
            variation: 0,
            least: UNKNOWN,
            least_before: UNKNOWN,
            span_start: Instant::ZERO,
            doubled: 0,
            is_syn_lost: false,
        }
    }
}

impl RoundTrip {
    /// A round trip was measured. `samples` is how many of them one round trip
    /// brings, at least one: RFC 7323, appendix G, weakens each accordingly, so
    /// that the memory stays as long as RFC 6298 wants it.
    pub(crate) fn sample(&mut self, now: Instant, rtt: Duration, samples: u64) {
        let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(UNKNOWN - 1).clamp(1, UNKNOWN >> 8);
        let samples = samples.clamp(1, 1 << 20);
        self.doubled = 0;
        self.keep_least(now, rtt);
        if self.smoothed == UNKNOWN {
            // Rule 2.2.
            self.smoothed = rtt;
            self.variation = rtt / 2;
            return;
        }
        // Rule 2.3, with 1/4 and 1/8.
        let error = self.smoothed.abs_diff(rtt);
        self.variation = towards(self.variation, error, 4 * samples);
        self.smoothed = towards(self.smoothed, rtt, 8 * samples);
    }

    fn keep_least(&mut self, now: Instant, rtt: u64) {
        if now.since(self.span_start) >= LEAST_SPAN {
            self.least_before = self.least;
            self.least = UNKNOWN;
            self.span_start = now;
        }
        self.least = self.least.min(rtt);
    }

    /// The smoothed round trip, once there is one.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        (self.smoothed != UNKNOWN).then(|| Duration::from_nanos(self.smoothed))
    }

    /// The least round trip of the last minutes.
    pub(crate) fn least(&self) -> Option<Duration> {
        let least = self.least.min(self.least_before);
        (least != UNKNOWN).then(|| Duration::from_nanos(least))
    }

    /// The time-out as it stands, doubled as often as it ran out.
    pub(crate) fn timeout(&self, limits: &TimeoutLimits) -> Duration {
        let base = match self.smoothed() {
            None if self.is_syn_lost => AFTER_LOST_SYN,
            None => INITIAL,
            // The floor is put under the variation and not under the sum, as
            // Linux does: a steady path of 250 ms would else get a time-out
            // that the first late acknowledgement exceeds.
            Some(smoothed) => {
                let variation = Duration::from_nanos(self.variation.saturating_mul(4));
                smoothed.saturating_add(variation.max(limits.least))
            }
        };
        base.saturating_mul(1 << u32::from(self.doubled.min(20))).min(limits.most)
    }

    /// The timer ran out (rule 5.5).
    pub(crate) fn back_off(&mut self) {
        self.doubled = self.doubled.saturating_add(1);
    }

    /// How often it ran out since the path worked.
    pub(crate) const fn time_outs(&self) -> u8 {
        self.doubled
    }

    /// New data was acknowledged: the path works. (A sample says so by itself.)
    pub(crate) fn end_back_off(&mut self) {
        self.doubled = 0;
    }

    /// A connection is there whose SYN had to be sent again (rule 5.7).
    pub(crate) fn syn_was_lost(&mut self) {
        self.is_syn_lost = true;
        self.doubled = 0;
    }
}

/// `value`, moved by one part of its distance to `goal`.
fn towards(value: u64, goal: u64, parts: u64) -> u64 {
    if goal >= value { value + (goal - value) / parts } else { value - (value - goal) / parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: TimeoutLimits =
        TimeoutLimits { least: Duration::from_millis(200), most: Duration::from_secs(60) };
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_first_time_out_is_a_second_and_doubles_up_to_the_bound() {
        // RFC 6298, rules 2.1, 5.5 and 2.5.
        let mut rtt = RoundTrip::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(rtt.timeout(&LIMITS), Duration::from_secs(seconds));
            rtt.back_off();
        }
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(&LIMITS), Duration::from_secs(60));
    }

    #[test]
    fn the_first_sample_and_the_following() {
        // Rule 2.2: SRTT = R, RTTVAR = R / 2, RTO = SRTT + 4 * RTTVAR.
        let mut rtt = RoundTrip::default();
        rtt.sample(Instant::ZERO, MS(800), 1);
        assert_eq!(rtt.smoothed(), Some(MS(800)));
        assert_eq!(rtt.timeout(&LIMITS), MS(2_400));
        // Rule 2.3: RTTVAR = 3/4 * 400 + 1/4 * 400 = 400, SRTT = 7/8 * 800 + 1/8 * 1200.
        rtt.sample(Instant::ZERO, MS(1_200), 1);
        assert_eq!(rtt.smoothed(), Some(MS(850)));
        assert_eq!(rtt.timeout(&LIMITS), MS(2_450));
    }

    #[test]
    fn a_steady_path_keeps_the_least_distance() {
        let mut rtt = RoundTrip::default();
        for _ in 0..200 {
            rtt.sample(Instant::ZERO, MS(30), 1);
        }
        assert_eq!(rtt.timeout(&LIMITS), MS(230));
    }

    #[test]
    fn many_samples_per_round_trip_weigh_less() {
        // RFC 7323, appendix G.
        let mut rtt = RoundTrip::default();
        rtt.sample(Instant::ZERO, MS(80), 1);
        rtt.sample(Instant::ZERO, MS(160), 10);
        assert_eq!(rtt.smoothed(), Some(MS(81)));
    }

    #[test]
    fn a_sample_or_progress_ends_the_back_off() {
        let mut rtt = RoundTrip::default();
        rtt.back_off();
        rtt.sample(Instant::ZERO, MS(100), 1);
        assert_eq!(rtt.timeout(&LIMITS), MS(300));
        rtt.back_off();
        assert_eq!(rtt.timeout(&LIMITS), MS(600));
        rtt.end_back_off();
        assert_eq!(rtt.timeout(&LIMITS), MS(300));
    }

    #[test]
    fn after_a_lost_syn_data_begins_with_three_seconds() {
        // Rule 5.7.
        let mut rtt = RoundTrip::default();
        rtt.back_off();
        rtt.syn_was_lost();
        assert_eq!(rtt.timeout(&LIMITS), Duration::from_secs(3));
    }

    #[test]
    fn the_least_round_trip_is_forgotten_after_a_while() {
        let mut rtt = RoundTrip::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        rtt.sample(at(0), MS(10), 1);
        rtt.sample(at(160), MS(50), 1);
        assert_eq!(rtt.least(), Some(MS(10)));
        rtt.sample(at(320), MS(60), 1);
        assert_eq!(rtt.least(), Some(MS(50)));
    }

    proptest! {
        #[test]
        fn the_time_out_stays_in_its_bounds(
            samples in prop::collection::vec((0_u64..u64::MAX, 0_u64..1_000), 0..40),
            doubled in 0..30,
        ) {
            let mut rtt = RoundTrip::default();
            for (nanos, count) in samples {
                rtt.sample(Instant::from_nanos(nanos), Duration::from_nanos(nanos), count);
            }
            for _ in 0..doubled {
                rtt.back_off();
            }
            let timeout = rtt.timeout(&LIMITS);
            prop_assert!(timeout >= LIMITS.least && timeout <= LIMITS.most);
        }
    }
}
