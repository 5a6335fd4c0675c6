//! [`ConnectionTable`]: which connections there are, and which packets wait for one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use clan_dsm::HostId;

use super::outgoing::{HEADER, Outgoing};

/// The most packets that wait for one connection. The rest is dropped.
const HELD: usize = 64;

/// A packet that waits for a connection.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) header: [u8; HEADER],
    pub(super) packet: Vec<u8>,
}

/// The way out to one host.
pub(super) type OutgoingHandle = Arc<Mutex<Outgoing>>;

#[derive(Debug)]
enum Place {
    /// A connection is being made.
    Connecting(VecDeque<Held>),
    Open(OutgoingHandle),
}

/// What to do with a packet.
#[derive(Debug)]
pub(super) enum Route {
    /// Send it there.
    Open(OutgoingHandle),
    /// Hold it; the first one starts a connection.
    Connecting {
        /// This is the first.
        is_first: bool,
    },
}

/// What to do with a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectDecision {
    /// Accept it. An earlier connection to that host is over.
    Welcome,
    /// Refuse it: this side is connecting already, and has precedence.
    TheyWait,
}

/// Connections by host, and the packets that wait for one.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    ours: HostId,
    places: BTreeMap<HostId, Place>,
}

impl ConnectionTable {
    pub(super) const fn new(ours: HostId) -> Self {
        Self { ours, places: BTreeMap::new() }
    }

    /// How a host is reached. The first caller that finds no connection makes one.
    pub(super) fn route(&mut self, host: HostId) -> Route {
        match self.places.get(&host) {
            Some(Place::Open(outgoing)) => Route::Open(Arc::clone(outgoing)),
            Some(Place::Connecting(_)) => Route::Connecting { is_first: false },
            None => {
                self.places.insert(host, Place::Connecting(VecDeque::new()));
                Route::Connecting { is_first: true }
            }
        }
    }

    /// Keeps a packet until there is a connection; false: too many wait already.
    pub(super) fn hold(&mut self, host: HostId, held: Held) -> bool {
        match self.places.get_mut(&host) {
            Some(Place::Connecting(waiting)) if waiting.len() < HELD => {
                waiting.push_back(held);
                true
            }
            _ => false,
        }
    }

    /// Two that ask each other at the same time need one connection: that of the
    /// host with the lower number.
    pub(super) fn visit(&self, host: HostId) -> ConnectDecision {
        match self.places.get(&host) {
            Some(Place::Connecting(_)) if self.ours < host => ConnectDecision::TheyWait,
            _ => ConnectDecision::Welcome,
        }
    }

    /// A connection is there. Returns what waited for it.
    pub(super) fn open(&mut self, host: HostId, outgoing: &OutgoingHandle) -> VecDeque<Held> {
        match self.places.insert(host, Place::Open(Arc::clone(outgoing))) {
            Some(Place::Connecting(waiting)) => waiting,
            _ => VecDeque::new(),
        }
    }

    /// Connecting failed. Returns what waited for it, unless a connection has come
    /// about in another way.
    pub(super) fn give_up(&mut self, host: HostId) -> VecDeque<Held> {
        let places = &mut self.places;
        match places.get_mut(&host) {
            Some(Place::Connecting(waiting)) => {
                let waiting = std::mem::take(waiting);
                places.remove(&host);
                waiting
            }
            _ => VecDeque::new(),
        }
    }

    /// This connection is over, if it is still the one to that host.
    pub(super) fn close(&mut self, host: HostId, outgoing: &OutgoingHandle) {
        let places = &mut self.places;
        if matches!(places.get(&host), Some(Place::Open(open)) if Arc::ptr_eq(open, outgoing)) {
            places.remove(&host);
        }
    }

    /// Is a connection being made?
    pub(super) fn is_asking(&self, host: HostId) -> bool {
        matches!(self.places.get(&host), Some(Place::Connecting(_)))
    }

    /// Is this still the connection to that host?
    pub(super) fn is_current(&self, host: HostId, outgoing: &OutgoingHandle) -> bool {
        let places = &self.places;
        matches!(places.get(&host), Some(Place::Open(open)) if Arc::ptr_eq(open, outgoing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u16) -> HostId {
        HostId::new(number).unwrap()
    }

    fn packet(byte: u8) -> Held {
        Held { header: [0; HEADER], packet: vec![byte] }
    }

    #[test]
    fn the_first_packet_asks_and_the_others_wait_within_bounds() {
        let mut board = ConnectionTable::new(host(1));
        assert!(matches!(board.route(host(2)), Route::Connecting { is_first: true }));
        assert!(matches!(board.route(host(2)), Route::Connecting { is_first: false }));
        let held = (0..=HELD).filter(|nth| board.hold(host(2), packet(*nth as u8))).count();
        assert_eq!(held, HELD);
        let given_up = board.give_up(host(2));
        assert!(given_up.iter().map(|held| held.packet[0]).eq(0..HELD as u8));
        assert!(matches!(board.route(host(2)), Route::Connecting { is_first: true }));
    }

    #[test]
    fn of_two_that_ask_each_other_the_lower_one_is_answered() {
        let (mut low, mut high) = (ConnectionTable::new(host(1)), ConnectionTable::new(host(2)));
        assert_eq!(low.visit(host(2)), ConnectDecision::Welcome);
        low.route(host(2));
        high.route(host(1));
        assert_eq!(low.visit(host(2)), ConnectDecision::TheyWait);
        assert_eq!(high.visit(host(1)), ConnectDecision::Welcome);
    }
}
