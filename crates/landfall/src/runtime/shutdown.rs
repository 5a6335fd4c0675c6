//! How a runtime ends: what is under way may finish, what takes too long is ended, and for a
//! while peers that missed the last word are answered.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use landfall_placement::{Duration, Instant};

use super::locked;

/// How far the end is. It moves on with the turns, no matter who makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Running,
    /// What is under way may end, until then.
    Closing(Instant),
    /// Peers that missed the last word are answered, until then.
    Leaving(Instant),
    /// Nothing moves any more.
    Ended,
}

impl Stage {
    /// When it moves on, whatever happens.
    pub(super) const fn until(self) -> Option<Instant> {
        match self {
            Self::Closing(until) | Self::Leaving(until) => Some(until),
            Self::Running | Self::Ended => None,
        }
    }
}

/// What threads know of the end without the lock.
#[derive(Debug)]
pub(super) struct Shutdown {
    /// How long each stage may take.
    pub(super) linger: Duration,
    is_asked: AtomicBool,
    is_over: AtomicBool,
    has_ended: AtomicBool,
    watchers: Mutex<Vec<Waker>>,
}

impl Shutdown {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            linger,
            is_asked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            watchers: Mutex::default(),
        }
    }

    pub(super) fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
    }

    /// The last handle is gone, or it was closed.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }

    pub(super) fn note_ended(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Is everything over that was under way? The waker is woken when it is.
    pub(super) fn watch(&self, waker: &Waker) -> bool {
        let mut watchers = locked(&self.watchers);
        let is_over = self.is_over.load(Ordering::SeqCst);
        if !is_over {
            watchers.push(waker.clone());
        }
        is_over
    }

    /// Everything is over: anyone who closes it may go on.
    pub(super) fn wake_watchers(&self) {
        let mut watchers = locked(&self.watchers);
        self.is_over.store(true, Ordering::SeqCst);
        let told = std::mem::take(&mut *watchers);
        drop(watchers);
        told.into_iter().for_each(Waker::wake);
    }
}
