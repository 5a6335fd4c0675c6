//! [`ByteStream`] for tokio, like `tokio::net::TcpStream`.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Address;
use crate::duplex::Duplex;
use crate::family::Family;

/// A byte stream for tokio, like `tokio::net::TcpStream`: see
/// [`sockets_compat::ByteStream`](crate::ByteStream), which it is made of and becomes.
pub struct ByteStream<F: Family> {
    duplex: Arc<Duplex>,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> ByteStream<F> {
    pub(crate) const fn of(duplex: Arc<Duplex>) -> Self {
        Self { duplex, family: PhantomData }
    }

    /// The same socket for tasks; its timeouts do not concern them.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(stream: crate::ByteStream<F>) -> io::Result<Self> {
        Ok(Self::of(stream.duplex))
    }

    /// The same socket for threads.
    ///
    /// # Errors
    /// None that is known.
    pub fn into_std(self) -> io::Result<crate::ByteStream<F>> {
        Ok(crate::ByteStream::of(self.duplex))
    }

    /// Where the other side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn peer_addr(&self) -> io::Result<Address> {
        Ok(self.duplex.peer.clone())
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.duplex.local.clone())
    }

    /// Reads what is there, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where nothing is, and those of a read.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.duplex.try_read(&mut [IoSliceMut::new(into)])
    }

    /// The same into several buffers.
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.duplex.try_read(into)
    }

    /// Writes what there is room for, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where there is none, and those of a write.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.duplex.try_write(&[IoSlice::new(bytes)])
    }

    /// The same from several buffers.
    ///
    /// # Errors
    /// As [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.duplex.try_write(from)
    }

    /// Reads without taking: the next read gives the same bytes.
    ///
    /// # Errors
    /// Those of a read.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.duplex.poll_peek(cx, into)).await
    }

    /// What went wrong behind a write that had returned, as `SO_ERROR`.
    ///
    /// # Errors
    /// None that is known.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.duplex.take_error())
    }

    /// Each direction by itself, for as long as this handle is borrowed.
    pub const fn split(&mut self) -> (ReadHalf<'_, F>, WriteHalf<'_, F>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// Each direction by itself, for two tasks. Dropping the writing half ends that
    /// direction.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf<F>, OwnedWriteHalf<F>) {
        let reader = OwnedReadHalf(Self::of(Arc::clone(&self.duplex)));
        (reader, OwnedWriteHalf { stream: self, ends: true })
    }

    fn poll_read_buf(&self, cx: &Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut room = [IoSliceMut::new(into.initialize_unfilled())];
        let read = ready!(self.duplex.poll_read(cx, &mut room))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

/// What is a handle to a stream reads and writes as that does.
macro_rules! through {
    (read $type:ty) => {
        impl<F: Family> AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                into: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.stream().poll_read_buf(cx, into)
            }
        }
    };
    (write $type:ty) => {
        impl<F: Family> AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().duplex.poll_write(cx, &[IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                from: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.stream().duplex.poll_write(cx, from)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.stream().duplex.poll_flush(cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.stream().duplex.poll_finish(cx)
            }
        }
    };
}

impl<F: Family> ByteStream<F> {
    const fn stream(&self) -> &Self {
        self
    }
}

through!(read ByteStream<F>);
through!(write ByteStream<F>);
through!(read ReadHalf<'_, F>);
through!(write WriteHalf<'_, F>);
through!(read OwnedReadHalf<F>);
through!(write OwnedWriteHalf<F>);

/// The reading direction of a borrowed stream.
#[derive(Debug)]
pub struct ReadHalf<'a, F: Family>(&'a ByteStream<F>);

impl<F: Family> ReadHalf<'_, F> {
    const fn stream(&self) -> &ByteStream<F> {
        self.0
    }
}

/// The writing direction of a borrowed stream.
#[derive(Debug)]
pub struct WriteHalf<'a, F: Family>(&'a ByteStream<F>);

impl<F: Family> WriteHalf<'_, F> {
    const fn stream(&self) -> &ByteStream<F> {
        self.0
    }
}

/// The reading direction of a stream.
#[derive(Debug)]
pub struct OwnedReadHalf<F: Family>(ByteStream<F>);

impl<F: Family> OwnedReadHalf<F> {
    /// The whole stream, for its addresses.
    #[must_use]
    pub const fn stream(&self) -> &ByteStream<F> {
        &self.0
    }

    /// The stream again.
    ///
    /// # Errors
    /// Both halves, where they are of two streams.
    pub fn reunite(
        self,
        mut other: OwnedWriteHalf<F>,
    ) -> Result<ByteStream<F>, (Self, OwnedWriteHalf<F>)> {
        if Arc::ptr_eq(&self.0.duplex, &other.stream.duplex) {
            other.ends = false;
            Ok(self.0)
        } else {
            Err((self, other))
        }
    }
}

/// The writing direction of a stream. Dropped, it ends that direction.
#[derive(Debug)]
pub struct OwnedWriteHalf<F: Family> {
    stream: ByteStream<F>,
    /// Its end ends the direction.
    ends: bool,
}

impl<F: Family> OwnedWriteHalf<F> {
    /// The whole stream, for its addresses.
    #[must_use]
    pub const fn stream(&self) -> &ByteStream<F> {
        &self.stream
    }
}

impl<F: Family> Drop for OwnedWriteHalf<F> {
    fn drop(&mut self) {
        if self.ends {
            // A connection that is broken has no direction left to end.
            let _ = self.stream.duplex.shutdown(Shutdown::Write);
        }
    }
}

impl<F: Family> fmt::Debug for ByteStream<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::STREAM)
            .field("local", &format_args!("{}", self.duplex.local))
            .field("peer", &format_args!("{}", self.duplex.peer))
            .finish()
    }
}
