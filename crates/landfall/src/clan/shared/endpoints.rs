//! [`SharedEndpoint`]: one end of connections and of messages of 40 bytes between processes.
//!
//! The states are the engine's ([`EndpointTable`]), the same as over networks. The messages pass
//! over the sockets of the nodes, where the kernel keeps their order: they are for cookies and
//! for learning that somebody is gone, and not for speed.
//!
//! Between two nodes there may be two sockets, one that each of them opened. What a node sends to
//! another goes over one of them, as long as that lives; so each direction has its order. Who
//! says to be a host by a socket that it opened is that host for as long as no other process is:
//! its number is the kernel's word on the process, whenever this node meets it at its own socket.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use clan_dsm::{
    Body, ConnectRequest, Ended, EndpointId, EndpointState, EndpointTable, HostId, Notice,
    OutOfBand, Outgoing, Port, PortAddress, Reason,
};
use landfall_transport::driver::Interest;
use landfall_transport::shm::rendezvous::{Channel, Peer, RendezvousError};
use landfall_transport::wait::until_ready;

use super::SharedNode;
use super::control::ControlMessage;
use super::events::{EndpointSource, SharedEvents};
use super::host::Host;
use super::node::Node;
use super::remote::{PeerProcess, SharedRemote};
use super::trouble::locked;
use crate::clan::error::refused;
use crate::clan::messaging::{MessageEvents, Messaging, as_endpoint};
use crate::clan::{Error, EventQueue, Remote};

/// The most messages to one host that its socket has no room for. Answers of the engine wait
/// behind them, within its own bound.
const MOST_WAITING: usize = 256;

/// The endpoints of a node.
pub(super) struct Endpoints {
    table: Mutex<Table>,
    has_news: Condvar,
}

struct Table {
    engine: EndpointTable,
    records: BTreeMap<u64, Arc<Record>>,
    routes: BTreeMap<u16, Route>,
    /// Hosts whose socket had no room.
    blocked: BTreeSet<u16>,
}

/// What the thread of the node and the handles of an endpoint share.
#[derive(Default)]
struct Record {
    waker: Mutex<Option<Waker>>,
    events: Mutex<Option<EndpointSource>>,
}

impl Record {
    /// Notices are there, or the node has ended; true if an event is in a queue now.
    fn tell(&self, wakers: &mut Vec<Waker>) -> bool {
        wakers.extend(locked(&self.waker).take());
        let events = locked(&self.events);
        let Some((sender, _)) = &*events else { return false };
        wakers.extend(sender.notify());
        true
    }
}

/// The way to a host.
struct Route {
    carrier: Carrier,
    waiting: VecDeque<OutOfBand>,
}

/// The socket of a way, and who opened it.
#[derive(Clone)]
pub(super) enum Carrier {
    Host(Arc<Host>),
    Process(Arc<PeerProcess>),
}

impl Carrier {
    fn channel(&self) -> &Channel {
        match self {
            Self::Host(host) => &host.channel,
            Self::Process(process) => &process.channel,
        }
    }

