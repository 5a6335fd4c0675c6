//! CUBIC (RFC 9438) in integers: the window as a function of time.
//!
//! `W(t) = C (t - K)^3 + W_max`, with `C` = 0.4 segments per cubic second and
//! the window multiplied by 0.7 at congestion. Here windows are bytes and times
//! milliseconds; no step can overflow 64 bits, as the comments at the steps show.
//!
//! HyStart++ (RFC 9406): leaves the first slow start when the delay grows, not
//! only when a whole window was lost.
//!
//! Section 4.3 limits growth to eight segments per acknowledgement where sends
//! are not paced; here nothing limits it, see the parent module.

use landfall_placement::{Duration, Instant};

use super::Progress;

/// The longest distance from the plateau that is told apart, in milliseconds.
/// There the function is above 3 million segments, beyond every window.
const FARTHEST_MS: u64 = 200_000;

/// The function that runs since the last congestion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Epoch {
    /// Time counted so far, in microseconds: only while the window was used.
    elapsed_us: u32,
    /// `W_max`: the plateau.
    plateau: u32,
    /// `K`: when the plateau is reached, in milliseconds.
    until_plateau_ms: u32,
    /// `W_est`: what Reno would have; 0 before the first acknowledgement.
    reno: u32,
    /// `cwnd_prior`: the window before the last congestion.
    prior: u32,
}

/// The state of CUBIC beside the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    epoch: Epoch,
    /// Until when time was counted.
    counted_until: Instant,
    /// What is left of a byte of `reno`, in parts of the window.
    reno_rest: u32,
    is_running: bool,
}

impl Cubic {
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Section 4.9: the congestion was none; its function goes on.
    pub(super) fn restore(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.is_running = epoch.reno != 0;
        self.reno_rest = 0;
    }

    /// The time up to `now` does not count: the window was not used (section 5.8).
    pub(super) fn pause(&mut self, now: Instant) {
        self.counted_until = now;
    }

    /// Sections 4.6 and 4.7: the new threshold, and a lower plateau when the
    /// last one was not reached again, which leaves room for a new flow.
    pub(super) fn on_congestion(&mut self, used: u32) -> u32 {
        let lower = scaled(used, 17, 20);
        self.epoch.plateau = if used < self.epoch.plateau { lower } else { used };
        self.epoch.prior = used;
        self.is_running = false;
        self.epoch.reno = 0;
        scaled(used, 7, 10)
    }

    /// Section 4.8: after a time-out the plateau is where slow start ends.
    pub(super) fn on_timeout(&mut self) {
        self.epoch.plateau = 0;
        self.is_running = false;
    }

    /// The window after `bytes` were acknowledged in congestion avoidance.
    pub(super) fn grow(
        &mut self,
        window: u32,
        mss: u32,
        bytes: u32,
        now: Instant,
        rtt: Duration,
    ) -> u32 {
        if !self.is_running {
            self.start(window, mss, now);
        }
        let passed = now.since(self.counted_until).as_micros();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.epoch.elapsed_us = self.epoch.elapsed_us.saturating_add(passed);
        self.counted_until = now;

        self.grow_reno(window, mss, bytes);
        let elapsed_us = u64::from(self.epoch.elapsed_us);
        if self.at(elapsed_us, mss) < u64::from(self.epoch.reno) {
            // Section 4.3: where Reno would be faster, be as fast.
            return window.max(self.epoch.reno);
        }
        // Sections 4.4 and 4.5: towards the value of one round trip ahead, but
        // by no more than half a window per round trip.
        let rtt_us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        let window = u64::from(window);
        let target = self.at(elapsed_us.saturating_add(rtt_us), mss);
        let target = target.clamp(window, window + window / 2);
        let share = u64::from(bytes).min(window);
        // Both factors are below 2^31.
        let grown = window + (target - window) * share / window;
        u32::try_from(grown).unwrap_or(u32::MAX)
    }

    /// The first acknowledgement of this congestion avoidance (section 4.2).
    fn start(&mut self, window: u32, mss: u32, now: Instant) {
        let epoch = &mut self.epoch;
        let missing = u64::from(epoch.plateau.saturating_sub(window));
        epoch.plateau = epoch.plateau.max(window);
        // K^3 = missing / C in seconds and segments; 2^30 * 2.5e9 is below 2^62.
        let cube = missing * 2_500_000_000 / u64::from(mss);
        epoch.until_plateau_ms = cube_root(cube);
        epoch.reno = window;
        epoch.elapsed_us = 0;
        self.counted_until = now;
        self.reno_rest = 0;
        self.is_running = true;
    }

