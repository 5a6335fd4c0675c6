//! What one run of one candidate gave. Kernel rivals and drivers report in
//! the same terms.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest round trip that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(60);
const BYTES_PER_GB: f64 = 1e9;

/// What one run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Payload bytes that arrived, once each.
    pub bytes: u64,
    /// Messages, round trips or receive calls, as the candidate counts them.
    pub messages: u64,
    /// From the first byte offered to the last byte arrived.
    pub seconds: f64,
    /// CPU time.
    pub cpu: CpuSplit,
    /// How busy the cores were, seen from outside, where an idle meter ran.
    pub busy: Option<CoresBusy>,
    /// Round trips, in latency runs.
    pub rtt: Option<Rtt>,
    /// How often a thread of the candidate slept and was woken.
    pub wakeups: u64,
    /// Segments or units sent again.
    pub retransmitted: u64,
    /// Payload bytes copied in user space.
    pub user_copied_bytes: u64,
    /// Payload bytes that were sent and never arrived.
    pub lost_bytes: u64,
    /// The share of messages that needed no copy in user space, where messages arrive
    /// in pieces that somebody there has to join.
    pub in_place: Option<f64>,
    /// Nanoseconds that the calling thread spends on one message, at both ends
    /// together, in runs that measure it.
    pub overhead_ns: Option<f64>,
}

/// CPU seconds of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSplit {
    /// The sending (in latency runs: asking) thread.
    pub send_s: f64,
    /// The receiving (in latency runs: answering) thread.
    pub receive_s: f64,
    /// The whole machine, softirq included.
    pub machine_s: f64,
}

/// How much of its core each side left to nobody else, in percent: its own work, the
/// kernel's on its behalf, and interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoresBusy {
    /// The sender's core.
    pub send_percent: f64,
    /// The receiver's core.
    pub receive_percent: f64,
}

impl Sample {
    /// Payload bytes per second.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Median round trip in nanoseconds; not a number in throughput runs.
    #[must_use]
    pub fn rtt_p50_ns(&self) -> f64 {
        self.rtt.map_or(f64::NAN, |rtt| rtt.p50_ns as f64)
    }

    /// CPU seconds per 10^9 payload bytes, for each account.
    #[must_use]
    pub fn cpu_per_gb(&self) -> CpuSplit {
        let per_gb = |seconds: f64| seconds * BYTES_PER_GB / self.bytes as f64;
        CpuSplit {
            send_s: per_gb(self.cpu.send_s),
            receive_s: per_gb(self.cpu.receive_s),
            machine_s: per_gb(self.cpu.machine_s),
        }
    }
}

/// Round trips of one run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 90 of 100 took no longer.
    pub p90_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Collects round trips in bounded memory, to three significant digits.
#[derive(Clone, Debug)]
pub struct RttHistogram {
    histogram: Histogram<u64>,
}

impl RttHistogram {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        // The bounds are constants that hdrhistogram accepts: low ≥ 1,
        // high ≥ 2 × low, at most 5 digits.
        let histogram = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)
            .expect("the bounds are constants within what the library takes");
        Self { histogram }
    }

    /// Adds one; longer than a minute counts as a minute.
    pub fn record(&mut self, round_trip: Duration) {
        let ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns);
    }

    /// The summary; `None` when nothing was recorded.
    #[must_use]
    pub fn summary(&self) -> Option<Rtt> {
        let histogram = &self.histogram;
        (!histogram.is_empty()).then(|| Rtt {
            count: histogram.len(),
            min_ns: histogram.min(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        })
    }
}

impl Default for RttHistogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_the_promised_digits() {
        let mut histogram = RttHistogram::new();
        assert_eq!(histogram.summary(), None);
        (1..=1000).for_each(|us| histogram.record(Duration::from_micros(us)));
        histogram.record(Duration::MAX);
        let rtt = histogram.summary().unwrap();
        assert_eq!((rtt.count, rtt.min_ns / 10), (1001, 100));
        assert!(rtt.p50_ns.abs_diff(501_000) <= 501);
        assert!(rtt.p90_ns.abs_diff(901_000) <= 901);
        assert!(rtt.p99_ns.abs_diff(991_000) <= 991);
        assert!(rtt.p999_ns.abs_diff(1_000_000) <= 1000);
        assert!(rtt.max_ns >= LONGEST.as_nanos() as u64);
    }

    #[test]
    fn figures_are_per_payload() {
        let cpu = CpuSplit { send_s: 1.0, receive_s: 2.0, machine_s: 4.0 };
        let sample = Sample { bytes: 2_000_000_000, seconds: 0.5, cpu, ..Sample::default() };
        assert_eq!(sample.goodput(), 4e9);
        let expected = CpuSplit { send_s: 0.5, receive_s: 1.0, machine_s: 2.0 };
        assert_eq!(sample.cpu_per_gb(), expected);
        assert!(sample.rtt_p50_ns().is_nan());
    }
}
