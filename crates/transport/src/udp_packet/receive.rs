//! The receiving half of a path: frames whose headers are read and checked here, and the
//! datagrams behind them in their places. The call between is the driver's.

use std::io;
use std::os::fd::RawFd;

use landfall_placement::{Engine, Instant, PathId};

use super::frame::{Datagrams, Framing};
use crate::driver::Counters;
use crate::exchange::{HEAD_ROOM, IoVecs, PREFIX_ROOM, Pace, Peeked};
use crate::memory::Regions;
use crate::packet::{Frame, Received, receive_frame};
use crate::udp::{Message, Receiver};

/// Takes frames, one a call.
pub(crate) struct FrameReceiver {
    framing: Framing,
    receiver: Receiver,
    pace: Pace,
}

impl FrameReceiver {
    pub(super) fn new(framing: Framing, path: PathId, regions: &Regions, peek: bool) -> Self {
        Self {
            framing,
            receiver: Receiver::behind(framing.prefix_len(), path, regions, true, peek),
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

    /// Looks at the first head in the socket, if that seems wise, and asks for its place.
    pub(crate) fn look<E: Engine>(
        &mut self,
        packets: RawFd,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
    ) -> io::Result<Option<Box<Peeked>>> {
        let framing = &self.framing;
        self.receiver.look(engine, now, counters, |head| peek(packets, framing, head))
    }

    /// The pieces for the next receive. [`settle`](Self::settle) follows, with whatever came.
    pub(crate) fn post<E: Engine>(
        &mut self,
        engine: &E,
        peeked: Option<&Peeked>,
    ) -> &mut [libc::iovec] {
        self.receiver.post(engine, peeked)
    }

    /// Hands the datagrams of a frame to the engine. Returns their number.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (received, peeked): (Received, Option<Box<Peeked>>),
    ) -> u32 {
        let message = match &received {
            Received::Frame(frame) => self.read(frame, counters),
            Received::Unreadable => {
                counters.malformed += 1;
                None
            }
            Received::Nothing => None,
        };
        self.pace.note(match (&message, &received) {
            (Some(message), _) => Some(message.len),
            (None, Received::Nothing) => None,
            (None, _) => Some(0),
        });
        self.receiver.settle(engine, now, counters, (message, peeked))
    }

    /// What came in this frame, if it is good datagrams for this path.
    fn read(&mut self, frame: &Frame, counters: &mut Counters) -> Option<Message> {
        let Some(datagrams) = self.framing.read(frame, self.receiver.prefix()) else {
            counters.malformed += 1;
            return None;
        };
        let (is_right, summed) = check(&mut self.receiver, &datagrams);
        counters.bytes_summed += summed;
        if !is_right {
            counters.corrupt += 1;
            return None;
        }
        Some(datagrams.message)
    }
}

/// Is the checksum right, where nobody has looked? And how many bytes were summed for it.
fn check(receiver: &mut Receiver, datagrams: &Datagrams) -> (bool, u64) {
    let (Some(mut sum), len) = (datagrams.unchecked, datagrams.message.len) else {
        return (true, 0);
    };
    let is_right = receiver.sum(len).is_some_and(|payload| {
        sum.append(payload);
        sum.sum() == 0xffff
    });
    (is_right, len as u64)
}

/// Looks at the first frame in the socket, which stays there.
fn peek(
    packets: RawFd,
    framing: &Framing,
    head: &mut [u8; HEAD_ROOM],
) -> io::Result<Option<Message>> {
    let mut prefix = [0; PREFIX_ROOM];
    let mut pieces = IoVecs::with_capacity(2);
    pieces.push_slice(&mut prefix[..framing.prefix_len()]);
    pieces.push_slice(head);
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: the pieces are `prefix` and `head`.
    match unsafe { receive_frame(packets, pieces.as_mut_slice(), flags)? } {
        Received::Frame(frame) => {
            // It is truncated on purpose.
            let whole = Frame { truncated: false, ..frame };
            Ok(framing.read(&whole, &prefix).map(|datagrams| datagrams.message))
        }
        Received::Nothing | Received::Unreadable => Ok(None),
    }
}
