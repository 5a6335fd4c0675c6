//! A file that is being written: under a hidden name in the folder where it belongs, with
//! a journal if it is long enough to be worth resuming, until it is whole and gets its name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Denied, TAKEN, times};
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
        let stem = format!(".landfall-{}", &hash[..24]);
        Self { partial: format!("{stem}.part"), journal: format!("{stem}.journal") }
    }
}

/// See the module. Dropped, it stays for another time if it has a journal, and otherwise
/// goes away.
pub(crate) struct Partial {
    parent: Arc<OwnedFd>,
    name: OsString,
    names: Names,
    file: File,
    len: u64,
    has_journal: bool,
    fate: Fate,
}

/// What becomes of it when it is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Goes,
    /// It stays for another time, if there is anything of it.
    Stays,
    /// It has its name.
    Named,
}

/// From here on room is asked for at once: a disk that is too small says so at the start.
const RESERVED: u64 = 64 << 20;
const ANOTHER: &str = "another receiver is writing it";

impl Partial {
    pub(super) fn open(
        parent: Arc<OwnedFd>,
        name: OsString,
        journal: Option<&Journal>,
        from: u64,
    ) -> Result<Self, Denied> {
        let names = Names::of(&name);
        let denied = |error| Denied::of("cannot be written", error);
        let file = open_alone(&parent, &names.partial)?;
        let mut partial =
            Self { parent, name, names, file, len: from, has_journal: false, fate: Fate::Goes };
        let there = partial.file.metadata().map_err(|error| denied(errno(&error)))?.len();
        if there < from {
            return Err(Denied::entry("the start of it has gone: send it again"));
        }
        if there > from {
            rustix::fs::ftruncate(&partial.file, from).map_err(denied)?;
        }
        let Some(journal) = journal else { return Ok(partial) };
        if from == 0 {
            partial.write_journal(journal).map_err(denied)?;
        }
        partial.has_journal = true;
        partial.fate = Fate::Stays;
        if journal.size >= RESERVED {
            let keep = FallocateFlags::KEEP_SIZE;
            // Some file systems cannot: that is no reason to refuse.
            if let Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) =
                rustix::fs::fallocate(&partial.file, keep, from, journal.size - from)
            {
                return Err(denied(error));
            }
        }
        Ok(partial)
    }

    fn write_journal(&self, journal: &Journal) -> Result<(), Errno> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(&*self.parent, &self.names.journal, flags, mode)?;
        let file = File::from(file);
        file.write_all_at(journal.to_text().as_bytes(), 0).map_err(|error| errno(&error))
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

    /// It is not what it should be: it does not stay.
    pub(crate) fn discard(mut self) {
        self.fate = Fate::Goes;
    }

    /// Will it be there when the sender comes again?
    pub(crate) const fn can_resume(&self) -> bool {
        matches!(self.fate, Fate::Stays) && self.len > 0
    }

    pub(super) fn commit(
        mut self,
        mode: u16,
        modified: Option<FileTime>,
        may_replace: bool,
        syncs: bool,
    ) -> Result<(), Denied> {
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
        self.fate = Fate::Named;
        if syncs {
            let synced = self.sync_folder();
            synced.map_err(|error| Denied::of("its folder cannot be synchronised", error))?;
        }
        Ok(())
    }

    fn finish(&self, mode: u16, modified: Option<FileTime>, syncs: bool) -> Result<(), Errno> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode.into()))?;
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
        if self.fate == Fate::Goes || self.fate == Fate::Stays && self.len == 0 {
            let _ = rustix::fs::unlinkat(&*self.parent, &self.names.partial, AtFlags::empty());
            self.remove_journal();
        }
    }
}

/// Opens a partial file that nobody else writes, and that is nothing else in disguise.
fn open_alone(parent: &OwnedFd, name: &str) -> Result<File, Denied> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let denied = |error| Denied::of("cannot be written", error);
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600));
    let file = File::from(file.map_err(denied)?);
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // Not every file system has locks.
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL | Errno::NOLCK) => {}
        Err(Errno::WOULDBLOCK) => return Err(Denied::entry(ANOTHER)),
        Err(error) => return Err(denied(error)),
    }
    let own = file.metadata().map_err(|error| denied(errno(&error)))?;
    let named = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(denied)?;
    // Whoever had the lock before may have given it its name since.
    if own.ino() != named.st_ino || own.dev() != named.st_dev {
        return Err(Denied::entry(ANOTHER));
    }
    if !own.is_file() || own.nlink() != 1 {
        return Err(Denied::entry("something else lies where its partial file belongs"));
    }
    Ok(file)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
