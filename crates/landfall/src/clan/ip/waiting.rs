//! Waiting without driving the node.
//!
//! A thread that waits in a blocking call of the node makes its turns meanwhile, and one
//! of them sleeps at its descriptors. One such thread is enough: more would take turns
//! from each other, and look for work ten thousand times a second. So one of the threads
//! of connections does that, and all others wait here.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use crate::runtime::ThreadWaker;

/// Waits for a future that others wake; nothing if it is not done by the deadline.
pub(super) fn wait_aside<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let thread_waker = ThreadWaker::of_this_thread();
    let waker = Waker::from(Arc::clone(&thread_waker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if thread_waker.take_wake()
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        if !thread_waker.is_woken() {
            thread::park_timeout(left);
        }
    }
}

/// The one place of those who drive.
#[derive(Debug, Default)]
pub(super) struct Wheel(AtomicBool);

/// Who holds it drives, until this is dropped.
#[derive(Debug)]
pub(super) struct AtTheWheel<'a>(&'a Wheel);

impl Wheel {
    /// Takes it, if nobody has it.
    pub(super) fn take(&self) -> Option<AtTheWheel<'_>> {
        (!self.0.swap(true, Ordering::Acquire)).then_some(AtTheWheel(self))
    }
}

impl Drop for AtTheWheel<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_drives_at_a_time() {
        let wheel = Wheel::default();
        let driver = wheel.take().unwrap();
        assert!(wheel.take().is_none());
        drop(driver);
        assert!(wheel.take().is_some());
    }

    #[test]
    fn a_wait_ends_by_a_wake_or_by_its_deadline() {
        let mut is_asked_again = false;
        let woken_by_another = poll_fn(|context| {
            if is_asked_again {
                return Poll::Ready(7);
            }
            is_asked_again = true;
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        let patience = Duration::from_secs(600);
        assert_eq!(wait_aside(woken_by_another, Instant::now() + patience), Some(7));
        assert_eq!(wait_aside(pending::<()>(), Instant::now()), None);
    }
}
