//! What completion queues are where no adapter writes them: those of carriers whose requests
//! are futures.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use landfall_transport::Bell;

use super::{Arm, Completion, PhaseChange};
use crate::runtime::locked;

/// Completions, and what they are waited for with.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    bell: Bell,
    capacity: u32,
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
    pub(super) fn new(capacity: u32) -> io::Result<Self> {
        let inner = Inner { is_told: true, ..Inner::default() };
        Ok(Self { inner: Mutex::new(inner), bell: Bell::new()?, capacity })
    }

    pub(super) const fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.inner).completions.len()
    }

    /// Keeps a place for a completion. False: there is none.
    pub(super) fn keep_place(&self) -> bool {
        let mut inner = locked(&self.inner);
        let has_room = inner.kept < self.capacity;
        inner.kept += u32::from(has_room);
        has_room
    }

    /// A request is done. What fails completes also where no place was kept for it: such
    /// requests are no more than the queues of the pairs hold. [`tell`](Self::tell) comes after
    /// that, without the locks of the pair.
    pub(super) fn complete(&self, completion: Completion, had_place: bool) {
        let mut inner = locked(&self.inner);
        inner.completions.push_back((completion, had_place));
        inner.is_told = false;
    }

    pub(super) fn change(&self, change: PhaseChange) {
        let mut inner = locked(&self.inner);
        inner.changes.push_back(change);
        inner.is_told = false;
    }

    /// Wakes those who wait for what has come.
    pub(super) fn tell(&self) {
        let mut inner = locked(&self.inner);
        if std::mem::replace(&mut inner.is_told, true) {
            return;
        }
        let waiter = inner.waiter.take();
        drop(inner);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        self.bell.ring();
    }

    pub(super) fn poll(&self) -> Option<Completion> {
        let mut inner = locked(&self.inner);
        let completion = inner.take()?;
        self.silence(&mut inner);
        Some(completion)
    }

    pub(super) fn poll_into(&self, into: &mut Vec<Completion>, at_most: usize) -> usize {
        let mut inner = locked(&self.inner);
        let before = into.len();
        into.extend(std::iter::from_fn(|| inner.take()).take(at_most));
        if into.len() > before {
            self.silence(&mut inner);
        }
        into.len() - before
    }

    pub(super) fn poll_change(&self) -> Option<PhaseChange> {
        let mut inner = locked(&self.inner);
        let change = inner.changes.pop_front()?;
        self.silence(&mut inner);
        Some(change)
    }

    /// Something was found: nobody sleeps at the descriptor.
    fn silence(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.is_armed) {
            self.bell.silence();
        }
    }

    /// From now on the descriptor becomes readable with the next completion. False: there is
    /// one already.
    pub(super) fn arm(&self, arm: Arm) -> bool {
        let mut inner = locked(&self.inner);
        self.silence(&mut inner);
        if inner.has(arm) {
            return false;
        }
        self.bell.arm();
        inner.is_armed = true;
        true
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Completion> {
        let mut inner = locked(&self.inner);
        if let Some(completion) = inner.take() {
            self.silence(&mut inner);
            return Poll::Ready(completion);
        }
        let old = inner.waiter.replace(cx.waker().clone());
        // A whole task may go with it, which needs no lock of ours.
        drop(inner);
        drop(old);
        Poll::Pending
    }
}
