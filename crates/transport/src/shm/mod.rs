//! Memory that processes of one host share, as a way to talk: rings, watched memory,
//! sleeping and waking, and how processes meet.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ring`] | records or bytes from one process to another, without locks |
//! | [`watched`] | memory that others write, with tripwires: armed ranges whose touch is told |
//! | [`wake`] | sleeping until another process has news, at no cost while nobody sleeps |
//! | [`rendezvous`] | a Unix socket where processes meet and hand over descriptors |
//!
//! Memory that others write is never a slice: it is copied, or read by words. What
//! others write there is checked at each use, and can spoil no more than what they
//! have to say.
//!
//! What does not live here: a protocol. What the memory means, who may have it and
//! what is done when somebody is gone is for those who build upon this.

pub mod rendezvous;
pub mod ring;
pub mod wake;
pub mod watched;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

// What descriptors of another process may be, found out without waiting.
//
// A descriptor can be of a file system that answers when it likes, of a socket that takes its
// time to close, of anything. So the questions here are put to the kernel alone, and what is
// of no use is closed by a thread that may wait.

/// Is it a file that is memory? Nothing else has seals.
fn is_memory(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: an open descriptor and a constant.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

/// Is it an eventfd? The kernel has given it this name, which begins as no path does.
fn is_event(fd: BorrowedFd<'_>) -> std::io::Result<bool> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(std::fs::read_link(link)?.as_os_str() == "anon_inode:[eventfd]")
}

/// Closes descriptors, and does not wait for it. Where no thread can be had for that they
/// stay open.
pub(crate) fn close_aside(fds: impl IntoIterator<Item = OwnedFd>) {
    let numbers: Vec<RawFd> = fds.into_iter().map(IntoRawFd::into_raw_fd).collect();
    if numbers.is_empty() {
        return;
    }
    let close = move || {
        for number in numbers {
            // SAFETY: it was given up above, and nobody else has it.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    };
    let _ = thread::Builder::new().name("landfall-close".to_owned()).spawn(close);
}

// `Word`: what the protocols of this module need of an atomic word.
//
// They are written once over this trait: on the words of shared memory they run,
// on the words of `loom` they are tried in every order.

/// An atomic word of 64 bits, and the fence that goes with it.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_or(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
    fn fence(order: Ordering);
}

macro_rules! word {
    ($word:ty, $fence:path) => {
        impl Word for $word {
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                <$word>::load(self, order)
            }

            #[inline]
            fn store(&self, value: u64, order: Ordering) {
                <$word>::store(self, value, order);
            }

            #[inline]
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                <$word>::swap(self, value, order)
            }

            #[inline]
            fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
                <$word>::fetch_add(self, value, order)
            }

            #[inline]
            fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
                <$word>::fetch_or(self, value, order)
            }

            #[inline]
            fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
                <$word>::fetch_and(self, value, order)
            }

            #[inline]
            fn fence(order: Ordering) {
                $fence(order);
            }
        }
    };
}

word!(AtomicU64, std::sync::atomic::fence);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU64, loom::sync::atomic::fence);
