//! The receive queue of a queue pair: room that was posted, and what comes into it.
//!
//! Transfers have numbers, by which they come in the order of their sends. One whose number
//! has [`HAS_WORD`] is followed by another with its immediate data.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{HAS_WORD, status_of};
use crate::stp::{Connection, Error, Memory, Message, Offer, Operation, Part, Reason, Received};
use crate::verbs::Status;
use crate::verbs::software::{Arrived, PostedRoom, Room};

/// A message that comes.
struct Landing {
    id: u64,
    len: u32,
    bytes: Bytes,
    word: Word,
}

enum Bytes {
    InPlace(Operation<Received>),
    /// To be copied to several parts.
    Apart(Operation<Message>, Vec<Part>),
    Over(Status),
}

enum Word {
    None,
    /// The next Transfer has it.
    Next,
    Comes(Operation<Message>),
    Is(u32),
    Failed(Status),
}

#[derive(Default)]
pub(super) struct ReceiveQueue {
    /// Came before their turn: no more than a connection has slots.
    early: BTreeMap<u32, Offer>,
    next: u32,
    landing: VecDeque<Landing>,
}

impl ReceiveQueue {
    /// Takes what the other side has, into the room that there is.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn accept(
        &mut self,
        connection: &Connection,
        room: &mut Room<Part>,
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        let is_over = loop {
            match connection.poll_offer(cx) {
                Poll::Pending => break Ok(()),
                Poll::Ready(Ok(offer)) => _ = self.early.insert(offer.opaque() & !HAS_WORD, offer),
                Poll::Ready(Err(why)) => break Err(why),
            }
        };
        while self.early.contains_key(&self.next) && self.accept_next(room, cx.waker()) {
            self.next = (self.next + 1) % super::NUMBERS;
        }
        is_over
    }

    /// False: it has no room.
    fn accept_next(&mut self, room: &mut Room<Part>, waker: &Waker) -> bool {
        if let Some(Landing { word: word @ Word::Next, .. }) = self.landing.back_mut() {
            if let Some(offer) = self.early.remove(&self.next) {
                *word = Word::Comes(offer.accept(Memory::zeroed(4)).start());
            }
            return true;
        }
        let Some(PostedRoom { id, into }) = room.take(waker) else { return false };
        if let Some(offer) = self.early.remove(&self.next) {
            let word = if offer.opaque() & HAS_WORD != 0 { Word::Next } else { Word::None };
            let len = offer.len().try_into().unwrap_or(u32::MAX);
            self.landing.push_back(Landing { id, len, bytes: land(offer, into), word });
        }
        true
    }

    /// The next message that is over.
    pub(super) fn next_done(&mut self, cx: &mut Context<'_>) -> Option<Arrived> {
        let Landing { id, len, bytes, word } = self.landing.front_mut()?;
        let bytes_are = bytes.poll(cx);
        let word_is = word.poll(cx);
        let (Poll::Ready(status), Poll::Ready(word)) = (bytes_are, word_is) else { return None };
        let (immediate, status) = match word {
            Ok(immediate) => (immediate, status),
            Err(failed) => (None, if status.is_success() { failed } else { status }),
        };
        let arrived = Arrived { id: *id, len: *len, status, immediate };
        self.landing.pop_front();
        Some(arrived)
    }

    /// Requests that messages were coming into, and whose turn does not come.
    pub(super) fn flush(&mut self) -> Vec<u64> {
        self.early.clear();
        self.landing.drain(..).map(|landing| landing.id).collect()
    }
}

/// Lets a message come into a room.
fn land(offer: Offer, mut into: Vec<Part>) -> Bytes {
    let room: u64 = into.iter().map(Part::len).sum();
    if offer.len() > room {
        offer.refuse(Reason::TooLong);
        return Bytes::Over(Status::TooLong);
    }
    if let [part] = &into[..] {
        return match part.part(0..offer.len()) {
            Ok(part) => Bytes::InPlace(offer.accept_into(&part).start()),
            Err(_) => Bytes::Over(Status::MemoryGone),
        };
    }
    // A Transfer has one place.
    into.retain(|part| !part.is_empty());
    let memory = Memory::zeroed(usize::try_from(offer.len()).unwrap_or(usize::MAX));
    Bytes::Apart(offer.accept(memory).start(), into)
}

impl Bytes {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let status = match self {
            Self::Over(status) => *status,
            Self::InPlace(operation) => match Pin::new(operation).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(done) => done.map_or_else(|why| status_of(&why), |_| Status::Success),
            },
            Self::Apart(operation, into) => match Pin::new(operation).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(message)) => spread(&message, into),
                Poll::Ready(Err(why)) => status_of(&why),
            },
        };
        *self = Self::Over(status);
        Poll::Ready(status)
    }
}

/// Copies a message to the parts that were posted for it.
fn spread(mut message: &[u8], into: &[Part]) -> Status {
    for part in into {
        let len = usize::try_from(part.len()).unwrap_or(usize::MAX).min(message.len());
        let (here, behind) = message.split_at(len);
        if part.copy_in(here).is_err() {
            return Status::MemoryGone;
        }
        message = behind;
    }
    Status::Success
}

impl Word {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<u32>, Status>> {
        if let Self::Comes(operation) = self {
            let Poll::Ready(done) = Pin::new(operation).poll(cx) else { return Poll::Pending };
            *self = match done {
                // A shorter one is not what queue pairs send.
                Ok(message) => {
                    message[..].try_into().map_or(Self::Failed(Status::Reset), |bytes| {
                        Self::Is(u32::from_le_bytes(bytes))
                    })
                }
                Err(why) => Self::Failed(status_of(&why)),
            };
        }
        match *self {
            Self::Next | Self::Comes(_) => Poll::Pending,
            Self::None => Poll::Ready(Ok(None)),
            Self::Is(word) => Poll::Ready(Ok(Some(word))),
            Self::Failed(status) => Poll::Ready(Err(status)),
        }
    }
}
