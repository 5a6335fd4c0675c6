//! [`ByteStream`] for tokio, like `tokio::net::TcpStream`: what is for tasks alone.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{ByteStream, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf, read_into};
use crate::family::Family;

impl<F: Family> ByteStream<F> {
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
                read_into(into, |room| self.stream().duplex.poll_read(cx, room))
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

through!(read ByteStream<F>);
through!(write ByteStream<F>);
through!(read ReadHalf<'_, F>);
through!(write WriteHalf<'_, F>);
through!(read OwnedReadHalf<F>);
through!(write OwnedWriteHalf<F>);
