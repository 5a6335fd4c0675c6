//! [`Listener`] for tokio, like `tokio::net::TcpListener`.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::ByteStream;
use crate::Address;
use crate::duplex::Duplex;
use crate::family::Family;
use crate::listener::Hall;

/// Where byte streams come in, for tokio: see
/// [`sockets_compat::Listener`](crate::Listener), which it is made of and becomes.
pub struct Listener<F: Family> {
    hall: Arc<Hall<Duplex>>,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Listener<F> {
    /// The same listener for tasks.
    ///
    /// # Errors
    /// None that is known; it is there for the likeness to tokio.
    pub fn from_std(listener: crate::Listener<F>) -> io::Result<Self> {
        Ok(Self { hall: listener.hall, family: PhantomData })
    }

    /// The same listener for threads.
    ///
    /// # Errors
    /// None that is known.
    pub fn into_std(self) -> io::Result<crate::Listener<F>> {
        Ok(crate::Listener::of(self.hall))
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
        self.hall.poll_accept(cx).map_ok(|duplex| {
            let peer = duplex.peer.clone();
            (ByteStream::of(duplex), peer)
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        Ok(self.hall.local.clone())
    }
}

impl<F: Family> fmt::Debug for Listener<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(F::LISTENER).field("local", &format_args!("{}", self.hall.local)).finish()
    }
}
