//! Sockets over shared memory: byte streams ([`ClanStream`]) and messages
//! ([`ClanSeqPacket`]).
//!
//! Within a host a service has a name in a folder, where it listens at a Unix socket. Over
//! that the two sides exchange the cookies of their memory, and nothing else: bytes go from
//! one process's memory into the other's, and no kernel sees them. Across hosts
//! ([`ClanNetwork`]) a service has a port, cookies go from port to port, and writes into
//! the other's memory travel as bursts in packets. What is above is the same.

mod accept_thread;
mod messages;
mod network;
mod rendezvous;
mod stream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use std::{fmt, io};

use landfall::clan::Error;
use landfall::clan::layer::stream::{Config, Stream};
pub use landfall::clan::shared::Admit;
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall_transport::shm::rendezvous::RendezvousError;

use crate::address::{Address, Name, ToAddress};
use crate::errors;
use crate::family::Clan;
use crate::listener::Listener;
use crate::stream::ByteStream;
use crate::waiting::locked;
use accept_thread::AcceptThread;
pub use messages::{ClanSeqPacket, ClanSeqPacketListener};
pub use network::ClanNetwork;
use rendezvous::LocalListener;
use stream::{Ends, Joined, Streams};

/// A byte stream over shared memory: to a process of this host, where the address names a
/// folder, or to another host, where it names one.
///
/// ```
/// use std::io::{Read, Write};
/// use sockets_compat::{ClanListener, ClanStream};
///
/// # let folder = std::env::temp_dir().join(format!("landfall-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let address = format!("clan://{}#echo", folder.display());
/// let listener = ClanListener::bind(&address)?;
/// let mut client = ClanStream::connect(&address)?;
/// let (mut server, _) = listener.accept()?;
///
/// client.write_all(b"every byte has its place")?;
/// client.shutdown(std::net::Shutdown::Write)?;
/// let mut text = String::new();
/// server.read_to_string(&mut text)?;
/// assert_eq!(text, "every byte has its place");
/// # drop((listener, client, server));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ClanStream = ByteStream<Clan>;

/// Where [`ClanStream`]s come in.
pub type ClanListener = Listener<ClanStream>;

/// What streams of a [`ClanHost`] are like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClanOptions {
    /// Bytes that may be under way in one direction (`SO_RCVBUF`); a multiple of eight,
    /// and the same on both sides.
    pub ring: u64,
    /// Which processes may connect, and may be connected to.
    pub admit: Admit,
    /// How many connections may wait to be accepted; more are refused.
    pub backlog: usize,
    /// How long the other side may take to answer while a connection is made.
    pub patience: Duration,
    /// The longest message that a socket for messages takes.
    pub message: usize,
    /// How long the last bytes of a socket that was dropped may take to arrive.
    pub linger: Duration,
    /// How many connections a [`ClanNetwork`] may have at a time.
    pub connections: usize,
}

impl Default for ClanOptions {
    /// 512 KiB each way, processes of the same user, 1,024 that wait, five seconds; messages
    /// of a mebibyte, a minute, and 8,192 connections.
    fn default() -> Self {
        Self {
            ring: 512 << 10,
            admit: Admit::SameUser,
            backlog: 1024,
            patience: Duration::from_secs(5),
            message: 1 << 20,
            linger: Duration::from_secs(60),
            connections: 8192,
        }
    }
}

impl ClanOptions {
    const fn stream(&self) -> Config {
        Config::new(self.ring)
    }

    /// Lengths of messages are told in four bytes.
    const fn longest(&self) -> u64 {
        let most = self.message as u64;
        if most > u32::MAX as u64 { u32::MAX as u64 } else { most }
    }
}

/// This process's place in a folder where processes meet. Clones are the same; it ends
/// with the last clone, stream and listener of it.
#[derive(Clone)]
pub struct ClanHost(Arc<Inner>);

struct Inner {
    node: SharedNode,
    folder: PathBuf,
    options: ClanOptions,
}

