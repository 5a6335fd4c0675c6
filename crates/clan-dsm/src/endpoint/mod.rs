//! Endpoints: where out-of-band messages go to, and the ends of connections.
//!
//! An endpoint is a host and a port (section 3.1 of the paper). It has a queue
//! of notices: messages of 40 bytes and news of its connection, of which it has
//! one at a time. Memory needs no connection: connections are there to exchange
//! cookies, and to learn that the other side is gone.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `message` | what crosses the network; what the user finds in the queue of an endpoint |
//! | `connection` | the states of a connection, and what leads from one to another |
//! | `incoming` | what comes in; what is owed to other hosts |
//! | `table` | the same for carriers that are no adapter |
//!
//! What a user asks for gives a message that the caller hands to the link
//! beneath, at once and in order; ask the link for room before. What comes in
//! is answered by [`Endpoints::poll_answer`], when the link has room.
//!
//! Nothing is lost in silence. A message that finds a full queue or nobody comes
//! back to its sender as an exception; what a connection says of itself always
//! has room. There are no timers: a link beneath that is lost ends all that went
//! over it, and who waits for a user that does not answer may abort.
//!
//! What does not live here: links, memory, and what the event queue tells.

mod connection;
mod incoming;
mod message;
mod table;

pub use connection::EndpointState;
use landfall_placement::assumed;
pub use table::EndpointTable;

use message::Inbox;
pub use message::{Body, ConnectRequest, Notice, OutOfBand, OutOfBandKind, Port, PortAddress};

use crate::address::{EndpointId, HostId};
use crate::error::{Ended, Error, Reason};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use connection::{Session, State, Transition};
use incoming::Hosts;
use landfall_tables::{AgeLinks, HashIndex, HashSecret, Table};

/// Where ports begin that nobody asked for by number.
const FIRST_FREE_PORT: u32 = 0x8000_0000;

/// The fewest answers that may wait for one host: as many connections may be
/// asked for in one go, wherever none is available.
const ANSWERS: usize = 512;

/// A message for the link to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Which host.
    pub host: HostId,
    /// What it is to get.
    pub message: OutOfBand,
}

#[derive(Clone, Debug)]
struct Endpoint {
    port: Port,
    state: State,
    inbox: Inbox,
    /// The number of its next message.
    number: u32,
    /// What its messages of no connection are known by when they come back.
    incarnation: u64,
}

/// All endpoints of a host.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    table: Table<Endpoint>,
    limit: usize,
    /// How many notices that others can cause wait at one endpoint.
    messages: usize,
    ports: HashIndex,
    next_port: u32,
    /// The members of each host's list of connections.
    members: AgeLinks,
    hosts: Hosts,
    /// Queues of endpoints that were closed, for those to come.
    spare: Vec<VecDeque<Notice>>,
    next_session: u64,
}

impl Endpoints {
    /// No endpoints yet. The secret keeps strangers from asking for ports that
    /// are slow to find; sessions count from the first one on, which is to be
    /// another one after each start.
    pub(crate) fn new(
        limit: usize,
        messages: usize,
        secret: HashSecret,
        first_session: u64,
    ) -> Self {
        Self {
            table: Table::new(limit.min(u32::MAX as usize)),
            limit,
            messages: messages.max(1),
            ports: HashIndex::new(secret),
            next_port: FIRST_FREE_PORT,
            members: AgeLinks::new(),
            hosts: Hosts::new(messages.max(ANSWERS)),
            spare: Vec::new(),
            next_session: first_session,
        }
    }

    /// Opens an endpoint, at a port that is given or at a free one.
    pub(crate) fn open(&mut self, port: Option<Port>) -> Result<EndpointId, Error> {
        if !self.table.has_room() {
            return Err(Error::NoRoom);
        }
        let port = match port {
            Some(port) if self.at(port).is_some() => return Err(Error::Taken),
            Some(port) => port,
            None => self.free_port(),
        };
        let inbox = Inbox::reusing(self.spare.pop().unwrap_or_default());
        let incarnation = self.session();
        let endpoint = Endpoint { port, state: State::Idle, inbox, number: 0, incarnation };
        let key = self.table.insert(endpoint).ok_or(Error::NoRoom)?;
        self.ports.insert(&port, key.index);
        Ok(EndpointId::of(key))
    }

