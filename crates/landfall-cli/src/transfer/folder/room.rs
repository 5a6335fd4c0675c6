//! Is there room for a file? Asked before it comes; nothing is reserved for what was only
//! announced.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::Denied;
use crate::style;

/// From here on it is asked: what is shorter comes before anybody would have been told.
const ASKED: u64 = 64 << 20;

/// A file of this length, of which so many bytes will be written.
pub(super) fn check(folder: &OwnedFd, size: u64, contents: u64) -> Result<(), Denied> {
    if size < ASKED {
        return Ok(());
    }
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(i64::MAX as u64);
    if size > limit.min(i64::MAX as u64) {
        let (Denied::Entry(why) | Denied::Fatal(why)) =
            Denied::of("cannot be written", Errno::FBIG);
        return Err(Denied::Fatal(why));
    }
    // A file system that does not tell has no blocks at all.
    let Ok(stat) = rustix::fs::fstatvfs(folder) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if stat.f_blocks == 0 || contents <= free {
        return Ok(());
    }
    Err(Denied::Fatal(format!(
        "the receiver's disk is full: {} are free, and the file needs {}",
        style::bytes(free),
        style::bytes(contents)
    )))
}
