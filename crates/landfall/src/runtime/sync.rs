//! What the lock and its queue are made of: in their models it is `loom`'s.

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(all(test, loom))]
pub(super) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::{Mutex, MutexGuard};
