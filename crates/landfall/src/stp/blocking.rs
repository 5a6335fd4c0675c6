//! The same handles for threads: they wait, and drive the endpoint meanwhile.
//!
//! A thread that waits here makes the endpoint's turns itself, so that no
//! wake-up lies between a packet and its user: that is the lowest latency there
//! is. How long it spins before it sleeps is [`Builder::wait`]'s choice. Several
//! threads may wait at a time.
//!
//! ```
//! use landfall::stp::{Memory, Transport, blocking::Endpoint};
//!
//! let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
//! let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
//! let listener = server.listen(7)?;
//! let sending = client.connect(server.local().unwrap(), 7)?;
//! let receiving = listener.accept()?;
//! let pending = sending.send("hello").start();
//! assert_eq!(&*receiving.receive(Memory::zeroed(100)).wait()?, b"hello");
//! assert_eq!(pending.wait()?.len, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::future::Future;
use std::sync::Arc;

use landfall_placement::{Duration, PathId, Peer};
use landfall_seal::Fingerprint;
use landfall_transport::memory::Memory;

use super::operation::Output;
use super::state::EndpointState;
use super::{
    BindError, Builder, Error, Failed, Link, Message, Offer, Operation, Part, Payload, Priority,
    ReadRequest, Received, Region, RegionRequest, RemoteMemory, RemoteRights, Sent, Stats, ToPeers,
    Transport,
};
use crate::runtime::Runtime;

/// One end of the Scheduled Transfer Protocol, for threads: see
/// [`stp::Endpoint`](super::Endpoint).
#[derive(Clone, Debug)]
pub struct Endpoint(super::Endpoint);

impl Endpoint {
    /// An endpoint with one path, and otherwise as usual.
    ///
    /// # Errors
    /// [`BindError`] says why the path could not be opened, and what helps.
    pub fn bind(transport: Transport) -> Result<Self, BindError> {
        super::Endpoint::bind(transport).map(Self)
    }

    /// Returns a builder for an endpoint; `Endpoint::from` makes what the
    /// builder gives a blocking one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The handle for tasks of the same endpoint.
    #[must_use]
    pub const fn as_async(&self) -> &super::Endpoint {
        &self.0
    }

    /// Where peers reach this endpoint on its first path.
    #[must_use]
    pub fn local(&self) -> Option<Peer> {
        self.0.local()
    }

    /// Registers memory: it is lent until [`take_back`](Self::take_back).
    ///
    /// # Errors
    /// The region limit is reached; the memory is given back.
    pub fn register(&self, memory: Memory) -> Result<Region, Failed> {
        self.0.register(memory)
    }

    /// `len` bytes of this endpoint's arena.
    ///
    /// # Errors
    /// The arena's bound is reached, or the kernel has no more.
    pub fn memory(&self, len: usize) -> Result<Memory, Error> {
        self.0.memory(len)
    }

    /// Ends the grant of registered memory, and waits until nobody uses it.
    ///
    /// # Errors
    /// Those of [`Region::take_back`].
    pub fn take_back(&self, region: Region) -> Result<Memory, Error> {
        self.wait(region.take_back())
    }

    /// Lets connections come in at a port.
    ///
    /// # Errors
    /// Somebody listens there already, or the endpoint is closed.
    pub fn listen(&self, port: u16) -> Result<Listener, Error> {
        self.0.listen(port).map(Listener)
    }

    /// Opens a connection to a peer, where somebody listens at that port.
    ///
    /// # Errors
    /// Those of [`stp::Endpoint::connect`](super::Endpoint::connect).
    pub fn connect(&self, peer: impl ToPeers, port: u16) -> Result<Connection, Error> {
        self.wait(self.0.connect(peer, port)).map(Connection)
    }

    /// The same for so long at most, of all addresses together.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and those of [`connect`](Self::connect).
    pub fn connect_within(
        &self,
        peer: impl ToPeers,
        port: u16,
        limit: Duration,
    ) -> Result<Connection, Error> {
        let opened = wait_within(self.0.handle(), self.0.connect(peer, port), limit);
        opened.unwrap_or(Err(Error::TimedOut { limit })).map(Connection)
    }

