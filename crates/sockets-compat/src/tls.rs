//! TLS by rustls above the byte streams of this crate: HTTPS for hyper, tower and axum.
//!
//! STP encrypts by itself. Queue pairs speak TCP, and what they carry is seen by who is on the
//! way: here is what servers and clients of TCP do about that, so that the other end may be any
//! TLS over any TCP. A [`TlsListener`] is an [`axum::serve::Listener`], a [`TlsConnector`] is a
//! connector for the clients of `hyper-util` and `tonic`.
//!
//! Without hyper nothing of this module is needed. A stream for tokio goes into
//! [`tokio_rustls::TlsConnector::connect`] as a `tokio::net::TcpStream` does, and one for
//! threads into `rustls::StreamOwned`.
//!
//! ```no_run
//! use std::sync::Arc;
//! use sockets_compat::QpHost;
//! use sockets_compat::tls::TlsListener;
//! use sockets_compat::tls::rustls::ServerConfig;
//! use sockets_compat::tokio::QpListener;
//!
//! # async fn serve(host: QpHost, config: ServerConfig, app: axum::Router) -> std::io::Result<()> {
//! let listener = QpListener::from_std(host.listen("qp://10.9.0.2:443")?)?;
//! axum::serve(TlsListener::new(listener, Arc::new(config)), app).await
//! # }
//! ```

use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tower_service::Service;

pub use tokio_rustls;
pub use tokio_rustls::rustls;

use crate::Address;
use crate::family::Family;
use crate::hyper::Connector;
use crate::listener::Listener;
use crate::tokio::ByteStream;

/// A connection that a client has called here, encrypted.
pub type ServerStream<F> = tokio_rustls::server::TlsStream<ByteStream<F>>;

/// Handshakes under way; who calls then waits for one of them to end.
const MOST_HANDSHAKES: usize = 256;
/// Who has not proven itself by then is let go of.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lets clients of TLS in.
///
/// Their handshakes run beside each other, so that a slow caller holds nobody up; one that fails
/// or takes more than ten seconds is let go of, and at most 256 are under way.
pub struct TlsListener<F: Family> {
    listener: Listener<ByteStream<F>>,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<io::Result<(ServerStream<F>, Address)>>,
}

impl<F: Family> TlsListener<F> {
    /// Who comes in at the listener has to speak TLS.
    #[must_use]
    pub fn new(listener: Listener<ByteStream<F>>, config: Arc<ServerConfig>) -> Self {
        Self { listener, acceptor: TlsAcceptor::from(config), handshakes: JoinSet::new() }
    }

    /// The next client whose handshake is over, and where it is. Cancelled, it takes none. On a
    /// runtime of tokio.
    ///
    /// # Errors
    /// What carries the listener is over.
    pub async fn accept(&mut self) -> io::Result<(ServerStream<F>, Address)> {
        loop {
            let has_room = self.handshakes.len() < MOST_HANDSHAKES;
            let accepted =
                async { if has_room { self.listener.accept().await } else { pending().await } };
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Ok(accepted)) = done {
                        return Ok(accepted);
                    }
                }
                accepted = accepted => {
                    let (stream, from) = accepted?;
                    let shaking = self.acceptor.accept(stream);
                    self.handshakes.spawn(async move {
                        Ok((tokio::time::timeout(PATIENCE, shaking).await??, from))
                    });
                }
            }
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None that is known.
    pub fn local_addr(&self) -> io::Result<Address> {
        self.listener.local_addr()
    }
}

impl<F: Family> fmt::Debug for TlsListener<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsListener")
            .field("listener", &self.listener)
            .field("handshakes", &self.handshakes.len())
            .finish_non_exhaustive()
    }
}

impl<F: Family> axum::serve::Listener for TlsListener<F> {
    type Io = ServerStream<F>;
    type Addr = Address;

    async fn accept(&mut self) -> (ServerStream<F>, Address) {
        crate::hyper::until_accepted(self, async |listener| Self::accept(listener).await).await
    }

    fn local_addr(&self) -> io::Result<Address> {
        Self::local_addr(self)
    }
}

/// Makes connections for hyper, tower and tonic on which TLS is spoken, with the name of the URI
/// as the server's.
///
/// ```no_run
/// use std::sync::Arc;
/// use hyper_util::client::legacy::Client;
/// use hyper_util::rt::TokioExecutor;
/// use sockets_compat::QpHost;
/// use sockets_compat::hyper::Connector;
/// use sockets_compat::tls::TlsConnector;
/// use sockets_compat::tls::rustls::ClientConfig;
/// use sockets_compat::tokio::QpStream;
///
/// # fn client(host: QpHost, config: ClientConfig) {
/// let connector = Connector::new(move |_| {
///     let host = host.clone();
///     async move { QpStream::connect(&host, "qp://10.9.0.2:443").await }
/// });
/// let connector = TlsConnector::new(connector, Arc::new(config));
/// let client = Client::builder(TokioExecutor::new())
///     .build::<_, http_body_util::Empty<bytes::Bytes>>(connector);
/// // client.get("https://example.com/".parse()?)
/// # drop(client);
/// # }
/// ```
pub struct TlsConnector<F: Family> {
    connector: Connector<F>,
    tls: tokio_rustls::TlsConnector,
}

impl<F: Family> TlsConnector<F> {
    /// Connects as the connector does, and then by TLS. With `h2` among the protocols of the
    /// configuration (`alpn_protocols`) it is HTTP/2 where the server wants it.
    #[must_use]
    pub fn new(connector: Connector<F>, config: Arc<ClientConfig>) -> Self {
        Self { connector, tls: tokio_rustls::TlsConnector::from(config) }
    }
}

impl<F: Family> Clone for TlsConnector<F> {
    fn clone(&self) -> Self {
        Self { connector: self.connector.clone(), tls: self.tls.clone() }
    }
}

impl<F: Family> fmt::Debug for TlsConnector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").field("connector", &self.connector).finish_non_exhaustive()
    }
}

/// The name that the certificate of a URI's server has to be for.
fn server_of(uri: &Uri) -> io::Result<ServerName<'static>> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let host = uri.host().ok_or_else(|| wrong(format!("{uri} names no host")))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(host).map_err(|why| wrong(format!("the host of {uri}: {why}")))
}

impl<F: Family> Service<Uri> for TlsConnector<F> {
    type Response = TokioIo<ClientStream<F>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (server, tls) = (server_of(&uri), self.tls.clone());
        let connecting = self.connector.call(uri);
        Box::pin(async move {
            let server = server?;
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(ClientStream(tls.connect(server, stream).await?)))
        })
    }
}

/// A connection to a server, encrypted.
#[derive(Debug)]
pub struct ClientStream<F: Family>(tokio_rustls::client::TlsStream<ByteStream<F>>);

impl<F: Family> ClientStream<F> {
    /// What rustls made of it: certificates, protocols, and all else that was agreed on.
    pub const fn get_ref(&self) -> &tokio_rustls::client::TlsStream<ByteStream<F>> {
        &self.0
    }
}

impl<F: Family> Connection for ClientStream<F> {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        match self.0.get_ref().1.alpn_protocol() {
            Some(b"h2") => connected.negotiated_h2(),
            _ => connected,
        }
    }
}

impl<F: Family> AsyncRead for ClientStream<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<F: Family> AsyncWrite for ClientStream<F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
