//! Receiving: one frame a call, into the guessed span where the engine has a
//! guess. The call between is the driver's.

use std::io;
use std::os::fd::RawFd;

use landfall_placement::{Engine, Instant, PathId};

use super::link::{Frame, Link};
use super::message::ReceiveHeader;
use crate::driver::Counters;
use crate::exchange::{Inbox, Pace, Turn};
use crate::memory::{Pins, Regions};

/// What one receive brought.
pub(crate) enum Received {
    /// The socket is empty.
    Nothing,
    /// A frame that has no form that could be handed over; it is gone.
    Unreadable,
    Frame(Frame),
}

impl Received {
    /// What it means that no frame came.
    pub(crate) fn without_frame(error: io::Error) -> io::Result<Self> {
        match error.raw_os_error() {
            // An interface that is down may come up again.
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(Self::Nothing),
            // It was coalesced by rules that a virtio-net header has no word for.
            Some(libc::EINVAL) => Ok(Self::Unreadable),
            _ => Err(error),
        }
    }
}

/// The receiving half of a packet path, without its receiving call.
pub(crate) struct Receiver {
    link: Link,
    inbox: Inbox,
    /// The memory that is posted, pinned for one frame.
    pins: Pins,
    pace: Pace,
}

impl Receiver {
    pub(crate) fn new(path: PathId, link: Link, regions: &Regions) -> Self {
        Self {
            link,
            inbox: Inbox::new(path, 1, link.prefix_len()),
            pins: Pins::new(regions),
            pace: Pace::default(),
        }
    }

    pub(crate) const fn start_turn(&mut self) {
        self.pace.start_turn();
    }

    /// Is it time for one more receive in this turn?
    pub(crate) const fn wants_more(&self) -> bool {
        self.pace.wants_more()
    }

    /// The pieces for the next receive; [`settle`](Self::settle) follows.
    pub(crate) fn post<E: Engine>(&mut self, engine: &E) -> &mut [libc::iovec] {
        self.inbox.post(engine, &mut self.pins, None).as_mut_slice()
    }

    /// Hands what came to the engine: it is placed by a guess that knows of
    /// the frames before. Gives the number of units.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        received: &Received,
    ) -> u32 {
        self.pace.note(match received {
            Received::Frame(frame) => Some(frame.len),
            Received::Unreadable => Some(0),
            Received::Nothing => None,
        });
        let units = match received {
            Received::Frame(frame) => {
                counters.receive_calls += 1;
                self.hand_over(engine, now, counters, frame)
            }
            Received::Unreadable => {
                counters.malformed += 1;
                0
            }
            Received::Nothing => {
                counters.empty_calls += 1;
                0
            }
        };
        self.pins.release();
        units
    }

    /// Hands a frame to the engine, if it is for this path.
    fn hand_over<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        frame: &Frame,
    ) -> u32 {
        let Some(arrival) = self.link.arrival(frame, self.inbox.prefix(0)) else {
            counters.malformed += 1;
            return 0;
        };
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        self.inbox.settle(&mut turn, &arrival, None)
    }
}

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
