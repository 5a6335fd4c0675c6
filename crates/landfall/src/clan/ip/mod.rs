//! IP over CLAN (section 6.1 of the paper): an interface of the kernel whose packets
//! travel by DMA into buffers that the receiver has put there before.
//!
//! ```text
//!   sender                                     receiver
//!   kernel → TAP → registered memory           buffers, whose cookies went ahead
//!        ①  a cookie  ←──── queue of cookies ─────  ⑤ and go out again
//!        ②  the packet ────── DMA ───────────→  a buffer
//!        ③  a message ─ queue of completions ─→  ④ a tripwire; to the TAP, to the kernel
//! ```
//!
//! Between two hosts that have something to say to each other a connection is made on
//! demand, at the first packet; any number of hosts can talk to each other. Many
//! packets are under way at a time. The queue of cookies is the flow control: as long
//! as it does not run empty nobody waits, and how often it did is counted
//! ([`ClanIpStats::waited`]).
//!
//! The interface is an Ethernet for the kernel: ARP and neighbour discovery pass, and
//! go to every host that is configured. The station of host `n` is `02:43:4c:41:…`
//! with `n` at its end, so that a destination names its host and nothing has to be
//! learned. Addresses and routes are the kernel's.
//!
//! | file | what it is |
//! | --- | --- |
//! | `builder` | what can be chosen, and what was done |
//! | `terms` | what two hosts agree on, and how they do; the elements of both queues |
//! | `outgoing`, `incoming` | the two directions of a connection; what stands in front of a packet |
//! | `connections` | which connections there are; what waits for one |
//! | `kernel` | packets from the kernel |
//! | `exchange` | the turns: kernel, connections, and those that are being made |
//!
//! The kernel's super-packets travel whole: up to 64 KiB of TCP are one DMA and one
//! completion, whatever the MTU, and nobody computes their sums.
//!
//! What does not live here: shared memory and queues (those are CLAN's), and IP.

mod builder;
mod connections;
mod exchange;
mod incoming;
mod kernel;
mod outgoing;
mod terms;

pub use builder::{BadNeighbour, ClanIp, ClanIpBuilder, ClanIpStats, Neighbour};
pub use outgoing::station_of;

use std::io;

use super::Error;
use super::network::OpenError;

/// The largest MTU that Linux lets a TAP interface have (`drivers/net/tun.c`): a
/// packet of 65,535 bytes, less the Ethernet header.
pub const MTU_MAX: u32 = 65_521;
/// The smallest that IPv6 lives with (RFC 8200, section 5).
pub const MTU_MIN: u32 = 1280;

/// Why an interface cannot be, or is no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClanIpError {
    /// The configuration is invalid.
    #[error("that cannot be configured: {0}")]
    BadConfig(String),
    /// The interface could not be made.
    #[error(transparent)]
    Tap(#[from] landfall_transport::OpenError),
    /// The path below could not be opened.
    #[error(transparent)]
    Path(#[from] OpenError),
    /// The node refused something.
    #[error(transparent)]
    Node(#[from] Error),
    /// The interface is gone, or a thread could not be started.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

impl ClanIpError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }
}
