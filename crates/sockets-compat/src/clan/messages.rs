//! [`ClanSeqPacket`]: messages over shared memory, on this host or across hosts, in the ring
//! of a stream. Each has its length before it, in four bytes.
//!
//! One that was begun is on its way: what there is no room for yet the socket keeps, and no
//! other is begun before.

use std::future::poll_fn;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use super::stream::{Arrivals, Ends};
use crate::address::Address;
use crate::duplex::{Sink, Source, total};
use crate::errors;
use crate::family::Clan;
use crate::linger::see_off;
use crate::listener::{Accept, Listener};
use crate::packets::{Inflow, Outflow, Packets, Ticket};
use crate::seqpacket::SeqPacket;
use crate::waiting::Progress;

/// Bytes that tell a length.
const HEAD: usize = 4;

/// The reading side.
pub(super) struct Incoming {
    source: Box<dyn Source>,
    /// The longest message that is taken.
    most: u64,
    head: [u8; HEAD],
    body: Vec<u8>,
    /// So much of both is here.
    filled: usize,
    front: Option<Bytes>,
    has_ended: bool,
}

impl Progress for Incoming {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.source.make_progress(cx);
    }
}

impl Incoming {
    /// Takes messages of up to `most` bytes.
    pub(super) const fn new(source: Box<dyn Source>, most: u64) -> Self {
        Self {
            source,
            most,
            head: [0; HEAD],
            body: Vec::new(),
            filled: 0,
            front: None,
            has_ended: false,
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let rest = match self.filled.checked_sub(HEAD) {
            None => &mut self.head[self.filled..],
            Some(at) => &mut self.body[at..],
        };
        let read = ready!(self.source.poll_read(cx, &mut [IoSliceMut::new(rest)]))?;
        if read == 0 {
            // An end in the middle of a message is none.
            self.has_ended = self.filled == 0;
            return Poll::Ready(if self.has_ended { Ok(()) } else { Err(errors::reset()) });
        }
        self.filled += read;
        if self.filled == HEAD {
            let len = u32::from_le_bytes(self.head);
            if u64::from(len) > self.most {
                // The other side was told what is too long.
                self.filled = 0;
                return Poll::Ready(Err(errors::reset()));
            }
            self.body = vec![0; len as usize];
        }
        if self.filled == HEAD + self.body.len() && self.filled >= HEAD {
            self.filled = 0;
            self.front = Some(std::mem::take(&mut self.body).into());
        }
        Poll::Ready(Ok(()))
    }
}

impl Inflow for Incoming {
    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&[u8]>>> {
        while self.front.is_none() && !self.has_ended {
            ready!(self.poll_more(cx))?;
        }
        Poll::Ready(Ok(self.front.as_deref()))
    }

    fn pop_front(&mut self, _: &mut Context<'_>) -> Option<Bytes> {
        self.front.take()
    }

    fn most(&self) -> usize {
        self.most as usize
    }
}

/// The writing side.
pub(super) struct Outgoing(Option<WriterState>);

struct WriterState {
    sink: Box<dyn Sink>,
    /// The longest message that the other side takes.
    most: u64,
    /// What of the last message there was no room for yet, from `at` on.
    left: Vec<u8>,
    at: usize,
    has_ended: bool,
    is_finished: bool,
    /// Why nothing is sent any more.
    broken: Option<i32>,
    /// The same, while no call has told of it.
    untold: Option<io::Error>,
    linger: Duration,
}

impl WriterState {
    fn poll_begin(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<()>> {
        if self.has_ended {
            return Poll::Ready(Err(errors::broken_pipe()));
        }
        let len = total(from);
        if len as u64 > self.most {
            return Poll::Ready(Err(errors::too_long()));
        }
        ready!(self.poll_push(cx))?;
        let head = (len as u32).to_le_bytes();
        let whole = || std::iter::once(&head[..]).chain(from.iter().map(|part| &part[..]));
        let parts: Vec<_> = whole().map(IoSlice::new).collect();
        let mut taken =
            ready!(self.sink.poll_write(cx, &parts)).map_err(|error| self.breaks(error))?;
        for part in whole() {
            let gone = taken.min(part.len());
            taken -= gone;
            self.left.extend_from_slice(&part[gone..]);
        }
        // News of room for the rest come here.
        self.make_progress(cx);
        Poll::Ready(Ok(()))
    }

    /// What was begun is in the ring, and the end behind it if it is to be.
    fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.untold.take() {
            return Poll::Ready(Err(error));
        }
        if let Some(number) = self.broken {
            return Poll::Ready(Err(io::Error::from_raw_os_error(number)));
        }
        while self.at < self.left.len() {
            let rest = [IoSlice::new(&self.left[self.at..])];
            match ready!(self.sink.poll_write(cx, &rest)) {
                Ok(taken) => self.at += taken,
                Err(error) => return Poll::Ready(Err(self.breaks(error))),
            }
        }
        self.left.clear();
        self.at = 0;
        if self.has_ended && !self.is_finished {
            let finished = ready!(self.sink.poll_finish(cx));
            self.is_finished = true;
            finished.map_err(|error| self.breaks(error))?;
        }
        let flushed = ready!(self.sink.poll_flush(cx));
        Poll::Ready(flushed.map_err(|error| self.breaks(error)))
    }

