//! What handles ask for. All of it returns at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall_placement::{Instant, PathId, Peer};
use stp_core::wire::Reason;
use stp_core::{
    Admission, Connect, ConnectionId, ConnectionLink, Ended, ExposedId, PeerRequestId, Priority,
    ReadId, ReceiveId, Rights,
};

use super::{EndpointState, Key, Known, Listening, Outcome, Request, Shown, Stage, Status, Ticket};
use crate::security::{self, Wanted};
use crate::stp::error::Error;
use crate::stp::memory::Held;

impl EndpointState {
    pub(crate) fn listen(&mut self, port: u16) -> Result<(), Error> {
        self.check_open()?;
        self.engine.listen(port, Admission::Open)?;
        let listening = Listening { backlog: VecDeque::new(), watchers: Vec::new() };
        self.listeners.insert(port, listening);
        Ok(())
    }

    /// Nobody accepts there any more; what nobody accepted is turned away.
    pub(crate) fn stop_listening(&mut self, now: Instant, port: u16) {
        self.engine.stop_listening(port);
        if let Some(listening) = self.listeners.remove(&port) {
            self.after.forget.extend(listening.watchers);
            for id in listening.backlog {
                self.drop_connection(now, id, Reason::NoListener);
            }
        }
    }

    pub(crate) fn set_path_up(
        &mut self,
        now: Instant,
        path: PathId,
        is_up: bool,
    ) -> Result<(), Error> {
        let known = self.paths.set_up(&mut self.engine, now, path, is_up);
        known.ok_or(Error::UnknownPath(path))
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closing { Err(Error::EndpointClosed) } else { Ok(()) }
    }

    pub(crate) fn connect(
        &mut self,
        now: Instant,
        path: PathId,
        (peer, wanted): (Peer, Wanted),
        connect: Connect,
    ) -> Result<ConnectionId, Error> {
        let name = self.associate(now, path, peer, &wanted)?;
        let connected = self.engine.connect(now, path, name, connect);
        let id = connected.inspect_err(|_| self.engine.forget(name))?;
        let mut known = Known::new(Status::Opening, path, (peer, name), 0);
        known.host = wanted.name;
        self.connections.insert(id, known);
        Ok(id)
    }

    /// What the engine is to call a peer; a handshake begins where it needs one.
    fn associate(
        &mut self,
        now: Instant,
        path: PathId,
        peer: Peer,
        wanted: &Wanted,
    ) -> Result<Peer, Error> {
        let busy = Error::Refused(stp_core::Error::Busy);
        let is_own = self.paths.get(path).is_some_and(|path| path.is_at(peer));
        let expected = wanted.as_expected(is_own);
        let name = self.engine.associate_with(now, path, peer, expected).ok_or(busy)?;
        if wanted.pinned.is_some() && name == peer {
            return Err(Error::NotEncrypted { peer });
        }
        Ok(name)
    }

    pub(crate) fn add_link(
        &mut self,
        now: Instant,
        id: ConnectionId,
        path: PathId,
        peer: Peer,
    ) -> Result<(), Error> {
        self.paths.get(path).ok_or(Error::UnknownPath(path))?;
        // By certificates it is known by the same name on each path.
        let host = self.connections.get(&id).and_then(|known| known.host.clone());
        let name = self.associate(now, path, peer, &Wanted { pinned: None, name: host })?;
        let added = self.engine.add_link(now, id, path, name);
        Ok(added.inspect_err(|_| self.engine.forget(name))?)
    }

    /// What the engine calls the peer of a link: what is encrypted has names of its own.
    pub(crate) fn name_on(
        &self,
        id: ConnectionId,
        path: PathId,
        peer: Peer,
    ) -> Result<Peer, Error> {
        let links = self.engine.links_of(id)?;
        let is_it = |link: &ConnectionLink| {
            link.path == path && self.engine.remote(path, link.peer).unwrap_or(link.peer) == peer
        };
        Ok(links.into_iter().find(is_it).map_or(peer, |link| link.peer))
    }

    /// Why there is no connection: because there are no keys, if so.
    pub(crate) fn not_connected(&self, id: ConnectionId, why: Ended) -> Error {
        let known = self.connections.get(&id);
        match known.and_then(|known| Some((known.peer, self.engine.failure(known.name)?))) {
            Some((peer, why)) => {
                let advice =
                    security::advice(why, self.security.place().as_deref(), "`connect_pinned`");
                Error::NoKeys { peer, why, advice }
            }
            None => Error::NotConnected(why),
        }
    }

    /// Connections without keys end at once.
    pub(super) fn end_unkeyed(&mut self, now: Instant) {
        while let Some(name) = self.engine.poll_failed() {
            let is_it = |known: &Known| known.name == name && known.status == Status::Opening;
            let unkeyed = self.connections.iter().filter(|(_, known)| is_it(known));
            for id in unkeyed.map(|(id, _)| *id).collect::<Vec<_>>() {
                let _ = self.engine.abort(now, id, Reason::Refused);
            }
        }
    }

