//! How both sides of a run are set up: what is below STP, and what differs from what an
//! endpoint is by itself.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use landfall::stp::blocking::Endpoint;
use landfall::stp::{Builder, ChannelConfig, Config, Faults, Peer, Transport, Wait};
use landfall_placement::Seed;
use landfall_testbed::VethPair;
use landfall_testbed::rivals::{Plan, Polling, WorkerPlace};
use landfall_transport::packet::Interface;
use landfall_transport::rawip::RawIpConfig;
use landfall_transport::udp::UdpConfig;
use landfall_transport::udp_packet::UdpPacketConfig;
use landfall_transport::uring::UringUdpConfig;
use stp_core::wire::carrier::IP_PROTOCOL;

use super::super::side::place_thread;
use super::super::{Role, Shape};

/// Transfers under way at a time: the next are asked for while others are sent.
pub(super) const UNDER_WAY: usize = 16;
/// Of short Transfers more are under way, so that neither side sleeps in turn.
pub(super) const SHORT: usize = 64 << 10;
/// What both ends have where they encrypt. What is measured is no secret.
const KEY: [u8; 32] = [7; 32];
/// This many of them.
pub(super) const SHORT_UNDER_WAY: usize = 64;

/// What is below STP.
#[derive(Clone, Copy, Debug)]
pub enum LowerLayer<'a> {
    /// UDP, which finds its MTU by itself, by the socket.
    Udp,
    /// The same as it is by default: what both ends are on one host for goes without the
    /// socket.
    SameHost,
    /// UDP for an MTU that was chosen.
    UdpOf(u32),
    /// UDP by a packet socket.
    UdpPacket,
    /// The same by io_uring.
    UringUdpPacket,
    /// UDP by io_uring, for an MTU that was chosen.
    UringUdp(u32),
    /// Frames of ethertype 0x8181 along a cable.
    Ethernet(&'a VethPair),
    /// The same through mapped rings.
    Xdp(&'a VethPair),
    /// Packets of IP protocol 118, for links of this MTU.
    Ip(u32),
    /// A channel within this process.
    Process,
}

impl LowerLayer<'_> {
    fn transport(self, role: Role, side: &WorkerPlace) -> Transport {
        let at = SocketAddr::new(side.address, 0);
        let interface = |pair: &VethPair| {
            let end = if role == Role::Send { &pair.a } else { &pair.b };
            Interface::from(end.name.as_str())
        };
        match self {
            Self::Udp => {
                Transport::udp_with(UdpConfig { same_host: false, ..UdpConfig::discover(at) })
            }
            Self::SameHost | Self::Process => Transport::udp(at),
            Self::UdpOf(mtu) => Transport::udp_with(UdpConfig::new(at, mtu)),
            Self::UdpPacket => Transport::udp_packet(at),
            Self::UringUdpPacket => Transport::udp_packet_uring(UdpPacketConfig::discover(at)),
            Self::UringUdp(mtu) => Transport::udp_uring(UringUdpConfig::new(at, mtu)),
            Self::Ethernet(pair) => Transport::ethernet(interface(pair)),
            Self::Xdp(pair) => Transport::xdp(interface(pair)),
            Self::Ip(mtu) => Transport::ip_with(RawIpConfig::new(side.address, IP_PROTOCOL, mtu)),
        }
    }

    /// What an endpoint is configured with that nobody configures.
    fn usual(self) -> Config {
        match self {
            Self::Ethernet(_) | Self::Xdp(_) | Self::Process => Config::default(),
            _ => Config::shared_network(),
        }
    }
}

/// How both sides are set up.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// What is below.
    pub below: LowerLayer<'a>,
    /// No longer STU than this; without it, what fills a packet.
    pub stu: Option<u32>,
    /// The connections that Transfers go over, in turn.
    pub connections: u32,
    /// What goes wrong on the path, in both directions.
    pub faults: Option<(Faults, Seed)>,
    /// A cable that loses this many of a million frames while the run lasts.
    pub cable: Option<(&'a VethPair, u32)>,
    /// In place of what is usual there.
    pub config: Option<Config>,
    /// The receiver reads every byte of a Transfer before its place is used again.
    pub touches: bool,
    /// All that crosses the path is encrypted, on loopback too.
    pub encrypts: bool,
}

impl<'a> Setup<'a> {
    /// As a user gets it who chooses nothing but the transport.
    pub const fn over(below: LowerLayer<'a>) -> Self {
        Self {
            below,
            stu: None,
            connections: 1,
            faults: None,
            cable: None,
            config: None,
            touches: false,
            encrypts: false,
        }
    }

    /// The same with an STU of at most this.
    #[must_use]
    pub fn with_stu(self, stu: Option<u32>) -> Self {
        Self { stu, ..self }
    }

    /// The configuration, where it is not the usual one.
    pub(super) fn configured(&self) -> Option<Config> {
        let max_stu = self.stu.map(|stu| stu.next_power_of_two().ilog2() as u8);
        let base = self.config.clone();
        match (base, max_stu) {
            (base, None) => base,
            (base, Some(max_stu)) => {
                Some(Config { max_stu, ..base.unwrap_or_else(|| self.below.usual()) })
            }
        }
    }

    fn builder(&self, plan: &Plan) -> Builder {
        // Most rows are plain, as their rivals are.
        let mut builder = if self.encrypts {
            Endpoint::builder().preshared_key(KEY).encrypt_loopback()
        } else {
            Endpoint::builder().plaintext()
        };
        if let Some(config) = self.configured() {
            builder = builder.config(config);
        }
        // By itself an endpoint spins for a while before it sleeps.
        if plan.polling == Polling::Spin { builder.wait(Wait::Spin) } else { builder }
    }

    /// An endpoint in the namespace of its side; this thread moves there.
    pub(super) fn bind(&self, plan: &Plan, role: Role) -> Result<Endpoint> {
        let side = role.side(plan);
        place_thread(side)?;
        let mut transport = self.below.transport(role, side);
        if let Some((faults, mut seed)) = self.faults {
            seed[0] ^= role as u8; // each direction has its own bad luck
            transport = transport.with_faults(faults, seed);
        }
        let endpoint = self.builder(plan).path(transport).bind();
        Ok(endpoint.with_context(|| format!("cannot bind an endpoint at {}", side.address))?.into())
    }

    /// Two endpoints of this process, and what each is called by the other.
    pub(super) fn bind_pair(&self, plan: &Plan) -> Result<[(Endpoint, Peer); 2]> {
        let builders = (self.builder(plan), self.builder(plan));
        let (one, two) = builders.0.bind_pair(builders.1, ChannelConfig::default())?;
        Ok([(one.into(), Peer::Node(0)), (two.into(), Peer::Node(1))])
    }

    /// This many Transfers of this length are under way at a time.
    pub(super) fn under_way(&self, shape: Shape) -> usize {
        let most = if shape.message <= SHORT { SHORT_UNDER_WAY } else { UNDER_WAY };
        most.max(self.connections as usize)
    }
}
