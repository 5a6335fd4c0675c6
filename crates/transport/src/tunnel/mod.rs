//! A tunnel: whole Ethernet frames inside of UDP datagrams, for users without
//! privileges.
//!
//! Each path is one station of a small Ethernet whose cables are datagrams.
//! Units are whole frames, peers are
//! [`Peer::Unaddressed`](landfall_placement::Peer::Unaddressed), so that an
//! engine that speaks through a packet socket or a TAP interface speaks through
//! this as well. One frame is the payload of one datagram, with nothing in front
//! of it.
//!
//! Who has which station address is learned from what comes. A frame to a
//! station that is known goes to its peer; one to a group, to all, or to a
//! station that is not known goes to all peers. Nothing is passed on from one
//! peer to another: each has to know all others.
//!
//! Frames move as datagrams of the [UDP driver](crate::udp) do: many with one
//! call where they have one length and one peer, straight into guessed spans.
//! No device looks into them, so there is neither segmentation nor a checksum
//! by the device; sums are the driver's.
//!
//! **For networks that are trusted.** Only what comes from the address of a peer
//! is let in; addresses can be forged, and frames can be read on their way.
//!
//! ```
//! use landfall_placement::PathId;
//! use landfall_transport::memory::Regions;
//! use landfall_transport::tunnel::{TunnelConfig, TunnelDriver};
//!
//! let regions = Regions::new(16);
//! let here = "127.0.0.1:0".parse()?;
//! let mut one = TunnelDriver::open(PathId(0), &TunnelConfig::new(here, 1500), &regions)?;
//! let mut two = TunnelDriver::open(PathId(0), &TunnelConfig::new(here, 1500), &regions)?;
//! one.add_peer(two.local_address())?;
//! two.add_peer(one.local_address())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What does not live here: encryption, forwarding, fragments.

mod driver;
mod peers;

use std::net::SocketAddr;

use landfall_placement::Duration;

pub use driver::TunnelDriver;
pub use peers::TooManyPeers;

/// How a tunnel is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The local address; port 0 lets the kernel choose.
    pub bind: SocketAddr,
    /// The longest frame that crosses in one piece, from its Ethernet header on.
    pub frame: u32,
    /// Whom frames are exchanged with.
    pub peers: Vec<SocketAddr>,
    /// Anyone who sends is a peer, as long as there is room for one.
    pub learn_peers: bool,
    /// This many peers there are at most: a frame to all is sent as often.
    pub most_peers: usize,
    /// This many stations are remembered at most. Frames to others go to all peers.
    pub most_stations: usize,
    /// Send and receive many frames with one call, where the kernel can.
    pub batch: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
}

impl TunnelConfig {
    /// A tunnel over an interface with this MTU, without peers for now.
    #[must_use]
    pub const fn new(bind: SocketAddr, mtu: u32) -> Self {
        let udp = crate::udp::UdpConfig::new(bind, mtu);
        Self {
            bind,
            frame: udp.unit,
            peers: Vec::new(),
            learn_peers: false,
            most_peers: 64,
            most_stations: 1024,
            batch: udp.batch,
            socket_buffer: udp.socket_buffer,
        }
    }
}

/// What a tunnel did besides what [`Counters`](crate::Counters) count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelCounts {
    /// Frames that went to all peers.
    pub to_all: u64,
    /// Frames that nobody was there for, or that were no frames.
    pub to_nobody: u64,
    /// Datagrams of strangers, which were refused.
    pub strangers: u64,
    /// Datagrams of peers that were no frames, which were refused.
    pub no_frames: u64,
}

/// What was not heard of for so long is forgotten when the room is needed
/// (IEEE 802.1Q has five minutes, too).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Where there is no room, it is looked for at most so often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The header of an Ethernet frame: destination, source, ethertype.
const ETHERNET_HEADER: usize = 14;

/// Is it the address of a group of stations, or of all?
const fn is_group(station: [u8; 6]) -> bool {
    station[0] & 1 == 1
}
