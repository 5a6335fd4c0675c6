//! [`ClanSeqPacket`]: messages over shared memory, on this host or across hosts.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::messages::{Incoming, Outgoing};
use super::stream::{Arrivals, Ends};
use crate::address::Address;
use crate::duplex::Options;
use crate::waiting::{Side, Tend};

/// A socket for messages, whatever handles it has.
pub(crate) struct Packets {
    reading: Arc<Side<Incoming>>,
    writing: Arc<Side<Outgoing>>,
    options: Options,
    pub(crate) local: Address,
    pub(crate) peer: Address,
    /// The longest message that the other side takes, and this one.
    limits: (u64, u64),
}

impl Packets {
    fn new(ends: Ends, most_here: u64) -> Arc<Self> {
        let Ends { source, sink, local, peer, most, linger } = ends;
        Arc::new(Self {
            reading: Side::new(Incoming::new(source, most_here)),
            writing: Side::new(Outgoing::new(sink, most, linger)),
            options: Options::default(),
            local,
            peer,
            limits: (most, most_here),
        })
    }

    fn shutdown(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.reading.step(|incoming, _| incoming.shut());
            self.reading.rouse();
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.writing.step(Outgoing::end);
            self.writing.rouse();
        }
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.writing.step(|outgoing, _| outgoing.take_untold())
    }

    pub(crate) const fn limits(&self) -> (usize, usize) {
        (self.limits.0 as usize, self.limits.1 as usize)
    }
}

#[cfg(feature = "tokio")]
impl Packets {
    pub(crate) fn poll_send(
        &self,
        cx: &Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writing.poll(cx, |outgoing, cx| outgoing.poll_begin(cx, from))
    }

    pub(crate) fn try_send(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        crate::duplex::try_once(&self.writing, |outgoing, cx| outgoing.poll_begin(cx, from))
    }

    pub(crate) fn poll_taken(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll(cx, Outgoing::poll_push)
    }

    pub(crate) fn poll_end(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.writing.step(Outgoing::end);
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
        crate::duplex::try_once(&self.reading, |side, cx| side.poll_receive(cx, into, true))
    }

    pub(crate) fn poll_message(&self, cx: &Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.reading.poll(cx, Incoming::poll_message)
    }
}

/// A socket for messages over shared memory, like `SOCK_SEQPACKET` of Unix: to a process of
/// this host, or to another host. Each write is one message, and each read takes a whole one.
///
/// - **A message that is longer than the other side takes** is "Message too long"
///   (`EMSGSIZE`) at its writer, and the connection goes on. How long they may be each side
///   says when they meet ([`ClanOptions::message`](crate::ClanOptions::message)).
/// - **A buffer that is too short for the message that is there** is the same error at the
///   reader. Nothing is cut off: the message stays for a longer one.
/// - **A write** returns when its message is on its way: as many as fit into the ring are, and
///   one more. [`flush`](Write::flush) waits until that is in it, too.
/// - **An empty message** is one, and a read of it gives 0, as the end does;
///   [`recv_message`](Self::recv_message) tells the two apart.
///
/// ```
/// use sockets_compat::{ClanSeqPacket, ClanSeqPacketListener};
///
/// let listener = ClanSeqPacketListener::bind("clan://127.0.0.1:7/udp/0")?;
/// let client = ClanSeqPacket::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
///
/// assert_eq!(client.send(b"hello")?, 5);
/// assert!(server.recv(&mut [0; 4]).is_err(), "it is longer than that, and stays");
/// let mut message = [0; 16];
/// assert_eq!(server.recv(&mut message)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ClanSeqPacket(pub(crate) Arc<Packets>);

impl ClanSeqPacket {
    pub(super) fn of(ends: Ends, most_here: u64) -> Self {
        Self(Packets::new(ends, most_here))
    }

    /// Sends a message, once there is room for its beginning.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the other side takes. `EAGAIN`: the time is over, and
    /// nothing of it was sent. Else the connection is over.
    pub fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(message)])
    }

    /// Sends one message from several buffers.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_vectored(&self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.options.write(&self.0.writing, |side, cx| side.poll_begin(cx, message))
    }

    /// Receives a whole message; 0 bytes at the end, too.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays. `EAGAIN`: nothing came in time.
    /// Else the connection broke.
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

    /// Receives a message, however long it is; nothing at the end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but never for its length.
    pub fn recv_message(&self) -> io::Result<Option<Bytes>> {
        self.0.options.read(&self.0.reading, Incoming::poll_message)
    }

    /// The longest message that the other side takes.
    #[must_use]
    pub fn peer_message_limit(&self) -> usize {
        self.0.limits().0
    }

    /// The longest message that this side takes.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        self.0.limits().1
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

    /// What went wrong behind a write that had returned.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.take_error())
    }
}

impl Read for &ClanSeqPacket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.recv(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(into)
    }
}

impl Write for &ClanSeqPacket {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.send(message)
    }

    fn write_vectored(&mut self, message: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(message)
    }

    /// Waits until the message before is in the ring.
    fn flush(&mut self) -> io::Result<()> {
        self.0.options.write(&self.0.writing, Outgoing::poll_push)
    }
}

impl Read for ClanSeqPacket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for ClanSeqPacket {
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

impl fmt::Debug for ClanSeqPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClanSeqPacket")
            .field("local", &format_args!("{}", self.0.local))
            .field("peer", &format_args!("{}", self.0.peer))
            .finish()
    }
}

/// Where sockets for messages come in.
pub(crate) struct Port {
    side: Arc<Side<Coming>>,
    options: Options,
    pub(crate) local: Address,
}

struct Coming {
    arrivals: Box<dyn Arrivals>,
    most: u64,
}

impl Tend for Coming {
    fn tend(&mut self, _: &mut Context<'_>) {}
}

impl Coming {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
        let ends = ready!(self.arrivals.poll_ends(cx))?;
        Poll::Ready(Ok(Packets::new(ends, self.most)))
    }
}

#[cfg(feature = "tokio")]
impl Port {
    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
        self.side.poll(cx, Coming::poll_accept)
    }
}

/// Where [`ClanSeqPacket`]s come in. Dropped, none do any more.
pub struct ClanSeqPacketListener(pub(crate) Arc<Port>);

impl ClanSeqPacketListener {
    pub(super) fn of(arrivals: Box<dyn Arrivals>, local: Address, most: u64) -> Self {
        let side = Side::new(Coming { arrivals, most });
        Self(Arc::new(Port { side, options: Options::default(), local }))
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where it may not wait, or not longer.
    pub fn accept(&self) -> io::Result<(ClanSeqPacket, Address)> {
        let packets = self.0.options.read(&self.0.side, Coming::poll_accept)?;
        let peer = packets.peer.clone();
        Ok((ClanSeqPacket(packets), peer))
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

impl fmt::Debug for ClanSeqPacketListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClanSeqPacketListener")
            .field("local", &format_args!("{}", self.0.local))
            .finish()
    }
}
