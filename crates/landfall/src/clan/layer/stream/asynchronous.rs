//! Streams for tokio: its traits, on any executor.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::writer::broken;
use super::{Reader, Stream, Writer};
use crate::clan::{Error, Fabric};

// Nothing in them is pinned: all state lies behind shared memory or is plain data.
impl<F: Fabric> Unpin for Reader<F> {}
impl<F: Fabric> Unpin for Writer<F> {}
impl<F: Fabric> Unpin for Stream<F> {}

impl<F: Fabric> AsyncRead for Reader<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(self.poll_take(context, into.initialize_unfilled())) {
            Ok(len) => into.advance(len),
            Err(Error::Closed) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        Poll::Ready(Ok(()))
    }
}

impl<F: Fabric> AsyncWrite for Writer<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(context, bytes).map_err(broken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_publish(context).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_finish(context).map_err(broken)
    }
}

impl<F: Fabric> AsyncRead for Stream<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, into)
    }
}

impl<F: Fabric> AsyncWrite for Stream<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}
