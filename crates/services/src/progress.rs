//! A stream that fails where it makes no progress, and counts what it moves.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::server::Observer;

/// Around a stream: when for so long nobody has moved a byte while somebody waits to, the wait
/// ends with [`io::ErrorKind::TimedOut`].
pub(crate) struct Progressing<S> {
    stream: S,
    limit: Duration,
    observer: Arc<dyn Observer>,
    last: Instant,
    timer: Pin<Box<Sleep>>,
}

impl<S> Progressing<S> {
    pub(crate) fn new(stream: S, limit: Duration, observer: Arc<dyn Observer>) -> Self {
        let timer = Box::pin(tokio::time::sleep(limit));
        Self { stream, limit, observer, last: Instant::now(), timer }
    }

    pub(crate) const fn get_ref(&self) -> &S {
        &self.stream
    }

    fn moved(&mut self, received: usize, sent: usize) {
        if received + sent > 0 {
            self.last = Instant::now();
            self.observer.moved(received as u64, sent as u64);
        }
    }

    /// Nothing can be done now: is that so for too long?
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        // Progress does not set the timer, that costs: it looks when it expires.
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = self.last + self.limit;
            if due <= Instant::now() {
                let why = format!("no progress for {:?}", self.limit);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Progressing<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, into) {
            Poll::Pending => this.wait(cx),
            done => {
                this.moved(into.filled().len() - before, 0);
                done
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Progressing<S> {
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.wait(cx),
            done => {
                if let Poll::Ready(Ok(len)) = done {
                    self.moved(0, len);
                }
                done
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Progressing<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.after_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, from);
        this.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Pending => this.wait(cx),
            done => done,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_shutdown(cx) {
            Poll::Pending => this.wait(cx),
            done => done,
        }
    }
}
