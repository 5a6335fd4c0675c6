//! What an adapter tells its user.

use core::fmt;

use landfall_placement::{PathId, Peer};

use crate::address::{
    Address, ApertureId, BarrierId, DmaId, EndpointId, HostId, LinkId, OperationId, ReadId,
    TripwireId, WindowId, WriteId,
};
use crate::error::{Ended, Reason};

/// A key that the members of a group have in common, for the layer that seals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GroupKey {
    /// What all call it; not 0.
    pub number: u32,
    /// The key.
    pub secret: [u8; 32],
}

/// The key is not shown.
impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupKey").field("number", &self.number).finish_non_exhaustive()
    }
}

/// What the user is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A link is up: writes may be sent.
    LinkUp {
        /// The link, of this side's making or of the other's.
        link: LinkId,
        /// Who is there.
        host: HostId,
    },
    /// The native link is up, and leads to a switch.
    SwitchUp {
        /// The link.
        link: LinkId,
    },
    /// A link is gone, and all that went over it. A native link begins anew by itself.
    LinkDown {
        /// The link.
        link: LinkId,
        /// Why.
        why: Ended,
    },
    /// Somebody at another address says to be the host at the other end of this link, which
    /// is being asked whether it lives. Who knows that both are the same, started anew, ends
    /// the old link by [`Nic::replace_link`](crate::Nic::replace_link).
    Contested {
        /// The link that is up.
        link: LinkId,
        /// Where the other one is,
        path: PathId,
        /// and who that is.
        peer: Peer,
    },
    /// A tripwire fired (once or more since this was last told).
    Tripwire {
        /// Which.
        tripwire: TripwireId,
    },
    /// A chain of DMA requests is done: what it wrote is in place at the other
    /// side, or it ended before.
    Dma {
        /// The endpoint whose queue it was in.
        endpoint: EndpointId,
        /// The chain.
        dma: DmaId,
        /// How it ended.
        result: Result<(), Ended>,
    },
    /// A write from memory is done: what it wrote is in place at the other side,
    /// or it ended before. The memory is free.
    Written {
        /// The write.
        write: WriteId,
        /// How it ended.
        result: Result<(), Ended>,
    },
    /// A remote read is done: the bytes are in place here.
    Read {
        /// The read.
        read: ReadId,
        /// How it ended.
        result: Result<(), Ended>,
    },
    /// A remote word was read and changed.
    Word {
        /// The operation.
        operation: OperationId,
        /// What the word held before.
        result: Result<u64, Ended>,
    },
    /// All that was written before the barrier is in place at the other side.
    Barrier {
        /// The barrier.
        barrier: BarrierId,
        /// Whether it was reached.
        result: Result<(), Ended>,
    },
    /// Out-of-band messages, or news of connections, wait at an endpoint.
    OutOfBand {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// The other side refused writes through a window.
    Exception {
        /// The window, if one of those that exist.
        window: Option<WindowId>,
        /// The host that refused.
        host: HostId,
        /// Why.
        reason: Reason,
        /// The header of the packet that was refused, if it was one.
        address: Option<Address>,
    },
    /// Nothing writes any more to the memory of an aperture that was revoked: told where
    /// an adapter may have been about to, at a native link.
    Released {
        /// Its name.
        aperture: ApertureId,
    },
    /// What a group's writer sends by the group's address is sealed with this key, by a layer
    /// below. Who writes is not told.
    GroupKey {
        /// The key.
        key: GroupKey,
    },
    /// Nothing comes or leaves any more that is sealed with the key of this number.
    GroupKeyOver {
        /// The number.
        number: u32,
    },
    /// Events that found no room. What they reported is not lost: tripwires
    /// remember that they fired, endpoints keep their messages.
    Overflow {
        /// How many.
        lost: u64,
    },
}
