//! [`Holder`]: a socket of messages within a record that is used again and again.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::Socket;

/// Holds one, or none.
#[derive(Debug)]
pub(crate) struct Holder(AtomicPtr<Socket>);

impl Holder {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Into a holder that has none, before anybody looks at it.
    pub(crate) fn put(&self, socket: Box<Socket>) {
        self.0.store(Box::into_raw(socket), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<&Socket> {
        // SAFETY: `put` has stored it, and who clears it promises that nobody looks.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Ends what it holds.
    ///
    /// # Safety
    ///
    /// Nobody has it, and nobody will ask for it before there is another.
    pub(crate) unsafe fn clear(&self) {
        let socket = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !socket.is_null() {
            // SAFETY: `put` made it of a box, and it is asked for no more.
            drop(unsafe { Box::from_raw(socket) });
        }
    }
}
