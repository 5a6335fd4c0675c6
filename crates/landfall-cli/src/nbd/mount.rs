//! `landfall nbd mount`: a device as a file of this host.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use landfall_storage::mount::command::{EXAMPLES, MountArgs};

use super::connect::{ConnectArgs, Connector, Target};
use crate::files::Terminal;

/// Options of `landfall nbd mount`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The device: nbd://HOST:PORT/NAME, nbd+unix:///NAME?socket=PATH, nbd+qp://HOST:PORT/NAME or
    /// nbd+stp://HOST:PORT/NAME?udp=PORT, and nbds for TLS
    #[arg(value_parser = Target::parse)]
    device: Target,
    #[command(flatten)]
    mount: MountArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Mounts, and stays until it is unmounted.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut terminal = Terminal::new()?;
    let mut connector = Connector::new(&args.connect);
    let client = connector.connect(args.device.export()?)?;
    let ended = args.mount.run(client, &mut terminal);
    ended.map_err(|error| anyhow!(error)).map(|()| ExitCode::SUCCESS)
}
