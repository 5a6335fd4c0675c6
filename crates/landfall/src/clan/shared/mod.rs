//! [`SharedNode`]: the fabric between processes of one host. A remote write is a store.
//!
//! Nodes meet in a folder: each listens at a Unix socket there that is named for its
//! number. Anyone who has a cookie asks its node for the memory, which checks the cookie
//! in every bit before it hands over a descriptor; from then on the two share the
//! memory, and nothing passes through the kernel but waking somebody who sleeps.
//!
//! ```
//! use landfall::clan::shared::{SharedConfig, SharedNode};
//! use landfall::clan::{Cookie, Fabric, Local, Remote, Rights};
//!
//! # let folder = std::env::temp_dir().join(format!("landfall-shared-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let one = SharedNode::open(SharedConfig::new(&folder))?;
//! let (memory, cookie) = one.expose(4096, Rights::Write)?;
//! let bytes = cookie.to_bytes(); // to another process, by any means
//!
//! let other = SharedNode::open(SharedConfig::new(&folder))?;
//! let mut window = other.map(&Cookie::from_bytes(&bytes)?)?;
//! window.store(8, 42)?;
//! window.commit()?;
//! assert_eq!(memory.load(8)?, 42);
//! # drop((one, other));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Names.** Processes find each other by names in the folder: [`SharedNode::offer`] and
//! [`SharedNode::find`], with which halves of the [`layer`](super::layer) connect. A name goes with
//! the process that offers it, however it ends. Who has come is the kernel's word.
//!
//! **Messages** of 40 bytes pass between [`SharedEndpoint`]s, with connections that tell when the
//! other side is gone: [`Messaging`](super::messaging::Messaging). The
//! [server](super::server) of thousands of clients runs over them.
//!
//! **Rights.** Memory that is exposed to be read is sealed: no other process can map
//! it for writing, by whatever way it got the descriptor. Memory that is exposed to be
//! written can be read as well by a process that goes around this library, for a
//! processor's page tables know no other way.
//!
//! **Revocation.** A mapping cannot be taken from a process. When memory is withdrawn
//! (its last handle is dropped, or [`SharedLocal::revoke`]) the cookie is refused from
//! then on, those that have the memory are told and get an error at their next use,
//! and their news are heard no more. A process that does not listen can still write
//! those bytes; but nobody reads them, and they are never used again: each aperture
//! has memory of its own, which goes back to the kernel when the last process that
//! maps it has unmapped it or ended.
//!
//! **A peer that ends**, by `kill -9` too, is noticed by the hang-up of its socket and
//! by the kernel's word on its process. Writes to its memory are refused from then on,
//! tripwires that were made with it fire, anyone who sleeps wakes. What it had committed
//! is there; what it was in the middle of is what it had stored, and a layer above
//! that publishes last (as all of [`layer`](super::layer) do) never sees it.
//!
//! **A peer that scribbles** over all that it can reach spoils the memory that it may
//! write, and its own news. News that cannot be end the connection; news of memory
//! that it does not map are not heard; the filter is out of its reach.
//!
//! What does not live here: mappings and system calls (`landfall-transport`), and what
//! the memory means.

mod aperture;
mod control;
mod directory;
mod dma;
mod endpoints;
mod events;
mod host;
mod names;
mod node;
mod remote;
mod service;
mod tripwire;
mod trouble;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use aperture::SharedLocal;
use clan_dsm::HostId;
pub use endpoints::SharedEndpoint;
pub use events::SharedEvents;
pub use landfall_transport::shm::rendezvous::{Admit, Peer};
use landfall_transport::shm::rendezvous::{Listener, RendezvousError};
use landfall_transport::{Clock, Wait};
pub use names::{Found, NameRequest, Offer};
pub use remote::SharedRemote;
pub use tripwire::{SharedActionTripwire, SharedTripwire};

use self::aperture::WithdrawOnDrop;
use self::host::Host;
use self::node::Node;
use self::service::Service;
use self::tripwire::{Place, Wire};
use self::trouble::locked;
use super::Error;
use super::actions::{ActionRule, Actions};
use super::events::Eventful;
use super::fabric::{Access, Cookie, Fabric, Local, Remote, Rights};
use crate::runtime::Worker;

/// The folder in which a node connects to others, and its bounds.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    /// The folder where nodes meet. Nodes reach each other that have the same.
    pub folder: PathBuf,
    /// The number of this node in the folder, less than 16,384; none: one that is free.
    pub host: Option<u16>,
    /// Which processes may connect to it.
    pub admit: Admit,
    /// The most processes that map memory of this node at a time.
    pub most_peers: usize,
    /// The most apertures at a time.
    pub most_apertures: u16,
    /// The most tripwires at a time.
    pub most_tripwires: usize,
    /// The most endpoints at a time.
    pub most_endpoints: usize,
    /// How many messages wait at one endpoint.
    pub most_messages: usize,
    /// How long a request for memory waits for its answer.
    pub patience: Duration,
}

