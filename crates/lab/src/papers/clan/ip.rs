//! Table 1: TCP over `landfall clan-ip`, two hosts of it in namespaces of their own,
//! and over the cable below.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall_testbed::interleave::interleave_with;
use landfall_testbed::rivals::{
    Amount, Endpoints, Plan, StreamShape, TcpLatency, TcpOptions, TcpThroughput,
};
use landfall_testbed::{
    Candidate, Error, Measured, Sample, VethConfig, VethEnd, VethPair, privileges,
};
use serde::Serialize;

use super::Scale;
use crate::style::Progress;

const PORT: u16 = 7100;
/// The message of the table's bandwidth.
const KILOBYTE: usize = 1024;

/// A line of Table 1.
#[derive(Debug, Serialize)]
pub(super) struct TableRow {
    pub(super) name: &'static str,
    /// What the kernel offers, for comparison.
    pub(super) peer: bool,
    /// A byte there and back.
    pub(super) round_trip_us: f64,
    /// A kilobyte there and back: its bytes, one way, in that time.
    pub(super) mbit_per_s: f64,
    /// A stream of them in one direction.
    pub(super) stream_mbit_per_s: f64,
}

/// Why nothing can be measured here; `None` when it can.
pub(super) fn why_not() -> Option<String> {
    let why = privileges::why_no_namespaces()?;
    Some(format!("it needs root ({why})"))
}

/// A running `landfall clan-ip`; it ends with this.
struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        // The kernel takes its interface away with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address of host 1 or 2 above the cable.
fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 7, 0, host as u8).into()
}

/// Starts host 1 or 2 at its end of the cable, and waits until its interface is up.
fn start(host: usize, cable: &VethPair, limit: Duration) -> Result<Host> {
    let [near, far]: [&VethEnd; 2] = match host {
        1 => [&cable.a, &cable.b],
        _ => [&cable.b, &cable.a],
    };
    let other = 3 - host;
    let program = std::env::current_exe().context("where is this program?")?;
    let mut command = Command::new(program);
    command.args(["clan-ip", "--host", &host.to_string()]);
    command.args(["--bind", &format!("{}:{PORT}", near.ipv4)]);
    command.args(["--neighbour", &format!("{other}={}:{PORT}", far.ipv4)]);
    command.args(["--address", &format!("{}/24", address(host)), "--stats", "0"]);
    // Ends by itself, should nobody be left to end it.
    command.args(["--seconds", "300"]).stdout(Stdio::piped()).stdin(Stdio::null());
    let child = near.namespace.enter(|| command.spawn())?.context("cannot start clan-ip")?;
    let mut host = Host(child);
    let said = host.0.stdout.take().context("clan-ip has no pipe")?;
    let (tell, hear) = channel();
    thread::spawn(move || {
        let mut line = String::new();
        let heard = BufReader::new(said).read_line(&mut line);
        // Nobody waits any more: it took too long.
        let _ = tell.send(heard.map(|_| line));
    });
    let line = hear.recv_timeout(limit).context("clan-ip does not come up")??;
    ensure!(line.contains(" is up"), "clan-ip did not come up");
    Ok(host)
}

/// What TCP runs over, and how it is called.
struct IpRoute {
    name: &'static str,
    peer: bool,
    endpoints: Endpoints,
}

/// Measures both, in turns.
pub(super) fn measure(scale: Scale, progress: &Progress) -> Result<Vec<TableRow>> {
    let cable = VethPair::new(VethConfig::default())?;
    let _hosts = [start(1, &cable, scale.limit)?, start(2, &cable, scale.limit)?];
    let below = Endpoints::over(&cable)?;
    let mut above = below.clone();
    (above.send.address, above.receive.address) = (address(1), address(2));
    let roads = [
        IpRoute { name: "clan-ip, over UDP on a cable", peer: false, endpoints: above },
        IpRoute { name: "kernel, on the same cable", peer: true, endpoints: below },
    ];
    meet(&roads[0].endpoints, scale.limit)?;
    // Longer than elsewhere: a connection has to find its speed.
    let plans = roads.each_ref().map(|road| {
        let plan = Plan::new(road.endpoints.clone(), Amount::Time(4 * scale.time));
        Plan { limit: scale.limit, ..plan }
    });
    let mut candidates = Vec::new();
    for (road, plan) in roads.iter().zip(&plans) {
        let warm_up = scale.warm_up;
        for (what, bytes) in [("a byte", 1), ("a kilobyte", KILOBYTE)] {
            let trips = move || TcpLatency { warm_up, ..TcpLatency::new(plan.clone(), bytes) };
            candidates.push(candidate(road, what, move || trips().run()));
        }
        candidates.push(candidate(road, "a stream", || stream(plan)));
    }
    let rounds = scale.rounds;
    let comparison = interleave_with(rounds, &mut candidates, |round, label| {
        progress.say(&format!("Table 1, round {} of {rounds}: {label}", round + 1));
    });
    drop(candidates);
    let mut measured = comparison.measured;
    if let Some(failure) = measured.iter_mut().find_map(|measured| measured.failure.take()) {
        return Err(failure.into());
    }
    let lines = roads.iter().zip(measured.chunks(3)).map(|(road, measured)| line(road, measured));
    lines.collect::<Option<_>>().context("no round was completed")
}

fn candidate<'a>(
    road: &IpRoute,
    what: &str,
    run: impl FnMut() -> Result<Sample, Error> + 'a,
) -> Candidate<'a> {
    Candidate::new(format!("{}, {what}", road.name), run)
}

/// The first packets find no connection yet, and may be lost.
fn meet(endpoints: &Endpoints, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let short =
        Plan { limit: Duration::from_secs(2), ..Plan::new(endpoints.clone(), Amount::Messages(1)) };
    while let Err(error) = (TcpLatency { warm_up: 0, ..TcpLatency::new(short.clone(), 1) }).run() {
        if Instant::now() > deadline {
            bail!("the two hosts do not find each other: {error}");
        }
    }
    Ok(())
}

fn stream(plan: &Plan) -> Result<Sample, Error> {
    let shape = StreamShape { send_size: KILOBYTE, ..StreamShape::default() };
    let options = TcpOptions { no_delay: true, ..TcpOptions::default() };
    TcpThroughput { plan: plan.clone(), shape, options, connections: 1 }.run()
}

fn line(road: &IpRoute, measured: &[Measured]) -> Option<TableRow> {
    let [byte, kilobyte, stream] = measured else { return None };
    Some(TableRow {
        name: road.name,
        peer: road.peer,
        round_trip_us: byte.median(Sample::rtt_p50_ns)? / 1e3,
        mbit_per_s: KILOBYTE as f64 * 8e3 / kilobyte.median(Sample::rtt_p50_ns)?,
        stream_mbit_per_s: stream.median(Sample::goodput)? * 8.0 / 1e6,
    })
}
