//! What the engine tells, and whom it concerns.

use landfall_placement::{Engine as _, Instant};
use stp_core::wire::Reason;
use stp_core::{ConnectionId, Ended, Event};

use super::connections::{Known, Notice, OfferMade, ReadMade, RegionMade, Status};
use super::slots::{Begun, Outcome, Request};
use super::{EndpointState, Key};

/// This many notices of one region wait for its user; the oldest are forgotten.
const MOST_NOTICES: usize = 1024;

impl EndpointState {
    /// Takes every event out of the engine. Returns whether there was one.
    pub(super) fn hear(&mut self, now: Instant) -> bool {
        let mut heard = false;
        self.end_unkeyed(now);
        while let Some(event) = self.engine.poll_event() {
            heard = true;
            self.take(now, event);
        }
        heard
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::Connected { connection, hello } => self.opened(connection, hello),
            Event::Accepted { connection, port, path, peer, hello } => {
                let remote = self.engine.remote(path, peer).unwrap_or(peer);
                let known = Known::new(Status::Open, path, (remote, peer), hello);
                self.connections.insert(connection, known);
                self.came_in(now, connection, port);
            }
            // Listeners here admit at once.
            Event::Incoming { connection, .. } => {
                let _ = self.engine.admit(now, connection, 0);
            }
            Event::Closing { connection } => self.closing(connection),
            Event::Closed { connection, why } => self.closed(connection, why),
            Event::LinkUp { connection, .. } | Event::LinkDown { connection, .. } => {
                self.wake_watchers(connection);
            }
            Event::Sent { send, len, .. } => self.over(Begun::Send(send), Outcome::Done { len }),
            Event::SendEnded { send, len, why, .. } => {
                self.over(Begun::Send(send), Outcome::Ended { len, why });
            }
            Event::Offered { receive, connection, len, opaque } => {
                self.offered(now, connection, OfferMade { receive, len, opaque });
            }
            Event::Received { receive, len, offered, opaque, .. } => {
                self.over(Begun::Receive(receive), Outcome::Received { len, offered, opaque });
            }
            Event::ReceiveEnded { receive, connection, len, why, .. } => {
                if let Some(known) = self.connections.get_mut(&connection) {
                    known.offers.retain(|offer| offer.receive != receive);
                }
                self.over(Begun::Receive(receive), Outcome::Ended { len, why });
            }
            Event::GetDone { receive, memory, .. } => {
                let (len, offered, opaque) = (memory.len, memory.len, 0);
                self.over(Begun::Receive(receive), Outcome::Received { len, offered, opaque });
            }
            Event::SendProgress { send, len, .. } => self.progressed(Begun::Send(send), len),
            Event::ReceiveProgress { receive, len, .. } => {
                self.progressed(Begun::Receive(receive), len);
            }
            Event::ReadRequested { read, connection, len, opaque } => {
                if let Some(known) = self.connections.get_mut(&connection) {
                    known.reads.push_back(ReadMade { read, len, opaque });
                }
                self.wake_watchers(connection);
            }
            Event::PutDone { operation, .. } => {
                self.over(Begun::Operation(operation), Outcome::Done { len: 0 });
            }
            Event::Fetched { operation, old, .. } => {
                self.over(Begun::Operation(operation), Outcome::Fetched { old });
            }
            Event::OperationEnded { operation, why, .. } => {
                self.over(Begun::Operation(operation), Outcome::Ended { len: 0, why });
            }
            other => self.take_region_event(other),
        }
    }

    fn take_region_event(&mut self, event: Event) {
        match event {
            Event::RegionRequested { request, connection, name, len, rights } => {
                if let Some(known) = self.connections.get_mut(&connection) {
                    known.regions.push_back(RegionMade { request, name, len, rights });
                }
                self.wake_watchers(connection);
            }
            Event::RegionAvailable { request, region, .. } => {
                self.over(Begun::Region(request), Outcome::Region(region));
            }
            Event::RegionRefused { request, why, .. } => {
                self.over(Begun::Region(request), Outcome::Ended { len: 0, why });
            }
            Event::Written { exposed, at, len, .. } => {
                let Some(shown) = self.shown.get_mut(&exposed) else { return };
                if shown.notices.len() >= MOST_NOTICES {
                    shown.notices.pop_front();
                    shown.missed += 1;
                }
                shown.notices.push_back(Notice { at, len });
                Self::wake_all(&mut self.after, &mut shown.watchers);
            }
            Event::Revoked { exposed, .. } => {
                let Some(shown) = self.shown.get_mut(&exposed) else { return };
                shown.is_over = true;
                self.after.free.extend(shown.held.take());
                Self::wake_all(&mut self.after, &mut shown.watchers);
                if shown.is_orphan {
                    self.shown.remove(&exposed);
                }
            }
            // Memory is never posted: a Transfer meets its memory in `offered`.
            _ => {}
        }
    }

    fn opened(&mut self, id: ConnectionId, hello: u64) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        known.status = Status::Open;
        known.hello = hello;
        Self::wake_all(&mut self.after, &mut known.watchers);
    }

    fn came_in(&mut self, now: Instant, id: ConnectionId, port: u16) {
        let backlog = self.backlog;
        match self.listeners.get_mut(&port) {
            Some(listening) if listening.backlog.len() < backlog => {
                listening.backlog.push_back(id);
                Self::wake_all(&mut self.after, &mut listening.watchers);
            }
            full => {
                let reason = if full.is_some() { Reason::Busy } else { Reason::NoListener };
                self.drop_connection(now, id, reason);
            }
        }
    }

    /// The other side wants to close: nothing new will be offered.
    fn closing(&mut self, id: ConnectionId) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        known.status = Status::Closing;
        self.end_waiting(id, None);
        self.wake_watchers(id);
    }

    fn closed(&mut self, id: ConnectionId, why: Option<Ended>) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        known.status = Status::Closed(why);
        self.engine.retire(known.name);
        known.offers.clear();
        known.reads.clear();
        known.regions.clear();
        self.end_waiting(id, why);
        self.wake_watchers(id);
        if self.connections.get(&id).is_some_and(|known| known.is_released) {
            self.connections.remove(&id);
        }
        for listening in self.listeners.values_mut() {
            // Nobody wants to accept what is over already.
            if let Some(at) = listening.backlog.iter().position(|waiting| *waiting == id) {
                listening.backlog.remove(at);
                self.connections.remove(&id);
            }
        }
    }

    /// What has not begun on a connection never will.
    pub(super) fn end_waiting(&mut self, id: ConnectionId, why: Option<Ended>) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        let waiting: Vec<Key> = known.queue.drain(..).chain(known.receivers.drain(..)).collect();
        for key in waiting {
            self.end(key, Outcome::Closed { why });
        }
    }

    pub(super) fn wake_watchers(&mut self, id: ConnectionId) {
        if let Some(known) = self.connections.get_mut(&id) {
            Self::wake_all(&mut self.after, &mut known.watchers);
        }
    }

    /// The other side has a Transfer: memory that waits takes it, or the user
    /// is asked.
    fn offered(&mut self, now: Instant, id: ConnectionId, offer: OfferMade) {
        let Some(known) = self.connections.get_mut(&id) else { return };
        match known.receivers.pop_front() {
            Some(key) => self.join(now, key, offer),
            None => {
                known.offers.push_back(offer);
                Self::wake_all(&mut self.after, &mut known.watchers);
            }
        }
    }

    /// Memory and a Transfer for it.
    pub(super) fn join(&mut self, now: Instant, key: Key, offer: OfferMade) {
        let Some(slot) = self.slots.get(key) else { return };
        if let Request::Receive { memory, takes_part } = slot.request {
            slot.request = Request::Accept { receive: offer.receive, memory, takes_part };
            self.begin(now, key);
        }
    }

    /// Begins an operation, if there is room. Its end, if it was refused.
    /// Returns false where it has to wait.
    pub(super) fn begin(&mut self, now: Instant, key: Key) -> bool {
        let Some(slot) = self.slots.get(key) else { return true };
        let (request, connection) = (slot.request, slot.connection);
        match request.begin(&mut self.engine, now, connection) {
            Ok(begun) => {
                let (is_watched, priority) = (slot.is_watched, slot.priority);
                self.slots.note_begun(key, begun);
                if let Some(priority) = priority {
                    begun.prioritize(&mut self.engine, priority);
                }
                if is_watched {
                    begun.watch(&mut self.engine, true);
                }
            }
            Err(stp_core::Error::Busy) => return false,
            Err(error) => self.end(key, Outcome::Refused(error)),
        }
        true
    }

    /// There may be room for what waits. Returns whether anything began.
    pub(super) fn begin_waiting(&mut self, now: Instant) -> bool {
        let mut began = false;
        for id in std::mem::take(&mut self.crowded) {
            while let Some(key) = self.first_waiting(id) {
                if !self.begin(now, key) {
                    self.crowded.push(id);
                    break;
                }
                began = true;
                if let Some(known) = self.connections.get_mut(&id) {
                    known.queue.retain(|waiting| *waiting != key);
                }
            }
        }
        began
    }

    fn first_waiting(&self, id: ConnectionId) -> Option<Key> {
        self.connections.get(&id)?.queue.front().copied()
    }

    fn progressed(&mut self, begun: Begun, len: u64) {
        if let Some(slot) = self.slots.begun(begun) {
            slot.ticket.record_progress(len, &mut self.after.wake);
        }
    }

    fn over(&mut self, begun: Begun, outcome: Outcome) {
        if let Some(key) = self.slots.note_over(begun) {
            self.end(key, outcome);
        }
    }

    /// An operation is over: its user takes the outcome, or nobody does.
    pub(super) fn end(&mut self, key: Key, outcome: Outcome) {
        let Some(slot) = self.slots.remove(key) else { return };
        if slot.is_orphan {
            self.after.free.extend(slot.held);
        } else {
            slot.ticket.end(outcome, slot.held, &mut self.after.wake);
        }
    }
}
