//! UDP: batches of units by segmentation offload, received straight into guessed spans.
//!
//! How the kernel behaves here was found by probing, and each finding has a
//! test in `tests/udp_rules.rs`:
//!
//! - a batch of more than 65,472 payload bytes falls apart, silently;
//! - a send takes 128 segments, but a receive coalesces 64 at most;
//! - a receive list that is too short loses data: it ends in a buffer that
//!   takes whatever is longer;
//! - the control message, not the guess, says the unit length; a single
//!   datagram has none;
//! - a shorter unit ends a batch; peers and lengths never mix.
//!
//! # Processes of this host
//!
//! What is sent to an address of this host may be for a process of the same user that has such
//! a path, too. Then it goes through memory that both share, and the kernel sees none of it:
//! the receiver copies payloads once, from where they lie at the sender to where they belong.
//! The two find each other by themselves. [`UdpConfig::discover`] has it switched on;
//! [`UdpConfig::new`], which says what the path is, has it off, and
//! [`same_host`](UdpConfig::same_host) chooses:
//!
//! ```
//! use landfall_transport::udp::UdpConfig;
//!
//! let config = UdpConfig::discover(([127, 0, 0, 1], 0).into());
//! let by_the_socket = UdpConfig { same_host: false, ..config };
//! # assert!(config.same_host && !by_the_socket.same_host);
//! ```
//!
//! Payloads are read where they lie if they are in an [`Arena`](crate::memory::Arena) whose
//! configuration says so, else by `process_vm_readv` where the kernel lets a process of the
//! same user do that, else they are copied twice, by way of the memory that is shared. Several
//! engines at one port ([`UdpDriver::open_group`]) have no neighbours, since the kernel alone
//! knows which of them a packet is for.

mod driver;
mod socket;

#[cfg(feature = "io-uring")]
pub(crate) use driver::peek;
pub(crate) use driver::{Receiver, UNITS_PER_TURN, run_limits};
pub(crate) use socket::SendHeader;
pub(crate) use socket::{Message, Sending, Sharing, bound_to, open};
#[cfg(feature = "io-uring")]
pub(crate) use socket::{ReceiveHeader, lack_batched_send};

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;

use landfall_placement::PathLimits;
use socket2::Socket;

pub use driver::UdpDriver;

use crate::driver::plain_limits;
use crate::interfaces::mtu_at;

/// The payload of a UDP datagram that every way is taken to carry (`BASE_PLPMTU` of RFC 8899).
pub const SURE: u32 = 1200;

/// How a UDP path is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The local address; port 0 lets the kernel choose. Of a multicast group the path hears what
    /// is sent to that group and port, as other sockets of the host may, too; the kernel joins
    /// it, with IGMP or MLD.
    pub bind: SocketAddr,
    /// Where a group of IPv4 is heard: on the interface that has this address, or on the one
    /// that the kernel chooses. A group of IPv6 is heard on the interface that its scope names.
    pub interface: Option<Ipv4Addr>,
    /// The largest UDP payload that crosses in one piece: the MTU less the IP
    /// and UDP headers (28 bytes for IPv4, 48 for IPv6).
    pub unit: u32,
    /// Ask the interface of the local address how much it carries, when the path is opened,
    /// in the place of `unit`: see [`UdpConfig::discover`].
    pub discover: bool,
    /// Send and receive many units with one call, where the kernel can.
    /// Without it the portable path is used: one datagram a call.
    pub batch: bool,
    /// How large the kernel's socket buffers shall be.
    pub socket_buffer: usize,
    /// Look at the first head before receiving when guesses keep missing, as
    /// they do when several peers alternate on one socket.
    pub peek: bool,
    /// Reach processes of this host and user without the socket, with one copy: see
    /// [the module](self#processes-of-this-host).
    pub same_host: bool,
}

impl UdpConfig {
    /// A path for an interface with this MTU.
    #[must_use]
    pub const fn new(bind: SocketAddr, mtu: u32) -> Self {
        let headers = if bind.is_ipv4() { 28 } else { 48 };
        let largest = 65_535 - headers;
        let unit = mtu.saturating_sub(headers);
        Self {
            bind,
            interface: None,
            unit: if unit < largest { unit } else { largest },
            discover: false,
            batch: true,
            socket_buffer: 16 << 20,
            peek: true,
            same_host: false,
        }
    }

    /// A path of which nobody has to know the MTU. The path carries what the interface of
    /// the local address carries, or the largest of all interfaces where that is
    /// unspecified; what is sure to get to every peer
    /// ([`PathLimits::sure`](landfall_placement::PathLimits::sure)) is all of it on loopback
    /// and [`SURE`] bytes elsewhere. An engine finds out what is between the two.
    ///
    /// Nothing is fragmented on the way, and what routers say of the MTU is not believed,
    /// since anybody can say it: what is too long for the way, or for the interface, is lost.
    /// Where no interface has the address, an MTU of 1500 is taken for its.
    #[must_use]
    pub const fn discover(bind: SocketAddr) -> Self {
        Self { discover: true, same_host: true, ..Self::new(bind, 1500) }
    }

    /// What the path carries at once, once its socket is open.
    pub(crate) fn limits(&self, socket: &Socket) -> io::Result<PathLimits> {
        if !self.discover {
            return Ok(plain_limits(self.unit));
        }
        let address = self.bind.ip();
        let mtu = mtu_at(socket.as_raw_fd(), address)?;
        let unit = mtu.map_or(self.unit, |mtu| Self::new(self.bind, mtu).unit);
        let sure = if address.is_loopback() { unit } else { unit.min(SURE) };
        Ok(PathLimits { sure, ..plain_limits(unit) })
    }
}