    /// Opens a connection to a peer that must have the key with this fingerprint.
    ///
    /// # Errors
    /// Those of [`stp::Endpoint::connect_pinned`](super::Endpoint::connect_pinned).
    pub fn connect_pinned(
        &self,
        peer: impl Into<Peer>,
        port: u16,
        pinned: Fingerprint,
    ) -> Result<Connection, Error> {
        self.wait(self.0.connect_pinned(peer, port, pinned)).map(Connection)
    }

    /// Opens a connection to a peer whose certificate has to be for this name.
    ///
    /// # Errors
    /// Those of [`stp::Endpoint::connect_named`](super::Endpoint::connect_named).
    #[cfg(feature = "certificates")]
    pub fn connect_named(
        &self,
        peer: impl Into<Peer>,
        port: u16,
        name: &str,
    ) -> Result<Connection, Error> {
        self.wait(self.0.connect_named(peer, port, name)).map(Connection)
    }

    /// What peers know this endpoint by, if it proves itself by a key pair.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.0.fingerprint()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Waits for anything that has to do with this endpoint, and drives it
    /// meanwhile.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.0.handle().wait_for(future)
    }

    /// The same for so long at most; nothing if it is not over then.
    ///
    /// ```
    /// use landfall::stp::{Transport, blocking::Endpoint};
    /// use std::time::Duration;
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.as_async().listen(7)?;
    /// // Nobody connects.
    /// assert!(server.wait_within(listener.accept(), Duration::from_millis(5)).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_within<F: Future>(&self, future: F, limit: Duration) -> Option<F::Output> {
        wait_within(self.0.handle(), future, limit)
    }

    /// Closes every connection gracefully, within [`Builder::linger`]: see
    /// [`stp::Endpoint::close`](super::Endpoint::close).
    pub fn close(self) {
        let runtime = self.0.handle().runtime();
        runtime.wait_for(self.0.close());
    }
}

impl From<super::Endpoint> for Endpoint {
    fn from(endpoint: super::Endpoint) -> Self {
        Self(endpoint)
    }
}

/// A port where connections come in.
#[derive(Debug)]
pub struct Listener(super::Listener);

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub fn accept(&self) -> Result<Connection, Error> {
        self.0.handle().wait_for(self.0.accept()).map(Connection)
    }

    /// The same for so long at most; nothing if none came.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub fn accept_within(&self, limit: Duration) -> Result<Option<Connection>, Error> {
        let accepted = wait_within(self.0.handle(), self.0.accept(), limit).transpose()?;
        Ok(accepted.map(Connection))
    }
}

/// A connection to another endpoint: see
/// [`stp::Connection`](super::Connection). Operations are the same as there;
/// [`Operation::wait`] waits for one.
#[derive(Clone, Debug)]
pub struct Connection(super::Connection);

impl From<super::Connection> for Connection {
    fn from(connection: super::Connection) -> Self {
        Self(connection)
    }
}

impl Connection {
    /// The handle for tasks of the same connection.
    #[must_use]
    pub const fn as_async(&self) -> &super::Connection {
        &self.0
    }

    /// Sends a Transfer.
    pub fn send(&self, payload: impl Into<Payload>) -> Operation<Sent> {
        self.0.send(payload)
    }

    /// Takes the next Transfer of the other side into memory.
    pub fn receive(&self, memory: Memory) -> Operation<Message> {
        self.0.receive(memory)
    }

    /// The same into registered memory.
    pub fn receive_into(&self, part: &Part) -> Operation<Received> {
        self.0.receive_into(part)
    }

    /// Asks the other side to send into memory.
    pub fn read(&self, memory: Memory, opaque: u32) -> Operation<Message> {
        self.0.read(memory, opaque)
    }

    /// The same into registered memory.
    pub fn read_into(&self, part: &Part, opaque: u32) -> Operation<Received> {
        self.0.read_into(part, opaque)
    }

    /// Asks the other side for memory that it calls `name`.
    pub fn request_region(
        &self,
        name: u32,
        len: u64,
        rights: RemoteRights,
    ) -> Operation<RemoteMemory> {
        self.0.request_region(name, len, rights)
    }

