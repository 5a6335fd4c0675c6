//! Commands of the management that give a queue pair somebody to talk to:
//! connecting, listening, binding.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::Instant;

use super::Adapter;
use super::demux::{Ends, Listener, any_of, bound_ends, plain};
use super::error::{Error, Object};
use super::event::ConnectionStats;
use super::interface::is_remote;
use super::links::Route;
use super::queue_pair::{Connection, Phase, QueuePair, Role};
use crate::tcp::{Mapping, Tcb, TcpConfig};
use crate::wire::{checksum, protocol};
use crate::work::{ListenerId, QueuePairId};

/// Ports for those who do not care which (RFC 6335).
const FIRST_EPHEMERAL: u16 = 49_152;
const EPHEMERAL: u16 = u16::MAX - FIRST_EPHEMERAL + 1;

impl Adapter {
    /// Asks for a connection; [`Event::Connected`](super::Event::Connected) or
    /// [`Event::Closed`](super::Event::Closed) says what became of it. Without a
    /// local address, or with port 0, any that fits is taken.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotIdle`],
    /// [`Error::BadAddress`], [`Error::NotOurs`], [`Error::NoRoute`],
    /// [`Error::Taken`], [`Error::NoPort`].
    pub fn connect(
        &mut self,
        now: Instant,
        id: QueuePairId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        let mapping = self.idle_stream(id)?;
        let remote = plain(remote);
        if remote.port() == 0 || !is_remote(remote.ip()) {
            return Err(Error::BadAddress(remote));
        }
        let from = local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        if let Some(from) = from.filter(|from| !self.links.has(*from)) {
            return Err(Error::NotOurs(from));
        }
        let route = self.links.route(from, remote.ip()).ok_or(Error::NoRoute(remote.ip()))?;
        let port = local.map_or(0, |local| local.port());
        let local = match port {
            0 => self.free_port(route.source, |known, local| known.is_free((local, remote)))?,
            port => {
                let local = SocketAddr::new(route.source, port);
                if !self.is_free((local, remote)) {
                    return Err(Error::Taken(local));
                }
                local
            }
        };
        let mss = self.links.largest_segment(&route, mapping);
        let ends = (local, remote);
        let config = self
            .known(id)
            .map_or(&self.context.config.tcp, |pair| pair.tcp_config(&self.context.config.tcp));
        let tcb = Tcb::connect(now, config, &self.secret, ends, mapping, mss);
        self.open(id, tcb, &route, None);
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
    /// [`Error::Unknown`], [`Error::WrongService`].
    pub fn set_tcp(&mut self, id: QueuePairId, config: TcpConfig) -> Result<(), Error> {
        let pair = self.known_mut(id).ok_or(Error::Unknown(Object::QueuePair))?;
        let Role::Stream(stream) = &mut pair.role else { return Err(Error::WrongService) };
        stream.config = Some(Box::new(config.in_range()));
        self.mark_ready(id);
        self.settle(id);
        Ok(())
    }

    /// What is chosen about the connection of this queue pair.
    #[must_use]
    pub fn tcp(&self, id: QueuePairId) -> Option<&TcpConfig> {
        Some(self.known(id)?.tcp_config(&self.context.config.tcp))
    }

    /// Gives an idle queue pair its connection.
    pub(super) fn open(
        &mut self,
        id: QueuePairId,
        tcb: Tcb,
        route: &Route,
        listener: Option<ListenerId>,
    ) {
        let ends @ (local, remote) = (tcb.local, tcb.remote);
        // RFC 6437, 3: hard to guess, and different for each connection.
        let label = (self.secret.hash(local, remote) >> 40) as u32 & 0xf_ffff;
        let label = label.max(1);
        let Some(pair) = self.known_mut(id) else { return };
        let Role::Stream(stream) = &mut pair.role else { return };
        stream.phase = Phase::Open(Box::new(Connection {
            tcb,
            link: route.link,
            next_hop: route.next_hop,
            addresses: checksum::pseudo_header(local.ip(), remote.ip(), protocol::TCP),
            label,
            listener,
        }));
        self.demux.connections.insert(ends, id.index);
    }

    /// The queue pair is one for TCP, and idle.
    fn idle_stream(&self, id: QueuePairId) -> Result<Mapping, Error> {
        let pair = self.known(id).ok_or(Error::Unknown(Object::QueuePair))?;
        match &pair.role {
            Role::Datagrams(_) => Err(Error::WrongService),
            Role::Stream(stream) if matches!(stream.phase, Phase::Idle) => Ok(stream.mapping),
            Role::Stream(_) => Err(Error::NotIdle),
        }
    }

    /// Has nothing these two ends?
    fn is_free(&self, ends: Ends) -> bool {
        self.connection_of(ends).is_none()
            && self.openings.find(ends).is_none()
            && self.time_waits.find(ends).is_none()
            && !self.listening.contains_key(&(ends.0.port(), ends.0.ip()))
            && !self.listening.contains_key(&(ends.0.port(), any_of(ends.0.ip())))
    }

    /// Any port of this address that is free (RFC 6056, algorithm 1).
    fn free_port(
        &mut self,
        address: IpAddr,
        is_free: impl Fn(&Self, SocketAddr) -> bool,
    ) -> Result<SocketAddr, Error> {
        let start = self.context.random.below(u64::from(EPHEMERAL)) as u16;
        (0..EPHEMERAL)
            .map(|n| FIRST_EPHEMERAL + (start + n) % EPHEMERAL)
            .map(|port| SocketAddr::new(address, port))
            .find(|local| is_free(self, *local))
            .ok_or(Error::NoPort)
    }

    /// The connection of these two ends.
    #[inline]
    pub(super) fn connection_of(&self, ends: Ends) -> Option<QueuePairId> {
        let index = self.demux.connections.find(ends, |index| {
            let connection = self.pairs.get(index).and_then(QueuePair::connection);
            connection.is_some_and(|known| (known.tcb.local, known.tcb.remote) == ends)
        })?;
        self.pairs.get(index).map(|pair| pair.id)
    }

    /// Listens on a port of one of our addresses, or of all of one version of IP.
    ///
    /// # Errors
    /// [`Error::BadAddress`] for port 0, [`Error::NotOurs`], [`Error::Taken`],
    /// [`Error::Full`].
    pub fn listen(&mut self, local: SocketAddr) -> Result<ListenerId, Error> {
        let local = plain(local);
        if local.port() == 0 {
            return Err(Error::BadAddress(local));
        }
        if !local.ip().is_unspecified() && !self.links.has(local.ip()) {
            return Err(Error::NotOurs(local.ip()));
        }
        let key = (local.port(), local.ip());
        if self.listening.contains_key(&key) {
            return Err(Error::Taken(local));
        }
        let listener = Listener { local, offers: VecDeque::new(), proved: VecDeque::new() };
        let name = self.listeners.insert(listener).ok_or(Error::Full(Object::Listener))?;
        let id = ListenerId::new(name.0, name.1);
        self.listening.insert(key, id);
        Ok(id)
    }

    /// Ends a listener. Queue pairs that waited there are idle again; openings
    /// that were not proved are forgotten.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn stop_listening(&mut self, id: ListenerId) -> Result<(), Error> {
        let known = self.listeners.named(id.index, id.generation);
        known.ok_or(Error::Unknown(Object::Listener))?;
        let Some(listener) = self.listeners.remove(id.index) else { return Ok(()) };
        self.listening.remove(&(listener.local.port(), listener.local.ip()));
        self.openings.forget(id);
        for pair in listener.offers {
            self.make_idle(pair);
        }
        Ok(())
    }

