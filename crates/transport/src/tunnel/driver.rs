//! [`TunnelDriver`]: a UDP driver whose units are frames.

use std::io;
use std::net::SocketAddr;

use landfall_placement::{Engine, Instant, PathId};

use super::layer::{Layer, State};
use super::peers::{Peers, TooManyPeers, canonical};
use super::stations::Stations;
use super::{ETHERNET_HEADER, TunnelConfig, TunnelCounts};
use crate::capability::Feature;
use crate::driver::{Descriptors, Driver, DriverState, Progress};
use crate::memory::Regions;
use crate::udp::{UdpConfig, UdpDriver};

/// Runs any engine over whole frames that cross inside of UDP datagrams.
#[derive(Debug)]
pub struct TunnelDriver {
    udp: UdpDriver,
    state: State,
}

impl TunnelDriver {
    /// Opens a socket, and reads and writes the regions of this table.
    ///
    /// # Errors
    /// The address cannot be bound, the process has no descriptor left, there
    /// are more peers than there may be ([`TooManyPeers`] inside), or no frame
    /// is as short as configured.
    pub fn open(path: PathId, config: &TunnelConfig, regions: &Regions) -> io::Result<Self> {
        let largest = UdpConfig::new(config.bind, u32::MAX).unit;
        if !(ETHERNET_HEADER as u32..=largest).contains(&config.frame) {
            let why = format!(
                "frames of {} bytes cannot be tunnelled: between {ETHERNET_HEADER} and {largest}",
                config.frame
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut peers = Peers::new(config.most_peers, config.learn_peers);
        config.peers.iter().try_for_each(|peer| peers.add(*peer))?;
        let udp = UdpConfig {
            unit: config.frame,
            batch: config.batch,
            socket_buffer: config.socket_buffer,
            ..UdpConfig::new(config.bind, config.frame)
        };
        let mut udp = UdpDriver::open_as("tunnel", path, udp, regions)?;
        let found = &mut udp.state_mut().capabilities;
        found.add(Feature::RawFrames);
        for feature in [Feature::TcpSegmentation, Feature::ChecksumOffload] {
            found.lack(feature, "no device looks into tunnelled frames; use tap or packet");
        }
        Ok(Self { udp, state: State::new(peers, Stations::new(config.most_stations)) })
    }

    /// Where peers reach this path.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.udp.local_address()
    }

    /// Exchanges frames with one more peer from now on.
    ///
    /// # Errors
    /// [`TooManyPeers`], if there is no room for one.
    pub fn add_peer(&mut self, peer: SocketAddr) -> Result<(), TooManyPeers> {
        self.state.peers.add(peer)
    }

    /// Exchanges frames with this peer no more. Gives whether it did.
    pub fn remove_peer(&mut self, peer: SocketAddr) -> bool {
        let peer = canonical(peer);
        self.state.stations.keep(|other| other != peer);
        self.state.peers.remove(peer)
    }

    /// Whom frames are exchanged with.
    pub fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.state.peers.all()
    }

    /// What was done besides what [`Driver::counters`] count.
    #[must_use]
    pub fn counts(&self) -> TunnelCounts {
        self.state.counts
    }
}

impl Driver for TunnelDriver {
    fn state(&self) -> &DriverState {
        self.udp.state()
    }

    fn state_mut(&mut self) -> &mut DriverState {
        self.udp.state_mut()
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.udp.turn(&mut Layer { engine, state: &mut self.state }, now)
    }

    fn is_blocked(&self) -> bool {
        self.udp.is_blocked()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.udp.descriptors()
    }
}
