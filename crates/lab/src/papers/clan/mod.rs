//! `landfall paper clan`: Figures 7 to 10, Table 1 and the numbers of section 5.3 of the
//! paper on CLAN, ours beside its own.
//!
//! | file | what it is |
//! | --- | --- |
//! | `paper` | the numbers of the paper |
//! | `sweep` | words, and messages of growing length: Figures 7 and 10 |
//! | `server` | the event-driven server: Figures 8 and 9 |
//! | `ip` | Table 1, for who may make namespaces |
//! | `report` | the tables, for people |

mod ip;
mod paper;
mod report;
mod server;
mod sweep;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use landfall_testbed::rivals::Endpoints;
use serde::Serialize;

use crate::machine::Machine;
use crate::style::{self, Progress, Style};
use sweep::{Curve, RoundTrip, Sweep};

pub(crate) use report::found;

const EXAMPLES: &str = "\
Examples:
  landfall paper clan                 Figures 7 to 10 and section 5.3, below two minutes
  sudo landfall paper clan            Table 1, too: TCP over `landfall clan-ip`
  landfall paper clan --json | jq '.figure_10.ours[] | {name, half_of_peak_bytes}'
  landfall paper clan --json | jq '.server.ours[] | {name, busy_flat_within}'

All of it is measured live, in turns, beside the kernel's sockets: leave the machine alone
meanwhile. The fields of --json are in docs/perf-json.md.";

/// Options of `landfall paper clan`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// A look at a few points, each for a moment: its figures say nothing
    #[arg(long)]
    quick: bool,
}

/// Ours beside the paper's.
#[derive(Debug, Serialize)]
struct Comparison<P, O> {
    paper: P,
    ours: Vec<O>,
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    rounds: usize,
    quick: bool,
    word: Comparison<paper::Word, RoundTrip>,
    figure_7: Comparison<paper::Bandwidth, Curve>,
    figure_10: Comparison<paper::Bandwidth, Curve>,
    /// Figures 8 and 9.
    server: Comparison<paper::Server, server::Server>,
    /// Servers that were not measured with this many endpoints, and why. What was tried and
    /// went wrong makes the exit code 1.
    server_absent: Vec<server::Absent>,
    /// Without ours where it could not be measured.
    table_1: Comparison<[paper::Ip; 3], ip::TableRow>,
    why_not_table_1: Option<String>,
}

/// Measures, and prints.
pub fn run(args: &Args) -> Result<ExitCode> {
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let progress = Progress::on_stderr();
    let endpoints = Endpoints::loopback()?;
    let sweep = Sweep { endpoints: &endpoints, scale, progress: &progress };
    let words = sweep.words()?;
    let figure_7 = sweep.figure_7()?;
    let (servers, server_absent) = server::measure(&endpoints, scale, &progress);
    let figure_10 = sweep.figure_10()?;
    let why_not_table_1 = ip::why_not();
    let lines = match why_not_table_1 {
        Some(_) => Vec::new(),
        None => ip::measure(scale, &progress)?,
    };
    drop(progress);
    let report = Report {
        machine: Machine::read(),
        rounds: scale.rounds,
        quick: args.quick,
        word: Comparison { paper: paper::WORD, ours: words },
        figure_7: Comparison { paper: paper::FIGURE_7, ours: figure_7 },
        figure_10: Comparison { paper: paper::FIGURE_10, ours: figure_10 },
        server: Comparison { paper: paper::SERVER, ours: servers },
        server_absent,
        table_1: Comparison { paper: paper::TABLE_1, ours: lines },
        why_not_table_1,
    };
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&report::describe(&report, Style::of_stdout()))?;
    }
    let has_failed = report.server_absent.iter().any(|absent| absent.failed);
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Scale {
    rounds: usize,
    /// How long a point of a curve is measured in a round.
    time: Duration,
    /// Lengths of messages, the shortest first: multiples of eight.
    sizes: &'static [u32],
    /// Numbers of endpoints, the fewest first.
    endpoints: &'static [usize],
    /// Round trips of the kernel's sockets at the start that are not recorded.
    warm_up: u64,
    /// This many requests find the server asleep.
    idle: u32,
    /// Longer than anything takes that goes right.
    limit: Duration,
}

impl Scale {
    /// Below two minutes.
    const FULL: Self = Self {
        rounds: 3,
        time: Duration::from_millis(60),
        sizes: &[8, 64, 256, 512, 752, 1024, 2048, 4096, 16_384, 65_536, 262_144],
        endpoints: &[1, 10, 100, 1000, 10_000],
        warm_up: 100,
        idle: 200,
        limit: Duration::from_secs(60),
    };

    /// To see that it works.
    const QUICK: Self = Self {
        rounds: 1,
        time: Duration::from_millis(5),
        sizes: &[8, 752, 16_384],
        endpoints: &[1, 10, 100],
        warm_up: 5,
        idle: 5,
        limit: Duration::from_secs(60),
    };
}
