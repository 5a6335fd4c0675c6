//! Whom a tunnel exchanges frames with, and which station is behind which peer: learned
//! from what comes, bounded.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use landfall_placement::Instant;

use super::{FORGOTTEN_AFTER, SWEEP_EVERY, is_group};

/// There is no room for one more peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tunnel has {most} peers at most: raise TunnelConfig::most_peers, or remove one")]
pub struct TooManyPeers {
    /// The bound.
    pub most: usize,
}

impl From<TooManyPeers> for io::Error {
    fn from(error: TooManyPeers) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, error)
    }
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    address: SocketAddr,
    /// Learned peers are forgotten once they were silent for long.
    heard: Option<Instant>,
}

/// A bounded list of peers.
#[derive(Debug)]
pub(super) struct Peers {
    list: Vec<Peer>,
    most: usize,
    learns: bool,
    next_sweep: Instant,
    /// The one that sent last is likely to send next.
    last: usize,
    /// Some were forgotten, and nobody was told yet.
    forgot: bool,
}

impl Peers {
    pub(super) fn new(most: usize, learns: bool) -> Self {
        Self { list: Vec::new(), most, learns, next_sweep: Instant::ZERO, last: 0, forgot: false }
    }

    /// This one stays until it is removed.
    pub(super) fn add(&mut self, address: SocketAddr) -> Result<(), TooManyPeers> {
        let address = canonical(address);
        if let Some(known) = self.list.iter_mut().find(|peer| peer.address == address) {
            known.heard = None;
            return Ok(());
        }
        if self.list.len() >= self.most {
            return Err(TooManyPeers { most: self.most });
        }
        self.list.push(Peer { address, heard: None });
        Ok(())
    }

    /// Returns whether it was there.
    pub(super) fn remove(&mut self, address: SocketAddr) -> bool {
        let (before, address) = (self.list.len(), canonical(address));
        self.list.retain(|peer| peer.address != address);
        self.list.len() < before
    }

    /// Somebody sent something: is that a peer, from now on if not before?
    pub(super) fn admit(&mut self, now: Instant, from: SocketAddr) -> bool {
        let is_last = self.list.get(self.last).is_some_and(|peer| peer.address == from);
        if !is_last {
            let place = self.list.iter().position(|peer| peer.address == from);
            match place {
                Some(place) => self.last = place,
                None => return self.learns && self.learn(now, from),
            }
        }
        if let Some(heard) = &mut self.list[self.last].heard {
            *heard = now;
        }
        true
    }

    fn learn(&mut self, now: Instant, from: SocketAddr) -> bool {
        if self.list.len() >= self.most && now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            let is_silent = |at: Instant| now.since(at) >= FORGOTTEN_AFTER;
            let before = self.list.len();
            self.list.retain(|peer| !peer.heard.is_some_and(is_silent));
            self.forgot |= self.list.len() < before;
        }
        let has_room = self.list.len() < self.most;
        if has_room {
            self.list.push(Peer { address: from, heard: Some(now) });
        }
        has_room
    }

    /// Were some forgotten since this was asked last?
    pub(super) const fn take_forgot(&mut self) -> bool {
        std::mem::replace(&mut self.forgot, false)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = SocketAddr> {
        self.list.iter().map(|peer| peer.address)
    }
}

/// An address as the kernel tells it: IPv4 in IPv6 clothes is IPv4, and there
/// are no flow labels.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => {
            let mut v6 = v6;
            v6.set_flowinfo(0);
            v6.into()
        }
        other => (other.ip().to_canonical(), other.port()).into(),
    }
}

#[derive(Clone, Copy, Debug)]
struct StationEntry {
    peer: SocketAddr,
    at: Instant,
}

/// The table of a learning switch.
#[derive(Debug)]
pub(super) struct Stations {
    known: HashMap<[u8; 6], StationEntry>,
    most: usize,
    next_sweep: Instant,
}

