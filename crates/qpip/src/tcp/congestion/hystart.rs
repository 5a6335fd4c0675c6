//! HyStart++ (RFC 9406): leaves the first slow start when the delay grows, not
//! only when a whole window was lost.
//!
//! Section 4.3 limits growth to eight segments per acknowledgement where sends
//! are not paced; here nothing limits it, see the parent module.

use super::Progress;

/// `MIN_RTT_THRESH` and `MAX_RTT_THRESH`, in microseconds.
const THRESHOLD_US: (u32, u32) = (4_000, 16_000);
/// `MIN_RTT_DIVISOR`.
const THRESHOLD_PART: u32 = 8;
/// `N_RTT_SAMPLE`: so many samples make a round's least one credible.
const SAMPLES: u8 = 8;
/// `CSS_ROUNDS`: so many rounds of careful growth confirm the end.
const CAREFUL_ROUNDS: u8 = 5;
/// `CSS_GROWTH_DIVISOR`.
pub(super) const SLOWER_BY: u32 = 4;

const UNKNOWN: u32 = u32::MAX;

/// What the acknowledgement means for the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
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
    pub(super) fn on_ack(&mut self, ack: &Progress) -> Verdict {
        if ack.acknowledged > self.round_end && !self.start_round(ack.next) {
            return Verdict::Leave;
        }
        if let Some(rtt) = ack.rtt {
            let rtt = u32::try_from(rtt.as_micros()).unwrap_or(UNKNOWN - 1);
            self.current_us = self.current_us.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        if self.careful_rounds > 0 { Verdict::GrowSlowly } else { Verdict::Grow }
    }

    /// Gives whether slow start goes on in the new round.
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
