//! Sockets over the Scheduled Transfer Protocol: messages ([`StpSeqPacket`]) and bytes
//! ([`StpStream`]).
//!
//! A connection ends with a [`CloseGuard`] when its socket is dropped.

mod inbox;
mod outbox;
mod stream;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io};

use landfall::stp::{
    Config, Connection, Ended, Endpoint, Error, Operation, Peer, Reason, Sent, Transport,
};

use crate::address::{Address, Carrier, ToAddress};
use crate::errors;
use crate::family::Stp;
use crate::linger::see_off;
use crate::listener::Listener;
#[cfg(feature = "tokio")]
use crate::packets::Packets;
use crate::seqpacket::SeqPacket;
use crate::stream::ByteStream;
use crate::waiting::{block_on, locked, poll_once};
use stream::Streams;

pub use stream::{StpListener, StpSeqPacket};

/// A byte stream over STP: what is written travels in Transfers that are pieces of it.
pub type StpStream = ByteStream<Stp>;

/// Where [`StpStream`]s come in.
pub type StpStreamListener = Listener<StpStream>;

/// What sockets of a [`StpHost`] are like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StpOptions {
    /// The longest message that is taken; its writer gets "Message too long" for others.
    pub message: usize,
    /// Bytes that are taken in before anybody reads them (`SO_RCVBUF`), with one message
    /// more at most.
    pub receive_buffer: usize,
    /// Bytes that may be on their way (`SO_SNDBUF`), or one message.
    pub send_buffer: usize,
    /// How long the last bytes of a socket that was dropped may take to arrive.
    pub linger: Duration,
    /// How many connections a host may have at a time, with those that were closed a
    /// moment ago. (A host over an [`Endpoint`] of one's own has that endpoint's bound.)
    pub connections: usize,
}

impl Default for StpOptions {
    /// A mebibyte each, a minute, and 16,384 connections.
    fn default() -> Self {
        Self {
            message: 1 << 20,
            receive_buffer: 1 << 20,
            send_buffer: 1 << 20,
            linger: Duration::from_secs(60),
            connections: 16_384,
        }
    }
}

type Limits = StpOptions;

/// An endpoint of STP with its sockets. Clones are the same; it ends with the last
/// clone, socket and listener of it.
#[derive(Clone)]
pub struct StpHost(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    options: StpOptions,
}

/// Which endpoint serves sockets that ask for nothing special.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DefaultEndpoint {
    /// For those that connect, by version of IP and carrier.
    Client {
        is_v4: bool,
        is_udp: bool,
    },
    /// For those that listen there.
    ServerUdp(SocketAddr),
    ServerIp(IpAddr),
}

static USUAL: Mutex<BTreeMap<DefaultEndpoint, Weak<Inner>>> = Mutex::new(BTreeMap::new());

impl StpHost {
    /// Sockets over an endpoint that was bound with all that can be chosen there.
    #[must_use]
    pub fn new(endpoint: Endpoint, options: StpOptions) -> Self {
        Self(Arc::new(Inner { endpoint, options }))
    }

