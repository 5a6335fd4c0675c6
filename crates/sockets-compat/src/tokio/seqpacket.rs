//! [`StpSeqPacket`] and [`StpListener`] for tokio.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::address::{Address, ToAddress};
use crate::stp::{Packets, Port, StpHost};

/// A socket for messages, for tasks: see
/// [`sockets_compat::StpSeqPacket`](crate::StpSeqPacket).
///
/// As `AsyncWrite` each write puts one message on its way and does not wait until it was
/// taken; a flush does, and tells what became of those before. [`send`](Self::send)
/// waits for its own.
#[derive(Clone)]
pub struct StpSeqPacket(Arc<Packets>);

impl StpSeqPacket {
    /// Connects to a port of STP: `stp://10.0.0.1:7`. Cancelled, it gives up.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody listens, `TimedOut` where nobody
    /// answers; or that is no address of STP.
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        StpHost::connect_packets(address).await.map(Self)
    }

    /// Connects by a host of one's own: see [`connect`](Self::connect).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_by(host: &StpHost, address: impl ToAddress) -> io::Result<Self> {
        host.connect_packets_by(address).await.map(Self)
    }

    /// The same socket for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(socket: crate::StpSeqPacket) -> io::Result<Self> {
        Ok(Self(socket.0))
    }

    /// The same socket for threads.
    ///
    /// # Errors
    /// None that is known.
    pub fn into_std(self) -> io::Result<crate::StpSeqPacket> {
        Ok(crate::StpSeqPacket(self.0))
    }

    /// Sends a message, and waits until the other side has taken it in.
    ///
    /// Cancelled before there was room for it, it is not sent; later it is on its way,
    /// and the next call tells what became of it.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the other side takes. Else the connection is over.
    pub async fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.0.send_async(&[IoSlice::new(message)]).await
    }

    /// Puts a message on its way, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where there is no room, and those of
    /// [`send`](Self::send) for the messages before.
    pub fn try_send(&self, message: &[u8]) -> io::Result<usize> {
        self.0.try_send(&[IoSlice::new(message)])
    }

    /// Receives a whole message; 0 bytes at the end, too. Cancelled, it takes none.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays. Else the connection broke.
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut into = [IoSliceMut::new(into)];
        poll_fn(|cx| self.0.poll_receive(cx, &mut into)).await
    }

    /// Receives without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and those of [`recv`](Self::recv).
    pub fn try_recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_receive(&mut [IoSliceMut::new(into)])
    }

    /// Receives a message where it landed, without a copy; nothing at the end. Cancelled,
    /// it takes none.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but never for its length.
    pub async fn recv_message(&self) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.0.poll_message(cx)).await
    }

    /// The longest message that is taken in from now on.
    pub fn set_message_limit(&self, most: usize) {
        self.0.set_most(most);
    }

    /// The longest message that is taken in.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        self.0.most()
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

    /// What became of a message that no call waited for, if it was not taken.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.take_error())
    }
}

impl AsyncRead for StpSeqPacket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = [IoSliceMut::new(into.initialize_unfilled())];
        let read = ready!(self.0.poll_receive(cx, &mut room))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StpSeqPacket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        message: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send(cx, &[IoSlice::new(message)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        message: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send(cx, message)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_taken(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_end(cx)
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

/// Where [`StpSeqPacket`]s come in, for tasks.
pub struct StpListener(Arc<Port>);

impl StpListener {
    /// Listens at a port of STP: see [`sockets_compat::StpListener`](crate::StpListener).
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        crate::StpListener::bind(address).map(|listener| Self(listener.0))
    }

    /// The same listener for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(listener: crate::StpListener) -> io::Result<Self> {
        Ok(Self(listener.0))
    }

    /// The next connection, and where it comes from. Cancelled, it takes none.
    ///
    /// # Errors
    /// What carries the listener is over.
    pub async fn accept(&self) -> io::Result<(StpSeqPacket, Address)> {
        let packets = poll_fn(|cx| self.0.poll_accept(cx)).await?;
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
}

impl fmt::Debug for StpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StpListener").field("local", &format_args!("{}", self.0.local)).finish()
    }
}
