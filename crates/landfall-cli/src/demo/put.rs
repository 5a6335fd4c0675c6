//! A Put of 8 bytes into memory of the other side and its acknowledgement,
//! beside the round trip of kernel TCP in the same run.

use anyhow::{Context, Result};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, Polling, TcpLatency};
use landfall_testbed::{Candidate, Error, Measured, Rtt, Sample, interleave};
use serde::Serialize;

use super::{Scale, Shown, without_failure};
use crate::lane::bulk::Tables;
use crate::lane::stp::StpWork;
use crate::lane::talk;
use crate::lane::transport::Udp;

const MTU: u32 = 65_536;
const STU: u32 = 1024;
/// What is written to the other side each time.
const WORD: usize = 8;

const TCP: &str = "kernel TCP, there and back";
const OURS: &str = "STP over UDP, Put and its acknowledgement";

#[derive(Debug, Serialize)]
struct Facts {
    word_bytes: usize,
    tcp_rtt_ns_p50: f64,
    tcp_rtt_ns_p99: f64,
    rtt_ns_p50: f64,
    rtt_ns_p99: f64,
    /// Less is better.
    ratio_to_tcp: f64,
    puts: u64,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(scale.time / 2));
    let plan = plan.polling(Polling::Spin);
    let tcp = TcpLatency::new(plan.clone(), WORD);
    let work = StpWork::with_stu(STU);
    let ours = || {
        talk::run(&plan, WORD, (&Udp { mtu: MTU }, &work), &Tables::new())
            .map_err(|error| Error::Candidate { label: OURS.into(), source: error.into() })
    };
    let mut candidates = [Candidate::new(TCP, || tcp.run()), Candidate::new(OURS, ours)];
    let comparison = interleave(scale.rounds, &mut candidates);
    drop(candidates);
    let [tcp, ours] = <[Measured; 2]>::try_from(comparison.measured)
        .ok()
        .context("two candidates were measured")?
        .map(without_failure);
    let facts = facts(&tcp?, &ours?).context("no run was completed")?;
    Shown::new(lines(&facts), &facts)
}

fn facts(tcp: &Measured, ours: &Measured) -> Option<Facts> {
    let p99 = |sample: &Sample| sample.rtt.as_ref().map_or(f64::NAN, |rtt: &Rtt| rtt.p99_ns as f64);
    Some(Facts {
        word_bytes: WORD,
        tcp_rtt_ns_p50: tcp.median(Sample::rtt_p50_ns)?,
        tcp_rtt_ns_p99: tcp.median(p99)?,
        rtt_ns_p50: ours.median(Sample::rtt_p50_ns)?,
        rtt_ns_p99: ours.median(p99)?,
        ratio_to_tcp: ours.ratio_to(tcp, Sample::rtt_p50_ns)?,
        puts: ours.samples.iter().map(|sample| sample.messages).sum(),
        // A wrong word would have ended the run.
        equal: true,
    })
}

fn lines(facts: &Facts) -> [String; 3] {
    let micros = |nanos: f64| nanos / 1e3;
    let line = |name: &str, p50: f64, p99: f64| {
        format!("{name:42} {:>6.1} µs   99 of 100 within {:.1} µs", micros(p50), micros(p99))
    };
    [
        line(TCP, facts.tcp_rtt_ns_p50, facts.tcp_rtt_ns_p99),
        format!(
            "{}, {:.2} x TCP",
            line(OURS, facts.rtt_ns_p50, facts.rtt_ns_p99),
            facts.ratio_to_tcp
        ),
        format!(
            "{} Puts of {} bytes; the other side's program had nothing to do for any of them",
            facts.puts, facts.word_bytes
        ),
    ]
}
