//! [`Server`]: devices for clients of NBD, over whatever carries bytes.
//!
//! What servers of other protocols need as well is here, too: [`StreamServer`], the workers and
//! what is counted.

mod connection;
mod exports;
#[cfg(feature = "family")]
mod family;
mod input;
mod output;
#[cfg(feature = "uring")]
pub(crate) mod ring;
#[cfg(all(feature = "uring", feature = "family"))]
mod ring_in_place;
#[cfg(feature = "family")]
mod send_ring;
mod streams;
pub(crate) mod tally;
mod workers;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use landfall_nbd::server::{Config, Tls};
#[cfg(feature = "family")]
use sockets_compat::{Address, StpHost};

use connection::{Common, serve};
use exports::ExportTable;
pub use exports::Offer;
#[cfg(feature = "family")]
pub use family::{Hosts, ListenAddress, listen_at};
pub(crate) use input::Input;
pub use streams::StreamServer;
pub use tally::ServerStats;
pub(crate) use workers::Workers;

/// Threads that wait for media, for all clients together.
pub(crate) const WORKERS: usize = 16;

/// Tells of clients, in words for a log.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A server of block devices.
///
/// ```
/// use landfall_storage::device::MemoryDevice;
/// use landfall_storage::server::{Offer, Server};
/// use landfall_storage::client::{Client, Options};
///
/// let server = Server::builder().offer(Offer::new("disk", MemoryDevice::new(1 << 20))).start()?;
/// let address = server.listen("127.0.0.1:0")?;
///
/// let client = Client::connect_tcp(address, &Options::export("disk"))?;
/// client.write(4096, b"every byte has its place".to_vec()).wait()?;
/// client.flush().wait()?;
/// assert_eq!(client.read(4096, vec![0; 5]).wait()?, b"every");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropped, it stops: what was begun is ended, and clients are told.
pub struct Server {
    /// Ended first.
    streams: StreamServer,
    common: Arc<Common>,
}

/// What a [`Server`] shall be like.
#[must_use]
pub struct Builder {
    exports: ExportTable,
    doubled: Option<String>,
    config: Config,
    log: Option<Log>,
    most_clients: usize,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Builder {
    /// Offers a device.
    pub fn offer(mut self, offer: Offer) -> Self {
        let name = offer.name().to_owned();
        if !self.exports.add(offer) {
            self.doubled = Some(name);
        }
        self
    }

    /// Tells of clients that come and go, and of what goes wrong.
    pub fn log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// This many clients at a time; others are turned away.
    pub const fn clients(mut self, most: usize) -> Self {
        self.most_clients = most;
        self
    }

    /// TLS for anyone who wants it, or for all.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ServerConfig>, required: bool) -> Self {
        self.config.tls = if required { Tls::Required } else { Tls::Optional };
        self.tls = Some(config);
        self
    }

    /// Starts it. Clients come in by [`Server::listen`] and its like.
    ///
    /// # Errors
    /// Two exports have one name.
    pub fn start(self) -> io::Result<Server> {
        if let Some(name) = self.doubled {
            let what = format!("two exports have one name: {name}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        #[cfg(feature = "tls")]
        let secure = self.tls.map(|config| -> connection::Secure {
            Box::new(move |stream| crate::stream::tls::accept(stream, &config))
        });
        #[cfg(not(feature = "tls"))]
        let secure = None;
        let is_ending = Arc::new(AtomicBool::new(false));
        let common = Arc::new(Common {
            exports: self.exports,
            workers: Workers::new(WORKERS),
            config: self.config,
            is_ending: Arc::clone(&is_ending),
            secure,
            tally: tally::Tally::default(),
        });
        let of_clients = Arc::clone(&common);
        let serve = move |stream| serve(stream, &of_clients).map_err(|error| error.to_string());
        let streams = StreamServer::new(Box::new(serve), is_ending, self.log, self.most_clients);
        Ok(Server { streams, common })
    }
}

impl Server {
    /// A server without exports, for 1024 clients.
    pub fn builder() -> Builder {
        let config = Config { tls: Tls::None, ..Config::default() };
        Builder {
            exports: ExportTable::default(),
            doubled: None,
            config,
            log: None,
            most_clients: 1024,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Lets clients come in over the kernel's TCP. Gives the address, whose port may have
    /// been 0.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn listen(&self, address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        self.streams.listen(address)
    }

    /// Lets clients of this host come in, at a path where there is nothing yet.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn listen_unix(&self, path: &Path) -> io::Result<()> {
        self.streams.listen_unix(path)
    }

    /// Lets clients come in by any other stream, and knows how many are here.
    #[must_use]
    pub const fn streams(&self) -> &StreamServer {
        &self.streams
    }

    /// Offers one device more. False: its name is taken.
    pub fn offer(&self, offer: Offer) -> bool {
        self.common.exports.add(offer)
    }

    /// Withdraws an export. Anyone who uses it is told at the next request. False: there is
    /// none of this name.
    pub fn withdraw(&self, name: &str) -> bool {
        self.common.exports.remove(name)
    }

    /// What was asked for so far, by all clients together.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.common.tally.stats()
    }
}

/// A server of block devices, whatever its protocol.
pub trait BlockServer {
    /// What lets its clients come in.
    fn streams(&self) -> &StreamServer;

    /// What was asked for so far, by all clients together.
    fn stats(&self) -> ServerStats;

    /// Lets clients come in at a port of STP of this endpoint, in the way of the protocol. Gives the
    /// address.
    ///
    /// # Errors
    /// The port is taken.
    #[cfg(feature = "family")]
    fn listen_stp(&self, host: &StpHost, port: u16) -> io::Result<Address> {
        self.streams().listen_stp(host, port)
    }
}

impl BlockServer for Server {
    fn streams(&self) -> &StreamServer {
        self.streams()
    }

    fn stats(&self) -> ServerStats {
        self.stats()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("clients", &self.streams.clients()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("clients", &self.most_clients).finish_non_exhaustive()
    }
}
