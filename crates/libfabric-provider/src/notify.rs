//! What wakes threads and descriptors that wait for completions, and which connections have
//! something to be looked at.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor that becomes readable: the wait object of a completion queue.
#[derive(Debug)]
pub(crate) struct Event {
    file: File,
    /// Somebody is about to wait for it.
    is_armed: AtomicBool,
}

impl Event {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        // SAFETY: a call without pointers.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if made < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was made just now, and is nobody else's.
        let file = unsafe { File::from_raw_fd(made) };
        Ok(Arc::new(Self { file, is_armed: AtomicBool::new(false) }))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// From here on the next ring makes it readable. What rang before is to be looked at now.
    pub(crate) fn arm(&self) {
        let mut count = [0; 8];
        // Nothing to read: it was not rung.
        let _ = (&self.file).read(&mut count);
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// Waits until it is readable, for so long at most.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut ready = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
        let limit = libc::c_int::try_from(limit.as_millis().max(1)).unwrap_or(libc::c_int::MAX);
        // SAFETY: one entry, which is there.
        unsafe { libc::poll(&raw mut ready, 1, limit) };
    }

    pub(crate) fn ring(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            // It only fails where it has been rung 2^64 times.
            let _ = (&self.file).write(&1_u64.to_ne_bytes());
        }
    }
}

/// Wakes anyone who waits for completions of a domain.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    rings: Mutex<u64>,
    changed: Condvar,
    waiting: AtomicUsize,
    events: Mutex<Vec<Weak<Event>>>,
    has_events: AtomicBool,
}

impl Notify {
    /// A descriptor that is rung with it.
    pub(crate) fn watch(&self, event: &Arc<Event>) {
        let mut events = locked(&self.events);
        events.retain(|known| known.strong_count() > 0);
        events.push(Arc::downgrade(event));
        self.has_events.store(true, Ordering::SeqCst);
    }

    pub(crate) fn ring(&self) {
        *locked(&self.rings) += 1;
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.changed.notify_all();
        }
        if self.has_events.load(Ordering::SeqCst) {
            locked(&self.events).iter().filter_map(Weak::upgrade).for_each(|event| event.ring());
        }
    }

    /// How often it was rung.
    pub(crate) fn rings(&self) -> u64 {
        *locked(&self.rings)
    }

    /// Waits until it was rung more often than that, for so long at most.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let rings = locked(&self.rings);
        let is_unchanged = |rings: &mut u64| *rings == seen;
        drop(self.changed.wait_timeout_while(rings, limit, is_unchanged));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Which connections of an endpoint have something to be looked at.
#[derive(Debug)]
pub(crate) struct Ready {
    woken: Mutex<Vec<usize>>,
    notify: Arc<Notify>,
}

impl Ready {
    pub(crate) fn new(notify: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { woken: Mutex::default(), notify })
    }

    /// What wakes the connection with this number.
    pub(crate) fn waker(self: &Arc<Self>, link: usize) -> LinkWaker {
        let news = AtomicU8::new(0);
        let signal = Arc::new(Signal { link, news, ready: Arc::clone(self) });
        let of = |news| Waker::from(Arc::new(UpdateWaker { signal: Arc::clone(&signal), news }));
        let [operations, requests, writes] = LinkUpdates::EACH.map(of);
        LinkWaker { operations, requests, writes, signal }
    }

    /// All that were woken, into a list that is empty.
    pub(crate) fn take(&self, into: &mut Vec<usize>) {
        std::mem::swap(&mut *locked(&self.woken), into);
    }
}

/// Of what of a connection there are news: the rest need not be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkUpdates(u8);

impl LinkUpdates {
    /// What was begun here goes on, or is over.
    pub(crate) const OPERATIONS: Self = Self(1);
    /// The other side asks for something, or ends the connection.
    pub(crate) const REQUESTS: Self = Self(2);
    /// The other side has written to the ring.
    pub(crate) const WRITES: Self = Self(4);
    pub(crate) const ALL: Self = Self(7);
    const EACH: [Self; 3] = [Self::OPERATIONS, Self::REQUESTS, Self::WRITES];

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Wakes one connection, once until it is looked at.
#[derive(Debug)]
struct Signal {
    link: usize,
    news: AtomicU8,
    ready: Arc<Ready>,
}

/// Wakes it with news.
#[derive(Debug)]
struct UpdateWaker {
    signal: Arc<Signal>,
    news: LinkUpdates,
}

impl Wake for UpdateWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Signal { link, news, ready } = &*self.signal;
        if news.fetch_or(self.news.0, Ordering::AcqRel) == 0 {
            locked(&ready.woken).push(*link);
            ready.notify.ring();
        }
    }
}

/// The wakers of a connection.
#[derive(Debug)]
pub(crate) struct LinkWaker {
    pub(crate) operations: Waker,
    pub(crate) requests: Waker,
    pub(crate) writes: Waker,
    signal: Arc<Signal>,
}

impl LinkWaker {
    /// It is looked at from here on, and these are the news: what changes later wakes it again.
    pub(crate) fn begin(&self) -> LinkUpdates {
        LinkUpdates(self.signal.news.swap(0, Ordering::AcqRel))
    }
}
