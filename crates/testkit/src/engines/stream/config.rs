//! What a user chooses, is told, and may have done wrong.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use landfall_placement::{Duration, PathId, Peer};

use landfall_placement::Area;

/// One end of a connection whose frames carry real headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station<Ip> {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IP address.
    pub ip: Ip,
    /// Its TCP port.
    pub port: u16,
}

/// Which headers stand before the stream's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Whole frames: Ethernet, IPv4 and TCP, so that the kernel and devices cut
    /// long segments and fill checksums in.
    EthernetIpv4Tcp {
        /// This end.
        local: Station<Ipv4Addr>,
        /// The other end.
        remote: Station<Ipv4Addr>,
    },
    /// Whole frames: Ethernet, IPv6 and TCP.
    EthernetIpv6Tcp {
        /// This end.
        local: Station<Ipv6Addr>,
        /// The other end.
        remote: Station<Ipv6Addr>,
    },
    /// A TCP header alone, for paths that carry datagrams between peers.
    Bare {
        /// The other end.
        peer: Peer,
        /// The port of this end.
        local_port: u16,
        /// The port of the other end.
        remote_port: u16,
    },
}

impl Framing {
    /// What the other end writes before its headers.
    #[must_use]
    pub const fn reversed(self, local_peer: Peer) -> Self {
        match self {
            Self::EthernetIpv4Tcp { local, remote } => {
                Self::EthernetIpv4Tcp { local: remote, remote: local }
            }
            Self::EthernetIpv6Tcp { local, remote } => {
                Self::EthernetIpv6Tcp { local: remote, remote: local }
            }
            Self::Bare { local_port, remote_port, .. } => {
                Self::Bare { peer: local_peer, local_port: remote_port, remote_port: local_port }
            }
        }
    }
}

/// The bounds and habits of a [`Stream`](super::Stream) engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The headers.
    pub framing: Framing,
    /// The path that carries the connection.
    pub path: PathId,
    /// The most payload bytes under way, up to 1 GiB; also the largest window
    /// that is offered.
    pub window: u32,
    /// The most payload bytes in one unit that the device cuts, up to 62 KiB.
    pub super_payload: u32,
    /// Every this many segments with payload, one goes without the timestamp
    /// option, so that heads vary in length; 0: none does.
    pub short_head_every: u32,
    /// With [`Framing::Bare`]: put a checksum over payloads and check it.
    /// Frames always carry one.
    pub checksum: bool,
    /// How long an acknowledgement may wait for company.
    pub ack_delay: Duration,
    /// After how long what was not acknowledged is sent again; doubled each
    /// time, up to 16 times as long.
    pub retransmit_after: Duration,
    /// After how many unanswered repetitions the connection has failed.
    pub give_up_after: u32,
    /// The most areas posted in each direction, up to 4096.
    pub areas: usize,
    /// The most transmissions that drivers hold, and the most placements under
    /// way, up to 4096.
    pub under_way: usize,
    /// The most pieces that may wait behind a hole, up to 256.
    pub islands: usize,
}

impl Config {
    /// The usual bounds.
    #[must_use]
    pub const fn new(framing: Framing, path: PathId) -> Self {
        Self {
            framing,
            path,
            window: 16 << 20,
            super_payload: 62 << 10,
            short_head_every: 8,
            checksum: false,
            ack_delay: Duration::from_millis(1),
            retransmit_after: Duration::from_millis(20),
            give_up_after: 10,
            areas: 64,
            under_way: 256,
            islands: 32,
        }
    }

    /// The same with heads that do not vary while nothing is lost: what a real
    /// TCP does, and what coalescing in the receiver's kernel needs.
    #[must_use]
    pub const fn steady(self) -> Self {
        Self { short_head_every: 0, ..self }
    }

    /// Every value moved into its range.
    pub(super) fn in_range(self) -> Self {
        Self {
            window: self.window.clamp(1, 1 << 30),
            super_payload: self.super_payload.clamp(1, 62 << 10),
            retransmit_after: self.retransmit_after.max(Duration::from_micros(1)),
            areas: self.areas.clamp(1, 4096),
            under_way: self.under_way.clamp(1, 4096),
            islands: self.islands.clamp(1, 256),
            ..self
        }
    }
}

/// What the engine tells its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is open in both directions.
    Connected,
    /// Posted memory is full, or the stream has ended or failed; it is the
    /// user's again.
    Received {
        /// The posted memory.
        posted: Area,
        /// How much of it the stream filled.
        len: u64,
    },
    /// The other side has all of this memory, which is the user's again.
    Sent {
        /// The memory.
        memory: Area,
    },
    /// The connection failed before the other side had all of this memory,
    /// which is the user's again.
    SendFailed {
        /// The memory.
        memory: Area,
    },
    /// The other side will send no more, and all that it sent is in place.
    Finished,
    /// The other side knows that nothing more will be sent.
    Closed,
    /// The other side stopped answering.
    Failed,
}

/// What the user asked for and cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The memory has no bytes, or its end is not a number.
    BadMemory,
    /// The memory overlaps memory that is being received into.
    Overlap,
    /// As much is posted as the configuration allows; ask again after an event.
    Busy,
    /// This direction was closed, has ended, or failed.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadMemory => "the memory has no bytes, or its end is not a number",
            Self::Overlap => "the memory overlaps memory that is being received into",
            Self::Busy => "as much is posted as the configuration allows",
            Self::Closed => "this direction was closed, has ended, or failed",
        })
    }
}

impl core::error::Error for Error {}
