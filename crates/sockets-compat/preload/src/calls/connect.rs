//! How connections begin.

use std::ffi::c_int;

use libc::{sockaddr, socklen_t};

use super::sockets;
use crate::connection::Connection;
use crate::kernel::{self, Errno};
use crate::next::next;
use crate::registry::Name;
use crate::segment::Side;
use crate::{log, process, rules, table};

/// Whether it is a TCP socket.
fn is_tcp(fd: c_int) -> bool {
    let option = |name| kernel::option(fd, libc::SOL_SOCKET, name);
    option(libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
        && option(libc::SO_TYPE) == Ok(libc::SOCK_STREAM)
        && matches!(option(libc::SO_DOMAIN), Ok(libc::AF_INET | libc::AF_INET6))
}

/// What the connection is called; the kernel knows no other end while it is being made.
///
/// # Safety
///
/// `address` has so many bytes.
unsafe fn name(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<Name> {
    // SAFETY: as promised.
    Name::of(fd, Side::Connector).or_else(|| unsafe { Name::called(fd, address, len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: what the program gave.
    if let Some(done) = unsafe { sockets::connected(fd, address, len) } {
        return done;
    }
    // SAFETY: what the program gave.
    let result =
        unsafe { next!(connect: fn(c_int, *const sockaddr, socklen_t) -> c_int)(fd, address, len) };
    let why = Errno::last();
    if (result == 0 || why == Errno(libc::EINPROGRESS))
        && rules::are_on()
        && process::owns_the_tables()
        && table::find(fd).is_none()
        && is_tcp(fd)
        // SAFETY: what the program gave, and the kernel has taken.
        && let Some(name) = unsafe { name(fd, address, len) }
    {
        // Who cannot offer memory has a TCP connection, as he asked for.
        let offer = |way| Connection::offer(fd, name, way);
        if let Err(verdict) = rules::allow(&name).and_then(offer) {
            log::tell(Side::Connector, &name, verdict);
        }
    }
    why.tell();
    result
}

fn after_accept(fd: c_int) -> c_int {
    let why = Errno::last();
    if fd >= 0 && rules::are_on() && process::owns_the_tables() {
        table::remove(fd);
        if is_tcp(fd)
            && let Some(name) = Name::of(fd, Side::Acceptor)
        {
            match rules::allow(&name) {
                Ok(way) => Connection::accepted(fd, name, way),
                Err(verdict) => log::tell(Side::Acceptor, &name, verdict),
            }
        }
    }
    why.tell();
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: what the program gave.
    if let Some(accepted) = unsafe { sockets::accepted(fd, address, len, 0) } {
        return accepted;
    }
    // SAFETY: what the program gave.
    after_accept(unsafe {
        next!(accept: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int)(fd, address, len)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: what the program gave.
    if let Some(accepted) = unsafe { sockets::accepted(fd, address, len, flags) } {
        return accepted;
    }
    // SAFETY: what the program gave.
    after_accept(unsafe {
        next!(accept4: fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int)(
            fd, address, len, flags,
        )
    })
}
