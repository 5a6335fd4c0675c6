//! One row of the result, and what could not be measured, and why: never left out in silence.
//! The fields are documented in `docs/perf-json.md`, and stay.

use landfall_testbed::rivals::Workload;
use landfall_testbed::{CoresBusy, Measured, Rtt, Sample};
use serde::Serialize;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// As many bytes as possible, one way.
    Throughput,
    /// Messages there and back.
    Latency,
    /// What a message costs the thread that hands it over and takes it out.
    Overhead,
}

impl Mode {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Overhead => "overhead",
        }
    }
}

/// What a candidate is, before it ran.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    pub(crate) protocol: &'static str,
    pub(crate) transport: &'static str,
    /// A rival, measured for comparison.
    pub(crate) peer: bool,
    pub(crate) mode: Mode,
    pub(crate) polling: bool,
    pub(crate) message_bytes: u64,
    pub(crate) payload_bytes: Option<u64>,
    pub(crate) variant: Option<&'static str>,
    /// At the same time.
    pub(crate) connections: u32,
    /// The share of units that is lost on purpose.
    pub(crate) loss: f64,
    pub(crate) workload: Workload,
}

impl Subject {
    /// A stream through the kernel over one connection: what most others differ from in a
    /// few respects.
    pub(crate) const BASE: Self = Self {
        protocol: "tcp",
        transport: "kernel",
        peer: false,
        mode: Mode::Throughput,
        polling: false,
        message_bytes: 1,
        payload_bytes: None,
        variant: None,
        connections: 1,
        loss: 0.0,
        workload: Workload::Plain,
    };

    /// What tells it from others of its group.
    pub(crate) fn label(&self) -> String {
        let mut label = format!("{}/{} {}", self.protocol, self.transport, self.mode.as_str());
        if let Some(payload) = self.payload_bytes {
            label += &format!(" {payload}");
        }
        if let Some(variant) = self.variant {
            label += &format!(" ({variant})");
        }
        if self.workload != Workload::Plain {
            label += &format!(" {}", self.workload);
        }
        if self.polling {
            label += " polling";
        }
        label
    }
}

/// One row, with figures: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) protocol: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) peer: bool,
    pub(crate) mode: Mode,
    pub(crate) polling: bool,
    pub(crate) mtu: u32,
    pub(crate) message_bytes: u64,
    pub(crate) goodput_bytes_per_s: Option<f64>,
    pub(crate) messages_per_s: Option<f64>,
    pub(crate) cpu_s_per_gb_send: Option<f64>,
    pub(crate) cpu_s_per_gb_receive: Option<f64>,
    pub(crate) cpu_s_per_gb_total: Option<f64>,
    pub(crate) cpu_core_percent_send: Option<f64>,
    pub(crate) cpu_core_percent_receive: Option<f64>,
    pub(crate) payload_bytes: Option<u64>,
    pub(crate) variant: Option<&'static str>,
    pub(crate) rtt_ns_p50: Option<f64>,
    pub(crate) rtt_ns_p90: Option<f64>,
    pub(crate) rtt_ns_p99: Option<f64>,
    pub(crate) rtt_ns_p999: Option<f64>,
    pub(crate) user_copied_bytes: u64,
    pub(crate) retransmitted: u64,
    pub(crate) wakeups: u64,
    pub(crate) offload: bool,
    pub(crate) connections: u32,
    pub(crate) loss: f64,
    pub(crate) workload: &'static str,
    pub(crate) spread: f64,
    pub(crate) ratio_to_tcp: Option<f64>,
    pub(crate) ratio_basis: Option<&'static str>,
    pub(crate) ratio_to_tcp_same_message: Option<f64>,
    pub(crate) overhead_ns_per_message: Option<f64>,
    pub(crate) in_place: Option<f64>,
    pub(crate) lost_bytes: u64,
}

/// The rows of kernel TCP that another is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tcp<'a> {
    /// The best of all.
    pub(crate) best: Option<&'a Measured>,
    /// The best of those that hand over as much at once.
    pub(crate) same: Option<&'a Measured>,
}

/// The figure by which rows of this mode are compared.
pub(crate) fn figure(mode: Mode, sample: &Sample) -> f64 {
    match mode {
        Mode::Throughput => sample.goodput(),
        Mode::Latency => sample.rtt_p50_ns(),
        Mode::Overhead => sample.overhead_ns.unwrap_or(f64::NAN),
    }
}

impl Row {
    /// The row of a candidate that ran at least once.
    pub(crate) fn new(
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
        let rtt = |value: fn(&Rtt) -> u64| {
            let of = |sample: &Sample| sample.rtt.as_ref().map_or(f64::NAN, |it| value(it) as f64);
            only(Mode::Latency, measured.median(of))
        };
        let busy = |value: fn(&CoresBusy) -> f64| {
            measured.median(|sample| sample.busy.as_ref().map_or(f64::NAN, value))
        };
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
            cpu_core_percent_send: busy(|it| it.send_percent),
            cpu_core_percent_receive: busy(|it| it.receive_percent),
            payload_bytes: subject.payload_bytes,
            variant: subject.variant,
            rtt_ns_p50: rtt(|rtt| rtt.p50_ns),
            rtt_ns_p90: rtt(|rtt| rtt.p90_ns),
            rtt_ns_p99: rtt(|rtt| rtt.p99_ns),
            rtt_ns_p999: rtt(|rtt| rtt.p999_ns),
            user_copied_bytes: most(|sample| sample.user_copied_bytes)?,
            retransmitted: most(|sample| sample.retransmitted)?,
            wakeups: most(|sample| sample.wakeups)?,
            offload,
            connections: subject.connections,
            loss: subject.loss,
            workload: subject.workload.name(),
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

/// A row that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Absent {
    pub(crate) protocol: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) mtu: u32,
    pub(crate) offload: bool,
    pub(crate) reason: String,
    /// It was tried and went wrong, rather than being impossible here.
    pub(crate) failed: bool,
}

impl Absent {
    /// In words.
    pub(crate) fn line(&self) -> String {
        let Self { protocol, transport, mode, mtu, reason, .. } = self;
        if self.failed {
            format!("failed: {protocol}/{transport} ({mode}, MTU {mtu}): {reason}")
        } else {
            format!("not measured: {protocol}/{transport}: {reason}")
        }
    }
}

/// One line for each transport and reason.
pub(crate) fn lines_of_absent(absent: &[Absent]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in absent {
        let line = row.line();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
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
        let polling = mode == Mode::Latency;
        Subject { protocol: "test", transport: "udp", mode, polling, ..Subject::BASE }
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
