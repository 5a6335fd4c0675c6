//! [`QpDatagram`]: datagrams, like [`std::net::UdpSocket`].

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use landfall::qpip::{
    Access, CompletionQueue, Memory, MemoryRegion, PostError, QueuePair, QueuePairOptions,
};

use super::ring::{DEPTH, Ring};
use super::{QpHost, failed};
use crate::address::{Address, ToAddress};
use crate::duplex::{Options, total, try_once};
use crate::errors;
use crate::waiting::{Half, Progress, locked, poll_once};

/// Room for the longest datagram there is.
const SLOT: u64 = 64 << 10;
/// This many datagrams are kept for the reader; more are dropped, as of a kernel's socket.
const SLOTS: u32 = 16;
/// The longest datagram: what IP carries, without its header and UDP's.
const LONGEST: usize = 65_507;

type Pair = Arc<Mutex<QueuePair>>;

/// Datagrams that come.
struct Arriving {
    memory: MemoryRegion,
    done: CompletionQueue,
    pair: Pair,
    ready: VecDeque<Datagram>,
    /// Only its datagrams are wanted.
    peer: Option<SocketAddr>,
}

struct Datagram {
    slot: u64,
    len: usize,
    from: SocketAddr,
}

impl Progress for Arriving {
    fn make_progress(&mut self, _: &mut Context<'_>) {}
}

impl Arriving {
    fn post(&self, slot: u64) -> io::Result<()> {
        let part = self.memory.part(slot * SLOT..(slot + 1) * SLOT).map_err(failed)?;
        locked(&self.pair).post_receive(slot, &[part]).map_err(io::Error::other)
    }

    fn hear(&mut self) {
        while let Some(completion) = self.done.poll() {
            let wanted = completion.from.filter(|from| self.peer.is_none_or(|peer| peer == *from));
            match wanted.filter(|_| completion.status.is_success()) {
                Some(from) => self.ready.push_back(Datagram {
                    slot: completion.id,
                    len: completion.len as usize,
                    from,
                }),
                // Refused only when there is nothing left to come.
                None => _ = self.post(completion.id),
            }
        }
    }

    /// Copies a datagram into buffers, one after another, that have room for it.
    fn copy_out(&self, slot: u64, len: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut copied = 0;
        for buffer in into {
            let now = buffer.len().min(len - copied);
            let at = slot * SLOT + copied as u64;
            self.memory.copy_out(at, &mut buffer[..now]).map_err(failed)?;
            copied += now;
        }
        Ok(())
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
        takes: bool,
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        loop {
            self.hear();
            if let Some(&Datagram { slot, len, from }) = self.ready.front() {
                if len > total(into) {
                    // It stays for a buffer that is long enough.
                    return Poll::Ready(Err(errors::too_long()));
                }
                self.copy_out(slot, len, into)?;
                if takes {
                    self.ready.pop_front();
                    let _ = self.post(slot);
                }
                return Poll::Ready(Ok((len, from)));
            }
            // Dropped, this future loses nothing: it only waits.
            match ready!(poll_once(cx, self.done.ready())) {
                Ok(()) => {}
                Err(error) => return Poll::Ready(Err(failed(error))),
            }
        }
    }
}

/// Datagrams that go.
struct OutgoingDatagrams {
    ring: Ring,
    pair: Pair,
    peer: Option<SocketAddr>,
}

impl Progress for OutgoingDatagrams {
    fn make_progress(&mut self, _: &mut Context<'_>) {}
}

impl OutgoingDatagrams {
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        datagram: &[IoSlice<'_>],
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        let Some(to) = to.or(self.peer) else {
            return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EDESTADDRREQ)));
        };
        let len = total(datagram);
        if len > LONGEST {
            return Poll::Ready(Err(errors::too_long()));
        }
        if len == 0 {
            return Poll::Ready(Err(errors::invalid(
                "queue pairs carry no empty datagrams: send one byte at least",
            )));
        }
        // Of one that did not get through nobody hears, as of UDP.
        let _ = self.ring.reap();
        ready!(self.ring.poll_room(cx, len))?;
        let Self { ring, pair, .. } = self;
        let posted = ring.post(datagram, |parts| locked(pair).post_send_to(0, parts, to));
        Poll::Ready(posted?.map_err(|error| match error {
            PostError::TooLong => errors::too_long(),
            other => io::Error::other(other),
        }))
    }
}

/// A socket for datagrams, to any that speaks UDP.
///
/// It is like [`std::net::UdpSocket`], but for two things: a buffer that is too short
/// for the datagram that is there is an error (`EMSGSIZE`), and the datagram stays for a
/// longer one; and there are no empty datagrams.
#[derive(Clone)]
pub struct QpDatagram(Arc<Socket>);

struct Socket {
    arriving: Arc<Half<Arriving>>,
    going: Arc<Half<OutgoingDatagrams>>,
    options: Options,
    local: SocketAddr,
}

impl QpDatagram {
    pub(super) fn open(host: &QpHost, local: SocketAddr) -> io::Result<Self> {
        let memory =
            host.domain.register(Memory::zeroed(SLOT as usize * SLOTS as usize), Access::Write);
        let memory = memory.map_err(|error| failed(error.into()))?;
        let done = host.adapter.completion_queue(SLOTS).map_err(failed)?;
        let ring = Ring::of(host, host.options.send_buffer.max(SLOT as usize))?;
        let options =
            QueuePairOptions { send_depth: DEPTH, receive_depth: SLOTS, ..QueuePairOptions::udp() };
        let mut pair = host.domain.queue_pair(&options, &ring.done, &done).map_err(failed)?;
        let local = pair.bind(local).map_err(failed)?;
        let pair = Arc::new(Mutex::new(pair));
        let (ready, peer) = (VecDeque::new(), None);
        let arriving = Arriving { memory, done, pair: Arc::clone(&pair), ready, peer };
        (0..u64::from(SLOTS)).try_for_each(|slot| arriving.post(slot))?;
        let going = OutgoingDatagrams { ring, pair, peer };
        let (arriving, going) = (Half::new(arriving), Half::new(going));
        Ok(Self(Arc::new(Socket { arriving, going, options: Options::default(), local })))
    }

