//! Raw IP: units of any engine directly behind an IPv4 or IPv6 header, for
//! protocols with a number of their own, received straight into guessed spans.
//!
//! The kernel cuts and joins TCP and UDP only. Here each unit is a packet; many
//! of them move with one call (`sendmmsg`, `recvmmsg`), each gathered from and
//! scattered to its own places.
//!
//! How the kernel behaves here was found by probing and by reading
//! `net/ipv4/raw.c`, `net/ipv6/raw.c` and `net/ipv4/ip_output.c`, and each
//! finding has a test in `tests/rawip_rules.rs`:
//!
//! - over IPv4 the header comes with each packet, and options make it longer:
//!   the lists begin with 20 bytes for it, and what options displaced is moved
//!   to its place; over IPv6 it does not come, and control messages say what
//!   it said;
//! - fragments come joined, so a unit may be longer than the path's; what this
//!   side sends is never cut (`IP_PMTUDISC_DO`): too long is an error, and a
//!   path whose MTU has become smaller tells the engine so;
//! - every socket of one protocol hears every packet of it, unless it is bound
//!   to an address or connected to a peer;
//! - a host hears itself: two ends in one namespace need two addresses.
//!
//! ```no_run
//! use landfall_placement::PathId;
//! use landfall_transport::memory::Regions;
//! use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
//!
//! let regions = Regions::new(16);
//! let config = RawIpConfig::new("10.0.0.1".parse()?, 253, 1500);
//! let mut driver = RawIpDriver::open(PathId(0), &config, &regions)?;
//! driver.connect("10.0.0.2".parse()?)?; // or not: then it serves many peers
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What does not live here: the header, which the kernel writes and checks;
//! routes; neighbours.

mod driver;
mod messages;
mod socket;

use std::net::IpAddr;

pub use driver::RawIpDriver;

use crate::packet::Interface;

/// How a path directly on IP is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawIpConfig {
    /// The local address, which decides between IPv4 and IPv6; unspecified
    /// hears what comes to any address of this host.
    pub bind: IpAddr,
    /// The number of the protocol in the IP header.
    pub protocol: u8,
    /// Send and receive through this interface alone. Link-local addresses
    /// need it.
    pub interface: Option<Interface>,
    /// The largest unit: the MTU less the IP header (20 bytes for IPv4, 40 for
    /// IPv6).
    pub unit: u32,
    /// Move many units with one call; without it, one.
    pub batch: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
}

impl RawIpConfig {
    /// A path of this protocol, for an interface with this MTU.
    #[must_use]
    pub const fn new(bind: IpAddr, protocol: u8, mtu: u32) -> Self {
        let (header, largest) = header_and_largest(bind.is_ipv6());
        let unit = mtu.saturating_sub(header);
        Self {
            bind,
            protocol,
            interface: None,
            unit: if unit < largest { unit } else { largest },
            batch: true,
            socket_buffer: 16 << 20,
        }
    }
}

/// The length of the IP header that the kernel writes, and the most that a
/// packet carries behind it.
const fn header_and_largest(ipv6: bool) -> (u32, u32) {
    if ipv6 { (40, 65_535) } else { (20, 65_515) }
}