    /// `W_est` of section 4.3: Reno with CUBIC's factor. It grows by 9/17 of a
    /// segment per window until the old window is reached, then by a whole one.
    fn grow_reno(&mut self, window: u32, mss: u32, bytes: u32) {
        let (part, whole) = if self.epoch.reno < self.epoch.prior { (9, 17) } else { (1, 1) };
        let window = u64::from(window);
        let share = u64::from(bytes).min(window);
        // 2^30 * 2^17 * 9 is below 2^63.
        let parts = share * u64::from(mss) * part / whole + u64::from(self.reno_rest);
        let grown = u64::from(self.epoch.reno) + parts / window;
        self.epoch.reno = u32::try_from(grown).unwrap_or(u32::MAX);
        self.reno_rest = u32::try_from(parts % window).unwrap_or(0);
    }

    /// The function at a time after its start, in bytes.
    fn at(&self, elapsed_us: u64, mss: u32) -> u64 {
        let plateau = u64::from(self.epoch.plateau);
        let (now, top) = (elapsed_us / 1_000, u64::from(self.epoch.until_plateau_ms));
        let distance = now.abs_diff(top).min(FARTHEST_MS);
        // 0.4 segments per 10^9 cubic milliseconds; 8e12 * 2^18 is below 2^62.
        let height = distance.pow(3) / 1_000 * u64::from(mss) * 4 / 10_000_000;
        if now < top { plateau.saturating_sub(height) } else { plateau + height }
    }
}

/// `value * part / whole`, for a part that is not more than the whole.
fn scaled(value: u32, part: u32, whole: u32) -> u32 {
    let exact = u64::from(value) * u64::from(part) / u64::from(whole);
    u32::try_from(exact).unwrap_or(u32::MAX)
}

/// The largest whole number whose cube is not above `value`.
fn cube_root(value: u64) -> u32 {
    let mut root = 0_u64;
    // The root of 2^64 has 22 bits; (2^22 - 1)^3 needs 66, hence the check.
    for bit in (0..22).rev() {
        let next = root | (1 << bit);
        if next.checked_pow(3).is_some_and(|cube| cube <= value) {
            root = next;
        }
    }
    u32::try_from(root).unwrap_or(u32::MAX)
}

/// `MIN_RTT_THRESH` and `MAX_RTT_THRESH`, in microseconds.
const THRESHOLD_US: (u32, u32) = (4_000, 16_000);
/// `MIN_RTT_DIVISOR`.
const THRESHOLD_PART: u32 = 8;
/// `N_RTT_SAMPLE`: this many samples make a round's least one credible.
const SAMPLES: u8 = 8;
/// `CSS_ROUNDS`: this many rounds of careful growth confirm the end.
const CAREFUL_ROUNDS: u8 = 5;
/// `CSS_GROWTH_DIVISOR`.
pub(super) const SLOWER_BY: u32 = 4;

const UNKNOWN: u32 = u32::MAX;

/// What the acknowledgement means for the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowStartStep {
    /// Slow start goes on.
    Grow,
    /// Conservative slow start: a quarter of it.
    GrowSlowly,
    /// Congestion avoidance begins at this window.
    Leave,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// The round ends when this position is acknowledged.
    round_end: u64,
    /// The least round trips of the last round and of this one.
    last_us: u32,
    current_us: u32,
    /// The least round trip when careful growth began.
    baseline_us: u32,
    samples: u8,
    /// Rounds of careful growth that are left, 0 in plain slow start.
    careful_rounds: u8,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            round_end: 0,
            last_us: UNKNOWN,
            current_us: UNKNOWN,
            baseline_us: UNKNOWN,
            samples: 0,
            careful_rounds: 0,
        }
    }
}

