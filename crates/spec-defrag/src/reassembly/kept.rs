//! How a fragment waits for the others: its bytes copied, or in its own frame.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The memory of a frame, which a reassembler keeps until the packet is complete.
///
/// What a device put a frame into: a buffer that goes back to its pool when it is dropped, a
/// `Vec<u8>`, or a slice of a capture that lies in memory. Its bytes, and what it holds, stay what they
/// are for as long as it is kept.
pub trait Frame: AsRef<[u8]> {
    /// Whether there are any: bytes of [`Copied`] ones are copied.
    #[doc(hidden)]
    const IS_KEPT: bool = true;

    /// How many bytes of memory it holds: at least those of the frame.
    fn memory(&self) -> usize;

    /// The same, so that sums of it have room.
    #[doc(hidden)]
    fn held(&self) -> usize {
        self.memory().min(u32::MAX as usize)
    }
}

/// In place of a frame that is kept: there is none, its bytes are copied.
#[derive(Clone, Copy, Debug)]
pub enum Copied {}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        match *self {}
    }
}

impl Frame for Copied {
    const IS_KEPT: bool = false;

    fn memory(&self) -> usize {
        match *self {}
    }
}

impl Frame for Vec<u8> {
    fn memory(&self) -> usize {
        self.capacity()
    }
}

impl Frame for Box<[u8]> {
    fn memory(&self) -> usize {
        self.len()
    }
}

/// What holds the slice counts, as far as it is in use for it.
impl Frame for &[u8] {
    fn memory(&self) -> usize {
        self.len()
    }
}

/// A frame as it is offered.
pub(super) enum Offered<'a, F> {
    /// To be copied.
    Bytes(&'a [u8]),
    /// To be kept.
    Frame(&'a mut Option<F>),
}

impl<'a, F: Frame> Offered<'a, F> {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Frame(frame) => frame.as_ref().map_or(&[], AsRef::as_ref),
        }
    }

    /// How much of a buffer it takes to keep it, of which `copied` bytes would be copied.
    #[inline]
    pub(super) fn needs(&self, copied: usize) -> usize {
        match self {
            Self::Bytes(_) => copied,
            Self::Frame(frame) => frame.as_ref().map_or(0, F::held),
        }
    }

    /// The same for as long as it was lent: it is not kept.
    pub(super) fn into_bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Frame(frame) => frame.as_ref().map_or(&[], AsRef::as_ref),
        }
    }
}
