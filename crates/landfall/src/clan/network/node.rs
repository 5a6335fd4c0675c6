//! [`Node`]: one host of distributed shared memory, and [`Stats`]: what it did so far.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use clan_dsm::{Access, Cookie, HostId, Port, Rights};
use landfall_placement::{Engine as _, PathId, Peer, Refusals};
use landfall_seal::{Fingerprint, SealStats};
use landfall_transport::memory::Regions;

use super::builder::Builder;
use super::endpoint::Endpoint;
use super::engines::NodeHandle;
use super::events::Events;
use super::memory::Aperture;
use super::neighbour::Link;
use super::open_error::OpenError;
use super::path::Transport;
use super::state::NodeState;
use super::tripwire::{Tripwire, wait_any};
use super::window::Window;
use crate::clan::messaging::Messaging;
use crate::clan::{Error, Eventful, Fabric, Group};
use crate::security::Wanted;

pub use crate::runtime::PathStats;

/// One host of distributed shared memory over networks. Clones are the same node.
///
/// Memory, tripwires and waiting are those of [`Fabric`]. When the last handle of
/// any kind is gone, what was written is still sent, within [`Builder::linger`].
#[derive(Clone)]
pub struct Node {
    handle: NodeHandle,
    host: HostId,
}

impl Node {
    pub(crate) const fn new(handle: NodeHandle, host: HostId) -> Self {
        Self { handle, host }
    }

    /// Opens a node with one path and the defaults. Hosts that reach each other
    /// need different numbers.
    ///
    /// # Errors
    /// [`OpenError`] says why the path could not be opened, and what helps.
    pub fn open(host: HostId, transport: Transport) -> Result<Self, OpenError> {
        Self::builder(host).path(transport).open()
    }

    /// Returns a builder for a node.
    pub fn builder(host: HostId) -> Builder {
        Builder::new(host)
    }

    pub(crate) const fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// The table that its memory is lent in.
    pub(crate) fn regions(&self) -> &Regions {
        &self.handle.pool().regions
    }

    /// Which host this is.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// Where peers reach this node on its first path, if the path has an address of
    /// its own.
    #[must_use]
    pub fn local(&self) -> Option<Peer> {
        self.local_of(PathId(0))
    }

    /// Where peers reach this node on that path.
    #[must_use]
    pub fn local_of(&self, path: PathId) -> Option<Peer> {
        self.handle.first().look(|core| core.paths.get(path)?.local)
    }

    /// How many engines it has, each with a thread of its own: see [`Builder::threads`].
    #[must_use]
    pub fn threads(&self) -> usize {
        self.handle.engines().len()
    }

    /// The paths of this node.
    #[must_use]
    pub fn paths(&self) -> Vec<PathId> {
        let paths =
            |core: &mut NodeState| core.paths.iter().map(|path| path.driver.path()).collect();
        self.handle.first().look(paths)
    }

    /// Opens the way to a peer, over the first path that leads to such peers. Ways
    /// that others open come by themselves.
    ///
    /// # Errors
    /// [`Error::NoRoute`]: no path leads to such a peer. [`Error::NoRoom`]. A link
    /// to it is there already.
    pub fn link(&self, peer: impl Into<Peer>) -> Result<Link, Error> {
        self.link_over(None, peer.into())
    }

    /// The same over a path of your choice, or any.
    ///
    /// # Errors
    /// Those of [`link`](Self::link).
    pub fn link_over(&self, path: Option<PathId>, peer: Peer) -> Result<Link, Error> {
        self.open_link(path, (peer, &Wanted::default()))
    }

