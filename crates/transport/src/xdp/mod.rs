//! AF_XDP: frames of one ethertype, or to one station, handed over below the
//! kernel's protocols, through rings that are mapped into this process.
//!
//! | [`Framing`] | units | peers |
//! | --- | --- | --- |
//! | [`Framing::Payload`] | what follows the header of frames of an ethertype | [`Peer::Ethernet`](landfall_placement::Peer::Ethernet) |
//! | [`Framing::Frames`] | whole frames, written and read by the engine | [`Peer::Unaddressed`](landfall_placement::Peer::Unaddressed) |
//! | [`Framing::Fragments`] | likewise, those with fragments of IP packets | likewise |
//! | [`Framing::TaggedFragments`] | likewise, of a VLAN | likewise |
//!
//! [`XdpDriver`] runs an engine over them, with a place for each unit. [`XdpQueue`]
//! gives frames as they lie in the rings' memory, to be read or copied there.
//!
//! The first two understand those of the same name in
//! [`packet::Framing`](crate::packet::Framing). Receiving needs no system call;
//! sending needs one for many frames.
//!
//! **Nothing is placed directly.** The kernel chooses the frame in which a
//! packet arrives, before anybody could say where it belongs. From there each
//! payload is copied once to its place, and on the way out once into a frame:
//! [`Counters::bytes_copied`](crate::Counters::bytes_copied) counts both.
//!
//! A program of some fifteen instructions looks at each frame that the interface
//! receives: those of the path it redirects to the socket, all others go on to
//! the kernel. It is detached when the path is dropped. How the kernel
//! behaves here was found by probing and by reading `net/xdp/xsk.c`, and each
//! finding has a test in `tests/xdp_rules.rs`:
//!
//! - an interface has one program, and a queue one socket: a second path over
//!   the same interface is refused;
//! - the path hears one queue. Frames that the device sorts to others go to the
//!   kernel, which drops them: let the interface have one queue (`ethtool -L
//!   IFACE combined 1`), or have frames of the ethertype steered to that queue;
//! - frames to other stations come too, if the device lets them in. They are
//!   counted as malformed and never reach the engine;
//! - frames of a VLAN are of another ethertype, and go on to the kernel, unless
//!   the device takes the tag away before the program looks;
//! - what is redirected the kernel does not see any more: a path that takes the
//!   frames to groups leaves the kernel deaf for ARP, see [`Framing::Frames`];
//! - no device computes or verifies checksums here, and frames of a kernel on
//!   the same machine may come with unfinished ones (on a virtual cable, unless
//!   its other end has `ethtool -K IFACE tx off`);
//! - a frame of a larger MTU lies in several chunks of memory, which needs
//!   Linux 6.6; before, the path's unit is what fits one;
//! - the socket of an interface that is down stays open, and works again when
//!   the interface does; one of an interface that is gone is broken.
//!
//! What a virtual cable can do is [`Feature::ZeroCopyRings`] missing: the
//! kernel copies between its memory and the rings'. Devices whose drivers know
//! AF_XDP receive into the rings' memory and send from it.
//!
//! [`Feature::ZeroCopyRings`]: crate::Feature::ZeroCopyRings
//!
//! ```no_run
//! use landfall_placement::PathId;
//! use landfall_transport::memory::Regions;
//! use landfall_transport::xdp::{XdpConfig, XdpDriver};
//! use landfall_transport::{Driver, Feature};
//!
//! let regions = Regions::new(16);
//! let driver = XdpDriver::open(PathId(0), &XdpConfig::new("eth0", 0x88b5), &regions)?;
//! if let Err(missing) = driver.capabilities().require(Feature::ZeroCopyRings) {
//!     println!("{missing}"); // the kernel copies, and why
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What does not live here: steering, IP.

mod driver;
mod frames;
mod program;
mod queue;
mod ring;
mod socket;

pub use driver::XdpDriver;
pub use queue::{Burst, XdpQueue};

use std::io;

use crate::packet::Interface;
use crate::{OpenError, Privilege};

/// Names what was tried, which a process without privileges may not do.
fn failed(what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    OpenError::needing(Privilege::Xdp, what)
}

/// Where the program looks at frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the device's driver if it can, otherwise where the kernel's network
    /// stack begins.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Driver,
    /// Where the stack begins: works for every interface, and costs the frame
    /// a kernel buffer.
    Generic,
}

