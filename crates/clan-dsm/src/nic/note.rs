//! What is to be done when something that was sent has arrived.

use crate::address::HostId;
use crate::ids::{ApertureId, DmaId, WriteId};

/// Bytes of an aperture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// The aperture's slot at its host.
    pub(crate) slot: u16,
    /// The first byte.
    pub(crate) offset: u64,
    /// How many.
    pub(crate) len: u32,
}

/// A remark on what a frame carries. The link keeps it with the frame, and
/// gives it back when the frame is acknowledged and nobody holds its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The program wrote these bytes of a host (or a group): outgoing
    /// tripwires listen for that.
    Written(HostId, Bytes),
    /// A piece of a write from memory wrote these.
    From(WriteId, HostId, Bytes),
    /// A piece of a chain of DMA requests wrote these.
    Dma(DmaId, HostId, Bytes),
    /// The other side read bytes of ours, so many from this one on. Its tripwires hear of it only
    /// now: until the answer has arrived it may be repeated, and is fetched
    /// again.
    Served(ApertureId, u64, u32),
}
