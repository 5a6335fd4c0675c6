//! Bytes in and out, for descriptors that are sockets and those that are not.
//!
//! From a file into a socket.
//!
//! `splice`: between a pipe and a socket.
//!
//! Bytes that lie in a ring cannot be handed from queue to queue, as the kernel does it: they
//! are copied. Nothing is taken out of either side before there is a place for it in the
//! other, so that nothing is lost where a call ends early. As with the kernel, a call waits for
//! a socket as that says (`O_NONBLOCK`), and for a pipe that is read as the call says.

use std::ffi::{c_int, c_void};

use libc::{POLLIN, POLLOUT, SPLICE_F_NONBLOCK, c_uint, iovec, off64_t, sockaddr, socklen_t};

use super::told;
use crate::connection::Sending;
use crate::kernel::{self, Errno, Outcome, Part};
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
/// There are this many.
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
/// There are this many, if that is possible at all.
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

/// What is carried at once.
const PIECE: usize = 64 * 1024;

/// Reads from a file and sends it, until `count` bytes went or no more will go.
fn carry(
    guard: &Guard,
    socket: c_int,
    file: c_int,
    offset: Option<&mut off64_t>,
    count: usize,
) -> Outcome {
    let mut piece = vec![0_u8; count.min(PIECE)];
    let mut done = 0;
    let mut at = offset.as_ref().map(|offset| **offset);
    let mut result = Ok(());
    while done < count {
        let wanted = piece.len().min(count - done);
        let read = match kernel::read_at(file, &mut piece[..wanted], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(why) => {
                result = Err(why);
                break;
            }
        };
        let part = Part { base: piece.as_mut_ptr(), len: read };
        // SAFETY: the piece is ours.
        let sent = unsafe { transfer::send(guard, socket, &[part], 0) };
        let went = sent.unwrap_or(0);
        done += went;
        if let Some(at) = &mut at {
            *at += went as off64_t;
        } else if went < read {
            // The file's own position has gone too far.
            let _ = kernel::step_back(file, read - went);
        }
        if let Err(why) = sent {
            result = Err(why);
            break;
        }
        if went < read {
            break;
        }
    }
    if let (Some(offset), Some(at)) = (offset, at) {
        *offset = at;
    }
    if done > 0 { Ok(done) } else { result.map(|()| 0) }
}

