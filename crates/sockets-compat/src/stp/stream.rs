//! A byte stream over STP: each write one Transfer, whose bytes are read as they lie;
//! [`StpSeqPacket`]: messages, each one Transfer.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::{CloseGuard, Connected, Limits, Listening, StpHost};
use crate::duplex::{Duplex, Sink, Source, scatter};
use crate::family::{Mode, Stp};
use crate::listener::{Accept, Listener};
use crate::packets::{Inflow, Outflow, Packets};
use crate::seqpacket::SeqPacket;
use crate::waiting::Progress;

/// The longest piece: Transfers of that length are carried well.
const PIECE: usize = 128 << 10;

impl StpHost {
    pub(super) fn duplex(&self, connected: Connected) -> Arc<Duplex> {
        let Connected { connection, local, peer } = connected;
        // A piece is never too long.
        let mut limits: Limits = self.0.options.clone();
        limits.message = limits.message.max(PIECE);
        let close_guard = Arc::new(CloseGuard::new(connection.clone(), limits.linger));
        let inbox = Inbox::new(connection.clone(), limits.clone(), Arc::clone(&close_guard));
        let outbox = Outbox::new(connection, limits, close_guard);
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

    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.inbox.make_progress(cx);
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
        Progress::make_progress(self, cx);
        Poll::Ready(self.take_untold().map_or(Ok(()), Err))
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end(cx);
        Poll::Ready(Ok(()))
    }

    fn make_progress(&mut self, cx: &mut Context<'_>) {
        Progress::make_progress(self, cx);
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

/// A socket for messages: `socket(PF_INET, SOCK_SEQPACKET, IPPROTO_STP)`. Each write is
/// one Transfer, and each read takes a whole one.
///
/// - **A message that the other side has no room for** comes back to its writer as
///   "Message too long" (`EMSGSIZE`), and the connection goes on. How long they may be
///   is the reader's choice ([`set_message_limit`](Self::set_message_limit)).
/// - **A buffer that is too short for the message that is there** is the same error at
///   the reader. Nothing is cut off: the message stays for a longer one.
/// - **A write that waits** returns when the other side has taken the message in; one
///   that does not wait ([`set_nonblocking`](Self::set_nonblocking)) returns when it is
///   on its way, and the next call tells what became of it.
/// - **An empty message** is one, and a read of it gives 0, as the end does;
///   [`recv_message`](Self::recv_message) tells the two apart.
///
/// ```
/// use sockets_compat::{StpListener, StpSeqPacket};
///
/// let listener = StpListener::bind("stp://127.0.0.1:7/udp/0")?;
/// let client = StpSeqPacket::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
/// server.set_message_limit(16);
///
/// assert_eq!(client.send(b"hello")?, 5);
/// let too_long = client.send(&[0; 17]).unwrap_err();
/// assert_eq!(too_long.to_string(), "Message too long (os error 90)");
///
/// assert!(server.recv(&mut [0; 4]).is_err(), "it is longer than that, and stays");
/// let mut message = [0; 16];
/// assert_eq!(server.recv(&mut message)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub type StpSeqPacket = SeqPacket<Stp>;

/// Where [`StpSeqPacket`]s come in. Dropped, none do any more.
pub type StpListener = Listener<StpSeqPacket>;

impl<M: Mode> SeqPacket<Stp, M> {
    /// The longest message that is taken in from now on; those that were before are not
    /// concerned.
    pub fn set_message_limit(&self, most: usize) {
        self.packets.set_most(most);
    }
}

impl StpHost {
    pub(super) fn packets(&self, connected: Connected) -> Arc<Packets> {
        let Connected { connection, local, peer } = connected;
        let limits = self.0.options.clone();
        let close_guard = Arc::new(CloseGuard::new(connection.clone(), limits.linger));
        let inbox = Inbox::new(connection.clone(), limits.clone(), Arc::clone(&close_guard));
        let incoming = Box::new(Incoming { inbox, host: self.clone() });
        let outgoing = Box::new(Outbox::new(connection, limits, close_guard));
        Packets::new((incoming, outgoing), local, peer, None)
    }

    pub(super) fn listener(&self, port: u16) -> io::Result<StpListener> {
        let listening = Listening::open(self, port)?;
        let local = listening.local.clone();
        Ok(Listener::open(MessageAcceptor(listening), local))
    }
}

/// What comes.
struct Incoming {
    inbox: Inbox,
    #[expect(dead_code, reason = "the endpoint's place among the usual ones lives as long")]
    host: StpHost,
}

impl Progress for Incoming {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.inbox.make_progress(cx);
    }
}

impl Inflow for Incoming {
    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&[u8]>>> {
        self.inbox.poll_front(cx)
    }

    fn pop_front(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        self.inbox.pop_front(cx).map(landfall::stp::Message::into_bytes)
    }

    fn most(&self) -> usize {
        self.inbox.most()
    }

    fn set_most(&mut self, most: usize) {
        self.inbox.set_most(most);
    }
}

/// Sockets for messages that come in.
struct MessageAcceptor(Listening);

impl Accept<Packets> for MessageAcceptor {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
        let connected = ready!(self.0.poll_accept(cx))?;
        Poll::Ready(Ok(self.0.host.packets(connected)))
    }
}
