//! [`Export`]: a directory, and how its entries are reached without ever leaving it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use landfall_files::{Attributes, Caller, Errno, FileKind, Name, ROOT, Time};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};

use super::caller::Actor;
use super::errno;

/// Why a directory cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It cannot be opened.
    #[error("cannot export {}: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Files are opened anew by it.
    #[error("/proc is not mounted, by which files are opened that are known already: {0}")]
    Proc(#[source] io::Error),
}

/// A directory that is exported. Whatever is asked, nothing but what lies in it is reached:
/// entries are opened by one name at a time below a directory that is open, symbolic links are
/// never followed, and other file systems that are mounted in it are not entered.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    pub(super) root: OwnedFd,
    /// `/proc/self/fd`, by which nodes are opened to be read and written.
    descriptors: OwnedFd,
    root_number: u64,
    pub(super) is_read_only: bool,
    pub(super) actor: Actor,
}

/// To name a node, not to use it.
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

impl Export {
    /// Exports this directory. A process of the superuser carries out what clients ask in the name
    /// of their users, and believes them who these are; any other does all in its own.
    ///
    /// New files get the permissions that are asked for, less the `umask` of this process: it
    /// should be 0.
    ///
    /// # Errors
    /// It is none, or cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ExportError> {
        let path = path.into();
        let opened = rustix::fs::open(
            &path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let root = opened.and_then(|root| Ok((fstat(&root)?.st_ino, root)));
        let (root_number, root) =
            root.map_err(|error| ExportError::Open { path: path.clone(), source: error.into() })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = rustix::fs::open("/proc/self/fd", flags, Mode::empty())
            .map_err(|error| ExportError::Proc(error.into()))?;
        let actor = Actor::of_process();
        Ok(Self { path, root, descriptors, root_number, is_read_only: false, actor })
    }

    /// Nothing of it can be changed by clients.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Which directory it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node of an entry.
    pub(super) fn entry(&self, parent: &OwnedFd, name: &Name) -> Result<OwnedFd, Errno> {
        openat2(parent, name.bytes(), PATH, Mode::empty(), WITHIN).map_err(errno)
    }

    /// Makes a file in this directory.
    pub(super) fn create(
        &self,
        (parent, name): (&OwnedFd, &Name),
        mode: u32,
        flags: OFlags,
        caller: Caller,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CREATE | usual();
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.actor.act(caller, || openat2(parent, name.bytes(), flags, mode, WITHIN).map_err(errno))
    }

    /// Opens a node to be used.
    pub(super) fn reopen(&self, node: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | (usual() & !OFlags::NOFOLLOW);
        openat(&self.descriptors, number(node), flags, Mode::empty()).map_err(errno)
    }

    /// The node of an open file.
    pub(super) fn node_of(&self, file: &OwnedFd) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat(&self.descriptors, number(file), flags, Mode::empty()).map_err(errno)
    }

    /// Another name for a node.
    pub(super) fn link(&self, node: &OwnedFd, to: (&OwnedFd, &Name)) -> Result<(), Errno> {
        let (follow, name) = (AtFlags::SYMLINK_FOLLOW, to.1.bytes());
        rustix::fs::linkat(&self.descriptors, number(node), to.0, name, follow).map_err(errno)
    }

    /// Permissions of a node.
    pub(super) fn change_mode(&self, node: &OwnedFd, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::chmodat(&self.descriptors, number(node), mode, AtFlags::empty()).map_err(errno)
    }

    /// A path to a node, for calls that know no other way.
    pub(super) fn path_of(node: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", node.as_raw_fd())
    }

    pub(super) fn attributes(&self, file: impl AsFd) -> Result<Attributes, Errno> {
        self.attributes_of(&fstat(file).map_err(errno)?)
    }

    /// The number of a node: the inode's, but for the exported directory.
    pub(super) const fn node(&self, inode: u64) -> u64 {
        match inode {
            number if number == self.root_number => ROOT,
            // It is a number of its own, and there is no inode that has the other.
            ROOT => u64::MAX,
            number => number,
        }
    }

    #[allow(clippy::unnecessary_cast, reason = "what is how wide differs between processors")]
    fn attributes_of(&self, stat: &Stat) -> Result<Attributes, Errno> {
        let time = |seconds, nanoseconds: u64| Time {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
        };
        let mode = stat.st_mode as u32;
        Ok(Attributes {
            node: self.node(stat.st_ino as u64),
            kind: FileKind::of_mode(mode).ok_or(Errno::IO)?,
            permissions: (mode & 0o7777) as u16,
            links: stat.st_nlink as u32,
            user: stat.st_uid,
            group: stat.st_gid,
            device: stat.st_rdev as u32,
            block_size: stat.st_blksize as u32,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            accessed: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
            modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        })
    }
}

/// What is opened is a file of this server, which waits for nobody.
fn usual() -> OFlags {
    OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
}

fn number(file: &OwnedFd) -> String {
    file.as_raw_fd().to_string()
}
