//! [`Channel`]: the way between two processes that met; [`Peer`]: who the other one is, and
//! [`Admit`]: who may come.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::listener::Address;
use super::{Message, RendezvousError, message, system};
use crate::driver::Interest;

/// A way to another process. What is sent arrives whole, once and in order, unless
/// the other process ends before.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    peer: Peer,
    process: Option<OwnedFd>,
}

impl Channel {
    /// To anyone who listens at this path.
    ///
    /// # Errors
    /// Nobody listens there, or somebody who may not.
    pub fn connect(path: &Path, admit: &Admit) -> Result<Self, RendezvousError> {
        let socket = new_socket()?;
        let address = Address::of(path)?;
        // With the listener's queue full this fails at once, for it does not block.
        socket.connect(address.socket()).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ECONNREFUSED) => RendezvousError::Nobody(path.into()),
            Some(libc::EAGAIN) => RendezvousError::Full,
            _ => RendezvousError::System { call: "connect", error },
        })?;
        Self::new(socket.into(), admit)
    }

    pub(super) fn new(socket: OwnedFd, admit: &Admit) -> Result<Self, RendezvousError> {
        let peer = peer_of(socket.as_fd())?;
        if !admit.admits(&peer) {
            return Err(RendezvousError::NotAdmitted(peer));
        }
        let process = watch(socket.as_fd(), &peer);
        Ok(Self { socket, peer, process })
    }

    /// Both ends of a way, for instance for a child.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pair() -> Result<(Self, Self), RendezvousError> {
        let kind = Type::from(libc::SOCK_SEQPACKET);
        let (one, other) = Socket::pair(Domain::UNIX, kind, None).map_err(system("socketpair"))?;
        for socket in [&one, &other] {
            socket.set_nonblocking(true).map_err(system("fcntl"))?;
        }
        Ok((Self::new(one.into(), &Admit::Anybody)?, Self::new(other.into(), &Admit::Anybody)?))
    }

    /// Who is at the other end.
    #[must_use]
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// Sends a message.
    ///
    /// # Errors
    /// It is too much for one, the other process does not read, or is gone.
    pub fn send(
        &self,
        kind: u16,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), RendezvousError> {
        message::send(self.socket.as_fd(), kind, body, fds)
    }

    /// The next message, if one comes within the time.
    ///
    /// # Errors
    /// The other process is gone and all that it sent was received, or it sent
    /// something that is no message.
    pub fn receive(&self, within: Duration) -> Result<Option<Message>, RendezvousError> {
        let deadline = Instant::now().checked_add(within);
        loop {
            if let Some(message) = message::receive(self.socket.as_fd())? {
                return Ok(Some(message));
            }
            let left = deadline.map_or(within, |deadline| deadline - Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if self.process_ended() {
                // What it sent before it ended is there by now.
                let last = message::receive(self.socket.as_fd())?;
                return last.map_or(Err(RendezvousError::Gone), |message| Ok(Some(message)));
            }
            self.wait(left)?;
        }
    }

    /// Has the other process hung up, or ended? Messages of it may still be there.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let hung_up = libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR;
        let mut fd =
            libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry that lives through the call, which does not wait.
        let count = unsafe { libc::poll(&raw mut fd, 1, 0) };
        (count > 0 && fd.revents & hung_up != 0) || self.process_ended()
    }

    /// Hangs up: for both sides the other one is gone from now on. What was sent
    /// before can still be received.
    pub fn hang_up(&self) {
        // SAFETY: an open descriptor and a constant. It fails when the other side has
        // hung up already.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// What to wait for: a message, a hang-up, the end of the process.
    pub fn interests(&self) -> impl Iterator<Item = Interest> {
        [Some(&self.socket), self.process.as_ref()].into_iter().flatten().map(|fd| Interest {
            fd: fd.as_raw_fd(),
            readable: true,
            writable: false,
        })
    }

    fn process_ended(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let mut fd = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry that lives through the call, which does not wait.
        unsafe { libc::poll(&raw mut fd, 1, 0) > 0 }
    }

    fn wait(&self, at_most: Duration) -> Result<(), RendezvousError> {
        let interests: arrayvec::ArrayVec<_, 2> = self.interests().collect();
        crate::wait::until_ready(&interests, at_most).map_err(system("ppoll"))?;
        Ok(())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that does not block, and is closed on exec.
pub(super) fn new_socket() -> Result<Socket, RendezvousError> {
    let socket = Socket::new(Domain::UNIX, Type::from(libc::SOCK_SEQPACKET), None)
        .map_err(system("socket"))?;
    socket.set_nonblocking(true).map_err(system("fcntl"))?;
    Ok(socket)
}

/// `SO_PEERPIDFD` (include/uapi/asm-generic/socket.h), since Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process at the other end, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number when it connected.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Who is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admit {
    /// Processes of the same user, and the superuser's.
    #[default]
    SameUser,
    /// Processes of these users.
    Users(Vec<u32>),
    /// Everybody who can reach the path.
    Anybody,
}

impl Admit {
    /// Is this process let in?
    #[must_use]
    pub fn admits(&self, peer: &Peer) -> bool {
        match self {
            Self::Anybody => true,
            Self::Users(users) => users.contains(&peer.uid),
            // SAFETY: it cannot fail, and touches no memory.
            Self::SameUser => peer.uid == 0 || peer.uid == unsafe { libc::geteuid() },
        }
    }
}

/// Who connected, or listens.
fn peer_of(socket: BorrowedFd<'_>) -> Result<Peer, RendezvousError> {
    let mut cred = MaybeUninit::<libc::ucred>::uninit();
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, level, name) = (socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: there is room for as many bytes as are named.
    let done = unsafe { libc::getsockopt(fd, level, name, cred.as_mut_ptr().cast(), &raw mut len) };
    if done != 0 || len as usize != size_of::<libc::ucred>() {
        return Err(RendezvousError::last("getsockopt"));
    }
    // SAFETY: the call succeeded and filled it in.
    let cred = unsafe { cred.assume_init() };
    Ok(Peer { pid: cred.pid, uid: cred.uid, gid: cred.gid })
}

/// A descriptor that becomes readable when the process ends. None where the kernel
/// has no such thing, or the process is gone already: the socket says that too.
pub(super) fn watch(socket: BorrowedFd<'_>, peer: &Peer) -> Option<OwnedFd> {
    let mut pidfd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
    // SAFETY: there is room for as many bytes as are named.
    let done =
        unsafe { libc::getsockopt(fd, level, SO_PEERPIDFD, (&raw mut pidfd).cast(), &raw mut len) };
    if done != 0 || pidfd < 0 {
        // SAFETY: two numbers, gives a descriptor or -1.
        let found = unsafe { libc::syscall(libc::SYS_pidfd_open, peer.pid, 0) };
        pidfd = libc::c_int::try_from(found).ok().filter(|fd| *fd >= 0)?;
    }
    // SAFETY: the descriptor is new and nobody else's. The kernel marks it to be
    // closed on exec.
    Some(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_named_is_let_in() {
        // SAFETY: it cannot fail, and touches no memory.
        let me = unsafe { libc::geteuid() };
        let peer = |uid| Peer { pid: 1, uid, gid: 1 };
        assert!(Admit::SameUser.admits(&peer(me)));
        assert!(!Admit::SameUser.admits(&peer(me + 4711)));
        assert!(Admit::Users(vec![5]).admits(&peer(5)));
        assert!(!Admit::Users(vec![5]).admits(&peer(me + 4711)));
        assert!(Admit::Anybody.admits(&peer(77)));
    }
}
