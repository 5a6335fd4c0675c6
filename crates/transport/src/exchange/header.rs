//! The header of one message call, as all socket drivers use it.

use std::ptr;

/// A `msghdr` that is filled in for one call and names memory of its owner.
#[derive(Debug)]
pub(crate) struct MessageHeader(pub(crate) libc::msghdr);

// SAFETY: the pointers are made anew for each call and read only in it; between
// calls nobody follows them, and moving a header to another thread moves numbers.
unsafe impl Send for MessageHeader {}
// SAFETY: a shared header can only be read as numbers.
unsafe impl Sync for MessageHeader {}

impl MessageHeader {
    /// Names nothing.
    pub(crate) const EMPTY: Self = Self(libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: ptr::null_mut(),
        msg_iovlen: 0,
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    });
}