    fn breaks(&mut self, error: io::Error) -> io::Error {
        self.broken = self.broken.or(error.raw_os_error()).or(Some(libc::EPIPE));
        error
    }

    fn make_progress(&mut self, cx: &mut Context<'_>) {
        if self.untold.is_none()
            && self.broken.is_none()
            && let Poll::Ready(Err(error)) = self.poll_push(cx)
        {
            self.untold = Some(error);
        }
    }
}

impl Outgoing {
    /// Sends messages of up to `most` bytes.
    pub(super) fn new(sink: Box<dyn Sink>, most: u64, linger: Duration) -> Self {
        Self(Some(WriterState {
            sink,
            most: most.min(u32::MAX.into()),
            left: Vec::new(),
            at: 0,
            has_ended: false,
            is_finished: false,
            broken: None,
            untold: None,
            linger,
        }))
    }

    fn way(&mut self) -> io::Result<&mut WriterState> {
        self.0.as_mut().ok_or_else(errors::broken_pipe)
    }
}

impl Outflow for Outgoing {
    /// A message that was begun is on its way: there is nothing to wait for.
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
        _: bool,
    ) -> Poll<io::Result<Option<Ticket>>> {
        self.way()?.poll_begin(cx, from).map_ok(|()| None)
    }

    fn poll_ticket(&mut self, _: &mut Context<'_>, _: Ticket) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn leave_ticket(&mut self, _: Ticket) {}

    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.way()?.poll_push(cx)
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        if let Some(way) = &mut self.0 {
            way.has_ended = true;
            way.make_progress(cx);
        }
    }

    fn take_untold(&mut self) -> Option<io::Error> {
        self.0.as_mut()?.untold.take()
    }
}

impl Progress for Outgoing {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        if let Some(way) = &mut self.0 {
            way.make_progress(cx);
        }
    }
}

/// What was begun arrives though the socket is gone.
impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(mut way) = self.0.take().filter(|way| !way.left.is_empty()) {
            see_off(way.linger, async move {
                let _ = poll_fn(|cx| way.poll_push(cx)).await;
                drop(way);
            });
        }
    }
}

/// A socket for messages over shared memory, like `SOCK_SEQPACKET` of Unix: to a process of
/// this host, or to another host. Each write is one message, and each read takes a whole one.
///
/// - **A message that is longer than the other side takes** is "Message too long"
///   (`EMSGSIZE`) at its writer, and the connection goes on. How long they may be each side
///   says when they meet ([`ClanOptions::message`](crate::ClanOptions::message)).
/// - **A buffer that is too short for the message that is there** is the same error at the
///   reader. Nothing is cut off: the message stays for a longer one.
/// - **A write** returns when its message is on its way: as many as fit into the ring are, and
///   one more. [`flush`](io::Write::flush) waits until that is in it, too.
/// - **An empty message** is one, and a read of it gives 0, as the end does;
///   [`recv_message`](Self::recv_message) tells the two apart.
///
/// ```
/// use sockets_compat::{ClanSeqPacket, ClanSeqPacketListener};
///
/// let listener = ClanSeqPacketListener::bind("clan://127.0.0.1:7/udp/0")?;
/// let client = ClanSeqPacket::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
///
/// assert_eq!(client.send(b"hello")?, 5);
/// assert!(server.recv(&mut [0; 4]).is_err(), "it is longer than that, and stays");
/// let mut message = [0; 16];
/// assert_eq!(server.recv(&mut message)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub type ClanSeqPacket = SeqPacket<Clan>;

/// Where [`ClanSeqPacket`]s come in. Dropped, none do any more.
pub type ClanSeqPacketListener = Listener<ClanSeqPacket>;

/// A socket of both directions, which takes messages of up to `most_here` bytes.
pub(super) fn socket(ends: Ends, most_here: u64) -> ClanSeqPacket {
    SeqPacket::of(packets(ends, most_here))
}

fn packets(ends: Ends, most_here: u64) -> Arc<Packets> {
    let Ends { source, sink, local, peer, most, linger } = ends;
    let incoming = Box::new(Incoming::new(source, most_here));
    let outgoing = Box::new(Outgoing::new(sink, most, linger));
    Packets::new((incoming, outgoing), local, peer, Some(most as usize))
}

/// Where such come in.
pub(super) fn listener(
    arrivals: impl Arrivals + 'static,
    local: Address,
    most: u64,
) -> ClanSeqPacketListener {
    Listener::open(MessageAcceptor { arrivals, most }, local)
}

/// Connections of which each becomes a socket for messages.
struct MessageAcceptor<A> {
    arrivals: A,
    most: u64,
}

impl<A: Arrivals> Accept<Packets> for MessageAcceptor<A> {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Packets>>> {
        let ends = ready!(self.arrivals.poll_ends(cx))?;
        Poll::Ready(Ok(packets(ends, self.most)))
    }
}
