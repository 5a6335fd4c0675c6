//! [`UringBurst`]: a posted list received through a ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::ring::{Operation, Ring};
use crate::scatter::{MOST_DESCRIPTORS, Posted, Socket, nothing_came};

/// This many descriptors are tried first, if the last burst was no longer.
const FIRST: usize = 8;
/// How long a broken ring may take to let go of the memory.
const FAREWELL: Duration = Duration::from_secs(1);

/// Receives what [`Socket::receive`] would, through a ring: a receive for each
/// descriptor, submitted together.
///
/// The operations do not wait, and the kernel carries them out in their order
/// as it takes them, so frame `n` goes to descriptor `n`. But each is an
/// operation of its own: where a frame comes between two of them, the first
/// finds nothing and the second does. The descriptor of the first is then
/// passed over, and its length is zero.
///
/// An operation that finds nothing costs as much as one that does, so no more
/// are submitted than the last burst had frames; when they all found one, more
/// follow.
#[derive(Debug)]
pub struct UringBurst {
    ring: Ring,
    /// Frames of the last burst.
    last: usize,
}

impl UringBurst {
    /// Opens a ring.
    ///
    /// # Errors
    /// [`Unavailable`](super::Unavailable) says why there is none and what
    /// would help.
    pub fn open() -> io::Result<Self> {
        Ok(Self { ring: Ring::open()?, last: 0 })
    }

    /// Receives as many frames as wait, one for each posted descriptor at
    /// most, without waiting. Returns how many descriptors were filled or passed
    /// over; if any were, the list is used up, else it is still posted.
    ///
    /// # Errors
    /// The socket or the ring is broken for good.
    pub fn receive(&mut self, socket: &mut Socket, posted: &mut Posted) -> io::Result<usize> {
        let count = posted.posted();
        let (mut came, mut calls, mut tried) = (0, 0, 0);
        while tried < count {
            let some = self.last.max(tried).max(FIRST).min(count - tried);
            calls += 1;
            let found = self.try_some(socket, posted, tried, some)?;
            came = if found.behind_last > 0 { tried + found.behind_last } else { came };
            tried += some;
            if found.nothing_left {
                break;
            }
        }
        self.last = came;
        socket.note_burst(posted, came, calls);
        Ok(came)
    }

    /// Tries some descriptors, from one on.
    fn try_some(
        &mut self,
        socket: &Socket,
        posted: &mut Posted,
        from: usize,
        count: usize,
    ) -> io::Result<Found> {
        self.ring.check()?;
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: what they name is left as it is, and the list is borrowed until all
        // operations are complete, or abandons that memory below.
        let headers = unsafe { &mut posted.headers()[from..from + count] };
        for (nth, header) in headers.iter_mut().enumerate() {
            (header.msg_len, header.msg_hdr.msg_flags) = (0, 0);
            let receive = Operation::Receive(&raw mut header.msg_hdr);
            // SAFETY: the header names slots of the list, and spans that
            // it holds pinned. The list is borrowed until the operation is
            // complete, or abandons all that memory below.
            unsafe { self.ring.push(fd, receive, nth as u64) };
        }
        let mut results = [Err(libc::EAGAIN); MOST_DESCRIPTORS];
        let ran = self.ring.run(|completion| {
            let outcome = usize::try_from(completion.result).map_err(|_| -completion.result);
            if let Some(result) = results.get_mut(completion.token as usize) {
                *result = outcome;
            }
        });
        if let Err(error) = ran {
            if !self.ring.settle(FAREWELL, |_| true) {
                posted.abandon();
            }
            return Err(error);
        }
        // SAFETY: no operation is under way, and lengths are noted alone.
        Found::note(&results[..count], unsafe { &mut posted.headers()[from..] })
    }
}

/// What became of some descriptors.
struct Found {
    /// How many there are up to the last one that got a frame.
    behind_last: usize,
    /// One of them found the socket empty.
    nothing_left: bool,
}

impl Found {
    /// Notes the lengths of frames where a call that takes several would.
    fn note(results: &[Result<usize, i32>], headers: &mut [libc::mmsghdr]) -> io::Result<Self> {
        let mut found = Self { behind_last: 0, nothing_left: false };
        for (nth, (result, header)) in results.iter().zip(headers).enumerate() {
            match *result {
                Ok(len) => {
                    header.msg_len = u32::try_from(len).unwrap_or(u32::MAX);
                    found.behind_last = nth + 1;
                }
                Err(number) => {
                    found.nothing_left = true;
                    nothing_came(io::Error::from_raw_os_error(number))?;
                }
            }
        }
        Ok(found)
    }
}
