//! Calls that a program forbade itself, made of those that nearly all leave: `read`,
//! `write` and `poll`. See [`crate::sandbox`].

use std::ffi::c_int;

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP};

use crate::kernel::{self, Errno, Outcome, Part, call};
use crate::sandbox;

/// `recv`. What one only wants to look at is one byte, whatever it is.
///
/// # Safety
///
/// `part` may be written.
pub(crate) unsafe fn receive(fd: c_int, part: Part, flags: c_int) -> Outcome {
    let may_wait = flags & libc::MSG_DONTWAIT == 0 && !sandbox::was_nonblocking(fd);
    let looks_only = flags & libc::MSG_PEEK != 0;
    if looks_only || !may_wait {
        let limit = if may_wait { -1 } else { 0 };
        if kernel::poll_one(fd, POLLIN | POLLRDHUP, limit)? == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    if looks_only {
        return Ok(1);
    }
    call!(libc::SYS_read, fd, part.base, part.len)
}

/// `recvmsg`: the first part alone, which a stream allows.
///
/// # Safety
///
/// `parts` may be written.
pub(crate) unsafe fn receive_parts(fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    let part = parts.iter().find(|part| part.len > 0);
    // SAFETY: as promised.
    part.map_or(Ok(0), |part| unsafe { receive(fd, *part, flags) })
}

/// `sendmsg`: the first part alone.
///
/// # Safety
///
/// `parts` may be read.
pub(crate) unsafe fn send(fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    let Some(part) = parts.iter().find(|part| part.len > 0) else { return Ok(0) };
    if flags & (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != 0 {
        let ready = kernel::poll_one(fd, POLLOUT, 0)?;
        // A write to who is gone would be a signal.
        if flags & libc::MSG_NOSIGNAL != 0 && ready & (POLLERR | POLLHUP) != 0 {
            return Err(Errno(libc::EPIPE));
        }
        if flags & libc::MSG_DONTWAIT != 0 && ready & POLLOUT == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    call!(libc::SYS_write, fd, part.base, part.len)
}
