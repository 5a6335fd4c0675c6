//! [`Exchange`]: moves packets between the kernel and all other hosts, turn by turn.
//!
//! One thread drives it beside the node: it sleeps at the descriptors of both, so that no wake
//! lies between a packet of the one and the other. Nothing here waits. What cannot go on is
//! looked at again after the next turn of the node: nobody else drives that while this thread
//! does.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::IoSlice;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use clan_dsm::{ConnectRequest, HostId, Notice, Reason};
use landfall_placement::{Duration, Instant, Peer};
use landfall_transport::driver::Interest;
use landfall_transport::tap::{FrameReader, FrameWriter};

use super::ClanIpError;
use super::builder::{ClanIpStats, Counts};
use super::connections::{ConnectDecision, ConnectionTable, Held, OutgoingHandle, Route};
use super::incoming::Incoming;
use super::kernel::FromKernel;
use super::outgoing::{Attempt, in_other_order};
use super::terms::{self, Connection, Terms};
use crate::clan::Error;
use crate::clan::network::{Aperture, Endpoint, Node};
use crate::runtime::{Signal, Source, Worker, locked};

/// What found no room is retried after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The most packets from one connection before the others have their turn.
const STRIDE: u32 = 64;
/// Connections that are made or end at the same time, beyond one for each neighbour.
const SPARE: usize = 16;

/// What the thread shares with the owner.
#[derive(Debug)]
pub(super) struct ExchangeState {
    node: Node,
    terms: Terms,
    tap: FrameWriter,
    pub(super) counts: Counts,
    error: Mutex<Option<ClanIpError>>,
    signal: Arc<Signal>,
    worker: Mutex<Option<Worker>>,
}

impl ExchangeState {
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn new(node: Node, terms: Terms, tap: FrameWriter) -> Result<Self, ClanIpError> {
        let signal = Signal::new().map_err(ClanIpError::io("no descriptor for a thread"))?;
        let (counts, error, worker) = (Counts::default(), Mutex::default(), Mutex::default());
        Ok(Self { node, terms, tap, counts, error, signal, worker })
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    pub(super) fn stats(&self) -> ClanIpStats {
        self.counts.read()
    }

    pub(super) fn is_over(&self) -> bool {
        self.signal.is_over()
    }

    /// The thread ends, and is waited for.
    pub(super) fn end(&self) {
        let worker = locked(&self.worker).take();
        worker.into_iter().for_each(Worker::join);
    }

    pub(super) fn take_error(&self) -> Option<ClanIpError> {
        locked(&self.error).take()
    }

    /// Starts the thread.
    pub(super) fn start(
        self: &Arc<Self>,
        reader: FrameReader,
        listener: Endpoint,
        neighbours: BTreeMap<HostId, Peer>,
    ) -> Result<(), ClanIpError> {
        let from_kernel = FromKernel::new(self, reader)?;
        let exchange = Exchange { listener, from_kernel, hub: Hub::new(self, neighbours) };
        let (node, shared) = (self.node.handle().engine(0), Arc::clone(self));
        let finish = move |exchange, error: Option<ClanIpError>| {
            drop(exchange);
            *locked(&shared.error) = error;
            shared.signal.end();
        };
        let worker = Worker::start_beside("clan-ip", &self.signal, node, exchange, finish);
        let worker = worker.map_err(ClanIpError::io("a thread could not be started"))?;
        *locked(&self.worker) = Some(worker);
        Ok(())
    }
}

/// The kernel, anyone who asks for a connection, and the connections.
#[derive(Debug)]
struct Exchange {
    from_kernel: FromKernel,
    listener: Endpoint,
    hub: Hub,
}

impl Exchange {
    fn work(&mut self, now: Instant) -> Result<bool, ClanIpError> {
        self.hub.node().handle().check()?;
        let mut moved = self.from_kernel.take(&mut self.hub, now)?;
        while let Some(notice) = self.listener.try_next() {
            if let Notice::Request(request) = notice {
                self.hub.handle_request(&self.listener, request, now);
            }
            moved = true;
        }
        moved |= self.hub.poll_pending(now);
        moved |= self.hub.serve(now)?;
        Ok(moved)
    }
}

impl Source for Exchange {
    type Output = ClanIpError;