/// One for each folder, for streams that ask for nothing special.
static HOSTS: Mutex<BTreeMap<PathBuf, Weak<Inner>>> = Mutex::new(BTreeMap::new());

impl ClanHost {
    /// A place of one's own in a folder, which has to exist.
    ///
    /// # Errors
    /// The folder is not there or not absolute, or the system has no room.
    pub fn open(folder: impl Into<PathBuf>, options: ClanOptions) -> io::Result<Self> {
        let folder = folder.into();
        if !folder.is_dir() {
            let why = format!(
                "{} is no folder: create it, for those only who may meet there",
                folder.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let mut config = SharedConfig::new(&folder);
        config.admit = options.admit.clone();
        config.patience = options.patience;
        let node = SharedNode::open(config)?;
        Ok(Self(Arc::new(Inner { node, folder, options })))
    }

    /// The one that this process has in that folder anyway.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn of(folder: &Path) -> io::Result<Self> {
        let mut hosts = locked(&HOSTS);
        if let Some(host) = hosts.get(folder).and_then(Weak::upgrade) {
            return Ok(Self(host));
        }
        let host = Self::open(folder, ClanOptions::default())?;
        hosts.retain(|_, host| host.strong_count() > 0);
        hosts.insert(folder.into(), Arc::downgrade(&host.0));
        Ok(host)
    }

    /// Connects to the service of that name.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`] where nobody has that name; others where the
    /// process there does not answer, may not be trusted, or has another ring.
    pub fn connect(&self, name: &Name) -> io::Result<ClanStream> {
        Ok(ByteStream::of(self.ends(name, STREAMS)?.duplex()))
    }

    /// Connects to the service for messages of that name.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_messages(&self, name: &Name) -> io::Result<ClanSeqPacket> {
        Ok(messages::socket(self.ends(name, MESSAGES)?, self.0.options.longest()))
    }

    /// Takes a name, and lets others connect.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] where somebody has that name.
    pub fn listen(&self, name: &Name) -> io::Result<ClanListener> {
        let (accept_thread, local) = self.accept_thread(name, STREAMS)?;
        Ok(Listener::open(Streams(accept_thread), local))
    }

    /// Takes a name, and lets others connect for messages. A service for streams may have
    /// the same name.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_messages(&self, name: &Name) -> io::Result<ClanSeqPacketListener> {
        let (accept_thread, local) = self.accept_thread(name, MESSAGES)?;
        Ok(messages::listener(accept_thread, local, self.0.options.longest()))
    }

    fn ends(&self, name: &Name, kind: &str) -> io::Result<Ends> {
        let joined = rendezvous::connect(&self.0, &self.0.path_of(name, kind))?;
        Ok(Ends::new(joined, self.unnamed(), self.named(name)))
    }

    fn accept_thread(
        &self,
        name: &Name,
        kind: &str,
    ) -> io::Result<(AcceptThread<LocalListener>, Address)> {
        let (path, local) = (self.0.path_of(name, kind), self.named(name));
        Ok((LocalListener::open(&self.0, &path, (local.clone(), self.unnamed()))?, local))
    }

    fn named(&self, name: &Name) -> Address {
        Address::Clan { folder: self.0.folder.clone(), name: Some(name.clone()) }
    }

    fn unnamed(&self) -> Address {
        Address::Clan { folder: self.0.folder.clone(), name: None }
    }
}

/// What a service is for.
const STREAMS: &str = "stream";
const MESSAGES: &str = "messages";

impl Inner {
    fn path_of(&self, name: &Name, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    fn opening(&self) -> Result<landfall::clan::layer::stream::Opening<SharedNode>, Error> {
        Stream::open(&self.node, self.options.stream())
    }

    fn joined(self: &Arc<Self>, stream: Stream<SharedNode>, most: u64) -> Joined<SharedNode> {
        let keep = Arc::<Self>::clone(self);
        Joined { stream, keep, most, linger: self.options.linger, is_distant: false }
    }
}

impl fmt::Debug for ClanHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClanHost").field(&self.0.node).finish()
    }
}