    /// An idle queue pair waits at a listener, to be mated with a connection.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotIdle`],
    /// [`Error::Full`].
    pub fn offer(&mut self, listener: ListenerId, id: QueuePairId) -> Result<(), Error> {
        self.idle_stream(id)?;
        let most = self.context.config.offers;
        let known = self.listeners.named_mut(listener.index, listener.generation);
        let known = known.ok_or(Error::Unknown(Object::Listener))?;
        if known.offers.len() >= most {
            return Err(Error::Full(Object::QueuePair));
        }
        known.offers.push_back(id);
        let is_awaited = !known.proved.is_empty();
        if let Some(Role::Stream(stream)) = self.known_mut(id).map(|pair| &mut pair.role) {
            stream.phase = Phase::Offered(listener);
        }
        if is_awaited && !self.awaited.contains(&listener) {
            self.awaited.push(listener);
        }
        Ok(())
    }

    /// An offer is withdrawn.
    pub(super) fn withdraw(&mut self, listener: ListenerId, id: QueuePairId) {
        if let Some(known) = self.listeners.named_mut(listener.index, listener.generation) {
            known.offers.retain(|offer| *offer != id);
        }
    }

    fn make_idle(&mut self, id: QueuePairId) {
        if let Some(Role::Stream(stream)) = self.known_mut(id).map(|pair| &mut pair.role) {
            stream.phase = Phase::Idle;
        }
    }

