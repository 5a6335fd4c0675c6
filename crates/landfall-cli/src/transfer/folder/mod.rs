//! The receiver's folder: every name is opened below it, and none leads out of it.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | folders, links, and what is there already |
//! | `partial` | a file that is being written, until it has its name |
//! | `room` | whether there is room for it |
//!
//! Names are taken part by part from the folder's own descriptor, and no symbolic link is
//! followed on the way: whatever others do to the tree meanwhile, nothing is opened
//! outside of it.
//!
//! Permissions of a sender are masked as those of every program: by the umask. A folder
//! that was there before keeps its own.

mod partial;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result as Anyhow};
use blake3::Hash;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::Presence;
use super::contents::ContentHasher;
use super::extents::hash_prefix;
use super::journal::{self, Journal};
use super::path::RelPath;
use super::wire::{FileTime, SMALL};

pub(crate) use partial::Partial;
use partial::{Names, open_ours};

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// This entry cannot be; others may.
    #[error("{0}")]
    Entry(String),
    /// Nothing can be written any more.
    #[error("{0}")]
    Fatal(String),
}

impl Denied {
    pub(crate) fn entry(why: impl Into<String>) -> Self {
        Self::Entry(why.into())
    }

    /// What an error of the kernel means.
    pub(crate) fn of(what: &str, error: Errno) -> Self {
        let words = match error {
            Errno::NOSPC => "the receiver's disk is full",
            Errno::DQUOT => "the receiver's quota is used up",
            Errno::ROFS => "the receiver's file system is read-only",
            Errno::IO => "the receiver's disk has an error",
            Errno::ACCESS | Errno::PERM => {
                return Self::Entry(format!("{what}: the receiver may not write there"));
            }
            Errno::LOOP | Errno::NOTDIR => {
                return Self::Entry(format!(
                    "{what}: a part of its path at the receiver is no folder (symbolic links are \
                     not followed)"
                ));
            }
            Errno::FBIG => {
                return Self::Entry(format!(
                    "{what}: larger than the receiver's file system or its limit (ulimit -f) allows"
                ));
            }
            other => {
                let text = std::io::Error::from(other);
                return Self::Entry(format!("{what}: {text}"));
            }
        };
        Self::Fatal(words.into())
    }
}

/// What is there for a file that is announced.
pub(crate) enum ExistingFile {
    Nothing,
    /// The start of it, from an earlier time, and its hash.
    Start {
        have: u64,
        hash: Hash,
    },
    /// A file by that name, which can be compared.
    Taken,
}

/// A folder that is there: whether it was before, and what it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Anew,
    /// When it was modified.
    Before(i64, u64),
}