    fn peer(&self) -> Peer {
        self.channel().peer()
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(other)) => Arc::ptr_eq(one, other),
            (Self::Process(one), Self::Process(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn send(&self, message: &OutOfBand) -> Result<(), RendezvousError> {
        let (kind, body) = ControlMessage::OutOfBand { message: *message }.encode();
        self.channel().send(kind, &body, &[])
    }
}

impl Table {
    /// Sends what waits for a host, and the answers that it has to get, until its socket is full.
    fn flush(&mut self, number: u16) {
        let Some(route) = self.routes.get_mut(&number) else { return };
        let Some(host) = HostId::new(number) else { return };
        loop {
            let next = route.waiting.pop_front().or_else(|| self.engine.poll_answer(host));
            let Some(message) = next else {
                self.blocked.remove(&number);
                return;
            };
            match route.carrier.send(&message) {
                Ok(()) => {}
                Err(RendezvousError::Full) => {
                    route.waiting.push_front(message);
                    self.blocked.insert(number);
                    return;
                }
                // It is gone: the thread of the node notices it.
                Err(_) => return,
            }
        }
    }

    /// Answers that the engine has for other hosts.
    fn flush_answers(&mut self) {
        while let Some(host) = self.engine.poll_host() {
            self.flush(host.number());
        }
    }

    /// All that went over the way to a host is over.
    fn lose(&mut self, number: u16, told: &mut Vec<EndpointId>) {
        self.routes.remove(&number);
        self.blocked.remove(&number);
        if let Some(host) = HostId::new(number) {
            self.engine.handle_host_gone(host, Ended::LinkGone, told);
        }
    }

    /// The way to this host goes over this socket, unless there is one of the same process.
    /// False: another process is that host.
    fn route(&mut self, host: HostId, carrier: &Carrier, told: &mut Vec<EndpointId>) -> bool {
        let number = host.number();
        match self.routes.get(&number) {
            Some(route) if route.carrier.peer().pid == carrier.peer().pid => return true,
            // The socket of its number is opened by the one that has it.
            Some(_) if matches!(carrier, Carrier::Process(_)) => return false,
            Some(_) => self.lose(number, told),
            None => {}
        }
        self.routes.insert(number, Route { carrier: carrier.clone(), waiting: VecDeque::new() });
        true
    }
}

impl Endpoints {
    pub(super) fn new(most: usize, messages: usize) -> Result<Self, Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| Error::System {
            call: "getrandom",
            source: std::io::Error::other(error),
        })?;
        let table = Table {
            engine: EndpointTable::new(most, messages, seed),
            records: BTreeMap::new(),
            routes: BTreeMap::new(),
            blocked: BTreeSet::new(),
        };
        Ok(Self { table: Mutex::new(table), has_news: Condvar::new() })
    }

    /// Does something with the table, sends what comes of it, and tells the endpoints.
    fn change<T>(
        &self,
        node: &Node,
        change: impl FnOnce(&mut Table, &mut Vec<EndpointId>) -> T,
    ) -> T {
        let (mut told, mut wakers, mut has_events) = (Vec::new(), Vec::new(), false);
        let mut table = locked(&self.table);
        let was_blocked = !table.blocked.is_empty();
        let result = change(&mut table, &mut told);
        table.flush_answers();
        let is_blocked = !was_blocked && !table.blocked.is_empty();
        for id in &told {
            if let Some(record) = table.records.get(&id.raw()) {
                has_events |= record.tell(&mut wakers);
            }
        }
        drop(table);
        if !told.is_empty() {
            self.has_news.notify_all();
        }
        if has_events {
            node.sleeper.wake();
        }
        wakers.into_iter().for_each(Waker::wake);
        if is_blocked {
            // It tries again after a while.
            node.signal.ring();
        }
        result
    }

    /// A message came. False: its sender is not who it says.
    pub(super) fn take(
        &self,
        node: &Node,
        (host, carrier): (HostId, &Carrier),
        message: &OutOfBand,
    ) -> bool {
        self.change(node, |table, told| {
            let is_known = table.route(host, carrier, told);
            if is_known {
                table.engine.handle_message(host, message, told);
            }
            is_known
        })
    }

    /// A socket is gone.
    pub(super) fn lose(&self, node: &Node, carrier: &Carrier) {
        self.change(node, |table, told| {
            let found = table.routes.iter().find(|(_, route)| route.carrier.is(carrier));
            if let Some(number) = found.map(|(number, _)| *number) {
                table.lose(number, told);
            }
        });
    }

    /// Tries again where a socket was full; true if one still is.
    pub(super) fn retry(&self) -> bool {
        let mut table = locked(&self.table);
        for number in table.blocked.clone() {
            table.flush(number);
        }
        !table.blocked.is_empty()
    }

    /// Was a socket full?
    pub(super) fn is_blocked(&self) -> bool {
        !locked(&self.table).blocked.is_empty()
    }