impl SharedConfig {
    /// A node with any number in this folder, for processes of the same user.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
            host: None,
            admit: Admit::SameUser,
            most_peers: 1024,
            most_apertures: u16::MAX,
            most_tripwires: 1 << 20,
            most_endpoints: 1 << 16,
            most_messages: 64,
            patience: Duration::from_secs(5),
        }
    }

    fn path_of(&self, host: HostId) -> PathBuf {
        self.folder.join(format!("clan-{}.socket", host.number()))
    }

    /// Listens as this number, or as one that is free. Which are is asked from a number on
    /// that is likely to be free: of thousands of nodes each would else ask at all that were
    /// there before.
    fn listen(&self) -> Result<(HostId, Listener), Error> {
        const COUNT: u32 = HostId::MAX as u32 + 1;
        let (first, count) = match self.host {
            Some(number) => (u32::from(number), 1),
            None => {
                static OPENED: AtomicU32 = AtomicU32::new(0);
                let nth = OPENED.fetch_add(1, Relaxed);
                (start_of_search(std::process::id(), nth), COUNT)
            }
        };
        for nth in 0..count {
            let number = if count == 1 { first } else { (first + nth) % COUNT };
            let host = u16::try_from(number).ok().and_then(HostId::new);
            let host = host.ok_or(Error::BadConfig("hosts are 0 to HostId::MAX"))?;
            match Listener::bind(&self.path_of(host), self.admit.clone()) {
                Ok(listener) => return Ok((host, listener)),
                Err(RendezvousError::InUse(_)) if self.host.is_none() => {}
                Err(error) => return Err(trouble::rendezvous(error)),
            }
        }
        Err(Error::NoRoom("node in this folder"))
    }
}

/// Where the `nth` node of a process begins to look for a number that is free: far from its other
/// nodes, and from those of processes whose numbers follow each other.
const fn start_of_search(process: u32, nth: u32) -> u32 {
    process.wrapping_add(nth.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b1) >> 8
}

/// A node of this process, which shares memory with other processes of its host.
/// Clones are the same node; it ends with the last.
#[derive(Clone)]
pub struct SharedNode(Arc<Handle>);

/// The last one ends the node.
struct Handle {
    node: Arc<Node>,
    worker: Mutex<Option<Worker>>,
}

impl SharedNode {
    /// Opens a node.
    ///
    /// # Errors
    /// Its number is taken, the folder is not there, or the system has no room.
    pub fn open(config: SharedConfig) -> Result<Self, Error> {
        let (host, listener) = config.listen()?;
        let node = Node::new(host, config)?;
        let service = Service::new(&node, listener)?;
        let (name, signal) = (format!("clan-{}", host.number()), Arc::clone(&node.signal));
        let finish = |service: Service, _| service.close();
        let pace = (Clock::start(), Wait::Block);
        let worker = Worker::start(name, &signal, pace, service, finish)
            .map_err(|source| Error::System { call: "clone", source })?;
        Ok(Self(Arc::new(Handle { node, worker: Mutex::new(Some(worker)) })))
    }

    /// The number of this node in its folder.
    #[must_use]
    pub fn host(&self) -> u16 {
        self.0.node.host.number()
    }

    /// How many processes map memory of this node.
    #[must_use]
    pub fn peers(&self) -> usize {
        locked(&self.0.node.inbox).len()
    }

    /// Ends the node: for its peers it is lost from now on, and so are they for it.
    pub fn close(&self) {
        self.0.end();
    }

    /// The host of a cookie, connected to if it was not yet.
    ///
    /// No lock is held while a host is met: one that does not answer delays only those who
    /// ask for its memory. Two threads may so meet one host at a time; the first to be
    /// through stays, and the other meeting is given up.
    fn reach(&self, number: HostId) -> Result<Arc<Host>, Error> {
        let node = &self.0.node;
        // The thread of this node may not have noticed yet that it has gone; another may
        // have its number already.
        let is_there = |host: &Arc<Host>| !host.is_gone() && !host.channel.is_gone();
        let found = locked(&node.hosts).get(&number.number()).cloned();
        if let Some(host) = found.filter(is_there) {
            return Ok(host);
        }
        let host = Arc::new(Host::connect(node, number)?);
        let mut hosts = locked(&node.hosts);
        if let Some(first) = hosts.get(&number.number()).filter(|host| is_there(host)) {
            return Ok(Arc::clone(first));
        }
        hosts.insert(number.number(), Arc::clone(&host));
        locked(&node.new_hosts).push(Arc::clone(&host));
        drop(hosts);
        node.signal.ring();
        Ok(host)
    }
}