/// The receiver's folder, by its descriptor: no name that is opened here leads out of it.
pub(crate) struct Folder {
    root: Arc<OwnedFd>,
    may_replace: bool,
    /// Wait for the disk before a file has its name.
    syncs: bool,
    umask: Mode,
    /// The folder that was opened last: most files come in groups.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A pipe that somebody put there is not waited for.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

impl Folder {
    /// Opens it; makes it where it is not there.
    pub(crate) fn open(path: &Path, may_replace: bool, syncs: bool) -> Anyhow<Self> {
        fs::create_dir_all(path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        let root = rustix::fs::open(path, FOLDER, Mode::empty())
            .with_context(|| format!("cannot open the folder {}", path.display()))?;
        Ok(Self { root: Arc::new(root), may_replace, syncs, umask: umask(), last: None })
    }

    pub(crate) const fn may_replace(&self) -> bool {
        self.may_replace
    }

    /// The folder that an entry lies in.
    fn parent(&mut self, path: &RelPath) -> Result<(Arc<OwnedFd>, OsString), Denied> {
        let (parent, name) = path.split();
        let name = name.to_owned();
        if parent.is_empty() {
            return Ok((Arc::clone(&self.root), name));
        }
        if let Some((last, folder)) = &self.last
            && last == parent
        {
            return Ok((Arc::clone(folder), name));
        }
        let mut folder = Arc::clone(&self.root);
        for part in parent.split(|byte| *byte == b'/') {
            let flags = FOLDER | OFlags::NOFOLLOW;
            let next = rustix::fs::openat(&*folder, OsStr::from_bytes(part), flags, Mode::empty());
            folder = Arc::new(next.map_err(|error| Denied::of("cannot be opened", error))?);
        }
        self.last = Some((parent.to_vec(), Arc::clone(&folder)));
        Ok((folder, name))
    }

    /// What the umask leaves of a sender's permissions.
    fn masked(&self, mode: u16) -> Mode {
        Mode::from_raw_mode(mode.into()).difference(self.umask)
    }

    /// Makes a folder, or finds it there.
    pub(crate) fn make_folder(&mut self, path: &RelPath, mode: u16) -> Result<Made, Denied> {
        let (parent, name) = self.parent(path)?;
        // What is in it has to be written first.
        match rustix::fs::mkdirat(&*parent, &name, self.masked(mode) | Mode::RWXU) {
            Ok(()) => Ok(Made::Anew),
            Err(Errno::EXIST) => match stat_at(&parent, &name)? {
                Some(stat) if kind(&stat) == FileType::Directory => {
                    Ok(Made::Before(stat.st_mtime, stat.st_mtime_nsec))
                }
                _ => Err(Denied::entry("something that is no folder is there by that name")),
            },
            Err(error) => Err(Denied::of("cannot be made", error)),
        }
    }

    /// A folder has all that is in it: now it gets its permissions and time. One that was
    /// there before keeps its permissions, and its time if nothing came into it.
    pub(crate) fn finish_folder(
        &mut self,
        path: &RelPath,
        (mode, modified): (u16, FileTime),
        made: Made,
    ) -> Result<(), Denied> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let set = || {
            let folder = match rustix::fs::openat(&*parent, &name, flags, Mode::empty()) {
                // It is the receiver's, who may keep it from being read.
                Err(Errno::ACCESS) if made != Made::Anew => return Ok(()),
                folder => folder?,
            };
            let now = rustix::fs::fstat(&folder)?;
            if made == Made::Before(now.st_mtime, now.st_mtime_nsec) {
                return Ok(());
            }
            let timed = rustix::fs::futimens(&folder, &times(modified));
            if made != Made::Anew {
                // Nobody but its owner may.
                return if timed == Err(Errno::PERM) { Ok(()) } else { timed };
            }
            timed?;
            // What it inherited from the folder around it, it hands down.
            let handed_down = Mode::from_raw_mode(now.st_mode & 0o7000);
            rustix::fs::fchmod(&folder, self.masked(mode) | handed_down)
        };
        set().map_err(|error| Denied::of("its permissions and time cannot be set", error))
    }

    /// Makes a symbolic link, whose target was checked.
    pub(crate) fn make_link(
        &mut self,
        path: &RelPath,
        target: &[u8],
        modified: FileTime,
    ) -> Result<(), Denied> {
        let (parent, name) = self.parent(path)?;
        let target = OsStr::from_bytes(target);
        let denied = |error| Denied::of("cannot be made", error);
        match rustix::fs::symlinkat(target, &*parent, &name) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let is_same = rustix::fs::readlinkat(&*parent, &name, Vec::new())
                    .is_ok_and(|there| there.as_bytes() == target.as_bytes());
                if is_same {
                    return Ok(());
                }
                if !self.may_replace {
                    return Err(Denied::entry(TAKEN));
                }
                // Replaced in one step, so that there is always something by that name.
                let temporary = Names::random()?.partial;
                rustix::fs::symlinkat(target, &*parent, &temporary).map_err(denied)?;
                let renamed = rustix::fs::renameat(&*parent, &temporary, &*parent, &name);
                if renamed.is_err() {
                    let _ = rustix::fs::unlinkat(&*parent, &temporary, AtFlags::empty());
                }
                renamed.map_err(denied)?;
            }
            Err(error) => return Err(denied(error)),
        }
        rustix::fs::utimensat(&*parent, &name, &times(modified), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| Denied::of("its time cannot be set", error))
    }

    /// What is there for a file that is announced. Of a file that is there nothing is told,
    /// and not read either: see [`is_same`](Self::is_same).
    pub(crate) fn look(
        &mut self,
        path: &RelPath,
        (size, modified): (u64, FileTime),
        presence: &Presence,
    ) -> Result<ExistingFile, Denied> {
        let (parent, name) = self.parent(path)?;
        match stat_at(&parent, &name)? {
            None => {}
            Some(stat) if is_comparable(&stat) => return Ok(ExistingFile::Taken),
            Some(stat) => self.check_replaceable(&stat)?,
        }
        if size <= SMALL {
            return Ok(ExistingFile::Nothing);
        }
        let wanted = Journal { path: path.clone(), size, modified };
        Ok(start_of(&parent, &name, &wanted, presence).unwrap_or(ExistingFile::Nothing))
    }

    /// Has the file that is there this length and hash? What cannot be read has not.
    pub(crate) fn is_same(
        &mut self,
        path: &RelPath,
        (size, hash): (u64, Hash),
        presence: &Presence,
    ) -> Result<bool, Denied> {
        let (parent, name) = self.parent(path)?;
        let is_candidate = |stat: &Stat| is_comparable(stat) && stat.st_size as u64 == size;
        if !stat_at(&parent, &name)?.is_some_and(|stat| is_candidate(&stat)) {
            return Ok(false);
        }
        let Ok(file) = rustix::fs::openat(&*parent, &name, READ, Mode::empty()) else {
            return Ok(false);
        };
        // It may be another one since.
        if !rustix::fs::fstat(&file).is_ok_and(|stat| is_candidate(&stat)) {
            return Ok(false);
        }
        let mut hasher = ContentHasher::new();
        let hashed = hash_prefix(&File::from(file), size, &mut hasher, presence);
        Ok(hashed.is_ok() && hasher.finalize() == hash)
    }

    /// May there be a file of that name? For those whose length nobody knows.
    pub(crate) fn check_free(&mut self, path: &RelPath) -> Result<(), Denied> {
        let (parent, name) = self.parent(path)?;
        stat_at(&parent, &name)?.map_or(Ok(()), |stat| self.check_replaceable(&stat))
    }

    fn check_replaceable(&self, stat: &Stat) -> Result<(), Denied> {
        if kind(stat) == FileType::Directory {
            return Err(Denied::entry("a folder is there by that name"));
        }
        if self.may_replace { Ok(()) } else { Err(Denied::entry(TAKEN)) }
    }

    /// Begins to write a file, behind the `from` bytes that are there; `contents` is how
    /// much of the rest is no hole, where the sender has told.
    pub(crate) fn begin(
        &mut self,
        path: &RelPath,
        journal: Option<&Journal>,
        (from, contents): (u64, Option<u64>),
    ) -> Result<Partial, Denied> {
        let (parent, name) = self.parent(path)?;
        Partial::open(parent, name, journal, from, contents)
    }

    /// A file came whole: it gets its permissions, its time and its name.
    pub(crate) fn commit(
        &self,
        partial: Partial,
        mode: u16,
        modified: Option<FileTime>,
    ) -> Result<(), Denied> {
        partial.commit(self.masked(mode), modified, self.may_replace, self.syncs)
    }
}

