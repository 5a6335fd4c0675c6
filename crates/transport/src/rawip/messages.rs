//! Message headers of calls that move several units.
//!
//! They are made anew for each call, and name memory of their own and of their
//! caller: both stay where they are until the call is over.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr;

use landfall_placement::{Ecn, Peer};

use crate::exchange::{MAX_UNITS, MessageHeader};
use crate::inet::{Control, RawAddress};

/// One header of a call for several, and what it names.
struct Message {
    address: RawAddress,
    control: Control,
}

/// Headers for one call.
pub(super) struct Messages {
    headers: Vec<libc::mmsghdr>,
    /// Longer than any call needs, so that it never moves.
    named: Box<[Message]>,
}

// SAFETY: the pointers are made anew for each call and read only in it; between
// calls nobody follows them, and moving a header to another thread moves numbers.
unsafe impl Send for Messages {}
// SAFETY: shared headers can only be read as numbers.
unsafe impl Sync for Messages {}

/// What the kernel told about one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// All that was received of it, with what is in front of the unit.
    pub(super) len: usize,
    /// Some of it found no room.
    pub(super) truncated: bool,
    /// Who sent it, if that was asked for.
    pub(super) from: Peer,
    pub(super) ecn: Ecn,
}

impl Messages {
    pub(super) fn new() -> Self {
        let message = || Message { address: RawAddress::unspecified(), control: Control::empty() };
        Self {
            headers: Vec::with_capacity(MAX_UNITS),
            named: (0..MAX_UNITS).map(|_| message()).collect(),
        }
    }

    /// One `recvmmsg`. The lists are the pieces up to each of `ends`. Whether
    /// the kernel shall say beside each packet who sent it and how it was
    /// marked is for the caller to know. Gives the number of packets.
    pub(super) fn receive(
        &mut self,
        fd: RawFd,
        (pieces, ends): (&mut [libc::iovec], &[usize]),
        beside: bool,
    ) -> io::Result<usize> {
        self.headers.clear();
        let mut start = 0;
        for (end, named) in ends.iter().zip(&mut self.named) {
            let mut header = MessageHeader::EMPTY.0;
            if beside {
                named.address = RawAddress::unspecified();
                header.msg_name = (&raw mut named.address).cast();
                header.msg_namelen = RawAddress::LEN;
                header.msg_control = named.control.as_mut_ptr();
                header.msg_controllen = Control::LEN;
            }
            let list = &mut pieces[start..*end];
            header.msg_iov = list.as_mut_ptr();
            header.msg_iovlen = list.len();
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
            start = *end;
        }
        let count = self.headers.len() as libc::c_uint;
        let headers = self.headers.as_mut_ptr();
        // SAFETY: there are `count` headers. What they name lives through the
        // call: addresses and control buffers of `named`, scratch memory of the
        // inbox, and lent memory that is pinned until after the call.
        let came =
            unsafe { libc::recvmmsg(fd, headers, count, libc::MSG_DONTWAIT, ptr::null_mut()) };
        usize::try_from(came).map_err(|_| io::Error::last_os_error())
    }

    /// What the kernel told about a packet of the last receive.
    pub(super) fn told(&self, nth: usize) -> Told {
        let (header, named) = (&self.headers[nth], &self.named[nth]);
        let from = named.address.to_socket().map_or(Peer::Unaddressed, |at| Peer::Ip(at.ip()));
        Told {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            from,
            ecn: named.control.received(header.msg_hdr.msg_controllen).ecn,
        }
    }

    /// Begins the list of what the next call sends.
    pub(super) fn start_sending(&mut self) {
        self.headers.clear();
    }

    /// Adds one unit: to whom (nobody: the peer that the socket is connected
    /// to), and how it is marked. Gives whether there was room for it.
    pub(super) fn add(
        &mut self,
        pieces: &[libc::iovec],
        (to, ecn): (Option<IpAddr>, Ecn),
        ipv6: bool,
    ) -> bool {
        let Some(named) = self.named.get_mut(self.headers.len()) else { return false };
        let mut header = MessageHeader::EMPTY.0;
        if let Some(to) = to {
            let (address, len) = RawAddress::new(SocketAddr::new(to, 0), false);
            named.address = address;
            header.msg_name = (&raw mut named.address).cast();
            header.msg_namelen = len;
        }
        header.msg_controllen = named.control.for_send(None, ecn, ipv6);
        if header.msg_controllen > 0 {
            header.msg_control = named.control.as_mut_ptr();
        }
        // The kernel only reads the list of a send.
        header.msg_iov = pieces.as_ptr().cast_mut();
        header.msg_iovlen = pieces.len();
        self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        true
    }

    /// How many units the next call sends.
    pub(super) fn len(&self) -> usize {
        self.headers.len()
    }

    /// One `sendmmsg`. Gives how many units left; the error of the first, if none.
    ///
    /// # Safety
    /// The pieces of all units that were added live, and the memory that they
    /// name is pinned, until the call is over.
    pub(super) unsafe fn send(&mut self, fd: RawFd) -> io::Result<usize> {
        let count = self.headers.len() as libc::c_uint;
        let headers = self.headers.as_mut_ptr();
        // SAFETY: there are `count` headers; addresses and control buffers are
        // those of `named`, and the caller vouches for the pieces.
        let left = unsafe { libc::sendmmsg(fd, headers, count, libc::MSG_DONTWAIT) };
        usize::try_from(left).map_err(|_| io::Error::last_os_error())
    }
}
