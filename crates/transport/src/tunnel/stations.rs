//! Which station is behind which peer: learned from what comes, bounded.

use std::collections::HashMap;
use std::net::SocketAddr;

use landfall_placement::Instant;

use super::{FORGOTTEN_AFTER, SWEEP_EVERY, is_group};

#[derive(Clone, Copy, Debug)]
struct Heard {
    peer: SocketAddr,
    at: Instant,
}

/// The table of a learning switch.
#[derive(Debug)]
pub(super) struct Stations {
    known: HashMap<[u8; 6], Heard>,
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
            *heard = Heard { peer, at: now };
            return;
        }
        if self.known.len() >= self.most && now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            self.known.retain(|_, heard| now.since(heard.at) < FORGOTTEN_AFTER);
        }
        if self.known.len() < self.most {
            self.known.insert(station, Heard { peer, at: now });
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
    use super::*;
    use landfall_placement::Duration;

    fn station(number: u32) -> [u8; 6] {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    fn peer(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
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
