//! `landfall demo`: what the family does, shown on this machine without any
//! privilege, in under half a minute.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `bulk` | Transfers between two processes, received in place, beside kernel TCP |
//! | `striping` | a Transfer over two paths, of which one goes away in the middle |
//! | `remote_memory` | words put, fetched and got in memory of another process, beside kernel TCP |
//! | `queue_pairs` | messages posted and reaped, beside `send` and `recv`; messages between stations |
//! | `fragments` | pages in fragments, joined where they land, beside kernel TCP |
//! | `tripwires` | a word in the memory of another process, seen and answered, beside kernel TCP |
//! | `firmware` | the same Transfer by the host's processor and by two simulated adapters |
//! | `faults` | the same on a path where much goes wrong |
//! | `in_process` | two engines joined by a channel |
//! | `regions` | memory that is lent, taken back, and refused afterwards |
//! | `simulated` | a network in virtual time, replayed by its seed |
//! | `other` | the other process of the first three |

mod bulk;
mod faults;
mod firmware;
mod fragments;
mod in_process;
mod other;
mod queue_pairs;
mod regions;
mod remote_memory;
mod simulated;
mod striping;
mod tripwires;

pub use other::answer;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use landfall_testbed::Measured;
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;
use crate::style::{self, Progress, Style};

const EXAMPLES: &str = "\
Examples:
  landfall demo
  NO_COLOR=1 landfall demo
  landfall demo --json | jq '.acts[] | {name, ok}'";

/// Options of `landfall demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Only a taste of each act: its figures say little
    #[arg(long, hide = true)]
    quick: bool,
}

/// How much an act moves.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// How long each timed run takes.
    time: Duration,
    rounds: usize,
    /// Messages of 1 MiB in runs of a fixed length.
    messages: u64,
}

impl Scale {
    const FULL: Self = Self { time: Duration::from_millis(500), rounds: 5, messages: 64 };
    const QUICK: Self = Self { time: Duration::from_millis(30), rounds: 1, messages: 4 };
}

/// What an act showed: a line for people each, and the same as data.
#[derive(Debug)]
struct Shown {
    lines: Vec<String>,
    facts: Value,
}

impl Shown {
    fn new(lines: impl IntoIterator<Item = String>, facts: &impl Serialize) -> Result<Self> {
        Ok(Self { lines: lines.into_iter().collect(), facts: serde_json::to_value(facts)? })
    }
}

struct Act {
    name: &'static str,
    title: &'static str,
    play: fn(Scale) -> Result<Shown>,
}

const ACTS: [Act; 11] = [
    Act {
        name: "bulk",
        title: "Scheduled Transfers to another process, received in place, beside kernel TCP",
        play: bulk::play,
    },
    Act {
        name: "striping",
        title: "One Transfer over two paths to another process; one path is killed in the middle",
        play: striping::play,
    },
    Act {
        name: "remote-memory",
        title: "Put, Get and fetch-and-add in the memory of another process, beside kernel TCP",
        play: remote_memory::play,
    },
    Act {
        name: "queue-pairs",
        title: "A byte posted and reaped, beside send and recv; messages by TCP inside of UDP",
        play: queue_pairs::play,
    },
    Act {
        name: "fragments",
        title: "Pages in fragments, joined where they land by a guess, and what a wrong one costs",
        play: fragments::play,
    },
    Act {
        name: "tripwires",
        title: "A word in the memory of another process, seen and answered; tripwires that wake",
        play: tripwires::play,
    },
    Act {
        name: "firmware",
        title: "The same Transfer by the host's processor and by two simulated adapters",
        play: firmware::play,
    },
    Act {
        name: "faults",
        title: "Transfers on a path that loses, repeats, reorders and corrupts",
        play: faults::play,
    },
    Act {
        name: "channel",
        title: "Two engines in one process, joined by a channel",
        play: in_process::play,
    },
    Act {
        name: "regions",
        title: "Memory is lent, filled, taken back and read where the bytes landed",
        play: regions::play,
    },
    Act {
        name: "simulated",
        title: "A Transfer over two lossy links in virtual time, replayed by its seed",
        play: simulated::play,
    },
];

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    acts: Vec<Played>,
}

#[derive(Debug, Serialize)]
struct Played {
    name: &'static str,
    ok: bool,
    /// What went wrong.
    error: Option<String>,
    /// What was shown; `null` if something went wrong.
    facts: Value,
}

/// Plays all acts; one that fails does not keep the others from being shown.
pub fn run(args: &Args) -> Result<ExitCode> {
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let style = Style::of_stdout();
    let mut report = Report { machine: Machine::read(), acts: Vec::new() };
    if !args.json {
        style::print(&format!("{}\n", style.strong(report.machine.describe())))?;
        if report.machine.debug_build {
            let warning = "This is a debug build: the speeds say nothing. Use --release.";
            style::print(&format!("{}\n", style.warn(warning)))?;
        }
    }
    for (nth, act) in (1..).zip(ACTS) {
        let progress = Progress::on_stderr();
        progress.say(&format!("{nth}. {} …", act.title));
        let outcome = (act.play)(scale);
        drop(progress);
        if !args.json {
            style::print(&tell(nth, &act, &outcome, style))?;
        }
        report.acts.push(match outcome {
            Ok(shown) => Played { name: act.name, ok: true, error: None, facts: shown.facts },
            Err(error) => {
                let error = Some(format!("{error:#}"));
                Played { name: act.name, ok: false, error, facts: Value::Null }
            }
        });
    }
    if args.json {
        style::print_json(&report)?;
    }
    let all = report.acts.iter().all(|act| act.ok);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(nth: usize, act: &Act, outcome: &Result<Shown>, style: Style) -> String {
    let mut text = format!("\n{}\n", style.strong(format!("{nth}. {}", act.title)));
    match outcome {
        Ok(shown) => {
            for line in &shown.lines {
                text += &format!("   {line}\n");
            }
            text + &format!("   {}\n", style.good("as it should be"))
        }
        Err(error) => text + &format!("   {}\n", style.warn(format!("FAILED: {error:#}"))),
    }
}

/// What was measured, unless it went wrong.
fn without_failure(measured: Measured) -> Result<Measured> {
    match measured.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(measured),
    }
}

/// The one in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Bytes per second, as people say it.
fn speed(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}
