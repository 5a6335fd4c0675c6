//! The folders in memory, one for each user or group, boot and network namespace; proven as the
//! library proves them, since everybody may make one of such a name.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

use super::Host;
use crate::ProcessName;

const OF_USER: &str = "landfall-sockets-";
const OF_GROUP: &str = "landfall-group-";
/// More files of one folder are not looked at in one go.
const MOST_FILES: usize = 1 << 17;

/// Whose a folder is, and what lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    User(u32),
    /// Members of a group, who share memory and nothing else.
    Group(u32),
}

impl Owner {
    /// Whether a file or a folder is its own.
    fn has(self, user: u32, group: u32) -> bool {
        match self {
            Self::User(own) => user == own,
            Self::Group(own) => group == own,
        }
    }

    /// What nobody may do with its folder.
    const fn forbidden(self) -> u32 {
        match self {
            Self::User(_) => 0o077,
            Self::Group(_) => 0o007,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => write!(f, "{OF_USER}{user:08x}"),
            Self::Group(group) => write!(f, "{OF_GROUP}{group:08x}"),
        }
    }
}

/// What the name of a folder says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderName {
    pub(super) owner: Owner,
    /// The first digits of the number of the boot.
    boot: String,
    /// The last 32 bits of the number of the network namespace.
    network: u32,
}

impl FolderName {
    fn parse(name: &str) -> Option<Self> {
        let (rest, owner): (_, fn(u32) -> Owner) = match name.strip_prefix(OF_USER) {
            Some(rest) => (rest, Owner::User),
            None => (name.strip_prefix(OF_GROUP)?, Owner::Group),
        };
        let mut parts = rest.split('-');
        let mut next = || parts.next().filter(|part| part.len() == 8 && is_hex(part));
        let (whose, boot, network) = (next()?, next()?, next()?);
        let number = |part| u32::from_str_radix(part, 16).ok();
        let parsed =
            Self { owner: owner(number(whose)?), boot: boot.to_owned(), network: number(network)? };
        parts.next().is_none().then_some(parsed)
    }

    /// The folder of another user, of the same boot and network.
    pub(super) fn of_user(&self, user: u32) -> Self {
        Self { owner: Owner::User(user), ..self.clone() }
    }

    /// Whether both are of the same boot and network.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.network == other.network && self.boot == other.boot
    }

    /// Whether it is of another boot of this host: nobody uses it any more.
    pub(super) fn is_of_another_boot(&self) -> bool {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .is_ok_and(|boot| boot.get(..8).is_some_and(|boot| boot != self.boot))
    }

    pub(super) fn network(&self) -> u32 {
        self.network
    }
}

impl fmt::Display for FolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:08x}", self.owner, self.boot, self.network)
    }
}

fn is_hex(part: &str) -> bool {
    part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A folder that belongs to its owner, as its name says, and is closed to all others.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    pub(super) name: FolderName,
}

/// All folders that this user may look into.
pub(super) fn all(
    shared_memory: &Path,
    host: &Host,
    faults: &mut Vec<String>,
) -> io::Result<Vec<Folder>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(shared_memory)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().and_then(FolderName::parse) else { continue };
        if host.user != 0 && matches!(name.owner, Owner::User(user) if user != host.user) {
            continue;
        }
        match Folder::open(&entry.path(), &name) {
            Ok(folder) => found.push(folder),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            // Not in that group.
            Err(why)
                if why.kind() == io::ErrorKind::PermissionDenied
                    && matches!(name.owner, Owner::Group(_)) => {}
            Err(why) => faults.push(format!("{}: {why}", entry.path().display())),
        }
    }
    Ok(found)
}

impl Folder {
    pub(super) fn open(path: &Path, name: &FolderName) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let status = rustix::fs::fstat(&fd)?;
        if !name.owner.has(status.st_uid, status.st_gid) {
            let why = format!(
                "it belongs to user {} and group {}: remove it",
                status.st_uid, status.st_gid
            );
            return Err(io::Error::other(why));
        }
        if status.st_mode & name.owner.forbidden() != 0 {
            let why =
                format!("it is open to others (mode {:04o}): remove it", status.st_mode & 0o7777);
            return Err(io::Error::other(why));
        }
        Ok(Self { fd, path: path.to_owned(), name: name.clone() })
    }

    /// Whether it is of this network namespace.
    pub(super) fn is_of_network(&self, namespace: u64) -> bool {
        self.name.network == namespace as u32
    }

    /// The names of what lies in it.
    pub(super) fn entries(&self) -> Vec<Vec<u8>> {
        let Ok(entries) = Dir::read_from(&self.fd) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
        names.filter(|name| name != b"." && name != b"..").take(MOST_FILES).collect()
    }

    /// The files of processes in it.
    pub(super) fn processes(&self) -> Vec<ProcessName> {
        self.entries().iter().filter_map(|name| ProcessName::parse(name)).collect()
    }

    /// Opens a file of its owner: whatever has that name, this neither waits nor follows it.
    pub(super) fn open_file(&self, name: &[u8]) -> io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            File::from(rustix::fs::openat(&self.fd, CString::new(name)?, flags, Mode::empty())?);
        let data = file.metadata()?;
        // Of root's are those of processes that became another user's later.
        if !data.is_file() || (!self.name.owner.has(data.uid(), data.gid()) && data.uid() != 0) {
            return Err(io::Error::other("it is no file of its owner"));
        }
        Ok(file)
    }

    /// Whether it is a socket whose process has ended: the kernel refuses who calls it.
    pub(super) fn has_nobody_at(&self, name: &[u8]) -> bool {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        let called = UnixDatagram::unbound()
            .and_then(|socket| socket.connect(path.join(std::ffi::OsStr::from_bytes(name))));
        called.is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether a file was removed.
    pub(super) fn remove(&self, name: &[u8]) -> bool {
        CString::new(name)
            .is_ok_and(|name| rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).is_ok())
    }

    /// Removes the folder itself, if it is empty; anyone who needs it makes it again.
    pub(super) fn remove_itself(&self) -> bool {
        fs::remove_dir(&self.path).is_ok()
    }

    /// Where the file of a process lies, for people.
    pub(super) fn path_of(&self, process: &ProcessName) -> String {
        let name = process.to_bytes();
        self.path.join(std::ffi::OsStr::from_bytes(&name)).display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_are_told_from_others() {
        let name = FolderName::parse("landfall-sockets-000003e8-0bb622ea-f0000151").unwrap();
        assert_eq!((name.owner, name.network()), (Owner::User(1000), 0xf000_0151));
        let group = "landfall-group-0000000f-0bb622ea-f0000151";
        let of_group = FolderName::parse(group).unwrap();
        assert_eq!((of_group.owner, of_group.to_string()), (Owner::Group(15), group.to_owned()));
        assert!(of_group.is_beside(&name));
        assert_eq!(name.of_user(0).to_string(), "landfall-sockets-00000000-0bb622ea-f0000151");
        for other in [
            "landfall-sockets-off-1000",
            "landfall-groups-000003e8-0bb622ea-f0000151",
            "landfall-sockets-000003E8-0bb622ea-f0000151",
            "landfall-sockets-000003e8-0bb622ea-f0000151-x",
            "landfall-sockets-000003e8-0bb622ea",
            "landfall-sockets-",
        ] {
            assert_eq!(FolderName::parse(other), None, "{other}");
        }
    }
}
