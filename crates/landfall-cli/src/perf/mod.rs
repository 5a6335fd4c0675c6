//! `landfall perf local`: drivers with a test engine, STP, QPIP, speculative
//! defragmentation and CLAN against kernel TCP and UDP, interleaved, both ends on this machine.
//!
//! | file | what it is |
//! | --- | --- |
//! | `row` | one row of the result, with the documented fields |
//! | `group` | candidates that are compared: one link, one setting |
//! | `rivals` | the kernel's own |
//! | `ours` | the drivers with a test engine |
//! | `stp` | the Scheduled Transfer Protocol, over each of its encapsulations |
//! | `qpip` | queue pairs, to each other and to sockets |
//! | `clan` | shared memory with tripwires, between processes and over a network |
//! | `defrag` | pages over a wire that carries less, joined by us or by the kernel |
//! | `absent` | what could not be measured, and why |
//! | `report` | rows as a table |

mod absent;
pub(crate) mod clan;
mod defrag;
mod group;
mod ours;
mod qpip;
mod report;
mod rivals;
mod row;
mod stp;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use landfall_testbed::{VethConfig, VethPair, privileges};
use serde::Serialize;

use crate::machine::Machine;
use crate::style::{self, Progress, Style};
use absent::Absent;
use group::{Group, Setting};
use row::Row;

/// The MTU of the loopback interface.
const LOOPBACK_MTU: u32 = 65_536;
/// What a cable may have; see `VethConfig`.
const MTU_RANGE: std::ops::RangeInclusive<i64> = 1280..=65_536;

/// A run that takes so much longer than it should has failed.
const PATIENCE: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  landfall perf local                          over loopback
  sudo landfall perf local --veth              between two namespaces
  sudo landfall perf local --veth --mtu 1500 --rounds 9 --seconds 2
  landfall perf local --json | jq '.rows[] | {protocol, transport, ratio_to_tcp}'

Kernel TCP is always measured, since the others are compared with it.
The fields of --json are described in docs/perf-json.md.";

/// Options of `landfall perf local`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Between two network namespaces of our own (as root) instead of loopback
    #[arg(long)]
    veth: bool,
    /// MTU of the link; over loopback units are only sized for it
    /// [default: 1500,9000 with --veth, else 65536]
    #[arg(long, value_name = "BYTES", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(MTU_RANGE))]
    mtu: Vec<u32>,
    /// What to measure; everything if not given
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    protocol: Vec<Protocol>,
    /// How often each candidate runs; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How long each run takes
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: Duration,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// The protocols that there are so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Shared memory with tripwires
    Clan,
    /// Speculative defragmentation, beside the kernel's own
    Defrag,
    /// Queue pairs on TCP
    Qpip,
    /// The Scheduled Transfer Protocol
    Stp,
    /// The test engines of Landfall over its drivers
    Test,
    /// Kernel TCP
    Tcp,
    /// Kernel UDP with segmentation offload and GRO
    Udp,
    /// Kernel Unix sockets
    Unix,
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    machine: MachineAndSettings,
    rows: Vec<Row>,
}

/// What the figures are worth nothing without.
#[derive(Debug, Serialize)]
struct MachineAndSettings {
    #[serde(flatten)]
    machine: Machine,
    link: &'static str,
    pinned: bool,
    rounds: u16,
    seconds: f64,
    absent: Vec<Absent>,
}

impl Args {
    fn wants(&self, protocol: Protocol) -> bool {
        self.protocol.is_empty() || self.protocol.contains(&protocol)
    }

