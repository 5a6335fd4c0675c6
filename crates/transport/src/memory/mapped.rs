//! [`MappedMemory`]: bytes that somebody else has mapped, and that others may write.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that the caller has mapped by itself, such as a file that processes share. Drivers
/// place bytes there and send from there; as with [`SharedMemory`](super::SharedMemory), no
/// slice of it ever exists. It stays mapped until the last clone and the last region that was
/// lent of it are gone.
///
/// Unlike `SharedMemory` it may be of a file that cannot be sealed. Anyone who cuts such a file
/// off takes pages away: then a store of user space ends the process (SIGBUS), and a system
/// call fails with `EFAULT`.
///
/// ```
/// use std::ptr::NonNull;
/// use std::sync::Arc;
///
/// use landfall_transport::memory::{MappedMemory, Regions, Rights};
///
/// struct Pages(Box<[std::sync::atomic::AtomicU64; 512]>);
///
/// let pages = Arc::new(Pages(Box::new([const { std::sync::atomic::AtomicU64::new(0) }; 512])));
/// let base = NonNull::from(&pages.0[0]).cast();
/// // SAFETY: the words live as long as `pages`, and nobody makes a slice of bytes of them.
/// let memory = unsafe { MappedMemory::new(base, 4096, Arc::clone(&pages) as _) };
///
/// let regions = Regions::new(1);
/// let id = regions.lend_mapped_memory(&memory, Rights::WRITE)?;
/// regions.write(&id.span(8, 8), &7_u64.to_ne_bytes())?;
/// assert_eq!(pages.0[1].load(std::sync::atomic::Ordering::Relaxed), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MappedMemory {
    base: NonNull<u8>,
    len: usize,
    owner: Arc<dyn Send + Sync>,
}

// SAFETY: an address and a length; what lies there is used through atomics alone.
unsafe impl Send for MappedMemory {}
// SAFETY: nothing changes behind a shared reference.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// `len` bytes from `base` on, which stay mapped until `owner` is dropped.
    ///
    /// # Safety
    /// `base` is a multiple of eight, and so is `len`. Until `owner` is dropped the bytes are
    /// mapped, initialised, and may be read and written. User space uses them through atomic
    /// words only, or through copies that do: nobody makes a reference to plain bytes of them.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize, owner: Arc<dyn Send + Sync>) -> Self {
        Self { base, len, owner }
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn owner(&self) -> Arc<dyn Send + Sync> {
        Arc::clone(&self.owner)
    }
}

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedMemory").field("len", &self.len).finish_non_exhaustive()
    }
}
