//! [`Peer`]: who the other process is, and [`Admit`]: who may come.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::RendezvousError;

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
pub(super) fn of(socket: BorrowedFd<'_>) -> Result<Peer, RendezvousError> {
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
