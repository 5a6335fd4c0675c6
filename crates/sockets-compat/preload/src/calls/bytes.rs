//! Bytes in and out, for descriptors that are sockets and those that are not.

use std::ffi::{c_int, c_void};

use libc::{iovec, sockaddr, socklen_t};

use super::told;
use crate::kernel::{Errno, Part};
use crate::next::next;
use crate::table::{self, Guard};
use crate::transfer;

/// What the kernel, too, refuses to take in one call.
const MOST_PARTS: c_int = 1024;

fn one(base: *const c_void, len: usize) -> [Part; 1] {
    [Part { base: base.cast_mut().cast(), len }]
}

/// The vectors of the program, which are laid out as ours are.
///
/// # Safety
///
/// There are so many.
pub(super) unsafe fn parts<'a>(vectors: *const iovec, count: usize) -> &'a [Part] {
    if count == 0 || vectors.is_null() {
        return &[];
    }
    // SAFETY: as promised; both are an address and a length.
    unsafe { std::slice::from_raw_parts(vectors.cast::<Part>(), count) }
}

/// The vectors of `readv` and `writev`; the kernel, too, counts them first.
///
/// # Safety
///
/// There are so many, if that is possible at all.
unsafe fn vectors<'a>(vectors: *const iovec, count: c_int) -> Result<&'a [Part], Errno> {
    match usize::try_from(count) {
        // SAFETY: as promised.
        Ok(so_many) if count <= MOST_PARTS => Ok(unsafe { parts(vectors, so_many) }),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// # Safety
///
/// `parts` may be written.
unsafe fn take(guard: &Guard, fd: c_int, parts: &[Part], flags: c_int) -> isize {
    // SAFETY: as promised.
    told(unsafe { transfer::receive(guard, fd, parts, flags) })
}

/// # Safety
///
/// `parts` may be read.
unsafe fn give(guard: &Guard, fd: c_int, parts: &[Part], flags: c_int) -> isize {
    // SAFETY: as promised.
    told(unsafe { transfer::send(guard, fd, parts, flags) })
}

/// A function that does one thing for connections of ours, if some condition holds, and
/// what it always did for all else.
macro_rules! stands_before {
    (
        fn $name:ident($fd:ident $(, $argument:ident: $type:ty)* $(,)?);
        $guard:ident if $condition:expr => $ours:expr
    ) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($fd: c_int $(, $argument: $type)*) -> isize {
            // SAFETY: what the program gives is as libc asks for it.
            unsafe {
                match table::find($fd) {
                    Some($guard) if $condition => $ours,
                    _ => next!($name: fn(c_int $(, $type)*) -> isize)($fd $(, $argument)*),
                }
            }
        }
    };
}

stands_before! {
    fn read(fd, into: *mut c_void, len: usize);
    guard if true => take(&guard, fd, &one(into, len), 0)
}

stands_before! {
    fn __read_chk(fd, into: *mut c_void, len: usize, room: usize);
    guard if len <= room => take(&guard, fd, &one(into, len), 0)
}

stands_before! {
    fn write(fd, from: *const c_void, len: usize);
    guard if true => give(&guard, fd, &one(from, len), 0)
}

stands_before! {
    fn readv(fd, list: *const iovec, count: c_int);
    guard if true => match vectors(list, count) {
        Ok(parts) => take(&guard, fd, parts, 0),
        Err(why) => told(Err(why)),
    }
}

stands_before! {
    fn writev(fd, list: *const iovec, count: c_int);
    guard if true => match vectors(list, count) {
        Ok(parts) => give(&guard, fd, parts, 0),
        Err(why) => told(Err(why)),
    }
}

stands_before! {
    fn recv(fd, into: *mut c_void, len: usize, flags: c_int);
    guard if true => take(&guard, fd, &one(into, len), flags)
}

stands_before! {
    fn __recv_chk(fd, into: *mut c_void, len: usize, room: usize, flags: c_int);
    guard if len <= room => take(&guard, fd, &one(into, len), flags)
}

stands_before! {
    fn send(fd, from: *const c_void, len: usize, flags: c_int);
    guard if true => give(&guard, fd, &one(from, len), flags)
}

// TCP names nobody with its bytes, so neither do we.
stands_before! {
    fn recvfrom(
        fd,
        into: *mut c_void,
        len: usize,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    );
    guard if true => take(&guard, fd, &one(into, len), flags)
}

stands_before! {
    fn __recvfrom_chk(
        fd,
        into: *mut c_void,
        len: usize,
        room: usize,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    );
    guard if len <= room => take(&guard, fd, &one(into, len), flags)
}

// Who is connected needs no address, and Linux does not look at it.
stands_before! {
    fn sendto(
        fd,
        from: *const c_void,
        len: usize,
        flags: c_int,
        address: *const sockaddr,
        address_len: socklen_t,
    );
    guard if true => give(&guard, fd, &one(from, len), flags)
}
