//! Sockets over queue pairs: byte streams ([`QpStream`]) and datagrams ([`QpDatagram`]).
//! The other end may be any socket, of any kernel.

mod connection;
mod datagram;
mod landed;
mod ring;
mod send_memory;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use landfall::qpip::{Adapter, CloseReason, CommandError, Error, ProtectionDomain, Status};

use crate::address::{Address, ToAddress};
use crate::errors;
use crate::family::{Mode, Qp};
use crate::listener::Listener;
use crate::stream::ByteStream;
use crate::waiting::block_on;
use connection::{Ends, Idle};
pub use datagram::QpDatagram;
pub use landed::Landed;
pub(crate) use ring::LentBytes;
pub use send_memory::SendMemory;

/// A byte stream over a queue pair, to any socket that speaks TCP.
pub type QpStream = ByteStream<Qp>;

impl<M: Mode> ByteStream<Qp, M> {
    /// From now on the connection is reset when its last handle is dropped: what was written and
    /// has not arrived is lost, and the other side hears no orderly end. As `SO_LINGER` of zero.
    pub fn set_zero_linger(&self) {
        self.duplex.reset_on_drop();
    }
}

/// Where [`QpStream`]s come in.
pub type QpListener = Listener<QpStream>;

/// What sockets of a [`QpHost`] are like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QpOptions {
    /// Bytes of memory for what comes (`SO_RCVBUF`): the window that the other side sees.
    pub receive_buffer: usize,
    /// Bytes of memory for what goes and is not acknowledged (`SO_SNDBUF`).
    pub send_buffer: usize,
    /// How many queue pairs wait for connections at a listener.
    pub backlog: usize,
    /// How long the last bytes of a socket that was dropped may take to arrive.
    pub linger: Duration,
}

impl Default for QpOptions {
    /// 256 KiB each way, 16 that wait, and a minute.
    fn default() -> Self {
        Self {
            receive_buffer: 256 << 10,
            send_buffer: 256 << 10,
            backlog: 16,
            linger: Duration::from_secs(60),
        }
    }
}

/// An adapter with its sockets. Clones are the same.
///
/// ```
/// use std::io::{Read, Write};
/// use landfall::qpip::{Adapter, ChannelConfig};
/// use sockets_compat::{QpHost, QpOptions};
///
/// let (one, two) = Adapter::builder().pair(Adapter::builder(), ChannelConfig::default())?;
/// let client = QpHost::new(one.address("10.0.0.1/24").open()?, QpOptions::default())?;
/// let server = QpHost::new(two.address("10.0.0.2/24").open()?, QpOptions::default())?;
///
/// let listener = server.listen("qp://10.0.0.2:7000")?;
/// let mut stream = client.connect("qp://10.0.0.2:7000")?;
/// stream.write_all(b"every byte has its place")?;
/// drop(stream);
/// let mut text = String::new();
/// listener.accept()?.0.read_to_string(&mut text)?;
/// assert_eq!(text, "every byte has its place");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct QpHost {
    adapter: Adapter,
    domain: ProtectionDomain,
    options: Arc<QpOptions>,
}

impl QpHost {
    /// Sockets over an adapter that was opened with `open`: it runs by itself.
    ///
    /// # Errors
    /// The adapter has as many protection domains as it may have, or runs no more.
    pub fn new(adapter: Adapter, options: QpOptions) -> io::Result<Self> {
        let domain = adapter.domain().map_err(failed)?;
        Ok(Self { adapter, domain, options: Arc::new(options) })
    }

    /// The adapter behind these sockets.
    #[must_use]
    pub const fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// Connects to anyone who listens there.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody does, `TimedOut` where nobody
    /// answers; or that is no address for this.
    pub fn connect(&self, address: impl ToAddress) -> io::Result<QpStream> {
        let connected = block_on(None::<Instant>, self.open(address));
        connected.unwrap_or_else(|| Err(errors::timed_out())).map(ByteStream::of)
    }

    /// Opens a connection; given up where the future is dropped.
    pub(crate) async fn open(
        &self,
        address: impl ToAddress,
    ) -> io::Result<Arc<crate::duplex::Duplex>> {
        let remote = socket_of(&address)?;
        let (ends, pair) = Ends::new(self, &Arc::default())?;
        pair.connect(remote).await.map_err(failed)?;
        ends.duplex(pair, self)
    }

    /// Lets connections come in at a port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], or the address is not the adapter's.
    pub fn listen(&self, address: impl ToAddress) -> io::Result<QpListener> {
        let local = socket_of(&address)?;
        let idle = Idle::open(self, local)?;
        let local = Address::Qp(idle.local());
        Ok(Listener::open(idle, local))
    }

    /// A socket for datagrams at a port; at 0 it is one that is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], or the address is not the adapter's.
    pub fn datagram(&self, address: impl ToAddress) -> io::Result<QpDatagram> {
        QpDatagram::open(self, socket_of(&address)?)
    }
}

pub(crate) fn socket_of(address: &impl ToAddress) -> io::Result<SocketAddr> {
    match address.to_address().map_err(errors::invalid)? {
        Address::Qp(socket) => Ok(socket),
        other => Err(errors::wrong_kind("qp://HOST:PORT", &other)),
    }
}

/// As a socket would say it.
fn failed(error: Error) -> io::Error {
    match error {
        Error::NotConnected(why) | Error::Ended(why) => ended(why),
        Error::Refused(CommandError::Taken(_)) => io::Error::from_raw_os_error(libc::EADDRINUSE),
        other => io::Error::other(other),
    }
}

fn ended(why: CloseReason) -> io::Error {
    match why {
        CloseReason::Refused => errors::refused(),
        CloseReason::Reset => errors::reset(),
        CloseReason::TimedOut => errors::timed_out(),
        CloseReason::Unreachable => io::Error::from_raw_os_error(libc::EHOSTUNREACH),
        CloseReason::Finished | CloseReason::Aborted | CloseReason::OptionsRemoved => {
            errors::broken_pipe()
        }
    }
}

/// What went wrong with a request.
fn broken(status: Status) -> io::Error {
    match status {
        Status::Reset => errors::reset(),
        Status::TimedOut => errors::timed_out(),
        Status::Unreachable => io::Error::from_raw_os_error(libc::EHOSTUNREACH),
        Status::TooLong => errors::too_long(),
        _ => errors::broken_pipe(),
    }
}

impl fmt::Debug for QpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QpHost").field(&self.adapter).finish()
    }
}
