//! Connectors for hyper and tower, and listeners for axum.
//!
//! - [`Connector`] is a `tower` service from a URI to a connection: for the clients of
//!   `hyper-util` and what is built on them, and for `tonic`'s `connect_with_connector`.
//! - A [`Listener`] of streams for tokio is an [`axum::serve::Listener`].
//!
//! A URI names a host as HTTP knows it, which is not where a socket of this family is;
//! so a connector goes where it was told, or where it is told for each URI.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower_service::Service;

use crate::Address;
use crate::family::Family;
use crate::listener::Listener;
use crate::tokio::ByteStream;

/// A connection that is being made.
pub type Connecting<F> =
    Pin<Box<dyn Future<Output = io::Result<TokioIo<ByteStream<F>>>> + Send + 'static>>;

/// Makes connections for hyper, tower and tonic.
///
/// ```no_run
/// use sockets_compat::hyper::Connector;
/// use sockets_compat::tokio::ClanStream;
/// use hyper_util::client::legacy::Client;
/// use hyper_util::rt::TokioExecutor;
///
/// let connector = Connector::new(|_| ClanStream::connect("clan:///run/landfall#web"));
/// let client = Client::builder(TokioExecutor::new())
///     .build::<_, http_body_util::Empty<bytes::Bytes>>(connector);
/// # drop(client);
/// ```
pub struct Connector<F: Family>(Arc<dyn Fn(Uri) -> Connecting<F> + Send + Sync>);

impl<F: Family> Connector<F> {
    /// Connects as this says, which hears what URI it is for.
    pub fn new<C>(connect: impl Fn(Uri) -> C + Send + Sync + 'static) -> Self
    where
        C: Future<Output = io::Result<ByteStream<F>>> + Send + 'static,
    {
        Self(Arc::new(move |uri| {
            let connecting = connect(uri);
            Box::pin(async move { connecting.await.map(TokioIo::new) })
        }))
    }
}

impl<F: Family> Clone for Connector<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Family> fmt::Debug for Connector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connector({})", F::STREAM)
    }
}

impl<F: Family> Service<Uri> for Connector<F> {
    type Response = TokioIo<ByteStream<F>>;
    type Error = io::Error;
    type Future = Connecting<F>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        (self.0)(uri)
    }
}

impl<F: Family> Connection for ByteStream<F> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// The next connection, for a server that goes on whatever becomes of one.
pub(crate) async fn until_accepted<L, T>(
    listener: &mut L,
    accept: impl AsyncFn(&mut L) -> io::Result<T>,
) -> T {
    /// After a failure that another connection may not have, as for want of room.
    const BREATH: Duration = Duration::from_millis(100);
    loop {
        match accept(listener).await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}

impl<F: Family> axum::serve::Listener for Listener<ByteStream<F>> {
    type Io = ByteStream<F>;
    type Addr = Address;

    async fn accept(&mut self) -> (ByteStream<F>, Address) {
        until_accepted(self, async |listener| Self::accept(listener).await).await
    }

    fn local_addr(&self) -> io::Result<Address> {
        Self::local_addr(self)
    }
}
