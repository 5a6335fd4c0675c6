//! Transfers over UDP, received in place, beside kernel TCP in the same run.

use anyhow::{Context, Result};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput};
use landfall_testbed::{Candidate, Error, Measured, Sample, interleave};
use landfall_transport::memory::{Arena, ArenaConfig};
use serde::Serialize;

use super::{Scale, Shown, speed, without_failure};
use crate::lane::bulk::{self, Tables};
use crate::lane::stp::StpWork;
use crate::lane::transport::Udp;
use crate::style::bytes;

const MTU: u32 = 65_536;
const STU: u32 = 8192;

#[derive(Debug, Serialize)]
struct Facts {
    tcp_goodput_bytes_per_s: f64,
    goodput_bytes_per_s: f64,
    ratio_to_tcp: f64,
    payload_bytes: u32,
    user_copied_bytes: u64,
    wakeups: u64,
    tcp_wakeups: u64,
    retransmitted: u64,
    compared_bytes: u64,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(scale.time));
    let arena = Arena::new(ArenaConfig::default());
    let mut compared = 0;
    let tcp = TcpThroughput::new(plan.clone());
    let work = StpWork::with_stu(STU);
    let ours = || {
        let pieces = (&Udp { mtu: MTU }, &work);
        let outcome = bulk::run(&plan, StpWork::SHAPE, pieces, &arena, &Tables::new());
        let outcome = outcome
            .map_err(|error| Error::Candidate { label: OURS.into(), source: error.into() })?;
        compared += outcome.compared;
        Ok(outcome.sample)
    };
    let mut candidates = [Candidate::new(TCP, || tcp.run()), Candidate::new(OURS, ours)];
    let comparison = interleave(scale.rounds, &mut candidates);
    drop(candidates);
    let [tcp, ours] = <[Measured; 2]>::try_from(comparison.measured)
        .ok()
        .context("two candidates were measured")?
        .map(without_failure);
    let facts = facts(&tcp?, &ours?, compared).context("no run was completed")?;
    Shown::new(lines(&facts), &facts)
}

const TCP: &str = "kernel TCP";
const OURS: &str = "STP over UDP";

fn facts(tcp: &Measured, ours: &Measured, compared_bytes: u64) -> Option<Facts> {
    let most = |measured: &Measured, count: fn(&Sample) -> u64| {
        measured.samples.iter().map(count).max().unwrap_or(0)
    };
    Some(Facts {
        tcp_goodput_bytes_per_s: tcp.median(Sample::goodput)?,
        goodput_bytes_per_s: ours.median(Sample::goodput)?,
        ratio_to_tcp: ours.ratio_to(tcp, Sample::goodput)?,
        payload_bytes: STU,
        user_copied_bytes: most(ours, |sample| sample.user_copied_bytes),
        wakeups: most(ours, |sample| sample.wakeups),
        tcp_wakeups: most(tcp, |sample| sample.wakeups),
        retransmitted: most(ours, |sample| sample.retransmitted),
        compared_bytes,
        // A wrong byte would have ended the run.
        equal: true,
    })
}

fn lines(facts: &Facts) -> [String; 3] {
    [
        format!(
            "{TCP:22} {:>10}   woken {} times",
            speed(facts.tcp_goodput_bytes_per_s),
            facts.tcp_wakeups
        ),
        format!(
            "{OURS:22} {:>10}   woken {} times, {:.2} x TCP",
            speed(facts.goodput_bytes_per_s),
            facts.wakeups,
            facts.ratio_to_tcp
        ),
        format!(
            "copied in user space: {}; sent again: {} units; {} compared with what was sent: equal",
            bytes(facts.user_copied_bytes),
            facts.retransmitted,
            bytes(facts.compared_bytes)
        ),
    ]
}
