//! The window of CUBIC as RFC 9438 has it, in floating point and nothing but: what ours is
//! compared with. And what its equations say of it.

use std::time::Duration;

use landfall_placement::Instant;
use landfall_simnet::traffic::{Acknowledged, Control};

/// RFC 9438, 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// CUBIC with fast convergence and without HyStart, in segments.
#[derive(Debug)]
pub(crate) struct Cubic {
    segment: f64,
    window: f64,
    threshold: f64,
    /// The window before the last decrease, and what it was right after it.
    most: f64,
    /// What a window of Reno would be (4.3).
    reno: f64,
    /// When congestion avoidance began last.
    epoch: Instant,
    round: Duration,
}

impl Cubic {
    pub(crate) fn new(segment: u32) -> Self {
        Self {
            segment: f64::from(segment),
            window: 10.0,
            threshold: f64::MAX,
            most: 0.0,
            reno: 0.0,
            epoch: Instant::ZERO,
            round: Duration::ZERO,
        }
    }

    fn decrease(&mut self, now: Instant) {
        // Fast convergence (4.7).
        self.most =
            if self.window < self.most { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        (self.threshold, self.reno, self.epoch) = (self.window, self.window, now);
    }
}

impl Control for Cubic {
    fn window(&self) -> u64 {
        (self.window * self.segment) as u64
    }

    fn timeout(&self) -> Duration {
        (self.round * 2).max(Duration::from_millis(200))
    }

    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged) {
        self.round = now.since(segment.sent);
        if segment.sent < self.epoch {
            return; // Recovery.
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        // 4.3: as large as Reno's with this decrease.
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        let alpha = if self.reno >= self.most { 1.0 } else { alpha };
        self.reno += alpha / self.window;
        // 4.2 and 4.4: where the cubic function is a round trip from now.
        let at = (now.since(self.epoch) + self.round).as_secs_f64();
        let k = ((self.most - self.threshold).max(0.0) / C).cbrt();
        let target = C * (at - k).powi(3) + self.most;
        let target = target.clamp(self.window, 1.5 * self.window);
        self.window = self.reno.max(self.window + (target - self.window) / self.window);
    }

    fn handle_lost(&mut self, now: Instant, sent: Instant, _: u64) {
        if sent >= self.epoch {
            self.decrease(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.decrease(now);
        self.window = 1.0;
    }
}

/// The window, in segments, that adds `alpha` in a round trip and keeps `beta` at each loss,
/// where one of `1 / loss` segments is lost: RFC 9438, figure 4 (for any alpha), from RFC 3448.
pub(crate) fn additive(alpha: f64, beta: f64, loss: f64) -> f64 {
    (alpha * (1.0 + beta) / (2.0 * (1.0 - beta) * loss)).sqrt()
}

/// The window of CUBIC: its cubic function (RFC 9438, figure 5), or what it keeps at least to
/// be as large as Reno's.
pub(crate) fn response(loss: f64, round_trip: Duration) -> f64 {
    let cubic = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    let cubic = cubic * round_trip.as_secs_f64().powf(0.75) / loss.powf(0.75);
    cubic.max(additive(3.0 * (1.0 - BETA) / (1.0 + BETA), BETA, loss))
}

/// Equation by equation: numbers of RFC 9438, table 1 (at a round trip of 0.1 s).
#[test]
fn the_response_function_has_the_values_of_the_rfc() {
    let at = |loss| response(loss, Duration::from_millis(100)).round() as u32;
    assert_eq!([1e-2, 1e-3, 1e-4, 1e-5].map(at), [12, 39, 187, 1_054]);
}
