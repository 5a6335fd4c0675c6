//! `splice`: between a pipe and a socket.
//!
//! Bytes that lie in a ring cannot be handed from queue to queue, as the kernel does it: they
//! are copied. Nothing is taken out of either side before there is a place for it in the
//! other, so that nothing is lost where a call ends early. As with the kernel, a call waits for
//! a socket as that says (`O_NONBLOCK`), and for a pipe that is read as the call says.

use std::ffi::c_int;

use libc::{POLLIN, POLLOUT, SPLICE_F_NONBLOCK, c_uint, off64_t};

use crate::connection::Sending;
use crate::kernel::{self, Errno, Outcome, Part};
use crate::next::next;
use crate::table::{self, Guard};
use crate::transfer;

/// What is carried at once.
const PIECE: usize = 64 * 1024;
/// A pipe that has room at all has room for so much.
const ROOM_OF_A_PIPE: usize = libc::PIPE_BUF;

/// From a pipe into a socket.
fn send(guard: &Guard, pipe: c_int, socket: c_int, len: usize, waits: bool) -> Outcome {
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
        Sending::ByMemory(_) => send(guard, pipe, socket, len, waits),
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
fn receive(guard: &Guard, socket: c_int, pipe: c_int, len: usize, waits: bool) -> Outcome {
    let flags = if waits { 0 } else { SPLICE_F_NONBLOCK };
    if guard.shared().is_none() {
        let got = kernel::splice(socket, pipe, len, flags)?;
        if got > 0 {
            guard.early_received(socket, got);
        }
        return Ok(got);
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
            Some(send(&guard, from, to, len, waits))
        }
        (Some(guard), None) if guard.messages().is_none() && kernel::is_pipe(to) => {
            Some(receive(&guard, from, to, len, waits))
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
