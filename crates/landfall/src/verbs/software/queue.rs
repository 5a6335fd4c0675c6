//! What completion queues are where no adapter writes them: those of carriers whose requests
//! are futures.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use landfall_transport::Bell;

use super::background::Background;
use super::{Arm, Completion, PhaseChange};
use crate::runtime::locked;

/// A queue pair, as its completion queue goes on with it.
pub(super) trait Progress: Send + Sync {
    /// Does all that can be done now.
    fn advance(&self);
}

/// Completions, and what they are waited for with.
pub struct Queue {
    inner: Mutex<Inner>,
    bell: Bell,
    capacity: u32,
    /// Queue pairs of which a look shows what they can go on with: those of carriers that wake
    /// nobody who does not sleep.
    looked_at: Mutex<Vec<Weak<dyn Progress>>>,
    has_looked_at: AtomicBool,
    /// Somebody sleeps here, or is about to.
    has_sleeper: AtomicBool,
    background: Background,
}

#[derive(Default)]
struct Inner {
    /// With whether a place was kept for it.
    completions: VecDeque<(Completion, bool)>,
    changes: VecDeque<PhaseChange>,
    /// Places of requests under way, and of completions that nobody has taken.
    kept: u32,
    waiter: Option<Waker>,
    /// The descriptor may be readable: it has to be read.
    is_armed: bool,
    /// Those who wait know of all that is here.
    is_told: bool,
}

impl Inner {
    fn take(&mut self) -> Option<Completion> {
        let (completion, had_place) = self.completions.pop_front()?;
        self.kept -= u32::from(had_place);
        Some(completion)
    }

    /// Is there something that a queue tells that was armed so?
    fn has(&self, arm: Arm) -> bool {
        let is_meant =
            |(completion, _): &(Completion, bool)| arm == Arm::Next || completion.is_solicited();
        self.completions.iter().any(is_meant) || !self.changes.is_empty()
    }
}

impl Queue {
    pub(in crate::verbs) fn new(capacity: u32) -> io::Result<Self> {
        let inner = Inner { is_told: true, ..Inner::default() };
        Ok(Self {
            inner: Mutex::new(inner),
            bell: Bell::new()?,
            capacity,
            looked_at: Mutex::default(),
            has_looked_at: AtomicBool::new(false),
            has_sleeper: AtomicBool::new(false),
            background: Background::default(),
        })
    }

