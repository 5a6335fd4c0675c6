//! A byte stream over STP: each write one Transfer, whose bytes are read as they lie.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::{Connected, Farewell, Limits, Listening, StpHost};
use crate::duplex::{Duplex, Sink, Source, scatter};
use crate::listener::Accept;
use crate::packets::Outflow;
use crate::waiting::Tend;

/// The longest piece: Transfers of that length are carried well.
const PIECE: usize = 128 << 10;

impl StpHost {
    pub(super) fn duplex(&self, connected: Connected) -> Arc<Duplex> {
        let Connected { connection, local, peer } = connected;
        // A piece is never too long.
        let mut limits: Limits = self.0.options.clone();
        limits.message = limits.message.max(PIECE);
        let farewell = Arc::new(Farewell::new(connection.clone(), limits.linger));
        let inbox = Inbox::new(connection.clone(), limits.clone(), Arc::clone(&farewell));
        let outbox = Outbox::new(connection, limits, farewell);
        let source = Pieces { inbox, at: 0, host: self.clone() };
        Duplex::new((Box::new(source), Box::new(outbox)), local, peer)
    }
}

/// What comes.
struct Pieces {
    inbox: Inbox,
    /// So much of the piece that is due was read.
    at: usize,
    #[expect(dead_code, reason = "the endpoint's place among the usual ones lives as long")]
    host: StpHost,
}

impl Source for Pieces {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = 0;
        loop {
            let piece = match self.inbox.poll_front(cx) {
                Poll::Ready(Ok(Some(piece))) => piece,
                // What comes behind bytes that are here is told by the next read.
                _ if filled > 0 => return Poll::Ready(Ok(filled)),
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(0)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            let len = scatter(&piece[self.at..], into);
            let is_used_up = self.at + len == piece.len();
            self.at += len;
            filled += len;
            if is_used_up {
                self.at = 0;
                self.inbox.pop_front(cx);
            }
            IoSliceMut::advance_slices(&mut into, len);
            if into.iter().all(|buffer| buffer.is_empty()) {
                return Poll::Ready(Ok(filled));
            }
        }
    }

    fn tend(&mut self, cx: &mut Context<'_>) {
        self.inbox.tend(cx);
    }
}

impl Sink for Outbox {
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut piece = Vec::with_capacity(from.len());
        let mut len = 0;
        for part in from.iter().filter(|part| !part.is_empty()) {
            let some = part.len().min(PIECE - len);
            piece.push(IoSlice::new(&part[..some]));
            len += some;
            if len == PIECE {
                break;
            }
        }
        ready!(self.poll_start(cx, &piece))?;
        Poll::Ready(Ok(len))
    }

    /// Each piece is on its way with the write. Whether it was taken a flush does not
    /// wait for: two sides that both write before they read would wait for each other.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Tend::tend(self, cx);
        Poll::Ready(self.take_untold().map_or(Ok(()), Err))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end(cx);
        Poll::Ready(Ok(()))
    }

    fn tend(&mut self, cx: &mut Context<'_>) {
        Tend::tend(self, cx);
    }

    fn take_error(&mut self) -> Option<io::Error> {
        self.take_untold()
    }
}

/// Byte streams that come in.
pub(super) struct Streams(pub(super) Listening);

impl Accept<Duplex> for Streams {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Duplex>>> {
        match ready!(self.0.poll_accept(cx)) {
            Ok(connected) => Poll::Ready(Ok(self.0.host.duplex(connected))),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
