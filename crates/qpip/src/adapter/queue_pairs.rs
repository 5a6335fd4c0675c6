//! [`QueuePairs`]: all of them. They are found by name, by the two ends of their
//! connection, and by the port that they are bound to; they have their timers here; and
//! what happened to one is taken out of it here, for completion queues and events.
//!
//! What does not live here: a queue pair's own queues and states (`queue_pair`), what
//! comes for its connection (`connection`), whose turn it is to send (`transmit`), and
//! connections that have no queue pair yet (`listeners`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use landfall_placement::Instant;
use landfall_tables::{EntryKey, IndexedHeap, Table};

use super::context::Context;
use super::demux::{Demux, Ends, any_of, bound_ends};
use super::error::{Error, Object};
use super::event::Event;
use super::links::{Link, Links};
use super::queue_pair::{Connection, Phase, QueuePair, Role, Stream};
use super::resources::Resources;
use super::routes::Route;
use super::shared_receives::SharedReceives;
use super::time_wait::TimeWaits;
use crate::offload;
use crate::queue::Queues;
use crate::tcp::{Claim, ConnectionEvent, KnownServers, Secret, Tcb, TcpConfig};
use crate::work::{ListenerId, QueuePairId, Status};

/// All queue pairs, and the connections that were theirs.
#[derive(Debug)]
pub(super) struct QueuePairs {
    table: Table<QueuePair>,
    /// By queue pair; never later than it wants.
    timers: IndexedHeap<Instant>,
    demux: Demux,
    /// Connections that are over, while late segments of them may come.
    pub(super) time_waits: TimeWaits,
    /// Servers to which an opening may carry data.
    pub(super) known_servers: KnownServers,
}

// By which names they are found.

impl QueuePairs {
    pub(super) const fn new(most: usize, demux: Demux, time_waits: TimeWaits) -> Self {
        Self {
            table: Table::new(most),
            timers: IndexedHeap::new(),
            demux,
            time_waits,
            known_servers: KnownServers::new(),
        }
    }

    /// The name of the next one, if there is room for it.
    pub(super) fn next_id(&self) -> Result<QueuePairId, Error> {
        let EntryKey { index, generation } =
            self.table.next().ok_or(Error::Full(Object::QueuePair))?;
        Ok(QueuePairId::new(index, generation))
    }

    pub(super) fn insert(&mut self, pair: QueuePair) {
        let id = pair.id;
        let key = self.table.insert(pair);
        debug_assert_eq!(
            key,
            Some(EntryKey { index: id.index, generation: id.generation }),
            "its name was the next"
        );
    }

    #[inline]
    pub(super) fn named(&self, id: QueuePairId) -> Option<&QueuePair> {
        self.table.named(id.index, id.generation)
    }

    #[inline]
    pub(super) fn named_mut(&mut self, id: QueuePairId) -> Option<&mut QueuePair> {
        self.table.named_mut(id.index, id.generation)
    }

    /// The queue pair of this name, unless the user has destroyed it.
    pub(super) fn known(&self, id: QueuePairId) -> Result<&QueuePair, Error> {
        let pair = self.named(id).filter(|pair| !pair.is_destroyed);
        pair.ok_or(Error::Unknown(Object::QueuePair))
    }

    pub(super) fn known_mut(&mut self, id: QueuePairId) -> Result<&mut QueuePair, Error> {
        let pair = self.named_mut(id).filter(|pair| !pair.is_destroyed);
        pair.ok_or(Error::Unknown(Object::QueuePair))
    }

    /// The queue pair in this slot.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&QueuePair> {
        self.table.get(slot)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut QueuePair> {
        self.table.get_mut(slot)
    }

    /// The queue pair of this name, if it is one for TCP.
    pub(super) fn stream(&self, id: QueuePairId) -> Option<&Stream> {
        match &self.known(id).ok()?.role {
            Role::Stream(stream) => Some(stream),
            Role::Datagrams(_) => None,
        }
    }

    /// A connection that is alive for its user, and the queues that it works on.
    pub(super) fn connection_mut(
        &mut self,
        id: QueuePairId,
    ) -> Option<(&mut Connection, &mut Queues)> {
        self.known_mut(id).ok()?.connection_mut()
    }

    /// Is it a queue pair with a connection?
    pub(super) fn check_connected(&self, id: QueuePairId) -> Result<(), Error> {
        let pair = self.known(id)?;
        match &pair.role {
            Role::Datagrams(_) => Err(Error::WrongService),
            Role::Stream(_) if pair.connection().is_none() => Err(Error::NotConnected),
            Role::Stream(_) => Ok(()),
        }
    }