    /// Sockets over UDP on a local address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind_udp(address: SocketAddr, options: StpOptions) -> io::Result<Self> {
        Self::open_path(Transport::udp(address), &Config::shared_network(), options)
    }

    /// Sockets over IP itself (protocol 118), on a local address. That takes privileges.
    ///
    /// # Errors
    /// The address cannot be bound, or the process may not.
    pub fn bind_ip(address: IpAddr, options: StpOptions) -> io::Result<Self> {
        Self::open_path(Transport::ip(address), &Config::default(), options)
    }

    /// A plain endpoint with one path, and room for as many connections as sockets may be.
    fn open_path(transport: Transport, usual: &Config, options: StpOptions) -> io::Result<Self> {
        let config = Config {
            connections: options.connections,
            half_open: options.connections.min(1024),
            links: options.connections.saturating_mul(2),
            ..usual.clone()
        };
        let builder = Endpoint::builder().path(transport).config(config).plaintext();
        let endpoint = builder.bind();
        Ok(Self::new(endpoint.map_err(io::Error::other)?, options))
    }

    fn usual(usual: DefaultEndpoint) -> io::Result<Self> {
        let mut hosts = locked(&USUAL);
        if let Some(host) = hosts.get(&usual).and_then(Weak::upgrade) {
            return Ok(Self(host));
        }
        let any = |is_v4| -> IpAddr {
            if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
        };
        let options = StpOptions::default();
        let host = match usual {
            DefaultEndpoint::Client { is_v4, is_udp: true } => {
                Self::bind_udp(SocketAddr::new(any(is_v4), 0), options)
            }
            DefaultEndpoint::Client { is_v4, is_udp: false } => Self::bind_ip(any(is_v4), options),
            DefaultEndpoint::ServerUdp(address) => Self::bind_udp(address, options),
            DefaultEndpoint::ServerIp(address) => Self::bind_ip(address, options),
        }?;
        hosts.retain(|_, host| host.strong_count() > 0);
        // Port 0 is another one each time.
        if !matches!(usual, DefaultEndpoint::ServerUdp(address) if address.port() == 0) {
            hosts.insert(usual, Arc::downgrade(&host.0));
        }
        Ok(host)
    }

    fn client(address: &Address) -> io::Result<Self> {
        match address {
            Address::Stp { host, carrier, .. } => Self::usual(DefaultEndpoint::Client {
                is_v4: host.is_ipv4(),
                is_udp: matches!(carrier, Carrier::Udp(_)),
            }),
            other => Err(wrong(other)),
        }
    }

    fn server(address: &Address) -> io::Result<Self> {
        match address {
            Address::Stp { host, carrier: Carrier::Udp(port), .. } => {
                Self::usual(DefaultEndpoint::ServerUdp(SocketAddr::new(*host, *port)))
            }
            Address::Stp { host, carrier: Carrier::Ip, .. } => {
                Self::usual(DefaultEndpoint::ServerIp(*host))
            }
            other => Err(wrong(other)),
        }
    }

    /// The endpoint behind these sockets.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Connects a socket for messages.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody listens, `TimedOut` where nobody
    /// answers; or that is no address of STP.
    pub fn connect(&self, address: impl ToAddress) -> io::Result<StpSeqPacket> {
        Ok(SeqPacket::of(self.packets(self.blocking(address)?)))
    }

    /// Connects a byte stream.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_stream(&self, address: impl ToAddress) -> io::Result<StpStream> {
        Ok(ByteStream::of(self.duplex(self.blocking(address)?)))
    }

    /// Lets sockets for messages come in at a port of STP; at 0 it is one that is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`].
    pub fn listen(&self, port: u16) -> io::Result<StpListener> {
        self.listener(port)
    }

    /// Lets byte streams come in at a port of STP; at 0 it is one that is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`].
    pub fn listen_streams(&self, port: u16) -> io::Result<StpStreamListener> {
        let listening = Listening::open(self, port)?;
        let local = listening.local.clone();
        Ok(Listener::open(Streams(listening), local))
    }

    fn blocking(&self, address: impl ToAddress) -> io::Result<Connected> {
        let address = address.to_address().map_err(errors::invalid)?;
        let connected = block_on(None::<Instant>, self.open(&address));
        connected.unwrap_or_else(|| Err(errors::timed_out()))
    }

    /// Opens a connection; given up where the future is dropped.
    async fn open(&self, address: &Address) -> io::Result<Connected> {
        let Address::Stp { host, port, carrier } = address else { return Err(wrong(address)) };
        let peer = match carrier {
            Carrier::Udp(udp) => Peer::Socket(SocketAddr::new(*host, *udp)),
            Carrier::Ip => Peer::Ip(*host),
        };
        let opened = self.0.endpoint.connect(peer, *port).await;
        let connection = opened.map_err(|error| unopened(&error))?;
        Ok(Connected { connection, peer: address.clone(), local: self.local(0) })
    }

    /// This endpoint's address, with a port of STP.
    fn local(&self, port: u16) -> Address {
        address_of(self.0.endpoint.local().unwrap_or_default(), port)
    }
}

/// Where a peer is; a peer that has no IP address has none that could be written down.
const fn address_of(peer: Peer, port: u16) -> Address {
    match peer {
        Peer::Socket(socket) => {
            Address::Stp { host: socket.ip(), port, carrier: Carrier::Udp(socket.port()) }
        }
        Peer::Ip(host) => Address::Stp { host, port, carrier: Carrier::Ip },
        _ => Address::Stp { host: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port, carrier: Carrier::Ip },
    }
}

/// A connection that is open, and what it is called.
struct Connected {
    connection: Connection,
    local: Address,
    peer: Address,
}

/// A port where connections come in.
pub(crate) struct Listening {
    listener: landfall::stp::Listener,
    host: StpHost,
    local: Address,
}

impl Listening {
    fn open(host: &StpHost, port: u16) -> io::Result<Self> {
        /// Those that nobody asks for by number.
        const FREE: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;
        let ports = if port == 0 { FREE } else { port..=port };
        let mut why = None;
        for port in ports {
            match host.0.endpoint.listen(port) {
                Ok(listener) => {
                    let (host, local) = (host.clone(), host.local(port));
                    return Ok(Self { listener, host, local });
                }
                Err(error @ Error::Refused(_)) => why = Some(error),
                Err(error) => return Err(failed(&error)),
            }
        }
        let why = why.map_or_else(|| "no port is free".to_owned(), |error| error.to_string());
        Err(io::Error::new(io::ErrorKind::AddrInUse, why))
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Connected>> {
        // Dropped, this future loses nothing: a connection leaves its queue when it is ready.
        poll_once(cx, self.listener.accept()).map(|accepted| {
            let connection = accepted.map_err(|error| failed(&error))?;
            let peer = address_of(connection.peer(), 0);
            Ok(Connected { connection, local: self.local.clone(), peer })
        })
    }
}

/// Why a connection does not begin.
fn unopened(error: &Error) -> io::Error {
    match error {
        Error::Refused(_) => io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "this host has as many connections as `StpOptions::connections` allows ({error})"
            ),
        ),
        other => failed(other),
    }
}

