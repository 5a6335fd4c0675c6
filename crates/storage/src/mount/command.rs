//! What `landfall nbd mount` does, but for how it reaches its server.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::{Mount, MountOptions};
use crate::client::Client;
use crate::program::{CommandError, Program};

/// What stands below its help.
pub const EXAMPLES: &str = "\
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

/// Where the device becomes a file, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct MountArgs {
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
    /// One JSON object, in a line, when it is there, and one at the end
    #[arg(long)]
    json: bool,
}

impl MountArgs {
    /// Mounts, and stays until it is unmounted.
    ///
    /// # Errors
    /// What failed, in words for the user.
    pub fn run(&self, client: Client, program: &mut dyn Program) -> Result<(), CommandError> {
        let size = client.size();
        let patience = Duration::from_secs(self.patience.into());
        let options =
            MountOptions::new(patience).read_only(self.read_only).others(self.allow_other);
        let mount = Mount::new(client, &self.place, &options)?;
        let ready = json!({ "file": mount.file(), "size": size }).to_string();
        let told = format!("{}: a device of {size} bytes", mount.file().display());
        program.print(&format!("{}\n", if self.json { ready } else { told }))?;
        let program = RefCell::new(program);
        let warn = |told: &str| program.borrow_mut().warn(told);
        let signal = || -> io::Result<bool> { program.borrow_mut().wait(TICK) };
        let ended = mount.stay(signal, warn)?;
        let (done, told) = (json!({ "ended": ended }).to_string(), format!("unmounted: {ended}"));
        let text = format!("{}\n", if self.json { done } else { told });
        program.into_inner().print(&text)?;
        Ok(())
    }
}
