//! [`StpSeqPacket`]: messages, each one Transfer.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::farewell::Farewell;
use super::inbox::Inbox;
use super::outbox::{Outbox, Ticket};
use super::{Connected, Listening, StpHost};
use crate::address::Address;
use crate::duplex::{Options, scatter, try_once};
use crate::errors;
use crate::waiting::{Side, Tend};

/// The reading side.
pub(crate) struct Incoming {
    inbox: Inbox,
    is_shut: bool,
}

impl Tend for Incoming {
    fn tend(&mut self, cx: &mut Context<'_>) {
        self.inbox.tend(cx);
    }
}

impl Incoming {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
        takes: bool,
    ) -> Poll<io::Result<usize>> {
        let Some(message) = ready!(self.poll_front(cx))? else { return Poll::Ready(Ok(0)) };
        let room: usize = into.iter().map(|buffer| buffer.len()).sum();
        if message.len() > room {
            // It stays for a buffer that is long enough.
            return Poll::Ready(Err(errors::too_long()));
        }
        let len = scatter(message, into);
        if takes {
            self.inbox.pop_front(cx);
        }
        Poll::Ready(Ok(len))
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if ready!(self.poll_front(cx))?.is_none() {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(self.inbox.pop_front(cx).map(landfall::stp::Message::into_bytes)))
    }

    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&[u8]>>> {
        let is_shut = self.is_shut;
        match self.inbox.poll_front(cx) {
            // What had come before is still read.
            Poll::Pending if is_shut => Poll::Ready(Ok(None)),
            other => other,
        }
    }
}

/// A socket for messages, whatever handles it has.
pub(crate) struct Packets {
    reading: Arc<Side<Incoming>>,
    writing: Arc<Side<Outbox>>,
    options: Options,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    #[expect(dead_code, reason = "the endpoint's place among the usual ones lives as long")]
    host: StpHost,
}

impl StpHost {
    pub(super) fn packets(&self, connected: Connected) -> Arc<Packets> {
        let Connected { connection, local, peer } = connected;
        let limits = self.0.options.clone();
        let farewell = Arc::new(Farewell::new(connection.clone(), limits.linger));
        let inbox = Inbox::new(connection.clone(), limits.clone(), Arc::clone(&farewell));
        let reading = Side::new(Incoming { inbox, is_shut: false });
        // From now on messages are taken in, whoever reads.
        reading.step(Tend::tend);
        let writing = Side::new(Outbox::new(connection, limits, farewell));
        let (options, host) = (Options::default(), self.clone());
        Arc::new(Packets { reading, writing, options, local, peer, host })
    }
}

impl Packets {
    fn send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = from.iter().map(|part| part.len()).sum();
        if self.options.is_nonblocking() {
            return self.try_send(from);
        }
        let timeout = self.options.write_timeout();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let begun = self.writing.wait(deadline, |outbox, cx| poll_begin(outbox, cx, from));
        let ticket = begun.unwrap_or_else(|| Err(errors::not_yet()))?;
        let waits = Waits { packets: self, ticket };
        let taken = self.writing.wait(deadline, |outbox, cx| outbox.poll_ticket(cx, waits.ticket));
        taken.unwrap_or_else(|| Err(errors::not_yet())).map(|()| len)
    }

    pub(crate) fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = from.iter().map(|part| part.len()).sum();
        try_once(&self.writing, |outbox, cx| outbox.poll_begin(cx, from)).map(|_| len)
    }

    fn shutdown(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.reading.step(|incoming, _| incoming.is_shut = true);
            self.reading.rouse();
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.writing.step(Outbox::end);
            self.writing.rouse();
        }
    }

    pub(crate) fn set_most(&self, most: usize) {
        self.reading.step(|incoming, _| incoming.inbox.set_most(most));
    }

    pub(crate) fn most(&self) -> usize {
        self.reading.step(|incoming, _| incoming.inbox.most())
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.writing.step(|outbox, _| outbox.take_untold())
    }
}

