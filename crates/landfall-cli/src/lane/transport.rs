//! How the two ends of a path are opened.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use landfall_placement::{PathId, Peer, Seed};
use landfall_testbed::rivals::Side;
use landfall_transport::Driver;
use landfall_transport::channel::{ChannelConfig, ChannelDriver, channel};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::Regions;
use landfall_transport::udp::{UdpConfig, UdpDriver};

/// Every path of this program has this number: each engine has one path.
pub(crate) const PATH: PathId = PathId(0);

/// Which end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Where messages come from, or who asks.
    Send,
    /// Where they go, or who answers.
    Receive,
}

/// Opens the ends of a path.
pub(crate) trait Transport: Sync {
    /// What moves the units.
    type Driver: Driver;

    /// Opens one end, on the thread that will drive it and in its namespace.
    /// Gives the driver, and the name by which the other end reaches it.
    fn open(&self, role: Role, side: &Side, regions: &Regions) -> Result<(Self::Driver, Peer)>;
}

/// UDP, for links of this MTU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Udp {
    pub(crate) mtu: u32,
}

impl Transport for Udp {
    type Driver = UdpDriver;

    fn open(&self, _role: Role, side: &Side, regions: &Regions) -> Result<(UdpDriver, Peer)> {
        let config = UdpConfig::new(SocketAddr::new(side.address, 0), self.mtu);
        let driver = UdpDriver::open(PATH, config, regions)
            .with_context(|| format!("cannot open a UDP path at {}", side.address))?;
        let peer = driver.local_address().into();
        Ok((driver, peer))
    }
}

/// Within this process.
#[derive(Debug)]
pub(crate) struct Channel {
    ends: Mutex<[Option<ChannelDriver>; 2]>,
}

impl Channel {
    /// A channel between engines that use these regions.
    pub(crate) fn new(send: &Regions, receive: &Regions) -> io::Result<Self> {
        let (one, two) = channel(ChannelConfig::default(), (PATH, send), (PATH, receive))?;
        Ok(Self { ends: Mutex::new([Some(one), Some(two)]) })
    }
}

impl Transport for Channel {
    type Driver = ChannelDriver;

    fn open(&self, role: Role, _side: &Side, _regions: &Regions) -> Result<(ChannelDriver, Peer)> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends[role as usize].take().context("this end of the channel is in use")?;
        Ok((end, Peer::Node(role as u32)))
    }
}

/// Another transport, on which things go wrong in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithFaults<T> {
    pub(crate) inner: T,
    pub(crate) faults: Faults,
    pub(crate) seed: Seed,
}

impl<T: Transport> Transport for WithFaults<T> {
    type Driver = Faulty<T::Driver>;

    fn open(&self, role: Role, side: &Side, regions: &Regions) -> Result<(Self::Driver, Peer)> {
        let (driver, peer) = self.inner.open(role, side, regions)?;
        let mut seed = self.seed;
        seed[0] ^= role as u8; // each direction has its own bad luck
        let faulty = Faulty::new(driver, self.faults, seed, regions)
            .context("cannot put faults around a path")?;
        Ok((faulty, peer))
    }
}
