//! A word written into the memory of another process, seen there and answered, beside
//! the round trip of kernel TCP in the same run; and a message that wakes who sleeps at a
//! tripwire.

use anyhow::{Context, Result};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, Polling, TcpLatency};
use landfall_testbed::{Candidate, Error, Measured, Sample, interleave};
use serde::Serialize;

use super::{Scale, Shown, without_failure};
use crate::perf::clan::TOGETHER;
use crate::workload::clan::job::{Job, Waiting, Work};
use crate::workload::clan::{bare, process};

const WORD: usize = 8;

const TCP: &str = "kernel TCP, spinning";
const BARE: &str = "what the machine gives, two words";
const SPINNING: &str = "CLAN between processes, spinning";
const SLEEPING: &str = "CLAN, asleep at a tripwire";
const TCP_SLEEPING: &str = "kernel TCP, asleep";

#[derive(Debug, Serialize)]
struct Facts {
    word_bytes: usize,
    tcp_rtt_ns_p50: f64,
    bare_rtt_ns_p50: f64,
    rtt_ns_p50: f64,
    /// Less is better.
    ratio_to_tcp: f64,
    ratio_to_bare: f64,
    tcp_asleep_rtt_ns_p50: f64,
    asleep_rtt_ns_p50: f64,
    asleep_ratio_to_tcp: f64,
    words: u64,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let time = scale.time / 5;
    let endpoints = Endpoints::loopback()?;
    let plan = Plan::new(endpoints.clone(), Amount::Time(time));
    let tcp = TcpLatency::new(plan.clone().polling(Polling::Spin), WORD);
    let tcp_sleeping = TcpLatency::new(plan.clone().polling(Polling::Block), WORD);
    let limit = plan.limit;
    let ours = |label: &'static str, together, waiting| {
        let job = Job { work: Work::Word { together }, waiting, time, limit, core: None };
        let endpoints = endpoints.clone();
        Candidate::new(label, move || {
            let failed = |error: anyhow::Error| Error::Candidate {
                label: label.into(),
                source: error.into(),
            };
            process::run(&endpoints, &job).map_err(failed)
        })
    };
    let machine = || {
        bare::ping_pong(&endpoints, (time, limit), TOGETHER)
            .map_err(|error| Error::Candidate { label: BARE.into(), source: error.into() })
    };
    let mut candidates = [
        Candidate::new(TCP, || tcp.run()),
        Candidate::new(BARE, machine),
        ours(SPINNING, TOGETHER, Waiting::Spin),
        Candidate::new(TCP_SLEEPING, || tcp_sleeping.run()),
        ours(SLEEPING, 1, Waiting::Block),
    ];
    let comparison = interleave(scale.rounds, &mut candidates);
    drop(candidates);
    let measured = <[Measured; 5]>::try_from(comparison.measured).ok();
    let [tcp, bare, spinning, tcp_sleeping, sleeping] =
        measured.context("five candidates were measured")?.map(without_failure);
    let facts = facts([&tcp?, &bare?, &spinning?, &tcp_sleeping?, &sleeping?]);
    let facts = facts.context("no run was completed")?;
    Shown::new(lines(&facts), &facts)
}

fn facts([tcp, bare, spinning, tcp_sleeping, sleeping]: [&Measured; 5]) -> Option<Facts> {
    let rtt = |measured: &Measured| measured.median(Sample::rtt_p50_ns);
    Some(Facts {
        word_bytes: WORD,
        tcp_rtt_ns_p50: rtt(tcp)?,
        bare_rtt_ns_p50: rtt(bare)?,
        rtt_ns_p50: rtt(spinning)?,
        ratio_to_tcp: spinning.ratio_to(tcp, Sample::rtt_p50_ns)?,
        ratio_to_bare: spinning.ratio_to(bare, Sample::rtt_p50_ns)?,
        tcp_asleep_rtt_ns_p50: rtt(tcp_sleeping)?,
        asleep_rtt_ns_p50: rtt(sleeping)?,
        asleep_ratio_to_tcp: sleeping.ratio_to(tcp_sleeping, Sample::rtt_p50_ns)?,
        words: spinning.samples.iter().map(|sample| sample.messages).sum(),
    })
}

fn lines(facts: &Facts) -> [String; 6] {
    let line = |name: &str, ns: f64| format!("{name:42} {:>9.2} µs", ns / 1e3);
    [
        line(TCP, facts.tcp_rtt_ns_p50),
        line(BARE, facts.bare_rtt_ns_p50),
        format!(
            "{}, {:.2} x TCP, {:.2} x the machine",
            line(SPINNING, facts.rtt_ns_p50),
            facts.ratio_to_tcp,
            facts.ratio_to_bare
        ),
        line(TCP_SLEEPING, facts.tcp_asleep_rtt_ns_p50),
        format!(
            "{}, {:.2} x TCP",
            line(SLEEPING, facts.asleep_rtt_ns_p50),
            facts.asleep_ratio_to_tcp
        ),
        format!("{} words went there and back, without a system call", facts.words),
    ]
}