    /// The queue pair is one for TCP, and idle.
    pub(super) fn idle_stream(&self, id: QueuePairId) -> Result<&Stream, Error> {
        match &self.known(id)?.role {
            Role::Datagrams(_) => Err(Error::WrongService),
            Role::Stream(stream) if matches!(stream.phase, Phase::Idle) => Ok(stream),
            Role::Stream(_) => Err(Error::NotIdle),
        }
    }

    /// The connection of these two ends; likely the one that something came for on
    /// this link last.
    #[inline]
    pub(super) fn find(&self, link: &mut Link, ends: Ends) -> Option<QueuePairId> {
        if let Some(id) = link.last_pair {
            let connection = self.named(id).and_then(QueuePair::connection);
            let is_it = |tcb: &Tcb| tcb.ends() == ends && !tcb.is_closed();
            if connection.is_some_and(|connection| is_it(&connection.tcb)) {
                return Some(id);
            }
        }
        let id = self.connection_of(ends)?;
        link.last_pair = Some(id);
        Some(id)
    }

    /// The connection of these two ends.
    #[inline]
    pub(super) fn connection_of(&self, ends: Ends) -> Option<QueuePairId> {
        let index = self.demux.connections.find(ends, |index| {
            let connection = self.table.get(index).and_then(QueuePair::connection);
            connection.is_some_and(|known| known.tcb.ends() == ends)
        })?;
        self.table.get(index).map(|pair| pair.id)
    }

    /// Has no connection these two ends, and had none of late?
    pub(super) fn is_free(&self, ends: Ends) -> bool {
        self.connection_of(ends).is_none() && self.time_waits.find(ends).is_none()
    }

    /// The queue pair that is bound to exactly this.
    pub(super) fn bound_at(&self, local: SocketAddr) -> Option<QueuePairId> {
        let is_meant = |index| match self.table.get(index).map(|pair| &pair.role) {
            Some(Role::Datagrams(datagrams)) => datagrams.local == Some(local),
            _ => false,
        };
        let index = self.demux.bound.find(bound_ends(local), is_meant)?;
        self.table.get(index).map(|pair| pair.id)
    }

    /// The queue pair that takes what comes for this port of an address of ours.
    pub(super) fn receiver_at(&self, local: SocketAddr) -> Option<QueuePairId> {
        let any = SocketAddr::new(any_of(local.ip()), local.port());
        self.bound_at(local).or_else(|| self.bound_at(any))
    }
}

impl QueuePairs {
    /// Does the queue pair that is bound there listen to this group, on this link?
    pub(super) fn listens(&self, link: usize, local: SocketAddr) -> bool {
        let pair = self.receiver_at(local).and_then(|id| self.named(id));
        pair.is_some_and(|pair| match &pair.role {
            Role::Datagrams(known) => known.groups.joined.contains(&(link, local.ip())),
            Role::Stream(_) => false,
        })
    }
}

impl QueuePairs {
    /// Those whose connection is from an address that is not ours any more.
    pub(super) fn without_address(&self, links: &Links) -> Vec<QueuePairId> {
        let all = self.table.indices().filter_map(|index| self.table.get(index));
        let is_lost = |pair: &&QueuePair| {
            let connection = pair.connection().filter(|known| !known.tcb.is_closed());
            connection.is_some_and(|known| !links.has(known.tcb.ends().local.ip()))
        };
        all.filter(is_lost).map(|pair| pair.id).collect()
    }
}

// What their user asks of them.

impl QueuePairs {
    /// Returns an idle queue pair its connection.
    pub(super) fn open(
        &mut self,
        id: QueuePairId,
        tcb: Tcb,
        route: &Route,
        listener: Option<ListenerId>,
        secret: &Secret,
    ) {
        let ends = tcb.ends();
        let Ends { local, remote } = ends;
        // RFC 6437, 3: hard to guess, and different for each connection.
        let label = (secret.hash(local, remote) >> 40) as u32 & 0xf_ffff;
        let Ok(QueuePair { role: Role::Stream(stream), .. }) = self.known_mut(id) else {
            debug_assert!(false, "an idle queue pair for TCP is opened");
            return;
        };
        let connection = Connection::new(tcb, route, label.max(1), listener);
        stream.phase = Phase::Open(Box::new(connection));
        self.demux.connections.insert(ends, id.index);
    }

    /// It waits at a listener from now on, or for nobody any more.
    pub(super) fn set_offered(&mut self, id: QueuePairId, listener: Option<ListenerId>) {
        if let Ok(QueuePair { role: Role::Stream(stream), .. }) = self.known_mut(id) {
            stream.phase = listener.map_or(Phase::Idle, Phase::Offered);
        }
    }

