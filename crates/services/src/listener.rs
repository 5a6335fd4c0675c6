//! What servers accept from and connect with: a kernel's TCP, and queue pairs.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sockets_compat::tokio::{QpListener, QpStream};
use sockets_compat::{Address, QpHost};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A byte stream with two directions that end one by one.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// From now on the peer hears a reset, and no orderly end, when this is dropped.
    fn reset_on_drop(&self);
}

impl Connection for TcpStream {
    fn reset_on_drop(&self) {
        // Fails where the connection is over already, and then nobody has to hear of it.
        let _ = self.set_zero_linger();
    }
}

impl Connection for QpStream {
    fn reset_on_drop(&self) {
        self.set_zero_linger();
    }
}

/// Where connections come in.
pub trait Listener: Send + 'static {
    /// What comes in.
    type Connection: Connection;

    /// The next connection, and its peer. Cancelled, it takes none.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Connection, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    type Connection = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((stream, peer))
    }
}

impl Listener for QpListener {
    type Connection = QpStream;

    async fn accept(&self) -> io::Result<(QpStream, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        match peer {
            Address::Qp(peer) => Ok((stream, peer)),
            other => Err(io::Error::other(format!("{other} is no peer of a queue pair"))),
        }
    }
}

/// Makes connections to one address.
pub trait Connector: Send + Sync + 'static {
    /// What it makes.
    type Connection: Connection;

    /// A new connection.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

/// Connects by the kernel's TCP to this address.
#[derive(Clone, Copy, Debug)]
pub struct KernelConnector(pub SocketAddr);

impl Connector for KernelConnector {
    type Connection = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.0).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Connects by queue pairs of this host to this address.
#[derive(Clone, Debug)]
pub struct QpConnector(pub QpHost, pub SocketAddr);

impl Connector for QpConnector {
    type Connection = QpStream;

    async fn connect(&self) -> io::Result<QpStream> {
        QpStream::connect(&self.0, Address::Qp(self.1)).await
    }
}

/// Accepting failed: for want of a file descriptor or of memory, for instance. Another attempt
/// waits this long.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
