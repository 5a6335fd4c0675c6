//! What comes in: messages of other hosts, and that one of them is gone; what is owed to other
//! hosts: answers to what they sent.
//!
//! An answer can only leave when its link has room, and a link that waits for
//! room must not keep others from being heard: so answers wait here. Answers
//! are never answered, so two hosts cannot keep each other busy with them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_tables::AgeList;

use super::Endpoints;
use super::connection::{State, Stray};
use super::message::{ConnectRequest, Notice, OutOfBand, OutOfBandKind, Port, PortAddress};
use crate::address::{EndpointId, HostId};
use crate::error::{Ended, Reason};

impl Endpoints {
    /// A message came from this host. `tell` hears which endpoints have
    /// something new for their users.
    ///
    /// Returns how many answers of that host were lost for want of room, if it
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
                self.cancel_requests(host, tell);
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

    /// The other side could not answer all that it was asked: anyone who waits for
    /// an answer of it waits in vain.
    fn cancel_requests(&mut self, host: HostId, tell: &mut dyn FnMut(EndpointId)) {
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
            let transition = endpoint.state.end(why);
            self.apply(index, transition);
        }
        // A step that ends a connection has done so; a member that has none must
        // not keep anybody in a loop.
        self.members.remove(&mut self.hosts.of(host).members, index);
    }

    fn name_of(&self, index: u32) -> EndpointId {
        EndpointId::of(self.table.key(index))
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
            (Some(index), Some(_), Ok(transition)) => {
                self.apply(index, transition);
                Some(index)
            }
            _ => {
                self.reject_session(from.host, message, found.is_some());
                None
            }
        }
    }

    /// The sender believes in a connection that is not there. It shall know,
    /// but for those messages that say themselves that there is none.
    fn reject_session(&mut self, host: HostId, message: &OutOfBand, is_open: bool) {
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

/// One other host.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// The endpoints that have a connection with it.
    pub(super) members: AgeList,
    answers: VecDeque<Answer>,
    /// Of the answers, those that end a connection.
    aborts: usize,
    /// Requests that wait at listeners: each may yet need a refusal.
    promised: usize,
    /// What found no room among the answers.
    overrun: u32,
    /// It is in the queue of those who have answers to get.
    is_queued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    message: OutOfBand,
    /// It ends a connection of this side: it counts against a bound of its own.
    is_end: bool,
}

/// Those hosts that there was something with.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
    /// Who has answers to get, once each.
    queued: VecDeque<HostId>,
    /// The most answers that wait for one host because of what it did.
    limit: usize,
    /// Ends of connections that wait to be told, over all hosts.
    aborts: usize,
}

impl Hosts {
    pub(super) const fn new(limit: usize) -> Self {
        Self { hosts: Vec::new(), queued: VecDeque::new(), limit, aborts: 0 }
    }

    pub(super) fn of(&mut self, host: HostId) -> &mut Host {
        let index = usize::from(host.number());
        if self.hosts.len() <= index {
            self.hosts.resize_with(index + 1, Host::default);
        }
        &mut self.hosts[index]
    }

    fn get(&self, host: HostId) -> Option<&Host> {
        self.hosts.get(usize::from(host.number()))
    }

    /// How many ends of connections wait to be told.
    pub(super) const fn aborts(&self) -> usize {
        self.aborts
    }

    pub(super) fn has_answers(&self, host: HostId) -> bool {
        self.get(host).is_some_and(|host| !host.answers.is_empty() || host.overrun > 0)
    }

    /// A host that has had no answers to get, and has some now.
    pub(super) fn poll_host(&mut self) -> Option<HostId> {
        while let Some(host) = self.queued.pop_front() {
            self.of(host).is_queued = false;
            if self.has_answers(host) {
                return Some(host);
            }
        }
        None
    }

    /// The next answer for this host.
    pub(super) fn poll(&mut self, host: HostId) -> Option<OutOfBand> {
        if !self.has_answers(host) {
            return None;
        }
        let record = self.of(host);
        if let Some(Answer { message, is_end }) = record.answers.pop_front() {
            record.aborts -= usize::from(is_end);
            self.aborts -= usize::from(is_end);
            return Some(message);
        }
        let number = core::mem::take(&mut record.overrun);
        Some(OutOfBand {
            from: Port(0),
            to: Port(0),
            kind: OutOfBandKind::Overrun,
            reason: Some(Reason::NoRoom),
            number,
            from_session: 0,
            to_session: 0,
            body: [0; 40],
        })
    }

    /// Answers what a host sent, or counts that there is no room for it.
    pub(super) fn answer(&mut self, host: HostId, answer: OutOfBand) {
        let limit = self.limit;
        let record = self.of(host);
        if !record.merge(&answer) {
            if record.has_room(limit) && record.overrun == 0 {
                record.answers.push_back(Answer { message: answer, is_end: false });
            } else {
                record.overrun = record.overrun.saturating_add(1);
            }
        }
        self.enqueue(host);
    }

    /// Tells a host that a connection is over. The caller has held the bound.
    pub(super) fn abort(&mut self, host: HostId, abort: OutOfBand) {
        let record = self.of(host);
        record.answers.push_back(Answer { message: abort, is_end: true });
        record.aborts += 1;
        self.aborts += 1;
        self.enqueue(host);
    }

    /// A request is to wait at a listener: is there room for its refusal?
    pub(super) fn promise(&mut self, host: HostId) -> bool {
        let limit = self.limit;
        let record = self.of(host);
        let has_room = record.has_room(limit) && record.overrun == 0;
        record.promised += usize::from(has_room);
        has_room
    }

    /// The request waits no longer.
    pub(super) fn release(&mut self, host: HostId) {
        let record = self.of(host);
        record.promised = record.promised.saturating_sub(1);
    }

    /// Nobody is there any more who could be told.
    pub(super) fn forget(&mut self, host: HostId) {
        let record = self.of(host);
        record.answers = VecDeque::new();
        record.overrun = 0;
        let aborts = core::mem::take(&mut record.aborts);
        self.aborts -= aborts;
    }

    fn enqueue(&mut self, host: HostId) {
        if !core::mem::replace(&mut self.of(host).is_queued, true) {
            self.queued.push_back(host);
        }
    }
}

impl Host {
    fn has_room(&self, limit: usize) -> bool {
        self.answers.len() - self.aborts + self.promised < limit
    }

    /// Messages one after the other that were not delivered for one reason are
    /// told of in one answer.
    fn merge(&mut self, answer: &OutOfBand) -> bool {
        if let Some((number, count)) = answer.undelivered()
            && let Some(Answer { message: last, .. }) = self.answers.back_mut()
            && let Some((first, so_far)) = last.undelivered()
            && first.wrapping_add(so_far) == number
            && let Some(sum) = so_far.checked_add(count)
            && *last == (OutOfBand { number: first, body: last.body, ..*answer })
        {
            last.set_undelivered(first, sum);
            return true;
        }
        false
    }
}

impl OutOfBand {
    /// Which messages were not delivered: the number of the first, and how many.
    pub(super) fn undelivered(&self) -> Option<(u32, u32)> {
        let [a, b, c, d, ..] = self.body;
        let count = u32::from_be_bytes([a, b, c, d]);
        (self.kind == OutOfBandKind::Undelivered && count > 0).then_some((self.number, count))
    }

    pub(super) fn set_undelivered(&mut self, first: u32, count: u32) {
        self.number = first;
        self.body = [0; 40];
        self.body[..4].copy_from_slice(&count.to_be_bytes());
    }
}
