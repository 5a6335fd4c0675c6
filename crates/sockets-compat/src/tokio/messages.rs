//! [`ClanSeqPacket`] and its listener for tokio.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::elsewhere;
use crate::address::{Address, ToAddress};
use crate::clan::{Packets, Port};

/// A socket for messages over shared memory, for tasks: see
/// [`sockets_compat::ClanSeqPacket`](crate::ClanSeqPacket).
#[derive(Clone)]
pub struct ClanSeqPacket(Arc<Packets>);

impl ClanSeqPacket {
    /// Connects to a service for messages: `clan:///FOLDER#NAME` or `clan://HOST:PORT`. The
    /// two processes meet on a thread of its own; cancelled, the connection is closed when
    /// it is there.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanSeqPacket::connect`](crate::ClanSeqPacket::connect).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(crate::errors::invalid)?;
        let socket = elsewhere(move || crate::ClanSeqPacket::connect(address)).await?;
        Self::from_std(socket)
    }

    /// The same socket for tasks; its timeouts do not concern them.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(socket: crate::ClanSeqPacket) -> io::Result<Self> {
        Ok(Self(socket.0))
    }

    /// The same socket for threads.
    ///
    /// # Errors
    /// None that is known.
    pub fn into_std(self) -> io::Result<crate::ClanSeqPacket> {
        Ok(crate::ClanSeqPacket(self.0))
    }

    /// Sends a message, once there is room for its beginning. Cancelled, it is not sent.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the other side takes. Else the connection is over.
    pub async fn send(&self, message: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.0.poll_send(cx, &[IoSlice::new(message)])).await
    }

    /// Sends a message, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where there is no room, and those of
    /// [`send`](Self::send).
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

    /// Receives a message, however long it is; nothing at the end. Cancelled, it takes none.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but never for its length.
    pub async fn recv_message(&self) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.0.poll_message(cx)).await
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

    /// What went wrong behind a write that had returned.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.take_error())
    }
}

impl AsyncRead for ClanSeqPacket {
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

impl AsyncWrite for ClanSeqPacket {
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

impl fmt::Debug for ClanSeqPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClanSeqPacket")
            .field("local", &format_args!("{}", self.0.local))
            .field("peer", &format_args!("{}", self.0.peer))
            .finish()
    }
}

/// Where [`ClanSeqPacket`]s come in, for tasks.
pub struct ClanSeqPacketListener(Arc<Port>);

impl ClanSeqPacketListener {
    /// Lets sockets for messages come in: see
    /// [`sockets_compat::ClanSeqPacketListener`](crate::ClanSeqPacketListener).
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        crate::ClanSeqPacketListener::bind(address).map(|listener| Self(listener.0))
    }

    /// The same listener for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(listener: crate::ClanSeqPacketListener) -> io::Result<Self> {
        Ok(Self(listener.0))
    }

    /// The next connection, and where it comes from. Cancelled, it takes none.
    ///
    /// # Errors
    /// What carries the listener is over.
    pub async fn accept(&self) -> io::Result<(ClanSeqPacket, Address)> {
        let packets = poll_fn(|cx| self.0.poll_accept(cx)).await?;
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
}

impl fmt::Debug for ClanSeqPacketListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClanSeqPacketListener")
            .field("local", &format_args!("{}", self.0.local))
            .finish()
    }
}
