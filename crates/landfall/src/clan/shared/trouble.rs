//! What goes wrong below, in terms of this module's user.

use std::sync::{Mutex, MutexGuard, PoisonError};

use landfall_transport::memory::SharedMemoryError;
use landfall_transport::shm::rendezvous::RendezvousError;
use landfall_transport::shm::wake::WakeError;
use landfall_transport::shm::watched::{ReportError, WatchedError};

use crate::clan::Error;

/// A thread that panicked under one of these locks left nothing half done.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
pub(super) fn memory(error: SharedMemoryError) -> Error {
    match error {
        SharedMemoryError::System { call, error } => Error::System { call, source: error },
        SharedMemoryError::TooLong(_) => Error::NoRoom("aperture of that length"),
        SharedMemoryError::OutOfBounds { offset, len, size } => {
            Error::OutOfBounds { offset, len: len as u64, size }
        }
        SharedMemoryError::Misaligned { offset, .. } => Error::Unaligned(offset),
        SharedMemoryError::NotSealable => Error::PeerLost,
        _ => Error::BadConfig("memory has at least one byte"),
    }
}

pub(super) fn watched(error: WatchedError) -> Error {
    match error {
        WatchedError::Memory(error) => memory(error),
        WatchedError::Full(_) => Error::NoRoom("armed tripwire"),
        _ => Error::BadConfig("a range has at least one byte"),
    }
}

pub(super) fn wake(error: WakeError) -> Error {
    match error {
        WakeError::Memory(error) => memory(error),
        WakeError::System { call, error } => Error::System { call, source: error },
        // Only a peer hands over something else.
        _ => Error::PeerLost,
    }
}

pub(super) fn report(error: ReportError) -> Error {
    match error {
        ReportError::Memory(error) => memory(error),
        ReportError::Wake(error) => wake(error),
        _ => Error::PeerLost,
    }
}

pub(super) fn rendezvous(error: RendezvousError) -> Error {
    match error {
        RendezvousError::System { call, error } => Error::System { call, source: error },
        RendezvousError::Nobody(_) => Error::NoRoute,
        RendezvousError::NotAdmitted(_) => Error::Forbidden,
        RendezvousError::InUse(_) => Error::BadConfig("another node has this number here"),
        RendezvousError::Full => Error::Busy,
        _ => Error::PeerLost,
    }
}