fn poll_begin(
    outbox: &mut Outbox,
    cx: &mut Context<'_>,
    from: &[IoSlice<'_>],
) -> Poll<io::Result<Ticket>> {
    let begun = ready!(outbox.poll_begin(cx, from));
    if let Ok(ticket) = &begun {
        outbox.await_ticket(*ticket);
    }
    Poll::Ready(begun)
}

/// Somebody waits for a message to be taken. Given up, the message goes on; the next
/// call hears what became of it.
struct Waits<'a> {
    packets: &'a Packets,
    ticket: Ticket,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.packets.writing.step(|outbox, _| outbox.leave_ticket(self.ticket));
    }
}

#[cfg(feature = "tokio")]
impl Packets {
    pub(crate) async fn send_async(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        use std::future::poll_fn;
        let len = from.iter().map(|part| part.len()).sum();
        let begin =
            |cx: &mut Context<'_>| self.writing.poll(cx, |outbox, cx| poll_begin(outbox, cx, from));
        let ticket = poll_fn(begin).await?;
        let waits = Waits { packets: self, ticket };
        let taken = |cx: &mut Context<'_>| {
            self.writing.poll(cx, |outbox, cx| outbox.poll_ticket(cx, waits.ticket))
        };
        poll_fn(taken).await.map(|()| len)
    }

    pub(crate) fn poll_send(
        &self,
        cx: &Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = from.iter().map(|part| part.len()).sum();
        self.writing.poll(cx, |outbox, cx| outbox.poll_begin(cx, from)).map_ok(|_| len)
    }

    pub(crate) fn poll_taken(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll(cx, Outbox::poll_taken)
    }

    pub(crate) fn poll_end(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.step(Outbox::end);
        self.poll_taken(cx)
    }

    pub(crate) fn poll_receive(
        &self,
        cx: &Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.reading.poll(cx, |incoming, cx| incoming.poll_receive(cx, into, true))
    }

    pub(crate) fn try_receive(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        try_once(&self.reading, |incoming, cx| incoming.poll_receive(cx, into, true))
    }

    pub(crate) fn poll_message(&self, cx: &Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.reading.poll(cx, Incoming::poll_message)
    }
}

/// A socket for messages: `socket(PF_INET, SOCK_SEQPACKET, IPPROTO_STP)`. Each write is
/// one Transfer, and each read takes a whole one.
///
/// - **A message that the other side has no room for** comes back to its writer as
///   "Message too long" (`EMSGSIZE`), and the connection goes on. How long they may be
///   is the reader's choice ([`set_message_limit`](Self::set_message_limit)).
/// - **A buffer that is too short for the message that is there** is the same error at
///   the reader. Nothing is cut off: the message stays for a longer one.
/// - **A write that waits** returns when the other side has taken the message in; one
///   that does not wait ([`set_nonblocking`](Self::set_nonblocking)) returns when it is
///   on its way, and the next call tells what became of it.
/// - **An empty message** is one, and a read of it gives 0, as the end does;
///   [`recv_message`](Self::recv_message) tells the two apart.
///
/// ```
/// use sockets_compat::{StpListener, StpSeqPacket};
///
/// let listener = StpListener::bind("stp://127.0.0.1:7/udp/0")?;
/// let client = StpSeqPacket::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
/// server.set_message_limit(16);
///
/// assert_eq!(client.send(b"hello")?, 5);
/// let too_long = client.send(&[0; 17]).unwrap_err();
/// assert_eq!(too_long.to_string(), "Message too long (os error 90)");
///
/// assert!(server.recv(&mut [0; 4]).is_err(), "it is longer than that, and stays");
/// let mut message = [0; 16];
/// assert_eq!(server.recv(&mut message)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StpSeqPacket(pub(crate) Arc<Packets>);

impl StpSeqPacket {
    pub(crate) const fn of(packets: Arc<Packets>) -> Self {
        Self(packets)
    }

