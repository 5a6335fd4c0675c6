//! [`ReceiveQueue`]: memory that waits for what comes.

use alloc::collections::VecDeque;
use core::net::SocketAddr;

use super::{Done, Gather, append};
use crate::work::{Operation, Status};

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
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.requests.len() + self.done.len() < self.depth as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The bytes of all requests together.
    #[inline]
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
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
    pub(crate) fn finish(&mut self, len: u32, ends_message: bool) {
        self.finish_with(Status::Success, len, ends_message, None);
    }

    /// The same with what else there is to say.
    pub(crate) fn finish_with(
        &mut self,
        status: Status,
        len: u32,
        ends_message: bool,
        from: Option<SocketAddr>,
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
            from,
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
                from: None,
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
        self.finish_with(status, got, false, None);
        self.done.pop_front()
    }
}
