//! Byte streams over shared memory: [`ClanStream`], [`ClanListener`].
//!
//! A service has a name in a folder, where it listens at a Unix socket. Over that the
//! two sides exchange the cookies of their memory, and nothing else: bytes go from one
//! process's memory into the other's, and no kernel sees them.

mod rendezvous;
mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use landfall::clan::Error;
use landfall::clan::layer::stream::{Config, Stream};
pub use landfall::clan::shared::Admit;
use landfall::clan::shared::{Shared, SharedConfig};
use landfall_transport::shm::rendezvous::RendezvousError;

use crate::address::{Address, Name, ToAddress};
use crate::errors;
use crate::family::Clan;
use crate::listener::{Hall, Listener};
use crate::stream::ByteStream;
use crate::waiting::locked;
use rendezvous::Reception;
use stream::Joined;

/// A byte stream to a process of this host, over shared memory.
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
pub type ClanListener = Listener<Clan>;

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
}

impl Default for ClanOptions {
    /// 512 KiB each way, processes of the same user, 1,024 that wait, five seconds.
    fn default() -> Self {
        Self {
            ring: 512 << 10,
            admit: Admit::SameUser,
            backlog: 1024,
            patience: Duration::from_secs(5),
        }
    }
}

/// This process's place in a folder where processes meet. Clones are the same; it ends
/// with the last clone, stream and listener of it.
#[derive(Clone)]
pub struct ClanHost(Arc<Inner>);

struct Inner {
    node: Shared,
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
        let node = Shared::open(config)?;
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
        let stream = rendezvous::connect(&self.0, name)?;
        let peer = Address::Clan { folder: self.0.folder.clone(), name: Some(name.clone()) };
        Ok(ByteStream::of(stream::duplex(stream, self.unnamed(), peer)))
    }

    /// Takes a name, and lets others connect.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] where somebody has that name.
    pub fn listen(&self, name: &Name) -> io::Result<ClanListener> {
        let local = Address::Clan { folder: self.0.folder.clone(), name: Some(name.clone()) };
        let reception = Reception::open(&self.0, name, (local.clone(), self.unnamed()))?;
        Ok(Listener::of(Hall::new(Box::new(reception), local)))
    }

    fn unnamed(&self) -> Address {
        Address::Clan { folder: self.0.folder.clone(), name: None }
    }
}

impl Inner {
    fn path_of(&self, name: &Name) -> PathBuf {
        self.folder.join(format!("{name}.stream"))
    }

    const fn config(&self) -> Config {
        Config::new(self.options.ring)
    }

    fn opening(&self) -> Result<landfall::clan::layer::stream::Opening<Shared>, Error> {
        Stream::open(&self.node, self.config())
    }
}

impl fmt::Debug for ClanHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClanHost").field(&self.0.node).finish()
    }
}

/// The folder and the name of an address.
fn named(address: &impl ToAddress) -> io::Result<(PathBuf, Name)> {
    match address.to_address().map_err(errors::invalid)? {
        Address::Clan { folder, name: Some(name) } => Ok((folder, name)),
        other => Err(errors::wrong_kind("clan:///FOLDER#NAME", &other)),
    }
}

impl ClanStream {
    /// Connects to a service: `clan:///FOLDER#NAME`.
    ///
    /// # Errors
    /// That is no such address, and those of [`ClanHost::connect`].
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        let (folder, name) = named(&address)?;
        ClanHost::of(&folder)?.connect(&name)
    }

    /// Two that are connected to each other, as `socketpair` gives.
    ///
    /// # Errors
    /// The system has no room.
    pub fn pair(host: &ClanHost) -> io::Result<(Self, Self)> {
        let (one, two) = (host.0.opening()?, host.0.opening()?);
        let (to_one, to_two) = (one.cookies(), two.cookies());
        let end = |stream| {
            let joined = Joined { stream, keep: Arc::<Inner>::clone(&host.0) };
            Self::of(stream::duplex(joined, host.unnamed(), host.unnamed()))
        };
        Ok((end(one.connect(&to_two)?), end(two.connect(&to_one)?)))
    }
}

impl ClanListener {
    /// Takes a name in a folder: `clan:///FOLDER#NAME`.
    ///
    /// # Errors
    /// That is no such address, and those of [`ClanHost::listen`].
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let (folder, name) = named(&address)?;
        ClanHost::of(&folder)?.listen(&name)
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