    /// Sends a message, and waits until the other side has taken it in.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the other side takes. `EAGAIN`: the time is over;
    /// where the message was on its way, it still is. Else the connection is over.
    pub fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(message)])
    }

    /// Sends one message from several buffers.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_vectored(&self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(message)
    }

    /// Receives a whole message; 0 bytes at the end, too.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays. `EAGAIN`: nothing came in
    /// time. Else the connection broke.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(into)])
    }

    /// Receives a whole message into several buffers.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.options.read(&self.0.reading, |side, cx| side.poll_receive(cx, into, true))
    }

    /// Looks at a whole message without taking it.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut into = [IoSliceMut::new(into)];
        self.0.options.read(&self.0.reading, |side, cx| side.poll_receive(cx, &mut into, false))
    }

    /// Receives a message where it landed, without a copy; nothing at the end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but never for its length.
    pub fn recv_message(&self) -> io::Result<Option<Bytes>> {
        self.0.options.read(&self.0.reading, Incoming::poll_message)
    }

    /// The longest message that is taken in; those that were before are not concerned.
    pub fn set_message_limit(&self, most: usize) {
        self.0.set_most(most);
    }

    /// The longest message that is taken in.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        self.0.most()
    }

    /// Ends one direction, or both: behind the last message the other side reads 0.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how);
        Ok(())
    }

    /// Another handle to the same socket.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(Arc::clone(&self.0)))
    }

    /// Where the other side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn peer_addr(&self) -> io::Result<Address> {
        Ok(self.0.peer.clone())
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.0.local.clone())
    }

    /// Whether calls give [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a read waits; then it gives [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.options.set_read_timeout(timeout)
    }

    /// How long a write waits: see [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.options.set_write_timeout(timeout)
    }

    /// What became of a message that no call waited for, if it was not taken.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.take_error())
    }
}

impl Read for &StpSeqPacket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.recv(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(into)
    }
}

impl Write for &StpSeqPacket {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.send(message)
    }

    fn write_vectored(&mut self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(message)
    }

    /// Waits until the other side has taken in all that is on its way.
    fn flush(&mut self) -> io::Result<()> {
        self.0.options.write(&self.0.writing, Outbox::poll_taken)
    }
}

impl Read for StpSeqPacket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for StpSeqPacket {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        (&*self).write(message)
    }

    fn write_vectored(&mut self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(message)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl fmt::Debug for StpSeqPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StpSeqPacket")
            .field("local", &format_args!("{}", self.0.local))
            .field("peer", &format_args!("{}", self.0.peer))
            .finish()
    }
}

/// Where sockets for messages come in.
pub(crate) struct Port {
    side: Arc<Side<Listening>>,
    options: Options,
    pub(crate) local: Address,
}

impl Tend for Listening {
    fn tend(&mut self, _: &mut Context<'_>) {}
}

impl Port {
    pub(super) fn open(host: &StpHost, port: u16) -> io::Result<Arc<Self>> {
        let listening = Listening::open(host, port)?;
        let local = listening.local.clone();
        Ok(Arc::new(Self { side: Side::new(listening), options: Options::default(), local }))
    }

    fn accept(&self) -> io::Result<Arc<Packets>> {
        self.options.read(&self.side, poll_accept)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
        self.side.poll(cx, poll_accept)
    }
}

fn poll_accept(listening: &mut Listening, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
    let connected = ready!(listening.poll_accept(cx))?;
    Poll::Ready(Ok(listening.host.packets(connected)))
}

/// Where [`StpSeqPacket`]s come in. Dropped, none do any more.
pub struct StpListener(pub(crate) Arc<Port>);

impl StpListener {
    pub(crate) const fn of(port: Arc<Port>) -> Self {
        Self(port)
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where it may not wait, or not longer.
    pub fn accept(&self) -> io::Result<(StpSeqPacket, Address)> {
        let packets = self.0.accept()?;
        let peer = packets.peer.clone();
        Ok((StpSeqPacket(packets), peer))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.0.local.clone())
    }

    /// Whether [`accept`](Self::accept) gives [`io::ErrorKind::WouldBlock`] instead of
    /// waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long [`accept`](Self::accept) waits; `None` waits for ever.
    ///
    /// # Errors
    /// A timeout of zero.
    pub fn set_accept_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.options.set_read_timeout(timeout)
    }
}

impl fmt::Debug for StpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StpListener").field("local", &format_args!("{}", self.0.local)).finish()
    }
}
