//! The receiver's folder: every name is opened below it, and none leads out of it.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | folders, links, and what is there already |
//! | `partial` | a file that is being written, until it has its name |
//!
//! Names are taken part by part from the folder's own descriptor, and no symbolic link is
//! followed on the way: whatever others do to the tree meanwhile, nothing is opened
//! outside of it.

mod partial;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result as Anyhow};
use blake3::{Hash, Hasher};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::journal::{self, Journal};
use super::path::RelPath;
use super::source::hash_prefix;
use super::wire::{FileTime, SMALL};

use partial::Names;
pub(crate) use partial::Partial;

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
pub(crate) enum Standing {
    Nothing,
    /// The start of it, from an earlier time, with its hash under way.
    Start {
        have: u64,
        hasher: Box<Hasher>,
    },
    /// A file of that length.
    SameLength(Hash),
}

/// See the module.
pub(crate) struct Folder {
    root: Arc<OwnedFd>,
    may_replace: bool,
    /// Wait for the disk before a file has its name.
    syncs: bool,
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
        Ok(Self { root: Arc::new(root), may_replace, syncs, last: None })
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

    /// Makes a folder, or finds it there.
    pub(crate) fn make_folder(&mut self, path: &RelPath, mode: u16) -> Result<(), Denied> {
        let (parent, name) = self.parent(path)?;
        // What is in it has to be written first.
        let writable = Mode::from_raw_mode(u32::from(mode) | 0o700);
        match rustix::fs::mkdirat(&*parent, &name, writable) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match kind_at(&parent, &name)? {
                Some((FileType::Directory, _)) => Ok(()),
                _ => Err(Denied::entry("something that is no folder is there by that name")),
            },
            Err(error) => Err(Denied::of("cannot be made", error)),
        }
    }

    /// A folder has all that is in it: now it gets its permissions and time.
    pub(crate) fn finish_folder(
        &mut self,
        path: &RelPath,
        mode: u16,
        modified: FileTime,
    ) -> Result<(), Denied> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let set = || {
            let folder = rustix::fs::openat(&*parent, &name, flags, Mode::empty())?;
            rustix::fs::futimens(&folder, &times(modified))?;
            rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode.into()))
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
                let temporary = Names::of(&name).partial;
                let _ = rustix::fs::unlinkat(&*parent, &temporary, AtFlags::empty());
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

    /// What is there for a file of this length.
    pub(crate) fn look(
        &mut self,
        path: &RelPath,
        size: u64,
        modified: FileTime,
    ) -> Result<Standing, Denied> {
        let (parent, name) = self.parent(path)?;
        match kind_at(&parent, &name)? {
            None => {}
            Some((FileType::RegularFile, len)) if len == size => {
                let denied = |error| Denied::of("what is there cannot be read", error);
                let file = rustix::fs::openat(&*parent, &name, READ, Mode::empty());
                let file = File::from(file.map_err(denied)?);
                let mut hasher = Hasher::new();
                hash_prefix(&file, size, &mut hasher)
                    .map_err(|error| Denied::entry(format!("what is there: {error}")))?;
                return Ok(Standing::SameLength(hasher.finalize()));
            }
            Some((FileType::Directory, _)) => {
                return Err(Denied::entry("a folder is there by that name"));
            }
            Some(_) if self.may_replace => {}
            Some(_) => return Err(Denied::entry(TAKEN)),
        }
        if size <= SMALL {
            return Ok(Standing::Nothing);
        }
        let wanted = Journal { path: path.clone(), size, modified };
        Ok(start_of(&parent, &name, &wanted).unwrap_or(Standing::Nothing))
    }

    /// May there be a file of that name? For those whose length nobody knows.
    pub(crate) fn check_free(&mut self, path: &RelPath) -> Result<(), Denied> {
        let (parent, name) = self.parent(path)?;
        match kind_at(&parent, &name)? {
            Some((FileType::Directory, _)) => Err(Denied::entry("a folder is there by that name")),
            Some(_) if !self.may_replace => Err(Denied::entry(TAKEN)),
            _ => Ok(()),
        }
    }

    /// Begins to write a file, behind the `from` bytes that are there.
    pub(crate) fn begin(
        &mut self,
        path: &RelPath,
        journal: Option<&Journal>,
        from: u64,
    ) -> Result<Partial, Denied> {
        let (parent, name) = self.parent(path)?;
        Partial::open(parent, name, journal, from)
    }

    /// A file came whole: it gets its permissions, its time and its name.
    pub(crate) fn commit(
        &self,
        partial: Partial,
        mode: u16,
        modified: Option<FileTime>,
    ) -> Result<(), Denied> {
        partial.commit(mode, modified, self.may_replace, self.syncs)
    }
}

pub(crate) const TAKEN: &str =
    "something is there by that name: `landfall receive --overwrite` would replace it";

/// What is there by a name, and how long it is; links are not followed.
fn kind_at(parent: &OwnedFd, name: &OsStr) -> Result<Option<(FileType, u64)>, Denied> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((FileType::from_raw_mode(stat.st_mode), stat.st_size as u64))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Denied::of("cannot be looked at", error)),
    }
}

/// The start of a file from an earlier time, if its journal says that it is of this source.
fn start_of(parent: &OwnedFd, name: &OsStr, wanted: &Journal) -> Option<Standing> {
    let names = Names::of(name);
    let open = |name: &str| {
        let file = rustix::fs::openat(parent, name, READ, Mode::empty()).ok()?;
        let file = File::from(file);
        file.metadata().ok()?.is_file().then_some(file)
    };
    let mut text = String::new();
    open(&names.journal)?.take(journal::MOST).read_to_string(&mut text).ok()?;
    if Journal::parse(&text)? != *wanted {
        return None;
    }
    let partial = open(&names.partial)?;
    let have = partial.metadata().ok()?.len();
    if have == 0 || have > wanted.size {
        return None;
    }
    let mut hasher = Box::new(Hasher::new());
    hash_prefix(&partial, have, &mut hasher).ok()?;
    Some(Standing::Start { have, hasher })
}

fn times(modified: FileTime) -> Timestamps {
    let at = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    Timestamps { last_access: at, last_modification: at }
}

/// For messages: where partial files of a folder lie.
pub(crate) fn describe(path: &Path) -> String {
    let shown: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    shown.display().to_string()
}
