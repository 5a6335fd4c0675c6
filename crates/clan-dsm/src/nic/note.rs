//! What is to be done when something that was sent has arrived.

use crate::ids::DmaId;

/// A remark on what a frame carries. The link keeps it with the frame, and
/// gives it back when the frame is acknowledged and nobody holds its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Bytes of a window were written by the program: outgoing tripwires
    /// listen for that.
    Written {
        /// The window's slot.
        window: u32,
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// So much of a chain of DMA requests, which wrote these bytes.
    Dma {
        /// The chain.
        dma: DmaId,
        /// The window's slot.
        window: u32,
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
    },
}
