//! What is asked of a socket by its kind: the paper's, which the kernel has not.
//!
//! How connections begin.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use super::fail;
use crate::connection::Connection;
use crate::kernel::{self, Errno, Outcome};
use crate::log::Verdict;
use crate::messages::packets::{given_name, write_name};
use crate::messages::{self, Socket};
use crate::next::next;
use crate::registry::{Name, Place};
use crate::segment::Role;
use crate::{known_tcp, log, process, rules, status, table};

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
        let fd = unsafe { next!(socket: fn(c_int, c_int, c_int) -> c_int)(domain, kind, protocol) };
        if fd >= 0 && process::owns_the_tables() {
            known_tcp::was_made(fd, domain, kind, protocol);
        }
        return fd;
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
            unsafe { write_name(from, address, len) };
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
    Some(done(name.map(|name| unsafe { write_name(name, address, len) })))
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
        // SAFETY: there are that many bytes.
        let number = unsafe { value.cast::<c_int>().read_unaligned() };
        if let Some(set) = of_messages(fd, |socket| socket.set_limit(fd, number)) {
            return done(set);
        }
    }
    if level == libc::IPPROTO_TCP
        && is_number
        && let Some(guard) = crate::table::find(fd)
        && let Some(shared) = guard.shared()
        // SAFETY: there are that many bytes.
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

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: what the program gave.
    if let Some(done) = unsafe { connected(fd, address, len) } {
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
        && known_tcp::is_one(fd)
        // SAFETY: what the program gave, and the kernel has taken.
        && let Some(name) = unsafe { Name::called(fd, address, len) }
    {
        // Who cannot offer memory has a TCP connection, as he asked for.
        let called = |transport| Connection::called(fd, name, transport);
        if let Err(verdict) = rules::allow(&name).and_then(called) {
            stays_tcp(fd, Role::Connector, &name, verdict);
        }
    }
    why.tell();
    result
}

/// A connection that is left to the kernel from its beginning.
fn stays_tcp(fd: c_int, role: Role, name: &Name, verdict: Verdict) {
    status::left_to_tcp(fd, role, name, verdict);
    log::report(role, name, verdict);
}

/// Accepts with the kernel, which tells of the caller, too: so it need not be asked for it.
///
/// # Safety
///
/// `address` and `len` are what the program gave.
unsafe fn accepts(
    listener: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    accept: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int,
) -> c_int {
    // SAFETY: an address of zeros is one without a family.
    let mut caller: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut caller_len = size_of_val(&caller) as socklen_t;
    // Where the program wants to know, it has to be the kernel that judges its pointers.
    let is_wanted = !address.is_null();
    let fd = if is_wanted {
        accept(address, len)
    } else {
        accept((&raw mut caller).cast(), &raw mut caller_len)
    };
    let why = Errno::last();
    if fd >= 0 && rules::are_on() && process::owns_the_tables() {
        table::remove(fd);
        let caller = if is_wanted { None } else { Place::of(&caller) };
        let name = || {
            let caller = caller.or_else(|| Place::of(&kernel::name(fd, true).ok()?))?;
            Some(Name::new(caller, Place::of(&kernel::name(fd, false).ok()?)?))
        };
        if known_tcp::is_one(listener)
            && let Some(name) = name()
        {
            match rules::allow(&name) {
                Ok(transport) => Connection::accepted(fd, name, transport),
                Err(verdict) => stays_tcp(fd, Role::Acceptor, &name, verdict),
            }
        }
    }
    why.tell();
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: what the program gave.
    if let Some(accepted) = unsafe { accepted(fd, address, len, 0) } {
        return accepted;
    }
    // SAFETY: what the program gave, or a place of ours.
    unsafe {
        accepts(fd, address, len, |address, len| {
            next!(accept: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int)(fd, address, len)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: what the program gave.
    if let Some(accepted) = unsafe { accepted(fd, address, len, flags) } {
        return accepted;
    }
    // SAFETY: what the program gave, or a place of ours.
    unsafe {
        accepts(fd, address, len, |address, len| {
            next!(accept4: fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int)(
                fd, address, len, flags,
            )
        })
    }
}
