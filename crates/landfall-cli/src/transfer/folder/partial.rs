//! A file that is being written: under a hidden name in the folder where it belongs, with
//! a journal if it is long enough to be worth resuming, until it is whole and gets its name.
//!
//! The folder may be one where others write, too: a partial file is made anew, or is proven
//! to be ours, before a byte is read from it or written to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{Denied, READ, TAKEN, times};
use crate::style;
use crate::transfer::journal::Journal;
use crate::transfer::wire::FileTime;

/// What the files beside a file are called until it is whole. Of a hash, since a name that
/// is as long as names may be leaves no room for more.
pub(super) struct Names {
    pub(super) partial: String,
    pub(super) journal: String,
}

impl Names {
    pub(super) fn of(name: &OsStr) -> Self {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        Self::with(&hash[..24])
    }

    /// Names that nobody can have taken before.
    pub(super) fn random() -> Result<Self, Denied> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Denied::entry(format!("no random bytes for a name: {error}")))?;
        Ok(Self::with(&format!("{:032x}", u128::from_le_bytes(bytes))))
    }

    fn with(stem: &str) -> Self {
        let stem = format!(".landfall-{stem}");
        Self { partial: format!("{stem}.part"), journal: format!("{stem}.journal") }
    }
}

/// A file that is being written, under its hidden name. Dropped, it stays for another
/// time if it has a journal, and otherwise goes away.
pub(crate) struct Partial {
    parent: Arc<OwnedFd>,
    name: OsString,
    names: Names,
    file: File,
    len: u64,
    has_journal: bool,
    fate: OnDrop,
}

/// What becomes of it when it is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    Goes,
    /// It stays for another time, if there is anything of it.
    Stays,
    /// It has its name.
    Named,
}

const ANOTHER: &str = "another receiver is writing it";

impl Partial {
    /// `contents` is how much of the rest is no hole, as far as the sender knows.
    pub(super) fn open(
        parent: Arc<OwnedFd>,
        name: OsString,
        journal: Option<&Journal>,
        from: u64,
        contents: Option<u64>,
    ) -> Result<Self, Denied> {
        let names = Names::of(&name);
        if let Some(journal) = journal {
            let rest = journal.size - from;
            check(&parent, journal.size, contents.unwrap_or(rest).min(rest))?;
        }
        let mut partial = if from > 0 {
            let file = resumed(&parent, &names, from)?;
            Self { parent, name, names, file, len: from, has_journal: true, fate: OnDrop::Stays }
        } else {
            let (names, file, is_ours) = begun(&parent, names)?;
            let fate = OnDrop::Goes;
            let mut begun = Self { parent, name, names, file, len: 0, has_journal: false, fate };
            // Under a name that nobody expects it would not be found again.
            if let Some(journal) = journal.filter(|_| is_ours) {
                begun.has_journal = begun.write_journal(journal)?;
            }
            begun
        };
        if partial.has_journal {
            partial.fate = OnDrop::Stays;
        }
        Ok(partial)
    }

    /// Gives whether there is one now: what somebody else put there stays.
    fn write_journal(&self, journal: &Journal) -> Result<bool, Denied> {
        let denied = |error| Denied::of("cannot be written", error);
        let _ = rustix::fs::unlinkat(&*self.parent, &self.names.journal, AtFlags::empty());
        match make(&self.parent, &self.names.journal) {
            Ok(file) => {
                let text = journal.to_text();
                file.write_all_at(text.as_bytes(), 0).map_err(|error| denied(errno(&error)))?;
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(denied(error)),
        }
    }

    /// How many bytes it has.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Denied> {
        match self.file.write_all_at(bytes, self.len) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err(error) => Err(Denied::of("cannot be written", errno(&error))),
        }
    }

    /// Appends a hole.
    pub(crate) fn skip(&mut self, len: u64) -> Result<(), Denied> {
        let end = self.len.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| Denied::of("cannot be written", Errno::FBIG))?;
        rustix::fs::ftruncate(&self.file, end)
            .map_err(|error| Denied::of("cannot be written", error))?;
        self.len = end;
        Ok(())
    }

    /// It is not what it should be: it does not stay.
    pub(crate) fn discard(mut self) {
        self.fate = OnDrop::Goes;
    }

    /// Will it be there when the sender comes again?
    pub(crate) const fn can_resume(&self) -> bool {
        matches!(self.fate, OnDrop::Stays) && self.len > 0
    }

    pub(super) fn commit(
        mut self,
        mode: Mode,
        modified: Option<FileTime>,
        may_replace: bool,
        syncs: bool,
    ) -> Result<(), Denied> {
        if !is_named(&self.parent, &self.names.partial, &self.file) {
            return Err(Denied::entry("somebody took its partial file away: send it again"));
        }
        self.finish(mode, modified, syncs)
            .map_err(|error| Denied::of("cannot be finished", error))?;
        let (from, to) = (&self.names.partial, &self.name);
        // What came there meanwhile is not replaced either.
        let flags = if may_replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = match rustix::fs::renameat_with(&*self.parent, from, &*self.parent, to, flags)
        {
            // A file system that cannot promise that.
            Err(Errno::INVAL) if !may_replace => {
                match rustix::fs::statat(&*self.parent, to, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => {
                        rustix::fs::renameat(&*self.parent, from, &*self.parent, to)
                    }
                    _ => Err(Errno::EXIST),
                }
            }
            renamed => renamed,
        };
        match renamed {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Denied::entry(TAKEN)),
            Err(error) => return Err(Denied::of("cannot get its name", error)),
        }
        self.remove_journal();
        self.fate = OnDrop::Named;
        if syncs {
            let synced = self.sync_folder();
            synced.map_err(|error| Denied::of("its folder cannot be synchronised", error))?;
        }
        Ok(())
    }

    fn finish(&self, mode: Mode, modified: Option<FileTime>, syncs: bool) -> Result<(), Errno> {
        rustix::fs::fchmod(&self.file, mode)?;
        if let Some(modified) = modified {
            rustix::fs::futimens(&self.file, &times(modified))?;
        }
        if syncs { rustix::fs::fsync(&self.file) } else { Ok(()) }
    }

    fn sync_folder(&self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(&rustix::fs::openat(&*self.parent, ".", flags, Mode::empty())?)
    }

    fn remove_journal(&self) {
        if self.has_journal {
            // Left behind, it names a file that is not there: harmless.
            let _ = rustix::fs::unlinkat(&*self.parent, &self.names.journal, AtFlags::empty());
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let goes = self.fate == OnDrop::Goes || self.fate == OnDrop::Stays && self.len == 0;
        if goes && is_named(&self.parent, &self.names.partial, &self.file) {
            let _ = rustix::fs::unlinkat(&*self.parent, &self.names.partial, AtFlags::empty());
            self.remove_journal();
        }
    }
}

