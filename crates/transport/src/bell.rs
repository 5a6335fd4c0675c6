//! [`Bell`]: wakes whoever sleeps, and costs nothing while nobody does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::driver::Interest;

/// Wakes the one thread that sleeps at descriptors ([`wait::until_ready`]), from
/// any other. While nobody sleeps a ring is a look at one atomic.
///
/// Who wants to sleep arms the bell, looks once more whether there is work, and
/// sleeps with the bell's [`interest`](Self::interest) among the others; awake,
/// it silences the bell.
///
/// [`wait::until_ready`]: crate::wait::until_ready
#[derive(Debug)]
pub struct Bell {
    event: OwnedFd,
    /// Somebody is about to sleep.
    armed: AtomicBool,
}

/// For those who wait there with others: it becomes readable when the armed bell
/// is rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Bell {
    /// A bell that nobody waits for.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes two numbers, gives a descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { event, armed: AtomicBool::new(false) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// What to wait for.
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.fd(), readable: true, writable: false }
    }

    /// From now on a ring is heard. The caller looks once more for work before
    /// it sleeps; both sides use the strongest order, so that one of them sees
    /// the other.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Wakes the sleeper, if there is one.
    pub fn ring(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes of a live buffer. A full counter is as good as a ring.
            let _ = unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Awake: no ring is needed, and those before are forgotten.
    pub fn silence(&self) {
        self.armed.store(false, Ordering::SeqCst);
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of a live buffer; nothing to read is fine.
        let _ = unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
