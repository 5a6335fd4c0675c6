//! [`Listener`]: waits for other processes at a path of the file system, and [`Address`]:
//! that path as the address of a socket.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use arrayvec::ArrayVec;
use socket2::{SockAddr, Socket};

use super::channel::{Admit, new_socket};
use super::{Channel, RendezvousError, system};
use crate::driver::Interest;
use crate::wait::until_ready;

/// How many wait to be accepted before others are told that it is full.
const BACKLOG: i32 = 128;

/// Waits for other processes at a path in the file system, which goes when this does.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    path: PathBuf,
    /// Device and number of the file, so that no other one is removed.
    file: Option<(u64, u64)>,
    admit: Admit,
}

impl Listener {
    /// Listens at this path. A socket that a process left there when it was killed is
    /// replaced.
    ///
    /// # Errors
    /// Another process listens there, or the path cannot be.
    pub fn bind(path: &Path, admit: Admit) -> Result<Self, RendezvousError> {
        let address = Address::of(path)?;
        let socket = new_socket()?;
        if admit == Admit::SameUser {
            // The file is made with the socket's own mode (unix_bind in net/unix/af_unix.c):
            // a name that others may change by now is not to be followed afterwards.
            let itself =
                fs::File::from(socket.as_fd().try_clone_to_owned().map_err(system("dup"))?);
            let only_owner = fs::Permissions::from_mode(0o600);
            itself.set_permissions(only_owner).map_err(system("fchmod"))?;
        }
        let _alone = alone_beside(path)?;
        if let Err(error) = socket.bind(address.socket()) {
            if error.kind() != io::ErrorKind::AddrInUse {
                return Err(RendezvousError::System { call: "bind", error });
            }
            if !is_left_behind(&address)? {
                return Err(RendezvousError::InUse(path.into()));
            }
            fs::remove_file(path).map_err(system("unlink"))?;
            socket.bind(address.socket()).map_err(system("bind"))?;
        }
        let file = fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let listener = Self { socket, path: path.into(), file, admit };
        listener.socket.listen(BACKLOG).map_err(system("listen"))?;
        Ok(listener)
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next process that comes within the time.
    ///
    /// # Errors
    /// It is not admitted (others may be), or a system call failed.
    pub fn accept(&self, within: Duration) -> Result<Option<Channel>, RendezvousError> {
        let deadline = Instant::now().checked_add(within);
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(true).map_err(system("fcntl"))?;
                    return Channel::new(socket.into(), &self.admit).map(Some);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The process that came has gone already, or a signal came.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(RendezvousError::System { call: "accept", error }),
            }
            let left = deadline.map_or(within, |deadline| deadline - Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            until_ready(&[self.interest()], left).map_err(system("ppoll"))?;
        }
    }

    /// What to wait for: another process has come.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.socket.as_raw_fd(), readable: true, writable: false }
    }
}

/// How long another process may take from `bind` to `listen`: one that is stopped just
/// there must not stop all others.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between `bind` and `listen` a socket looks as if it had been left behind. So of all
/// that share the folder one at a time is there: anyone who holds the folder's lock.
/// Where folders cannot be locked nobody waits.
fn alone_beside(path: &Path) -> Result<Option<fs::File>, RendezvousError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(folder) = fs::File::open(parent.unwrap_or_else(|| Path::new("."))) else {
        return Ok(None);
    };
    let begun = Instant::now();
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(fs::TryLockError::Error(_)) => return Ok(None),
            Err(fs::TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => {
                let error = io::ErrorKind::TimedOut.into();
                return Err(RendezvousError::System { call: "flock", error });
            }
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).ok().map(|file| (file.dev(), file.ino()));
        if there.is_some() && there == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Is there a socket at which nobody listens?
fn is_left_behind(address: &Address) -> Result<bool, RendezvousError> {
    match new_socket()?.connect(address.socket()) {
        Err(error) => Ok(error.kind() == io::ErrorKind::ConnectionRefused),
        Ok(()) => Ok(false),
    }
}

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

// `Readiness`: waiting for many descriptors at once.

/// How many are told at once.
pub const MOST_READY: usize = 32;

/// Tells which of many descriptors are ready, by a number that each was given. What
/// is not dealt with is told again.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Readiness {
    /// Waits for nothing yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self, RendezvousError> {
        // SAFETY: takes a number, gives a descriptor or -1.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(RendezvousError::last("epoll_create1"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self { epoll: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// From now on this descriptor is waited for.
    ///
    /// # Errors
    /// It is no descriptor that can be waited for, or is waited for already.
    pub fn add(&self, interest: Interest, number: u64) -> Result<(), RendezvousError> {
        self.add_with(interest, number, 0)
    }

    /// The same, told once each time that it becomes ready: for what somebody else may
    /// have dealt with.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_edges(&self, interest: Interest, number: u64) -> Result<(), RendezvousError> {
        self.add_with(interest, number, libc::EPOLLET)
    }

    fn add_with(
        &self,
        interest: Interest,
        number: u64,
        mut events: libc::c_int,
    ) -> Result<(), RendezvousError> {
        if interest.readable {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        if interest.writable {
            events |= libc::EPOLLOUT;
        }
        let mut how = libc::epoll_event { events: events as u32, u64: number };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: two numbers, and an event that outlives the call.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, interest.fd, &raw mut how) } {
            0 => Ok(()),
            _ => Err(RendezvousError::last("epoll_ctl")),
        }
    }

    /// This descriptor is waited for no more. It need not have been.
    pub fn remove(&self, interest: Interest) {
        let (epoll, no_event) = (self.epoll.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: two numbers; this operation reads no event.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, interest.fd, no_event) };
    }

    /// What to wait for: readable when one of them is ready.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.epoll.as_raw_fd(), readable: true, writable: false }
    }

    /// The numbers of those that are ready, within the time; none if none is.
    ///
    /// # Errors
    /// Those of `epoll_wait`.
    pub fn wait(&self, within: Duration) -> Result<ArrayVec<u64, MOST_READY>, RendezvousError> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST_READY];
        let millis = within.as_nanos().div_ceil(1_000_000);
        let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
        let (epoll, room) = (self.epoll.as_raw_fd(), MOST_READY as libc::c_int);
        // SAFETY: there is room for as many events as are asked for.
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, millis) };
        match usize::try_from(count) {
            Ok(count) => Ok(events.iter().take(count).map(|event| event.u64).collect()),
            Err(_) => match std::io::Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::Interrupted => Ok(ArrayVec::new()),
                error => Err(RendezvousError::System { call: "epoll_wait", error }),
            },
        }
    }
}
