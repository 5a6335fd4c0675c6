//! `landfall perf report`: measures with a server, and writes a page of it: what two machines
//! with real cards gave, for those who have none.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use super::client;
use crate::machine::Interface;
use crate::perf::options::Options;
use crate::perf::row::{Mode, lines_of_absent};
use crate::perf::{Report, report};
use crate::printable::printable;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  landfall perf server                              on one machine
  landfall perf report 192.0.2.7                    on another, some ten minutes
  landfall perf report 192.0.2.7 --mtu 9000 --page jumbo.md --plot jumbo.svg

Everything that two programs can measure, and messages of 64 bytes to 1 MiB, unless you choose.
The page has processors, kernels and drivers of both machines, and no name and no address.";

/// Options of `landfall perf report`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
// The group of the client's options has that name already.
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    client: client::Args,
    /// Where the page is written, in Markdown
    #[arg(long, value_name = "FILE.md", default_value = "landfall-report.md")]
    page: PathBuf,
}

/// Measures, prints the result, and writes the page.
pub fn run(args: &Args) -> Result<ExitCode> {
    // Nobody measures for minutes to hear that it cannot be written.
    report::check_place("--page", &args.page)?;
    let options = &args.client.options;
    let mut all = options.chosen();
    if all.is_empty() {
        all = Options::usual_and_sweep();
    }
    let report = client::measure(&args.client, &all)?;
    let path = args.page.display();
    fs::write(&args.page, page(&report)?).with_context(|| format!("cannot write {path}"))?;
    let outcome = report.present(options)?;
    let issues = concat!(env!("CARGO_PKG_REPOSITORY"), "/issues");
    eprintln!("{path} is written: read it, and send it in with an issue at {issues}");
    Ok(outcome)
}

/// The page.
fn page(report: &Report) -> Result<String> {
    let machine = &report.machine;
    let mut text = String::from("# landfall perf, between two programs\n\n");
    text += &machines(report)?.markdown();
    text += &format!(
        "\n\nMedians of {} interleaved rounds of {} s; throughput blocking, round trips polling.\n",
        machine.rounds, machine.seconds
    );
    if machine.machine.debug_build || is_debug_build(machine.server.as_ref()) {
        text += "\n**One of the programs is a debug build: the figures say nothing.**\n";
    }
    for (mode, table) in report::tables(&report.rows) {
        let title = match mode {
            Mode::Throughput => "Throughput",
            Mode::Latency => "Round trips",
            Mode::Overhead => "Time for a message",
        };
        text += &format!("\n## {title}\n\n{}\n", table.markdown());
    }
    let absent = lines_of_absent(&machine.absent);
    if !absent.is_empty() {
        text += "\n## Not measured\n\n";
        text += &absent.iter().map(|line| format!("- {}\n", cell(line))).collect::<String>();
    }
    text += &format!("\n## The columns\n\n{}\n{}\n", report::KINDS, report::COLUMNS);
    // Backquotes are in strings only, which may have them as escapes: no text ends the block.
    let json = serde_json::to_string_pretty(report)?.replace('`', "\\u0060");
    text += &format!("\n## As JSON\n\n```json\n{json}\n```\n");
    Ok(text)
}

/// What is known of both machines.
fn machines(report: &Report) -> Result<Table> {
    let machine = &report.machine;
    let own = serde_json::to_value(&machine.machine)?;
    let far = machine.server.clone().unwrap_or_default();
    let mut table = Table::new(["", "client", "server"]).with_words(3);
    for (title, key) in [
        ("processor", "processor"),
        ("architecture", "architecture"),
        ("cores", "cores"),
        ("governor", "governor"),
        ("memory, bytes", "memory_bytes"),
        ("Linux", "kernel"),
        ("landfall", "landfall"),
    ] {
        table.row([title.to_owned(), field(&own, key), field(&far, key)]);
    }
    let through = |interface: &Option<Interface>| {
        interface.as_ref().map_or("unknown".into(), |it| cell(&it.describe()))
    };
    let (own, far) = (through(&machine.interface), through(&machine.server_interface));
    table.row(["interface".to_owned(), own, far]);
    Ok(table)
}

fn field(machine: &Value, key: &str) -> String {
    match &machine[key] {
        Value::String(text) => cell(text),
        Value::Null => "unknown".into(),
        other => cell(&other.to_string()),
    }
}

fn is_debug_build(machine: Option<&Value>) -> bool {
    machine.is_some_and(|machine| machine["debug_build"] == true)
}

/// A text that the other program may have sent, so that it stays in its cell.
fn cell(text: &str) -> String {
    printable(text).replace('|', "/").replace('<', "‹").replace('>', "›").replace('`', "'")
}
