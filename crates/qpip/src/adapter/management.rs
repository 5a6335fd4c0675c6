//! The management state machine: commands that make and end things.

use core::net::IpAddr;

use landfall_placement::{Area, Instant, PathId, PathState, Timeout};

use super::Adapter;
use super::domain::Access;
use super::error::{Error, Object};
use super::interface::Interface;
use super::queue_pair::{Phase, QueuePair, QueuePairSetup, Role};
use crate::tcp::tcb::CloseReason;
use crate::work::{CompletionQueueId, DomainId, MemoryKey, QueuePairId, Status};

impl Adapter {
    /// Puts a station on the Ethernet of a path, which may come up later. What
    /// was there before is replaced; connections through it end by themselves.
    ///
    /// # Errors
    /// [`Error::BadInterface`]; [`Error::Taken`] where another interface has one
    /// of the addresses; [`Error::Full`].
    pub fn add_interface(&mut self, path: PathId, interface: Interface) -> Result<(), Error> {
        let index = self.links.add_interface(path, interface, &self.context.config)?;
        self.predict_nothing(index);
        Ok(())
    }

    /// The addresses of all interfaces.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let interfaces = self.links.iter().filter_map(|link| link.interface.as_ref());
        interfaces.flat_map(|interface| interface.addresses.iter().map(|(address, _)| *address))
    }

    pub(super) fn change_path(&mut self, now: Instant, path: PathId, state: PathState) {
        // Beyond the limit of interfaces, a path is nobody's.
        let most = self.context.config.interfaces;
        let Some(change) = self.links.change_path(path, state, most) else { return };
        if let Some(leaving) = change.abandoned {
            self.abandon(&leaving);
        }
        let woken = core::mem::take(&mut self.links[change.link].parked);
        self.wake(now, change.link, woken);
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn create_domain(&mut self) -> Result<DomainId, Error> {
        self.domains.create()
    }

    /// Ends a domain that nothing belongs to.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while memory is registered or a queue
    /// pair exists in it.
    pub fn destroy_domain(&mut self, domain: DomainId) -> Result<(), Error> {
        self.domains.destroy(domain)
    }

    /// Registers memory, so that work requests of the domain may name it.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::BadMemory`], [`Error::Full`].
    pub fn register(
        &mut self,
        domain: DomainId,
        memory: Area,
        access: Access,
    ) -> Result<MemoryKey, Error> {
        self.domains.register(domain, memory, access)
    }

    /// Ends a registration and gives the memory back.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while work requests use it: they are
    /// done when their completions are there.
    pub fn deregister(&mut self, key: MemoryKey) -> Result<Area, Error> {
        self.domains.deregister(key)
    }

    /// Makes a completion queue with room for so many completions: as many as
    /// requests can be under way that complete there.
    ///
    /// # Errors
    /// [`Error::BadDepth`], [`Error::Full`].
    pub fn create_completion_queue(&mut self, capacity: u32) -> Result<CompletionQueueId, Error> {
        self.completion_queues.create(capacity)
    }

    /// Ends a completion queue, and with it what nobody polled.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while a queue pair completes there.
    pub fn destroy_completion_queue(&mut self, queue: CompletionQueueId) -> Result<(), Error> {
        self.completion_queues.destroy(queue)
    }

    /// Makes a queue pair. It is idle: receives can be posted, and it can be
    /// connected, offered to a listener, or, for datagrams, bound.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::BadDepth`]; [`Error::Full`], also where a
    /// byte stream finds no place for the part of a request that it may report,
    /// or where as many events wait to be polled as may.
    pub fn create_queue_pair(&mut self, setup: &QueuePairSetup) -> Result<QueuePairId, Error> {
        self.domains.check(setup.domain)?;
        self.completion_queues.check(setup.send_completions)?;
        self.completion_queues.check(setup.receive_completions)?;
        let depths = 1..=self.context.config.queue_depth;
        if !depths.contains(&setup.send_depth) || !depths.contains(&setup.receive_depth) {
            return Err(Error::BadDepth);
        }
        if self.context.events.is_full() {
            return Err(Error::Full(Object::Event));
        }
        let (index, generation) = self.pairs.next().ok_or(Error::Full(Object::QueuePair))?;
        let id = QueuePairId::new(index, generation);
        let pair = QueuePair::new(id, setup);
        if pair.completes_parts() && !self.completion_queues.reserve(setup.receive_completions) {
            return Err(Error::Full(Object::CompletionQueue));
        }
        self.pairs.insert(pair);
        self.domains.join(setup.domain);
        self.completion_queues.join(setup.send_completions);
        self.completion_queues.join(setup.receive_completions);
        Ok(id)
    }

    /// Ends a queue pair. Its connection is reset; what is posted completes as
    /// flushed, but for memory that a driver holds, only once it does no more.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn destroy_queue_pair(&mut self, now: Instant, id: QueuePairId) -> Result<(), Error> {
        self.known(id).ok_or(Error::Unknown(Object::QueuePair))?;
        self.give_up(now, id, CloseReason::Aborted);
        let Some(pair) = self.pairs.named_mut(id.index, id.generation) else { return Ok(()) };
        pair.is_destroyed = true;
        match &mut pair.role {
            Role::Stream(stream) => {
                stream.queues.flush(Status::Flushed);
                if let Phase::Offered(listener) = stream.phase {
                    stream.phase = Phase::Idle;
                    self.withdraw(listener, id);
                }
            }
            Role::Datagrams(datagrams) => {
                datagrams.flush();
                if let Some(local) = datagrams.local.take() {
                    self.demux.bound.remove(super::demux::bound_ends(local), id.index);
                }
            }
        }
        self.settle(id);
        Ok(())
    }

    /// Resets the connection of a queue pair, and flushes what is posted.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotConnected`].
    pub fn abort(&mut self, now: Instant, id: QueuePairId) -> Result<(), Error> {
        self.connected(id)?;
        self.give_up(now, id, CloseReason::Aborted);
        self.settle(id);
        Ok(())
    }

    /// Says behind what is posted that nothing more will be sent. What the other
    /// side still sends is received.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotConnected`].
    pub fn shutdown(&mut self, _now: Instant, id: QueuePairId) -> Result<(), Error> {
        self.connected(id)?;
        if let Some((connection, _)) = self.known_mut(id).and_then(QueuePair::connection_mut) {
            connection.tcb.shutdown();
        }
        self.mark_ready(id);
        self.settle(id);
        Ok(())
    }

    /// Is it a queue pair with a connection?
    fn connected(&self, id: QueuePairId) -> Result<(), Error> {
        let pair = self.known(id).ok_or(Error::Unknown(Object::QueuePair))?;
        match &pair.role {
            Role::Datagrams(_) => Err(Error::WrongService),
            Role::Stream(_) if pair.connection().is_none() => Err(Error::NotConnected),
            Role::Stream(_) => Ok(()),
        }
    }

    /// Resets a connection, if the queue pair has one that is alive.
    pub(super) fn give_up(&mut self, now: Instant, id: QueuePairId, reason: CloseReason) {
        let pair = self.pairs.named_mut(id.index, id.generation);
        let Some((connection, queues)) = pair.and_then(QueuePair::connection_mut) else { return };
        if connection.tcb.is_closed() {
            return;
        }
        if let Some(draft) = connection.tcb.abort(now, reason, queues) {
            self.say_draft(now, id, &draft);
        }
    }
}