impl Stations {
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most, next_sweep: Instant::ZERO }
    }

    /// A peer sent a frame of this station. Groups send nothing.
    pub(super) fn learn(&mut self, now: Instant, station: [u8; 6], peer: SocketAddr) {
        if is_group(station) {
            return;
        }
        if let Some(heard) = self.known.get_mut(&station) {
            *heard = StationEntry { peer, at: now };
            return;
        }
        if self.known.len() >= self.most && now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            self.known.retain(|_, heard| now.since(heard.at) < FORGOTTEN_AFTER);
        }
        if self.known.len() < self.most {
            self.known.insert(station, StationEntry { peer, at: now });
        }
    }

    /// Where a station is, as far as it is known.
    pub(super) fn find(&self, station: [u8; 6]) -> Option<SocketAddr> {
        self.known.get(&station).map(|heard| heard.peer)
    }

    /// Only who is behind such a peer is still there.
    pub(super) fn keep(&mut self, is_there: impl Fn(SocketAddr) -> bool) {
        self.known.retain(|_, heard| is_there(heard.peer));
    }
}

#[cfg(test)]
mod tests {
    use landfall_placement::Duration;

    use super::*;

    fn peer(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn strangers_are_no_peers_unless_they_are_learned() {
        let mut peers = Peers::new(2, false);
        peers.add(peer(1)).unwrap();
        assert!(peers.admit(Instant::ZERO, peer(1)) && !peers.admit(Instant::ZERO, peer(2)));
        peers.add(peer(2)).unwrap();
        assert!(peers.admit(Instant::ZERO, peer(2)));
        assert_eq!(peers.add(peer(3)), Err(TooManyPeers { most: 2 }));
        assert_eq!(peers.add(peer(2)), Ok(()), "it is one already");
        assert!(peers.remove(peer(1)) && !peers.remove(peer(1)));
        assert!(!peers.admit(Instant::ZERO, peer(1)));
    }

    #[test]
    fn invariant_5_learned_peers_make_room_once_they_are_silent() {
        let mut peers = Peers::new(3, true);
        peers.add(peer(1)).unwrap();
        assert!(peers.admit(Instant::ZERO, peer(2)) && peers.admit(Instant::ZERO, peer(3)));
        assert!(!peers.admit(Instant::ZERO, peer(4)), "no room");
        let later = Instant::ZERO + FORGOTTEN_AFTER;
        assert!(peers.admit(later, peer(3)));
        assert!(peers.admit(later, peer(4)));
        assert!(peers.all().eq([peer(1), peer(3), peer(4)]));
    }

    #[test]
    fn one_address_has_one_form() {
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:1".parse().unwrap();
        assert_eq!(canonical(mapped), peer(1));
        let mut peers = Peers::new(1, false);
        peers.add(mapped).unwrap();
        assert!(peers.admit(Instant::ZERO, peer(1)));
    }

    fn station(number: u32) -> [u8; 6] {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    #[test]
    fn a_station_is_where_it_was_heard_last() {
        let mut stations = Stations::new(4);
        assert_eq!(stations.find(station(1)), None);
        stations.learn(Instant::ZERO, station(1), peer(1));
        assert_eq!(stations.find(station(1)), Some(peer(1)));
        stations.learn(Instant::ZERO, station(1), peer(2));
        assert_eq!(stations.find(station(1)), Some(peer(2)));
        stations.keep(|other| other != peer(2));
        assert_eq!(stations.find(station(1)), None);
        stations.learn(Instant::ZERO, [1, 0, 0, 0, 0, 1], peer(1));
        assert_eq!(stations.find([1, 0, 0, 0, 0, 1]), None, "a group");
    }

    #[test]
    fn a_full_table_forgets_only_who_is_silent() {
        let mut stations = Stations::new(3);
        let mut now = Instant::ZERO;
        (0..3).for_each(|n| stations.learn(now, station(n), peer(1)));
        stations.learn(now, station(9), peer(1));
        assert_eq!(stations.find(station(9)), None, "no room");
        now += FORGOTTEN_AFTER;
        stations.learn(now, station(2), peer(1));
        stations.learn(now, station(9), peer(1));
        let known = [0, 1, 2, 9].map(|n| stations.find(station(n)).is_some());
        assert_eq!(known, [false, false, true, true]);
    }

    #[test]
    fn invariant_5_a_flood_of_stations_fills_the_table_and_no_more() {
        let mut stations = Stations::new(100);
        for n in 0..10_000 {
            let now = Instant::ZERO + Duration::from_millis(u64::from(n));
            stations.learn(now, station(n), peer(1));
            assert!(stations.known.len() <= 100);
        }
        assert_eq!(stations.find(station(0)), Some(peer(1)), "who was there stays");
    }
}
