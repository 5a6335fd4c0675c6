//! Queue pairs: what a message costs the program that posts and reaps it, beside
//! a socket; and messages between two stations that have TCP, IP and Ethernet of
//! their own, in frames inside of UDP.

use anyhow::{Context, Result};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpOverhead};
use landfall_testbed::{Candidate, Error, Measured, Sample, interleave};
use landfall_transport::memory::{Arena, ArenaConfig};
use serde::Serialize;

use super::{Scale, Shown, speed, without_failure};
use crate::lane::bulk::{self, Tables};
use crate::lane::overhead;
use crate::lane::qpip::QpipWork;
use crate::lane::qpip_paths::Tunnel;
use crate::style::bytes;

const MTU: u32 = 65_536;
const MESSAGE: usize = 16 << 10;

const TCP: &str = "kernel TCP, send and recv of a byte";
const OURS: &str = "a queue pair, a byte posted and reaped";

#[derive(Debug, Serialize)]
struct Facts {
    tcp_overhead_ns: f64,
    overhead_ns: f64,
    /// Less is better.
    ratio_to_tcp: f64,
    message_bytes: usize,
    messages: u64,
    goodput_bytes_per_s: f64,
    compared_bytes: u64,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(scale.time / 2));
    let tcp = TcpOverhead::new(plan.clone(), 1);
    let ours = || {
        overhead::run(&plan)
            .map_err(|error| Error::Candidate { label: OURS.into(), source: error.into() })
    };
    let mut candidates = [Candidate::new(TCP, || tcp.run()), Candidate::new(OURS, ours)];
    let comparison = interleave(scale.rounds, &mut candidates);
    drop(candidates);
    let [tcp, ours] = <[Measured; 2]>::try_from(comparison.measured)
        .ok()
        .context("two candidates were measured")?
        .map(without_failure);
    let (shape, arena) = (QpipWork::shape(MESSAGE), Arena::new(ArenaConfig::default()));
    let pieces = (&Tunnel { mtu: MTU }, &QpipWork::alone());
    let outcome = bulk::run(&plan, shape, pieces, &arena, &Tables::new())?;
    let facts = facts(&tcp?, &ours?, &outcome.sample, outcome.compared);
    let facts = facts.context("no run was completed")?;
    Shown::new(lines(&facts), &facts)
}

fn facts(tcp: &Measured, ours: &Measured, bulk: &Sample, compared_bytes: u64) -> Option<Facts> {
    let overhead = |sample: &Sample| sample.overhead_ns.unwrap_or(f64::NAN);
    Some(Facts {
        tcp_overhead_ns: tcp.median(overhead)?,
        overhead_ns: ours.median(overhead)?,
        ratio_to_tcp: ours.ratio_to(tcp, overhead)?,
        message_bytes: MESSAGE,
        messages: bulk.messages,
        goodput_bytes_per_s: bulk.goodput(),
        compared_bytes,
        // A wrong byte would have ended the run.
        equal: true,
    })
}

fn lines(facts: &Facts) -> [String; 4] {
    [
        format!("{TCP:40} {:>6.0} ns of the program's time", facts.tcp_overhead_ns),
        format!(
            "{OURS:40} {:>6.0} ns, {:.2} x TCP: the rest is the adapter's, on a thread of its own",
            facts.overhead_ns, facts.ratio_to_tcp
        ),
        format!(
            "{} messages of {} from station to station, {}",
            facts.messages,
            bytes(facts.message_bytes as u64),
            speed(facts.goodput_bytes_per_s)
        ),
        format!("{} compared with what was sent: equal", bytes(facts.compared_bytes)),
    ]
}
