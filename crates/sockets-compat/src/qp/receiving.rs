//! Bytes that come over a queue pair: memory is posted in slots, and read where it was
//! filled.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall::qpip::{
    Access, Adapter, CloseReason, Completion, Error, Memory, MemoryRegion, Phase, QueuePair, Status,
};

use super::connection::Wire;
use super::{QpHost, broken, ended, failed};
use crate::duplex::Source;
use crate::errors;
use crate::waiting::poll_once;

/// Memory for what comes, in slots that are posted one by one.
pub(super) struct Slots {
    memory: MemoryRegion,
    slot: u64,
}

impl Slots {
    /// So many, that some are posted while others are read.
    pub(super) const COUNT: u32 = 8;

    pub(super) fn new(host: &QpHost) -> io::Result<Self> {
        let slot = host.options.receive_buffer.div_ceil(Self::COUNT as usize).max(2048);
        let memory = Memory::zeroed(slot * Self::COUNT as usize);
        let memory =
            host.domain.register(memory, Access::Write).map_err(|error| failed(error.into()))?;
        Ok(Self { memory, slot: slot as u64 })
    }

    pub(super) fn post_all(&self, pair: &mut QueuePair) -> io::Result<()> {
        (0..u64::from(Self::COUNT)).try_for_each(|slot| self.post(pair, slot))
    }

    fn post(&self, pair: &mut QueuePair, slot: u64) -> io::Result<()> {
        let part = self.memory.part(slot * self.slot..(slot + 1) * self.slot).map_err(failed)?;
        pair.post_receive(slot, &[part]).map_err(io::Error::other)
    }
}

/// The reading direction of a connection.
pub(super) struct Receives {
    slots: Slots,
    wire: Arc<Wire>,
    adapter: Adapter,
    ready: VecDeque<Filled>,
    /// Nothing more comes.
    over: Option<Status>,
}

/// Bytes that are there.
struct Filled {
    slot: u64,
    at: u64,
    len: usize,
    /// The slot is used up with them.
    is_last: bool,
}

impl Receives {
    pub(super) const fn new(slots: Slots, wire: Arc<Wire>, adapter: Adapter) -> Self {
        Self { slots, wire, adapter, ready: VecDeque::new(), over: None }
    }

    fn hear_all(&mut self) {
        while let Some(Some(completion)) = self.wire.with(|live| live.received.poll()) {
            self.hear(&completion);
        }
    }

    fn hear(&mut self, completion: &Completion) {
        if !completion.status.is_success() {
            self.over = self.over.or(Some(completion.status));
            return;
        }
        self.ready.push_back(Filled {
            slot: completion.id,
            at: u64::from(completion.offset),
            len: completion.len as usize,
            is_last: completion.ends_request,
        });
    }

    /// The next bytes go into this buffer, as many as there are of one piece.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(front) = self.ready.front_mut() else { return Ok(0) };
        let len = front.len.min(into.len());
        let at = front.slot * self.slots.slot + front.at;
        self.slots.memory.copy_out(at, &mut into[..len]).map_err(failed)?;
        front.at += len as u64;
        front.len -= len;
        self.release();
        Ok(len)
    }

    /// A slot that was read goes back to where it is filled.
    fn release(&mut self) {
        while self.ready.front().is_some_and(|front| front.len == 0) {
            let Some(front) = self.ready.pop_front() else { return };
            if front.is_last && self.over.is_none() {
                // Refused only when the connection is over: then nothing is to come.
                let slots = &self.slots;
                let _ = self.wire.with(|live| slots.post(&mut live.pair, front.slot));
            }
        }
    }

    /// Nothing is there, and nothing comes: is that the end, or worse?
    fn how_it_ended(&self, status: Status) -> io::Result<usize> {
        let phase = self.wire.with(|live| live.pair.phase());
        match (status, phase) {
            (Status::Flushed, Some(Phase::Closed(why))) => match why {
                CloseReason::Finished | CloseReason::Aborted => Ok(0),
                why => Err(ended(why)),
            },
            (Status::Flushed, _) => Ok(0),
            (status, _) => Err(broken(status)),
        }
    }
}

impl Source for Receives {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            self.hear_all();
            self.release();
            if !self.ready.is_empty() {
                break;
            }
            if let Some(status) = self.over {
                return Poll::Ready(self.how_it_ended(status));
            }
            // Where nothing was posted when it came, no completion tells of the end.
            if let Some(Poll::Ready(finished)) =
                self.wire.with(|live| poll_once(cx, live.pair.peer_finished()))
            {
                self.hear_all();
                if self.ready.is_empty() {
                    // It may have found no room for what came before the end: any command
                    // lets it hand that over.
                    let _ = self.adapter.domain();
                    self.hear_all();
                }
                if self.ready.iter().all(|filled| filled.len == 0) {
                    return Poll::Ready(match finished {
                        Ok(()) | Err(Error::Ended(CloseReason::Aborted)) => Ok(0),
                        Err(error) => Err(failed(error)),
                    });
                }
                break;
            }
            // Dropped, these futures lose nothing: they only wait.
            match self.wire.with(|live| poll_once(cx, live.received.ready())) {
                Some(Poll::Ready(Ok(()))) => {}
                Some(Poll::Pending) => return Poll::Pending,
                _ => return Poll::Ready(Err(errors::reset())),
            }
        }
        let mut filled = 0;
        for buffer in into {
            let mut at = 0;
            while at < buffer.len() && !self.ready.is_empty() {
                at += self.take(&mut buffer[at..])?;
            }
            filled += at;
        }
        Poll::Ready(Ok(filled))
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.hear_all();
        if self.ready.iter().any(|filled| filled.len > 0) {
            self.wire.leave_unread();
        }
    }
}
