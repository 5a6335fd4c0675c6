//! [`Duplex`]: a byte stream in both directions, whatever carries it. Every kind of
//! stream in this crate is a thin handle to one.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

#[cfg(feature = "qpip")]
use landfall::qpip::MemoryRegion;

use crate::Address;
use crate::errors;
#[cfg(feature = "qpip")]
use crate::qp::{Landed, LentBytes};
use crate::waiting::{Half, Progress, locked};

/// Where the bytes of a stream come from.
pub(crate) trait Source: Send {
    /// Reads what is there into the first of these buffers, then into the next; 0 at the
    /// end. At least one of them has room.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Lends the next bytes that lie in one piece where they landed, this many at most. They are
    /// read when it returns; 0 at the end.
    #[cfg(feature = "qpip")]
    fn poll_read_landed(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        take: &mut dyn FnMut(Landed<'_>),
    ) -> Poll<io::Result<usize>> {
        let _ = (cx, most, take);
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// See [`Progress`].
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// Where the bytes of a stream go.
pub(crate) trait Sink: Send {
    /// Takes bytes of the first of these buffers, then of the next, as many as there is
    /// room for. At least one of them has some.
    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>])
    -> Poll<io::Result<usize>>;

    /// All that was taken is on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Nothing more will be written, and the other side is told.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// The other side hears a reset, and no end, when the stream is dropped.
    #[cfg(feature = "qpip")]
    fn reset_on_drop(&mut self) {}

    /// Registers memory that is sent from where it lies.
    #[cfg(feature = "qpip")]
    fn register(&mut self, len: usize) -> io::Result<Arc<MemoryRegion>> {
        let _ = len;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes all of `head`, and bytes of registered memory behind it, or nothing yet.
    #[cfg(feature = "qpip")]
    fn poll_write_lent(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        bytes: &mut Option<LentBytes>,
    ) -> Poll<io::Result<()>> {
        let _ = (cx, head, bytes);
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// See [`Progress`].
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        let _ = self.poll_flush(cx);
    }

    /// What went wrong since somebody last asked, where no call has told of it.
    fn take_error(&mut self) -> Option<io::Error> {
        None
    }
}

/// The reading side.
struct Reading {
    source: Box<dyn Source>,
    /// What was looked at, and not read.
    peeked: Vec<u8>,
    is_shut: bool,
}

impl Progress for Reading {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.source.make_progress(cx);
    }
}

impl Reading {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if into.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        if !self.peeked.is_empty() {
            let len = scatter(&self.peeked, into);
            self.peeked.drain(..len);
            return Poll::Ready(Ok(len));
        }
        match self.source.poll_read(cx, into) {
            // What had come before is still read.
            Poll::Pending if self.is_shut => Poll::Ready(Ok(0)),
            other => other,
        }
    }

    #[cfg(feature = "qpip")]
    fn poll_read_landed(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        take: &mut dyn FnMut(Landed<'_>),
    ) -> Poll<io::Result<usize>> {
        if !self.peeked.is_empty() {
            return Poll::Ready(Err(errors::invalid("bytes that were peeked at come first")));
        }
        match self.source.poll_read_landed(cx, most, take) {
            Poll::Pending if self.is_shut => Poll::Ready(Ok(0)),
            other => other,
        }
    }

    fn poll_peek(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.peeked.is_empty() && !into.is_empty() {
            let mut bytes = vec![0; into.len()];
            match self.poll_read(cx, &mut [IoSliceMut::new(&mut bytes)]) {
                Poll::Ready(Ok(len)) => bytes.truncate(len),
                other => return other,
            }
            self.peeked = bytes;
        }
        let len = self.peeked.len().min(into.len());
        into[..len].copy_from_slice(&self.peeked[..len]);
        Poll::Ready(Ok(len))
    }
}

/// The writing side.
struct Writing {
    sink: Box<dyn Sink>,
    is_shut: bool,
    is_finished: bool,
}

impl Progress for Writing {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.sink.make_progress(cx);
        if self.is_shut {
            let _ = self.poll_finish(cx);
        }
    }
}

impl Writing {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_shut {
            return Poll::Ready(Err(errors::broken_pipe()));
        }
        if from.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.sink.poll_write(cx, from)
    }

    #[cfg(feature = "qpip")]
    fn poll_write_lent(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        bytes: &mut Option<LentBytes>,
    ) -> Poll<io::Result<()>> {
        if self.is_shut {
            return Poll::Ready(Err(errors::broken_pipe()));
        }
        self.sink.poll_write_lent(cx, head, bytes)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        let finished = self.sink.poll_finish(cx);
        self.is_finished = finished.is_ready();
        finished
    }
}

