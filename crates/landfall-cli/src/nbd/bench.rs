//! `landfall nbd bench`: how fast an export is.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use landfall_lab::workload::blocks::{self, Latency, Order, Setup, Work};

use super::target::{ConnectArgs, Target};
use crate::style;
use crate::transfer::options::parse_size;

const EXAMPLES: &str = "\
Examples:
  landfall nbd bench nbd://host/disk                           random reads of 4 KiB
  landfall nbd bench nbd://host/disk --work write --depth 1   one write after another
  landfall nbd bench nbd://host/disk --order sequential --block 256K --json";

/// Options of `landfall nbd bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The export: nbd://HOST:PORT/NAME, nbds://HOST/NAME, nbd+unix:///NAME?socket=PATH. What
    /// is in it is overwritten by --work write and mixed
    #[arg(value_parser = Target::parse)]
    server: Target,
    /// What is done
    #[arg(long, value_enum, default_value = "read")]
    work: Work,
    /// In order, or anywhere
    #[arg(long, value_enum, default_value = "random")]
    order: Order,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    block: u64,
    /// Requests under way at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// How long it runs
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    connect: ConnectArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Measures, and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect(&args.connect)?;
    let setup = Setup {
        work: args.work,
        order: args.order,
        block: args.block,
        depth: args.depth,
        time: Duration::from_secs_f64(args.seconds.clamp(0.01, 3600.0)),
    };
    let summary = blocks::run(&client, &setup)?;
    if args.json {
        style::print_json(&summary)?;
    } else {
        let Latency { p50, p90, p99, most } = summary.latency_us;
        style::print(&format!(
            "{:.0} requests/s, {}/s; latency {p50:.1} µs, 90 % {p90:.1}, 99 % {p99:.1}, at most \
             {most:.1}; {:.2} s of CPU here\n",
            summary.requests_per_second,
            style::bytes(summary.bytes_per_second as u64),
            summary.cpu_seconds,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
