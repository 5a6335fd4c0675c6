//! One row of the result. The fields are documented in `docs/perf-json.md`,
//! and stay.

use landfall_testbed::{Measured, Sample};
use serde::Serialize;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// As many bytes as possible, one way.
    Throughput,
    /// Messages there and back.
    Latency,
    /// What a message costs the thread that hands it over and takes it out.
    Overhead,
}

impl Mode {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Overhead => "overhead",
        }
    }
}

/// What a candidate is, before it ran.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subject {
    pub(super) protocol: &'static str,
    pub(super) transport: &'static str,
    /// A rival, measured for comparison.
    pub(super) peer: bool,
    pub(super) mode: Mode,
    pub(super) polling: bool,
    pub(super) message_bytes: u64,
    pub(super) payload_bytes: Option<u64>,
    pub(super) variant: Option<&'static str>,
}

impl Subject {
    /// What tells it from others of its group.
    pub(super) fn label(&self) -> String {
        let mut label = format!("{}/{} {}", self.protocol, self.transport, self.mode.as_str());
        if let Some(payload) = self.payload_bytes {
            label += &format!(" {payload}");
        }
        if let Some(variant) = self.variant {
            label += &format!(" ({variant})");
        }
        if self.polling {
            label += " polling";
        }
        label
    }
}

/// One row, with figures: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) protocol: &'static str,
    pub(super) transport: &'static str,
    pub(super) peer: bool,
    pub(super) mode: Mode,
    pub(super) polling: bool,
    pub(super) mtu: u32,
    pub(super) message_bytes: u64,
    pub(super) goodput_bytes_per_s: Option<f64>,
    pub(super) messages_per_s: Option<f64>,
    pub(super) cpu_s_per_gb_send: Option<f64>,
    pub(super) cpu_s_per_gb_receive: Option<f64>,
    pub(super) cpu_s_per_gb_total: Option<f64>,
    pub(super) payload_bytes: Option<u64>,
    pub(super) variant: Option<&'static str>,
    pub(super) rtt_ns_p50: Option<f64>,
    pub(super) rtt_ns_p99: Option<f64>,
    pub(super) user_copied_bytes: u64,
    pub(super) retransmitted: u64,
    pub(super) wakeups: u64,
    pub(super) offload: bool,
    pub(super) connections: u32,
    pub(super) loss: f64,
    pub(super) workload: &'static str,
    pub(super) spread: f64,
    pub(super) ratio_to_tcp: Option<f64>,
    pub(super) ratio_basis: Option<&'static str>,
    pub(super) ratio_to_tcp_same_message: Option<f64>,
    pub(super) overhead_ns_per_message: Option<f64>,
    pub(super) in_place: Option<f64>,
    pub(super) lost_bytes: u64,
}

/// The rows of kernel TCP that another is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tcp<'a> {
    /// The best of all.
    pub(super) best: Option<&'a Measured>,
    /// The best of those that hand over as much at once.
    pub(super) same: Option<&'a Measured>,
}

/// The figure by which rows of this mode are compared.
pub(super) fn figure(mode: Mode, sample: &Sample) -> f64 {
    match mode {
        Mode::Throughput => sample.goodput(),
        Mode::Latency => sample.rtt_p50_ns(),
        Mode::Overhead => sample.overhead_ns.unwrap_or(f64::NAN),
    }
}