    /// Binds a queue pair for datagrams to a port of one of our addresses, or of
    /// all of one version of IP. Port 0 takes any that is free. Gives what it is
    /// bound to.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::WrongService`], [`Error::NotIdle`],
    /// [`Error::NotOurs`], [`Error::Taken`], [`Error::NoPort`].
    pub fn bind(&mut self, id: QueuePairId, local: SocketAddr) -> Result<SocketAddr, Error> {
        let pair = self.known(id).ok_or(Error::Unknown(Object::QueuePair))?;
        match &pair.role {
            Role::Stream(_) => return Err(Error::WrongService),
            Role::Datagrams(datagrams) if datagrams.local.is_some() => return Err(Error::NotIdle),
            Role::Datagrams(_) => {}
        }
        if !local.ip().is_unspecified() && !self.links.has(local.ip()) {
            return Err(Error::NotOurs(local.ip()));
        }
        let local = match local.port() {
            0 => self.free_port(local.ip(), |known, local| known.bound_at(local).is_none())?,
            _ => plain(local),
        };
        if self.bound_at(local).is_some() {
            return Err(Error::Taken(local));
        }
        let has_rival = self.note_rivals(local);
        if let Some(datagrams) = self.known_mut(id).and_then(QueuePair::datagrams_mut) {
            (datagrams.local, datagrams.has_rival) = (Some(local), has_rival);
        }
        self.demux.bound.insert(bound_ends(local), id.index);
        self.predict(id);
        Ok(local)
    }

    /// Tells those that are bound to this port of other addresses that one more is.
    /// Says whether there are any.
    fn note_rivals(&mut self, local: SocketAddr) -> bool {
        let mut has_rival = false;
        if !self.context.config.delegates {
            return has_rival;
        }
        let all: Vec<u32> = self.pairs.indices().collect();
        for index in all {
            let datagrams = self.pairs.get_mut(index).and_then(QueuePair::datagrams_mut);
            let known = datagrams.filter(|known| {
                known.local.is_some_and(|other| {
                    other.port() == local.port() && other.is_ipv4() == local.is_ipv4()
                })
            });
            if let Some(known) = known {
                (known.has_rival, has_rival) = (true, true);
                self.delegation.touch(index);
            }
        }
        has_rival
    }

    /// The queue pair that is bound to exactly this.
    pub(super) fn bound_at(&self, local: SocketAddr) -> Option<QueuePairId> {
        let is_meant = |index| match self.pairs.get(index).map(|pair| &pair.role) {
            Some(Role::Datagrams(datagrams)) => datagrams.local == Some(local),
            _ => false,
        };
        let index = self.demux.bound.find(bound_ends(local), is_meant)?;
        self.pairs.get(index).map(|pair| pair.id)
    }

    /// What a queue pair is connected or bound to on this side.
    #[must_use]
    pub fn local_address(&self, id: QueuePairId) -> Option<SocketAddr> {
        let pair = self.known(id)?;
        match &pair.role {
            Role::Stream(_) => pair.connection().map(|connection| connection.tcb.local),
            Role::Datagrams(datagrams) => datagrams.local,
        }
    }

    /// Who is at the other end of a queue pair's connection.
    #[must_use]
    pub fn remote_address(&self, id: QueuePairId) -> Option<SocketAddr> {
        self.known(id)?.connection().map(|connection| connection.tcb.remote)
    }

    /// How the connection of a queue pair is doing.
    #[must_use]
    pub fn connection_stats(&self, id: QueuePairId) -> Option<ConnectionStats> {
        let tcb = &self.known(id)?.connection()?.tcb;
        let (segments_again, timeouts) = tcb.sender().repetitions();
        let counts = tcb.receive_counts();
        Some(ConnectionStats {
            state: tcb.state(),
            round_trip: tcb.sender().round_trip(),
            congestion_window: tcb.sender().congestion_window(),
            segments_again,
            timeouts,
            bytes_without_memory: counts.no_memory,
            bytes_forgotten: counts.forgotten,
        })
    }
}