impl Handle {
    fn end(&self) {
        self.node.end();
        // A task that the thread itself has woken does not wait for its end.
        let worker = locked(&self.worker).take();
        worker.into_iter().for_each(Worker::join);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Fabric for SharedNode {
    type Local = SharedLocal;
    type Remote = SharedRemote;
    type Tripwire = SharedTripwire;

    fn expose(&self, len: u64, rights: Rights) -> Result<(SharedLocal, Cookie), Error> {
        let aperture = self.0.node.expose(len, rights)?;
        let cookie = aperture.cookie;
        Ok((SharedLocal(Arc::new(WithdrawOnDrop(aperture))), cookie))
    }

    fn map(&self, cookie: &Cookie) -> Result<SharedRemote, Error> {
        let node = &self.0.node;
        if node.is_down() {
            return Err(Error::NodeGone);
        }
        let host = self.reach(cookie.host())?;
        let mapped = host.map(cookie, node.config.patience)?;
        SharedRemote::new(node, host, *cookie, mapped)
    }

    fn cookie_for(&self, local: &SharedLocal, peer: &SharedRemote) -> Result<Cookie, Error> {
        peer.window.check()?;
        local.cookie_for(&peer.host.channel.peer())
    }

    fn revoke_from(&self, local: &SharedLocal, peer: &SharedRemote) -> Result<(), Error> {
        local.take_back_from(&peer.host.channel.peer());
        Ok(())
    }

    fn watch(
        &self,
        local: &SharedLocal,
        range: Range<u64>,
        access: Access,
        peer: Option<&SharedRemote>,
    ) -> Result<SharedTripwire, Error> {
        check_range(&range, local.len())?;
        let wire = Wire::new(Place::Local(Arc::clone(local.aperture())), range, access, None)?;
        let tripwire = SharedTripwire(Arc::clone(&wire));
        if let Some(peer) = peer {
            peer.host.watch_for_loss(&peer.window, &wire);
        }
        Ok(tripwire)
    }

    fn watch_own(
        &self,
        remote: &SharedRemote,
        range: Range<u64>,
        access: Access,
    ) -> Result<SharedTripwire, Error> {
        check_range(&range, remote.len())?;
        let wire = Wire::new(self.place_of(remote)?, range, access, None)?;
        let tripwire = SharedTripwire(Arc::clone(&wire));
        remote.host.watch_for_loss(&remote.window, &wire);
        Ok(tripwire)
    }

    fn wait(
        &self,
        tripwires: &[&SharedTripwire],
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let node = &self.0.node;
        let fired = || tripwires.iter().any(|tripwire| tripwire.0.is_fired());
        let mut ready = || {
            if fired() || node.is_down() {
                return true;
            }
            // Others that sleep here look at what is theirs.
            tripwires.iter().for_each(|tripwire| tripwire.0.place.drain());
            fired()
        };
        node.sleep(Wait::Block, deadline, &mut ready)?;
        match fired() {
            true => Ok(true),
            false if node.is_down() => Err(Error::NodeGone),
            false => Ok(false),
        }
    }
}

/// Is this a range of bytes of that memory?
fn check_range(range: &Range<u64>, size: u64) -> Result<(), Error> {
    if range.is_empty() || range.end > size {
        let len = range.end.saturating_sub(range.start);
        return Err(Error::OutOfBounds { offset: range.start, len, size });
    }
    Ok(())
}

impl SharedNode {
    /// Memory that this node maps.
    fn place_of(&self, remote: &SharedRemote) -> Result<Place, Error> {
        remote.window.check()?;
        Ok(Place::Remote(Arc::clone(&self.0.node), Arc::clone(&remote.window)))
    }
}

impl Actions for SharedNode {
    type ActionTripwire = SharedActionTripwire;

    fn act_on(
        &self,
        local: &SharedLocal,
        rule: &ActionRule,
    ) -> Result<SharedActionTripwire, Error> {
        check_range(&rule.range, local.len())?;
        let place = Place::Local(Arc::clone(local.aperture()));
        SharedActionTripwire::new(place, rule, &self.0.node.marks)
    }

    fn act_on_own(
        &self,
        remote: &SharedRemote,
        rule: &ActionRule,
    ) -> Result<SharedActionTripwire, Error> {
        check_range(&rule.range, remote.len())?;
        SharedActionTripwire::new(self.place_of(remote)?, rule, &self.0.node.marks)
    }

    fn take_bit(&self, number: u32) -> bool {
        self.0.node.drain();
        self.0.node.marks.take_bit(number)
    }

    fn counter(&self, number: u32) -> u64 {
        self.0.node.drain();
        self.0.node.marks.counter(number)
    }

    fn next_identifier(&self) -> Option<u64> {
        self.0.node.drain();
        self.0.node.marks.next_identifier()
    }

    fn take_lost(&self) -> u64 {
        self.0.node.drain();
        self.0.node.marks.take_lost()
    }
}

impl Eventful for SharedNode {
    type Events = SharedEvents;

    fn events(&self, capacity: usize) -> Result<SharedEvents, Error> {
        SharedEvents::new(&self.0.node, capacity)
    }
}

impl fmt::Debug for SharedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} in {})", self.0.node.host, self.0.node.config.folder.display())
    }
}

#[cfg(test)]
mod tests;
