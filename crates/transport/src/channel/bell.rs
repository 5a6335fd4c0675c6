//! A bell: wakes whoever sleeps, and costs nothing while nobody does.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct Bell {
    event: OwnedFd,
    /// Somebody is about to sleep.
    armed: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes two numbers, gives a descriptor or -1.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { event, armed: AtomicBool::new(false) })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// From now on a ring is heard. The caller looks once more for work before
    /// it sleeps; both sides use the strongest order, so that one of them sees
    /// the other.
    pub(super) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Wakes the sleeper, if there is one.
    pub(super) fn ring(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes of a live buffer. A full counter is as good as a ring.
            let _ = unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Awake: no ring is needed, and those before are forgotten.
    pub(super) fn silence(&self) {
        self.armed.store(false, Ordering::SeqCst);
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of a live buffer; nothing to read is fine.
        let _ = unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
