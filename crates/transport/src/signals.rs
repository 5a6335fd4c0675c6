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
        // It is left in the descriptor: anyone who asks next hears it too.
        let interest = Interest { fd: self.fd.as_raw_fd(), readable: true, writable: false };
        until_ready(&[interest], at_most)
    }

    /// Takes the signal that came out of the descriptor: its number, once. None: there is
    /// none, or somebody has taken it.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn take(&self) -> io::Result<Option<i32>> {
        let mut came = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the descriptor is open, and there is room for what is asked for.
        let len = unsafe { libc::read(self.fd.as_raw_fd(), came.as_mut_ptr().cast(), size) };
        if len == size as isize {
            // SAFETY: the kernel has filled all of it.
            return Ok(Some(unsafe { came.assume_init() }.ssi_signo as i32));
        }
        match io::Error::last_os_error() {
            error if len < 0 && error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(None),
        }
    }
}

/// From here on a file that grows beyond the limit of the process (`ulimit -f`) is an error
/// of the write, and does not end the program. For this thread and those that it starts.
///
/// # Errors
/// The kernel refuses.
pub fn hold_back_file_limit() -> io::Result<()> {
    let set = set_of(&[libc::SIGXFSZ]);
    // SAFETY: the set is initialised and lives through the call; the old one is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn endings() -> libc::sigset_t {
    set_of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for &signal in signals {
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
        assert_eq!(endings.take().unwrap(), Some(libc::SIGTERM));
        assert_eq!(endings.take().unwrap(), None);
        assert!(!endings.wait(Duration::ZERO).unwrap());
    }
}
