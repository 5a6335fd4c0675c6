//! [`Adapter`]: queue pairs over TCP and UDP, as the network interface of the
//! paper would run them.
//!
//! This file is what its user calls, `engine` what its driver calls, and `card` what the
//! driver of a card calls. All three only say which part does what, and in which order: a
//! part owns its state, is handed what it needs of others, and returns what happened.
//!
//! | state machine of the paper | file | what happens there |
//! | --- | --- | --- |
//! | management | `ports`, `listeners`, `openings` | the ends of a connection; connections until they have a queue pair |
//! | doorbell | `doorbell`, `membership` | work requests are checked and posted; groups are joined |
//! | transmit | `transmit`, `fragments` | whose turn it is; headers; packets that leave in pieces |
//! | receive | `placing`, `receive` | what came, and whose it is |
//!
//! | owner | file | what it owns |
//! | --- | --- | --- |
//! | `Links` | `links`, `host`, `hosting`, `interface`, `routes`, `vlan` | stations, neighbours and routes; what leaves without a queue pair |
//! | `QueuePairs` | `queue_pairs`, `demux`, `time_wait` | all of them, by every name; timers; connections that are over |
//! | `QueuePair` | `queue_pair`, `udp`, `connection` | its queues, and what happens to its connection |
//! | `Listeners` | `listeners`, `openings` | who listens, who is offered, and connections that are asked for |
//! | `Resources` | `resources`, `domain`, `completion_queue`, `shared_receives` | registered memory, what is done, and room that queue pairs share |
//! | `Pieces` | `receive/pieces` | fragments that came |
//! | `Placements`, `Transmissions` | `placements`, `transmit` | what drivers have in hand |
//! | `Seam` | `seam` | what is expected, and where that is said |
//! | `Context` | `context`, `config`, `event`, `error` | what was chosen, what is counted, what the user is told |
//!
//! What does not live here: TCP itself ([`tcp`](crate::tcp)), headers
//! ([`wire`](crate::wire)), what a host on IP remembers ([`ip`](crate::ip)).

mod card;
mod completion_queue;
mod config;
mod connection;
mod context;
mod demux;
mod domain;
mod doorbell;
mod engine;
mod error;
mod event;
mod fragments;
mod host;
mod hosting;
mod interface;
mod links;
mod listeners;
mod membership;
mod openings;
mod placements;
mod placing;
mod ports;
mod queue_pair;
mod queue_pairs;
mod receive;
mod resources;
mod routes;
mod seam;
mod shared_receives;
mod time_wait;
mod transmit;
mod udp;
mod vlan;

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::{Area, ConfigError, Instant, PathId, Random, Seed};

pub use completion_queue::Arm;
pub use config::Config;
pub use domain::Access;
pub use error::{Error, Object, PostError};
pub use event::{ConnectionStats, Event, Stats};
pub use interface::Interface;
pub use queue_pair::{QueuePairSetup, Service};
pub use shared_receives::SharedReceiveQueueSetup;

use crate::ip::reassembly;
use crate::tcp::tcb::CloseReason;
use crate::tcp::{Cookies, Secret, Tcb, TcpConfig};
use crate::work::{
    Completion, CompletionQueueId, DomainId, ListenerId, MemoryKey, QueuePairId, ReceiveWork,
    SendWork, SharedReceiveQueueId,
};
use context::Context;
use demux::{Demux, plain};
use links::Links;
use listeners::Listeners;
use openings::Openings;
use placements::{Arrivals, Placements};
use ports::PortChooser;
use queue_pair::{QueuePair, Role};
use queue_pairs::QueuePairs;
use receive::pieces::Pieces;
use resources::Resources;
use seam::Seam;
use time_wait::TimeWaits;
use transmit::Transmissions;

