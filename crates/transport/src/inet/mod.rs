//! What sockets of the internet family have in common, whatever protocol they
//! carry: addresses, control messages, options, what error numbers mean.

mod message;

use std::io;
use std::os::fd::RawFd;

use crate::capability::{Capabilities, Feature};

pub(crate) use message::{Control, RawAddress, Received};

/// Why nothing was sent, and so what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// The socket buffer or the device's queue is full: later there will be room.
    NoRoom,
    /// The device on the route, or this kernel, cannot cut a batch: send one by one.
    CannotSegment,
    /// These units are lost, as if the network had lost them.
    Lost,
    /// The socket is broken for good.
    Broken,
}

impl SendFault {
    /// What the error of a call that was to send `units` at once means.
    pub(crate) fn of(error: &io::Error, units: usize) -> Self {
        let Some(number) = error.raw_os_error() else { return Self::Broken };
        match number {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Self::NoRoom,
            // EIO: the device cannot sum or cut. EINVAL, ENOPROTOOPT: the kernel.
            libc::EIO | libc::EINVAL | libc::ENOPROTOOPT if units > 1 => Self::CannotSegment,
            number if is_news(number) || is_refusal(number) => Self::Lost,
            _ => Self::Broken,
        }
    }
}

/// There was nothing to receive, or only news of something sent earlier.
pub(crate) fn nothing_came(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error().is_some_and(is_news)
}

/// The network reports what became of something sent earlier, or of this: lost.
const fn is_news(number: i32) -> bool {
    matches!(
        number,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EPROTO
            | libc::ENOPROTOOPT
            // The path's MTU has become smaller.
            | libc::EMSGSIZE
    )
}

/// This unit cannot be sent: too long, forbidden, or to an impossible address.
const fn is_refusal(number: i32) -> bool {
    matches!(
        number,
        libc::EACCES
            | libc::EPERM
            | libc::EINVAL
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::EDESTADDRREQ
            | libc::EIO
    )
}

/// As large as allowed: with CAP_NET_ADMIN as asked, else up to the system's limit.
pub(crate) fn grow_buffers(fd: RawFd, size: usize) {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(fd, libc::SOL_SOCKET, force, size).is_err() {
            // Smaller buffers cost speed, not correctness.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, size);
        }
    }
}

/// Asks for the congestion marks of what arrives, by these versions of IP.
pub(crate) fn enable_ecn(fd: RawFd, (ipv4, ipv6): (bool, bool), found: &mut Capabilities) {
    let options = [
        (ipv4, libc::IPPROTO_IP, libc::IP_RECVTOS),
        (ipv6, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    ];
    let mut wanted = options.into_iter().filter(|(wanted, ..)| *wanted);
    match wanted.try_for_each(|(_, level, name)| set_option(fd, level, name, 1)) {
        Ok(()) => found.add(Feature::Ecn),
        Err(error) => {
            found.lack(Feature::Ecn, format!("the kernel does not report the IP header: {error}"));
        }
    }
}

pub(crate) fn set_option(fd: RawFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is an int that lives through the call, `len` is its size.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(number: i32, units: usize) -> SendFault {
        SendFault::of(&io::Error::from_raw_os_error(number), units)
    }

    #[test]
    fn a_batch_that_cannot_be_cut_is_not_lost() {
        assert_eq!(fault(libc::EIO, 2), SendFault::CannotSegment);
        assert_eq!(fault(libc::EIO, 1), SendFault::Lost);
        assert_eq!(fault(libc::EINVAL, 64), SendFault::CannotSegment);
    }

    #[test]
    fn a_full_queue_is_waited_for_and_a_bad_descriptor_is_the_end() {
        assert_eq!(fault(libc::ENOBUFS, 9), SendFault::NoRoom);
        assert_eq!(fault(libc::EBADF, 1), SendFault::Broken);
        assert_eq!(SendFault::of(&io::Error::other("strange"), 1), SendFault::Broken);
    }

    #[test]
    fn a_report_about_an_earlier_unit_ends_no_receiving() {
        let error = io::Error::from_raw_os_error;
        assert!(nothing_came(&error(libc::EAGAIN)) && nothing_came(&error(libc::ECONNREFUSED)));
        assert!(nothing_came(&error(libc::EMSGSIZE)), "a router has a smaller MTU");
        assert!(!nothing_came(&error(libc::EBADF)));
    }
}
