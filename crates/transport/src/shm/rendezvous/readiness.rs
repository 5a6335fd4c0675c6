//! [`Readiness`]: waiting for many descriptors at once.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use arrayvec::ArrayVec;

use super::RendezvousError;
use crate::driver::Interest;

/// How many are told at once.
pub const MOST_READY: usize = 32;

/// Tells which of many descriptors are ready, by a number that each was given. What
/// is not dealt with is told again.
#[derive(Debug)]
pub struct Readiness {
    epoll: OwnedFd,
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
