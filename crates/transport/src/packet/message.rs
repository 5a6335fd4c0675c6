//! Message headers: what the kernel is told with a call, and what it tells.
//!
//! A header is prepared for one call, and names memory of its own and of its
//! caller: it must stay where it is until that call, by whichever system call
//! or submission, is over.

use super::address::LinkAddress;
use super::control::Control;
use super::link::Frame;
use crate::exchange::MessageHeader;

/// The header of a receive, with room for all that the kernel may say.
pub(crate) struct ReceiveHeader {
    header: MessageHeader,
    from: LinkAddress,
    control: Control,
}

impl ReceiveHeader {
    pub(crate) const fn new() -> Self {
        Self {
            header: MessageHeader::EMPTY,
            from: LinkAddress::unspecified(),
            control: Control::empty(),
        }
    }

    /// Ready to receive into these pieces.
    pub(crate) fn prepare(&mut self, pieces: &mut [libc::iovec]) -> *mut libc::msghdr {
        self.from = LinkAddress::unspecified();
        self.header.0 = libc::msghdr {
            msg_name: (&raw mut self.from.0).cast(),
            msg_namelen: LinkAddress::LEN,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            msg_control: self.control.as_mut_ptr(),
            msg_controllen: Control::LEN,
            msg_flags: 0,
        };
        &raw mut self.header.0
    }

    /// The header as it is now, for a call that takes several.
    pub(crate) fn prepared(&self) -> &MessageHeader {
        &self.header
    }

    /// What such a call made of it.
    pub(crate) fn note(&mut self, told: MessageHeader) {
        self.header = told;
    }

    /// What the kernel told about a receive of `len` bytes.
    pub(crate) fn frame(&self, len: usize) -> Frame {
        Frame {
            len,
            from: self.from,
            truncated: self.header.0.msg_flags & libc::MSG_TRUNC != 0,
            auxiliary: self.control.auxiliary(self.header.0.msg_controllen),
        }
    }
}

/// The header of a send.
pub(crate) struct SendHeader {
    header: MessageHeader,
    to: LinkAddress,
}

impl SendHeader {
    pub(crate) const fn new() -> Self {
        Self { header: MessageHeader::EMPTY, to: LinkAddress::unspecified() }
    }

    /// Ready to send these pieces there.
    pub(crate) fn prepare(
        &mut self,
        pieces: &[libc::iovec],
        to: LinkAddress,
    ) -> *const libc::msghdr {
        self.to = to;
        self.header.0 = libc::msghdr {
            msg_name: (&raw mut self.to.0).cast(),
            msg_namelen: LinkAddress::LEN,
            // The kernel only reads the list of a send.
            msg_iov: pieces.as_ptr().cast_mut(),
            msg_iovlen: pieces.len(),
            ..MessageHeader::EMPTY.0
        };
        &raw const self.header.0
    }

    /// The header as it is now, for a call that sends several.
    pub(crate) fn prepared(&self) -> &MessageHeader {
        &self.header
    }
}
