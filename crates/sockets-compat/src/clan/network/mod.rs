//! Across hosts: [`ClanNetwork`], and how the two sides find each other there.
//!
//! ```text
//!  who connects                         who listens at the port
//!    Connect  version, kind, ring, cookie ->
//!                    <- Accept   the same, of the other side      or Refuse  why
//!    Message  longest message, cookie     ->
//!                    <- Message  likewise
//! ```

mod greeting;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;
use std::{fmt, io};

use landfall::clan::Error;
use landfall::clan::layer::stream::Stream;
use landfall::clan::network::{Config, Endpoint, HostId, Node, Peer, Transport};

use super::messages::{ClanSeqPacket, ClanSeqPacketListener};
use super::stream::{Ends, Joined, Streams, failed};
use super::{ClanListener, ClanOptions, ClanStream, messages};
use crate::address::{Address, ToAddress};
use crate::errors;
use crate::listener::Listener;
use crate::stream::ByteStream;
use crate::waiting::locked;
pub(super) use greeting::Kind;
use greeting::NetworkListener;

/// This process's place in a network of hosts whose memory others write. Clones are the
/// same; it ends with the last clone, stream and listener of it.
///
/// Of hosts that reach each other each has a number of its own, of 4,096. Here it is drawn,
/// and drawn anew where a process that is connected to has the same, or knows another
/// that has; with [`new`](Self::new) it is yours to choose.
///
/// What leaves the host is encrypted, and processes prove themselves with the identity of their
/// user ([`landfall::clan::network`] has more); with [`new`](Self::new) that is yours to choose, too.
///
/// ```
/// use std::io::{Read, Write};
/// use sockets_compat::{ClanListener, ClanStream};
///
/// let listener = ClanListener::bind("clan://127.0.0.1:7/udp/0")?;
/// let mut client = ClanStream::connect(listener.local_addr()?)?;
/// let (mut server, _) = listener.accept()?;
///
/// client.write_all(b"into the memory of another host")?;
/// drop(client);
/// let mut text = String::new();
/// server.read_to_string(&mut text)?;
/// assert_eq!(text, "into the memory of another host");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct ClanNetwork(Arc<Inner>);

struct Inner {
    node: Node,
    options: ClanOptions,
}

/// Which of them serves sockets that ask for nothing special.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DefaultEndpoint {
    Client { is_v4: bool },
    Server(SocketAddr),
}

static USUAL: Mutex<BTreeMap<DefaultEndpoint, Weak<Inner>>> = Mutex::new(BTreeMap::new());

/// How often another number is drawn.
const MOST_DRAWN: usize = 16;

impl ClanNetwork {
    /// Sockets over a node that was opened with all that can be chosen there.
    #[must_use]
    pub fn new(node: Node, options: ClanOptions) -> Self {
        Self(Arc::new(Inner { node, options }))
    }

