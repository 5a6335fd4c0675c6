//! [`Endings`]: SIGINT and SIGTERM as something to wait for, so that a program that
//! has set things up can take them down again (`signalfd(2)`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use landfall_placement::Duration;

use crate::driver::Interest;
use crate::wait::until_ready;

/// Hears when somebody wants the program to end.
///
/// The signals no longer interrupt the thread that made this, nor those that it
/// starts afterwards: so it comes first in `main`. They stay so when this is dropped.
#[derive(Debug)]
pub struct Endings {
    fd: OwnedFd,
}

impl Endings {
    /// From here on SIGINT, SIGTERM and SIGHUP are waited for.
    ///
    /// # Errors
    /// The kernel gives no descriptor.
    pub fn catch() -> io::Result<Self> {
        let set = endings();
        // SAFETY: the set is initialised and lives through the call; the old one is
        // not asked for.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: the set is initialised and lives through the call.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Waits so long; true as soon as such a signal came, and from then on.
    ///
    /// # Errors
    /// Those of `ppoll`.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        // It is left in the descriptor: whoever asks next hears it too.
        let interest = Interest { fd: self.fd.as_raw_fd(), readable: true, writable: false };
        until_ready(&[interest], at_most)
    }
}

fn endings() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the set is initialised, and these are signals.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_to_end_is_heard_and_stays() {
        let endings = Endings::catch().unwrap();
        assert!(!endings.wait(Duration::ZERO).unwrap());
        // SAFETY: a signal to this thread, which has it blocked.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        for _ in 0..2 {
            assert!(endings.wait(Duration::from_secs(10)).unwrap());
        }
    }
}
