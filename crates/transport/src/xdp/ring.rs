//! Rings that this process shares with the kernel: one side writes entries, the
//! other takes them, and neither waits (`Documentation/networking/af_xdp.rst`).

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::Mapping;

/// Which ring: the option that makes it, and the offset that maps it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) option: libc::c_int,
    offset: libc::off_t,
}

/// Frames for the kernel to receive into.
pub(super) const FILL: Kind = Kind {
    option: libc::XDP_UMEM_FILL_RING,
    offset: libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
};
/// Frames that were sent.
pub(super) const COMPLETION: Kind = Kind {
    option: libc::XDP_UMEM_COMPLETION_RING,
    offset: libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
};
/// Frames that came.
pub(super) const RECEIVE: Kind =
    Kind { option: libc::XDP_RX_RING, offset: libc::XDP_PGOFF_RX_RING };
/// Frames to be sent.
pub(super) const SEND: Kind = Kind { option: libc::XDP_TX_RING, offset: libc::XDP_PGOFF_TX_RING };

/// What a ring has for entries.
///
/// # Safety
/// Any bytes of that length are one, and it is laid out as the kernel has it.
pub(super) unsafe trait Entry: Copy {}

// SAFETY: a number: the address of a frame.
unsafe impl Entry for u64 {}
// SAFETY: numbers, in a structure of the kernel's own layout.
unsafe impl Entry for libc::xdp_desc {}

/// A mapped ring.
#[derive(Debug)]
struct Ring<T> {
    /// Keeps all that is named below mapped.
    _mapping: Mapping,
    /// How many entries were ever written.
    written: NonNull<AtomicU32>,
    /// How many entries were ever taken.
    taken: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// A power of two.
    size: u32,
}

// SAFETY: the ring is this owner's alone, beside the kernel, and the mapping
// belongs to no thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps a ring that a socket has.
    fn map(
        socket: BorrowedFd<'_>,
        kind: Kind,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let offset = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let [written, taken, flags, entries] =
            [offset(at.producer)?, offset(at.consumer)?, offset(at.flags)?, offset(at.desc)?];
        let len = entries + size as usize * size_of::<T>();
        let misplaced = [written, taken, flags].into_iter().any(|at| at % 4 != 0 || at + 4 > len);
        if misplaced || entries % align_of::<T>() != 0 || !size.is_power_of_two() {
            return Err(io::Error::other("the kernel lays its rings out in an unknown way"));
        }
        let mapping = Mapping::shared_at(socket, kind.offset, len)?;
        let base = mapping.base();
        // SAFETY: all of them lie within the mapping, as was just checked.
        let [written, taken, flags, entries] =
            [written, taken, flags, entries].map(|at| unsafe { base.add(at) });
        Ok(Self {
            _mapping: mapping,
            written: written.cast(),
            taken: taken.cast(),
            flags: flags.cast(),
            entries: entries.cast(),
            size,
        })
    }

    fn written(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which both sides use as an atomic.
        unsafe { self.written.as_ref() }
    }

    fn taken(&self) -> &AtomicU32 {
        // SAFETY: likewise.
        unsafe { self.taken.as_ref() }
    }

    /// Does the kernel want to be called before it goes on?
    fn needs_wakeup(&self) -> bool {
        // SAFETY: likewise.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// The entry of this number, which runs over the end of the ring.
    fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: there are `size` entries behind each other in the mapping.
        unsafe { self.entries.add((number & (self.size - 1)) as usize) }
    }
}

/// A ring that this side writes.
#[derive(Debug)]
pub(super) struct Writer<T> {
    ring: Ring<T>,
    /// How many entries were written, some of them not yet shown.
    written: u32,
    /// As far as the other side is known to have come.
    taken: u32,
}

impl<T: Entry> Writer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        kind: Kind,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, kind, at, size)?, written: 0, taken: 0 })
    }

    /// Is there room for so many entries?
    pub(super) fn has_room(&mut self, entries: u32) -> bool {
        let room = |writer: &Self| writer.ring.size - writer.written.wrapping_sub(writer.taken);
        if room(self) < entries {
            self.look();
        }
        room(self) >= entries
    }

    /// Writes an entry, for which there is room; it is not shown yet.
    pub(super) fn write(&mut self, entry: T) {
        debug_assert!(self.written.wrapping_sub(self.taken) < self.ring.size);
        // SAFETY: an entry of the ring, which is this side's until it is shown.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
    }

    /// Shows what was written.
    pub(super) fn show(&self) {
        self.ring.written().store(self.written, Ordering::Release);
    }

    /// How many entries the other side has not taken yet.
    pub(super) fn waiting(&mut self) -> u32 {
        self.look();
        self.written.wrapping_sub(self.taken)
    }

    fn look(&mut self) {
        let taken = self.ring.taken().load(Ordering::Acquire);
        // The kernel counts right. Should somebody else have written here,
        // nothing more is believed than what can be.
        if self.written.wrapping_sub(taken) <= self.ring.size {
            self.taken = taken;
        }
    }

    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that this side reads.
#[derive(Debug)]
pub(super) struct Reader<T> {
    ring: Ring<T>,
    /// How many entries were taken, some of them not yet given back.
    taken: u32,
    /// As far as the other side is known to have come.
    written: u32,
}

impl<T: Entry> Reader<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        kind: Kind,
        at: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(socket, kind, at, size)?, taken: 0, written: 0 })
    }

    /// The entry behind so many that were not taken yet, if it was written.
    pub(super) fn peek(&mut self, behind: u32) -> Option<T> {
        let known = |reader: &Self| reader.written.wrapping_sub(reader.taken);
        if known(self) <= behind {
            let written = self.ring.written().load(Ordering::Acquire);
            if written.wrapping_sub(self.taken) <= self.ring.size {
                self.written = written;
            }
        }
        if known(self) <= behind {
            return None;
        }
        let entry = self.ring.entry(self.taken.wrapping_add(behind));
        // SAFETY: an entry that the other side has written, and will not
        // write again until it is given back; any bytes are one.
        Some(unsafe { entry.read() })
    }

    /// Takes so many entries that were seen.
    pub(super) fn take(&mut self, entries: u32) {
        self.taken = self.taken.wrapping_add(entries);
    }

    /// Gives the room of what was taken back to the other side.
    pub(super) fn give_back(&self) {
        self.ring.taken().store(self.taken, Ordering::Release);
    }
}