/// As a socket would say it.
fn failed(error: &Error) -> io::Error {
    match error {
        Error::Closed { why: None } => errors::broken_pipe(),
        Error::Closed { why: Some(Ended::Silent) }
        | Error::Ended { why: Ended::Silent, .. }
        | Error::NotConnected(Ended::Silent) => errors::timed_out(),
        Error::NotConnected(
            Ended::Unreachable | Ended::There(Reason::NoListener | Reason::Refused | Reason::Busy),
        ) => errors::refused(),
        Error::Ended {
            why: Ended::There(Reason::Closing | Reason::Refused | Reason::Gone),
            ..
        } => errors::broken_pipe(),
        Error::Closed { .. } | Error::Ended { .. } => errors::reset(),
        Error::NoPathTo { .. } => io::Error::from_raw_os_error(libc::ENETUNREACH),
        other => io::Error::other(other.to_string()),
    }
}

fn wrong(address: &Address) -> io::Error {
    errors::wrong_kind("stp://HOST:PORT", address)
}

impl StpSeqPacket {
    /// Connects to a port of STP: `stp://10.0.0.1:7`.
    ///
    /// # Errors
    /// Those of [`StpHost::connect`].
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(errors::invalid)?;
        StpHost::client(&address)?.connect(address)
    }
}

impl StpListener {
    /// Listens at a port of STP: `stp://10.0.0.1:7`. The UDP port may be 0, and so may
    /// the port itself: [`local_addr`](Self::local_addr) says which they are.
    ///
    /// # Errors
    /// The address cannot be bound, or is taken.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(errors::invalid)?;
        StpHost::server(&address)?.listen(address.port().unwrap_or_default())
    }
}

impl StpStream {
    /// Connects to a port of STP: `stp://10.0.0.1:7`.
    ///
    /// # Errors
    /// Those of [`StpHost::connect`].
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(errors::invalid)?;
        StpHost::client(&address)?.connect_stream(address)
    }
}

impl StpStreamListener {
    /// Listens at a port of STP: see [`StpListener::bind`].
    ///
    /// # Errors
    /// Those of [`StpListener::bind`].
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address().map_err(errors::invalid)?;
        StpHost::server(&address)?.listen_streams(address.port().unwrap_or_default())
    }
}

#[cfg(feature = "tokio")]
impl StpHost {
    /// As [`connect`](Self::connect), for tasks.
    pub(crate) async fn connect_packets(address: impl ToAddress) -> io::Result<Arc<Packets>> {
        let address = address.to_address().map_err(errors::invalid)?;
        let host = Self::client(&address)?;
        Ok(host.packets(host.open(&address).await?))
    }

    /// The same by a host of one's own.
    pub(crate) async fn connect_packets_by(
        &self,
        address: impl ToAddress,
    ) -> io::Result<Arc<Packets>> {
        let address = address.to_address().map_err(errors::invalid)?;
        Ok(self.packets(self.open(&address).await?))
    }

    /// As [`connect_stream`](Self::connect_stream), for tasks.
    pub(crate) async fn open_stream(
        address: impl ToAddress,
    ) -> io::Result<Arc<crate::duplex::Duplex>> {
        let address = address.to_address().map_err(errors::invalid)?;
        let host = Self::client(&address)?;
        Ok(host.duplex(host.open(&address).await?))
    }
}

impl fmt::Debug for StpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StpHost").field(&self.0.endpoint).finish()
    }
}

/// Goes when both directions are gone. What was sent still arrives, and the connection
/// is closed behind it; where something was not read, the other side hears that it is
/// lost, as of a kernel's socket.
struct CloseGuard {
    connection: Connection,
    linger: Duration,
    is_unread: AtomicBool,
    under_way: Mutex<Vec<Operation<Sent>>>,
}

impl CloseGuard {
    fn new(connection: Connection, linger: Duration) -> Self {
        let under_way = Mutex::default();
        Self { connection, linger, is_unread: AtomicBool::new(false), under_way }
    }

    fn leave_unread(&self) {
        self.is_unread.store(true, Ordering::Relaxed);
    }

    fn leave(&self, under_way: impl Iterator<Item = Operation<Sent>>) {
        locked(&self.under_way).extend(under_way);
    }
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        if *self.is_unread.get_mut() {
            self.connection.abort();
            return;
        }
        let under_way = std::mem::take(&mut *locked(&self.under_way));
        let last = Abort(Some(self.connection.clone()));
        see_off(self.linger, async move {
            for operation in under_way {
                // Whether it arrives is nobody's concern any more.
                let _ = operation.await;
            }
            last.close().await;
        });
    }
}

/// A connection that has to close in time.
struct Abort(Option<Connection>);

impl Abort {
    async fn close(mut self) {
        if let Some(connection) = self.0.clone() {
            let _ = connection.close().await;
        }
        self.0 = None;
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.abort();
        }
    }
}