    /// Waits for the next Transfer that the other side has.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub fn offer(&self) -> Result<Offer, Error> {
        self.wait(self.0.offer())
    }

    /// The same for so long at most; nothing if there was none.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub fn offer_within(&self, limit: Duration) -> Result<Option<Offer>, Error> {
        wait_within(&self.0.inner().handle, self.0.offer(), limit).transpose()
    }

    /// Waits for the next read of the other side.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub fn read_request(&self) -> Result<ReadRequest, Error> {
        self.wait(self.0.read_request())
    }

    /// Waits for the next region that the other side asks for.
    ///
    /// # Errors
    /// [`Error::Closed`] where none will come.
    pub fn region_request(&self) -> Result<RegionRequest, Error> {
        self.wait(self.0.region_request())
    }

    /// Adds a way to the other side.
    ///
    /// # Errors
    /// Those of [`stp::Connection::add_link`](super::Connection::add_link).
    pub fn add_link(&self, path: PathId, peer: impl Into<Peer>) -> Result<(), Error> {
        self.0.add_link(path, peer)
    }

    /// Sets whether its Transfers go before those of other connections: see
    /// [`stp::Connection::set_priority`](super::Connection::set_priority).
    ///
    /// # Errors
    /// [`Error::Refused`] where it is over.
    pub fn set_priority(&self, priority: Priority) -> Result<(), Error> {
        self.0.set_priority(priority)
    }

    /// Sets how much it may have of what this side grants: see
    /// [`stp::Connection::set_weight`](super::Connection::set_weight).
    ///
    /// # Errors
    /// [`Error::Refused`] where it is over.
    pub fn set_weight(&self, weight: u16) -> Result<(), Error> {
        self.0.set_weight(weight)
    }

    /// Lets Data to this side come over a link, or not: see
    /// [`stp::Connection::set_data_link`](super::Connection::set_data_link).
    ///
    /// # Errors
    /// Those of [`stp::Connection::set_data_link`](super::Connection::set_data_link).
    pub fn set_data_link(
        &self,
        path: PathId,
        peer: impl Into<Peer>,
        carries_data: bool,
    ) -> Result<(), Error> {
        self.0.set_data_link(path, peer, carries_data)
    }

    /// The ways between the two sides.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        self.0.links()
    }

    /// Closes gracefully, and waits for the end.
    ///
    /// # Errors
    /// [`Error::Closed`] with why, where the end was not graceful.
    pub fn close(self) -> Result<(), Error> {
        let handle = Arc::clone(&self.0.inner().handle);
        handle.wait_for(self.0.close())
    }

    /// Waits until the connection is over, no matter who ends it.
    ///
    /// # Errors
    /// [`Error::Closed`] with why, where the end was not graceful.
    pub fn closed(&self) -> Result<(), Error> {
        self.wait(self.0.closed())
    }

    /// Ends the connection now, with all that is under way.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Waits for anything that has to do with this connection, and drives its
    /// endpoint meanwhile.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.0.inner().handle.wait_for(future)
    }
}

impl<T: Output> Operation<T> {
    /// Waits for the end on this thread, which drives the endpoint meanwhile.
    ///
    /// # Errors
    /// Why it did not succeed, with the memory that was lent for it.
    pub fn wait(mut self) -> Result<T, Failed> {
        let handle = Arc::clone(self.handle());
        handle.wait_for(&mut self)
    }

    /// The same for so long at most. What is not over then is given back: wait
    /// on, [`cancel`](Self::cancel) it to get its memory, or drop it.
    ///
    /// # Errors
    /// The operation, if it is not over.
    #[expect(clippy::result_large_err, reason = "the operation is given back as it came")]
    pub fn wait_for(mut self, limit: Duration) -> Result<Result<T, Failed>, Self> {
        let handle = Arc::clone(self.handle());
        wait_within(&handle, &mut self, limit).ok_or(self)
    }
}

fn wait_within<F: Future>(
    runtime: &Runtime<EndpointState>,
    future: F,
    limit: Duration,
) -> Option<F::Output> {
    runtime.wait_until(future, runtime.clock.now() + limit)
}