    /// Opens the way to a peer that has the key with this fingerprint, and nobody else; what
    /// is remembered of its address does not matter.
    ///
    /// ```
    /// # use landfall::clan::network::{HostId, Node, Transport};
    /// # let open = |host| {
    /// #     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
    /// #     Node::builder(HostId::new(host).unwrap()).path(path).encrypt_loopback().open()
    /// # };
    /// let (here, there) = (open(1)?, open(2)?);
    /// // It came here by a way that can be trusted.
    /// let fingerprint = there.fingerprint().unwrap();
    /// let link = here.link_pinned(there.local().unwrap(), fingerprint)?;
    /// assert_eq!(link.wait_up(None)?, there.host());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`link`](Self::link), and [`Error::NotEncrypted`].
    pub fn link_pinned(
        &self,
        peer: impl Into<Peer>,
        fingerprint: Fingerprint,
    ) -> Result<Link, Error> {
        let wanted = Wanted { pinned: Some(fingerprint), name: None };
        self.open_link(None, (peer.into(), &wanted))
    }

    fn open_link(&self, path: Option<PathId>, to: (Peer, &Wanted)) -> Result<Link, Error> {
        self.handle.check()?;
        let engine = self.handle.for_peer(to.0);
        let neighbour = engine.ask(|core, now| core.open_link(now, path, to))?;
        Ok(Link::new(engine, neighbour))
    }