/// What a unit is, and which frames are for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// What follows the Ethernet header of frames of one ethertype; the driver
    /// writes and reads the header.
    Payload {
        /// The protocol by which the frames are told from others.
        ethertype: u16,
    },
    /// Whole frames to one station, written and read by the engine.
    Frames {
        /// The interface's own station: then the kernel gets nothing that is for
        /// it alone. Or another one, locally administered (RFC 9542, 2.1: `02`
        /// in the first byte), beside the kernel on the same cable.
        station: [u8; 6],
        /// Also what is for groups of stations, and for all. **The kernel hears
        /// none of it any more**: it cannot be asked for its addresses over this
        /// interface, by ARP or neighbour discovery. Without it the engine
        /// cannot: it may ask, and has to be known to who asks for it.
        groups: bool,
    },
    /// Whole frames with fragments of IPv4 and IPv6 packets, to the interface's
    /// own station and to groups. The kernel gets all other frames, and of IPv6
    /// also fragments with other headers before the fragment header.
    Fragments,
    /// The same of a VLAN, or of one within one, whose tags are in the bytes of a frame (a device
    /// that takes tags away shows none: `ethtool -K … rxvlan off`). An [`XdpQueue`] takes them
    /// away: a frame that it receives has its inner ethertype behind its stations. A driver's
    /// engine has them as they came.
    TaggedFragments {
        /// The number of the outer one, 1 to 4094.
        outer: u16,
        /// That of the inner one, if there are two.
        inner: Option<u16>,
    },
}

/// How a path over AF_XDP is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The interface.
    pub interface: Interface,
    /// Which of its queues is heard.
    pub queue: u32,
    /// What a unit is, and which frames are for the path.
    pub framing: Framing,
    /// Where the program looks at frames.
    pub attach: Attach,
    /// This many frames may wait each way, a power of two: 2048 or 4096 bytes of
    /// locked memory for each.
    pub frames: u32,
}

impl XdpConfig {
    /// Frames of this ethertype, through the first queue of this interface.
    #[must_use]
    pub fn new(interface: impl Into<Interface>, ethertype: u16) -> Self {
        Self::of(interface.into(), Framing::Payload { ethertype })
    }

    /// Whole frames to this station, without what is for groups.
    #[must_use]
    pub fn station(interface: impl Into<Interface>, station: [u8; 6]) -> Self {
        Self::of(interface.into(), Framing::Frames { station, groups: false })
    }

    /// Whole frames to this station and to groups, of which the kernel gets none
    /// any more: see [`Framing::Frames`].
    #[must_use]
    pub fn station_and_groups(interface: impl Into<Interface>, station: [u8; 6]) -> Self {
        Self::of(interface.into(), Framing::Frames { station, groups: true })
    }

    /// Whole frames with fragments of IP packets, of which the kernel gets none
    /// any more: see [`Framing::Fragments`].
    #[must_use]
    pub fn fragments(interface: impl Into<Interface>) -> Self {
        Self::of(interface.into(), Framing::Fragments)
    }

    /// The same of a VLAN, or of one within one: see [`Framing::TaggedFragments`].
    #[must_use]
    pub fn fragments_of_vlan(self, outer: u16, inner: Option<u16>) -> Self {
        Self { framing: Framing::TaggedFragments { outer, inner }, ..self }
    }

    fn of(interface: Interface, framing: Framing) -> Self {
        Self { interface, queue: 0, framing, attach: Attach::Auto, frames: 4096 }
    }
}

impl Framing {
    /// The station that frames are for, at an interface with this one.
    const fn station(&self, interface: [u8; 6]) -> [u8; 6] {
        match self {
            Self::Payload { .. } | Self::Fragments | Self::TaggedFragments { .. } => interface,
            Self::Frames { station, .. } => *station,
        }
    }

    /// How much of a frame is the driver's, before the unit.
    const fn header_len(&self) -> usize {
        match self {
            Self::Payload { .. } => ETHERNET_HEADER,
            Self::Frames { .. } | Self::Fragments | Self::TaggedFragments { .. } => 0,
        }
    }

    /// Is a frame with this header for the path, at a station? Devices may let
    /// in what is for others.
    fn takes(&self, header: &[u8; ETHERNET_HEADER], station: [u8; 6]) -> bool {
        let is_ours = header.starts_with(&station);
        let is_for_group = header[0] & 1 == 1;
        match self {
            Self::Payload { ethertype } => {
                (is_ours || is_for_group) && header.ends_with(&ethertype.to_be_bytes())
            }
            Self::Frames { groups, .. } => is_ours || *groups && is_for_group,
            Self::Fragments | Self::TaggedFragments { .. } => is_ours || is_for_group,
        }
    }

    /// The VLANs that a frame has to be of; 0 where there is none.
    const fn vlans(&self) -> Option<[u16; 2]> {
        match *self {
            Self::TaggedFragments { outer, inner: Some(inner) } => Some([outer, inner]),
            Self::TaggedFragments { outer, inner: None } => Some([outer, 0]),
            _ => None,
        }
    }
}

/// Destination, source, ethertype.
const ETHERNET_HEADER: usize = 14;
