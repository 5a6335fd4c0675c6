//! [`Address`]: a path of the file system as the address of a socket.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use socket2::SockAddr;

use super::{RendezvousError, system};

/// The address of a path, as long as it lives.
///
/// There is room for 107 bytes in it (unix(7)). A longer path is named by its folder's
/// descriptor, which is short whatever the folder is called.
pub(super) struct Address {
    socket: SockAddr,
    /// What the short name goes by.
    _folder: Option<File>,
}

impl Address {
    /// # Errors
    /// The last part of the path is too long by itself, or nobody finds the folder.
    pub(super) fn of(path: &Path) -> Result<Self, RendezvousError> {
        if let Ok(socket) = SockAddr::unix(path) {
            return Ok(Self { socket, _folder: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(RendezvousError::LongName(path.into()));
        };
        let mut opening = OpenOptions::new();
        opening.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let folder = opening.open(parent).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => RendezvousError::Nobody(path.into()),
            _ => system("open")(error),
        })?;
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        match SockAddr::unix(short) {
            Ok(socket) => Ok(Self { socket, _folder: Some(folder) }),
            Err(_) => Err(RendezvousError::LongName(path.into())),
        }
    }

    pub(super) const fn socket(&self) -> &SockAddr {
        &self.socket
    }
}