    /// The node has ended: all waiters are woken.
    pub(super) fn end(&self) {
        let (mut wakers, mut table) = (Vec::new(), locked(&self.table));
        let records: Vec<_> = table.records.values().cloned().collect();
        table.routes.clear();
        drop(table);
        for record in records {
            record.tell(&mut wakers);
        }
        self.has_news.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// An endpoint of a [`SharedNode`]: a host and a port. Clones are the same endpoint; when the last
/// is gone it is closed, and a connection that it has breaks off.
///
/// Its methods are those of [`Endpoint`](crate::clan::messaging::Endpoint).
#[derive(Clone)]
pub struct SharedEndpoint(Arc<Inner>);

struct Inner {
    node: SharedNode,
    id: EndpointId,
    port: Port,
    record: Arc<Record>,
}

impl SharedEndpoint {
    pub(super) fn open(node: &SharedNode, port: Option<Port>) -> Result<Self, Error> {
        if node.0.node.is_down() {
            return Err(Error::NodeGone);
        }
        let record = Arc::new(Record::default());
        let mut table = locked(&node.0.node.endpoints.table);
        let taken = |error| refused(error, "endpoint");
        let id = table.engine.open(port).map_err(taken)?;
        let port = table.engine.port(id).map_err(taken)?;
        table.records.insert(id.raw(), Arc::clone(&record));
        drop(table);
        Ok(Self(Arc::new(Inner { node: node.clone(), id, port, record })))
    }

    fn node(&self) -> &Node {
        &self.0.node.0.node
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.node().endpoints.table)
    }

    /// Does something with the engine that may send a message.
    fn ask(
        &self,
        ask: impl FnOnce(&mut EndpointTable, EndpointId) -> Result<Outgoing, clan_dsm::Error>,
        to: HostId,
    ) -> Result<(), Error> {
        let node = self.node();
        if node.is_down() {
            return Err(Error::NodeGone);
        }
        node.endpoints.change(node, |table, _| {
            let route = table.routes.get(&to.number()).ok_or(Error::NoRoute)?;
            if route.waiting.len() >= MOST_WAITING {
                return Err(Error::Busy);
            }
            let asked = ask(&mut table.engine, self.0.id);
            let Outgoing { host, message } = asked.map_err(|error| refused(error, "message"))?;
            if let Some(route) = table.routes.get_mut(&host.number()) {
                route.waiting.push_back(message);
            }
            table.flush(host.number());
            Ok(())
        })
    }

    /// The way to a host, which is met if it was not yet.
    fn reach(&self, host: HostId) -> Result<(), Error> {
        if self.table().routes.contains_key(&host.number()) {
            return Ok(());
        }
        let carrier = Carrier::Host(self.0.node.reach(host)?);
        let node = self.node();
        node.endpoints.change(node, |table, told| table.route(host, &carrier, told));
        // It may have gone before it was noted.
        if carrier.channel().is_gone() {
            node.endpoints.lose(node, &carrier);
            return Err(Error::PeerLost);
        }
        Ok(())
    }

    fn peer(&self) -> Result<HostId, Error> {
        let peer = self.table().engine.peer(self.0.id);
        Ok(peer.map_err(|error| refused(error, "message"))?.host)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> Port {
        self.0.port
    }

    /// How its connection stands.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn state(&self) -> Result<EndpointState, Error> {
        self.table().engine.state(self.0.id).map_err(|error| refused(error, "message"))
    }

    /// From now on it hears of those who want a connection.
    ///
    /// # Errors
    /// It has, or wants, a connection.
    pub fn listen(&self) -> Result<(), Error> {
        self.table().engine.listen(self.0.id).map_err(|error| refused(error, "message"))
    }

    /// Asks a listener for a connection. The answer is a [`Notice`].
    ///
    /// # Errors
    /// [`Error::NoRoute`]: nobody is that host; [`Error::Busy`]; [`Error::Closed`] where it has
    /// a connection.
    pub fn connect(&self, to: PortAddress, body: Body) -> Result<(), Error> {
        self.reach(to.host)?;
        self.ask(|engine, id| engine.connect(id, to, body), to.host)
    }

    /// Takes a connection that a listener was asked for, with this endpoint.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn accept(&self, request: &ConnectRequest, body: Body) -> Result<(), Error> {
        self.ask(|engine, id| engine.accept(id, request, body), request.from.host)
    }