/// `None` where it is not our business.
///
/// # Safety
///
/// `offset` is null or the program's.
unsafe fn from_file(out: c_int, from: c_int, offset: *mut off64_t, count: usize) -> Option<isize> {
    let guard = table::find(out)?;
    if guard.shared_to_send(out).is_none() && guard.messages().is_none() {
        let by_kernel = || kernel::send_file(out, from, offset, count);
        if let Some(sent) = guard.early_send(count, by_kernel) {
            return Some(super::told(sent));
        }
    }
    // SAFETY: as promised.
    Some(super::told(carry(&guard, out, from, unsafe { offset.as_mut() }, count)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: usize,
) -> isize {
    // SAFETY: what the program gave; `off_t` has 64 bits here.
    unsafe { from_file(out, from, offset, count) }.unwrap_or_else(|| unsafe {
        next!(sendfile: fn(c_int, c_int, *mut off64_t, usize) -> isize)(out, from, offset, count)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: usize,
) -> isize {
    // SAFETY: what the program gave.
    unsafe { from_file(out, from, offset, count) }.unwrap_or_else(|| unsafe {
        next!(sendfile64: fn(c_int, c_int, *mut off64_t, usize) -> isize)(out, from, offset, count)
    })
}

/// A pipe that has room at all has room for so much.
const ROOM_OF_A_PIPE: usize = libc::PIPE_BUF;

/// From a pipe into a socket.
fn send_from_pipe(guard: &Guard, pipe: c_int, socket: c_int, len: usize, waits: bool) -> Outcome {
    let Some(shared) = guard.shared().filter(|shared| shared.is_sending_switched()) else {
        return send_by_tcp(guard, pipe, socket, len, waits);
    };
    let there = wait_for_pipe(pipe, len, waits)?;
    let mut wanted = there.min(PIECE);
    if kernel::is_nonblocking(socket) {
        let room = shared.outgoing.room()?;
        if room == 0 {
            // Of an end, too, a send knows what is to be said.
            // SAFETY: no bytes.
            return unsafe { transfer::send(guard, socket, &[], 0) }.and(Err(Errno(libc::EAGAIN)));
        }
        wanted = wanted.min(room as usize);
    }
    // Nothing at the end of the pipe.
    let mut piece = vec![0_u8; wanted];
    let read = kernel::read_at(pipe, &mut piece, None)?;
    let mut sent = 0;
    while sent < read {
        let part = Part { base: piece[sent..].as_mut_ptr(), len: read - sent };
        // SAFETY: the piece is ours.
        match unsafe { transfer::send(guard, socket, &[part], 0) } {
            Ok(went) => sent += went,
            // Another thread has filled the room: these bytes are out of the pipe.
            Err(Errno(libc::EAGAIN)) => _ = kernel::poll_one(socket, POLLOUT, 1)?,
            Err(why) => return if sent > 0 { Ok(sent) } else { Err(why) },
        }
    }
    Ok(sent)
}

/// The same while all goes by TCP.
fn send_by_tcp(guard: &Guard, pipe: c_int, socket: c_int, len: usize, waits: bool) -> Outcome {
    let flags = if waits { 0 } else { SPLICE_F_NONBLOCK };
    let by_kernel = || kernel::splice(pipe, socket, len, flags);
    match guard.sends(socket, len, by_kernel) {
        Sending::ByTcp(sent) => sent,
        Sending::ByMemory(_) => send_from_pipe(guard, pipe, socket, len, waits),
    }
}

/// How much of what is wanted a pipe has, once it has something; zero at its end.
fn wait_for_pipe(pipe: c_int, len: usize, waits: bool) -> Result<usize, Errno> {
    loop {
        let there = kernel::queued(pipe, libc::FIONREAD)? as usize;
        if there > 0 {
            return Ok(there.min(len));
        }
        if kernel::poll_one(pipe, POLLIN, 0)? & (libc::POLLHUP | libc::POLLERR) != 0 {
            return Ok(0);
        }
        if !waits {
            return Err(Errno(libc::EAGAIN));
        }
        // The wrong end of a pipe is refused, and never becomes ready.
        kernel::read_at(pipe, &mut [], None)?;
        kernel::poll_one(pipe, POLLIN, -1)?;
    }
}

/// From a socket into a pipe.
fn receive_into_pipe(
    guard: &Guard,
    socket: c_int,
    pipe: c_int,
    len: usize,
    waits: bool,
) -> Outcome {
    let flags = if waits { 0 } else { SPLICE_F_NONBLOCK };
    if guard.shared().is_none() {
        // While it waits in the kernel the way does not change.
        let by_kernel = || kernel::splice(socket, pipe, len, flags);
        if let Some(got) = guard.early_receive(socket, by_kernel) {
            return got;
        }
    }
    let mut piece = vec![0_u8; len.min(PIECE)];
    let part = Part { base: piece.as_mut_ptr(), len: piece.len() };
    // SAFETY: the piece is ours.
    let there = unsafe { transfer::receive(guard, socket, &[part], libc::MSG_PEEK) }?;
    let put = fill_pipe(pipe, &piece[..there], waits)?;
    let part = Part { base: piece.as_mut_ptr(), len: put };
    // SAFETY: as above. It takes what it has looked at.
    unsafe { transfer::receive(guard, socket, &[part], libc::MSG_WAITALL) }?;
    Ok(put)
}

/// Puts in what there is room for, and waits for room for the first of it.
fn fill_pipe(pipe: c_int, bytes: &[u8], waits: bool) -> Outcome {
    let mut put = 0;
    for piece in bytes.chunks(ROOM_OF_A_PIPE) {
        if kernel::poll_one(pipe, POLLOUT, 0)? & POLLOUT == 0 {
            if put > 0 {
                break;
            }
            if !waits || kernel::is_nonblocking(pipe) {
                return Err(Errno(libc::EAGAIN));
            }
            kernel::write(pipe, &[])?;
            kernel::poll_one(pipe, POLLOUT, -1)?;
        }
        match kernel::write(pipe, piece) {
            Ok(written) => put += written,
            Err(_) if put > 0 => break,
            Err(why) => return Err(why),
        }
    }
    Ok(put)
}

/// What is not between a pipe and a socket of ours the kernel refuses, with its own words.
fn between(from: c_int, to: c_int, len: usize, flags: c_uint) -> Option<Outcome> {
    let waits = flags & SPLICE_F_NONBLOCK == 0;
    match (table::find(from), table::find(to)) {
        (None, None) => None,
        _ if len == 0 => Some(Ok(0)),
        (None, Some(guard)) if guard.messages().is_none() && kernel::is_pipe(from) => {
            Some(send_from_pipe(&guard, from, to, len, waits))
        }
        (Some(guard), None) if guard.messages().is_none() && kernel::is_pipe(to) => {
            Some(receive_into_pipe(&guard, from, to, len, waits))
        }
        _ => Some(Err(Errno(libc::EINVAL))),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: usize,
    flags: c_uint,
) -> isize {
    // Neither a pipe nor a socket has a place to read from: that, too, the kernel says.
    if from_offset.is_null()
        && to_offset.is_null()
        && let Some(result) = between(from, to, len, flags)
    {
        return super::told(result);
    }
    // SAFETY: what the program gave.
    unsafe {
        next!(splice: fn(c_int, *mut off64_t, c_int, *mut off64_t, usize, c_uint) -> isize)(
            from,
            from_offset,
            to,
            to_offset,
            len,
            flags,
        )
    }
}
