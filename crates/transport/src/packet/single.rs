//! The call that takes one frame: for frames that carry many units.

use std::io;
use std::os::fd::RawFd;

use super::message::ReceiveHeader;
use super::receive::Received;

/// One `recvmsg`.
///
/// # Safety
/// The pieces may be written until the call is over: scratch memory to which there is no
/// reference, or lent memory that is pinned.
pub(crate) unsafe fn receive_frame(
    fd: RawFd,
    pieces: &mut [libc::iovec],
    flags: i32,
) -> io::Result<Received> {
    let mut header = ReceiveHeader::new();
    let prepared = header.prepare(pieces);
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the caller vouches for what the list names.
    let len = unsafe { libc::recvmsg(fd, prepared, flags | libc::MSG_DONTWAIT) };
    match usize::try_from(len) {
        Ok(len) => Ok(Received::Frame(header.frame(len))),
        Err(_) => Received::without_frame(io::Error::last_os_error()),
    }
}