    /// Lets somebody who asked for a connection know that there will be none.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    pub fn refuse(
        &self,
        request: &ConnectRequest,
        reason: Reason,
        body: Body,
    ) -> Result<(), Error> {
        self.ask(|engine, _| Ok(engine.refuse(request, reason, body)), request.from.host)
    }

    /// Sends a message on the connection.
    ///
    /// # Errors
    /// [`Error::Closed`] without one, [`Error::Busy`].
    pub fn send(&self, body: Body) -> Result<(), Error> {
        self.ask(|engine, id| engine.send(id, body), self.peer()?)
    }

    /// Sends a message to any endpoint, whatever connections there are.
    ///
    /// # Errors
    /// [`Error::NoRoute`], [`Error::Busy`].
    pub fn send_to(&self, to: PortAddress, body: Body) -> Result<(), Error> {
        self.reach(to.host)?;
        self.ask(|engine, id| engine.send_to(id, to, body), to.host)
    }

    /// Says that this side will send nothing more.
    ///
    /// # Errors
    /// [`Error::Closed`] without a connection, [`Error::Busy`].
    pub fn disconnect(&self, body: Body) -> Result<(), Error> {
        self.ask(|engine, id| engine.disconnect(id, body), self.peer()?)
    }

    /// Breaks the connection off, or gives up asking for one.
    ///
    /// # Errors
    /// There is none.
    pub fn abort(&self) -> Result<(), Error> {
        let node = self.node();
        let aborted = node.endpoints.change(node, |table, _| table.engine.abort(self.0.id));
        aborted.map_err(|error| refused(error, "message"))
    }

    /// The next notice, if there is one.
    #[must_use]
    pub fn try_next(&self) -> Option<Notice> {
        self.table().engine.poll_notice(self.0.id)
    }

    /// Waits on this thread; nothing if none came before the deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait_next(&self, deadline: Option<Instant>) -> Result<Option<Notice>, Error> {
        let (node, mut table) = (self.node(), self.table());
        loop {
            if let Some(notice) = table.engine.poll_notice(self.0.id) {
                return Ok(Some(notice));
            }
            if node.is_down() {
                return Err(Error::NodeGone);
            }
            table = match deadline {
                None => {
                    let woken = node.endpoints.has_news.wait(table);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    let woken = node.endpoints.has_news.wait_timeout(table, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The next notice, for a task. One task waits at a time: the last to ask is woken.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Notice, Error>> {
        // Under the lock: who puts a notice in finds the waker.
        let mut table = self.table();
        if let Some(notice) = table.engine.poll_notice(self.0.id) {
            return Poll::Ready(Ok(notice));
        }
        *locked(&self.0.record.waker) = Some(context.waker().clone());
        drop(table);
        if self.node().is_down() { Poll::Ready(Err(Error::NodeGone)) } else { Poll::Pending }
    }

    /// Waits for the next notice, on any executor.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn next(&self) -> Result<Notice, Error> {
        poll_fn(|context| self.poll_next(context)).await
    }
}

as_endpoint!(SharedEndpoint);

impl fmt::Debug for SharedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedEndpoint({:?} of {})", self.0.port, self.node().host)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let node = &self.node.0.node;
        node.endpoints.change(node, |table, _| {
            table.records.remove(&self.id.raw());
            // It is there: nobody else closes it.
            let _ = table.engine.close(self.id);
        });
        let events = locked(&self.record.events).take();
        drop(events);
    }
}

impl Messaging for SharedNode {
    type Endpoint = SharedEndpoint;

    fn endpoint(&self, port: Option<Port>) -> Result<SharedEndpoint, Error> {
        SharedEndpoint::open(self, port)
    }

    fn host_id(&self) -> HostId {
        self.0.node.host
    }

    fn publish(remote: &mut SharedRemote) -> Result<(), Error> {
        remote.commit()
    }
}

impl MessageEvents for SharedEvents {
    type Endpoint = SharedEndpoint;

    fn register_endpoint(&self, endpoint: &SharedEndpoint, token: u64) -> Result<(), Error> {
        self.check_node(endpoint.node())?;
        let table = endpoint.table();
        let (sender, registration) = self.new_endpoint_source(token);
        let has_notices = table.engine.has_notices(endpoint.0.id);
        let waker = has_notices.then(|| sender.notify()).flatten();
        let before = locked(&endpoint.0.record.events).replace((sender, registration));
        drop(table);
        drop(before);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    fn unregister_endpoint(&self, endpoint: &SharedEndpoint) -> Result<(), Error> {
        let before = locked(&endpoint.0.record.events).take();
        drop(before);
        Ok(())
    }

    fn select(&mut self, others: &[Interest], deadline: Option<Instant>) -> Result<(), Error> {
        const LONG: std::time::Duration = std::time::Duration::from_secs(1);
        if others.is_empty() {
            return self.sleep(deadline);
        }
        if self.is_down() {
            return Err(Error::NodeGone);
        }
        if self.arm() {
            let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
            let at_most = deadline.map_or(LONG, left).min(LONG);
            let interests: Vec<_> = others.iter().copied().chain([self.interest()]).collect();
            until_ready(&interests, at_most)
                .map_err(|source| Error::System { call: "ppoll", source })?;
            self.disarm();
        }
        Ok(())
    }
}
