//! The send queue of a queue pair: messages, and what is done to the other side's memory.
//!
//! Requests are done in their order. STP carries Transfers independently of Puts, Gets and
//! FetchOps, so a message does not begin before all that was done to memory ahead of it is in
//! place, and the other way round; those of one kind are under way at the same time. A Put or a
//! FetchOp may overtake a Get that was asked for before, and so waits for it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::keys::{MemoryKey, RemoteKeys};
use super::{HAS_WORD, NUMBERS, status_of};
use crate::stp::{
    Connection, Failed, Operation, Part, Payload, Put, Received, RemoteMemory, Sent, WordFunction,
};
use crate::verbs::Status;
use crate::verbs::software::Posted;

/// What a request is to do.
#[derive(Debug)]
pub enum Request {
    Message { payload: Payload, word: Option<u32> },
    Write { from: Vec<Part>, key: MemoryKey, at: u64 },
    Read { into: Vec<Part>, key: MemoryKey, at: u64 },
    Atomic { into: Part, key: MemoryKey, at: u64, function: WordFunction },
}

impl Request {
    const fn key(&self) -> Option<&MemoryKey> {
        match self {
            Self::Message { .. } => None,
            Self::Write { key, .. } | Self::Read { key, .. } | Self::Atomic { key, .. } => {
                Some(key)
            }
        }
    }

    const fn changes_memory(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Atomic { .. })
    }
}

/// What of it is under way.
enum Work {
    Message(Several<Sent>),
    Write(Several<Put>),
    Read(Several<Received>),
    Atomic(Operation<u64>, Part),
}

/// Operations that are done when all of them are.
struct Several<T> {
    left: Vec<Operation<T>>,
    failed: Option<Status>,
}

impl<T> Several<T> {
    fn new(operations: impl IntoIterator<Item = Operation<T>>) -> Self {
        Self { left: operations.into_iter().map(Operation::start_later).collect(), failed: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status>
    where
        Operation<T>: Future<Output = Result<T, Failed>> + Unpin,
    {
        let Self { left, failed } = self;
        left.retain_mut(|operation| match Pin::new(operation).poll(cx) {
            Poll::Pending => true,
            Poll::Ready(done) => {
                let why = done.err().map(|why| status_of(&why));
                *failed = failed.or(why);
                false
            }
        });
        if left.is_empty() { Poll::Ready(failed.unwrap_or(Status::Success)) } else { Poll::Pending }
    }
}

#[derive(Default)]
pub(super) struct SendQueue {
    waiting: VecDeque<(Posted, Request)>,
    /// They are of one kind. What could not begin has its status already.
    begun: VecDeque<(Posted, Result<Work, Status>)>,
    /// Are those messages? Otherwise they concern memory.
    are_messages: bool,
    /// The number of the next Transfer.
    next: u32,
    keys: RemoteKeys,
}

impl SendQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.begun.len()
    }

    pub(super) fn post(&mut self, posted: Posted, request: Request) {
        self.waiting.push_back((posted, request));
    }

    /// Begins what may begin now.
    pub(super) fn begin(&mut self, connection: &Connection, cx: &mut Context<'_>) {
        let before = self.begun.len();
        while let Some((_, request)) = self.waiting.front() {
            let is_message = request.key().is_none();
            if !self.begun.is_empty() && is_message != self.are_messages {
                break;
            }
            if request.changes_memory() && self.has_begun_a_read() {
                break;
            }
            let memory = match request.key().map(|key| self.keys.find(key, connection, cx)) {
                None => Ok(None),
                Some(Poll::Ready(memory)) => memory.map(Some),
                Some(Poll::Pending) => break,
            };
            self.are_messages = is_message;
            if let Some((posted, request)) = self.waiting.pop_front() {
                let work = memory.map(|memory| start(request, memory, connection, &mut self.next));
                self.begun.push_back((posted, work));
            }
        }
        if self.begun.len() > before {
            connection.turn();
        }
    }

    /// Is memory of the other side read that has not come yet?
    fn has_begun_a_read(&self) -> bool {
        self.begun.iter().any(|(_, work)| matches!(work, Ok(Work::Read(_))))
    }

    /// The next request that is done, and how.
    pub(super) fn next_done(&mut self, cx: &mut Context<'_>) -> Option<(Posted, Status)> {
        let (posted, work) = self.begun.front_mut()?;
        let done = match work {
            Err(status) => (*posted, *status),
            Ok(work) => match work.poll(cx) {
                Poll::Pending => return None,
                Poll::Ready(status) => (*posted, status),
            },
        };
        self.begun.pop_front();
        Some(done)
    }

    /// All that are left: their turn does not come.
    pub(super) fn flush(&mut self) -> Vec<Posted> {
        let begun = self.begun.drain(..).map(|(posted, _)| posted);
        begun.chain(self.waiting.drain(..).map(|(posted, _)| posted)).collect()
    }
}

fn start(
    request: Request,
    memory: Option<RemoteMemory>,
    connection: &Connection,
    next: &mut u32,
) -> Work {
    match (request, memory) {
        (Request::Write { from, at, .. }, Some(memory)) => {
            let places = places(&from, at);
            Work::Write(Several::new(places.map(|(part, at)| memory.put(at, part))))
        }
        (Request::Read { into, at, .. }, Some(memory)) => {
            let places = places(&into, at);
            Work::Read(Several::new(places.map(|(part, at)| memory.get_into(at, part))))
        }
        (Request::Atomic { into, at, function, .. }, Some(memory)) => {
            let word = memory.fetch_op(at, crate::stp::WordWidth::Eight, function);
            Work::Atomic(word.start_later(), into)
        }
        (Request::Message { payload, word }, _) => {
            let mut number = |bit: u32| {
                let number = *next;
                *next = (number + 1) % NUMBERS;
                number | bit
            };
            let message = connection.send(payload);
            let message = message.opaque(number(if word.is_some() { HAS_WORD } else { 0 }));
            let word = word.map(|word| {
                let bytes = word.to_le_bytes().to_vec();
                connection.send(bytes).opaque(number(0))
            });
            Work::Message(Several::new([Some(message), word].into_iter().flatten()))
        }
        (Request::Write { .. } | Request::Read { .. } | Request::Atomic { .. }, None) => {
            unreachable!("it has a key, whose memory was found")
        }
    }
}

/// Where each of these parts lies in the memory of the other side.
fn places(parts: &[Part], at: u64) -> impl Iterator<Item = (&Part, u64)> {
    parts.iter().scan(at, |at, part| {
        let here = *at;
        *at += part.len();
        Some((part, here))
    })
}

impl Work {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        match self {
            Self::Message(all) => all.poll(cx),
            Self::Write(all) => all.poll(cx),
            Self::Read(all) => all.poll(cx),
            Self::Atomic(word, into) => Pin::new(word).poll(cx).map(|held| match held {
                Ok(held) => match into.copy_in(&held.to_le_bytes()) {
                    Ok(()) => Status::Success,
                    Err(_) => Status::MemoryGone,
                },
                Err(why) => status_of(&why),
            }),
        }
    }
}