/// Where a socket of this family is.
enum Place {
    /// On this host.
    Here(ClanHost, Name),
    /// At that port of a host.
    There(Address),
}

fn place_of(address: &impl ToAddress) -> io::Result<Place> {
    match address.to_address().map_err(errors::invalid)? {
        Address::Clan { folder, name: Some(name) } => Ok(Place::Here(ClanHost::of(&folder)?, name)),
        address @ Address::ClanPort { .. } => Ok(Place::There(address)),
        other => Err(errors::wrong_kind("clan:///FOLDER#NAME or clan://HOST:PORT", &other)),
    }
}

impl ClanStream {
    /// Connects to a service: `clan:///FOLDER#NAME` on this host, `clan://HOST:PORT` on
    /// another.
    ///
    /// # Errors
    /// That is no such address, and those of [`ClanHost::connect`] and
    /// [`ClanNetwork::connect`].
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        match place_of(&address)? {
            Place::Here(host, name) => host.connect(&name),
            Place::There(address) => {
                Ok(Self::of(ClanNetwork::usual_ends(&address, network::Kind::Stream)?.0.duplex()))
            }
        }
    }

    /// Two that are connected to each other, as `socketpair` gives.
    ///
    /// # Errors
    /// The system has no room.
    pub fn pair(host: &ClanHost) -> io::Result<(Self, Self)> {
        let (one, two) = (host.0.opening()?, host.0.opening()?);
        let (to_one, to_two) = (one.cookies(), two.cookies());
        let end = |stream| {
            let joined = host.0.joined(stream, 0);
            Self::of(Ends::new(joined, host.unnamed(), host.unnamed()).duplex())
        };
        Ok((end(one.connect(&to_two)?), end(two.connect(&to_one)?)))
    }
}

impl ClanListener {
    /// Takes a name in a folder, `clan:///FOLDER#NAME`, or a port of this host for others,
    /// `clan://ADDRESS:PORT`. Port 0 is one that is free, and so is UDP port 0:
    /// [`local_addr`](Self::local_addr) says which.
    ///
    /// # Errors
    /// That is no such address, and those of [`ClanHost::listen`] and
    /// [`ClanNetwork::listen`].
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        match place_of(&address)? {
            Place::Here(host, name) => host.listen(&name),
            Place::There(address) => {
                ClanNetwork::usual_server(&address)?.listen(address.port().unwrap_or_default())
            }
        }
    }
}

impl ClanSeqPacket {
    /// Connects to a service for messages: see [`ClanStream::connect`].
    ///
    /// # Errors
    /// Those of [`ClanStream::connect`].
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        match place_of(&address)? {
            Place::Here(host, name) => host.connect_messages(&name),
            Place::There(address) => {
                let (ends, most) = ClanNetwork::usual_ends(&address, network::Kind::Messages)?;
                Ok(messages::socket(ends, most))
            }
        }
    }
}

impl ClanSeqPacketListener {
    /// Lets sockets for messages come in: see [`ClanListener::bind`].
    ///
    /// # Errors
    /// Those of [`ClanListener::bind`].
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        match place_of(&address)? {
            Place::Here(host, name) => host.listen_messages(&name),
            Place::There(address) => {
                let port = address.port().unwrap_or_default();
                ClanNetwork::usual_server(&address)?.listen_messages(port)
            }
        }
    }
}

/// As a socket would say it.
fn met(error: RendezvousError) -> io::Error {
    match error {
        RendezvousError::InUse(_) => io::Error::new(io::ErrorKind::AddrInUse, error),
        RendezvousError::Nobody(_) | RendezvousError::Gone => errors::refused(),
        RendezvousError::System { error, .. } if error.raw_os_error().is_some() => error,
        other => io::Error::other(other),
    }
}
