//! Receiving: several frames a call, each into the guessed span where the engine has a
//! guess. The call between is the driver's.

use std::io;

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant, PathId};

use super::link::{Frame, Link};
use super::message::ReceiveHeader;
use crate::driver::Counters;
use crate::exchange::{Inbox, MAX_LISTS, ScatteredUnit, Turn};
use crate::memory::{Pins, Regions};

/// While frames keep coming, this many are taken in one turn.
const FRAMES_PER_TURN: usize = 4 * MAX_LISTS;
/// And no call follows on this many bytes, so that acknowledgements leave.
const BYTES_PER_TURN: usize = 256 << 10;

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
        if error.kind() == io::ErrorKind::WouldBlock {
            return Ok(Self::Nothing);
        }
        match error.raw_os_error() {
            // An interface that is down may come up again.
            Some(libc::EINTR | libc::ENETDOWN) => Ok(Self::Nothing),
            // It was coalesced by rules that a virtio-net header has no word for.
            Some(libc::EINVAL) => Ok(Self::Unreadable),
            _ => Err(error),
        }
    }
}

/// What a call brought, list by list: how many bytes, or why none.
pub(crate) type Outcomes = ArrayVec<io::Result<usize>, MAX_LISTS>;

/// The receiving half of a packet path, without its receiving call.
pub(crate) struct Receiver {
    link: Link,
    inbox: Inbox,
    /// The memory that is posted, pinned until it is settled.
    pins: Pins,
    /// Of the lists that are posted, and of others.
    headers: Box<[ReceiveHeader]>,
    /// The last receive found something: more may wait.
    streaming: bool,
    /// What this turn may still receive.
    frames_left: usize,
    bytes_left: usize,
}

impl Receiver {
    pub(crate) fn new(path: PathId, link: Link, regions: &Regions) -> Self {
        Self {
            link,
            inbox: match link.is_payload() {
                true => Inbox::of_lists(path, MAX_LISTS, link.prefix_len()),
                false => Inbox::of_frames(path, MAX_LISTS, link.prefix_len()),
            },
            pins: Pins::new(regions),
            headers: (0..MAX_LISTS).map(|_| ReceiveHeader::new()).collect(),
            streaming: false,
            frames_left: 0,
            bytes_left: 0,
        }
    }

    /// The first frame after a silence is taken alone, since looking for another one would
    /// only delay the answer to it.
    pub(crate) const fn start_turn(&mut self) {
        self.frames_left = if self.streaming { FRAMES_PER_TURN } else { 1 };
        self.bytes_left = BYTES_PER_TURN;
    }

    /// Is it time for one more receive in this turn?
    pub(crate) const fn wants_more(&self) -> bool {
        self.frames_left > 0 && self.bytes_left > 0
    }

    /// The headers for the next receive, each with its list; [`settle`](Self::settle)
    /// follows. They stay where they are.
    pub(crate) fn post<E: Engine>(&mut self, engine: &E) -> &mut [ReceiveHeader] {
        let most = self.frames_left.min(MAX_LISTS);
        let (pieces, ends) = self.inbox.post_each(engine, &mut self.pins, most);
        let pieces = pieces.as_mut_slice();
        let mut start = 0;
        for (end, header) in ends.iter().zip(&mut self.headers) {
            header.prepare(&mut pieces[start..*end]);
            start = *end;
        }
        &mut self.headers[..ends.len()]
    }

    /// Hands what came to the engine: it is placed by guesses that know of the calls before.
    /// Returns the number of units.
    ///
    /// # Errors
    /// The path is broken.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        outcomes: Outcomes,
    ) -> io::Result<u32> {
        let mut came: ArrayVec<ScatteredUnit, MAX_LISTS> = ArrayVec::new();
        let (mut frames, mut bytes, mut is_empty) = (0, 0, false);
        for (nth, outcome) in outcomes.into_iter().enumerate() {
            let len = match outcome.map_or_else(Received::without_frame, |len| {
                Ok(Received::Frame(self.headers[nth].frame(len)))
            })? {
                Received::Frame(frame) => {
                    match self.link.arrival(&frame, self.inbox.prefix(nth)) {
                        Some(arrival) => came.push(ScatteredUnit { nth, skip: 0, arrival }),
                        None => counters.malformed += 1,
                    }
                    frame.len
                }
                Received::Unreadable => {
                    counters.malformed += 1;
                    0
                }
                Received::Nothing => {
                    is_empty = true;
                    continue;
                }
            };
            frames += 1;
            bytes += len;
        }
        self.streaming = frames > 0;
        counters.receive_calls += u64::from(frames > 0);
        counters.empty_calls += u64::from(frames == 0);
        self.frames_left = if is_empty { 0 } else { self.frames_left.saturating_sub(frames) };
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        let units = if came.is_empty() { 0 } else { self.inbox.settle_each(&mut turn, &came) };
        self.pins.release();
        Ok(units)
    }
}
