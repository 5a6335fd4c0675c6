//! [`SeqPacket`] for tokio: what is for tasks alone.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{SeqPacket, read_into};
use crate::family::Messages;

impl<F: Messages> SeqPacket<F> {
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
}

impl<F: Messages> AsyncRead for SeqPacket<F> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        read_into(into, |room| self.packets.poll_receive(cx, room))
    }
}

/// Each write puts one message on its way and waits for nothing more; a flush does, and
/// tells what became of those before.
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
