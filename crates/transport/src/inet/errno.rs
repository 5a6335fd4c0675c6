//! What an error number of an internet socket means.

use std::io;

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