    /// Sockets over UDP on a local address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind_udp(address: SocketAddr, options: ClanOptions) -> io::Result<Self> {
        let each = options.connections.saturating_add(16);
        let config = Config {
            endpoints: each,
            apertures: each.saturating_mul(2).min(65_535),
            windows: each.saturating_mul(2),
            tripwires: each.saturating_mul(2),
            links: each.min(usize::from(HostId::MAX)),
            ..Config::shared_network()
        };
        let number = RandomState::new().build_hasher().finish() as u16 & HostId::MAX;
        let host = HostId::new(number).unwrap_or_default();
        let node = Node::builder(host).path(Transport::udp(address)).config(config).open();
        Ok(Self::new(node.map_err(unopened)?, options))
    }

    /// The node behind these sockets.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    /// Connects to a port of a host: `clan://10.0.0.1:7`.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody listens at that port, or that host
    /// knows another of this one's number; `TimedOut` where nobody answers; or that is no
    /// such address, or the other side has another ring.
    pub fn connect(&self, address: impl ToAddress) -> io::Result<ClanStream> {
        let address = address.to_address().map_err(errors::invalid)?;
        Ok(ByteStream::of(self.ends(&address, Kind::Stream)?.duplex()))
    }

    /// Connects to a port of a host for messages.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_messages(&self, address: impl ToAddress) -> io::Result<ClanSeqPacket> {
        let address = address.to_address().map_err(errors::invalid)?;
        let ends = self.ends(&address, Kind::Messages)?;
        Ok(messages::socket(ends, self.0.options.longest()))
    }

    /// Lets streams come in at a port; at 0 it is one that is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`].
    pub fn listen(&self, port: u16) -> io::Result<ClanListener> {
        let (accept_thread, local) = NetworkListener::open(&self.0, port, Kind::Stream)?;
        Ok(Listener::open(Streams(accept_thread), local))
    }

    /// Lets sockets for messages come in at a port; at 0 it is one that is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`].
    pub fn listen_messages(&self, port: u16) -> io::Result<ClanSeqPacketListener> {
        let (accept_thread, local) = NetworkListener::open(&self.0, port, Kind::Messages)?;
        Ok(messages::listener(accept_thread, local, self.0.options.longest()))
    }

    fn ends(&self, address: &Address, kind: Kind) -> io::Result<Ends> {
        let Address::ClanPort { host, port, udp } = *address else {
            return Err(errors::wrong_kind("clan://HOST:PORT", address));
        };
        let deadline = Instant::now().checked_add(self.0.options.patience);
        let there = SocketAddr::new(host, udp);
        let joined = greeting::connect(&self.0, there, port, kind, deadline)?;
        Ok(Ends::new(joined, self.0.local(0), address.clone()))
    }

    /// A connection by the place that this process has anyway, and the longest message that
    /// it takes.
    pub(super) fn usual_ends(address: &Address, kind: Kind) -> io::Result<(Ends, u64)> {
        let usual = DefaultEndpoint::Client { is_v4: address.ip().is_some_and(|ip| ip.is_ipv4()) };
        let mut drawn = 0;
        loop {
            let network = Self::usual(usual)?;
            match network.ends(address, kind) {
                Err(error) if greeting::is_of_the_number(&error) && drawn < MOST_DRAWN => {
                    drawn += 1;
                    // What is connected by the old one goes on.
                    let mut hosts = locked(&USUAL);
                    let is_it = |known: &Weak<Inner>| known.as_ptr() == Arc::as_ptr(&network.0);
                    if hosts.get(&usual).is_some_and(is_it) {
                        hosts.remove(&usual);
                    }
                }
                result => return Ok((result?, network.0.options.longest())),
            }
        }
    }

    /// Where this process listens at that address.
    pub(super) fn usual_server(address: &Address) -> io::Result<Self> {
        match address {
            Address::ClanPort { host, udp, .. } => {
                Self::usual(DefaultEndpoint::Server(SocketAddr::new(*host, *udp)))
            }
            other => Err(errors::wrong_kind("clan://HOST:PORT", other)),
        }
    }

    fn usual(usual: DefaultEndpoint) -> io::Result<Self> {
        let mut hosts = locked(&USUAL);
        if let Some(host) = hosts.get(&usual).and_then(Weak::upgrade) {
            return Ok(Self(host));
        }
        let address = match usual {
            DefaultEndpoint::Client { is_v4: true } => {
                (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).into()
            }
            DefaultEndpoint::Client { is_v4: false } => {
                (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0).into()
            }
            DefaultEndpoint::Server(address) => address,
        };
        let host = Self::bind_udp(address, ClanOptions::default())?;
        hosts.retain(|_, host| host.strong_count() > 0);
        // Port 0 is another one each time.
        if !matches!(usual, DefaultEndpoint::Server(address) if address.port() == 0) {
            hosts.insert(usual, Arc::downgrade(&host.0));
        }
        Ok(host)
    }
}

impl Inner {
    /// This place's address, with a port of CLAN.
    fn local(&self, port: u16) -> Address {
        address_of(self.node.local(), port)
    }

    fn joined(
        self: &Arc<Self>,
        stream: Stream<Node>,
        endpoint: Endpoint,
        most: u64,
    ) -> Joined<Node> {
        // Without its endpoint the other side would hear that the connection broke off.
        let keep = Arc::new((Arc::clone(self), endpoint));
        Joined { stream, keep, most, linger: self.options.linger, is_distant: true }
    }
}

/// Where a peer is; one that has no address of UDP has none that could be written down.
fn address_of(peer: Option<Peer>, port: u16) -> Address {
    match peer {
        Some(Peer::Socket(socket)) => {
            Address::ClanPort { host: socket.ip(), port, udp: socket.port() }
        }
        Some(Peer::Ip(host)) => Address::ClanPort { host, port, udp: 0 },
        _ => Address::ClanPort { host: Ipv4Addr::UNSPECIFIED.into(), port, udp: 0 },
    }
}

fn unopened(error: landfall::clan::network::OpenError) -> io::Error {
    use landfall::clan::network::OpenError;
    match error {
        OpenError::Path { source, .. } if source.raw_os_error().is_some() => source,
        other => io::Error::other(other),
    }
}

/// As a socket that connects would say it.
fn unconnected(error: Error) -> io::Error {
    match error {
        Error::TimedOut | Error::NoRoute => errors::timed_out(),
        Error::NoRoom(_) => io::Error::new(io::ErrorKind::QuotaExceeded, error),
        other => failed(other),
    }
}

impl fmt::Debug for ClanNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClanNetwork").field(&self.0.node).finish()
    }
}
