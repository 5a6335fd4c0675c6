//! Threads that wait: how long they spin ([`SpinBudget`]), and what wakes them
//! ([`ThreadWaker`]).

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Wake;
use std::thread::{self, Thread};

use landfall_placement::Instant;
use landfall_transport::{Bell, Wait};

use super::locked;

/// How long a thread spins before it sleeps.
#[derive(Debug)]
pub(crate) struct SpinBudget {
    wait: Wait,
    idle_since: Option<Instant>,
}

impl SpinBudget {
    pub(crate) const fn new(wait: Wait) -> Self {
        Self { wait, idle_since: None }
    }

    /// Something moved.
    pub(crate) const fn renew(&mut self) {
        self.idle_since = None;
    }

    /// Nothing moved: is it time to sleep?
    pub(crate) fn is_spent(&mut self, now: Instant) -> bool {
        match self.wait {
            Wait::Spin => false,
            Wait::Block => true,
            Wait::SpinThenBlock(budget) => now.since(*self.idle_since.get_or_insert(now)) >= budget,
        }
    }

    /// What a thread does between two looks. One that will block soon gives its core, after
    /// the time in which an answer of another core comes, to anyone who wants it: the
    /// answer may be the work of a thread that waits for this very core. One whose work comes
    /// from threads of this process (`serves_others`) gives it at once.
    pub(crate) fn pause(&self, now: Instant, serves_others: bool) {
        match (self.wait, self.idle_since) {
            (Wait::SpinThenBlock(budget), Some(start))
                if serves_others || now.since(start) >= budget / 10 =>
            {
                thread::yield_now();
            }
            _ => std::hint::spin_loop(),
        }
    }
}

/// Wakes a thread that waits for a future, be it parked or at the descriptors.
pub(crate) struct ThreadWaker {
    thread: Thread,
    is_woken: AtomicBool,
    /// The thread sleeps at descriptors, where this bell reaches it.
    is_at_descriptors: AtomicBool,
    bell: Mutex<Weak<Bell>>,
}

thread_local! {
    static WAKER: OnceCell<Arc<ThreadWaker>> = const { OnceCell::new() };
}

impl ThreadWaker {
    /// The one of this thread. It counts as woken: what is waited for has to be
    /// looked at once.
    pub(crate) fn of_this_thread() -> Arc<Self> {
        let new = || {
            Arc::new(Self {
                thread: thread::current(),
                is_woken: AtomicBool::new(true),
                is_at_descriptors: AtomicBool::new(false),
                bell: Mutex::default(),
            })
        };
        let waker = WAKER.with(|waker| Arc::clone(waker.get_or_init(new)));
        waker.is_woken.store(true, Ordering::Relaxed);
        waker
    }

    /// Was it woken since the last time that this was asked?
    pub(crate) fn take_wake(&self) -> bool {
        self.is_woken.swap(false, Ordering::Acquire)
    }

    /// Will the next look say that it was woken?
    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    /// Until the guard is dropped a wake also rings this bell: no unparking ends a sleep at
    /// descriptors. The thread looks once more whether it was woken before it sleeps there.
    pub(crate) fn reach_by<'a>(&'a self, bell: &Arc<Bell>) -> Reached<'a> {
        let mut known = locked(&self.bell);
        if known.as_ptr() != Arc::as_ptr(bell) {
            *known = Arc::downgrade(bell);
        }
        drop(known);
        self.is_at_descriptors.store(true, Ordering::SeqCst);
        Reached(self)
    }
}

/// A guard: while it lives, wakes ring a bell.
pub(crate) struct Reached<'a>(&'a ThreadWaker);

impl Drop for Reached<'_> {
    fn drop(&mut self) {
        self.0.is_at_descriptors.store(false, Ordering::SeqCst);
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::SeqCst) || thread::current().id() == self.thread.id()
        {
            return;
        }
        self.thread.unpark();
        if self.is_at_descriptors.load(Ordering::SeqCst)
            && let Some(bell) = locked(&self.bell).upgrade()
        {
            bell.ring();
        }
    }
}