    /// From now on who polls goes on with this queue pair first.
    pub(super) fn look_at(&self, pair: Weak<dyn Progress>) {
        let mut looked_at = locked(&self.looked_at);
        looked_at.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&pair));
        looked_at.push(pair);
        self.has_looked_at.store(true, SeqCst);
    }

    fn advance_all(&self) {
        if !self.has_looked_at.load(Relaxed) {
            return;
        }
        // One at a time, without the lock: what it does may drop the last handle of another.
        let mut nth = 0;
        while let Some(pair) = self.nth_looked_at(&mut nth) {
            pair.advance();
        }
    }

    fn nth_looked_at(&self, nth: &mut usize) -> Option<Arc<dyn Progress>> {
        let looked_at = locked(&self.looked_at);
        while let Some(pair) = looked_at.get(*nth) {
            *nth += 1;
            if let Some(pair) = pair.upgrade() {
                return Some(pair);
            }
        }
        None
    }

    /// Does somebody sleep here until something completes?
    pub(in crate::verbs) fn has_sleeper(&self) -> bool {
        self.has_sleeper.load(SeqCst)
    }

    /// Wakes those who sleep here, for a look.
    pub(in crate::verbs) fn wake_sleepers(&self) -> bool {
        let mut inner = locked(&self.inner);
        let waiter = inner.waiter.take();
        let is_heard = waiter.is_some() || inner.is_armed;
        self.note_sleepers(&inner);
        drop(inner);
        if is_heard {
            waiter.into_iter().for_each(Waker::wake);
            self.bell.ring();
        }
        is_heard
    }

    /// A queue pair can go on, and its program may not look for long.
    pub(super) fn leave_to_background(&self, pair: Arc<dyn Progress>) {
        self.background.leave(pair);
    }

    fn note_sleepers(&self, inner: &Inner) {
        self.has_sleeper.store(inner.is_armed || inner.waiter.is_some(), SeqCst);
    }

    pub(in crate::verbs) const fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(in crate::verbs) fn len(&self) -> usize {
        locked(&self.inner).completions.len()
    }

    /// Keeps a place for a completion. False: there is none.
    pub(in crate::verbs) fn keep_place(&self) -> bool {
        let mut inner = locked(&self.inner);
        let has_room = inner.kept < self.capacity;
        inner.kept += u32::from(has_room);
        has_room
    }

    /// A request is done. What fails completes also where no place was kept for it: such
    /// requests are no more than the queues of the pairs hold. [`tell`](Self::tell) comes after
    /// that, without the locks of the pair.
    pub(in crate::verbs) fn complete(&self, completion: Completion, had_place: bool) {
        let mut inner = locked(&self.inner);
        inner.completions.push_back((completion, had_place));
        inner.is_told = false;
    }

    pub(in crate::verbs) fn change(&self, change: PhaseChange) {
        let mut inner = locked(&self.inner);
        inner.changes.push_back(change);
        inner.is_told = false;
    }

    /// Wakes those who wait for what has come.
    pub(in crate::verbs) fn tell(&self) {
        let mut inner = locked(&self.inner);
        if std::mem::replace(&mut inner.is_told, true) {
            return;
        }
        let waiter = inner.waiter.take();
        self.note_sleepers(&inner);
        drop(inner);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        self.bell.ring();
    }

    pub(in crate::verbs) fn poll(&self) -> Option<Completion> {
        let found = self.poll_here();
        if found.is_some() || !self.has_looked_at.load(Relaxed) {
            return found;
        }
        self.advance_all();
        self.poll_here()
    }

    fn poll_here(&self) -> Option<Completion> {
        let mut inner = locked(&self.inner);
        let completion = inner.take()?;
        self.silence(&mut inner);
        Some(completion)
    }

    pub(in crate::verbs) fn poll_into(&self, into: &mut Vec<Completion>, at_most: usize) -> usize {
        self.advance_all();
        let mut inner = locked(&self.inner);
        let before = into.len();
        into.extend(std::iter::from_fn(|| inner.take()).take(at_most));
        if into.len() > before {
            self.silence(&mut inner);
        }
        into.len() - before
    }

    pub(in crate::verbs) fn poll_change(&self) -> Option<PhaseChange> {
        self.advance_all();
        let mut inner = locked(&self.inner);
        let change = inner.changes.pop_front()?;
        self.silence(&mut inner);
        Some(change)
    }

    /// Something was found: nobody sleeps at the descriptor.
    fn silence(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.is_armed) {
            self.bell.silence();
            self.note_sleepers(inner);
        }
    }

    /// From now on the descriptor becomes readable with the next completion. False: there is
    /// one already.
    pub(in crate::verbs) fn arm(&self, arm: Arm) -> bool {
        if !self.arm_here(arm) {
            return false;
        }
        // From here on those wake who can go on.
        self.advance_all();
        let mut inner = locked(&self.inner);
        let has_come = inner.has(arm);
        if has_come {
            self.silence(&mut inner);
        }
        !has_come
    }

    fn arm_here(&self, arm: Arm) -> bool {
        let mut inner = locked(&self.inner);
        self.silence(&mut inner);
        if inner.has(arm) {
            return false;
        }
        self.bell.arm();
        inner.is_armed = true;
        self.note_sleepers(&inner);
        true
    }

    pub(in crate::verbs) fn poll_next(&self, cx: &Context<'_>) -> Poll<Completion> {
        if let Poll::Ready(found) = self.poll_next_here(cx) {
            return Poll::Ready(found);
        }
        self.advance_all();
        match self.poll_here() {
            Some(found) => Poll::Ready(found),
            None => Poll::Pending,
        }
    }

    fn poll_next_here(&self, cx: &Context<'_>) -> Poll<Completion> {
        let mut inner = locked(&self.inner);
        if let Some(completion) = inner.take() {
            self.silence(&mut inner);
            return Poll::Ready(completion);
        }
        let old = inner.waiter.replace(cx.waker().clone());
        self.note_sleepers(&inner);
        // A whole task may go with it, which needs no lock of ours.
        drop(inner);
        drop(old);
        Poll::Pending
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len()).finish_non_exhaustive()
    }
}
