//! Bytes that go over a queue pair: copied once, into a ring of registered memory, where
//! they stay until they are acknowledged.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall::qpip::{
    Access, CompletionQueue, Memory, MemoryRegion, Part, Phase, PostError, Status,
};

use super::connection::Wire;
use super::{QpHost, broken, ended, failed};
use crate::duplex::Sink;
use crate::errors;
use crate::waiting::poll_once;

/// So many sends are under way at a time.
pub(super) const DEPTH: u32 = 64;

/// The ring: what is posted lies in it one after another, and is done in that order.
pub(super) struct Ring {
    memory: MemoryRegion,
    len: usize,
    /// Where the next byte goes.
    at: usize,
    free: usize,
    under_way: VecDeque<usize>,
    pub(super) done: CompletionQueue,
}

impl Ring {
    pub(super) fn new(host: &QpHost) -> io::Result<Self> {
        Self::of(host, host.options.send_buffer.max(4096))
    }

    pub(super) fn of(host: &QpHost, len: usize) -> io::Result<Self> {
        let memory = host.domain.register(Memory::zeroed(len), Access::Read);
        let memory = memory.map_err(|error| failed(error.into()))?;
        let done = host.adapter.completion_queue(DEPTH).map_err(failed)?;
        Ok(Self { memory, len, at: 0, free: len, under_way: VecDeque::new(), done })
    }

    /// Frees what is done; an error where something was not.
    pub(super) fn reap(&mut self) -> Result<(), Status> {
        let mut result = Ok(());
        while let Some(completion) = self.done.poll() {
            if completion.ends_request {
                self.free += self.under_way.pop_front().unwrap_or_default();
            }
            if !completion.status.is_success() && result.is_ok() {
                result = Err(completion.status);
            }
        }
        result
    }

    /// Room for so many bytes; a waker is told when there may be.
    pub(super) fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
        least: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.free >= least && self.under_way.len() < DEPTH as usize {
                return Poll::Ready(Ok(self.free));
            }
            // Dropped, this future loses nothing: it only waits.
            match poll_once(cx, self.done.ready()) {
                Poll::Ready(Ok(())) => self.reap().map_err(broken)?,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(errors::reset())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Copies bytes in, as many as there is room for, and gives where they lie.
    fn fill(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut filled = 0;
        for part in from {
            let mut rest = &part[..part.len().min(self.free - filled)];
            while !rest.is_empty() {
                let at = (self.at + filled) % self.len;
                let (now, later) = rest.split_at(rest.len().min(self.len - at));
                self.memory.copy_in(at as u64, now).map_err(failed)?;
                filled += now.len();
                rest = later;
            }
        }
        Ok(filled)
    }

    /// Copies bytes in and posts them; gives how many.
    pub(super) fn post(
        &mut self,
        from: &[IoSlice<'_>],
        post: impl FnOnce(&[Part]) -> Result<(), PostError>,
    ) -> io::Result<Result<usize, PostError>> {
        let len = self.fill(from)?;
        let first = len.min(self.len - self.at);
        let part = |start: usize, len: usize| {
            self.memory.part(start as u64..(start + len) as u64).map_err(failed)
        };
        let parts = [part(self.at, first)?, part(0, len - first)?];
        let count = if len > first { 2 } else { 1 };
        Ok(post(&parts[..count]).map(|()| {
            self.at = (self.at + len) % self.len;
            self.free -= len;
            self.under_way.push_back(len);
            len
        }))
    }
}

/// The writing direction of a connection.
pub(super) struct Sends {
    ring: Ring,
    wire: Arc<Wire>,
    broken: Option<Status>,
    is_finished: bool,
}

impl Sends {
    pub(super) const fn new(ring: Ring, wire: Arc<Wire>) -> Self {
        Self { ring, wire, broken: None, is_finished: false }
    }

    fn check(&mut self) -> io::Result<()> {
        if let Err(status) = self.ring.reap() {
            self.broken = self.broken.or(Some(status));
        }
        match (self.broken, self.wire.with(|live| live.pair.phase())) {
            (_, Some(Phase::Closed(why))) => Err(ended(why)),
            (Some(status), _) => Err(broken(status)),
            _ => Ok(()),
        }
    }
}

impl Sink for Sends {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        match self.ring.poll_room(cx, 1) {
            Poll::Ready(Ok(_)) => {}
            other => return other,
        }
        let Self { ring, wire, .. } = self;
        let posted = ring.post(from, |parts| {
            wire.with(|live| live.pair.post_send(0, parts)).unwrap_or(Err(PostError::Ended))
        });
        match posted? {
            Ok(len) => Poll::Ready(Ok(len)),
            Err(PostError::Ended) => {
                Poll::Ready(Err(self.check().err().unwrap_or_else(errors::broken_pipe)))
            }
            Err(other) => Poll::Ready(Err(io::Error::other(other))),
        }
    }

    /// What is posted is on its way.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        self.is_finished = true;
        match self.wire.with(|live| live.pair.shutdown()) {
            Some(Err(_)) => Poll::Ready(Err(io::Error::from_raw_os_error(libc::ENOTCONN))),
            _ => Poll::Ready(Ok(())),
        }
    }
}
