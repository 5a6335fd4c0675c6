//! The same sockets for tokio: its traits, on any executor.
//!
//! Nothing here needs tokio's reactor: wakers are called by what carries the socket.
//! Every future and every `poll_` call is cancel safe: what was not finished is as if
//! it had not begun, except where it says otherwise.

#[cfg(feature = "qpip")]
mod datagram;
#[cfg(any(feature = "clan", feature = "stp"))]
mod seqpacket;
mod stream;

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::address::{Address, ToAddress};
use crate::family::{Family, Tokio};
use crate::listener::Listener;
#[cfg(feature = "qpip")]
pub use datagram::QpDatagram;

/// A byte stream for tokio, like `tokio::net::TcpStream`: see
/// [`sockets_compat::ByteStream`](crate::ByteStream), which it is made of and becomes.
pub type ByteStream<F> = crate::ByteStream<F, Tokio>;
/// The reading direction of a borrowed [`ByteStream`].
pub type ReadHalf<'a, F> = crate::ReadHalf<'a, F, Tokio>;
/// The writing direction of a borrowed [`ByteStream`].
pub type WriteHalf<'a, F> = crate::WriteHalf<'a, F, Tokio>;
/// The reading direction of a [`ByteStream`].
pub type OwnedReadHalf<F> = crate::OwnedReadHalf<F, Tokio>;
/// The writing direction of a [`ByteStream`]. Dropped, it ends that direction.
pub type OwnedWriteHalf<F> = crate::OwnedWriteHalf<F, Tokio>;
/// A socket for messages, for tasks: see [`sockets_compat::SeqPacket`](crate::SeqPacket),
/// which it is made of and becomes.
///
/// As `AsyncWrite` each write puts one message on its way and waits for nothing more; a
/// flush does, and tells what became of those before. `send` waits for its own, as the
/// family's writes do.
#[cfg(any(feature = "clan", feature = "stp"))]
pub type SeqPacket<F> = crate::SeqPacket<F, Tokio>;

/// [`ClanStream`](crate::ClanStream) for tokio.
#[cfg(feature = "clan")]
pub type ClanStream = ByteStream<crate::Clan>;
/// [`ClanListener`](crate::ClanListener) for tokio.
#[cfg(feature = "clan")]
pub type ClanListener = Listener<ClanStream>;
/// [`ClanSeqPacket`](crate::ClanSeqPacket) for tokio.
#[cfg(feature = "clan")]
pub type ClanSeqPacket = SeqPacket<crate::Clan>;
/// [`ClanSeqPacketListener`](crate::ClanSeqPacketListener) for tokio.
#[cfg(feature = "clan")]
pub type ClanSeqPacketListener = Listener<ClanSeqPacket>;
/// [`QpStream`](crate::QpStream) for tokio.
#[cfg(feature = "qpip")]
pub type QpStream = ByteStream<crate::Qp>;
/// [`QpListener`](crate::QpListener) for tokio.
#[cfg(feature = "qpip")]
pub type QpListener = Listener<QpStream>;
/// [`StpStream`](crate::StpStream) for tokio.
#[cfg(feature = "stp")]
pub type StpStream = ByteStream<crate::Stp>;
/// [`StpStreamListener`](crate::StpStreamListener) for tokio.
#[cfg(feature = "stp")]
pub type StpStreamListener = Listener<StpStream>;
/// [`StpSeqPacket`](crate::StpSeqPacket) for tokio.
#[cfg(feature = "stp")]
pub type StpSeqPacket = SeqPacket<crate::Stp>;
/// [`StpListener`](crate::StpListener) for tokio.
#[cfg(feature = "stp")]
pub type StpListener = Listener<StpSeqPacket>;

impl<F: Family> Listener<ByteStream<F>> {
    /// The same listener for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(listener: Listener<crate::ByteStream<F>>) -> io::Result<Self> {
        Ok(Self { state: listener.state })
    }

    /// The same listener for threads.
    ///
    /// # Errors
    /// None that is known.
    pub fn into_std(self) -> io::Result<Listener<crate::ByteStream<F>>> {
        Ok(Listener { state: self.state })
    }

    /// The next connection, and where it comes from. Cancelled, it takes none.
    ///
    /// # Errors
    /// What carries the listener is over.
    pub async fn accept(&self) -> io::Result<(ByteStream<F>, Address)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The same, polled.
    pub fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(ByteStream<F>, Address)>> {
        self.poll_next(cx)
    }
}

#[cfg(any(feature = "clan", feature = "stp"))]
impl<F: crate::Messages> Listener<SeqPacket<F>> {
    /// The same listener for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(listener: Listener<crate::SeqPacket<F>>) -> io::Result<Self> {
        Ok(Self { state: listener.state })
    }

    /// The next connection, and where it comes from. Cancelled, it takes none.
    ///
    /// # Errors
    /// What carries the listener is over.
    pub async fn accept(&self) -> io::Result<(SeqPacket<F>, Address)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

