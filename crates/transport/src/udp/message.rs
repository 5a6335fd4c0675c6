//! Message headers: what the kernel is told with a call, and what it tells.
//!
//! A header is prepared for one call, and names memory of its own and of its
//! caller: it must stay where it is until that call, by whichever system call
//! or submission, is over.

use std::ptr;

use landfall_placement::{Ecn, Peer};

use crate::exchange::MessageHeader;
use crate::inet::{Control, RawAddress, Received};

/// The header of a receive, with room for all that the kernel may say.
#[derive(Debug)]
pub(crate) struct ReceiveHeader {
    header: MessageHeader,
    address: RawAddress,
    control: Control,
}

/// What the kernel told about one receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) len: usize,
    pub(crate) from: Peer,
    /// Some of it found no room.
    pub(crate) truncated: bool,
    pub(crate) control: Received,
}

impl ReceiveHeader {
    pub(crate) const fn new() -> Self {
        Self {
            header: MessageHeader::EMPTY,
            address: RawAddress::unspecified(),
            control: Control::empty(),
        }
    }

    /// Ready to receive into these pieces.
    pub(crate) fn prepare(&mut self, pieces: &mut [libc::iovec]) -> *mut libc::msghdr {
        self.address = RawAddress::unspecified();
        self.header.0 = libc::msghdr {
            msg_name: (&raw mut self.address).cast(),
            msg_namelen: RawAddress::LEN,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            msg_control: self.control.as_mut_ptr(),
            msg_controllen: Control::LEN,
            msg_flags: 0,
        };
        &raw mut self.header.0
    }

    /// What the kernel told about a receive of `len` bytes.
    pub(crate) fn message(&self, len: usize) -> Message {
        Message {
            len,
            from: self.address.to_socket().map_or(Peer::Unaddressed, Peer::Socket),
            truncated: self.header.0.msg_flags & libc::MSG_TRUNC != 0,
            control: self.control.received(self.header.0.msg_controllen),
        }
    }
}

/// The header of a send.
#[derive(Debug)]
pub(crate) struct SendHeader {
    header: MessageHeader,
    address: RawAddress,
    control: Control,
}

/// How and to whom one call sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Nobody: to the peer that the socket is connected to.
    pub(crate) to: Option<std::net::SocketAddr>,
    /// The length of each unit but the last, if there are several.
    pub(crate) unit_len: Option<u16>,
    pub(crate) ecn: Ecn,
    /// The socket is of family IPv6, whatever the address is.
    pub(crate) ipv6: bool,
}

impl SendHeader {
    pub(crate) const fn new() -> Self {
        Self {
            header: MessageHeader::EMPTY,
            address: RawAddress::unspecified(),
            control: Control::empty(),
        }
    }

    /// Ready to send these pieces.
    pub(crate) fn prepare(
        &mut self,
        pieces: &mut [libc::iovec],
        sending: &Sending,
    ) -> *const libc::msghdr {
        let mut name = (ptr::null_mut(), 0);
        if let Some(to) = sending.to {
            let (address, len) = RawAddress::new(to, sending.ipv6);
            self.address = address;
            name = ((&raw mut self.address).cast(), len);
        }
        let control_len = self.control.for_send(sending.unit_len, sending.ecn, sending.ipv6);
        self.header.0 = libc::msghdr {
            msg_name: name.0,
            msg_namelen: name.1,
            msg_iov: pieces.as_mut_ptr(),
            msg_iovlen: pieces.len(),
            msg_control: if control_len > 0 { self.control.as_mut_ptr() } else { ptr::null_mut() },
            msg_controllen: control_len,
            msg_flags: 0,
        };
        &raw const self.header.0
    }
}
