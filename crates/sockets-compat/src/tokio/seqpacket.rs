//! [`SeqPacket`] and its listener for tokio.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Address;
use crate::family::Messages;
use crate::listener::Hall;
use crate::packets::Packets;

/// A socket for messages, for tasks: see [`sockets_compat::SeqPacket`](crate::SeqPacket),
/// which it is made of and becomes.
///
/// As `AsyncWrite` each write puts one message on its way and waits for nothing more; a
/// flush does, and tells what became of those before. [`send`](Self::send) waits for its
/// own, as the family's writes do.
pub struct SeqPacket<F: Messages> {
    packets: Arc<Packets>,
    family: PhantomData<fn() -> F>,
}

impl<F: Messages> SeqPacket<F> {
    pub(super) const fn of(packets: Arc<Packets>) -> Self {
        Self { packets, family: PhantomData }
    }

    /// The same socket for tasks; its timeouts do not concern them.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(socket: crate::SeqPacket<F>) -> io::Result<Self> {
        Ok(Self::of(socket.packets))
    }

    /// The same socket for threads.
    ///
    /// # Errors
    /// None that is known.
    pub fn into_std(self) -> io::Result<crate::SeqPacket<F>> {
        Ok(crate::SeqPacket::of(self.packets))
    }

    /// Sends a message, and waits for as long as a write of this family does.
    ///
    /// Cancelled before there was room for it, it is not sent; later it is on its way,
    /// and the next call tells what became of it.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the other side takes. Else the connection is over.
    pub async fn send(&self, message: &[u8]) -> io::Result<usize> {
        self.packets.send_async(&[IoSlice::new(message)]).await
    }

    /// Puts a message on its way, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where there is no room, and those of
    /// [`send`](Self::send), for the messages before, too.
    pub fn try_send(&self, message: &[u8]) -> io::Result<usize> {
        self.packets.try_send(&[IoSlice::new(message)])
    }

    /// Receives a whole message; 0 bytes at the end, too. Cancelled, it takes none.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays. Else the connection broke.
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut into = [IoSliceMut::new(into)];
        poll_fn(|cx| self.packets.poll_receive(cx, &mut into)).await
    }

    /// Receives without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and those of [`recv`](Self::recv).
    pub fn try_recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.packets.try_receive(&mut [IoSliceMut::new(into)])
    }

    /// Receives a message where it landed, however long it is; nothing at the end.
    /// Cancelled, it takes none.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but never for its length.
    pub async fn recv_message(&self) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| self.packets.poll_message(cx)).await
    }

    /// The longest message that this side takes.
    #[must_use]
    pub fn message_limit(&self) -> usize {
        self.packets.most()
    }

    /// The longest message that the other side takes, where it has said so; with STP its
    /// writer hears of it.
    #[must_use]
    pub fn peer_message_limit(&self) -> Option<usize> {
        self.packets.peer_most
    }

    /// Where the other side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn peer_addr(&self) -> io::Result<Address> {
        Ok(self.packets.peer.clone())
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.packets.local.clone())
    }

    /// What went wrong behind a write that had returned, or with a message that no call
    /// waited for.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.packets.take_error())
    }
}

#[cfg(feature = "clan")]
impl SeqPacket<crate::Clan> {
    /// Connects to a service for messages: `clan:///FOLDER#NAME` or `clan://HOST:PORT`. The
    /// two processes meet on a thread of its own; cancelled, the connection is closed when
    /// it is there.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanSeqPacket::connect`](crate::ClanSeqPacket::connect).
    pub async fn connect(address: impl crate::ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(crate::errors::invalid)?;
        let connect = move || crate::ClanSeqPacket::connect(address);
        Self::from_std(super::connect::elsewhere(connect).await?)
    }
}

#[cfg(feature = "stp")]
impl SeqPacket<crate::Stp> {
    /// Connects to a port of STP: `stp://10.0.0.1:7`. Cancelled, it gives up.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody listens, `TimedOut` where nobody
    /// answers; or that is no address of STP.
    pub async fn connect(address: impl crate::ToAddress) -> io::Result<Self> {
        crate::StpHost::connect_packets(address).await.map(Self::of)
    }

    /// Connects by a host of one's own: see [`connect`](Self::connect).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_by(
        host: &crate::StpHost,
        address: impl crate::ToAddress,
    ) -> io::Result<Self> {
        host.connect_packets_by(address).await.map(Self::of)
    }

    /// The longest message that is taken in from now on.
    pub fn set_message_limit(&self, most: usize) {
        self.packets.set_most(most);
    }
}

impl<F: Messages> Clone for SeqPacket<F> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.packets))
    }
}

impl<F: Messages> AsyncRead for SeqPacket<F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = [IoSliceMut::new(into.initialize_unfilled())];
        let read = ready!(self.packets.poll_receive(cx, &mut room))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<F: Messages> AsyncWrite for SeqPacket<F> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        message: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.packets.poll_send(cx, &[IoSlice::new(message)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        message: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.packets.poll_send(cx, message)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.packets.poll_taken(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.packets.poll_end(cx)
    }
}

impl<F: Messages> fmt::Debug for SeqPacket<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::SEQPACKET)
            .field("local", &format_args!("{}", self.packets.local))
            .field("peer", &format_args!("{}", self.packets.peer))
            .finish()
    }
}

/// Where [`SeqPacket`]s come in, for tasks: see
/// [`sockets_compat::SeqPacketListener`](crate::SeqPacketListener), which it is made of.
pub struct SeqPacketListener<F: Messages> {
    hall: Arc<Hall<Packets>>,
    family: PhantomData<fn() -> F>,
}

impl<F: Messages> SeqPacketListener<F> {
    /// The same listener for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(listener: crate::SeqPacketListener<F>) -> io::Result<Self> {
        Ok(Self { hall: listener.hall, family: PhantomData })
    }

    /// The next connection, and where it comes from. Cancelled, it takes none.
    ///
    /// # Errors
    /// What carries the listener is over.
    pub async fn accept(&self) -> io::Result<(SeqPacket<F>, Address)> {
        let packets = poll_fn(|cx| self.hall.poll_accept(cx)).await?;
        let peer = packets.peer.clone();
        Ok((SeqPacket::of(packets), peer))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.hall.local.clone())
    }
}

#[cfg(feature = "clan")]
impl SeqPacketListener<crate::Clan> {
    /// Lets sockets for messages come in: see
    /// [`sockets_compat::ClanSeqPacketListener`](crate::ClanSeqPacketListener).
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl crate::ToAddress) -> io::Result<Self> {
        Self::from_std(crate::ClanSeqPacketListener::bind(address)?)
    }
}

#[cfg(feature = "stp")]
impl SeqPacketListener<crate::Stp> {
    /// Listens at a port of STP: see [`sockets_compat::StpListener`](crate::StpListener).
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl crate::ToAddress) -> io::Result<Self> {
        Self::from_std(crate::StpListener::bind(address)?)
    }
}

impl<F: Messages> fmt::Debug for SeqPacketListener<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::SEQPACKET_LISTENER)
            .field("local", &format_args!("{}", self.hall.local))
            .finish()
    }
}
