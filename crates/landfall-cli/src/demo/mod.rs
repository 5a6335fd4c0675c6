//! `landfall demo`.

use std::process::ExitCode;

/// Options of `landfall demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let _ = args.json;
    Ok(ExitCode::SUCCESS)
}
