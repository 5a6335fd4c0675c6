//! Which station a peer is behind, as the kernel knows it.

use std::collections::HashMap;
use std::net::IpAddr;

use landfall_inet::Mac;
use landfall_placement::{Duration, Instant};

use super::netlink::{Neighbour, Netlink};

/// What the kernel said is believed for so long.
const FRESH: Duration = Duration::from_secs(5);
/// Where it knew nothing it is asked again after so long; it resolves meanwhile.
const RETRY: Duration = Duration::from_millis(10);
/// This many peers are remembered. With more, all are asked for anew.
const MOST: usize = 4096;

/// The peers of a path, on one interface.
#[derive(Debug)]
pub(super) struct Neighbours {
    netlink: Netlink,
    interface: u32,
    local: IpAddr,
    known: HashMap<IpAddr, Known>,
}

/// What was found out of a peer.
#[derive(Clone, Copy, Debug)]
struct Known {
    station: Option<Mac>,
    ask_at: Instant,
}

impl Neighbours {
    pub(super) fn new(netlink: Netlink, interface: u32, local: IpAddr) -> Self {
        Self { netlink, interface, local, known: HashMap::new() }
    }

    /// The station to send to, for this peer. None: the next call to it is the kernel's,
    /// which resolves the address, or confirms that the neighbour is still there.
    pub(super) fn station_of(&mut self, peer: IpAddr, now: Instant) -> Option<Mac> {
        if let Some(known) = self.known.get(&peer).filter(|known| now < known.ask_at) {
            return known.station;
        }
        let found = self.ask(peer);
        let (station, wait) = match found {
            Some(neighbour) => (Some(neighbour.station), FRESH),
            None => (None, RETRY),
        };
        if self.known.len() >= MOST && !self.known.contains_key(&peer) {
            self.known.clear();
        }
        self.known.insert(peer, Known { station, ask_at: now + wait });
        found.filter(|neighbour| neighbour.is_confirmed).map(|neighbour| neighbour.station)
    }

    /// Asks the kernel. None where it knows no station, or where the route is none over
    /// this interface.
    fn ask(&mut self, peer: IpAddr) -> Option<Neighbour> {
        let link_local = matches!(peer, IpAddr::V6(peer) if peer.is_unicast_link_local());
        let interface = link_local.then_some(self.interface);
        let route = self.netlink.route(self.local, peer, interface)?;
        if route.interface != self.interface {
            return None;
        }
        self.netlink.neighbour(self.interface, route.gateway.unwrap_or(peer))
    }
}
