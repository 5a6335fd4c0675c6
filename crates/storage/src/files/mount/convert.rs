//! The kernel's words and the protocol's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use landfall_files::{Attributes, Errno, FileKind, SetTime, Time, open};

use crate::files::CallError;

pub(super) fn error(error: &CallError) -> fuser::Errno {
    fuser::Errno::from_i32(error.errno().number().into())
}

pub(super) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.number().into())
}

pub(super) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharacterDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn attributes(found: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(found.node),
        size: found.size,
        blocks: found.blocks,
        atime: system_time(found.accessed),
        mtime: system_time(found.modified),
        ctime: system_time(found.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(found.kind),
        perm: found.permissions,
        nlink: found.links,
        uid: found.user,
        gid: found.group,
        rdev: found.device,
        blksize: found.block_size,
        flags: 0,
    }
}

fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds >= 0 {
        true => UNIX_EPOCH.checked_add(seconds),
        false => UNIX_EPOCH.checked_sub(seconds),
    };
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// The time that the kernel said. `fuser` 0.18 goes back from 1970 by its nanoseconds, too, where
/// they count forward from its seconds: here that is undone.
fn time(told: SystemTime) -> Time {
    match told.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            Time { seconds: -whole, nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(super) fn set_time(set: TimeOrNow) -> SetTime {
    match set {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::To(time(at)),
    }
}

/// How a file is opened: the kernel has dealt with the other flags.
pub(super) const fn open_flags(flags: i32) -> u32 {
    const ACCESS: i32 = 0o3;
    const EXCLUSIVE: i32 = 0o200;
    const TRUNCATE: i32 = 0o1000;
    let access = match flags & ACCESS {
        0 => open::READ,
        1 => open::WRITE,
        _ => open::READ | open::WRITE,
    };
    let truncate = if flags & TRUNCATE != 0 { open::TRUNCATE } else { 0 };
    let exclusive = if flags & EXCLUSIVE != 0 { open::EXCLUSIVE } else { 0 };
    access | truncate | exclusive
}

/// Does each write go behind the end?
pub(super) const fn appends(flags: i32) -> bool {
    const APPEND: i32 = 0o2000;
    flags & APPEND != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_what_the_kernel_said() {
        // As `fuser` tells seconds of -2 and nanoseconds of 5.
        let told = UNIX_EPOCH - Duration::new(2, 5);
        assert_eq!(time(told), Time { seconds: -2, nanoseconds: 5 });
        let at = Time { seconds: 1 << 33, nanoseconds: 7 };
        assert_eq!(time(system_time(at)), at);
        // And back, as it should be.
        let before = system_time(Time { seconds: -2, nanoseconds: 5 });
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::new(1, 999_999_995));
    }
}