    /// Ends a connection of which nobody has heard, neither its user nor the other side: the
    /// opening that brought its first data was damaged. Returns the listener where the queue
    /// pair waits again.
    pub(super) fn close_untold(&mut self, id: QueuePairId) -> Option<ListenerId> {
        let (connection, _) = self.connection_mut(id)?;
        let listener = connection.listener.filter(|_| connection.tcb.is_untold())?;
        let ends = connection.tcb.ends();
        self.demux.connections.remove(ends, id.index);
        self.timers.remove(id.index);
        self.set_offered(id, Some(listener));
        Some(listener)
    }

    /// It is to be assigned a connection. Returns whether it still waits for one.
    pub(super) fn take_offered(&mut self, id: QueuePairId) -> bool {
        let is_offered =
            self.stream(id).is_some_and(|stream| matches!(stream.phase, Phase::Offered(_)));
        if is_offered {
            self.set_offered(id, None);
        }
        is_offered
    }

    /// Chooses about its connection alone.
    pub(super) fn set_tcp(&mut self, id: QueuePairId, config: TcpConfig) -> Result<(), Error> {
        config.validate().map_err(Error::Config)?;
        match &mut self.known_mut(id)?.role {
            Role::Stream(stream) => stream.config = Some(Box::new(config)),
            Role::Datagrams(_) => return Err(Error::WrongService),
        }
        Ok(())
    }

    /// It is one for datagrams, and not bound yet.
    pub(super) fn check_unbound(&self, id: QueuePairId) -> Result<(), Error> {
        match &self.known(id)?.role {
            Role::Stream(_) => Err(Error::WrongService),
            Role::Datagrams(datagrams) if datagrams.local.is_some() => Err(Error::NotIdle),
            Role::Datagrams(_) => Ok(()),
        }
    }

    /// Binds one for datagrams to a port that is free. It has a rival where another is
    /// bound to that port of another address.
    pub(super) fn bind(
        &mut self,
        id: QueuePairId,
        local: SocketAddr,
        has_rival: bool,
    ) -> Result<(), Error> {
        if let Some(datagrams) = self.known_mut(id)?.datagrams_mut() {
            (datagrams.local, datagrams.has_rival) = (Some(local), has_rival);
        }
        self.demux.bound.insert(bound_ends(local), id.index);
        Ok(())
    }

    /// Tells those that are bound to this port of other addresses that one more is.
    /// Returns their slots.
    pub(super) fn note_rivals(&mut self, local: SocketAddr) -> Vec<u32> {
        let mut rivals: Vec<u32> = self.table.indices().collect();
        rivals.retain(|index| {
            let datagrams = self.table.get_mut(*index).and_then(QueuePair::datagrams_mut);
            let known = datagrams.filter(|known| {
                known.local.is_some_and(|other| {
                    other.port() == local.port() && other.is_ipv4() == local.is_ipv4()
                })
            });
            known.map(|known| known.has_rival = true).is_some()
        });
        rivals
    }

    /// Its user has ended it, and its connection is reset: what is posted is flushed.
    /// Returns the listener where it waited.
    pub(super) fn destroy(&mut self, id: QueuePairId) -> Option<ListenerId> {
        let pair = self.table.named_mut(id.index, id.generation)?;
        pair.is_destroyed = true;
        match &mut pair.role {
            Role::Stream(stream) => {
                stream.queues.flush(Status::Flushed);
                let Phase::Offered(listener) = stream.phase else { return None };
                stream.phase = Phase::Idle;
                Some(listener)
            }
            Role::Datagrams(datagrams) => {
                datagrams.flush();
                if let Some(local) = datagrams.local.take() {
                    self.demux.bound.remove(bound_ends(local), id.index);
                }
                None
            }
        }
    }

    /// A part of a request was polled: the next part may be reported. Returns whether the
    /// queue pair still exists.
    pub(super) fn handle_polled_part(&mut self, id: QueuePairId) -> bool {
        // It was destroyed meanwhile.
        let Some(pair) = self.named_mut(id) else { return false };
        pair.is_part_out = false;
        if let Role::Stream(stream) = &mut pair.role {
            stream.queues.receive.part_was_polled();
        }
        if let Some((connection, queues)) = pair.connection_mut() {
            connection.tcb.handle_polled_part(queues);
        }
        true
    }
}

// What comes as predicted, what time brings, and what is taken out.

impl QueuePairs {
    /// A segment came as predicted: the place that was predicted for it is claimed.
    #[inline]
    pub(super) fn claim_segment(
        &mut self,
        now: Instant,
        context: &mut Context,
        links: &mut Links,
        hit: &offload::Segment,
    ) -> Option<(QueuePairId, Claim)> {
        let pair = self.table.get_mut(hit.slot)?;
        let (id, (connection, queues)) = (pair.id, pair.connection_mut()?);
        let claim = connection.tcb.claim_predicted(now, hit, queues)?;
        links[connection.link()].last_pair = Some(id);
        context.stats.segments_predicted += 1;
        Some((id, claim))
    }