/// Queue pairs over TCP and UDP on any number of Ethernet interfaces.
///
/// It is a state machine without I/O. Commands and doorbells are methods and
/// return at once; a driver runs it as an [`Engine`](landfall_placement::Engine) whose
/// units are whole Ethernet frames; what is done is polled from completion queues, and
/// what else happened from [`poll_event`](landfall_placement::Engine::poll_event).
#[derive(Debug)]
pub struct Adapter {
    context: Context,
    links: Links,
    resources: Resources,
    pairs: QueuePairs,
    listeners: Listeners,
    pieces: Pieces,
    placements: Placements,
    transmissions: Transmissions,
    seam: Seam,
    /// What came as predicted for one of them and does not count yet.
    arrivals: Option<Arrivals>,
    /// Queue pairs that something came for since anybody looked.
    unsettled: Vec<QueuePairId>,
}

impl Adapter {
    /// An adapter without interfaces. The seed determines every number that
    /// strangers must not guess.
    ///
    /// # Errors
    /// A value of the configuration is out of its range.
    pub fn new(config: Config, seed: Seed) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut random = Random::new(seed);
        let secret = Secret::new(&mut random);
        let cookies = Cookies::new(&mut random);
        let demux = Demux::new(&mut random);
        let openings = Openings::new(config.half_open, &mut random);
        let time_waits = TimeWaits::new(config.time_wait, &mut random);
        Ok(Self {
            links: Links::new(&config, &mut random),
            resources: Resources::new(&config),
            pairs: QueuePairs::new(config.queue_pairs, demux, time_waits),
            listeners: Listeners::new(config.listeners, openings, cookies),
            pieces: Pieces::new(&config),
            placements: Placements::new(config.placements),
            transmissions: Transmissions::new(config.transmissions),
            seam: Seam::new(&config, &mut random),
            arrivals: None,
            unsettled: Vec::new(),
            context: Context::new(config, random, secret),
        })
    }

    /// The bounds, as they are in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.context.config
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// What became of fragments so far.
    #[must_use]
    pub const fn reassembly(&self) -> &reassembly::Counters {
        self.pieces.counters()
    }
}

// Management: interfaces, memory, completion queues.

impl Adapter {
    /// Puts a station on the Ethernet of a path, which may come up later. What
    /// was there before is replaced; connections through it end by themselves.
    ///
    /// # Errors
    /// [`Error::BadInterface`]; [`Error::Taken`] where another interface has one
    /// of the addresses; [`Error::Full`].
    pub fn add_interface(&mut self, path: PathId, interface: Interface) -> Result<(), Error> {
        let link = self.links.add_interface(path, interface, &mut self.context)?;
        self.seam.forget_station(link);
        Ok(())
    }

    /// The addresses of all interfaces.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let interfaces = self.links.iter().filter_map(|link| link.interface.as_ref());
        interfaces.flat_map(|interface| interface.addresses.iter().map(|own| own.ip))
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn create_domain(&mut self) -> Result<DomainId, Error> {
        self.resources.domains.create()
    }

    /// Ends a domain that nothing belongs to.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while memory is registered or a queue
    /// pair exists in it.
    pub fn destroy_domain(&mut self, domain: DomainId) -> Result<(), Error> {
        self.resources.domains.destroy(domain)
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
        self.resources.domains.register(domain, memory, access)
    }

    /// Ends a registration and gives the memory back.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while work requests use it: they are
    /// done when their completions are there.
    pub fn deregister(&mut self, key: MemoryKey) -> Result<Area, Error> {
        self.resources.domains.deregister(key)
    }

    /// Makes a completion queue with room for this many completions: as many as
    /// requests can be under way that complete there.
    ///
    /// # Errors
    /// [`Error::BadDepth`], [`Error::Full`].
    pub fn create_completion_queue(&mut self, capacity: u32) -> Result<CompletionQueueId, Error> {
        self.resources.completion_queues.create(capacity)
    }

    /// Ends a completion queue, and with it what nobody polled.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while a queue pair completes there.
    pub fn destroy_completion_queue(&mut self, queue: CompletionQueueId) -> Result<(), Error> {
        self.resources.completion_queues.destroy(queue)
    }

