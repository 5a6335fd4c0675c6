//! Over which path, to whom, and within which limits.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// One way into and out of an engine: a socket, an interface, a simulated link.
///
/// The numbers are the caller's; an engine only compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u16);

/// Who is at the other end of a path, as the driver names it.
///
/// Drivers that hand whole frames to the engine use [`Peer::Unaddressed`]:
/// there the addresses are in the head, and the engine reads and writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// The path has one other end, or the addresses are in the head.
    #[default]
    Unaddressed,
    /// A node of a simulated network.
    Node(u32),
    /// A station of the Ethernet that the path is on.
    Ethernet([u8; 6]),
    /// A host, for protocols directly on IP.
    Ip(IpAddr),
    /// A host and port, for protocols on UDP.
    Socket(SocketAddr),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaddressed => f.write_str("the other end"),
            Self::Node(n) => write!(f, "node {n}"),
            Self::Ethernet([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Ip(ip) => ip.fmt(f),
            Self::Socket(socket) => socket.fmt(f),
        }
    }
}

impl From<SocketAddr> for Peer {
    fn from(socket: SocketAddr) -> Self {
        Self::Socket(socket)
    }
}

/// Explicit Congestion Notification of a unit (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not understand ECN, or the path does not carry it.
    #[default]
    NotCapable = 0,
    /// ECN-capable, codepoint ECT(1).
    Capable1 = 1,
    /// ECN-capable, codepoint ECT(0).
    Capable0 = 2,
    /// The network was congested where this unit passed.
    CongestionExperienced = 3,
}

impl Ecn {
    /// The codepoint in the low two bits of an IP traffic class.
    #[must_use]
    pub const fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::CongestionExperienced,
        }
    }

    /// Was the network congested?
    #[must_use]
    #[inline]
    pub const fn is_congested(self) -> bool {
        matches!(self, Self::CongestionExperienced)
    }
}

/// What the device or the kernel beneath a path does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// It cuts one long TCP segment over IPv4 into segments of a given size.
    pub segment_tcp4: bool,
    /// The same over IPv6.
    pub segment_tcp6: bool,
    /// It fills in Internet checksums where a [`SumSlot`](crate::SumSlot) asks.
    /// Without it the driver does, with a pass over the payload.
    pub sum_send: bool,
    /// It verifies Internet checksums of TCP and UDP on arrival.
    pub sum_receive: bool,
}

/// How much a path carries at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// The largest unit, head and payload, that crosses in one piece: what leaves here.
    pub unit: u32,
    /// The largest unit that every peer gets. What is longer, up to `unit`, gets to some of
    /// them, and its sender finds out to which. The same as `unit` where all peers are alike.
    pub sure: u32,
    /// The longest head that the driver gives room for.
    pub head: u16,
    /// The largest unit with a [`Segment`](crate::Segment) to be cut by the
    /// device; the same as `unit` where the device cuts nothing.
    pub super_unit: u32,
    /// The most segments that such a unit is cut into.
    pub segments: u16,
    /// What is done beneath the path.
    pub offloads: Offloads,
}

impl PathLimits {
    /// A path that carries `unit` bytes at once, and does nothing by itself.
    #[must_use]
    pub const fn plain(unit: u32) -> Self {
        Self {
            unit,
            sure: unit,
            head: 256,
            super_unit: unit,
            segments: 1,
            offloads: Offloads {
                segment_tcp4: false,
                segment_tcp6: false,
                sum_send: false,
                sum_receive: false,
            },
        }
    }
}

/// What became of a path: told to the engine when it is added and whenever it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The path can be used, within these limits.
    Up(PathLimits),
    /// Nothing crosses any more, until it is up again.
    Down,
}
