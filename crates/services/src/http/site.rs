//! Opens what a request names, and nothing outside of the directory.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

use super::target::Target;

/// What is served for a folder, where it is there.
const INDEX: &str = "index.html";

/// A directory that is served.
#[derive(Debug)]
pub struct Site {
    root: OwnedFd,
    lists: bool,
}

/// How far the file system is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// No further than what the kernel has in memory, so that a task may do it: an error may mean
    /// no more than that it is not there.
    Cached,
    /// Until it answers: that may block.
    Blocking,
}

/// What a target names.
pub(super) enum Found {
    File(OpenFile),
    /// A folder without an index.
    Folder(OwnedFd),
    /// A folder whose path has to end with `/`, that relative links in it work.
    FolderWithoutSlash,
}

/// A file that is open, and what is known of it.
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) modified: SystemTime,
    /// Another one for each state of a file, as far as its times tell.
    pub(super) tag: String,
    /// Its name says what it is.
    pub(super) name: String,
}

impl Site {
    /// Serves this directory: what is below it, symbolic links that stay below it included.
    ///
    /// # Errors
    /// It cannot be opened, or is no directory.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: openat(CWD, directory, flags, Mode::empty())?, lists: false })
    }

    /// Whether a folder without `index.html` is answered with a list of what is in it.
    #[must_use]
    pub fn listing(self, lists: bool) -> Self {
        Self { lists, ..self }
    }

    pub(super) const fn lists(&self) -> bool {
        self.lists
    }

    pub(super) fn find(&self, target: &Target, lookup: Lookup) -> Result<Found, Errno> {
        let path = if target.names.is_empty() { ".".to_owned() } else { target.names.join("/") };
        let opened = self.open_below(&path, lookup)?;
        let stat = fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if target.is_folder => Err(Errno::NOENT),
            FileType::RegularFile => Ok(Found::File(OpenFile::new(opened, &stat, &path))),
            FileType::Directory if !target.is_folder => Ok(Found::FolderWithoutSlash),
            FileType::Directory => self.index(&path, opened, lookup),
            // Reading a device or a pipe may do something, or never end.
            _ => Err(Errno::ACCESS),
        }
    }

    fn index(&self, path: &str, folder: OwnedFd, lookup: Lookup) -> Result<Found, Errno> {
        let index = match self.open_below(&format!("{path}/{INDEX}"), lookup) {
            Ok(index) => index,
            Err(Errno::NOENT) => return Ok(Found::Folder(folder)),
            Err(why) => return Err(why),
        };
        let stat = fstat(&index)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Found::File(OpenFile::new(index, &stat, INDEX))),
            _ => Ok(Found::Folder(folder)),
        }
    }

    /// The kernel itself sees to it that no link on the way leads out, also one that is made
    /// meanwhile.
    fn open_below(&self, path: &str, lookup: Lookup) -> Result<OwnedFd, Errno> {
        /// The kernel gives up where something is renamed meanwhile.
        const ATTEMPTS: usize = 4;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let below = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if lookup == Lookup::Cached {
            let cached = below | ResolveFlags::CACHED;
            return openat2(&self.root, path, flags, Mode::empty(), cached);
        }
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..ATTEMPTS {
            opened = openat2(&self.root, path, flags, Mode::empty(), below);
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        opened
    }
}

impl OpenFile {
    fn new(opened: OwnedFd, stat: &Stat, path: &str) -> Self {
        let (seconds, nanoseconds) = (stat.st_mtime, stat.st_mtime_nsec as u32);
        let since = |seconds: i64| Duration::from_secs(seconds.unsigned_abs());
        let modified = if seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(since(seconds))
        } else {
            SystemTime::UNIX_EPOCH.checked_add(since(seconds))
        };
        let len = stat.st_size.unsigned_abs();
        let tag = format!("\"{:x}-{seconds:x}.{nanoseconds:x}-{len:x}\"", stat.st_ino);
        Self {
            file: opened.into(),
            len,
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            tag,
            name: path.rsplit('/').next().unwrap_or(path).to_owned(),
        }
    }
}
