//! `landfall nbd copy`: everything of one device to another.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use landfall_storage::copy::{Destination, Source, Step, copy};
use serde::Serialize;

use super::connect::{ConnectArgs, Connector, Target};
use crate::style;
use crate::transfer::meter::{Meter, Tally};

/// Options of `landfall nbd copy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = landfall_storage::program::COPY_EXAMPLES)]
pub(crate) struct Args {
    /// From here: nbd://HOST:PORT/NAME, nbd+unix:///NAME?socket=PATH, nbd+qp://HOST:PORT/NAME or
    /// nbd+stp://HOST:PORT/NAME?udp=PORT, and nbds for TLS; or a file
    #[arg(value_parser = Target::parse)]
    from: Target,
    /// To there; a file is made, or emptied before
    #[arg(value_parser = Target::parse)]
    to: Target,
    /// Requests under way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    #[command(flatten)]
    connect: ConnectArgs,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
    /// One JSON object at the end
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    bytes: u64,
    moved: u64,
    seconds: f64,
    bytes_per_second: f64,
}

/// Copies.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut connector = Connector::new(&args.connect);
    let from = match &args.from {
        Target::File(path) => {
            Source::open(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        Target::Export(uri) => Source::Export(connector.connect(uri)?),
    };
    let size = from.size();
    let to = match &args.to {
        Target::File(path) => Destination::open(path, size)
            .with_context(|| format!("cannot write {}", path.display()))?,
        Target::Export(uri) => Destination::export(connector.connect(uri)?, size)?,
    };
    let tally = Tally::default();
    tally.total_bytes.store(size, Ordering::Relaxed);
    let mut meter = Meter::new(args.quiet || args.json);
    copy(&from, &to, args.depth.into(), |step| {
        match step {
            Step::Moved(len) => tally.add_moved(len),
            Step::Skipped(len) => {
                tally.bytes.fetch_add(len, Ordering::Relaxed);
            }
        }
        meter.show(&tally);
    })?;
    let seconds = meter.elapsed().as_secs_f64();
    let moved = tally.moved.load(Ordering::Relaxed);
    // Its line ends before anything else is said.
    drop(meter);
    let bytes_per_second = size as f64 / seconds.max(1e-9);
    let summary = Summary { bytes: size, moved, seconds, bytes_per_second };
    if args.json {
        style::print_json(&summary)?;
    } else if !args.quiet {
        style::print(&format!(
            "{} copied in {seconds:.1} s, {}/s; {} were data\n",
            style::bytes(size),
            style::bytes(bytes_per_second as u64),
            style::bytes(moved),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