    /// The next port that is free: among the first of them as many as there are
    /// endpoints can be taken, and one is left.
    fn free_port(&mut self) -> Port {
        loop {
            let port = Port(self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
            if self.at(port).is_none() {
                return port;
            }
        }
    }

    /// Closes an endpoint. A connection that it has breaks off, those who wait
    /// for a connection are refused, and messages that nobody took are gone. The
    /// memory of its queue serves the next endpoint.
    pub(crate) fn close(&mut self, id: EndpointId) -> Result<(), Error> {
        self.named(id)?;
        self.leave(id.index, Reason::NoEndpoint);
        let Some(mut endpoint) = self.table.remove(id.index) else { return Err(Error::Unknown) };
        self.ports.remove(&endpoint.port, id.index);
        while let Some(notice) = endpoint.inbox.pop() {
            if let Notice::Request(request) = notice {
                self.hosts.release(request.from.host);
                let refusal = request.answer(OutOfBandKind::Refuse, Some(Reason::NoEndpoint));
                self.hosts.answer(request.from.host, refusal);
            }
        }
        self.spare.push(endpoint.inbox.into_memory());
        Ok(())
    }

    /// The port of an endpoint.
    pub(crate) fn port(&self, id: EndpointId) -> Result<Port, Error> {
        Ok(self.named(id)?.port)
    }

    /// The state of an endpoint.
    pub(crate) fn state(&self, id: EndpointId) -> Result<EndpointState, Error> {
        Ok(self.named(id)?.state.public())
    }

    /// Who is at the other end, while there is a connection.
    pub(crate) fn peer(&self, id: EndpointId) -> Result<PortAddress, Error> {
        self.named(id)?.state.peer().ok_or(Error::NotOpen)
    }

    /// Do notices wait?
    pub(crate) fn has_notices(&self, id: EndpointId) -> bool {
        self.named(id).is_ok_and(|endpoint| !endpoint.inbox.is_empty())
    }

    /// From now on it hears of those who want a connection.
    pub(crate) fn listen(&mut self, id: EndpointId) -> Result<(), Error> {
        let endpoint = self.named_mut(id)?;
        endpoint.state = endpoint.state.listen()?;
        Ok(())
    }

    /// Asks a listener for a connection.
    pub(crate) fn connect(
        &mut self,
        id: EndpointId,
        to: PortAddress,
        body: Body,
    ) -> Result<Outgoing, Error> {
        let ours = self.may_begin(id)?;
        self.enter(id.index, to.host, State::Connecting { to, ours });
        let from = self.named(id)?.port;
        let kind = OutOfBandKind::Connect;
        let message = OutOfBand::new(kind, from, to.port).sessions(ours, 0).says(body);
        Ok(Outgoing { host: to.host, message })
    }

    /// Takes a connection that a listener was asked for, with this endpoint.
    pub(crate) fn accept(
        &mut self,
        id: EndpointId,
        request: &ConnectRequest,
        body: Body,
    ) -> Result<Outgoing, Error> {
        let ours = self.may_begin(id)?;
        let (peer, theirs) = (request.from, request.session);
        let session = Session { peer, ours, theirs };
        self.enter(id.index, peer.host, State::Connected(session, connection::Flow::Both));
        let from = self.named(id)?.port;
        let message = session.message(OutOfBandKind::Accept, from).says(body);
        Ok(Outgoing { host: peer.host, message })
    }

    /// Lets somebody who asked for a connection know that there will be none.
    pub(crate) fn refuse(&self, request: &ConnectRequest, reason: Reason, body: Body) -> Outgoing {
        let message = request.answer(OutOfBandKind::Refuse, Some(reason)).says(body);
        Outgoing { host: request.from.host, message }
    }

    /// Sends a message on the connection; its number is in it.
    pub(crate) fn send(&mut self, id: EndpointId, body: Body) -> Result<Outgoing, Error> {
        let endpoint = self.named_mut(id)?;
        let session = endpoint.state.sending()?;
        let kind = OutOfBandKind::Message;
        let message = session.message(kind, endpoint.port).says(body);
        Ok(Outgoing { host: session.peer.host, message: endpoint.numbered(message) })
    }

    /// Sends a message to any endpoint, whatever connections there are.
    pub(crate) fn send_to(
        &mut self,
        id: EndpointId,
        to: PortAddress,
        body: Body,
    ) -> Result<Outgoing, Error> {
        let endpoint = self.named_mut(id)?;
        let message = OutOfBand::new(OutOfBandKind::Message, endpoint.port, to.port)
            .sessions(endpoint.incarnation, 0)
            .says(body);
        Ok(Outgoing { host: to.host, message: endpoint.numbered(message) })
    }

    /// Says that this side will send nothing more on the connection. Once both
    /// sides have said so, it is complete.
    pub(crate) fn disconnect(&mut self, id: EndpointId, body: Body) -> Result<Outgoing, Error> {
        let endpoint = self.named_mut(id)?;
        let session = endpoint.state.sending()?;
        let transition = endpoint.state.disconnect()?;
        let message = session.message(OutOfBandKind::Disconnect, endpoint.port).says(body);
        self.apply(id.index, transition);
        Ok(Outgoing { host: session.peer.host, message })
    }

    /// Breaks a connection off, or gives up asking for one.
    pub(crate) fn abort(&mut self, id: EndpointId) -> Result<(), Error> {
        self.named(id)?.state.peer().ok_or(Error::NotOpen)?;
        self.leave(id.index, Reason::Refused);
        Ok(())
    }

    /// The next notice of an endpoint.
    pub(crate) fn poll_notice(&mut self, id: EndpointId) -> Option<Notice> {
        let endpoint = self.table.named_mut(id.index, id.generation)?;
        let notice = endpoint.inbox.pop()?;
        endpoint.state = endpoint.state.noticed(&notice);
        if let Notice::Request(request) = &notice {
            self.hosts.release(request.from.host);
        }
        Some(notice)
    }

    /// Does this host have answers to get?
    pub(crate) fn has_answers(&self, host: HostId) -> bool {
        self.hosts.has_answers(host)
    }

    /// The next answer for this host.
    pub(crate) fn poll_answer(&mut self, host: HostId) -> Option<OutOfBand> {
        self.hosts.poll(host)
    }

    /// A host that had no answers to get, and has some now.
    pub(crate) fn poll_host(&mut self) -> Option<HostId> {
        self.hosts.poll_host()
    }

    /// The endpoint at a port.
    fn at(&self, port: Port) -> Option<u32> {
        let is_there = |index| self.table.get(index).is_some_and(|found| found.port == port);
        self.ports.find(&port, is_there)
    }

    fn named(&self, id: EndpointId) -> Result<&Endpoint, Error> {
        self.table.named(id.index, id.generation).ok_or(Error::Unknown)
    }

    fn named_mut(&mut self, id: EndpointId) -> Result<&mut Endpoint, Error> {
        self.table.named_mut(id.index, id.generation).ok_or(Error::Unknown)
    }

    /// A new session for an endpoint without a connection. The ends of earlier
    /// ones must not pile up before the links take them.
    fn may_begin(&mut self, id: EndpointId) -> Result<u64, Error> {
        self.named(id)?.state.expect_idle()?;
        if self.hosts.aborts() >= self.limit {
            return Err(Error::Busy);
        }
        Ok(self.session())
    }

    /// A number that no connection or endpoint had before; never zero.
    const fn session(&mut self) -> u64 {
        let session = if self.next_session == 0 { 1 } else { self.next_session };
        self.next_session = session.wrapping_add(1);
        session
    }

    /// A connection begins.
    fn enter(&mut self, index: u32, host: HostId, state: State) {
        if let Some(endpoint) = self.table.get_mut(index) {
            endpoint.state = state;
            self.members.push(&mut self.hosts.of(host).members, index);
        }
    }

    /// This side ends a connection, if there is one.
    fn leave(&mut self, index: u32, reason: Reason) {
        if let Some(endpoint) = self.table.get(index) {
            if let State::Connected(session, _) = endpoint.state {
                let message = session.message(OutOfBandKind::Abort, endpoint.port).because(reason);
                self.hosts.abort(session.peer.host, message);
            }
            let transition = endpoint.state.end(Ended::Here);
            self.apply(index, transition);
        }
    }

    /// An endpoint goes from one state to the next.
    fn apply(&mut self, index: u32, transition: Transition) {
        let Transition { to: state, notices } = transition;
        let Some(endpoint) =
            assumed(self.table.get_mut(index), "only an endpoint that exists changes its state")
        else {
            return;
        };
        let before = core::mem::replace(&mut endpoint.state, state);
        for notice in notices.into_iter().flatten() {
            endpoint.inbox.push(notice);
        }
        if let (Some(peer), State::Over) = (before.peer(), state) {
            self.members.remove(&mut self.hosts.of(peer.host).members, index);
        }
    }
}

impl Endpoint {
    /// Returns a message its number.
    const fn numbered(&mut self, message: OutOfBand) -> OutOfBand {
        let number = self.number;
        self.number = number.wrapping_add(1);
        OutOfBand { number, ..message }
    }
}

impl Session {
    /// A message of this kind to the other side.
    const fn message(&self, kind: OutOfBandKind, from: Port) -> OutOfBand {
        OutOfBand::new(kind, from, self.peer.port).sessions(self.ours, self.theirs)
    }
}

impl ConnectRequest {
    /// An answer that needs no endpoint.
    const fn answer(&self, kind: OutOfBandKind, reason: Option<Reason>) -> OutOfBand {
        let answer = OutOfBand::new(kind, self.listener, self.from.port);
        OutOfBand { reason, ..answer.sessions(0, self.session) }
    }
}

impl OutOfBand {
    /// An empty message of no connection.
    const fn new(kind: OutOfBandKind, from: Port, to: Port) -> Self {
        let (reason, number, body) = (None, 0, [0; 40]);
        Self { from, to, kind, reason, number, from_session: 0, to_session: 0, body }
    }

    const fn sessions(self, from_session: u64, to_session: u64) -> Self {
        Self { from_session, to_session, ..self }
    }

    const fn says(self, body: Body) -> Self {
        Self { body, ..self }
    }

    const fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }
}

#[cfg(test)]
mod tests;
