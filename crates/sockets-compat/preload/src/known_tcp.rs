//! Descriptors of which it is known that they are sockets of TCP.
//!
//! The kernel says so (`SO_PROTOCOL`), but who makes a connection for one request does not want
//! it asked for each. A program that closes a descriptor past this library and gets another of its
//! number past it, too, is told something wrong here; so who makes memory of a connection
//! asks the kernel.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel;

/// Of descriptors from here on the kernel is asked each time.
const MOST: usize = 1 << 16;
const BITS: usize = u64::BITS as usize;

static KNOWN: [AtomicU64; MOST / BITS] = [const { AtomicU64::new(0) }; MOST / BITS];

/// Where it is remembered of a descriptor.
fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((KNOWN.get(fd / BITS)?, 1 << (fd % BITS)))
}

/// A socket was made.
pub(crate) fn was_made(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let kind = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if is_tcp { remember(fd) } else { forget(fd) }
}

fn remember(fd: c_int) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// The descriptor is closed, or becomes another.
pub(crate) fn forget(fd: c_int) {
    if let Some((word, bit)) = place(fd)
        && word.load(Ordering::Relaxed) & bit != 0
    {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The same of a range; `last` belongs to it.
pub(crate) fn forget_between(first: c_int, last: c_int) {
    let (first, last) = (first.max(0) as usize, last.clamp(0, MOST as c_int - 1) as usize);
    for (number, word) in KNOWN.iter().enumerate().take(last / BITS + 1).skip(first / BITS) {
        let begin = number * BITS;
        let skipped = first.saturating_sub(begin);
        let kept_above = (begin + BITS - 1).saturating_sub(last);
        let gone = (u64::MAX >> kept_above) & (u64::MAX << skipped);
        word.fetch_and(!gone, Ordering::Relaxed);
    }
}

/// Whether it is one, as far as is known; the kernel is asked once.
pub(crate) fn is_one(fd: c_int) -> bool {
    if place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0) {
        return true;
    }
    let is_one = kernel::is_tcp(fd);
    if is_one {
        remember(fd);
    }
    is_one
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_kernel_is_asked_about_what_is_not_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(is_one(listener.as_raw_fd()));
        assert!(!is_one(datagrams.as_raw_fd()));
        assert!(!is_one(-1) && !is_one(MOST as c_int));
        forget(-1);
        forget(MOST as c_int);
    }

    #[test]
    fn only_streams_of_the_internet_are_remembered_as_they_are_made() {
        // No descriptor of these tests is so large, so only what is remembered makes it one.
        let fd = MOST as c_int - 1;
        let (stream, any) = (libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
        for (domain, kind, protocol, is_tcp) in [
            (libc::AF_INET, stream, any, true),
            (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP, true),
            (libc::AF_INET, libc::SOCK_DGRAM, any, false),
            (libc::AF_INET, stream, libc::IPPROTO_MPTCP, false),
            (libc::AF_UNIX, stream, any, false),
        ] {
            was_made(fd, libc::AF_INET, stream, any);
            was_made(fd, domain, kind, protocol);
            assert_eq!(is_one(fd), is_tcp, "{domain} {kind} {protocol}");
        }
        was_made(fd, libc::AF_INET, stream, any);
        forget(fd);
        assert!(!is_one(fd));
    }

    #[test]
    fn a_range_is_forgotten_and_no_more() {
        // Of descriptors that no test has.
        let known = [40_000, 40_001, 40_063, 40_064, 40_200, 65_535];
        let ranges =
            [(-5, 10), (40_001, 40_001), (40_063, 40_064), (40_150, 40_199), (40_150, c_int::MAX)];
        for (first, last) in ranges {
            for fd in known {
                remember(fd);
            }
            forget_between(first, last);
            for fd in known {
                assert_eq!(is_one(fd), fd < first || fd > last, "{fd} of {first} to {last}");
            }
        }
    }
}
