//! [`Packets`]: messages in both directions, whatever carries them. Every kind of socket
//! for messages in this crate is a thin handle to one.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;

use crate::Address;
use crate::duplex::{Options, scatter, total, try_once};
use crate::errors;
use crate::waiting::{Half, Progress};

/// Where messages come from.
pub(crate) trait Inflow: Progress + Send {
    /// The message that is next, where it lies; nothing at the end.
    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&[u8]>>>;

    /// Takes the message that is next, if it is here.
    fn pop_front(&mut self, cx: &mut Context<'_>) -> Option<Bytes>;

    /// The longest message that is taken in.
    fn most(&self) -> usize;

    /// Changes that, where the other side was not told of it once and for all.
    #[cfg(feature = "stp")]
    fn set_most(&mut self, most: usize) {
        let _ = most;
    }
}

/// The name of a message that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// Where messages go.
pub(crate) trait Outflow: Progress + Send {
    /// Puts a message on its way, once there is room for it. Where a write waits until its
    /// message is taken, and this one does, there is a ticket for that.
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
        waits: bool,
    ) -> Poll<io::Result<Option<Ticket>>>;

    /// What became of a message that somebody waits for.
    fn poll_ticket(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> Poll<io::Result<()>>;

    /// Nobody waits for this one any more; it is on its way all the same.
    fn leave_ticket(&mut self, ticket: Ticket);

    /// All that was begun is where a flush wants it.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Nothing more will be sent, and the other side is told.
    fn end(&mut self, cx: &mut Context<'_>);

    /// What went wrong, if no call has told of it.
    fn take_untold(&mut self) -> Option<io::Error>;
}

/// The reading side.
struct Reading {
    inflow: Box<dyn Inflow>,
    is_shut: bool,
}

impl Progress for Reading {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.inflow.make_progress(cx);
    }
}

impl Reading {
    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&[u8]>>> {
        let is_shut = self.is_shut;
        match self.inflow.poll_front(cx) {
            // What had come before is still read.
            Poll::Pending if is_shut => Poll::Ready(Ok(None)),
            other => other,
        }
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
        takes: bool,
    ) -> Poll<io::Result<usize>> {
        let Some(message) = ready!(self.poll_front(cx))? else { return Poll::Ready(Ok(0)) };
        if message.len() > total(into) {
            // It stays for a buffer that is long enough.
            return Poll::Ready(Err(errors::too_long()));
        }
        let len = scatter(message, into);
        if takes {
            self.inflow.pop_front(cx);
        }
        Poll::Ready(Ok(len))
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if ready!(self.poll_front(cx))?.is_none() {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(self.inflow.pop_front(cx)))
    }
}

/// The writing side.
struct Writing(Box<dyn Outflow>);

impl Progress for Writing {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.0.make_progress(cx);
    }
}

/// Messages in both directions, each behind a lock of its own.
pub struct Packets {
    reading: Arc<Half<Reading>>,
    writing: Arc<Half<Writing>>,
    pub(crate) options: Options,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    /// The longest message that the other side takes, where it has said so.
    pub(crate) peer_most: Option<usize>,
}

impl Packets {
    pub(crate) fn new(
        (inflow, outflow): (Box<dyn Inflow>, Box<dyn Outflow>),
        local: Address,
        peer: Address,
        peer_most: Option<usize>,
    ) -> Arc<Self> {
        let reading = Half::new(Reading { inflow, is_shut: false });
        // From now on messages are taken in, no matter who reads.
        reading.step(Progress::make_progress);
        let writing = Half::new(Writing(outflow));
        let options = Options::default();
        Arc::new(Self { reading, writing, options, local, peer, peer_most })
    }

    pub(crate) fn send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.options.is_nonblocking() {
            return self.try_send(from);
        }
        let timeout = self.options.write_timeout();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut sending = Sending { packets: self, from, ticket: None };
        let sent = self.writing.wait(deadline, |writing, cx| sending.poll(writing, cx));
        sent.unwrap_or_else(|| Err(errors::not_yet()))
    }

    /// Sends without waiting, whatever the options say.
    pub(crate) fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        try_once(&self.writing, |writing, cx| writing.0.poll_begin(cx, from, false))?;
        Ok(total(from))
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.options.write(&self.writing, |writing, cx| writing.0.poll_taken(cx))
    }

    pub(crate) fn receive(&self, into: &mut [IoSliceMut<'_>], takes: bool) -> io::Result<usize> {
        self.options.read(&self.reading, |reading, cx| reading.poll_receive(cx, into, takes))
    }

    pub(crate) fn message(&self) -> io::Result<Option<Bytes>> {
        self.options.read(&self.reading, Reading::poll_message)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.reading.step(|reading, _| reading.is_shut = true);
            self.reading.rouse();
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.writing.step(|writing, cx| writing.0.end(cx));
            self.writing.rouse();
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.reading.step(|reading, _| reading.inflow.most())
    }

    #[cfg(feature = "stp")]
    pub(crate) fn set_most(&self, most: usize) {
        self.reading.step(|reading, _| reading.inflow.set_most(most));
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.writing.step(|writing, _| writing.0.take_untold())
    }
}

/// A message that is sent, and waited for until it is taken. Given up before there was room
/// for it, it is not sent; later it goes on, and the next call hears what became of it.
struct Sending<'a> {
    packets: &'a Packets,
    from: &'a [IoSlice<'a>],
    /// It is on its way.
    ticket: Option<Ticket>,
}

impl Sending<'_> {
    fn poll(&mut self, writing: &mut Writing, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ticket.is_none() {
            self.ticket = ready!(writing.0.poll_begin(cx, self.from, true))?;
        }
        if let Some(ticket) = self.ticket {
            ready!(writing.0.poll_ticket(cx, ticket))?;
        }
        Poll::Ready(Ok(total(self.from)))
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.packets.writing.step(|writing, _| writing.0.leave_ticket(ticket));
        }
    }
}

#[cfg(feature = "tokio")]
impl Packets {
    pub(crate) async fn send_async(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sending = Sending { packets: self, from, ticket: None };
        std::future::poll_fn(|cx| self.writing.poll(cx, |writing, cx| sending.poll(writing, cx)))
            .await
    }

    pub(crate) fn poll_send(
        &self,
        cx: &Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let begun = self.writing.poll(cx, |writing, cx| writing.0.poll_begin(cx, from, false));
        begun.map_ok(|_| total(from))
    }

    pub(crate) fn poll_taken(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll(cx, |writing, cx| writing.0.poll_taken(cx))
    }

    pub(crate) fn poll_end(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.step(|writing, cx| writing.0.end(cx));
        self.poll_taken(cx)
    }

    pub(crate) fn poll_receive(
        &self,
        cx: &Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.reading.poll(cx, |reading, cx| reading.poll_receive(cx, into, true))
    }

    pub(crate) fn try_receive(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        try_once(&self.reading, |reading, cx| reading.poll_receive(cx, into, true))
    }

    pub(crate) fn poll_message(&self, cx: &Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.reading.poll(cx, Reading::poll_message)
    }
}

impl fmt::Debug for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
