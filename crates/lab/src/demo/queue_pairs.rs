//! Queue pairs: what a message costs the program that posts and reaps it, beside
//! a socket; messages between two stations that have TCP, IP and Ethernet of their own,
//! in frames inside of UDP; and, where a cable can be had, a byte stream to a socket of
//! the kernel.

use anyhow::{Context, Result};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpOverhead, TcpThroughput};
use landfall_testbed::{
    Candidate, Error, Measured, Sample, VethConfig, VethPair, interleave, privileges,
};
use serde::Serialize;

use super::{Scale, Shown, speed, without_failure};
use crate::style::bytes;
use crate::workload::overhead;
use crate::workload::qpip::socket::{self, Direction};
use crate::workload::qpip::{self, LowerLayer, Setup};

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
    /// A socket of the kernel at the other end of a cable.
    kernel: Option<Kernel>,
    why_no_kernel: Option<String>,
}

#[derive(Debug, Serialize)]
struct Kernel {
    bytes: u64,
    goodput_bytes_per_s: f64,
    tcp_goodput_bytes_per_s: f64,
    ratio_to_tcp: f64,
    user_copied_bytes: u64,
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
    let outcome = qpip::stream(&plan, &Setup::over(LowerLayer::Tunnel(MTU)), qpip::shape(MESSAGE))?;
    let facts = facts(&tcp?, &ours?, &outcome.sample, outcome.compared);
    let mut facts = facts.context("no run was completed")?;
    facts.why_no_kernel = privileges::why_no_namespaces();
    if facts.why_no_kernel.is_none() {
        facts.kernel = Some(to_the_kernel(scale)?);
    }
    Shown::new(lines(&facts), &facts)
}

/// A byte stream to a socket at the other end of a cable, and one from socket to socket.
fn to_the_kernel(scale: Scale) -> Result<Kernel> {
    let pair = VethPair::new(VethConfig::default())?;
    let plan = Plan::new(Endpoints::over(&pair)?, Amount::Time(scale.time / 2));
    let tcp = TcpThroughput::new(plan.clone()).run()?;
    // A byte that is not the one that was sent ends the run.
    let ours = socket::run(&plan, &pair, Direction::ToSocket)?;
    Ok(Kernel {
        bytes: ours.bytes,
        goodput_bytes_per_s: ours.goodput(),
        tcp_goodput_bytes_per_s: tcp.goodput(),
        ratio_to_tcp: ours.goodput() / tcp.goodput(),
        user_copied_bytes: ours.user_copied_bytes,
    })
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
        kernel: None,
        why_no_kernel: None,
    })
}

fn lines(facts: &Facts) -> [String; 5] {
    let kernel = match (&facts.kernel, &facts.why_no_kernel) {
        (Some(kernel), _) => format!(
            "to a socket of the kernel, over a cable: {}, {:.2} x from socket to socket ({}); {} \
             of {} copied in user space; compared: equal",
            speed(kernel.goodput_bytes_per_s),
            kernel.ratio_to_tcp,
            speed(kernel.tcp_goodput_bytes_per_s),
            bytes(kernel.user_copied_bytes),
            bytes(kernel.bytes),
        ),
        (None, why) => format!(
            "not to a socket of the kernel, since it {}; `unshare -Urn landfall demo` may",
            why.as_deref().unwrap_or("was not tried")
        ),
    };
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
        kernel,
    ]
}
