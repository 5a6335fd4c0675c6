//! [`Answer`]: what somebody waits for, until the engine tells it.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use clan_dsm::Ended;

use crate::runtime::locked;

/// Both sides hold it.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Mutex<Inner<T>>>);

#[derive(Debug)]
struct Inner<T> {
    result: Option<Result<T, Ended>>,
    waker: Option<Waker>,
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Copy> Answer<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner { result: None, waker: None })))
    }

    /// It is known now. Gives whom to wake.
    pub(crate) fn tell(&self, result: Result<T, Ended>) -> Option<Waker> {
        let mut inner = locked(&self.0);
        inner.result = Some(result);
        inner.waker.take()
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T, Ended>> {
        let mut inner = locked(&self.0);
        match inner.result {
            Some(result) => Poll::Ready(result),
            None => {
                inner.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
