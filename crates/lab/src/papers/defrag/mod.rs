//! `landfall paper defrag`: the tables and figures of the paper on speculative
//! defragmentation, ours beside its own.
//!
//! | file | what it is |
//! | --- | --- |
//! | `paper` | the numbers of the paper |
//! | `trace` | simulated traffic, shaped like that of its applications |
//! | `adapter` | the engine's receiver behind an adapter that knows only descriptors |
//! | `tables` | traces through receivers: both tables |
//! | `recorded` | hit rates on frames of a capture file |
//! | `shuffle` | frames of several senders at once, recorded on this machine |
//! | `live` | Table 1 and Figures 4 and 5 on a cable of this machine |
//! | `report`, `live_report` | the tables, for people |

mod adapter;
mod live;
mod live_report;
mod paper;
mod recorded;
mod report;
mod shuffle;
mod tables;
#[cfg(test)]
mod tests;
mod trace;

pub(crate) use adapter::Ram;
pub(crate) use live::found;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::style::{self, Progress, Style};
use live::Live;
use recorded::Recorded;
use shuffle::Shuffle;
use tables::{Application, Disturbed, Scale};

const EXAMPLES: &str = "\
Examples:
  sudo landfall paper defrag          Tables 1 and 2, Figures 4 and 5
  landfall paper defrag --simulated   without what is measured on this machine
  landfall paper defrag --seed 7
  landfall paper defrag --pcap trace.pcapng   hit rates on recorded frames
  sudo landfall paper defrag --shuffle 3      the same on three senders at once, through a bridge
  landfall paper defrag --json | jq '.table_2[].stations[] | {name, single, learned}'";

/// Options of `landfall paper defrag`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which of the possible runs of the simulated traffic
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Only what is simulated, which comes out the same each time
    #[arg(long)]
    simulated: bool,
    /// Only the hit rates on the frames of this capture file (pcap or pcapng)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["simulated", "seed"])]
    pcap: Option<PathBuf>,
    /// Only the hit rates where this many senders give a receiver datagrams of 32 KiB at once
    #[arg(long, value_name = "SENDERS", conflicts_with_all = ["simulated", "seed", "pcap"])]
    shuffle: Option<u8>,
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
    /// On a cable of this machine; `null` where it could not be measured.
    live: Option<Live>,
    /// Why it is not there.
    why_not_live: Option<String>,
}

fn shuffled(senders: u8) -> Result<Recorded> {
    if let Some(why) = live::why_not() {
        bail!("no network of senders can be made here: {why}");
    }
    let frames = shuffle::record(Shuffle::of(senders))?;
    recorded::study_frames(format!("a shuffle, senders: {senders}"), &frames)
}

/// Simulates, and prints both tables.
pub fn run(args: &Args) -> Result<ExitCode> {
    let recorded = match (&args.pcap, args.shuffle) {
        (Some(path), _) => Some(recorded::study(path)?),
        (None, Some(senders)) => Some(shuffled(senders)?),
        (None, None) => None,
    };
    if let Some(recorded) = recorded {
        if args.json {
            style::print_json(&recorded)?;
        } else {
            style::print(&recorded::describe(&recorded, Style::of_stdout()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let scale = if args.quick { Scale::Tenth } else { Scale::Full };
    let progress = Progress::on_stderr();
    progress.say("Table 1: a transfer that is disturbed …");
    let table_1 = tables::table_1(args.seed, scale)?;
    progress.say("Table 2: two applications …");
    let table_2 = vec![tables::tpc_d(args.seed, scale)?, tables::tread_marks(args.seed, scale)?];
    let why_not_live = match args.simulated {
        true => Some("only what is simulated was asked for".to_owned()),
        false => live::why_not(),
    };
    let live = match why_not_live {
        Some(_) => None,
        None => {
            progress.say("Figures 4 and 5: a cable of this machine …");
            Some(live::measure(scale)?)
        }
    };
    drop(progress);
    let report = Report { seed: args.seed, table_1, table_2, live, why_not_live };
    if args.json {
        style::print_json(&report)?;
    } else {
        let style = Style::of_stdout();
        let live =
            live_report::describe(report.live.as_ref(), report.why_not_live.as_deref(), style);
        style::print(&(report::describe(&report, style) + &live))?;
    }
    Ok(ExitCode::SUCCESS)
}