/// Fills buffers one after another; gives how many bytes had room.
pub(crate) fn scatter(mut bytes: &[u8], into: &mut [IoSliceMut<'_>]) -> usize {
    let before = bytes.len();
    for buffer in into {
        let (now, later) = bytes.split_at(bytes.len().min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        bytes = later;
    }
    before - bytes.len()
}

/// How many bytes several buffers have together.
pub(crate) fn total(buffers: &[impl Deref<Target = [u8]>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

/// What a socket may be told about itself; all handles of it share that.
#[derive(Debug, Default)]
pub(crate) struct Options {
    is_nonblocking: AtomicBool,
    read_timeout: Mutex<Option<Duration>>,
    write_timeout: Mutex<Option<Duration>>,
}

impl Options {
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.is_nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.is_nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_timeout(&self.read_timeout, timeout)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        set_timeout(&self.write_timeout, timeout)
    }

    pub(crate) fn read_timeout(&self) -> Option<Duration> {
        *locked(&self.read_timeout)
    }

    pub(crate) fn write_timeout(&self) -> Option<Duration> {
        *locked(&self.write_timeout)
    }

    /// Reads from a side as these options say.
    pub(crate) fn read<T: Progress + Send + 'static, R>(
        &self,
        side: &Half<T>,
        step: impl FnMut(&mut T, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> io::Result<R> {
        self.run(self.read_timeout(), side, step)
    }

    /// Writes to a side as these options say.
    pub(crate) fn write<T: Progress + Send + 'static, R>(
        &self,
        side: &Half<T>,
        step: impl FnMut(&mut T, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> io::Result<R> {
        self.run(self.write_timeout(), side, step)
    }

    fn run<T: Progress + Send + 'static, R>(
        &self,
        timeout: Option<Duration>,
        side: &Half<T>,
        step: impl FnMut(&mut T, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> io::Result<R> {
        if self.is_nonblocking.load(Ordering::Relaxed) {
            return try_once(side, step);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        side.wait(deadline, step).unwrap_or_else(|| Err(errors::not_yet()))
    }
}

/// One look, whatever the options say.
pub(crate) fn try_once<T: Progress + Send + 'static, R>(
    side: &Half<T>,
    step: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<io::Result<R>>,
) -> io::Result<R> {
    match side.step(step) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(errors::not_yet()),
    }
}

fn set_timeout(place: &Mutex<Option<Duration>>, timeout: Option<Duration>) -> io::Result<()> {
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(errors::invalid(
            "a timeout of zero would never let anything happen: use set_nonblocking",
        ));
    }
    *locked(place) = timeout;
    Ok(())
}

/// A byte stream in both directions, each behind a lock of its own.
pub struct Duplex {
    reading: Arc<Half<Reading>>,
    writing: Arc<Half<Writing>>,
    pub(crate) options: Options,
    pub(crate) local: Address,
    pub(crate) peer: Address,
}

impl Duplex {
    pub(crate) fn new(
        (source, sink): (Box<dyn Source>, Box<dyn Sink>),
        local: Address,
        peer: Address,
    ) -> Arc<Self> {
        let reading = Reading { source, peeked: Vec::new(), is_shut: false };
        let writing = Writing { sink, is_shut: false, is_finished: false };
        Arc::new(Self {
            reading: Half::new(reading),
            writing: Half::new(writing),
            options: Options::default(),
            local,
            peer,
        })
    }

    pub(crate) fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.options.read(&self.reading, |reading, cx| reading.poll_read(cx, into))
    }

    pub(crate) fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.options.read(&self.reading, |reading, cx| reading.poll_peek(cx, into))
    }

    pub(crate) fn write(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.options.write(&self.writing, |writing, cx| writing.poll_write(cx, from))
    }

    #[cfg(feature = "qpip")]
    pub(crate) fn read_landed(
        &self,
        most: usize,
        mut take: impl FnMut(Landed<'_>),
    ) -> io::Result<usize> {
        let step = |reading: &mut Reading, cx: &mut Context<'_>| {
            reading.poll_read_landed(cx, most, &mut take)
        };
        self.options.read(&self.reading, step)
    }

    #[cfg(feature = "qpip")]
    pub(crate) fn register(&self, len: usize) -> io::Result<Arc<MemoryRegion>> {
        self.writing.step(|writing, _| writing.sink.register(len))
    }

    #[cfg(feature = "qpip")]
    pub(crate) fn write_lent(&self, head: &[u8], bytes: LentBytes) -> io::Result<()> {
        let mut bytes = Some(bytes);
        let step = |writing: &mut Writing, cx: &mut Context<'_>| {
            writing.poll_write_lent(cx, head, &mut bytes)
        };
        self.options.write(&self.writing, step)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.options.write(&self.writing, |writing, cx| writing.sink.poll_flush(cx))
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.reading.step(|reading, _| reading.is_shut = true);
            self.reading.rouse();
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            let finished = self.writing.step(Writing::poll_finish);
            self.writing.rouse();
            // What is not said yet is said when there is room for it.
            if let Poll::Ready(result) = finished {
                return result;
            }
        }
        Ok(())
    }

    #[cfg(feature = "qpip")]
    pub(crate) fn reset_on_drop(&self) {
        self.writing.step(|writing, _| writing.sink.reset_on_drop());
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.writing.step(|writing, _| writing.sink.take_error())
    }
}

#[cfg(feature = "tokio")]
impl Duplex {
    pub(crate) fn poll_read(
        &self,
        cx: &Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.reading.poll(cx, |reading, cx| reading.poll_read(cx, into))
    }

    pub(crate) fn poll_peek(&self, cx: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.reading.poll(cx, |reading, cx| reading.poll_peek(cx, into))
    }

    pub(crate) fn try_read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        try_once(&self.reading, |reading, cx| reading.poll_read(cx, into))
    }

    pub(crate) fn poll_write(
        &self,
        cx: &Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writing.poll(cx, |writing, cx| writing.poll_write(cx, from))
    }

    pub(crate) fn try_write(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        try_once(&self.writing, |writing, cx| writing.poll_write(cx, from))
    }

    pub(crate) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll(cx, |writing, cx| writing.sink.poll_flush(cx))
    }

    pub(crate) fn poll_finish(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll(cx, Writing::poll_finish)
    }
}

impl fmt::Debug for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
