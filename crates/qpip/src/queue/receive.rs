//! [`ReceiveQueue`]: memory that waits for what comes.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::{Credit, Done, Gather, MessageOrigin, append};
use crate::work::{Operation, SharedReceiveQueueId, Status};

/// Room for a message.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) gather: Gather,
}

/// Requests in the order of posting, and those of them that are done.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    requests: VecDeque<Request>,
    done: VecDeque<Done>,
    depth: u32,
    /// The bytes of all requests together.
    bytes: u64,
    /// How much of the first request was reported, with its last part.
    reported: u32,
    /// A part of a request was reported, and nobody has polled it yet.
    is_part_out: bool,
    flushed: Option<Status>,
    /// More is taken from a queue that others take from, too.
    shared: Option<Arc<Credit>>,
    /// Its owner waits there until there is more.
    pub(crate) is_waiting: bool,
}

impl ReceiveQueue {
    pub(crate) const fn new(depth: u32) -> Self {
        Self {
            requests: VecDeque::new(),
            done: VecDeque::new(),
            depth,
            bytes: 0,
            reported: 0,
            is_part_out: false,
            flushed: None,
            shared: None,
            is_waiting: false,
        }
    }

    /// More is taken from a queue that has this.
    pub(crate) fn share(&mut self, credit: Arc<Credit>) {
        self.shared = Some(credit);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() + self.done.len() < self.depth as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// How many requests there are, with those that can be taken from a shared queue.
    #[inline]
    pub(crate) fn prospects(&self) -> u64 {
        let shared = self.shared.as_ref().map_or(0, |shared| shared.requests());
        self.requests.len() as u64 + u64::from(shared)
    }

    /// Where more is taken from than is posted here.
    #[inline]
    pub(crate) fn shared(&self) -> Option<SharedReceiveQueueId> {
        self.shared.as_ref().map(|shared| shared.of)
    }

    /// The bytes of all requests together, with those that a shared queue promises.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        let shared = self.shared.as_ref().map_or(0, |shared| shared.bytes());
        self.bytes + u64::from(shared)
    }

    /// The bytes of the first request, be it one that is taken from a shared queue.
    #[inline]
    pub(crate) fn first_len(&self) -> Option<u32> {
        let own = self.requests.front().map(|front| front.gather.len());
        own.or_else(|| Some(self.shared.as_ref()?.first()).filter(|len| *len > 0))
    }

    /// Adds a request; there must be room.
    pub(crate) fn push(&mut self, id: u64, gather: Gather) {
        self.bytes += u64::from(gather.len());
        append(&mut self.requests, Request { id, gather });
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Request> {
        self.requests.front()
    }

    /// The requests from number `from` on.
    #[inline]
    pub(crate) fn range(&self, from: usize) -> impl Iterator<Item = &Request> {
        self.requests.range(from.min(self.requests.len())..)
    }

    /// The first request holds `len` bytes and is done.
    #[inline]
    pub(crate) fn finish(&mut self, len: u32, ends_message: bool, word: Option<u32>) {
        let origin = word.map_or(MessageOrigin::Peer, MessageOrigin::WithWord);
        self.finish_with(Status::Success, len, ends_message, origin);
    }

    /// The same with what else there is to say.
    pub(crate) fn finish_with(
        &mut self,
        status: Status,
        len: u32,
        ends_message: bool,
        origin: MessageOrigin,
    ) {
        // Nobody has asked for anything: it is told by the end of the connection alone.
        let Some(Request { id, gather }) = self.requests.pop_front() else { return };
        self.bytes -= u64::from(gather.len());
        let offset = core::mem::take(&mut self.reported);
        let len = len.saturating_sub(offset);
        let done = Done {
            id,
            operation: Operation::Receive,
            status,
            len,
            offset,
            ends_message,
            gather: Some(gather),
            origin,
            is_signaled: true,
        };
        append(&mut self.done, done);
    }

    /// `len` bytes of the first request are there, and someone may want to
    /// know. Of parts that nobody has polled there is one at a time: the next
    /// one will tell of all that came meanwhile.
    pub(crate) fn report(&mut self, len: u32, ends_message: bool) {
        if let Some(front) = self.requests.front() {
            if self.is_part_out || len <= self.reported {
                return;
            }
            let offset = core::mem::replace(&mut self.reported, len);
            self.is_part_out = true;
            let done = Done {
                id: front.id,
                operation: Operation::Receive,
                status: Status::Success,
                len: len - offset,
                offset,
                ends_message,
                gather: None,
                origin: MessageOrigin::Peer,
                is_signaled: true,
            };
            append(&mut self.done, done);
        }
    }

    /// The part that was reported last was polled.
    pub(crate) fn part_was_polled(&mut self) {
        self.is_part_out = false;
    }

    /// What is left ends with this status.
    pub(crate) fn flush(&mut self, status: Status) {
        self.flushed = self.flushed.or(Some(status));
    }

    #[inline]
    pub(crate) fn poll_done(&mut self) -> Option<Done> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let status = self.flushed?;
        let got = self.reported;
        self.finish_with(status, got, false, MessageOrigin::Peer);
        self.done.pop_front()
    }
}
