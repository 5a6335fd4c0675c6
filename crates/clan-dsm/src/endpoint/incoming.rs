//! What comes in: messages of other hosts, and that one of them is gone.

use super::connection::Stray;
use super::message::{ConnectRequest, Notice};
use super::message::{OutOfBand, OutOfBandKind, PortAddress};
use super::{Endpoints, connection::State};
use crate::address::HostId;
use crate::error::{Ended, Reason};
use crate::ids::EndpointId;

impl Endpoints {
    /// A message came from this host. `tell` hears which endpoints have
    /// something new for their users.
    ///
    /// Gives how many answers of that host were lost for want of room, if it
    /// says so: for the user to hear as an exception of the host.
    pub(crate) fn handle_message(
        &mut self,
        host: HostId,
        message: &OutOfBand,
        tell: &mut dyn FnMut(EndpointId),
    ) -> Option<u32> {
        let from = PortAddress { host, port: message.from };
        let heard = match message.kind {
            OutOfBandKind::Overrun => {
                self.give_up_asking(host, tell);
                return Some(message.number);
            }
            OutOfBandKind::Connect => self.handle_connect(from, message),
            OutOfBandKind::Undelivered => self.handle_undelivered(from, message),
            OutOfBandKind::Message if message.to_session == 0 => {
                self.handle_datagram(from, message)
            }
            _ => self.handle_connected(from, message),
        };
        if let Some(index) = heard {
            tell(self.name_of(index));
        }
        None
    }

    /// The link to a host is lost: all connections with it are over, and nobody
    /// is there to be answered. `tell` hears of each endpoint.
    pub(crate) fn handle_host_gone(
        &mut self,
        host: HostId,
        why: Ended,
        tell: &mut dyn FnMut(EndpointId),
    ) {
        self.hosts.forget(host);
        while let Some(index) = self.hosts.of(host).members.oldest() {
            self.end(index, host, why);
            tell(self.name_of(index));
        }
    }

    /// The other side could not answer all that it was asked: whoever waits for
    /// an answer of it waits in vain.
    fn give_up_asking(&mut self, host: HostId, tell: &mut dyn FnMut(EndpointId)) {
        let mut next = self.hosts.of(host).members.oldest();
        while let Some(index) = next {
            next = self.members.newer(index);
            let state = self.table.get(index).map(|endpoint| endpoint.state);
            if matches!(state, Some(State::Connecting { .. })) {
                self.end(index, host, Ended::There(Reason::NoRoom));
                tell(self.name_of(index));
            }
        }
    }

    fn end(&mut self, index: u32, host: HostId, why: Ended) {
        if let Some(endpoint) = self.table.get(index) {
            let step = endpoint.state.end(why);
            self.step(index, step);
        }
        // A step that ends a connection has done so; a member that has none must
        // not keep anybody in a loop.
        self.members.remove(&mut self.hosts.of(host).members, index);
    }

    fn name_of(&self, index: u32) -> EndpointId {
        EndpointId::new((index, self.table.generation(index)))
    }

    fn handle_connect(&mut self, from: PortAddress, message: &OutOfBand) -> Option<u32> {
        let (session, body) = (message.from_session, message.body);
        let request = ConnectRequest { from, body, session, listener: message.to };
        let Err(reason) = self.admit(request) else { return self.at(message.to) };
        self.hosts.answer(from.host, request.answer(OutOfBandKind::Refuse, Some(reason)));
        None
    }

    /// Puts a request into the queue of its listener.
    fn admit(&mut self, request: ConnectRequest) -> Result<(), Reason> {
        let index = self.at(request.listener).ok_or(Reason::NoEndpoint)?;
        let endpoint = self.table.get_mut(index).ok_or(Reason::NoEndpoint)?;
        if endpoint.state != State::Listening {
            return Err(Reason::Refused);
        }
        if !endpoint.inbox.has_room(self.messages) || !self.hosts.promise(request.from.host) {
            return Err(Reason::NoRoom);
        }
        endpoint.inbox.push(Notice::Request(request));
        Ok(())
    }

    /// A message of no connection.
    fn handle_datagram(&mut self, from: PortAddress, message: &OutOfBand) -> Option<u32> {
        let found = self.at(message.to);
        let room = |endpoint: &&mut super::Endpoint| endpoint.inbox.has_room(self.messages);
        let endpoint = found.and_then(|index| self.table.get_mut(index)).filter(room);
        let Some(endpoint) = endpoint else {
            let reason = if found.is_some() { Reason::NoRoom } else { Reason::NoEndpoint };
            self.return_to_sender(from.host, message, reason);
            return None;
        };
        endpoint.inbox.push(Notice::Message { from, body: message.body });
        found
    }

    /// A message of a connection, or news of it.
    fn handle_connected(&mut self, from: PortAddress, message: &OutOfBand) -> Option<u32> {
        let is_message = message.kind == OutOfBandKind::Message;
        let found = self.at(message.to);
        let endpoint = found.and_then(|index| self.table.get(index));
        let step = endpoint.ok_or(Stray).and_then(|found| found.state.handle(from, message));
        match (found, endpoint, step) {
            (Some(_), Some(endpoint), Ok(_))
                if is_message && !endpoint.inbox.has_room(self.messages) =>
            {
                self.return_to_sender(from.host, message, Reason::NoRoom);
                None
            }
            (Some(index), Some(_), Ok(step)) => {
                self.step(index, step);
                Some(index)
            }
            _ => {
                self.repudiate(from.host, message, found.is_some());
                None
            }
        }
    }

    /// The sender believes in a connection that is not there. It shall know,
    /// but for those messages that say themselves that there is none.
    fn repudiate(&mut self, host: HostId, message: &OutOfBand, is_open: bool) {
        if matches!(message.kind, OutOfBandKind::Refuse | OutOfBandKind::Abort) {
            return;
        }
        let reason = if is_open { Reason::Refused } else { Reason::NoEndpoint };
        let abort = OutOfBand::new(OutOfBandKind::Abort, message.to, message.from)
            .sessions(message.to_session, message.from_session)
            .because(reason);
        self.hosts.answer(host, abort);
    }

    fn return_to_sender(&mut self, host: HostId, message: &OutOfBand, reason: Reason) {
        let mut answer = OutOfBand::new(OutOfBandKind::Undelivered, message.to, message.from)
            .sessions(message.to_session, message.from_session)
            .because(reason);
        answer.set_undelivered(message.number, 1);
        self.hosts.answer(host, answer);
    }

    /// Messages of an endpoint of ours came back.
    fn handle_undelivered(&mut self, from: PortAddress, message: &OutOfBand) -> Option<u32> {
        let (number, count) = message.undelivered()?;
        let reason = message.reason.unwrap_or(Reason::Refused);
        let index = self.at(message.to)?;
        let endpoint = self.table.get_mut(index)?;
        // What this endpoint sent since it was opened, on whichever connection: the
        // connection may be complete before its last message comes back.
        let since_opened = message.to_session.wrapping_sub(endpoint.incarnation);
        if since_opened >= self.next_session.wrapping_sub(endpoint.incarnation) {
            return None;
        }
        let notice = Notice::Undelivered { to: from, number, count, reason };
        endpoint.inbox.push_undelivered(notice, count, self.messages);
        Some(index)
    }
}
