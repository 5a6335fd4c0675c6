//! [`Backlog`]: where connections are made, and wait until somebody accepts them; and
//! [`AcceptThread`]: where they come in, on this host or from others.
//!
//! Each is made on a thread of its own, so that a process that says nothing holds up
//! nobody else; there is a bound on how many are made at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::{io, thread};

use super::stream::{Arrivals, Ends};
use crate::waiting::locked;

/// This many connections are made at a time.
const MOST_AT_ONCE: usize = 64;

/// Connections that wait to be accepted, filled by the thread that accepts them.
pub(super) struct Backlog<T> {
    waiting: Mutex<Waiting<T>>,
    is_over: AtomicBool,
    under_way: AtomicUsize,
    /// How many may wait.
    backlog: usize,
}

/// Those that have come, until somebody accepts them.
struct Waiting<T> {
    ready: VecDeque<T>,
    waker: Option<Waker>,
}

impl<T: Send + 'static> Backlog<T> {
    pub(super) fn new(backlog: usize) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(Waiting { ready: VecDeque::new(), waker: None }),
            is_over: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            backlog,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// May nobody more wait?
    pub(super) fn is_full(&self) -> bool {
        locked(&self.waiting).ready.len() >= self.backlog
    }

    /// Are as many made as may be?
    pub(super) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) >= MOST_AT_ONCE
    }

    /// Makes a connection on a thread of its own; nothing where there are too many.
    pub(super) fn receive(self: &Arc<Self>, make: impl FnOnce() -> Option<T> + Send + 'static) {
        if self.under_way.fetch_add(1, Ordering::SeqCst) >= MOST_AT_ONCE {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        let queue = Arc::clone(self);
        let thread = std::thread::Builder::new().name("clan-accept".into());
        let started = thread.spawn(move || {
            let came = make();
            queue.under_way.fetch_sub(1, Ordering::SeqCst);
            if let Some(came) = came {
                queue.put(came);
            }
        });
        if started.is_err() {
            self.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn put(&self, came: T) {
        let mut waiting = locked(&self.waiting);
        if self.is_over() {
            // Dropped without the lock: it says good-bye.
            drop(waiting);
            drop(came);
            return;
        }
        waiting.ready.push_back(came);
        let waker = waiting.waker.take();
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }

    pub(super) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<T>> {
        let mut waiting = locked(&self.waiting);
        if let Some(came) = waiting.ready.pop_front() {
            return Poll::Ready(Ok(came));
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Nobody accepts any more.
    pub(super) fn close(&self) {
        let mut waiting = locked(&self.waiting);
        self.is_over.store(true, Ordering::SeqCst);
        let (ready, waker) = (std::mem::take(&mut waiting.ready), waiting.waker.take());
        drop(waiting);
        drop((ready, waker));
    }
}

/// What the threads of a listener share.
pub(super) trait ConnectionSource: Send + Sync + 'static {
    /// Where connections are made, and wait until they are accepted.
    fn queue(&self) -> &Backlog<Ends>;

    /// Wakes the thread that listens: it looks whether the queue was closed.
    fn wake(&self);
}

/// A name or a port that is listened at, on a thread of its own. When this is dropped, that
/// has ended.
pub(super) struct AcceptThread<E: ConnectionSource> {
    source: Arc<E>,
    thread: Option<JoinHandle<()>>,
}

impl<E: ConnectionSource> AcceptThread<E> {
    /// `serve` sees to those that come, until the queue is closed; what it owns is free then.
    pub(super) fn open(source: E, serve: impl FnOnce(Arc<E>) + Send + 'static) -> io::Result<Self> {
        let source = Arc::new(source);
        let serving = Arc::clone(&source);
        let thread = thread::Builder::new().name("clan-listen".into());
        let thread = thread.spawn(move || serve(serving))?;
        Ok(Self { source, thread: Some(thread) })
    }
}

impl<E: ConnectionSource> Arrivals for AcceptThread<E> {
    fn poll_ends(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Ends>> {
        self.source.queue().poll_accept(cx)
    }
}

impl<E: ConnectionSource> Drop for AcceptThread<E> {
    fn drop(&mut self) {
        self.source.queue().close();
        self.source.wake();
        // When this has ended, the name or the port is free again.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
