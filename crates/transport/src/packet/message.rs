//! Message headers: what the kernel is told with a call, and what it tells.
//!
//! A header is prepared for one call, and names memory of its own and of its
//! caller: it must stay where it is until that call, by whichever system call
//! or submission, is over.

use std::ptr;

use super::address::LinkAddress;
use super::control::Control;
use super::link::Frame;

/// The header of a receive, with room for all that the kernel may say.
pub(crate) struct ReceiveHeader {
    header: libc::msghdr,
    from: LinkAddress,
    control: Control,
}

impl ReceiveHeader {
    pub(crate) const fn new() -> Self {
        Self { header: NO_HEADER, from: LinkAddress::unspecified(), control: Control::empty() }
    }

    /// Ready to receive into these pieces.
    pub(crate) fn prepare(&mut self, pieces: &mut [libc::iovec]) -> *mut libc::msghdr {
        self.from = LinkAddress::unspecified();
        self.header = libc::msghdr {
            msg_name: (&raw mut self.from.0).cast(),
            msg_namelen: LinkAddress::LEN,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            msg_control: self.control.as_mut_ptr(),
            msg_controllen: Control::LEN,
            msg_flags: 0,
        };
        &raw mut self.header
    }

    /// What the kernel told about a receive of `len` bytes.
    pub(crate) fn frame(&self, len: usize) -> Frame {
        Frame {
            len,
            from: self.from,
            truncated: self.header.msg_flags & libc::MSG_TRUNC != 0,
            auxiliary: self.control.auxiliary(self.header.msg_controllen),
        }
    }
}

/// The header of a send.
pub(crate) struct SendHeader {
    header: libc::msghdr,
    to: LinkAddress,
}

impl SendHeader {
    pub(crate) const fn new() -> Self {
        Self { header: NO_HEADER, to: LinkAddress::unspecified() }
    }

    /// Ready to send these pieces there.
    pub(crate) fn prepare(
        &mut self,
        pieces: &mut [libc::iovec],
        to: LinkAddress,
    ) -> *const libc::msghdr {
        self.to = to;
        self.header = libc::msghdr {
            msg_name: (&raw mut self.to.0).cast(),
            msg_namelen: LinkAddress::LEN,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            ..NO_HEADER
        };
        &raw const self.header
    }
}

// SAFETY: the pointers are made anew for each call and read only in it; between
// calls nobody follows them, and moving a header to another thread moves numbers.
unsafe impl Send for ReceiveHeader {}
// SAFETY: a shared header can only be read as numbers.
unsafe impl Sync for ReceiveHeader {}
// SAFETY: as for the header of a receive.
unsafe impl Send for SendHeader {}
// SAFETY: as for the header of a receive.
unsafe impl Sync for SendHeader {}

/// Names nothing.
const NO_HEADER: libc::msghdr = libc::msghdr {
    msg_name: ptr::null_mut(),
    msg_namelen: 0,
    msg_iov: ptr::null_mut(),
    msg_iovlen: 0,
    msg_control: ptr::null_mut(),
    msg_controllen: 0,
    msg_flags: 0,
};
