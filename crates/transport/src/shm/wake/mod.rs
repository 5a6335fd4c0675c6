//! Sleeping until another process has something to say.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Doorbell`] | the owner's end: one for each peer |
//! | [`Ringer`] | the peer's end |
//! | [`Sleeper`] | where threads of the owner sleep, until one of many doorbells rings |
//!
//! A doorbell is one word in shared memory, which says that somebody is about to
//! sleep, and an eventfd. A peer that has published something makes a full fence and
//! looks at the word: while nobody sleeps that is all, and no system call is made.
//! Who wants to sleep sets the word, makes a full fence, looks once more for work,
//! and sleeps; one of the two sees the other. A ring ends the setting, so that a
//! stream of news costs one wake.
//!
//! Each peer has a doorbell of its own, word and descriptor. A peer that spoils them
//! is heard late (each sleep is bounded), and spoils nobody else's.
//!
//! # At the word, or at the eventfd
//!
//! A thread sleeps at the word of the doorbell itself (futex) where there is only one, as
//! between two processes, and else at an `epoll` of all the eventfds; tasks, and anyone who
//! waits among sockets and timers, always at the latter. The word says which it is, so a
//! ring is one system call, and so is a sleep. What a round trip costs with both ends
//! asleep on one core (processor time, median of five, while the machine was busy
//! otherwise; a Unix socket pair takes 16.9 µs):
//!
//! | way to sleep | µs | × Unix socket |
//! | --- | ---: | ---: |
//! | futex at the word | 8.0 | 0.45 |
//! | blocking `read` of an eventfd | 8.1 | 0.53 |
//! | `epoll_wait` for an eventfd, edge-triggered | 10.0 | 0.63 |
//! | `ppoll` and then `read` | 11.6 | 0.69 |
//!
//! A `read` that sleeps can wait for one descriptor only, and a descriptor that is to be waited for
//! among others must not block. What was found besides to cost a system call each time:
//! notifying a condition variable that nobody waits for, and waking oneself by an
//! announcement that was not taken back.

mod doorbell;
mod sleeper;

pub use doorbell::{Doorbell, Ringer, WakeError};
#[cfg(all(test, loom))]
pub(crate) use doorbell::{announce, awaited, retract};
pub use sleeper::{DoorbellId, Sleeper};