    fn mtus(&self) -> Vec<u32> {
        let mut mtus = match (&self.mtu[..], self.veth) {
            ([], true) => vec![1500, 9000],
            ([], false) => vec![LOOPBACK_MTU],
            (given, _) => given.to_vec(),
        };
        let mut seen = Vec::new();
        mtus.retain(|mtu| {
            !seen.contains(mtu) && {
                seen.push(*mtu);
                true
            }
        });
        mtus
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if !(0.01..=600.0).contains(&seconds) {
        return Err("0.01 to 600 seconds are possible".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Measures, and prints the result.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.veth
        && let Some(why) = privileges::why_no_namespaces()
    {
        bail!(
            "--veth: {why}; `landfall doctor` says what to do, and without --veth no \
               privilege is needed"
        );
    }
    let (mut rows, mut absent) = (Vec::new(), Vec::new());
    let mut pinned = true;
    let progress = Progress::on_stderr();
    for mtu in args.mtus() {
        let pair = if args.veth {
            Some(VethPair::new(VethConfig { mtu, ..VethConfig::default() })?)
        } else {
            None
        };
        let endpoints = pair.as_ref().map_or_else(Endpoints::loopback, Endpoints::over)?;
        pinned &= endpoints.send.core != endpoints.receive.core;
        let mut plan = Plan::new(endpoints, Amount::Time(args.seconds));
        plan.limit = PATIENCE;
        let setting = |offload| Setting { plan: &plan, pair: pair.as_ref(), mtu, offload };
        let mut measure = |group: Group<'_>| {
            let done = group.measure(args.rounds.into(), &progress);
            rows.extend(done.0);
            absent.extend(done.1);
        };
        measure(throughput(args, setting(true)));
        if let Some(pair) = &pair {
            pair.set_real_frames(true)?;
            measure(throughput(args, setting(false)));
            pair.set_real_frames(false)?;
        }
        measure(latency(args, setting(true)));
        if args.wants(Protocol::Qpip) {
            measure(overhead(setting(true)));
        }
    }
    drop(progress);
    finish(args, rows, absent, pinned)
}

fn throughput<'a>(args: &Args, setting: Setting<'a>) -> Group<'a> {
    let mut group = Group::new(setting);
    rivals::add_tcp(&mut group);
    if args.wants(Protocol::Udp) {
        rivals::add_udp(&mut group);
    }
    if args.wants(Protocol::Unix) && setting.pair.is_none() {
        rivals::add_unix(&mut group);
    }
    if args.wants(Protocol::Stp) {
        stp::add_throughput(&mut group);
    }
    if args.wants(Protocol::Qpip) {
        qpip::add_throughput(&mut group);
    }
    if args.wants(Protocol::Defrag) {
        defrag::add_throughput(&mut group);
    }
    if args.wants(Protocol::Clan) {
        clan::add_throughput(&mut group);
    }
    if args.wants(Protocol::Test) {
        ours::add_throughput(&mut group);
    }
    group
}

fn latency<'a>(args: &Args, setting: Setting<'a>) -> Group<'a> {
    let mut group = Group::new(setting);
    rivals::add_latency(&mut group, |protocol| args.wants(protocol));
    if args.wants(Protocol::Stp) {
        stp::add_latency(&mut group);
    }
    if args.wants(Protocol::Qpip) {
        qpip::add_latency(&mut group);
    }
    if args.wants(Protocol::Clan) {
        clan::add_latency(&mut group);
    }
    if args.wants(Protocol::Test) {
        ours::add_latency(&mut group);
    }
    group
}

/// Only queue pairs can leave the work to somebody else.
fn overhead(setting: Setting<'_>) -> Group<'_> {
    let mut group = Group::new(setting);
    rivals::add_overhead(&mut group);
    qpip::add_overhead(&mut group);
    group
}

fn finish(args: &Args, rows: Vec<Row>, absent: Vec<Absent>, pinned: bool) -> Result<ExitCode> {
    for line in absent::lines(&absent) {
        eprintln!("{line}");
    }
    let failed = absent.iter().any(|absent| absent.failed);
    let machine = MachineAndSettings {
        machine: Machine::read(),
        link: if args.veth { "veth" } else { "loopback" },
        pinned,
        rounds: args.rounds,
        seconds: args.seconds.as_secs_f64(),
        absent,
    };
    let report = Report { machine, rows };
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&report::describe(&report, Style::of_stdout()))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