    /// Takes the next completion of a queue.
    #[inline]
    pub fn poll(&mut self, queue: CompletionQueueId) -> Option<Completion> {
        self.settle_all();
        let completion = self.resources.completion_queues.poll(queue)?;
        if !completion.ends_request {
            if self.pairs.handle_polled_part(completion.queue_pair) {
                self.settle(completion.queue_pair);
            } else {
                // Nobody will need the place that was kept for the next part.
                self.resources.completion_queues.give_up(queue);
            }
        }
        Some(completion)
    }

    /// Asks for one [`Event::CompletionsReady`] when there is something to poll.
    ///
    /// `false`: there is something already, and no event will come. A waiter
    /// polls until the queue is empty, arms, and sleeps only after `true`: so no
    /// completion is ever missed.
    pub fn arm(&mut self, queue: CompletionQueueId, arm: Arm) -> bool {
        self.settle_all();
        self.resources.completion_queues.arm(queue, arm)
    }

    /// How many completions wait to be polled.
    #[must_use]
    pub fn completions(&self, queue: CompletionQueueId) -> usize {
        self.resources.completion_queues.len(queue)
    }
}

// Management: queue pairs, and the room that they share.

impl Adapter {
    /// Makes a queue of room for what comes, that any number of queue pairs take from
    /// ([`QueuePairSetup::shared_receives`]).
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::BadDepth`], [`Error::Full`].
    pub fn create_shared_receive_queue(
        &mut self,
        setup: &SharedReceiveQueueSetup,
    ) -> Result<SharedReceiveQueueId, Error> {
        self.resources.create_shared_receives(setup, &self.context.config)
    }

    /// How many requests wait there to be taken.
    #[must_use]
    pub fn shared_receives(&self, id: SharedReceiveQueueId) -> usize {
        self.resources.shared_receives.get(id).map_or(0, |shared| shared.queue.len())
    }

    /// Ends such a queue. What nobody has taken is the user's again, without a completion.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::Busy`] while a queue pair takes from it.
    pub fn destroy_shared_receive_queue(&mut self, id: SharedReceiveQueueId) -> Result<(), Error> {
        self.resources.destroy_shared_receives(id)
    }

    /// Makes a queue pair. It is idle: receives can be posted, and it can be
    /// connected, offered to a listener, or, for datagrams, bound.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::BadDepth`]; [`Error::Full`], also where a
    /// byte stream finds no place for the part of a request that it may report,
    /// or where as many events wait to be polled as may.
    pub fn create_queue_pair(&mut self, setup: &QueuePairSetup) -> Result<QueuePairId, Error> {
        self.resources.check(setup, &self.context.config)?;
        if self.context.events.is_full() {
            return Err(Error::Full(Object::Event));
        }
        let id = self.pairs.next_id()?;
        let mut pair = QueuePair::new(id, setup);
        self.resources.join(&mut pair, setup.shared_receives)?;
        self.pairs.insert(pair);
        Ok(id)
    }

    /// Ends a queue pair. Its connection is reset; what is posted completes as
    /// flushed, but for memory that a driver holds, only once it does no more.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn destroy_queue_pair(&mut self, now: Instant, id: QueuePairId) -> Result<(), Error> {
        let pair = self.pairs.known_mut(id)?;
        pair.abort(now, &mut self.context, &mut self.links, CloseReason::Aborted);
        self.leave_groups(now, id, |_| true);
        if let Some(listener) = self.pairs.destroy(id) {
            self.listeners.withdraw(listener, id);
        }
        self.settle(id);
        Ok(())
    }

    /// Asks for a connection; [`Event::Connected`](super::Event::Connected) or
    /// [`Event::Closed`](super::Event::Closed) says what became of it. Without a
    /// local address, or with port 0, any that fits is taken.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotIdle`],
    /// [`Error::BadAddress`], [`Error::NotOurs`], [`Error::NoRoute`],
    /// [`Error::Taken`], [`Error::OfOtherShare`], [`Error::NoPort`].
    pub fn connect(
        &mut self,
        now: Instant,
        id: QueuePairId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        let mapping = self.pairs.idle_stream(id)?.mapping;
        let Self { context, links, pairs, listeners, .. } = self;
        let chooser = PortChooser { random: &mut context.random, share: context.config.share };
        let (ends, route) = ports::choose_ends(chooser, links, pairs, listeners, local, remote)?;
        let mss = links.largest_segment(&route, mapping);
        let config = pairs.known(id)?.tcp_config(&context.config.tcp);
        let mut tcb = Tcb::connect(now, config, &context.secret, ends, mapping, mss);
        if config.fast_open {
            tcb.open_fast(pairs.known_servers.find(ends.remote.ip()));
        }
        pairs.open(id, tcb, &route, None, &context.secret);
        self.mark_ready(id);
        self.settle(id);
        Ok(())
    }

    /// Chooses about the connection of this queue pair alone; all others have what the
    /// adapter's configuration says.
    ///
    /// Timers, keep-alive, limits and marks hold at once. Congestion control, options of
    /// the opening and the scale of the window hold for connections that are opened from
    /// now on; of a connection that comes in the options are the adapter's, for they
    /// are agreed on before anybody knows which queue pair it will have.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::Config`].
    pub fn set_tcp(&mut self, id: QueuePairId, config: TcpConfig) -> Result<(), Error> {
        self.pairs.set_tcp(id, config)?;
        self.mark_ready(id);
        self.settle(id);
        Ok(())
    }

    /// What is chosen about the connection of this queue pair.
    #[must_use]
    pub fn tcp(&self, id: QueuePairId) -> Option<&TcpConfig> {
        Some(self.pairs.known(id).ok()?.tcp_config(&self.context.config.tcp))
    }

    /// Resets the connection of a queue pair, and flushes what is posted.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotConnected`].
    pub fn abort(&mut self, now: Instant, id: QueuePairId) -> Result<(), Error> {
        self.pairs.check_connected(id)?;
        let pair = self.pairs.known_mut(id)?;
        pair.abort(now, &mut self.context, &mut self.links, CloseReason::Aborted);
        self.settle(id);
        Ok(())
    }

    /// Says behind what is posted that nothing more will be sent. What the other
    /// side still sends is received.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotConnected`].
    pub fn shutdown(&mut self, _now: Instant, id: QueuePairId) -> Result<(), Error> {
        self.pairs.check_connected(id)?;
        if let Some((connection, _)) = self.pairs.connection_mut(id) {
            connection.tcb.shutdown();
        }
        self.mark_ready(id);
        self.settle(id);
        Ok(())
    }

    /// Listens on a port of one of our addresses, or of all of one version of IP.
    ///
    /// # Errors
    /// [`Error::BadAddress`] for port 0, [`Error::NotOurs`], [`Error::Taken`],
    /// [`Error::Full`].
    pub fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, Error> {
        let local = plain(local);
        if local.port() == 0 || local.ip().is_multicast() {
            return Err(Error::BadAddress(local));
        }
        ports::check_local(&self.links, local)?;
        self.listeners.listen(local)
    }

    /// Ends a listener. Queue pairs that waited there are idle again; openings
    /// that were not proved are forgotten.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn stop_listening(&mut self, id: ListenerId) -> Result<(), Error> {
        for pair in self.listeners.remove(id)? {
            self.pairs.set_offered(pair, None);
        }
        Ok(())
    }

    /// An idle queue pair waits at a listener, to be assigned a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotIdle`],
    /// [`Error::Full`].
    pub fn offer(&mut self, listener: ListenerId, id: QueuePairId) -> Result<(), Error> {
        self.pairs.idle_stream(id)?;
        self.listeners.offer(listener, id, self.context.config.offers)?;
        self.pairs.set_offered(id, Some(listener));
        Ok(())
    }

    /// Binds a queue pair for datagrams to a port of one of our addresses, or of
    /// all of one version of IP. Port 0 takes any that is free. Returns what it is
    /// bound to.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotIdle`],
    /// [`Error::NotOurs`], [`Error::Taken`], [`Error::OfOtherShare`], [`Error::NoPort`].
    pub fn bind(&mut self, id: QueuePairId, local: SocketAddr) -> Result<SocketAddr, Error> {
        self.pairs.check_unbound(id)?;
        let Self { context, links, pairs, seam, .. } = self;
        let chooser = PortChooser { random: &mut context.random, share: context.config.share };
        let local = ports::choose_port(chooser, links, pairs, local)?;
        // Only a card has to be told of others at the same port.
        let rivals = if seam.is_card() { pairs.note_rivals(local) } else { Vec::new() };
        pairs.bind(id, local, !rivals.is_empty())?;
        for slot in rivals {
            seam.touch(slot);
        }
        self.predict(id);
        Ok(local)
    }

    /// What a queue pair is connected or bound to on this side.
    #[must_use]
    pub fn local_address(&self, id: QueuePairId) -> Option<SocketAddr> {
        let pair = self.pairs.known(id).ok()?;
        match &pair.role {
            Role::Stream(_) => pair.connection().map(|connection| connection.tcb.ends().local),
            Role::Datagrams(datagrams) => datagrams.local,
        }
    }

    /// Who is at the other end of a queue pair's connection.
    #[must_use]
    pub fn remote_address(&self, id: QueuePairId) -> Option<SocketAddr> {
        self.pairs.known(id).ok()?.connection().map(|connection| connection.tcb.ends().remote)
    }

    /// May messages of a queue pair be posted with a word
    /// ([`SendWork::immediate`])? Both ends have to be open and have agreed on that.
    #[must_use]
    pub fn takes_immediates(&self, id: QueuePairId) -> bool {
        self.pairs.known(id).is_ok_and(doorbell::takes_words)
    }

    /// How the connection of a queue pair is doing.
    #[must_use]
    pub fn connection_stats(&self, id: QueuePairId) -> Option<ConnectionStats> {
        let tcb = &self.pairs.known(id).ok()?.connection()?.tcb;
        let (segments_again, timeouts) = tcb.sender().repetitions();
        Some(ConnectionStats {
            state: tcb.state(),
            ecn: tcb.ecn_feedback(),
            round_trip: tcb.sender().round_trip(),
            congestion_window: tcb.sender().congestion_window(),
            segments_again,
            timeouts,
            reductions_undone: tcb.sender().undone(),
            bytes_without_memory: tcb.bytes_without_memory(),
            bytes_forgotten: tcb.bytes_forgotten(),
        })
    }
}