    fn turn(&mut self, now: Instant) -> ControlFlow<ClanIpError, bool> {
        self.work(now).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn interests(&self, into: &mut Vec<Interest>) {
        into.extend(self.from_kernel.interest());
    }

    fn next_wake(&self) -> Option<Instant> {
        let waits = self.from_kernel.waits() || self.hub.waits();
        waits.then(|| self.hub.looked + LOOK_AGAIN)
    }
}

/// All other hosts: connections, and those that are being made.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) shared: Arc<ExchangeState>,
    neighbours: BTreeMap<HostId, Peer>,
    connections: ConnectionTable,
    pending: Vec<PendingConnection>,
    active: Vec<ActiveConnection>,
    /// When it was last looked at.
    looked: Instant,
}

/// A connection that is being made.
struct PendingConnection {
    host: HostId,
    until: Instant,
    /// This side asked.
    asks: bool,
    /// Nothing: the other side asks as well, and has the right of way.
    future: Option<ConnectFuture>,
}

type ConnectFuture = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

impl std::fmt::Debug for PendingConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingConnection").field("host", &self.host).finish_non_exhaustive()
    }
}

/// A connection.
#[derive(Debug)]
struct ActiveConnection {
    host: HostId,
    route: OutgoingHandle,
    incoming: Incoming,
    /// What was held until it was there.
    held: VecDeque<Held>,
    /// The other side has not heard of all that was held.
    must_publish: bool,
    endpoint: Endpoint,
    _greeting: Aperture,
}

impl Hub {
    fn new(shared: &Arc<ExchangeState>, neighbours: BTreeMap<HostId, Peer>) -> Self {
        let (shared, connections) = (Arc::clone(shared), ConnectionTable::new(shared.node.host()));
        let (pending, active, looked) = (Vec::new(), Vec::new(), Instant::ZERO);
        Self { shared, neighbours, connections, pending, active, looked }
    }

    fn node(&self) -> &Node {
        &self.shared.node
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    pub(super) fn neighbours(&self) -> impl Iterator<Item = HostId> + '_ {
        self.neighbours.keys().copied()
    }

    pub(super) fn is_neighbour(&self, host: HostId) -> bool {
        self.neighbours.contains_key(&host)
    }

    /// Does it need another turn, though no packet may come?
    fn waits(&self) -> bool {
        !self.pending.is_empty() || self.active.iter().any(ActiveConnection::waits)
    }

    /// The connection to a host, or the packet is held until there is one.
    pub(super) fn route_or_hold(
        &mut self,
        host: HostId,
        now: Instant,
        held: impl FnOnce() -> Held,
    ) -> Option<OutgoingHandle> {
        match self.connections.route(host) {
            Route::Open(route) => return Some(route),
            Route::Connecting { is_first } => {
                if !self.connections.hold(host, held()) {
                    self.counts().dropped();
                }
                if is_first && !self.ask(host, now) {
                    self.give_up(host);
                }
            }
        }
        None
    }

    /// A connection does not work any more.
    pub(super) fn broken(&mut self, host: HostId, route: &OutgoingHandle, error: &Error) {
        if matches!(error, Error::PeerMisbehaved(_)) {
            self.counts().misbehaved();
        }
        self.counts().dropped();
        self.connections.close(host, route);
    }

    fn give_up(&mut self, host: HostId) {
        let held = self.connections.give_up(host);
        held.iter().for_each(|_| self.counts().dropped());
    }

    /// Asks for a connection. False: there are too many.
    fn ask(&mut self, host: HostId, now: Instant) -> bool {
        let Some(peer) = self.neighbours.get(&host).copied() else { return false };
        let (node, terms) = (self.node().clone(), self.shared.terms);
        self.begin(host, now, true, async move {
            reach(&node, host, peer).await?;
            terms::ask(&node, terms, host).await
        })
    }

    /// Accepts a connection request, or refuses it with a reason.
    fn handle_request(&mut self, listener: &Endpoint, request: ConnectRequest, now: Instant) {
        let host = request.from.host;
        let (node, terms) = (self.node().clone(), self.shared.terms);
        let reason = if !self.is_neighbour(host)
            || self.connections.visit(host) == ConnectDecision::TheyWait
        {
            Reason::Refused
        } else if self.begin(host, now, false, async move {
            // Where it fails, the requester finds out by its deadline at the latest.
            terms::answer(&node, terms, &request).await
        }) {
            return;
        } else {
            Reason::NoRoom
        };
        // A requester that is out of reach needs no answer.
        let _ = listener.refuse(&request, reason, [0; 40]);
    }

    fn begin(
        &mut self,
        host: HostId,
        now: Instant,
        asks: bool,
        future: impl Future<Output = Result<Connection, Error>> + Send + 'static,
    ) -> bool {
        let has_room = self.pending.len() + self.active.len() < self.neighbours.len() + SPARE;
        if has_room {
            let (until, future) = (now + CONNECT_TIMEOUT, Some(Box::pin(future) as ConnectFuture));
            self.pending.push(PendingConnection { host, until, asks, future });
        }
        has_room
    }

