//! Calls that move several units, each by a header of its own
//! (`recvmmsg`, `sendmmsg`); one alone goes by the simpler call.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::{io, mem, ptr};

use super::MAX_UNITS;

/// Calls that take several never wait. C libraries do not agree on the type of flags.
pub(crate) const DONT_WAIT: Flags = libc::MSG_DONTWAIT as Flags;
#[cfg(target_env = "musl")]
type Flags = libc::c_uint;
#[cfg(not(target_env = "musl"))]
type Flags = libc::c_int;

/// The headers of one call, copied from those of its units.
///
/// They are listed anew for each call. What they name belongs to anyone who lists
/// them, and stays where it is until the call is over.
pub(crate) struct Batch(Vec<libc::mmsghdr>);

// SAFETY: the pointers are made anew for each call and read only in it; between
// calls nobody follows them, and moving a header to another thread moves numbers.
unsafe impl Send for Batch {}
// SAFETY: shared headers can only be read as numbers.
unsafe impl Sync for Batch {}

impl Batch {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(MAX_UNITS))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn add(&mut self, header: &MessageHeader) {
        self.0.push(libc::mmsghdr { msg_hdr: header.0, msg_len: 0 });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One call that receives, and never waits. Returns how many units came.
    ///
    /// # Safety
    /// Each header names room for an address and for control messages, and a
    /// list of pieces of memory, all of which live until the call is over and
    /// may be written by the kernel.
    pub(crate) unsafe fn receive(&mut self, fd: RawFd) -> io::Result<usize> {
        if let [only] = &mut self.0[..] {
            // SAFETY: the caller vouches for the header.
            let len = unsafe { libc::recvmsg(fd, &raw mut only.msg_hdr, libc::MSG_DONTWAIT) };
            only.msg_len = libc::c_uint::try_from(len).map_err(|_| io::Error::last_os_error())?;
            return Ok(1);
        }
        let (headers, count) = (self.0.as_mut_ptr(), self.0.len() as libc::c_uint);
        // SAFETY: there are `count` headers; the caller vouches for the rest.
        let came = unsafe { libc::recvmmsg(fd, headers, count, DONT_WAIT, ptr::null_mut()) };
        usize::try_from(came).map_err(|_| io::Error::last_os_error())
    }

    /// One call that sends, and never waits. Returns how many units left; the
    /// error of the first, if none did.
    ///
    /// # Safety
    /// Each header names an address, control messages and a list of pieces of
    /// memory, all of which live until the call is over.
    pub(crate) unsafe fn send(&mut self, fd: RawFd) -> io::Result<usize> {
        if let [only] = &self.0[..] {
            // SAFETY: the caller vouches for the header.
            let len = unsafe { libc::sendmsg(fd, &raw const only.msg_hdr, libc::MSG_DONTWAIT) };
            return usize::try_from(len).map(|_| 1).map_err(|_| io::Error::last_os_error());
        }
        let (headers, count) = (self.0.as_mut_ptr(), self.0.len() as libc::c_uint);
        // SAFETY: there are `count` headers; the caller vouches for the rest.
        let left = unsafe { libc::sendmmsg(fd, headers, count, DONT_WAIT) };
        usize::try_from(left).map_err(|_| io::Error::last_os_error())
    }

    /// What the kernel told about a unit of the last receive: its header, and
    /// how long it is.
    pub(crate) fn told(&self, nth: usize) -> (MessageHeader, usize) {
        let told = &self.0[nth];
        (MessageHeader(told.msg_hdr), told.msg_len as usize)
    }
}

// The header of one message call, as all socket drivers use it.

/// A `msghdr` that is filled in for one call and names memory of its owner.
#[derive(Debug)]
pub(crate) struct MessageHeader(pub(crate) libc::msghdr);

// SAFETY: the pointers are made anew for each call and read only in it; between
// calls nobody follows them, and moving a header to another thread moves numbers.
unsafe impl Send for MessageHeader {}
// SAFETY: a shared header can only be read as numbers.
unsafe impl Sync for MessageHeader {}

impl MessageHeader {
    /// Names nothing.
    // SAFETY: a header is made of numbers and pointers, for all of which zero is good.
    pub(crate) const EMPTY: Self = Self(unsafe { mem::zeroed() });
}

// The C libraries do not agree on the types of lengths, and some pad between them: so headers
// are filled in and read here.

/// The peer: where to, or room for where from.
pub(crate) const fn set_name(
    header: &mut libc::msghdr,
    name: *mut libc::c_void,
    len: libc::socklen_t,
) {
    (header.msg_name, header.msg_namelen) = (name, len);
}

/// The pieces of memory.
pub(crate) const fn set_pieces(header: &mut libc::msghdr, pieces: *mut libc::iovec, count: usize) {
    (header.msg_iov, header.msg_iovlen) = (pieces, count as _);
}

/// What is said beside the bytes, or room for it. Of no length there is none.
pub(crate) const fn set_control(header: &mut libc::msghdr, control: *mut libc::c_void, len: usize) {
    header.msg_control = if len > 0 { control } else { ptr::null_mut() };
    header.msg_controllen = len as _;
}

/// How much was said beside the bytes.
#[expect(clippy::unnecessary_cast, reason = "to other C libraries it is no usize")]
pub(crate) const fn control_len(header: &libc::msghdr) -> usize {
    header.msg_controllen as usize
}

// A list of memory pieces for the kernel.

/// Pieces of memory that one system call scatters to or gathers from.
///
/// The pointers are made anew in each turn and read by the kernel only in it
/// (or, for a send under way, while the memory is pinned).
#[derive(Debug, Default)]
pub(crate) struct IoVecs(Vec<libc::iovec>);

// SAFETY: the pointers are only handed to the kernel, in calls whose drivers
// vouch for the memory; moving the list to another thread moves numbers.
unsafe impl Send for IoVecs {}
// SAFETY: a shared list can only be read as numbers.
unsafe impl Sync for IoVecs {}

impl IoVecs {
    pub(crate) fn with_capacity(pieces: usize) -> Self {
        Self(Vec::with_capacity(pieces))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn push(&mut self, start: NonNull<u8>, len: usize) {
        self.0.push(libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len });
    }

    /// Memory of this process that the kernel will write.
    #[inline]
    pub(crate) fn push_slice(&mut self, bytes: &mut [u8]) {
        self.push(NonNull::from(&mut *bytes).cast(), bytes.len());
    }

    /// The pieces of another list behind those of this one.
    #[inline]
    pub(crate) fn extend(&mut self, pieces: &[libc::iovec]) {
        self.0.extend_from_slice(pieces);
    }

    pub(crate) fn as_slice(&self) -> &[libc::iovec] {
        &self.0
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [libc::iovec] {
        &mut self.0
    }
}