impl Row {
    /// The row of a candidate that ran at least once.
    pub(super) fn new(
        subject: &Subject,
        (mtu, offload): (u32, bool),
        measured: &Measured,
        tcp: Tcp<'_>,
    ) -> Option<Self> {
        let mode = subject.mode;
        let spread = measured.spread(|sample| figure(mode, sample))?;
        let only = |wanted, value| if mode == wanted { value } else { None };
        let throughput = |value: fn(&Sample) -> f64| {
            only(Mode::Throughput, measured.median(value).filter(|value| value.is_finite()))
        };
        let rtt = |value: fn(&Sample) -> f64| only(Mode::Latency, measured.median(value));
        // Of counts the largest: "none" shall mean none in any round.
        let most = |count: fn(&Sample) -> u64| measured.samples.iter().map(count).max();
        let ratio_to = |tcp: &Measured| {
            measured.ratio_to(tcp, |sample| figure(mode, sample)).filter(|ratio| ratio.is_finite())
        };
        let ratio_to_tcp = tcp.best.and_then(ratio_to);
        Some(Self {
            protocol: subject.protocol,
            transport: subject.transport,
            peer: subject.peer,
            mode,
            polling: subject.polling,
            mtu,
            message_bytes: subject.message_bytes,
            goodput_bytes_per_s: throughput(Sample::goodput),
            messages_per_s: throughput(|sample| sample.messages as f64 / sample.seconds),
            cpu_s_per_gb_send: throughput(|sample| sample.cpu_per_gb().send_s),
            cpu_s_per_gb_receive: throughput(|sample| sample.cpu_per_gb().receive_s),
            cpu_s_per_gb_total: throughput(|sample| sample.cpu_per_gb().machine_s),
            payload_bytes: subject.payload_bytes,
            variant: subject.variant,
            rtt_ns_p50: rtt(Sample::rtt_p50_ns),
            rtt_ns_p99: rtt(|sample| sample.rtt.map_or(f64::NAN, |rtt| rtt.p99_ns as f64)),
            user_copied_bytes: most(|sample| sample.user_copied_bytes)?,
            retransmitted: most(|sample| sample.retransmitted)?,
            wakeups: most(|sample| sample.wakeups)?,
            offload,
            connections: 1,
            loss: 0.0,
            workload: "plain",
            spread: if spread.relative().is_finite() { spread.relative() } else { 0.0 },
            ratio_basis: ratio_to_tcp.map(|_| "best-row"),
            ratio_to_tcp,
            ratio_to_tcp_same_message: tcp.same.and_then(ratio_to),
            in_place: measured
                .median(|sample| sample.in_place.unwrap_or(f64::NAN))
                .filter(|s| s.is_finite()),
            lost_bytes: most(|sample| sample.lost_bytes)?,
            overhead_ns_per_message: only(
                Mode::Overhead,
                measured.median(|sample| figure(Mode::Overhead, sample)),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_testbed::{CpuSplit, Rtt};

    fn measured(goodputs: &[u64]) -> Measured {
        let sample = |goodput: &u64| Sample {
            bytes: *goodput,
            seconds: 1.0,
            cpu: CpuSplit { send_s: 1.0, receive_s: 2.0, machine_s: 4.0 },
            user_copied_bytes: goodput % 7,
            rtt: Some(Rtt { count: 1, p50_ns: *goodput, p99_ns: 2 * goodput, ..Rtt::default() }),
            ..Sample::default()
        };
        let samples = goodputs.iter().map(sample).collect();
        Measured { label: String::new(), samples, failure: None }
    }

    fn subject(mode: Mode) -> Subject {
        Subject {
            protocol: "test",
            transport: "udp",
            peer: false,
            mode,
            polling: mode == Mode::Latency,
            message_bytes: 1,
            payload_bytes: Some(1024),
            variant: None,
        }
    }

    #[test]
    fn figures_of_the_other_mode_are_null() {
        let ours = measured(&[10, 30, 20]);
        let row =
            Row::new(&subject(Mode::Throughput), (1500, true), &ours, Tcp::default()).unwrap();
        assert_eq!((row.goodput_bytes_per_s, row.rtt_ns_p50), (Some(20.0), None));
        assert_eq!((row.ratio_to_tcp, row.ratio_basis), (None, None));
        let row = Row::new(&subject(Mode::Latency), (1500, true), &ours, Tcp::default()).unwrap();
        assert_eq!((row.goodput_bytes_per_s, row.cpu_s_per_gb_total), (None, None));
        assert_eq!((row.rtt_ns_p50, row.rtt_ns_p99), (Some(20.0), Some(40.0)));
    }

    #[test]
    fn ratios_are_medians_of_rounds_and_counts_are_the_largest() {
        let (ours, tcp) = (measured(&[20, 90, 60]), measured(&[10, 30, 15]));
        let tcp = Tcp { best: Some(&tcp), same: Some(&ours) };
        let row = Row::new(&subject(Mode::Throughput), (1500, true), &ours, tcp).unwrap();
        assert_eq!((row.ratio_to_tcp, row.ratio_basis), (Some(3.0), Some("best-row")));
        assert_eq!(row.ratio_to_tcp_same_message, Some(1.0));
        assert_eq!(row.user_copied_bytes, 6);
        assert!((row.spread - 70.0 / 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_candidate_that_never_ran_has_no_row() {
        let nothing = measured(&[]);
        let row = Row::new(&subject(Mode::Latency), (1500, true), &nothing, Tcp::default());
        assert!(row.is_none());
    }
}