#[cfg(feature = "clan")]
impl ClanStream {
    /// Connects to a service: `clan:///FOLDER#NAME` or `clan://HOST:PORT`. The two
    /// processes meet on a thread of its own; cancelled, the connection is closed when it
    /// is there.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanStream::connect`](crate::ClanStream).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(crate::errors::invalid)?;
        let stream = elsewhere(move || crate::ClanStream::connect(address)).await?;
        Self::from_std(stream)
    }
}

#[cfg(feature = "clan")]
impl ClanListener {
    /// Takes a name in a folder, `clan:///FOLDER#NAME`, or a port, `clan://ADDRESS:PORT`.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanListener::bind`](crate::ClanListener).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::ClanListener::bind(address)?)
    }
}

#[cfg(feature = "stp")]
impl StpStream {
    /// Connects to a port of STP: `stp://10.0.0.1:7`. Cancelled, it gives up.
    ///
    /// # Errors
    /// Those of [`sockets_compat::StpStream::connect`](crate::StpStream).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        crate::StpHost::open_stream(address).await.map(Self::of)
    }
}

#[cfg(feature = "stp")]
impl StpStreamListener {
    /// Listens at a port of STP: `stp://10.0.0.1:7`.
    ///
    /// # Errors
    /// Those of [`sockets_compat::StpStreamListener::bind`](crate::StpStreamListener).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::StpStreamListener::bind(address)?)
    }
}

#[cfg(feature = "qpip")]
impl QpStream {
    /// Connects to anyone who listens there: `qp://10.0.0.1:7000`. Cancelled, it gives up.
    ///
    /// # Errors
    /// Those of [`QpHost::connect`](crate::QpHost::connect).
    pub async fn connect(host: &crate::QpHost, address: impl ToAddress) -> io::Result<Self> {
        host.open(address).await.map(Self::of)
    }
}

#[cfg(feature = "clan")]
impl ClanSeqPacket {
    /// Connects to a service for messages: `clan:///FOLDER#NAME` or `clan://HOST:PORT`. The
    /// two processes meet on a thread of its own; cancelled, the connection is closed when
    /// it is there.
    ///
    /// # Errors
    /// Those of [`sockets_compat::ClanSeqPacket::connect`](crate::ClanSeqPacket::connect).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(crate::errors::invalid)?;
        let connect = move || crate::ClanSeqPacket::connect(address);
        Self::from_std(elsewhere(connect).await?)
    }
}

#[cfg(feature = "stp")]
impl StpSeqPacket {
    /// Connects to a port of STP: `stp://10.0.0.1:7`. Cancelled, it gives up.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody listens, `TimedOut` where nobody
    /// answers; or that is no address of STP.
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        crate::StpHost::connect_packets(address).await.map(Self::of)
    }

    /// Connects by a host of one's own: see [`connect`](Self::connect).
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    pub async fn connect_by(host: &crate::StpHost, address: impl ToAddress) -> io::Result<Self> {
        host.connect_packets_by(address).await.map(Self::of)
    }
}

#[cfg(feature = "clan")]
impl ClanSeqPacketListener {
    /// Lets sockets for messages come in: see
    /// [`sockets_compat::ClanSeqPacketListener`](crate::ClanSeqPacketListener).
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::ClanSeqPacketListener::bind(address)?)
    }
}

#[cfg(feature = "stp")]
impl StpListener {
    /// Listens at a port of STP: see [`sockets_compat::StpListener`](crate::StpListener).
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::StpListener::bind(address)?)
    }
}

/// Reads into what of a buffer is not filled.
fn read_into(
    into: &mut ReadBuf<'_>,
    read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<()>> {
    let mut room = [IoSliceMut::new(into.initialize_unfilled())];
    let len = ready!(read(&mut room))?;
    into.advance(len);
    Poll::Ready(Ok(()))
}

/// Runs something that may block on a thread of its own.
#[cfg(feature = "clan")]
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    use std::sync::{Arc, Mutex};
    use std::task::Waker;

    use crate::waiting::locked;

    let place = Arc::new(Mutex::new((None, None::<Waker>)));
    let theirs = Arc::clone(&place);
    std::thread::Builder::new().name("clan-connect".into()).spawn(move || {
        let result = work();
        let mut place = locked(&theirs);
        place.0 = Some(result);
        let waker = place.1.take();
        drop(place);
        waker.into_iter().for_each(Waker::wake);
    })?;
    poll_fn(|cx| {
        let mut place = locked(&place);
        match place.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                place.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
