//! [`Listener`]: where sockets come in, like [`std::net::TcpListener`]. What is for tasks
//! alone is in `tokio/mod.rs`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Address;
use crate::duplex::{Duplex, Options};
use crate::family::{Blocking, Family, Mode, sealed};
use crate::stream::ByteStream;
use crate::waiting::{Half, Progress};

/// Where connections come in, whatever carries them: streams ([`Duplex`]) or messages
/// ([`Packets`](crate::packets::Packets)).
pub(crate) trait Accept<T>: Send {
    /// The next connection.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<T>>>;

    /// See [`Progress`].
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// The listening side.
struct Accepting<T>(Box<dyn Accept<T>>);

impl<T> Progress for Accepting<T> {
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        self.0.make_progress(cx);
    }
}

/// What all handles of a listener share.
pub(crate) struct ListenerState<T> {
    side: Arc<Half<Accepting<T>>>,
    options: Options,
    local: Address,
}

/// A socket that comes in at a [`Listener`]: a [`ByteStream`]
#[cfg_attr(any(feature = "clan", feature = "stp"), doc = "or a [`SeqPacket`](crate::SeqPacket).")]
pub trait Accepted: sealed::Sealed + Sized + 'static {
    /// Who waits for it.
    type Mode: Mode;
    /// What its handles share.
    #[doc(hidden)]
    type State: 'static;
    /// What a listener for such is called.
    #[doc(hidden)]
    const LISTENER: &'static str;
    /// The first handle, and where the other side is.
    #[doc(hidden)]
    fn accepted(shared: Arc<Self::State>) -> (Self, Address);
}

impl<F: Family, M: Mode> sealed::Sealed for ByteStream<F, M> {}

impl<F: Family, M: Mode> Accepted for ByteStream<F, M> {
    type Mode = M;
    type State = Duplex;
    const LISTENER: &'static str = F::LISTENER;

    fn accepted(duplex: Arc<Duplex>) -> (Self, Address) {
        let peer = duplex.peer.clone();
        (Self::of(duplex), peer)
    }
}

/// Where sockets of one kind and family come in; the names to use are
#[cfg_attr(
    feature = "clan",
    doc = "[`ClanListener`](crate::ClanListener), [`ClanSeqPacketListener`](crate::ClanSeqPacketListener),"
)]
#[cfg_attr(feature = "qpip", doc = "[`QpListener`](crate::QpListener),")]
#[cfg_attr(
    feature = "stp",
    doc = "[`StpStreamListener`](crate::StpStreamListener), [`StpListener`](crate::StpListener),"
)]
/// which have their own ways to bind. Dropped, nobody comes in any more.
pub struct Listener<S: Accepted> {
    pub(crate) state: Arc<ListenerState<S::State>>,
}

impl<S: Accepted> Listener<S> {
    pub(crate) fn open(accept: impl Accept<S::State> + 'static, local: Address) -> Self {
        let side = Half::new(Accepting(Box::new(accept) as Box<dyn Accept<S::State>>));
        // From now on news is heard, no matter who accepts.
        side.step(Progress::make_progress);
        Self { state: Arc::new(ListenerState { side, options: Options::default(), local }) }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.state.local.clone())
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<io::Result<(S, Address)>> {
        self.state.side.poll(cx, |accepting, cx| accepting.0.poll_accept(cx)).map_ok(S::accepted)
    }
}

impl<S: Accepted<Mode = Blocking>> Listener<S> {
    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where it may not wait, or not longer; or what
    /// carries the listener is over.
    pub fn accept(&self) -> io::Result<(S, Address)> {
        let ListenerState { side, options, .. } = &*self.state;
        options.read(side, |accepting, cx| accepting.0.poll_accept(cx)).map(S::accepted)
    }

    /// All connections, as they come.
    pub const fn incoming(&self) -> Incoming<'_, S> {
        Incoming(self)
    }

    /// Another handle to the same listener.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { state: Arc::clone(&self.state) })
    }

    /// Whether [`accept`](Self::accept) gives [`io::ErrorKind::WouldBlock`] instead of
    /// waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.state.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long [`accept`](Self::accept) waits; `None` waits for ever. `std` has no
    /// such call; a kernel's sockets have `SO_RCVTIMEO`.
    ///
    /// # Errors
    /// A timeout of zero.
    pub fn set_accept_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.state.options.set_read_timeout(timeout)
    }
}

impl<S: Accepted> fmt::Debug for Listener<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(S::LISTENER).field("local", &format_args!("{}", self.state.local)).finish()
    }
}

/// The connections of a [`Listener`], as they come; it never ends.
#[derive(Debug)]
pub struct Incoming<'a, S: Accepted>(&'a Listener<S>);

impl<S: Accepted<Mode = Blocking>> Iterator for Incoming<'_, S> {
    type Item = io::Result<S>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(socket, _)| socket))
    }
}
