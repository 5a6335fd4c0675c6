//! [`Ticket`]: what an operation's user and the endpoint share, so that neither waits for the
//! other.

use std::sync::Mutex;
use std::task::{Poll, Waker};

use super::slots::{Key, Outcome};
use crate::runtime::locked;
use crate::stp::memory::Held;

/// An operation, from the call that asks for it until its user knows how it went. Its mutex
/// is held for a few instructions at a time, by either side.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Once the endpoint knows of it.
    key: Option<Key>,
    outcome: Option<(Outcome, Option<Held>)>,
    waker: Option<Waker>,
}

impl Ticket {
    /// How it went, and what it held; or the waker is woken when that is known.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<(Outcome, Option<Held>)> {
        let mut state = locked(&self.0);
        if let Some(over) = state.outcome.take() {
            return Poll::Ready(over);
        }
        let before = match &state.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => state.waker.replace(waker.clone()),
        };
        drop(state);
        // With it a whole task may go.
        drop(before);
        Poll::Pending
    }

    pub(crate) fn is_over(&self) -> bool {
        locked(&self.0).outcome.is_some()
    }

    pub(super) fn key(&self) -> Option<Key> {
        locked(&self.0).key
    }

    pub(super) fn set_key(&self, key: Key) {
        locked(&self.0).key = Some(key);
    }

    /// It is over. Gives who is to be woken.
    pub(super) fn end(&self, outcome: Outcome, held: Option<Held>) -> Option<Waker> {
        let mut state = locked(&self.0);
        state.outcome = Some((outcome, held));
        state.waker.take()
    }
}
