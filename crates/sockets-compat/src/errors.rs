//! Errors with the numbers that sockets give.

use std::io;

fn of(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// "Message too long": the other side has no room for a message of that length, or this
/// side's buffer is too short for the one that came.
pub(crate) fn too_long() -> io::Error {
    of(libc::EMSGSIZE)
}

/// Nothing is there yet, or the time is over: as of a kernel's socket both are
/// "Resource temporarily unavailable".
pub(crate) fn not_yet() -> io::Error {
    of(libc::EAGAIN)
}

/// The other side reads no more, or this side has said that it writes no more.
pub(crate) fn broken_pipe() -> io::Error {
    of(libc::EPIPE)
}

/// The other side is gone, and what was under way is lost.
pub(crate) fn reset() -> io::Error {
    of(libc::ECONNRESET)
}

/// Nobody listens there.
pub(crate) fn refused() -> io::Error {
    of(libc::ECONNREFUSED)
}

/// The other side does not answer.
pub(crate) fn timed_out() -> io::Error {
    of(libc::ETIMEDOUT)
}

/// A socket of another kind is meant.
pub(crate) fn wrong_kind(wanted: &str, found: &crate::Address) -> io::Error {
    let text = format!("{found} is no address for this socket: it takes {wanted}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

pub(crate) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
