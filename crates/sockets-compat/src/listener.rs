//! [`Listener`]: where streams come in, like [`std::net::TcpListener`].

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Address;
use crate::duplex::{Duplex, Options};
use crate::family::Family;
use crate::stream::ByteStream;
use crate::waiting::{Side, Tend};

/// Where connections come in, whatever carries them: streams ([`Duplex`]) or messages
/// ([`Packets`](crate::packets::Packets)).
pub(crate) trait Accept<T>: Send {
    /// The next connection.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<T>>>;

    /// See [`Tend`].
    fn tend(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// The listening side.
struct Accepting<T>(Box<dyn Accept<T>>);

impl<T> Tend for Accepting<T> {
    fn tend(&mut self, cx: &mut Context<'_>) {
        self.0.tend(cx);
    }
}

/// What all handles of a listener share.
pub(crate) struct Hall<T> {
    side: Arc<Side<Accepting<T>>>,
    pub(crate) options: Options,
    pub(crate) local: Address,
}

impl<T: 'static> Hall<T> {
    pub(crate) fn new(accept: Box<dyn Accept<T>>, local: Address) -> Arc<Self> {
        let side = Side::new(Accepting(accept));
        // From now on news is heard, whoever accepts.
        side.step(Tend::tend);
        Arc::new(Self { side, options: Options::default(), local })
    }

    pub(crate) fn accept(&self) -> io::Result<Arc<T>> {
        self.options.read(&self.side, |accepting, cx| accepting.0.poll_accept(cx))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Arc<T>>> {
        self.side.poll(cx, |accepting, cx| accepting.0.poll_accept(cx))
    }
}

/// Where byte streams of a family come in; the names to use are
#[cfg_attr(feature = "clan", doc = "[`ClanListener`](crate::ClanListener),")]
#[cfg_attr(feature = "qpip", doc = "[`QpListener`](crate::QpListener),")]
#[cfg_attr(feature = "stp", doc = "[`StpStreamListener`](crate::StpStreamListener),")]
/// which have their own ways to bind. Dropped, nobody comes in any more.
pub struct Listener<F: Family> {
    pub(crate) hall: Arc<Hall<Duplex>>,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Listener<F> {
    pub(crate) const fn of(hall: Arc<Hall<Duplex>>) -> Self {
        Self { hall, family: PhantomData }
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where it may not wait, or not longer; or what
    /// carries the listener is over.
    pub fn accept(&self) -> io::Result<(ByteStream<F>, Address)> {
        let duplex = self.hall.accept()?;
        let peer = duplex.peer.clone();
        Ok((ByteStream::of(duplex), peer))
    }

    /// All connections, as they come.
    pub const fn incoming(&self) -> Incoming<'_, F> {
        Incoming(self)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.hall.local.clone())
    }

    /// Another handle to the same listener.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self::of(Arc::clone(&self.hall)))
    }

    /// Whether [`accept`](Self::accept) gives [`io::ErrorKind::WouldBlock`] instead of
    /// waiting.
    ///
    /// # Errors
    /// None that is known.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.hall.options.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long [`accept`](Self::accept) waits; `None` waits for ever. `std` has no
    /// such call; a kernel's sockets have `SO_RCVTIMEO`.
    ///
    /// # Errors
    /// A timeout of zero.
    pub fn set_accept_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.hall.options.set_read_timeout(timeout)
    }
}

impl<F: Family> fmt::Debug for Listener<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::LISTENER).field("local", &format_args!("{}", self.hall.local)).finish()
    }
}

/// The connections of a [`Listener`], as they come; it never ends.
#[derive(Debug)]
pub struct Incoming<'a, F: Family>(&'a Listener<F>);

impl<F: Family> Iterator for Incoming<'_, F> {
    type Item = io::Result<ByteStream<F>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
