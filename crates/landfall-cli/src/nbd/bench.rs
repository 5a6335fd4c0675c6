//! `landfall nbd bench`: how fast an export is.

use std::process::ExitCode;

use anyhow::Result;
use landfall_lab::workload::blocks::{self, Setup};

use super::connect::{ConnectArgs, Connector, Target};
use crate::style;
use crate::transfer::options::parse_size;

/// Options of `landfall nbd bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = landfall_storage::program::BENCH_EXAMPLES)]
pub(crate) struct Args {
    /// The export: nbd://HOST:PORT/NAME, nbd+unix:///NAME?socket=PATH, nbd+qp://HOST:PORT/NAME or
    /// nbd+stp://HOST:PORT/NAME?udp=PORT, and nbds for TLS. What is in it is overwritten by
    /// --work write and mixed
    #[arg(value_parser = Target::parse)]
    server: Target,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    block: u64,
    #[command(flatten)]
    setup: Setup,
    #[command(flatten)]
    connect: ConnectArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Measures, and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut connector = Connector::new(&args.connect);
    let client = connector.connect(args.server.export()?)?;
    let summary = blocks::run(&client, args.block, &args.setup)?;
    if args.json {
        style::print_json(&summary)?;
    } else {
        style::print(&format!("{summary}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
