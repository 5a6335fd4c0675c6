//! `landfall paper stp`: Tables 1 and 2 of the paper on STP, live, ours beside its own.
//!
//! | file | what it is |
//! | --- | --- |
//! | `report` | the tables, for people; the numbers of the paper |
//!
//! What does not live here: how a line is measured; that is `perf`'s.

pub(crate) mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use landfall_testbed::rivals::{Amount, Endpoints, Plan, Workload};
use landfall_testbed::{VethConfig, VethPair, privileges};
use serde::Serialize;

use crate::machine::Machine;
use crate::perf::chosen::{self, Chosen};
use crate::perf::local::{Group, Setting};
use crate::perf::row::{Absent, Row};
use crate::perf::{local, stp};
use crate::style::{self, Progress, Style};
use report::{ReportRow, Stated, TABLE_1, TABLE_2};

const EXAMPLES: &str = "\
Examples:
  sudo landfall paper stp             Tables 1 and 2 on a cable of this machine
  landfall paper stp                  the same over loopback, without privileges
  landfall paper stp --json | jq '.table_1[] | {test, packet_bytes, paper, ours}'

TCP by write and by sendfile, with MSG_TRUNC at the receiver and without, STP, and both with a
receiver that reads every byte: all take turns. CPU as in the paper: by what is left of each
core for a thread of the lowest priority. The fields of --json are in docs/perf-json.md.";

/// A megabyte of the paper.
const MEGABYTE: f64 = (1 << 20) as f64;
/// A run that takes so much longer than it should has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// As the paper has them, the faster first.
const MTUS: [u32; 2] = [9000, 1500];

/// Options of `landfall paper stp`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Over loopback, though a cable could be made
    #[arg(long)]
    loopback: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Each line for a moment: its figures say nothing
    #[arg(long)]
    quick: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

impl Scale {
    /// Below a minute.
    const FULL: Self = Self { rounds: 5, time: Duration::from_millis(400) };
    /// To see that it works.
    pub(crate) const QUICK: Self = Self { rounds: 1, time: Duration::from_millis(50) };
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// `veth`, or `loopback`, where segments and STUs are as long as a link of the MTU
    /// would carry.
    pub(crate) link: &'static str,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) table_1: Vec<Comparison>,
    pub(crate) table_2: Vec<Comparison>,
    /// What could not be measured, and why.
    pub(crate) absent: Vec<Absent>,
}

/// A line of the paper with ours.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) test: &'static str,
    pub(crate) packet_bytes: u32,
    pub(crate) paper: Stated,
    /// One for each transport, with super-packets and without.
    pub(crate) ours: Vec<MeasuredRow>,
}

/// What was measured for a line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MeasuredRow {
    pub(crate) transport: &'static str,
    /// Super-packets may cross the link whole; otherwise each frame of the MTU does.
    pub(crate) offload: bool,
    pub(crate) megabytes_per_s: f64,
    /// To TCP by `write()` (Table 2: to TCP) of the same MTU.
    pub(crate) ratio_to_tcp: Option<f64>,
    pub(crate) cpu_core_percent_receive: Option<f64>,
    pub(crate) cpu_core_percent_send: Option<f64>,
    pub(crate) cpu_s_per_gb_receive: Option<f64>,
    pub(crate) cpu_s_per_gb_send: Option<f64>,
    pub(crate) spread: f64,
}

/// Measures, and prints.
pub fn run(args: &Args) -> Result<ExitCode> {
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let progress = Progress::on_stderr();
    let report = measure(scale, args.loopback, &progress)?;
    drop(progress);
    let failed = report.absent.iter().any(|absent| absent.failed);
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&report::describe(&report, Style::of_stdout()))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Both tables: on a cable where one can be made, otherwise over loopback.
pub(crate) fn measure(scale: Scale, loopback: bool, progress: &Progress) -> Result<Report> {
    let has_cable = !loopback && privileges::why_no_namespaces().is_none();
    let idle_meter = local::idle_meter(&Endpoints::loopback()?)?;
    let (mut rows, mut absent) = (Vec::new(), Vec::new());
    for mtu in MTUS {
        let pair = if has_cable {
            Some(VethPair::new(VethConfig { mtu, ..VethConfig::default() })?)
        } else {
            None
        };
        let endpoints = pair.as_ref().map_or_else(Endpoints::loopback, Endpoints::over)?;
        let mut plan = Plan::new(endpoints, Amount::Time(scale.time));
        (plan.limit, plan.idle_meter) = (PATIENCE, Some(idle_meter.clone()));
        let setting = |offload| Setting { plan: &plan, pair: pair.as_ref(), mtu, offload };
        let mut group = |offload| {
            let measured = lines(setting(offload)).measure(scale.rounds, progress);
            rows.extend(measured.0);
            absent.extend(measured.1);
        };
        if let Some(pair) = &pair {
            pair.set_real_frames(true)?;
            group(false);
            pair.set_real_frames(false)?;
        }
        group(true);
    }
    let beside = |lines: &[ReportRow]| lines.iter().map(|line| beside(line, &rows)).collect();
    Ok(Report {
        machine: Machine::read(),
        link: if has_cable { "veth" } else { "loopback" },
        rounds: scale.rounds,
        seconds: scale.time.as_secs_f64(),
        table_1: beside(&TABLE_1),
        table_2: beside(&TABLE_2),
        absent,
    })
}

/// All lines over one link, in turn.
fn lines(setting: Setting<'_>) -> Group<'_> {
    let chosen = Chosen {
        workloads: vec![
            Workload::Trunc,
            Workload::Sendfile,
            Workload::SendfileTrunc,
            Workload::Touch,
        ],
        stu: Some(report::stu(setting.mtu)),
        bounds_segments: setting.pair.is_none(),
        ..Chosen::usual()
    };
    let mut group = Group::new(setting);
    chosen::add_tcp(&mut group, &chosen);
    stp::add_chosen(&mut group, &chosen);
    group
}

/// The rows that do what a line of the paper did. TCP with the congestion control that
/// does not pace; see there.
fn beside(line: &ReportRow, rows: &[Row]) -> Comparison {
    let is_it = |row: &&Row| {
        row.protocol == line.protocol
            && row.mtu == line.mtu
            && row.workload == line.workload.name()
            && row.variant.is_none_or(|variant| variant == chosen::UNPACED)
    };
    let ours = rows.iter().filter(is_it).filter_map(|row| {
        Some(MeasuredRow {
            transport: row.transport,
            offload: row.offload,
            megabytes_per_s: row.goodput_bytes_per_s? / MEGABYTE,
            ratio_to_tcp: row.ratio_to_tcp,
            cpu_core_percent_receive: row.cpu_core_percent_receive,
            cpu_core_percent_send: row.cpu_core_percent_send,
            cpu_s_per_gb_receive: row.cpu_s_per_gb_receive,
            cpu_s_per_gb_send: row.cpu_s_per_gb_send,
            spread: row.spread,
        })
    });
    let ReportRow { test, packet_bytes, stated: paper, .. } = *line;
    Comparison { test, packet_bytes, paper, ours: ours.collect() }
}
