//! [`Bell`]: wakes whoever sleeps, and costs nothing while nobody does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

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
    armed: Armed,
}

/// Is somebody about to sleep?
#[derive(Debug)]
struct Armed(AtomicBool);

impl Armed {
    /// Who sleeps says so, and looks once more for work.
    fn arm(&self) {
        self.0.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Who has made work takes it, if it is there, and wakes the sleeper.
    fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::SeqCst)
    }

    fn disarm(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
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
        Ok(Self { event, armed: Armed(AtomicBool::new(false)) })
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
        self.armed.arm();
    }

    /// Wakes the sleeper, if there is one.
    pub fn ring(&self) {
        if self.armed.take() {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes of a live buffer. A full counter is as good as a ring.
            let _ = unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Awake: no ring is needed, and those before are forgotten.
    pub fn silence(&self) {
        self.armed.disarm();
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of a live buffer; nothing to read is fine.
        let _ = unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Both sides in every order of their steps, over the words of `loom`.
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    #[test]
    fn a_sleeper_sees_the_work_or_hears_the_ring() {
        loom::model(|| {
            let armed = Arc::new(Armed(AtomicBool::new(false)));
            let (work, rung) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let other = (Arc::clone(&armed), Arc::clone(&work), Arc::clone(&rung));
            let working = thread::spawn(move || {
                let (armed, work, rung) = other;
                work.store(1, Ordering::Relaxed);
                if armed.take() {
                    rung.fetch_add(1, Ordering::SeqCst);
                }
            });
            armed.arm();
            let sees = work.load(Ordering::Relaxed) == 1;
            working.join().unwrap();
            assert!(sees || rung.load(Ordering::SeqCst) == 1, "it sleeps for ever");
        });
    }

    #[test]
    fn of_several_that_ring_one_wakes() {
        loom::model(|| {
            let armed = Arc::new(Armed(AtomicBool::new(false)));
            armed.arm();
            let other = Arc::clone(&armed);
            let ringing = thread::spawn(move || usize::from(other.take()));
            let rings = usize::from(armed.take()) + ringing.join().unwrap();
            assert_eq!(rings, 1);
        });
    }
}
