//! What file systems by FUSE have in common: how the kernel has them, and how they are taken out of
//! the tree of directories.

use std::io;
use std::path::Path;
use std::process::Command;

use fuser::{Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// How the kernel has a file system: what is read from the other end is data, whatever it says
/// of itself, and the kernel checks who may use it.
pub(crate) fn config(name: &str, read_only: bool, allow_other: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // Commas separate options.
        MountOption::FSName(name.replace(',', "_")),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    if read_only {
        config.mount_options.push(MountOption::RO);
    }
    config.acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
    config
}

/// Why something is still mounted.
#[derive(Debug)]
pub(crate) enum StillMounted {
    /// Somebody uses it.
    Busy,
    /// What the kernel, or the program that asks it, says.
    Refused(io::Error),
}

impl From<StillMounted> for io::Error {
    fn from(why: StillMounted) -> Self {
        match why {
            StillMounted::Busy => Errno::BUSY.into(),
            StillMounted::Refused(error) => error,
        }
    }
}

/// Unmounts what is mounted at a place; with [`UnmountFlags::DETACH`] also while somebody uses it.
/// That nothing is mounted there any more is what was wanted.
pub(crate) fn unmount(place: &Path, flags: UnmountFlags) -> Result<(), StillMounted> {
    match rustix::mount::unmount(place, flags) {
        // Not a mount (any more).
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(StillMounted::Busy),
        Err(Errno::PERM) => unmount_by_helper(place, flags),
        Err(error) => Err(StillMounted::Refused(error.into())),
    }
}

/// Anyone but root has a program for it.
fn unmount_by_helper(place: &Path, flags: UnmountFlags) -> Result<(), StillMounted> {
    let mut command = Command::new("fusermount3");
    command.arg(if flags.contains(UnmountFlags::DETACH) { "-uz" } else { "-u" });
    let output = command.arg("--").arg(place).output().map_err(StillMounted::Refused)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("busy") {
        return Err(StillMounted::Busy);
    }
    Err(StillMounted::Refused(io::Error::other(said)))
}
