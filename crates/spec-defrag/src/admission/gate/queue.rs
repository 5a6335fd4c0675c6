//! Who waits for a turn: first come, first served.

use alloc::collections::VecDeque;

use landfall_placement::{Duration, Instant};

use super::super::frame::{Mac, Nonce, Ticket};

/// One that was refused, and asks again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) source: Mac,
    pub(super) nonce: Nonce,
    /// Its last request: an invitation repeats it.
    pub(super) serial: u32,
    pub(super) ticket: Ticket,
    /// When its place is lost, unless it asks again.
    pub(super) until: Instant,
    pub(super) call: Call,
}

/// Whether a stream is kept free for one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Its turn has not come.
    Waiting,
    /// One is, up to that moment.
    Invited(Instant),
    /// It did not come: others may go first, until it asks again.
    Missed,
}

/// The queue of those who wait, bounded.
#[derive(Debug)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
    most: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { waiters: VecDeque::new(), most }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiters.len() >= self.most
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many have a stream kept free for them.
    pub(super) fn invited(&self) -> usize {
        self.waiters.iter().filter(|waiter| matches!(waiter.call, Call::Invited(_))).count()
    }

    pub(super) fn get(&self, position: usize) -> Option<&Waiter> {
        self.waiters.get(position)
    }

    pub(super) fn get_mut(&mut self, position: usize) -> Option<&mut Waiter> {
        self.waiters.get_mut(position)
    }

    /// The place of this sender, whatever it calls its series.
    pub(super) fn find(&self, source: Mac) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.source == source)
    }

    /// Puts one at the end; gives its position, or nothing where the queue is full.
    pub(super) fn push(&mut self, waiter: Waiter) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        self.waiters.push_back(waiter);
        Some(self.waiters.len() - 1)
    }

    pub(super) fn remove(&mut self, position: usize) {
        self.waiters.remove(position);
    }

    /// Takes note of what time has changed.
    pub(super) fn expire(&mut self, now: Instant) {
        self.waiters.retain(|waiter| waiter.until > now);
        for waiter in &mut self.waiters {
            if matches!(waiter.call, Call::Invited(until) if until <= now) {
                waiter.call = Call::Missed;
            }
        }
    }

    /// Keeps a stream free for the first one whose turn it is.
    pub(super) fn invite(&mut self, now: Instant, reserve: Duration) -> Option<Waiter> {
        let next = self.waiters.iter_mut().find(|waiter| waiter.call == Call::Waiting)?;
        next.call = Call::Invited(now + reserve);
        Some(*next)
    }

    /// When time changes something.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let moments = self.waiters.iter().map(|waiter| match waiter.call {
            Call::Invited(until) => until.min(waiter.until),
            Call::Waiting | Call::Missed => waiter.until,
        });
        moments.min()
    }
}
