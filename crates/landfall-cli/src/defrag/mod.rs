//! `landfall paper defrag`: the tables of the paper on speculative defragmentation,
//! ours beside its own.
//!
//! | file | what it is |
//! | --- | --- |
//! | `paper` | the numbers of the paper |
//! | `trace` | simulated traffic, shaped like that of its applications |
//! | `adapter` | the engine's receiver behind an adapter that knows only descriptors |
//! | `tables` | traces through receivers: both tables |
//! | `report` | the tables, for people |

mod adapter;
mod paper;
mod report;
mod tables;
#[cfg(test)]
mod tests;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::style::{self, Progress, Style};
use tables::{Application, Disturbed, Scale};

const EXAMPLES: &str = "\
Examples:
  landfall paper defrag
  landfall paper defrag --seed 7
  landfall paper defrag --json | jq '.table_2[].stations[] | {name, single, learned}'";

/// Options of `landfall paper defrag`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which of the possible runs of the simulated traffic
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// A tenth of the traffic: its counts are no match for the paper's
    #[arg(long, hide = true)]
    quick: bool,
}

/// The year of the paper.
const SEED: u64 = 2000;

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    seed: u64,
    table_1: Vec<Disturbed>,
    table_2: Vec<Application>,
}

/// Simulates, and prints both tables.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let scale = if args.quick { Scale::Tenth } else { Scale::Full };
    let progress = Progress::on_stderr();
    progress.say("Table 1: a transfer that is disturbed …");
    let table_1 = tables::table_1(args.seed, scale)?;
    progress.say("Table 2: two applications …");
    let table_2 = vec![tables::tpc_d(args.seed, scale)?, tables::tread_marks(args.seed, scale)?];
    drop(progress);
    let report = Report { seed: args.seed, table_1, table_2 };
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&report::describe(&report, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}