    /// Polls the connections that are being made. Returns whether one is complete.
    fn poll_pending(&mut self, now: Instant) -> bool {
        self.looked = now;
        let mut moved = false;
        for mut meeting in std::mem::take(&mut self.pending) {
            let PendingConnection { host, until, asks, future } = &mut meeting;
            // Whatever moves it comes with a turn of the node, after which it is polled.
            let made = future.as_mut().map_or(Poll::Pending, |future| {
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            });
            match made {
                Poll::Ready(Ok(connection)) => {
                    self.open(*host, connection);
                    moved = true;
                }
                Poll::Ready(Err(Error::Refused(Reason::Refused)))
                    if *asks && *host < self.node().host() =>
                {
                    *future = None;
                    self.pending.push(meeting);
                }
                Poll::Ready(Err(error)) if *asks => {
                    if matches!(error, Error::NoKeys { .. }) {
                        self.counts().without_keys();
                    }
                    self.give_up(*host);
                }
                Poll::Ready(Err(_)) => {}
                Poll::Pending if future.is_none() && !self.connections.is_asking(*host) => {}
                Poll::Pending if now < *until => self.pending.push(meeting),
                Poll::Pending if *asks => self.give_up(*host),
                Poll::Pending => {}
            }
        }
        moved
    }

    /// A connection is complete, and replaces the one before.
    fn open(&mut self, host: HostId, connection: Connection) {
        let Connection { endpoint, outgoing, incoming, _greeting } = connection;
        let route: OutgoingHandle = Arc::new(Mutex::new(outgoing));
        let held = self.connections.open(host, &route);
        self.counts().connected();
        let must_publish = !held.is_empty();
        self.active.push(ActiveConnection {
            host,
            route,
            incoming,
            held,
            must_publish,
            endpoint,
            _greeting,
        });
    }

    /// Hands what comes over connections to the kernel, for as long as they are the ones.
    fn serve(&mut self, now: Instant) -> Result<bool, ClanIpError> {
        let (Self { shared, connections, active, .. }, mut moved) = (self, false);
        let mut gone = Ok(());
        active.retain_mut(|one| {
            let result = match connections.is_current(one.host, &one.route) {
                true => one.send_held(shared, now).and_then(|()| one.deliver(shared)),
                false => Ok(Delivered::Over),
            };
            match result {
                Ok(Delivered::Some(came)) => {
                    moved |= came;
                    return true;
                }
                Ok(Delivered::KernelGone(error)) => gone = Err(error),
                Ok(Delivered::Over) => {}
                Err(Error::PeerMisbehaved(_)) => shared.counts.misbehaved(),
                Err(_) => {}
            }
            connections.close(one.host, &one.route);
            // The other side learns of it, unless it is gone.
            let _ = one.endpoint.abort();
            moved = true;
            false
        });
        gone.map(|()| moved)
    }
}

/// What came over a connection.
enum Delivered {
    /// Whether anything did.
    Some(bool),
    /// It was replaced by another connection to its host.
    Over,
    KernelGone(ClanIpError),
}

impl ActiveConnection {
    fn waits(&self) -> bool {
        self.must_publish || self.incoming.has_unpublished()
    }

    fn send_held(&mut self, shared: &ExchangeState, now: Instant) -> Result<(), Error> {
        if !self.must_publish {
            return Ok(());
        }
        let mut outgoing = locked(&self.route);
        while let Some(Held { header, packet }) = self.held.front() {
            if matches!(
                outgoing.send(*header, (packet, packet.len()), &shared.counts, now)?,
                Attempt::Later
            ) {
                return Ok(());
            }
            self.held.pop_front();
        }
        // Where the send buffer is full it is told of some time.
        self.must_publish = !outgoing.publish()?;
        Ok(())
    }

    /// Some packets, if there are any.
    fn deliver(&mut self, shared: &ExchangeState) -> Result<Delivered, Error> {
        for nth in 0..STRIDE {
            let Some(completion) = self.incoming.next()? else {
                return Ok(Delivered::Some(nth > 0));
            };
            let packet = self.incoming.packet(&completion);
            let header = in_other_order(completion.header);
            match shared.tap.write(&[IoSlice::new(&header), IoSlice::new(packet)]) {
                Ok(true) => shared.counts.received(packet.len()),
                Ok(false) => shared.counts.not_taken(),
                Err(error) => {
                    let gone = ClanIpError::io("the interface is gone")(error);
                    return Ok(Delivered::KernelGone(gone));
                }
            }
            self.incoming.give_back(&completion)?;
        }
        Ok(Delivered::Some(true))
    }
}

/// Until there is a link to that host.
async fn reach(node: &Node, host: HostId, peer: Peer) -> Result<(), Error> {
    if node.link_to(host).is_some() {
        return Ok(());
    }
    let found = match node.link(peer) {
        Ok(link) => link.up().await?,
        // It is being opened already, by the other side for one.
        Err(_) => node.reached(host).await?.host().ok_or(Error::NoRoute)?,
    };
    if found == host { Ok(()) } else { Err(Error::NoRoute) }
}