    /// Receives a datagram, and where it comes from.
    ///
    /// # Errors
    /// `EMSGSIZE`: it is longer than the buffer, and stays. `EAGAIN`: none came in time.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from_vectored(&mut [IoSliceMut::new(into)])
    }

    /// The same into several buffers, one after another.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from), where all of them together are too short.
    pub fn recv_from_vectored(
        &self,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<(usize, SocketAddr)> {
        self.0.options.read(&self.0.arriving, |side, cx| side.poll_receive(cx, into, true))
    }

    /// Looks at a datagram without taking it.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut into = [IoSliceMut::new(into)];
        self.0.options.read(&self.0.arriving, |side, cx| side.poll_receive(cx, &mut into, false))
    }

    /// Receives a datagram of whom this is connected to, or of anybody.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_from(into).map(|(len, _)| len)
    }

    /// The same into several buffers, one after another.
    ///
    /// # Errors
    /// As [`recv_from_vectored`](Self::recv_from_vectored).
    pub fn recv_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_from_vectored(into).map(|(len, _)| len)
    }

    /// Sends a datagram: `qp://HOST:PORT`, or a [`SocketAddr`].
    ///
    /// # Errors
    /// `EMSGSIZE`: no datagram is so long. `EAGAIN`: there is no room. Or it is empty.
    pub fn send_to(&self, datagram: &[u8], to: impl ToAddress) -> io::Result<usize> {
        self.send_to_vectored(&[IoSlice::new(datagram)], to)
    }

    /// Sends one datagram from several buffers.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send_to_vectored(
        &self,
        datagram: &[IoSlice<'_>],
        to: impl ToAddress,
    ) -> io::Result<usize> {
        let to = super::socket_of(&to)?;
        self.0.options.write(&self.0.going, |side, cx| side.poll_send(cx, datagram, Some(to)))
    }

    /// Sends a datagram to whom this is connected to.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to), and where it is connected to nobody.
    pub fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(datagram)])
    }

    /// Sends one datagram from several buffers to whom this is connected to.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_vectored(&self, datagram: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.options.write(&self.0.going, |side, cx| side.poll_send(cx, datagram, None))
    }

    /// From now on it sends there, and hears nobody else.
    ///
    /// # Errors
    /// That is no address for this.
    pub fn connect(&self, to: impl ToAddress) -> io::Result<()> {
        let to = super::socket_of(&to)?;
        self.0.going.step(|going, _| going.peer = Some(to));
        self.0.arriving.step(|arriving, _| {
            arriving.peer = Some(to);
            let others = arriving.ready.iter().filter(|datagram| datagram.from != to);
            let slots: Vec<_> = others.map(|datagram| datagram.slot).collect();
            arriving.ready.retain(|datagram| datagram.from == to);
            slots.into_iter().for_each(|slot| _ = arriving.post(slot));
        });
        Ok(())
    }

    /// Another handle to the same socket.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Where this side is.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(Address::Qp(self.0.local))
    }

    /// Whom it is connected to.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`].
    pub fn peer_addr(&self) -> io::Result<Address> {
        let peer = self.0.going.step(|going, _| going.peer);
        peer.map(Address::Qp).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))
    }

    /// Whether calls give [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a receive waits; then it gives [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.options.set_read_timeout(timeout)
    }

    /// How long a send waits for room.
    ///
    /// # Errors
    /// A timeout of zero, as with `std`.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.options.set_write_timeout(timeout)
    }

    /// Receives without waiting.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn try_recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut into = [IoSliceMut::new(into)];
        try_once(&self.0.arriving, |side, cx| side.poll_receive(cx, &mut into, true))
    }

    /// [`recv_from`](Self::recv_from) for tasks. Cancelled, it takes none.
    pub fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.poll_recv_from_vectored(cx, &mut [IoSliceMut::new(into)])
    }

    /// [`recv_from_vectored`](Self::recv_from_vectored) for tasks. Cancelled, it takes none.
    pub fn poll_recv_from_vectored(
        &self,
        cx: &Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.arriving.poll(cx, |side, cx| side.poll_receive(cx, into, true))
    }

    /// [`send_to`](Self::send_to) for tasks; to nobody in particular is
    /// [`send`](Self::send). Cancelled, it sends none.
    pub fn poll_send_to(
        &self,
        cx: &Context<'_>,
        datagram: &[u8],
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        self.poll_send_to_vectored(cx, &[IoSlice::new(datagram)], to)
    }

    /// [`send_to_vectored`](Self::send_to_vectored) for tasks, as
    /// [`poll_send_to`](Self::poll_send_to).
    pub fn poll_send_to_vectored(
        &self,
        cx: &Context<'_>,
        datagram: &[IoSlice<'_>],
        to: Option<SocketAddr>,
    ) -> Poll<io::Result<usize>> {
        self.0.going.poll(cx, |side, cx| side.poll_send(cx, datagram, to))
    }
}

impl fmt::Debug for QpDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpDatagram").field("local", &self.0.local).finish()
    }
}
