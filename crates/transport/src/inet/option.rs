//! Options of a socket.

use std::io;
use std::os::fd::RawFd;

use crate::capability::{Capabilities, Feature};

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
