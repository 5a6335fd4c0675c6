//! What a switch tells whoever looks after it.

use super::PortId;
use crate::address::HostId;
use crate::error::Ended;

/// What happened at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Packets pass at a port.
    Up {
        /// Which.
        port: PortId,
        /// The host there; `None` for another switch.
        peer: Option<HostId>,
    },
    /// No packets pass at a port any more. If something is plugged in, the link
    /// begins anew.
    Down {
        /// Which.
        port: PortId,
        /// Why.
        why: Ended,
    },
    /// Words had to be thrown away.
    Lost {
        /// How many.
        words: u64,
        /// What had become of them.
        loss: Loss,
    },
    /// So many events found no room.
    Overflow {
        /// How many.
        lost: u64,
    },
}

/// Why words were thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// There is no way to that host, or the group has no members.
    NoRoute {
        /// Where they came from.
        from: PortId,
        /// Whom they were for.
        host: HostId,
    },
    /// The port that they were to leave at is down.
    PortDown {
        /// Where they came from.
        from: PortId,
        /// Where they were to leave.
        at: PortId,
    },
    /// They waited at a port whose link ended.
    Waiting {
        /// Where they were to leave.
        at: PortId,
    },
}
