//! Sending and receiving on a socket of messages, as the program calls it.
//!
//! Nothing here allocates or takes a lock: a signal handler may send.
//!
//! [`Page`]: a little memory for each socket, which every process has that has the socket.

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Socket;
use super::packets::{self, File, Kind, SHORT_PARTS};
use crate::kernel::{self, Errno, Outcome, Part};
use crate::transfer::{time_limit, total};

/// What goes on to the kernel with a message.
const SENDING: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const RECEIVING: c_int = libc::MSG_DONTWAIT | libc::MSG_PEEK;

/// Sends one message. Who may wait learns whether the other side took it.
///
/// # Safety
///
/// `parts` may be read.
pub(crate) unsafe fn send(socket: &Socket, fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    let page = &socket.page;
    if let Some(why) = page.take_trouble() {
        return Err(why);
    }
    match page.state() {
        State::Connected | State::Over => {}
        State::Connecting => return Err(Errno(libc::EAGAIN)),
        State::New | State::Listening => return Err(Errno(libc::ENOTCONN)),
    }
    let may_wait = flags & libc::MSG_DONTWAIT == 0 && !kernel::is_nonblocking(fd);
    // Without a descriptor to spare nobody can answer: then it goes as one that does not wait.
    let answer = if may_wait { File::counter().ok() } else { None };
    // SAFETY: as promised.
    let sent = unsafe { put(fd, parts, answer.as_ref(), flags & SENDING) };
    if let Err(why) = sent {
        return Err(page.take_trouble().unwrap_or(why));
    }
    if let Some(answer) = answer {
        wait_for(&answer, fd, page)?;
    }
    Ok(total(parts))
}

/// # Safety
///
/// `parts` may be read.
unsafe fn put(fd: c_int, parts: &[Part], answer: Option<&File>, flags: c_int) -> Outcome {
    if !packets::is_short(parts) {
        // SAFETY: as promised.
        let file = unsafe { File::with(parts) }?;
        let kind = [Kind::File as u8];
        let body: [&[u8]; 2] = [&kind, packets::padding(kind.len())];
        return match answer {
            Some(answer) => packets::send_bytes(fd, &body, &[&file, answer], flags),
            None => packets::send_bytes(fd, &body, &[&file], flags),
        };
    }
    let Some(answer) = answer else {
        // SAFETY: as promised.
        return unsafe { packets::send(fd, parts, &[], flags) };
    };
    let kind = [Kind::Message as u8];
    let mut all = [Part { base: std::ptr::null_mut(), len: 0 }; SHORT_PARTS];
    all[0] = Part { base: kind.as_ptr().cast_mut(), len: kind.len() };
    all[1..=parts.len()].copy_from_slice(parts);
    // SAFETY: as promised, and a byte of ours.
    unsafe { packets::send(fd, &all[..=parts.len()], &[answer], flags) }
}

/// Waits for what became of it: as long as the program lets a send wait, and while there
/// is somebody who may answer.
pub(super) fn wait_for(answer: &File, fd: c_int, page: &Page) -> Result<(), Errno> {
    let begin = Instant::now();
    let limit = time_limit(fd, libc::SO_SNDTIMEO);
    loop {
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut entries = [entry(answer.fd(), libc::POLLIN), entry(fd, 0)];
        let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
        kernel::poll(&mut entries, left, std::ptr::null())?;
        match answer.counted() {
            None => {}
            Some(1) => return Ok(()),
            Some(other) => return Err(Errno(i32::try_from(other - 1).unwrap_or(libc::EIO))),
        }
        if entries[1].revents != 0 {
            return Err(page.take_trouble().unwrap_or(Errno(libc::EPIPE)));
        }
        if left == Some(Duration::ZERO) {
            return Err(Errno(libc::EAGAIN));
        }
    }
}

/// Receives one message, whole. One that is longer than there is room for stays, unless
/// the program says (`MSG_TRUNC`) that it knows what it does.
///
/// # Safety
///
/// `parts` may be written.
pub(crate) unsafe fn receive(socket: &Socket, fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    if matches!(socket.page.state(), State::New | State::Connecting | State::Listening) {
        let is_soon = socket.page.state() == State::Connecting;
        return Err(Errno(if is_soon { libc::EAGAIN } else { libc::ENOTCONN }));
    }
    let (room, cuts) = (total(parts), flags & libc::MSG_TRUNC != 0);
    let is_too_long = |len| len > room && !cuts;
    if is_too_long(packets::next_length(fd, flags & libc::MSG_DONTWAIT)?) {
        return Err(Errno(libc::EMSGSIZE));
    }
    // SAFETY: as promised.
    let packet = unsafe { packets::receive(fd, parts, flags & RECEIVING) }?;
    let len = match &packet.files[0] {
        None => packet.len,
        Some(file) => {
            // SAFETY: as promised.
            unsafe { file.read(parts) }?;
            file.len()?
        }
    };
    if len == 0 && packet.files[0].is_none() && socket.page.state() == State::Over {
        return socket.page.take_trouble().map_or(Ok(0), Err);
    }
    // Another reader may have taken the message that was looked at.
    if is_too_long(len) { Err(Errno(libc::EMSGSIZE)) } else { Ok(len) }
}

/// Bytes that are mapped for one.
const LEN: usize = 4096;

/// Where a socket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    New,
    Connecting,
    Connected,
    Listening,
    /// The connection broke, or never came to be.
    Over,
}

/// What all who have a socket know of it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Page {
    state: AtomicU32,
    /// Why something failed that nobody waited for (`SO_ERROR`).
    trouble: AtomicU32,
    /// The longest message that is taken (`SO_RCVBUF`); zero is what is usual.
    limit: AtomicU32,
}

impl Page {
    pub(super) fn state(&self) -> State {
        let known = [State::Connecting, State::Connected, State::Listening, State::Over];
        let state = self.state.load(Ordering::Acquire);
        known.into_iter().find(|known| *known as u32 == state).unwrap_or(State::New)
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Whether it was in that state, and is in the other now.
    pub(super) fn change(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u32, to as u32);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Something failed, and no call has told of it. The first reason is kept.
    pub(super) fn leave_trouble(&self, why: Errno) {
        let why = why.0.cast_unsigned();
        let _ = self.trouble.compare_exchange(0, why, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What has failed since somebody last asked.
    pub(super) fn take_trouble(&self) -> Option<Errno> {
        match self.trouble.swap(0, Ordering::AcqRel) {
            0 => None,
            why => Some(Errno(why.cast_signed())),
        }
    }

    pub(super) fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Ordering::Acquire)).filter(|limit| *limit != 0)
    }

    pub(super) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
    }
}

/// A page that is mapped here.
#[derive(Debug)]
pub(super) struct Mapped(*mut u8);

// SAFETY: what lies there is atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// A new page, and the file by which others may have it, too.
    pub(super) fn create() -> Result<(Self, File), Errno> {
        let file = File::in_memory()?;
        kernel::set_len(file.fd(), LEN as u64)?;
        Ok((Self::of(&file)?, file))
    }

    /// The page that lies in this file, which a service made.
    pub(super) fn of(file: &File) -> Result<Self, Errno> {
        kernel::map(file.fd(), 0, LEN).map(Self)
    }
}

impl Deref for Mapped {
    type Target = Page;

    fn deref(&self) -> &Page {
        // SAFETY: mapped as long as this lives, aligned as pages are, and longer than it;
        // any bits are atomic numbers.
        unsafe { &*self.0.cast::<Page>() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: `map` made it, and nobody borrows it any more.
        unsafe { kernel::unmap(self.0, LEN) };
    }
}