// Doorbell: work requests are posted.

impl Adapter {
    /// Posts a message to be sent. On TCP it may be posted before the connection
    /// is open, and leaves once it is.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_send(
        &mut self,
        _now: Instant,
        id: QueuePairId,
        work: &SendWork<'_>,
    ) -> Result<(), PostError> {
        let pair = self.pairs.known_mut(id).map_err(|_| PostError::UnknownQueuePair)?;
        doorbell::post_send(&self.links, &mut self.resources, pair, work)?;
        self.mark_ready(id);
        Ok(())
    }

    /// Posts room for what comes. On a byte stream requests are filled one after
    /// another; else each takes one message.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_receive(
        &mut self,
        _now: Instant,
        id: QueuePairId,
        work: &ReceiveWork<'_>,
    ) -> Result<(), PostError> {
        let pair = self.pairs.known_mut(id).map_err(|_| PostError::UnknownQueuePair)?;
        doorbell::post_receive(&mut self.resources, pair, work)?;
        // More memory opens the window, and somebody is to be told.
        if pair.connection().is_some() {
            self.mark_ready(id);
        }
        self.predict(id);
        Ok(())
    }

    /// Posts room for what comes to any queue pair that takes from this queue.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    pub fn post_shared_receive(
        &mut self,
        _now: Instant,
        id: SharedReceiveQueueId,
        work: &ReceiveWork<'_>,
    ) -> Result<(), PostError> {
        self.settle_all();
        let shared = self.resources.post_shared_receive(id, work)?;
        // More memory opens the windows of those who were kept short.
        for pair in self.pairs.offer_shared(shared) {
            self.mark_ready(pair);
        }
        Ok(())
    }
}
