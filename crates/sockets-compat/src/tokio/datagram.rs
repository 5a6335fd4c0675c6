//! [`QpDatagram`] for tokio.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use crate::address::{Address, ToAddress};
use crate::qp::socket_of;

/// A socket for datagrams, for tasks: see
/// [`sockets_compat::QpDatagram`](crate::QpDatagram).
#[derive(Clone, Debug)]
pub struct QpDatagram(crate::QpDatagram);

impl QpDatagram {
    /// The same socket for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub const fn from_std(socket: crate::QpDatagram) -> io::Result<Self> {
        Ok(Self(socket))
    }

    /// Receives a datagram, and where it comes from. Cancelled, it takes none.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays.
    pub async fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from_vectored(&mut [IoSliceMut::new(into)]).await
    }

    /// The same into several buffers, one after another.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from), where all of them together are too short.
    pub async fn recv_from_vectored(
        &self,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.0.poll_recv_from_vectored(cx, into)).await
    }

    /// Receives a datagram of whom this is connected to, or of anybody.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_from(into).await.map(|(len, _)| len)
    }

    /// The same into several buffers, one after another.
    ///
    /// # Errors
    /// As [`recv_from_vectored`](Self::recv_from_vectored).
    pub async fn recv_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_from_vectored(into).await.map(|(len, _)| len)
    }

    /// Sends a datagram: `qp://HOST:PORT`, or a [`SocketAddr`]. Cancelled, it sends none.
    ///
    /// # Errors
    /// `EMSGSIZE`: no datagram is so long. Or it is empty.
    pub async fn send_to(&self, datagram: &[u8], to: impl ToAddress) -> io::Result<usize> {
        self.send_to_vectored(&[IoSlice::new(datagram)], to).await
    }

    /// Sends one datagram from several buffers. Cancelled, it sends none.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub async fn send_to_vectored(
        &self,
        datagram: &[IoSlice<'_>],
        to: impl ToAddress,
    ) -> io::Result<usize> {
        let to = socket_of(&to)?;
        poll_fn(|cx| self.0.poll_send_to_vectored(cx, datagram, Some(to))).await
    }

    /// Sends a datagram to whom this is connected to. Cancelled, it sends none.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), and where it is connected to nobody.
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(datagram)]).await
    }

    /// Sends one datagram from several buffers to whom this is connected to. Cancelled, it
    /// sends none.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_vectored(&self, datagram: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.0.poll_send_to_vectored(cx, datagram, None)).await
    }

    /// From now on it sends there, and hears nobody else.
    ///
    /// # Errors
    /// That is no address for this.
    pub fn connect(&self, to: impl ToAddress) -> io::Result<()> {
        self.0.connect(to)
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        self.0.local_addr()
    }
}