    /// Closes a connection gracefully.
    pub(crate) fn close_connection(&mut self, now: Instant, id: ConnectionId) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        if !matches!(known.status, Status::Opening | Status::Open) {
            return;
        }
        known.status = Status::Closing;
        // Unknown: it is over already, and the event is on its way.
        let _ = self.engine.close(now, id);
        self.end_waiting(id, None);
        self.wake_watchers(id);
        self.hear(now);
    }

    pub(crate) fn abort_connection(&mut self, now: Instant, id: ConnectionId, reason: Reason) {
        let _ = self.engine.abort(now, id, reason);
        self.hear(now);
    }

    /// The last handle is gone.
    pub(crate) fn release_connection(&mut self, now: Instant, id: ConnectionId) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        known.is_released = true;
        match known.status {
            Status::Closed(_) => {
                if let Some(known) = self.connections.remove(&id) {
                    self.after.forget.extend(known.watchers);
                }
            }
            _ => self.close_connection(now, id),
        }
    }

    /// A connection that no user knows of ends.
    pub(super) fn drop_connection(&mut self, now: Instant, id: ConnectionId, reason: Reason) {
        if let Some(known) = self.connections.get_mut(&id) {
            known.is_released = true;
        }
        self.abort_connection(now, id, reason);
    }

    /// Begins an operation, or lets it wait for room or for a Transfer.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        id: ConnectionId,
        request: Request,
        (held, ticket, priority): (Option<Held>, Arc<Ticket>, Option<Priority>),
    ) {
        let key = self.slots.add(id, request, held, ticket);
        if let Some(slot) = self.slots.get(key) {
            slot.priority = priority;
        }
        let why = match self.connections.get(&id) {
            None => Some(Some(Ended::ConnectionGone)),
            // What came before the end may still be taken.
            Some(_) if matches!(request, Request::Accept { .. } | Request::AnswerRead { .. }) => {
                None
            }
            Some(known) => known.over(),
        };
        if let Some(why) = why {
            self.end(key, Outcome::Closed { why });
            return;
        }
        let Some(known) = self.connections.get_mut(&id) else { return };
        if matches!(request, Request::Receive { .. }) {
            match known.offers.pop_front() {
                Some(offer) => self.join(now, key, offer),
                None => known.receivers.push_back(key),
            }
        } else if !known.queue.is_empty() || !self.begin(now, key) {
            self.crowd(id, key);
        }
    }

    fn crowd(&mut self, id: ConnectionId, key: Key) {
        if let Some(known) = self.connections.get_mut(&id) {
            // Who is urgent waits before those that are not.
            let priority = self.slots.priority(key);
            let yields = |other: &&Key| self.slots.priority(**other) < priority;
            let overtaken = known.queue.iter().rev().take_while(yields).count();
            known.queue.insert(known.queue.len() - overtaken, key);
        }
        if !self.crowded.contains(&id) {
            self.crowded.push(id);
        }
    }

    /// Ends an operation early. Its user is told when the engine is through with it.
    pub(super) fn cancel(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        let Some((key, slot)) = self.slots.of(ticket) else { return };
        match slot.stage {
            Stage::Begun(begun) => {
                begun.cancel(&mut self.engine, now);
                self.hear(now);
            }
            Stage::Waiting => {
                self.wait_no_more(key);
                self.end(key, Outcome::Ended { len: 0, why: Ended::Here });
            }
        }
    }

    /// Somebody wants to know how far an operation is, or nobody does any more.
    pub(super) fn watch_progress(&mut self, ticket: &Arc<Ticket>, is_watched: bool) {
        let Some((_, slot)) = self.slots.of(ticket) else { return };
        slot.is_watched = is_watched;
        if let Stage::Begun(begun) = slot.stage {
            let len = begun.watch(&mut self.engine, is_watched);
            ticket.record_progress(len, &mut self.after.wake);
        }
    }

    /// Nobody waits for an operation any more.
    pub(super) fn forget(&mut self, now: Instant, ticket: &Arc<Ticket>) {
        if let Some((_, slot)) = self.slots.of(ticket) {
            slot.is_orphan = true;
            self.cancel(now, ticket);
        }
    }

    fn wait_no_more(&mut self, key: Key) {
        let connection = self.slots.get(key).map(|slot| slot.connection);
        if let Some(known) = connection.and_then(|id| self.connections.get_mut(&id)) {
            known.queue.retain(|waiting| *waiting != key);
            known.receivers.retain(|waiting| *waiting != key);
        }
    }

    pub(crate) fn refuse_offer(&mut self, now: Instant, offer: ReceiveId, reason: Reason) {
        // Over already: nothing is left to refuse.
        let _ = self.engine.refuse(offer, reason);
        self.hear(now);
    }

    pub(crate) fn refuse_read(&mut self, now: Instant, read: ReadId, reason: Reason) {
        // Over already: nobody waits for an answer.
        let _ = self.engine.refuse_read(now, read, reason);
        self.hear(now);
    }

    /// Waits until the connection has changed so that `look` finds something.
    pub(crate) fn poll_known<T>(
        &mut self,
        id: ConnectionId,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut Known) -> Option<T>,
    ) -> Poll<Result<T, Error>> {
        let Some(known) = self.connections.get_mut(&id) else {
            return Poll::Ready(Err(Error::Closed { why: Some(Ended::ConnectionGone) }));
        };
        if let Some(found) = look(known) {
            return Poll::Ready(Ok(found));
        }
        if let Some(why) = known.over() {
            return Poll::Ready(Err(Error::Closed { why }));
        }
        Self::watch(&mut self.after, &mut known.watchers, cx.waker());
        Poll::Pending
    }

    /// Waits until the connection is over.
    pub(crate) fn poll_closed(
        &mut self,
        id: ConnectionId,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Ended>> {
        let Some(known) = self.connections.get_mut(&id) else { return Poll::Ready(None) };
        if let Status::Closed(why) = known.status {
            return Poll::Ready(why);
        }
        Self::watch(&mut self.after, &mut known.watchers, cx.waker());
        Poll::Pending
    }

    pub(crate) fn poll_accept(
        &mut self,
        port: u16,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ConnectionId, Error>> {
        let is_closing = self.is_closing;
        let Some(listening) = self.listeners.get_mut(&port) else {
            return Poll::Ready(Err(Error::EndpointClosed));
        };
        if let Some(id) = listening.backlog.pop_front() {
            return Poll::Ready(Ok(id));
        }
        if is_closing {
            return Poll::Ready(Err(Error::EndpointClosed));
        }
        Self::watch(&mut self.after, &mut listening.watchers, cx.waker());
        Poll::Pending
    }

    pub(crate) fn expose(
        &mut self,
        now: Instant,
        request: PeerRequestId,
        held: Held,
        rights: Rights,
    ) -> Result<ExposedId, Error> {
        let id = self.engine.expose(request, held.area(), rights)?;
        let shown = Shown {
            held: Some(held),
            notices: VecDeque::new(),
            missed: 0,
            is_over: false,
            is_orphan: false,
            watchers: Vec::new(),
        };
        self.shown.insert(id, shown);
        self.hear(now);
        Ok(id)
    }

    /// Ends the use of a region by the other side.
    pub(crate) fn revoke(&mut self, now: Instant, id: ExposedId, is_orphan: bool) {
        let Some(shown) = self.shown.get_mut(&id) else { return };
        shown.is_orphan |= is_orphan;
        if shown.is_over {
            if is_orphan && let Some(shown) = self.shown.remove(&id) {
                self.after.forget.extend(shown.watchers);
            }
            return;
        }
        let _ = self.engine.revoke(id);
        self.hear(now);
    }

    pub(crate) fn poll_shown<T>(
        &mut self,
        id: ExposedId,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut Shown) -> Option<T>,
    ) -> Poll<Option<T>> {
        let Some(shown) = self.shown.get_mut(&id) else { return Poll::Ready(None) };
        if let Some(found) = look(shown) {
            return Poll::Ready(Some(found));
        }
        if shown.is_over {
            return Poll::Ready(None);
        }
        Self::watch(&mut self.after, &mut shown.watchers, cx.waker());
        Poll::Pending
    }

    /// The endpoint closes: every connection does.
    pub(super) fn close_all(&mut self, now: Instant) {
        self.is_closing = true;
        let ports: Vec<u16> = self.listeners.keys().copied().collect();
        for port in ports {
            self.engine.stop_listening(port);
            if let Some(listening) = self.listeners.get_mut(&port) {
                let waiting = std::mem::take(&mut listening.backlog);
                Self::wake_all(&mut self.after, &mut listening.watchers);
                for id in waiting {
                    self.drop_connection(now, id, Reason::Closing);
                }
            }
        }
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.close_connection(now, id);
        }
    }

    /// Enough was waited: what is not closed ends now.
    pub(super) fn abort_all(&mut self, now: Instant) {
        let is_open = |known: &Known| !matches!(known.status, Status::Closed(_));
        let open = self.connections.iter().filter(|(_, known)| is_open(known));
        let ids: Vec<ConnectionId> = open.map(|(id, _)| *id).collect();
        for id in ids {
            self.abort_connection(now, id, Reason::Closing);
        }
    }

    /// The last of all: whatever is not over never will be.
    pub(super) fn end_all(&mut self) {
        self.is_closing = true;
        let why = Some(Ended::ConnectionGone);
        for key in self.slots.keys() {
            self.end(key, Outcome::Closed { why });
        }
        for known in self.connections.values_mut() {
            if !matches!(known.status, Status::Closed(_)) {
                known.status = Status::Closed(why);
            }
            Self::wake_all(&mut self.after, &mut known.watchers);
        }
        self.alarms.take_all(&mut self.after.wake);
        for shown in self.shown.values_mut() {
            shown.is_over = true;
            self.after.free.extend(shown.held.take());
            Self::wake_all(&mut self.after, &mut shown.watchers);
        }
        for listening in self.listeners.values_mut() {
            Self::wake_all(&mut self.after, &mut listening.watchers);
        }
    }
}
