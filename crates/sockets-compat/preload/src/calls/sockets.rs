//! What is asked of a socket by its kind: the paper's, which the kernel has not.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use super::fail;
use crate::kernel::{Errno, Outcome};
use crate::messages::names::{given_name, tell_name};
use crate::messages::{self, Socket};
use crate::next::next;
use crate::table;

/// Asks a socket of messages, if it is one.
fn of_messages<R>(fd: c_int, ask: impl FnOnce(&Socket) -> R) -> Option<R> {
    table::find(fd)?.messages().map(ask)
}

/// Success, or why not, as C has it.
fn done(result: Result<(), Errno>) -> c_int {
    super::told_int(result.map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !messages::is_meant(domain, kind, protocol) {
        // SAFETY: numbers.
        return unsafe { next!(socket: fn(c_int, c_int, c_int) -> c_int)(domain, kind, protocol) };
    }
    let made: Outcome = messages::make(domain, kind).map(|fd| fd as usize);
    super::told_int(made)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: what the program gave, here and below.
    let bound = of_messages(fd, |socket| unsafe { socket.bind(given_name(address, len)?) });
    match bound {
        Some(bound) => done(bound),
        // SAFETY: as above.
        None => unsafe {
            next!(bind: fn(c_int, *const sockaddr, socklen_t) -> c_int)(fd, address, len)
        },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match of_messages(fd, Socket::listen) {
        Some(listens) => done(listens),
        // SAFETY: numbers.
        None => unsafe { next!(listen: fn(c_int, c_int) -> c_int)(fd, backlog) },
    }
}

/// `connect` on a socket of messages.
///
/// # Safety
///
/// What the program gave.
pub(super) unsafe fn connected(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> Option<c_int> {
    // SAFETY: as promised.
    of_messages(fd, |socket| unsafe { socket.connect(fd, given_name(address, len)?) }).map(done)
}

/// `accept` on a socket of messages.
///
/// # Safety
///
/// What the program gave.
pub(super) unsafe fn accepted(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let accepted = of_messages(fd, |socket| socket.accept(fd, flags))?;
    Some(match accepted {
        Ok((fd, from)) => {
            // SAFETY: as promised.
            unsafe { tell_name(from, address, len) };
            fd
        }
        Err(Errno(why)) => fail(why) as c_int,
    })
}

/// # Safety
///
/// What the program gave.
unsafe fn named(
    fd: c_int,
    of_peer: bool,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Option<c_int> {
    let name = of_messages(fd, |socket| socket.name(of_peer))?;
    // SAFETY: as promised.
    Some(done(name.map(|name| unsafe { tell_name(name, address, len) })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: what the program gave.
    unsafe {
        named(fd, false, address, len).unwrap_or_else(|| {
            next!(getsockname: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int)(fd, address, len)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: what the program gave.
    unsafe {
        named(fd, true, address, len).unwrap_or_else(|| {
            next!(getpeername: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int)(fd, address, len)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let ours = if value.is_null() || len.is_null() {
        None
    } else {
        let of_stream = || crate::table::find(fd)?.shared()?.manner(level, name);
        of_messages(fd, |socket| socket.option(level, name)).flatten().or_else(of_stream)
    };
    let Some(number) = ours else {
        // SAFETY: what the program gave.
        return unsafe {
            next!(getsockopt: fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int)(
                fd, level, name, value, len,
            )
        };
    };
    // SAFETY: as above; no more is written than there is room for.
    unsafe {
        let room = size_of::<c_int>().min(*len as usize);
        std::ptr::copy_nonoverlapping((&raw const number).cast::<u8>(), value.cast(), room);
        *len = room as socklen_t;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let is_number = !value.is_null() && len as usize >= size_of::<c_int>();
    let is_limit = matches!(name, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE);
    if level == libc::SOL_SOCKET && is_number && is_limit {
        // SAFETY: there are so many bytes.
        let number = unsafe { value.cast::<c_int>().read_unaligned() };
        if let Some(set) = of_messages(fd, |socket| socket.set_limit(fd, number)) {
            return done(set);
        }
    }
    if level == libc::IPPROTO_TCP
        && is_number
        && let Some(guard) = crate::table::find(fd)
        && let Some(shared) = guard.shared()
        // SAFETY: there are so many bytes.
        && shared.set_manner(level, name, unsafe { value.cast::<c_int>().read_unaligned() })
    {
        return 0;
    }
    let is_room = matches!(name, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE);
    if level == libc::SOL_SOCKET && is_room && of_messages(fd, |_| ()).is_some() {
        // What may be under way is bounded by the service.
        return 0;
    }
    // SAFETY: what the program gave.
    unsafe {
        next!(setsockopt: fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int)(
            fd, level, name, value, len,
        )
    }
}