impl HyStart {
    /// Section 4.2, for each acknowledgement in slow start.
    pub(super) fn on_ack(&mut self, ack: &Progress) -> SlowStartStep {
        if ack.acknowledged > self.round_end && !self.start_round(ack.next) {
            return SlowStartStep::Leave;
        }
        if let Some(rtt) = ack.rtt {
            let rtt = u32::try_from(rtt.as_micros()).unwrap_or(UNKNOWN - 1);
            self.current_us = self.current_us.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        if self.careful_rounds > 0 { SlowStartStep::GrowSlowly } else { SlowStartStep::Grow }
    }

    /// Returns whether slow start goes on in the new round.
    fn start_round(&mut self, end: u64) -> bool {
        self.last_us = self.current_us;
        self.current_us = UNKNOWN;
        self.samples = 0;
        self.round_end = end;
        if self.careful_rounds == 0 {
            return true;
        }
        self.careful_rounds -= 1;
        self.careful_rounds > 0
    }

    fn judge(&mut self) {
        if self.careful_rounds > 0 {
            if self.current_us < self.baseline_us {
                // The delay fell again: the growth of it was an accident.
                self.baseline_us = UNKNOWN;
                self.careful_rounds = 0;
            }
        } else if self.last_us != UNKNOWN {
            let threshold = self.last_us / THRESHOLD_PART;
            let threshold = threshold.clamp(THRESHOLD_US.0, THRESHOLD_US.1);
            if self.current_us >= self.last_us.saturating_add(threshold) {
                self.baseline_us = self.current_us;
                self.careful_rounds = CAREFUL_ROUNDS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cube_root_is_the_largest_whole_one(value: u64) {
            let root = u128::from(cube_root(value));
            prop_assert!(root.pow(3) <= u128::from(value));
            prop_assert!((root + 1).pow(3) > u128::from(value));
        }

        #[test]
        fn no_input_overflows(
            plateau in 0_u32..=1 << 30, window in 1_u32..=1 << 30, mss in 1_u32..=1 << 16,
            bytes in 0_u32..=1 << 30, micros: u64, rtt in 0_u64..u64::MAX,
        ) {
            let mut cubic = Cubic::default();
            cubic.on_congestion(plateau);
            let grown = cubic.grow(window, mss, bytes, Instant::ZERO, Duration::from_micros(rtt));
            prop_assert!(grown >= window);
            let later = Instant::from_micros(micros);
            let again = cubic.grow(grown.min(1 << 30), mss, bytes, later, Duration::from_micros(rtt));
            prop_assert!(again >= grown.min(1 << 30));
        }
    }

    #[test]
    fn the_plateau_is_reached_after_k() {
        // RFC 9438, section 4.2: K = cbrt(W_max * 0.3 / 0.4); 1,000 segments
        // reduced to 700 give K = cbrt(750) = 9.086 s.
        let mut cubic = Cubic::default();
        let window = cubic.on_congestion(1_000_000);
        assert_eq!(window, 700_000);
        cubic.start(window, 1_000, Instant::ZERO);
        assert_eq!(cubic.epoch.until_plateau_ms, 9_085);
        let start = cubic.at(0, 1_000);
        assert!(start.abs_diff(700_000) < 200, "{start}");
        assert_eq!(cubic.at(9_085_000, 1_000), 1_000_000);
        // As far behind the plateau as it began before it.
        assert!(cubic.at(18_170_000, 1_000).abs_diff(1_300_000) < 200);
    }

    #[test]
    fn after_a_time_out_the_plateau_is_where_slow_start_ends() {
        // RFC 9438, section 4.8: K = 0.
        let mut cubic = Cubic::default();
        cubic.on_congestion(1_000_000);
        cubic.on_timeout();
        cubic.start(700_000, 1_000, Instant::ZERO);
        assert_eq!((cubic.epoch.plateau, cubic.epoch.until_plateau_ms), (700_000, 0));
    }

    #[test]
    fn small_acknowledgements_grow_the_reno_estimate_as_large_ones_do() {
        let mut cubic = Cubic::default();
        cubic.on_congestion(2_000_000);
        cubic.start(1_000_000, 1_000, Instant::ZERO);
        for _ in 0..10_000 {
            cubic.grow_reno(1_000_000, 1_000, 100);
        }
        // 9/17 of a segment for a whole window, less what ten thousand
        // divisions by 17 lose.
        assert!((1_000_528..=1_000_529).contains(&cubic.epoch.reno), "{}", cubic.epoch.reno);
    }

    #[test]
    fn fast_convergence_lowers_a_plateau_that_was_not_reached() {
        let mut cubic = Cubic::default();
        cubic.on_congestion(1_000_000);
        assert_eq!(cubic.epoch.plateau, 1_000_000);
        // RFC 9438, section 4.7: 900,000 * (1 + 0.7) / 2.
        cubic.on_congestion(900_000);
        assert_eq!(cubic.epoch.plateau, 765_000);
    }
}