pub(crate) const TAKEN: &str =
    "something is there by that name: `landfall receive --overwrite` would replace it";

/// What is there by a name; links are not followed.
fn stat_at(parent: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, Denied> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Denied::of("cannot be looked at", error)),
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A file that is this user's, or that everybody may read: even a receiver that could read
/// the others tells nothing of them.
fn is_comparable(stat: &Stat) -> bool {
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
    kind(stat) == FileType::RegularFile && (is_ours || stat.st_mode & 0o004 != 0)
}

/// The start of a file from an earlier time, if its journal says that it is of this source.
fn start_of(
    parent: &OwnedFd,
    name: &OsStr,
    wanted: &Journal,
    presence: &Presence,
) -> Option<ExistingFile> {
    let names = Names::of(name);
    let mut text = String::new();
    let journal = open_ours(parent, &names.journal, OFlags::empty())?;
    journal.take(journal::MOST).read_to_string(&mut text).ok()?;
    if Journal::parse(&text)? != *wanted {
        return None;
    }
    let partial = open_ours(parent, &names.partial, OFlags::empty())?;
    let have = partial.metadata().ok()?.len();
    if have == 0 || have > wanted.size {
        return None;
    }
    let mut hasher = ContentHasher::new();
    hash_prefix(&partial, have, &mut hasher, presence).ok()?;
    Some(ExistingFile::Start { have, hash: hasher.finalize() })
}

/// Within the years 1 to 9999, which every program can show.
fn times(modified: FileTime) -> Timestamps {
    let tv_sec = modified.seconds.clamp(-62_135_596_800, 253_402_300_799);
    let at = Timespec { tv_sec, tv_nsec: modified.nanos.into() };
    Timestamps { last_access: at, last_modification: at }
}

/// The bits that new files of this process do not get. To ask the kernel is to set it, which
/// other threads would feel: it is read where it is shown.
fn umask() -> Mode {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let shown = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let bits = shown.and_then(|bits| u32::from_str_radix(bits.trim(), 8).ok());
    // Rather too careful than not at all.
    Mode::from_raw_mode(bits.unwrap_or(0o077))
}

/// For messages: where partial files of a folder lie.
pub(crate) fn describe(path: &Path) -> String {
    let shown: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    shown.display().to_string()
}