// Time passed.

/// How many timers fire in one call; the rest in the next, which is due at once.
const BUDGET: usize = 256;

impl Adapter {
    pub(super) fn next_timer(&self) -> Option<Timeout> {
        let neighbours = self.links.iter().filter(|link| link.station().is_some());
        // Somebody was offered to a connection that waits: at once.
        let awaited = (!self.awaited.is_empty()).then_some(Instant::ZERO);
        let timers = [
            (awaited, "TCP accept"),
            (self.pair_timers.first().map(|(at, _)| at), "TCP"),
            (self.openings.next_timer(), "TCP opening"),
            (self.time_waits.next_timer(), "TCP TIME-WAIT"),
            (neighbours.filter_map(|link| link.neighbours.poll_timeout()).min(), "neighbour"),
            (self.pieces.next_timer(), "reassembly"),
        ];
        let set = timers.into_iter().filter_map(|(at, timer)| Some(Timeout { at: at?, timer }));
        set.min_by_key(|timeout| timeout.at)
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        while let Some(listener) = self.awaited.pop() {
            self.mate_awaited(now, listener);
        }
        self.time_waits.expire(now);
        self.pieces.expire(now);
        for link in 0..self.links.len() {
            if self.links[link].station().is_some() {
                self.ask_neighbours(now, link);
            }
        }
        for _ in 0..BUDGET {
            if let Some((_, index)) = self.pair_timers.pop_up_to(now) {
                self.time_out_pair(now, index);
            } else if let Some(index) = self.openings.due(now) {
                self.time_out_opening(now, index);
            } else {
                return;
            }
        }
    }

    fn time_out_pair(&mut self, now: Instant, index: u32) {
        let id = QueuePairId::new(index, self.pairs.generation(index));
        let pair = self.pairs.get_mut(index);
        let configured = pair.and_then(|pair| pair.configured_mut(&self.context.config.tcp));
        let Some((connection, queues, config)) = configured else { return };
        let due = connection.tcb.poll_timeout(config);
        if due.is_some_and(|timeout| timeout.at <= now) {
            let reset = connection.tcb.handle_timeout(now, config, queues);
            if let Some(draft) = reset {
                self.say_draft(now, id, &draft);
            }
            self.mark_ready(id);
        }
        self.settle(id);
    }

    fn time_out_opening(&mut self, now: Instant, index: u32) {
        let Some(opening) = self.openings.get_mut(index) else { return };
        if opening.half.handle_timeout(now, &self.context.config.tcp) {
            self.answer_opening(now, index);
            self.openings.set_timer(index);
        } else {
            self.openings.remove(index);
        }
    }
}
