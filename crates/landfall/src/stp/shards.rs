//! Several engines of one endpoint, each with a thread of its own: what they share of a path,
//! and which of them a connection belongs to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use landfall_placement::{PathId, Peer};
use landfall_transport::memory::Regions;
use landfall_transport::packet::PacketDriver;
use landfall_transport::udp::UdpConfig;
use landfall_transport::udp_packet::UdpPacketConfig;

use super::error::Error;
use super::path::Transport;
use super::state::Handle;
use crate::runtime::{SharedPath, SpreadBy};

/// The engines of an endpoint: one, or one for each of
/// [`Builder::threads`](super::Builder::threads). They share the registered memory, and where
/// connections come in.
#[derive(Debug)]
pub(super) struct Shards {
    /// At least one.
    handles: Vec<Arc<Handle>>,
    spread: Spread,
    /// How many connections went out, or were accepted: the next one's turn.
    turn: AtomicUsize,
}

/// By what peers are spread over several engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// The port and address that they send from, to a port that all engines share. Answers
    /// to it might come to any of them, so each engine connects from a port of its own.
    Sockets,
    /// Their station: all connections with it are one engine's, no matter who opens them.
    Stations,
}

/// Where each engine has a port of its own, that is its first path, and this the one where
/// connections come in.
const LISTENING: PathId = PathId(1);

impl Shards {
    pub(super) fn new(handles: Vec<Arc<Handle>>, spread: Spread) -> Self {
        debug_assert!(!handles.is_empty(), "an endpoint has an engine");
        Self { handles, spread, turn: AtomicUsize::new(0) }
    }

    pub(super) fn all(&self) -> &[Arc<Handle>] {
        &self.handles
    }

    /// The first of them.
    pub(super) fn first(&self) -> &Arc<Handle> {
        &self.handles[0]
    }

    /// All of them, beginning with another one each time.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = &Arc<Handle>> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.handles.len();
        self.handles.iter().cycle().skip(first).take(self.handles.len())
    }

    /// The engine for a connection to this peer.
    pub(super) fn for_peer(&self, peer: Peer) -> &Arc<Handle> {
        let nth = match (self.spread, peer) {
            (Spread::Stations, Peer::Ethernet(station)) => {
                PacketDriver::member_of(station, self.handles.len())
            }
            (Spread::Stations, _) => None,
            (Spread::Sockets, _) => {
                Some(self.turn.fetch_add(1, Ordering::Relaxed) % self.handles.len())
            }
        };
        &self.handles[nth.unwrap_or(0)]
    }

    /// Does each engine have a port of its own beside the one that all share?
    fn has_own_ports(&self) -> bool {
        self.handles.len() > 1 && self.spread == Spread::Sockets
    }

    /// Is this a path that users know of?
    pub(super) fn check_path(&self, path: PathId) -> Result<(), Error> {
        let is_hidden = self.has_own_ports() && path == LISTENING;
        if is_hidden { Err(Error::UnknownPath(path)) } else { Ok(()) }
    }

    /// Where peers come in that users know this path as.
    pub(super) fn listening(&self, path: PathId) -> PathId {
        if self.has_own_ports() && path == PathId(0) { LISTENING } else { path }
    }
}

/// By what peers of such a path are spread.
pub(super) const fn spread_of(shared: &SharedPath) -> Spread {
    match shared {
        SharedPath::Udp(_) | SharedPath::UdpPacket(_) => Spread::Sockets,
        SharedPath::Ethernet(_) => Spread::Stations,
    }
}

/// Opens a path for this many engines. Returns the paths of each.
///
/// # Errors
/// Those of the drivers.
pub(super) fn open(
    shared: &SharedPath,
    regions: &Regions,
    count: usize,
) -> io::Result<Vec<Vec<Transport>>> {
    let path = match spread_of(shared) {
        Spread::Sockets => LISTENING,
        Spread::Stations => PathId(0),
    };
    let group = shared.open(path, regions, (count, SpreadBy::Kernel))?;
    let paths = |member| {
        let own = own_port(shared).into_iter();
        own.chain([Transport::member(member)]).collect()
    };
    Ok(group.into_iter().map(paths).collect())
}

/// The path from which an engine connects.
fn own_port(shared: &SharedPath) -> Option<Transport> {
    match shared {
        SharedPath::Udp(config) => {
            Some(Transport::udp_with(UdpConfig { bind: any_port(config.bind), ..*config }))
        }
        SharedPath::UdpPacket(config) => {
            let udp = UdpConfig { bind: any_port(config.udp.bind), ..config.udp };
            Some(Transport::udp_packet_with(UdpPacketConfig { udp, ..config.clone() }))
        }
        SharedPath::Ethernet(_) => None,
    }
}

const fn any_port(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), 0)
}
