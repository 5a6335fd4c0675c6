//! Who wakes whom: what the carrier's one thread sleeps on, and the programs that it wakes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::bell;
use crate::kernel::{self, Errno};
use crate::notes::DESCRIPTORS;

fn failed(why: Errno) -> io::Error {
    io::Error::from_raw_os_error(why.0)
}

/// Wakes the carrier's thread. It looks whether it was woken before it sleeps, so only another
/// thread has to write: a write of its own would end the next sleep for nothing.
pub(super) struct LoopWaker {
    descriptor: OwnedFd,
    is_woken: AtomicBool,
    carrier: ThreadId,
}

impl LoopWaker {
    /// Whether something has happened since this was asked last.
    pub(super) fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }

    /// The carrier's thread itself has something to do yet.
    pub(super) fn wake_up(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }
}

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let was_woken = self.is_woken.swap(true, Ordering::SeqCst);
        if !was_woken && thread::current().id() != self.carrier {
            bell::write(self.descriptor.as_raw_fd());
        }
    }
}

/// All that the carrier's thread sleeps on.
pub(super) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        Ok(Self { epoll: unsafe { OwnedFd::from_raw_fd(epoll) } })
    }

    /// Wakes while it is readable.
    pub(super) fn watch(&self, what: impl AsFd) -> io::Result<()> {
        self.add(what.as_fd().as_raw_fd(), libc::EPOLLIN as u32)
    }

    /// Wakes once for each write to an event descriptor, which nobody reads.
    fn watch_edges(&self, what: &OwnedFd) -> io::Result<()> {
        self.add(what.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32)
    }

    fn add(&self, fd: i32, events: u32) -> io::Result<()> {
        let event = libc::epoll_event { events, u64: 0 };
        let added = kernel::epoll_change(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &event);
        added.map(drop).map_err(failed)
    }

    fn forget(&self, what: &OwnedFd) {
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        let (epoll, fd) = (self.epoll.as_raw_fd(), what.as_raw_fd());
        let _ = kernel::epoll_change(epoll, libc::EPOLL_CTL_DEL, fd, &nothing);
    }

    /// Sleeps until something happens, at most for so long.
    pub(super) fn sleep(&self, limit: Duration) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let (epoll, limit) = (self.epoll.as_raw_fd(), limit.as_millis().min(1_000) as i32);
        match kernel::epoll_wait(epoll, &mut events, limit, std::ptr::null()) {
            Ok(_) | Err(Errno(libc::EINTR)) => Ok(()),
            Err(why) => Err(failed(why)),
        }
    }

    /// Wakes the thread that this is called on.
    pub(super) fn waker(&self) -> io::Result<Arc<LoopWaker>> {
        // SAFETY: numbers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        self.watch_edges(&descriptor)?;
        let (is_woken, carrier) = (AtomicBool::new(true), thread::current().id());
        Ok(Arc::new(LoopWaker { descriptor, is_woken, carrier }))
    }
}

/// A process of this host that has connections which are carried.
pub(super) struct ProgramBell {
    /// Written to where it sleeps.
    wakes_program: OwnedFd,
    /// Where it writes to.
    wakes_carrier: OwnedFd,
    poller: Rc<Poller>,
    /// It is to be woken at the end of this turn.
    is_due: Cell<bool>,
}

impl Drop for ProgramBell {
    fn drop(&mut self) {
        // The program may have it open for longer.
        self.poller.forget(&self.wakes_carrier);
    }
}

/// The processes that there are, by the number that each gives itself.
#[derive(Default)]
pub(super) struct Programs(BTreeMap<u64, Weak<ProgramBell>>);

impl Programs {
    /// The bell of a process, which is known from another connection or has come with a note.
    pub(super) fn bell(
        &mut self,
        poller: &Rc<Poller>,
        identity: u64,
        descriptors: Option<[OwnedFd; DESCRIPTORS]>,
    ) -> Option<Rc<ProgramBell>> {
        if let Some(known) = self.0.get(&identity).and_then(Weak::upgrade) {
            return Some(known);
        }
        let [wakes_program, wakes_carrier] = descriptors?;
        poller.watch_edges(&wakes_carrier).ok()?;
        let (poller, is_due) = (Rc::clone(poller), Cell::new(false));
        let bell = Rc::new(ProgramBell { wakes_program, wakes_carrier, poller, is_due });
        self.0.retain(|_, bell| bell.strong_count() > 0);
        self.0.insert(identity, Rc::downgrade(&bell));
        Some(bell)
    }
}

/// Processes that are to be woken: each once, however many of its connections have news.
#[derive(Default)]
pub(super) struct DueBells(Vec<Rc<ProgramBell>>);

impl DueBells {
    pub(super) fn add(&mut self, bells: &[Rc<ProgramBell>]) {
        for bell in bells {
            if !bell.is_due.replace(true) {
                self.0.push(Rc::clone(bell));
            }
        }
    }

    pub(super) fn ring(&mut self) {
        for bell in self.0.drain(..) {
            bell.is_due.set(false);
            bell::write(bell.wakes_program.as_raw_fd());
        }
    }
}
