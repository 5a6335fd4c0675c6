//! TCP, written for placement: segments go straight between the memory of work
//! requests and the wire, and there is no byte ring in between.
//!
//! Everything is counted in positions of a stream: the opening is position 0,
//! data starts at 1, and the end takes one. Numbers of 32 bits exist at the
//! edges only.
//!
//! State is split by who owns it:
//!
//! | file | state |
//! | --- | --- |
//! | `tcb`, `state` | one connection: what follows, and the state of RFC 9293 |
//! | `input`, `output` | what a segment does to it, and what the network says; what is said next |
//! | `prediction` | what is expected next, and what came so |
//! | `receiver` (`layout`, `ranges`) | what has come, and where it lies |
//! | `sender` (`flight`, `rack`, `rtt`, `congestion`) | what was sent, what of it is lost, how much more may go |
//! | `pacing` | when new data may leave, where it leaves at a rate |
//! | `spurious` | the window before it was reduced, and whether it had to be |
//! | `listen`, `cookie` | connections before and after they have a queue pair |
//! | `ecn`, `accurate_ecn` | what is said of marks; how many there were, where both sides count |
//! | `immediate` | words that arrive with the ends of messages |
//! | `fast_open` | openings that carry data, and the servers that take it |

mod accurate_ecn;
pub(crate) mod config;
pub(crate) mod congestion;
mod cookie;
pub(crate) mod ecn;
mod fast_open;
pub(crate) mod flight;
mod immediate;
mod input;
mod layout;
pub(crate) mod listen;
mod mtu_probe;
mod output;
mod pacing;
mod prediction;
pub(crate) mod rack;
mod ranges;
mod receiver;
mod recovery;
pub(crate) mod rtt;
pub(crate) mod segment;
mod sender;
mod spurious;
pub(crate) mod state;
pub(crate) mod tcb;
#[cfg(test)]
mod tests;
mod time_wait;

use core::net::SocketAddr;

pub(crate) use config::{Mapping, TcpConfig};
pub(crate) use cookie::Cookies;
pub(crate) use fast_open::KnownServers;
pub(crate) use listen::{HalfOpen, HandshakeStep, Secret};
pub(crate) use receiver::Claim;
pub(crate) use segment::{Draft, Joined, Room, Segment};
pub(crate) use tcb::{ConnectionEvent, Landed, Placed, Tcb};
pub(crate) use time_wait::{LateAction, TimeWait};

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    /// Ours.
    pub(crate) local: SocketAddr,
    /// Theirs.
    pub(crate) remote: SocketAddr,
}

/// What we say of ourselves when a connection opens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnOffer {
    /// The window that we offer.
    pub(crate) window: u16,
    /// The largest segment that we want.
    pub(crate) mss: u16,
}
