//! Bytes that go over a queue pair: copied once, into a ring of registered memory, or in memory
//! that others have filled. There they stay until they are acknowledged.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall::qpip::{Access, CompletionQueue, Memory, MemoryRegion, Part, PostError, Status};

use super::{QpHost, broken, failed};
use crate::errors;
use crate::waiting::poll_once;

/// This many sends are under way at a time.
pub(super) const DEPTH: u32 = 64;

/// The ring: what is posted lies in it one after another, and is done in that order.
pub(super) struct Ring {
    memory: Arc<MemoryRegion>,
    len: usize,
    /// Where the next byte goes.
    at: usize,
    free: usize,
    under_way: VecDeque<Sending>,
    /// How many of these are of memory that somebody wants back.
    lent: usize,
    pub(super) done: CompletionQueue,
}

/// A send that is under way.
#[derive(Default)]
struct Sending {
    /// Bytes in the ring.
    len: usize,
    lent: Option<LentBytes>,
}

/// Bytes of registered memory that others have filled.
pub(crate) struct LentBytes {
    pub(super) region: Arc<MemoryRegion>,
    pub(super) range: Range<u64>,
    /// Called when nobody sends them any more. Dropped without that, they may be sent for as
    /// long as the connection lingers.
    pub(super) sent: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for LentBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBytes").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Ring {
    pub(super) fn of(host: &QpHost, len: usize) -> io::Result<Self> {
        Self::over(host, Self::register(host, len)?)
    }

    /// Memory for a ring.
    pub(super) fn register(host: &QpHost, len: usize) -> io::Result<Arc<MemoryRegion>> {
        let memory = host.domain.register(Memory::zeroed(len), Access::Read);
        memory.map(Arc::new).map_err(|error| failed(error.into()))
    }

    /// A ring in memory that nobody else uses.
    pub(super) fn over(host: &QpHost, memory: Arc<MemoryRegion>) -> io::Result<Self> {
        let (done, len) =
            (host.adapter.completion_queue(DEPTH).map_err(failed)?, memory.len() as usize);
        Ok(Self { memory, len, at: 0, free: len, under_way: VecDeque::new(), lent: 0, done })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn memory(&self) -> &Arc<MemoryRegion> {
        &self.memory
    }

    /// Frees what is done; an error where something was not.
    pub(super) fn reap(&mut self) -> Result<(), Status> {
        let mut result = Ok(());
        while let Some(completion) = self.done.poll() {
            if completion.ends_request {
                let Sending { len, lent } = self.under_way.pop_front().unwrap_or_default();
                self.free += len;
                if let Some(lent) = lent {
                    self.lent -= 1;
                    lent.sent.into_iter().for_each(|sent| sent());
                }
            }
            if !completion.status.is_success() && result.is_ok() {
                result = Err(completion.status);
            }
        }
        result
    }

    /// Room for this many bytes; a waker is told when there may be.
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

    /// While lent memory is under way: frees what is done, and has the waker told of more. Its
    /// owner waits for it, whether or not anything more is written.
    pub(super) fn watch(&mut self, cx: &mut Context<'_>) {
        while self.lent > 0 {
            // Dropped, this future loses nothing: it only waits.
            match poll_once(cx, self.done.ready()) {
                // What went wrong each write finds out by the connection's phase.
                Poll::Ready(Ok(())) => _ = self.reap(),
                Poll::Ready(Err(_)) => {
                    // Nothing is told any more: their owners hear that by the drop.
                    self.under_way.clear();
                    self.lent = 0;
                }
                Poll::Pending => return,
            }
        }
    }

    /// Nobody may wait for lent memory any more: the last bytes can take long to arrive.
    pub(super) fn forget_waiting(&mut self) {
        let lent = self.under_way.iter_mut().filter_map(|sending| sending.lent.as_mut());
        lent.for_each(|lent| lent.sent = None);
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
        let ([first, second], count) = self.parts(len)?;
        Ok(post(&[first, second][..count]).map(|()| {
            self.begin(Sending { len, lent: None });
            len
        }))
    }

    /// Copies a head in, for which there is room, and posts it with lent bytes behind it.
    pub(super) fn post_lent(
        &mut self,
        head: &[u8],
        bytes: &mut Option<LentBytes>,
        post: impl FnOnce(&[Part]) -> Result<(), PostError>,
    ) -> io::Result<Result<(), PostError>> {
        let Some(lent) = bytes else { return Ok(Ok(())) };
        let len = self.fill(&[IoSlice::new(head)])?;
        let ([first, second], count) = self.parts(len)?;
        let behind = lent.region.part(lent.range.clone()).map_err(failed)?;
        let posted = match (len, count) {
            (0, _) => post(&[behind]),
            (_, 1) => post(&[first, behind]),
            _ => post(&[first, second, behind]),
        };
        Ok(posted.map(|()| {
            self.lent += 1;
            self.begin(Sending { len, lent: bytes.take() });
        }))
    }

    /// Where the next bytes lie, and in how many parts.
    fn parts(&self, len: usize) -> io::Result<([Part; 2], usize)> {
        let first = len.min(self.len - self.at);
        let part = |start: usize, len: usize| {
            self.memory.part(start as u64..(start + len) as u64).map_err(failed)
        };
        Ok(([part(self.at, first)?, part(0, len - first)?], if len > first { 2 } else { 1 }))
    }

    fn begin(&mut self, sending: Sending) {
        self.at = (self.at + sending.len) % self.len;
        self.free -= sending.len;
        self.under_way.push_back(sending);
    }
}
