//! [`Endpoint`] and [`Listener`], and [`Stats`]: what was done so far.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use landfall_placement::{Engine as _, PathId, Peer, Refusals};
use landfall_transport::memory::{Memory, Rights};
use stp_core::Connect;

use super::builder::Builder;
use super::connection::Connection;
use super::core::{Handle, Status, Submission};
use super::error::{BindError, Error, Failed};
use super::memory::Region;
use super::path::Transport;

pub use crate::runtime::PathStats;

/// One end of the Scheduled Transfer Protocol: connections, registered memory,
/// and the paths that they use. Clones are the same endpoint.
///
/// When the last handle is dropped (endpoints, listeners, connections,
/// operations), connections are closed in the background, for as long as
/// [`Builder::linger`] says. [`close`](Self::close) waits for that.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Handle>);

impl Endpoint {
    pub(crate) const fn new(handle: Arc<Handle>) -> Self {
        Self(handle)
    }

    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.0
    }

    /// An endpoint with one path, and otherwise as usual.
    ///
    /// # Errors
    /// [`BindError`] says why the path could not be opened, and what helps.
    pub fn bind(transport: Transport) -> Result<Self, BindError> {
        Self::builder().path(transport).bind()
    }

    /// An endpoint of which more is chosen.
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
        self.0.look(|core| core.paths.get(path)?.local)
    }

    /// Registers memory: it is lent until [`Region::take_back`].
    ///
    /// # Errors
    /// As many regions are registered as may be; the memory is given back.
    pub fn register(&self, memory: Memory) -> Result<Region, Failed> {
        self.0.pool().lend(memory, Rights::READ | Rights::WRITE | Rights::WORDS)
    }

    /// `len` bytes of this endpoint's arena: page-aligned, friendly to huge
    /// pages, with whatever its last user left in them. Dropped, they go back.
    ///
    /// # Errors
    /// The arena's bound is reached, or the kernel has no more.
    pub fn memory(&self, len: usize) -> Result<Memory, Error> {
        Ok(self.0.pool().arena.take(len)?)
    }

    /// Lets connections come in at a port, from 0 to 65,535. It is STP's own
    /// number, and has nothing to do with ports of UDP.
    ///
    /// # Errors
    /// Somebody listens there already, or the endpoint is closed.
    pub fn listen(&self, port: u16) -> Result<Listener, Error> {
        self.0.ask(|core, _| core.listen(port))?;
        Ok(Listener { handle: Arc::clone(&self.0), port })
    }

    /// Opens a connection to a peer, where somebody listens at that port, over
    /// the first path that leads to such a peer.
    ///
    /// # Errors
    /// [`Error::NoPathTo`], [`Error::Refused`] at a bound, and
    /// [`Error::NotConnected`] where the peer does not want it or is silent.
    pub async fn connect(&self, peer: impl Into<Peer>, port: u16) -> Result<Connection, Error> {
        let peer = peer.into();
        let path = self.0.look(|core| {
            core.check_open()?;
            core.paths.to(peer).ok_or(Error::NoPathTo { peer })
        })?;
        self.connect_over(path, peer, port, 0).await
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
        let peer = peer.into();
        let id = self.0.ask(|core, now| {
            core.check_open()?;
            core.paths.get(path).ok_or(Error::UnknownPath(path))?;
            core.connect(now, path, peer, Connect { port, local_port: None, hello })
        })?;
        // Dropped before it is open, it is given up.
        let connection = Connection::new(&self.0, id);
        let opened = poll_fn(|cx| {
            self.0.look(|core| {
                core.poll_known(id, cx, |known| (known.status == Status::Open).then_some(()))
            })
        });
        match opened.await {
            Ok(()) => Ok(connection),
            Err(Error::Closed { why: Some(why) }) => Err(Error::NotConnected(why)),
            Err(other) => Err(other),
        }
    }

    /// The paths of this endpoint.
    #[must_use]
    pub fn paths(&self) -> Vec<PathId> {
        self.0.look(|core| core.paths.iter().map(|path| path.driver.path()).collect())
    }

    /// Switches a path off or on. What it had goes over the other links of its
    /// connections. A path that broke stays off.
    ///
    /// # Errors
    /// [`Error::UnknownPath`].
    pub fn set_path_up(&self, path: PathId, is_up: bool) -> Result<(), Error> {
        self.0.ask(|core, now| core.set_path_up(now, path, is_up))
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let pool = self.0.pool();
        self.0.look(|core| Stats {
            engine: *core.engine.stats(),
            refusals: *core.engine.refusals(),
            connections: core.engine.connections(),
            granted_bytes: core.engine.granted_bytes(),
            operations: core.slots.len(),
            regions: pool.held(),
            bytes_copied_in: pool.copied(),
            paths: core.paths.iter().map(PathStats::of).collect(),
        })
    }

    /// Closes every connection gracefully, within [`Builder::linger`], and ends
    /// those that take longer. Other handles of this endpoint are of no use
    /// afterwards. It lets go of its paths in the background: for a while it
    /// answers peers that did not hear the last word.
    pub async fn close(self) {
        self.0.end();
        poll_fn(|cx| match self.0.watch_end(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// A port where connections come in. Dropped, none do any more; those that
/// nobody accepted are refused.
#[derive(Debug)]
pub struct Listener {
    handle: Arc<Handle>,
    port: u16,
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// [`Error::EndpointClosed`].
    pub async fn accept(&self) -> Result<Connection, Error> {
        let accepted = poll_fn(|cx| self.handle.look(|core| core.poll_accept(self.port, cx)));
        accepted.await.map(|id| Connection::new(&self.handle, id))
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.submit(Submission::StopListening(self.port));
    }
}

/// What an endpoint did so far, and how much of what there is at the moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the protocol.
    pub engine: stp_core::Stats,
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
    /// Each path.
    pub paths: Vec<PathStats>,
}