    /// A datagram came as predicted: it takes the next request.
    #[inline]
    pub(super) fn claim_datagram(
        &mut self,
        context: &mut Context,
        hit: &offload::Datagram,
    ) -> Option<QueuePairId> {
        let pair = self.table.get_mut(hit.slot)?;
        pair.datagrams_mut()?.inbound.take_predicted();
        context.stats.datagrams_predicted += 1;
        Some(pair.id)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| at)
    }

    /// The slot of the next one whose timer is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<u32> {
        self.timers.pop_up_to(now).map(|(_, slot)| slot)
    }

    /// Takes everything out that a queue pair has to tell, and sets its timer. A
    /// connection that is over goes to those in TIME-WAIT.
    #[inline]
    pub(super) fn settle(
        &mut self,
        context: &mut Context,
        resources: &mut Resources,
        id: QueuePairId,
    ) -> Option<&QueuePair> {
        let Self { table, timers, demux, time_waits, known_servers } = self;
        let pair = table.named_mut(id.index, id.generation)?;
        while let Some(done) = pair.poll_done() {
            resources.complete(context, pair, &done);
        }
        let is_told = !pair.is_destroyed;
        if let Some((connection, queues, config)) = pair.configured_mut(&context.config.tcp) {
            while let Some(event) = connection.tcb.poll_event() {
                if is_told {
                    let event = event_of(id, connection, &event);
                    landfall_placement::trace!(?event);
                    context.events.push(event);
                }
                if let ConnectionEvent::Connected = event
                    && let Some(learned) = connection.tcb.take_known_server()
                {
                    known_servers.note(connection.tcb.ends().remote.ip(), learned);
                }
                if let ConnectionEvent::Closed(_, rest) = event {
                    let ends = connection.tcb.ends();
                    demux.connections.remove(ends, id.index);
                    timers.remove(id.index);
                    if let Some(rest) = rest {
                        time_waits.insert(rest);
                    }
                }
            }
            set_timer(timers, id.index, &connection.tcb, config);
            if let Some(shared) = queues.receive.shared()
                && !queues.receive.is_waiting
                && connection.tcb.is_short_of_memory()
                && let Ok(shared) = resources.shared_receives.get_mut(shared)
            {
                queues.receive.is_waiting = true;
                shared.wait(id);
            }
        }
        Some(pair)
    }

    /// Room was posted to a queue that is shared: those who were kept short may offer more
    /// than they did. Returns who they are.
    pub(super) fn offer_shared(&mut self, shared: &mut SharedReceives) -> Vec<QueuePairId> {
        let mut short = shared.take_short();
        short.retain(|id| {
            let pair = self.table.named_mut(id.index, id.generation);
            match pair.and_then(QueuePair::connection_mut) {
                Some((connection, queues)) => {
                    connection.tcb.handle_posted_receive(queues);
                    // What is still too little waits for more.
                    queues.receive.is_waiting = connection.tcb.is_short_of_memory();
                    if queues.receive.is_waiting {
                        shared.wait(*id);
                    }
                    true
                }
                // It is gone.
                None => false,
            }
        });
        short
    }

    /// Nothing of a queue pair is left.
    pub(super) fn remove(&mut self, resources: &mut Resources, id: QueuePairId) {
        self.timers.remove(id.index);
        let Some(pair) = self.table.remove(id.index) else {
            debug_assert!(false, "a queue pair is removed once");
            return;
        };
        if let Some(connection) = pair.connection()
            && !connection.tcb.is_closed()
        {
            let ends = connection.tcb.ends();
            self.demux.connections.remove(ends, id.index);
        }
        resources.leave(&pair);
    }
}

/// What the user is told.
fn event_of(queue_pair: QueuePairId, connection: &Connection, event: &ConnectionEvent) -> Event {
    let (local, remote) = connection.tcb.ends.addresses();
    match (event, connection.listener) {
        (ConnectionEvent::Connected, None) => Event::Connected { queue_pair, local, remote },
        (ConnectionEvent::Connected, Some(listener)) => {
            Event::Accepted { listener, queue_pair, local, remote }
        }
        (ConnectionEvent::PeerFinished, _) => Event::PeerFinished { queue_pair },
        (ConnectionEvent::Closed(reason, _), _) => Event::Closed { queue_pair, reason: *reason },
    }
}

/// Sees to it that the timer of a queue pair is not later than it wants. It
/// may be earlier: then nothing is found to do, once.
#[inline]
fn set_timer(timers: &mut IndexedHeap<Instant>, slot: u32, tcb: &Tcb, config: &TcpConfig) {
    if let Some(wanted) = tcb.poll_timeout(config) {
        let is_early = timers.key_of(slot).is_some_and(|at| at <= wanted);
        if !is_early {
            timers.set(slot, wanted);
        }
    }
}
