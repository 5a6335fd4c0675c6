//! [`Message`]: a kind, a few bytes, a few descriptors; and how it travels.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use arrayvec::ArrayVec;

use super::RendezvousError;
use crate::exchange::set_pieces;
use crate::shm::{close_aside, is_event, is_memory};

/// The most bytes that a message carries.
pub const MAX_BODY: usize = 240;
/// The most descriptors that a message carries.
pub const MAX_FDS: usize = 8;
/// Bytes before the body: the kind.
const HEAD: usize = 2;

/// A small message.
#[derive(Debug)]
pub struct Message {
    /// What it is, as those who use the channel have agreed.
    pub kind: u16,
    /// Its bytes.
    pub body: ArrayVec<u8, MAX_BODY>,
    /// Its descriptors, which belong to the receiver and are closed on exec. Each is of
    /// memory that can be sealed, or an eventfd: what else comes is refused.
    pub fds: ArrayVec<OwnedFd, MAX_FDS>,
}

/// Room for the control message, aligned as its header has to be. As many descriptors fit
/// as the kernel lets pass at once (`SCM_MAX_FD`, 253): what found no room it would close
/// itself, on this thread.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

const CONTROL: usize = 16 + 253 * size_of::<RawFd>() + 4;

/// Bytes of descriptors in the control message.
const fn fd_bytes(count: usize) -> libc::c_uint {
    (count * size_of::<RawFd>()) as libc::c_uint
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    kind: u16,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), RendezvousError> {
    if body.len() > MAX_BODY || fds.len() > MAX_FDS {
        return Err(RendezvousError::TooMuch { body: body.len(), fds: fds.len() });
    }
    let mut kind = kind.to_le_bytes();
    let mut parts = [
        libc::iovec { iov_base: kind.as_mut_ptr().cast(), iov_len: HEAD },
        libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() },
    ];
    let mut control = Control([MaybeUninit::zeroed(); CONTROL]);
    // SAFETY: a header of zeros is one that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    set_pieces(&mut header, parts.as_mut_ptr(), parts.len());
    if !fds.is_empty() {
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: these compute from numbers.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(fd_bytes(fds.len())) } as _;
        // SAFETY: the control buffer has room for a header and MAX_FDS descriptors.
        let first = unsafe { &mut *libc::CMSG_FIRSTHDR(&raw const header) };
        first.cmsg_level = libc::SOL_SOCKET;
        first.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: as above.
        first.cmsg_len = unsafe { libc::CMSG_LEN(fd_bytes(fds.len())) } as _;
        for (index, fd) in fds.iter().enumerate() {
            // SAFETY: within the room for that many descriptors, which need not be aligned.
            unsafe {
                libc::CMSG_DATA(first).cast::<RawFd>().add(index).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the header names buffers that live, with their lengths.
        if unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        return Err(match error.kind() {
            io::ErrorKind::Interrupted => continue,
            io::ErrorKind::WouldBlock => RendezvousError::Full,
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotConnected => RendezvousError::Gone,
            _ => RendezvousError::System { call: "sendmsg", error },
        });
    }
}

/// The next message, if one is there. Hung up: [`RendezvousError::Gone`].
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Message>, RendezvousError> {
    let mut bytes = [0; HEAD + MAX_BODY];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([MaybeUninit::zeroed(); CONTROL]);
    // SAFETY: a header of zeros is one that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    set_pieces(&mut header, &raw mut part, 1);
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let len = loop {
        // SAFETY: the header names buffers that live, with their lengths.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
        if let Ok(len) = usize::try_from(len) {
            break len;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::ConnectionReset => return Err(RendezvousError::Gone),
            _ => return Err(RendezvousError::System { call: "recvmsg", error }),
        }
    };
    // First of all they get an owner, whatever is said below.
    let fds = take_fds(&header);
    let cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let message = bytes.get(..len).and_then(|bytes| bytes.split_first_chunk::<HEAD>());
    let is_good = fds.len() <= MAX_FDS && fds.iter().all(|fd| is_of_use(fd.as_fd())) && !cut;
    let (Some((kind, body)), true) = (message, is_good) else {
        close_aside(fds);
        return Err(match len {
            0 => RendezvousError::Gone,
            _ => RendezvousError::NoMessage,
        });
    };
    let body = ArrayVec::try_from(body).map_err(|_| RendezvousError::NoMessage)?;
    let fds = fds.into_iter().collect();
    Ok(Some(Message { kind: u16::from_le_bytes(*kind), body, fds }))
}

/// Is it something that a message may carry? Both kinds close without waiting.
fn is_of_use(fd: BorrowedFd<'_>) -> bool {
    is_memory(fd) || is_event(fd).unwrap_or(false)
}

/// All descriptors that came.
pub(crate) fn take_fds(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer in, and said how far.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: null, or a header within the buffer.
    while let Some(control) = unsafe { next.as_ref() } {
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: this computes from a number.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let len: usize = control.cmsg_len as _;
            let count = len.saturating_sub(head) / size_of::<RawFd>();
            for index in 0..count {
                // SAFETY: within the control message, by its length.
                let fd =
                    unsafe { libc::CMSG_DATA(control).cast::<RawFd>().add(index).read_unaligned() };
                // SAFETY: the kernel made it for us just now.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    fds
}
