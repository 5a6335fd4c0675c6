//! [`Endpoint`] and [`Listener`], and [`Stats`]: what was done so far.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use landfall_placement::{Engine as _, PathId, Peer, Refusals};
use landfall_seal::{Fingerprint, SealStats};
use landfall_transport::memory::{MappedMemory, Memory, Rights};
use stp_core::Connect;

use super::builder::Builder;
use super::connection::Connection;
use super::error::{BindError, Error, Failed};
use super::memory::Region;
use super::path::Transport;
use super::reach::ToPeers;
use super::shards::{Shards, Spread};
use super::state::{EndpointState, Handle, Status, Submission};
use crate::security::Wanted;

pub use crate::runtime::PathStats;

/// One end of the Scheduled Transfer Protocol: connections, registered memory,
/// and the paths that they use. Clones are the same endpoint.
///
/// When the last handle is dropped (endpoints, listeners, connections,
/// operations), connections are closed in the background, for as long as
/// [`Builder::linger`] says. [`close`](Self::close) waits for that.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Shards>);

impl Endpoint {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Self::of_shards(Shards::new(vec![handle], Spread::Sockets))
    }

    /// Of several engines, with the same memory.
    pub(super) fn of_shards(shards: Shards) -> Self {
        Self(Arc::new(shards))
    }

    /// The first of its engines.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        self.0.first()
    }

    /// How many engines it has, each with a thread of its own: see [`Builder::threads`].
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.all().len()
    }

    /// An endpoint with one path, and otherwise as usual.
    ///
    /// # Errors
    /// [`BindError`] says why the path could not be opened, and what helps.
    pub fn bind(transport: Transport) -> Result<Self, BindError> {
        Self::builder().path(transport).bind()
    }

    /// Returns a builder for an endpoint.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where peers reach this endpoint on its first path, if the path has an
    /// address of its own.
    #[must_use]
    pub fn local(&self) -> Option<Peer> {
        self.local_of(PathId(0))
    }

    /// Where peers reach this endpoint on that path.
    #[must_use]
    pub fn local_of(&self, path: PathId) -> Option<Peer> {
        self.0.check_path(path).ok()?;
        self.handle().look(|core| core.paths.get(self.0.listening(path))?.local)
    }

    /// Registers memory: it is lent until [`Region::take_back`].
    ///
    /// # Errors
    /// The region limit is reached; the memory is given back.
    pub fn register(&self, memory: Memory) -> Result<Region, Failed> {
        self.handle().pool().lend(memory, Rights::READ | Rights::WRITE | Rights::WORDS)
    }

    /// Registers memory that the caller has mapped by itself, such as a file that processes
    /// share: what comes is placed there for all of them to see. The grant ends with the last
    /// handle of the [`Region`] and its last operation; there is nothing to take back.
    ///
    /// # Errors
    /// The region limit is reached.
    pub fn register_mapped(&self, memory: &MappedMemory) -> Result<Region, Error> {
        self.handle().pool().lend_mapped(memory)
    }

    /// `len` bytes of this endpoint's arena: page-aligned, friendly to huge
    /// pages, with whatever its last user left in them. Dropped, they go back.
    ///
    /// # Errors
    /// The arena's bound is reached, or the kernel has no more.
    pub fn memory(&self, len: usize) -> Result<Memory, Error> {
        Ok(self.handle().pool().arena.take(len)?)
    }

    /// Lets connections come in at a port, from 0 to 65,535. It is STP's own
    /// number, and has nothing to do with ports of UDP.
    ///
    /// # Errors
    /// Somebody listens there already, or the endpoint is closed.
    pub fn listen(&self, port: u16) -> Result<Listener, Error> {
        for (at, handle) in self.0.all().iter().enumerate() {
            if let Err(error) = handle.ask(|core, _| core.listen(port)) {
                for handle in &self.0.all()[..at] {
                    handle.submit(Submission::StopListening(port));
                }
                return Err(error);
            }
        }
        Ok(Listener { shards: Arc::clone(&self.0), port })
    }

    /// Opens a connection to a peer, where somebody listens at that port, over
    /// the first path that leads to such a peer. A host may be given by its name
    /// ([`ToPeers`]); where that has several addresses they are tried in turn.
    ///
    /// A peer that does not answer is given up after
    /// [`Config::connect_within`](super::Config::connect_within), 5 seconds.
    ///
    /// ```
    /// use landfall::stp::{Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let at = server.local().unwrap().to_string();
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let connection = client.connect(at, 7)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::NoPathTo`], [`Error::Refused`] at a bound, and
    /// [`Error::NotConnected`] where the peer does not want it or is silent. Of several
    /// addresses it is what became of the last one.
    pub async fn connect(&self, peer: impl ToPeers, port: u16) -> Result<Connection, Error> {
        let peers = peer.to_peers()?;
        let name = peer.name().map(Box::<str>::from);
        drop(peer);
        let mut last = Error::NoPathTo { peer: Peer::default() };
        for peer in peers {
            let handle = self.0.for_peer(peer);
            let path = handle.look(|core| {
                core.check_open()?;
                core.paths.to(peer).ok_or(Error::NoPathTo { peer })
            });
            let opened = match path {
                Ok(path) => {
                    let wanted = Wanted { pinned: None, name: name.clone() };
                    self.connect_from(handle, path, (peer, wanted), (port, 0)).await
                }
                Err(error) => Err(error),
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Opens a connection to a peer that must have the key with this fingerprint.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::NoKeys`] where the peer has another key, and
    /// [`Error::NotEncrypted`] where this endpoint encrypts nothing on the way to it.
    pub async fn connect_pinned(
        &self,
        peer: impl Into<Peer>,
        port: u16,
        pinned: Fingerprint,
    ) -> Result<Connection, Error> {
        let peer = peer.into();
        let handle = self.0.for_peer(peer);
        let path = handle.look(|core| {
            core.check_open()?;
            core.paths.to(peer).ok_or(Error::NoPathTo { peer })
        })?;
        let wanted = Wanted { pinned: Some(pinned), name: None };
        self.connect_from(handle, path, (peer, wanted), (port, 0)).await
    }

    /// Opens a connection to a peer whose certificate has to be for this name, wherever it is.
    /// [`connect`](Self::connect) takes the name that it is given; where that is an address, the
    /// certificate has to be for the address.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::NoKeys`] says what is wrong with the certificate.
    #[cfg(feature = "certificates")]
    pub async fn connect_named(
        &self,
        peer: impl Into<Peer>,
        port: u16,
        name: &str,
    ) -> Result<Connection, Error> {
        let peer = peer.into();
        let handle = self.0.for_peer(peer);
        let path = handle.look(|core| {
            core.check_open()?;
            core.paths.to(peer).ok_or(Error::NoPathTo { peer })
        })?;
        let wanted = Wanted { pinned: None, name: Some(name.into()) };
        self.connect_from(handle, path, (peer, wanted), (port, 0)).await
    }

    /// What peers know this endpoint by. Nothing where it encrypts nothing, or with a
    /// pre-shared key.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let fingerprint = |core: &mut EndpointState| core.security.fingerprint();
        self.handle().look(|core| core.engine.is_sealed().then(|| fingerprint(core)).flatten())
    }

    /// Opens a connection over a path of your choice, with eight bytes for the
    /// user at the other side.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`Error::UnknownPath`].
    pub async fn connect_over(
        &self,
        path: PathId,
        peer: impl Into<Peer>,
        port: u16,
        hello: u64,
    ) -> Result<Connection, Error> {
        self.0.check_path(path)?;
        let (peer, wanted) = (peer.into(), Wanted::default());
        self.connect_from(self.0.for_peer(peer), path, (peer, wanted), (port, hello)).await
    }

    async fn connect_from(
        &self,
        handle: &Arc<Handle>,
        path: PathId,
        to: (Peer, Wanted),
        (port, hello): (u16, u64),
    ) -> Result<Connection, Error> {
        let id = handle.ask(|core, now| {
            core.check_open()?;
            core.paths.get(path).ok_or(Error::UnknownPath(path))?;
            core.connect(now, path, to, Connect { port, local_port: None, hello })
        })?;
        // Dropped before it is open, it is given up.
        let connection = Connection::new(&self.0, handle, id);
        let opened = poll_fn(|cx| {
            handle.look(|core| {
                core.poll_known(id, cx, |known| (known.status == Status::Open).then_some(()))
            })
        });
        match opened.await {
            Ok(()) => Ok(connection),
            Err(Error::Closed { why: Some(why) }) => {
                Err(handle.look(|core| core.not_connected(id, why)))
            }
            Err(other) => Err(other),
        }
    }

    /// The paths of this endpoint.
    #[must_use]
    pub fn paths(&self) -> Vec<PathId> {
        let all: Vec<_> =
            self.handle().look(|core| core.paths.iter().map(|path| path.driver.path()).collect());
        all.into_iter().filter(|path| self.0.check_path(*path).is_ok()).collect()
    }

    /// Switches a path off or on. What it had goes over the other links of its
    /// connections. A path that broke stays off.
    ///
    /// # Errors
    /// [`Error::UnknownPath`].
    pub fn set_path_up(&self, path: PathId, is_up: bool) -> Result<(), Error> {
        self.0.check_path(path)?;
        for handle in self.0.all() {
            handle.ask(|core, now| core.set_path_up(now, path, is_up))?;
            let listening = self.0.listening(path);
            if listening != path {
                handle.ask(|core, now| core.set_path_up(now, listening, is_up))?;
            }
        }
        Ok(())
    }

    /// What was done so far, by all engines together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let pool = self.handle().pool();
        let mut all = Stats {
            engine: stp_core::Stats::default(),
            seal: SealStats::default(),
            refusals: Refusals::new(),
            connections: 0,
            granted_bytes: 0,
            operations: 0,
            regions: pool.held(),
            bytes_copied_in: pool.copied(),
            paths: Vec::new(),
        };
        for handle in self.0.all() {
            handle.look(|core| {
                all.engine += *core.engine.stats();
                all.seal += core.engine.seal_stats();
                all.refusals += *core.engine.refusals();
                all.connections += core.engine.connections();
                all.granted_bytes += core.engine.granted_bytes();
                all.operations += core.slots.len();
                all.paths.extend(core.paths.iter().map(PathStats::of));
            });
        }
        all
    }

    /// Closes every connection gracefully, within [`Builder::linger`], and ends
    /// those that take longer. Other handles of this endpoint are of no use
    /// afterwards. It lets go of its paths in the background: for a while it
    /// answers peers that did not hear the last word.
    pub async fn close(self) {
        let handles = self.0.all();
        handles.iter().for_each(|handle| handle.end());
        for handle in handles {
            poll_fn(|cx| match handle.watch_end(cx.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }
}

/// A port where connections come in. Dropped, none do any more; those that
/// nobody accepted are refused.
#[derive(Debug)]
pub struct Listener {
    shards: Arc<Shards>,
    port: u16,
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub async fn accept(&self) -> Result<Connection, Error> {
        poll_fn(|cx| {
            // None is left behind though another always has one.
            for handle in self.shards.in_turn() {
                if let Poll::Ready(accepted) = handle.look(|core| core.poll_accept(self.port, cx)) {
                    return Poll::Ready(
                        accepted.map(|id| Connection::new(&self.shards, handle, id)),
                    );
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The first of the endpoint's engines.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        self.shards.first()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for handle in self.shards.all() {
            handle.submit(Submission::StopListening(self.port));
        }
    }
}

/// What an endpoint did so far, and how much of what there is at the moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the protocol.
    pub engine: stp_core::Stats,
    /// What was sealed and opened, and what was not: all zero where nothing is encrypted.
    pub seal: SealStats,
    /// How often which check refused a packet.
    pub refusals: Refusals,
    /// Connections, in any state.
    pub connections: usize,
    /// Bytes that senders may send and that have not arrived.
    pub granted_bytes: u64,
    /// Operations under way.
    pub operations: usize,
    /// Registered regions, with the memory of operations under way.
    pub regions: u32,
    /// Bytes that were not in registered memory, and were copied there.
    pub bytes_copied_in: u64,
    /// Each path; of [several threads](Builder::threads) those of all engines, one after another:
    /// over UDP first the one from which connections go out and then the one where they come in.
    pub paths: Vec<PathStats>,
}
