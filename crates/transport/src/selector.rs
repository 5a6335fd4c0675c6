//! [`Selector`]: several descriptors as one, for whoever waits in a loop of its own.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::driver::Interest;

/// A descriptor that is readable while any of a set of others is ready.
#[derive(Debug)]
pub struct Selector {
    epoll: OwnedFd,
    /// Sorted by descriptor, each once.
    known: Vec<Interest>,
}

impl Selector {
    /// Of no descriptors yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes a number, gives a descriptor or -1.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, known: Vec::new() })
    }

    /// From now on it is these that count. Where nothing has changed this costs no call.
    ///
    /// # Errors
    /// Those of `epoll_ctl`. What was not changed then is tried again the next time.
    pub fn set(&mut self, interests: &[Interest]) -> io::Result<()> {
        let wanted = merged(interests);
        if wanted == self.known {
            return Ok(());
        }
        for gone in self.known.clone() {
            if !wanted.iter().any(|interest| interest.fd == gone.fd) {
                self.known.retain(|interest| interest.fd != gone.fd);
                // Closed, the kernel has forgotten it.
                let _ = self.control(libc::EPOLL_CTL_DEL, gone);
            }
        }
        for interest in wanted {
            match self.known.binary_search_by_key(&interest.fd, |known| known.fd) {
                Ok(at) if self.known[at] == interest => {}
                Ok(at) => {
                    self.control(libc::EPOLL_CTL_MOD, interest)?;
                    self.known[at] = interest;
                }
                Err(at) => {
                    self.control(libc::EPOLL_CTL_ADD, interest)?;
                    self.known.insert(at, interest);
                }
            }
        }
        Ok(())
    }

    fn control(&self, operation: libc::c_int, interest: Interest) -> io::Result<()> {
        let mut events = 0;
        if interest.readable {
            events |= libc::EPOLLIN;
        }
        if interest.writable {
            events |= libc::EPOLLOUT;
        }
        let mut event = libc::epoll_event { events: events as u32, u64: interest.fd as u64 };
        // SAFETY: the event lives through the call, and the set is ours; of a descriptor
        // that is not open the kernel says so.
        let done =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, interest.fd, &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Each descriptor once, with all that is wanted of it.
fn merged(interests: &[Interest]) -> Vec<Interest> {
    let mut merged: Vec<Interest> = Vec::with_capacity(interests.len());
    for interest in interests {
        match merged.binary_search_by_key(&interest.fd, |known| known.fd) {
            Ok(at) => {
                merged[at].readable |= interest.readable;
                merged[at].writable |= interest.writable;
            }
            Err(at) => merged.insert(at, *interest),
        }
    }
    merged
}

impl AsFd for Selector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for Selector {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use landfall_placement::Duration;

    use super::*;
    use crate::Bell;
    use crate::wait::until_ready;

    fn is_ready(selector: &Selector) -> bool {
        let interest = Interest { fd: selector.as_raw_fd(), readable: true, writable: false };
        until_ready(&[interest], Duration::ZERO).unwrap()
    }

    #[test]
    fn it_is_ready_while_one_of_those_that_count_is() {
        let mut selector = Selector::new().unwrap();
        let (one, other) = (Bell::new().unwrap(), Bell::new().unwrap());
        selector.set(&[one.interest(), other.interest(), one.interest()]).unwrap();
        assert!(!is_ready(&selector));
        other.arm();
        other.ring();
        assert!(is_ready(&selector));
        selector.set(&[one.interest()]).unwrap();
        assert!(!is_ready(&selector), "it counts no more");
        selector.set(&[other.interest(), one.interest()]).unwrap();
        assert!(is_ready(&selector));
        other.silence();
        assert!(!is_ready(&selector));
        // One event descriptor can always be written to.
        selector.set(&[Interest { writable: true, ..one.interest() }]).unwrap();
        assert!(is_ready(&selector));
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_an_error_and_others_count() {
        let mut selector = Selector::new().unwrap();
        let bell = Bell::new().unwrap();
        let closed = Interest { fd: -1, ..bell.interest() };
        let error = selector.set(&[bell.interest(), closed]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        selector.set(&[bell.interest()]).unwrap();
        bell.arm();
        bell.ring();
        assert!(is_ready(&selector));
    }
}
