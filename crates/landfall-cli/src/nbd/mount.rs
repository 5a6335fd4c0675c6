//! `landfall nbd mount`: a device as a file of this host.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use landfall_storage::mount::{Mount, MountOptions};
use landfall_transport::signals::Endings;
use serde_json::json;

use super::connect::{ConnectArgs, Connector, Target};
use crate::{printable, style};

const EXAMPLES: &str = "\
Examples:
  touch disk && landfall nbd mount nbd://host/disk disk      `disk` is the device
  landfall nbd mount nbd+stp://host/disk mnt                 the file mnt/disk is
  landfall nbd mount nbd+qp://10.9.0.2/disk disk --interface eth1 --address 10.9.0.3/24
  sudo mkfs.ext4 disk && sudo mount -o loop disk /mnt        a file system in it

It runs until SIGINT or SIGTERM, or until somebody unmounts it (`umount disk`, `fusermount3 -u
disk`). While the file is in use a signal does not end it: unmount what uses it first, a file
system in it, say. A second signal ends it all the same, and those who use it see errors.";

/// How often it looks whether it shall end.
const TICK: Duration = Duration::from_millis(200);

/// Options of `landfall nbd mount`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The device: nbd://HOST:PORT/NAME, nbd+unix:///NAME?socket=PATH, nbd+qp://HOST:PORT/NAME or
    /// nbd+stp://HOST:PORT/NAME?udp=PORT, and nbds for TLS
    #[arg(value_parser = Target::parse)]
    device: Target,
    /// A file, whose place the device takes until it is unmounted; or a folder, in which it is
    /// the only file, with the name of the export
    place: PathBuf,
    /// Nobody writes
    #[arg(long)]
    read_only: bool,
    /// Other users of this host may use the file, too
    #[arg(long)]
    allow_other: bool,
    /// A server that has not answered for this many seconds is given up: who uses the file sees
    /// errors then, and the program ends
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    #[command(flatten)]
    connect: ConnectArgs,
    /// One JSON object, in a line, when it is there, and one at the end
    #[arg(long)]
    json: bool,
}

/// Mounts, and stays until it is unmounted.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Before any thread is started.
    let endings = Endings::catch().context("cannot wait for signals")?;
    let mut connector = Connector::new(&args.connect);
    let client = connector.connect(args.device.export()?)?;
    let size = client.size();
    let patience = Duration::from_secs(args.patience.into());
    let options = MountOptions::new(patience).read_only(args.read_only).others(args.allow_other);
    let mount = Mount::new(client, &args.place, &options)?;
    let ready = json!({ "file": mount.file(), "size": size }).to_string();
    let file = printable::printable(&mount.file().display().to_string());
    let told = format!("{file}: a device of {}", style::bytes(size));
    style::print(&format!("{}\n", if args.json { ready } else { told }))?;
    let signal = || Ok(endings.wait(TICK)? && endings.take()?.is_some());
    let ended = mount.stay(signal, |told| eprintln!("{told}"))?;
    let (done, told) = (json!({ "ended": ended }).to_string(), format!("unmounted: {ended}"));
    style::print(&format!("{}\n", if args.json { done } else { told }))?;
    Ok(ExitCode::SUCCESS)
}
