//! The configurations that are tried.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::{Duration, PathLimits};

use crate::adapter::{Config, Interface};
use crate::tcp::Mapping;
use crate::tcp::config::{KeepAlive, TcpConfig};
use crate::tcp::congestion::CongestionControl;
use crate::wire::Mac;

/// How many bytes choose a setup.
pub(super) const CHOICES: usize = 3;

/// The port that each side listens at.
pub(super) const PORT: u16 = 7;

/// How a run is set up: three bytes of choices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup([u8; CHOICES]);

impl Setup {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut choices = [0; CHOICES];
        for (choice, byte) in choices.iter_mut().zip(bytes) {
            *choice = *byte;
        }
        Self(choices)
    }

    const fn has(self, bit: u8) -> bool {
        self.0[bit as usize / 8] >> (bit % 8) & 1 == 1
    }

    /// How messages of this side lie in segments: mostly the same on both, and
    /// sometimes messages here and a stream of bytes there.
    pub(super) const fn mapping(self, side: usize) -> Mapping {
        match self.0[0] & 3 {
            0 => Mapping::Segment,
            1 => Mapping::Message,
            2 => Mapping::Stream,
            _ if side == 1 && self.has(20) => Mapping::Stream,
            _ => Mapping::Message,
        }
    }

    /// The address of a side.
    pub(super) fn address(self, side: usize) -> IpAddr {
        let n = side as u8 + 1;
        if self.has(2) {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, n).into()
        }
    }

    /// Where a side listens.
    pub(super) fn listens_at(self, side: usize) -> SocketAddr {
        SocketAddr::new(self.address(side), PORT)
    }

    /// Does the device take long segments, and cut them?
    pub(super) const fn is_cut(self) -> bool {
        self.has(3)
    }

    /// Does it hand them over as they are, as between two virtual machines?
    pub(super) const fn is_coalesced(self) -> bool {
        self.has(4)
    }

    /// Do the sides know each other's stations from the start?
    pub(super) const fn knows_neighbours(self) -> bool {
        !self.has(5) || !self.has(22)
    }

    /// Does the user poll only now and then?
    pub(super) const fn is_lazy(self) -> bool {
        self.has(6) && self.has(21)
    }

    /// Is there a connection from the start, and queue pairs for datagrams?
    pub(super) const fn begins_connected(self) -> bool {
        self.has(7) || self.has(23)
    }

    /// Does the last piece of a long segment overtake the others?
    pub(super) const fn is_last_first(self) -> bool {
        self.has(14)
    }

    /// May placing fail?
    pub(super) const fn may_fail(self) -> bool {
        self.has(15)
    }

    /// Is there room for little?
    pub(super) const fn is_small(self) -> bool {
        self.has(13)
    }

    /// How many requests a queue holds.
    pub(super) const fn depth(self) -> u32 {
        if self.is_small() { 2 } else { 8 }
    }

    /// How many completions the queue of a side holds.
    pub(super) const fn completions(self) -> u32 {
        if self.is_small() { 8 } else { 48 }
    }

    pub(super) fn config(self) -> Config {
        let few = |small: usize, usual: usize| if self.is_small() { small } else { usual };
        Config {
            queue_pairs: few(4, 8),
            half_open: few(2, 16),
            time_wait: few(2, 16),
            transmissions: 16,
            placements: 16,
            reassemblies: few(2, 16),
            events: few(16, 64),
            tcp: TcpConfig {
                congestion: if self.has(11) {
                    CongestionControl::NewReno
                } else {
                    CongestionControl::Cubic
                },
                ecn: self.has(10),
                timestamps: !self.has(8),
                sack: !self.has(9),
                most_window: if self.has(12) { 0 } else { 1 << 24 },
                // Who closes waits for the other user: as long as it takes.
                finish_within: Duration::from_secs(100_000),
                keep_alive: self.has(16).then_some(KeepAlive {
                    idle: Duration::from_secs(5),
                    interval: Duration::from_secs(40),
                    probes: 9,
                }),
                ..TcpConfig::default()
            },
            ..Config::default()
        }
    }

    pub(super) fn interface(self, side: usize) -> Interface {
        let other = (self.address(1 - side), station(1 - side));
        let prefix = if self.has(2) { 64 } else { 24 };
        Interface {
            mac: station(side),
            addresses: [(self.address(side), prefix)].into(),
            gateways: [].into(),
            neighbours: if self.knows_neighbours() { [other].into() } else { [].into() },
        }
    }

    pub(super) const fn limits(self) -> PathLimits {
        // What IPv6 needs at least is more than 1,000 bytes.
        let packet = if self.has(17) && !self.has(2) { 600 } else { 1_500 };
        let mut limits = PathLimits::plain(packet + 14);
        if self.is_cut() || self.is_coalesced() {
            limits.super_unit = 65_535;
            limits.segments = 64;
            limits.offloads.segment_tcp4 = true;
            limits.offloads.segment_tcp6 = true;
        }
        limits
    }
}

/// The station of a side.
pub(super) const fn station(side: usize) -> Mac {
    [2, 0, 0, 0, 0, side as u8 + 1]
}
