//! [`Carrier`]: a connection of STP, as queue pairs use it.

use std::fmt;
use std::task::Context;

use bytes::Bytes;

use super::keys::{KeyTable, MemoryKey};
use super::receives::ReceiveQueue;
use super::sends::{Request, SendQueue};
use super::{CompletionQueue, QueuePair, QueuePairOptions, SharedReceiveQueue, reason_of};
use crate::stp::{Connection, Endpoint, Error, Memory, Part, Payload, RemoteRights};
use crate::verbs::software::{self, Arrived, Posted, Queues, Reach, Room};
use crate::verbs::{
    AtomicRequest, CloseReason, Phase, PostError, QueuePair as _, RdmaRequest, Status,
};

/// A connection of STP, and what is under way on it.
pub struct Carrier {
    connection: Connection,
    sends: SendQueue,
    receives: ReceiveQueue,
    shared: KeyTable,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").field("sends", &self.sends.len()).finish_non_exhaustive()
    }
}

impl QueuePair {
    /// Of a connection that nobody else uses. The other side makes one of its end.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn new(
        connection: &Connection,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<Self, Error> {
        Self::over(connection, Queues::own(sends, receives), options)
    }

    /// The same, with room that it shares. What it receives completes where that room does.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn sharing(
        connection: &Connection,
        sends: &CompletionQueue,
        room: &SharedReceiveQueue,
        options: &QueuePairOptions,
    ) -> Result<Self, Error> {
        Self::over(connection, Queues::sharing(sends, room), options)
    }

    fn over(
        connection: &Connection,
        queues: Queues<Part>,
        options: &QueuePairOptions,
    ) -> Result<Self, Error> {
        let carrier = Carrier {
            connection: connection.clone(),
            sends: SendQueue::default(),
            receives: ReceiveQueue::default(),
            shared: KeyTable::default(),
        };
        let pair = Self::with(carrier, queues, options);
        match pair.phase() {
            Phase::Closed(_) => Err(Error::Closed { why: None }),
            _ => Ok(pair),
        }
    }

    /// The connection that it has.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.ask(|carrier| carrier.connection.clone())
    }

    /// Lets the other side's queue pair use memory of this endpoint, until it is
    /// [withdrawn](Self::withdraw) or this queue pair is gone.
    pub fn share(&mut self, part: &Part, rights: RemoteRights) -> MemoryKey {
        self.ask(|carrier| carrier.shared.share(part, rights))
    }

    /// The other side may not use it any more.
    pub fn withdraw(&mut self, key: &MemoryKey) {
        // What was given by it ends when it is dropped.
        drop(self.ask(|carrier| carrier.shared.withdraw(key)));
    }
}

/// A Transfer has one place: several parts are copied to one.
fn joined(parts: &[Part]) -> Result<Memory, PostError> {
    let len: u64 = parts.iter().map(Part::len).sum();
    let mut memory = Memory::zeroed(usize::try_from(len).map_err(|_| PostError::TooLong)?);
    let mut rest = &mut memory[..];
    for part in parts {
        let (here, behind) = rest.split_at_mut(part.len() as usize);
        part.copy_out(here).map_err(|_| PostError::UnknownKey)?;
        rest = behind;
    }
    Ok(memory)
}

impl software::Carrier for Carrier {
    type Part = Part;
    type Key = MemoryKey;
    type Node = Endpoint;
    type Request = Request;

    const ADVANCES_WHERE_WOKEN: bool = true;

    fn part_len(part: &Part) -> u64 {
        part.len()
    }

    /// Whether it may be written shows when something lands there.
    fn check_room(_: &[Part]) -> Result<(), PostError> {
        Ok(())
    }

    fn check_key(key: &MemoryKey, reach: Reach, at: u64, len: u64) -> Result<(), PostError> {
        let right = match reach {
            Reach::Write => RemoteRights::PUT,
            Reach::Read => RemoteRights::GET,
            Reach::Change => RemoteRights::FETCH,
        };
        if !key.rights().has(right) {
            return Err(PostError::NoRight);
        }
        let is_within = at.checked_add(len).is_some_and(|end| end <= key.len());
        if is_within { Ok(()) } else { Err(PostError::OutOfBounds) }
    }

    fn message(from: &[Part], word: Option<u32>) -> Result<Request, PostError> {
        let payload = match from {
            [part] => Payload::from(part),
            parts => Payload::Memory(joined(parts)?),
        };
        Ok(Request::Message { payload, word })
    }

    fn inline(bytes: &[u8], word: Option<u32>) -> Request {
        Request::Message { payload: Payload::Bytes(Bytes::copy_from_slice(bytes)), word }
    }

    fn write(request: &RdmaRequest<'_, Part, MemoryKey>) -> Request {
        Request::Write { from: request.local.to_vec(), key: request.key, at: request.at }
    }

    fn read(request: &RdmaRequest<'_, Part, MemoryKey>) -> Request {
        Request::Read { into: request.local.to_vec(), key: request.key, at: request.at }
    }

    fn atomic(request: &AtomicRequest<Part, MemoryKey>) -> Request {
        let AtomicRequest { into, key, at, function, .. } = request.clone();
        Request::Atomic { into, key, at, function }
    }

    fn post(&mut self, posted: Posted, request: Request) {
        self.sends.post(posted, request);
    }

    fn sends(&self) -> usize {
        self.sends.len()
    }

    fn receive(&mut self, room: &mut Room<Part>, cx: &mut Context<'_>) -> Result<(), CloseReason> {
        self.shared.answer(&self.connection, cx);
        self.receives.accept(&self.connection, room, cx).map_err(|why| reason_of(&why))
    }

    fn next_received(&mut self, cx: &mut Context<'_>) -> Option<Arrived> {
        self.receives.next_done(cx)
    }

    fn next_sent(&mut self, cx: &mut Context<'_>) -> Option<(Posted, Status)> {
        self.sends.begin(&self.connection, cx);
        self.sends.next_done(cx)
    }

    fn abort(&mut self) {
        self.connection.abort();
    }

    fn flush(&mut self) -> (Vec<u64>, Vec<Posted>) {
        (self.receives.flush(), self.sends.flush())
    }
}