    /// What others know this node by. Nothing where it encrypts nothing, or with a pre-shared
    /// key.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.handle
            .first()
            .look(|core| core.engine.is_sealed().then(|| core.security.fingerprint()).flatten())
    }

    /// The link with a peer, no matter who opened it, if there is one; over the first path that
    /// leads to such peers.
    #[must_use]
    pub fn link_with(&self, peer: impl Into<Peer>) -> Option<Link> {
        let peer = peer.into();
        let engine = self.handle.for_peer(peer);
        let neighbour = engine.look(|core| core.link_with(peer))?;
        Some(Link::new(engine, neighbour))
    }

    /// The link to a host, if it is up.
    #[must_use]
    pub fn link_to(&self, host: HostId) -> Option<Link> {
        let engine = self.handle.for_host(host);
        let neighbour = engine.look(|core| core.neighbour(host))?;
        Some(Link::new(engine, neighbour))
    }

    /// Waits until a link to that host is up, no matter who opens it.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn reached(&self, host: HostId) -> Result<Link, Error> {
        poll_fn(|context| {
            // It may come up at any engine.
            for (nth, engine) in self.handle.engines().iter().enumerate() {
                let found = engine.look(|core| {
                    let found = core.neighbour(host);
                    if found.is_none() {
                        let before = NodeState::watch(&mut core.link_waiters, context.waker());
                        core.after.wake.extend(before);
                    }
                    found
                });
                if let Some(neighbour) = found {
                    return Poll::Ready(Ok(Link::new(self.handle.engine(nth), neighbour)));
                }
            }
            if self.handle.has_ended() { Poll::Ready(Err(Error::NodeGone)) } else { Poll::Pending }
        })
        .await
    }

    /// The same on this thread, which drives the node meanwhile.
    ///
    /// # Errors
    /// The node does not run any more, or [`Error::TimedOut`].
    pub fn wait_reached(&self, host: HostId, deadline: Option<Instant>) -> Result<Link, Error> {
        self.handle.block_on(self.reached(host), deadline)?.ok_or(Error::TimedOut)?
    }

    /// Opens an endpoint, at a port of your choice or at any.
    ///
    /// # Errors
    /// The port is taken, or there is no room for one more.
    pub fn endpoint(&self, port: Option<Port>) -> Result<Endpoint, Error> {
        self.handle.check()?;
        Endpoint::open(&self.handle, port)
    }

    /// An asynchronous event queue of this many places.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn events(&self, capacity: usize) -> Result<Events, Error> {
        Events::new(&self.handle, capacity)
    }

    /// One turn of all paths, unless another thread makes one just now. For those
    /// who spin; gives whether anything moved.
    pub fn turn(&self) -> bool {
        self.handle.relax()
    }

    /// Waits for anything that has to do with this node on this thread, which
    /// drives the node meanwhile; nothing if the deadline is over before.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait_for<F: Future>(
        &self,
        future: F,
        deadline: Option<Instant>,
    ) -> Result<Option<F::Output>, Error> {
        self.handle.block_on(future, deadline)
    }

    /// What was done so far, by all engines together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut all = Stats {
            engine: clan_dsm::Stats::default(),
            seal: SealStats::default(),
            refusals: Refusals::new(),
            links: 0,
            regions: self.handle.pool().regions.held(),
            paths: Vec::new(),
        };
        for engine in self.handle.engines() {
            engine.look(|core| {
                all.engine += *core.engine.stats();
                all.seal += core.engine.seal_stats();
                all.refusals += *core.engine.refusals();
                all.links += core.engine.links().filter(|(_, is_up)| *is_up).count();
                all.paths.extend(core.paths.iter().map(PathStats::of));
            });
        }
        all
    }

    /// Lets what was written arrive, within [`Builder::linger`], and ends the node.
    /// Other handles of it are of no use afterwards.
    pub async fn close(self) {
        let engines = self.handle.engines();
        engines.iter().for_each(|engine| engine.end());
        for engine in engines {
            poll_fn(|context| match engine.watch_end(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }
}

impl Fabric for Node {
    type Local = Aperture;
    type Remote = Window;
    type Tripwire = Tripwire;

    fn expose(&self, len: u64, rights: Rights) -> Result<(Aperture, Cookie), Error> {
        self.handle.check()?;
        let aperture = Aperture::expose(&self.handle, len, rights)?;
        let cookie = aperture.cookie(rights)?;
        Ok((aperture, cookie))
    }

    fn map(&self, cookie: &Cookie) -> Result<Window, Error> {
        self.handle.check()?;
        Window::map(&self.handle, cookie)
    }

    fn cookie_for(&self, local: &Aperture, peer: &Window) -> Result<Cookie, Error> {
        self.handle.check()?;
        local.cookie_for(local.rights(), peer.host().ok_or(Error::PeerLost)?)
    }

    fn revoke_from(&self, local: &Aperture, peer: &Window) -> Result<(), Error> {
        // Who was never there was given nothing.
        peer.host().into_iter().for_each(|host| local.revoke_from(host));
        Ok(())
    }

    fn watch(
        &self,
        local: &Aperture,
        range: Range<u64>,
        access: Access,
        peer: Option<&Window>,
    ) -> Result<Tripwire, Error> {
        let peer = peer.map(|window| Arc::clone(window.neighbour()));
        Tripwire::local(local, &self.handle, range, access, peer)
    }

    fn watch_own(
        &self,
        remote: &Window,
        range: Range<u64>,
        access: Access,
    ) -> Result<Tripwire, Error> {
        Tripwire::outgoing(remote, range, access)
    }

    fn found_group(&self, len: u64) -> Result<Option<Box<dyn Group<Remote = Window>>>, Error> {
        Ok(Some(Box::new(self.found_group(len)?)))
    }

    fn join_group(&self, group: &Cookie, local: &Aperture) -> Result<(), Error> {
        self.join_group(group, local)
    }

    fn wait(&self, tripwires: &[&Tripwire], deadline: Option<Instant>) -> Result<bool, Error> {
        wait_any(&self.handle, tripwires, deadline)
    }

    #[inline]
    fn relax(&self) {
        self.handle.relax();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.host)
    }
}

impl Eventful for Node {
    type Events = Events;

    fn events(&self, capacity: usize) -> Result<Events, Error> {
        Self::events(self, capacity)
    }
}

impl Messaging for Node {
    type Endpoint = Endpoint;

    fn endpoint(&self, port: Option<Port>) -> Result<Endpoint, Error> {
        Self::endpoint(self, port)
    }

    fn host_id(&self) -> HostId {
        self.host
    }

    /// What was written leaves with the next turn.
    fn publish(_: &mut Window) -> Result<(), Error> {
        Ok(())
    }
}

/// What a node did so far, and how much of what there is at the moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the engine.
    pub engine: clan_dsm::Stats,
    /// What was sealed and opened.
    pub seal: SealStats,
    /// How often which check refused a packet.
    pub refusals: Refusals,
    /// Links that are up.
    pub links: usize,
    /// Pieces of memory that are in use.
    pub regions: u32,
    /// Each path; of [several threads](Builder::threads) those of all engines, one after another.
    pub paths: Vec<PathStats>,
}