/// A file that an earlier receiver of this user made: regular, its own, for nobody else, and
/// by this name alone. Nothing else by that name is opened: a device might do something.
pub(super) fn open_ours(parent: &OwnedFd, name: &str, flags: OFlags) -> Option<File> {
    let is_ours = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_nlink == 1
            && stat.st_mode & 0o077 == 0
    };
    let before = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if !is_ours(&before) {
        return None;
    }
    let file = rustix::fs::openat(parent, name, READ | flags, Mode::empty()).ok()?;
    // It may be another one since.
    let own = rustix::fs::fstat(&file).ok()?;
    is_ours(&own).then(|| File::from(file))
}

/// Makes a file that nobody else may open, where nothing is.
fn make(parent: &OwnedFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

/// The partial file whose first bytes were offered to the sender.
fn resumed(parent: &OwnedFd, names: &Names, from: u64) -> Result<File, Denied> {
    let denied = |error| Denied::of("cannot be written", error);
    let gone = || Denied::entry("the start of it has gone: send it again");
    let file = open_ours(parent, &names.partial, OFlags::RDWR).ok_or_else(gone)?;
    lock(parent, &names.partial, &file)?;
    let there = file.metadata().map_err(|error| denied(errno(&error)))?.len();
    if there < from {
        return Err(gone());
    }
    if there > from {
        rustix::fs::ftruncate(&file, from).map_err(denied)?;
    }
    Ok(file)
}

/// A new partial file, and whether it has the name by which it is found another time: that
/// may have been taken by somebody else.
fn begun(parent: &OwnedFd, names: Names) -> Result<(Names, File, bool), Denied> {
    let denied = |error| Denied::of("cannot be written", error);
    if let Some(old) = open_ours(parent, &names.partial, OFlags::RDWR) {
        lock(parent, &names.partial, &old)?;
        rustix::fs::unlinkat(parent, &names.partial, AtFlags::empty()).map_err(denied)?;
    }
    match make(parent, &names.partial) {
        Ok(file) => {
            lock(parent, &names.partial, &file)?;
            Ok((names, file, true))
        }
        Err(Errno::EXIST) => {
            let names = Names::random()?;
            let file = make(parent, &names.partial).map_err(denied)?;
            Ok((names, file, false))
        }
        Err(error) => Err(denied(error)),
    }
}

/// Nobody else writes it.
fn lock(parent: &OwnedFd, name: &str, file: &File) -> Result<(), Denied> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Not every file system has locks.
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL | Errno::NOLCK) => {}
        Err(Errno::WOULDBLOCK) => return Err(Denied::entry(ANOTHER)),
        Err(error) => return Err(Denied::of("cannot be written", error)),
    }
    // Anyone who had the lock before may have given it its name since.
    if is_named(parent, name, file) { Ok(()) } else { Err(Denied::entry(ANOTHER)) }
}

/// Is it this file that has the name?
fn is_named(parent: &OwnedFd, name: &str, file: &File) -> bool {
    let Ok(own) = file.metadata() else { return false };
    rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|named| own.ino() == named.st_ino && own.dev() == named.st_dev)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

// Is there room for a file? Asked before it comes; nothing is reserved for what was only
// announced.

/// From here on it is asked: what is shorter comes before anybody would have been told.
const ASKED: u64 = 64 << 20;

/// A file of this length, of which this many bytes will be written.
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
