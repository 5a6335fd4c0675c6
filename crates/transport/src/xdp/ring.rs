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
        let unknown = || io::Error::other("the kernel lays its rings out in an unknown way");
        let len = entries.checked_add(size as usize * size_of::<T>()).ok_or_else(unknown)?;
        let misplaced = [written, taken, flags].into_iter().any(|at| at % 4 != 0 || at >= len);
        if misplaced || entries % align_of::<T>() != 0 || !size.is_power_of_two() {
            return Err(unknown());
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

    /// Is there room for this many entries?
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

    /// The entry behind this many that were not taken yet, if it was written.
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

    /// Takes this many entries that were seen.
    pub(super) fn take(&mut self, entries: u32) {
        self.taken = self.taken.wrapping_add(entries);
    }

    /// Returns the room of what was taken back to the other side.
    pub(super) fn give_back(&self) {
        self.ring.taken().store(self.taken, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::*;

    const AT: libc::xdp_ring_offset =
        libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };
    const SIZE: u32 = 8;

    /// Memory that both sides of a ring map.
    fn memory() -> OwnedFd {
        // SAFETY: takes a name and a number, gives a descriptor or -1.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: it was just opened, and is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: takes two numbers.
        let done = unsafe { libc::ftruncate(std::os::fd::AsRawFd::as_raw_fd(&fd), 4096) };
        assert_eq!(done, 0);
        fd
    }

    fn both_sides(memory: &OwnedFd) -> (Writer<u64>, Reader<u64>) {
        let writer = Writer::map(memory.as_fd(), RECEIVE, &AT, SIZE).unwrap();
        (writer, Reader::map(memory.as_fd(), RECEIVE, &AT, SIZE).unwrap())
    }

    #[test]
    fn entries_come_out_as_they_went_in_also_where_numbers_wrap() {
        let memory = memory();
        let (mut writer, mut reader) = both_sides(&memory);
        for start in [0, u32::MAX - 20] {
            writer.ring.written().store(start, Ordering::Relaxed);
            writer.ring.taken().store(start, Ordering::Relaxed);
            (writer.written, writer.taken) = (start, start);
            (reader.written, reader.taken) = (start, start);
            for round in 0..20u64 {
                assert!(writer.has_room(5), "round {round} from {start}");
                (0..5).for_each(|n| writer.write(10 * round + n));
                assert_eq!(reader.peek(0), None, "not shown yet");
                writer.show();
                assert_eq!(writer.waiting(), 5);
                for n in 0..5u32 {
                    assert_eq!(reader.peek(n), Some(10 * round + u64::from(n)));
                }
                assert_eq!(reader.peek(5), None);
                reader.take(5);
                assert!(!writer.has_room(5), "not given back yet");
                reader.give_back();
            }
        }
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let memory = memory();
        let (mut writer, mut reader) = both_sides(&memory);
        for wrong in [SIZE + 1, u32::MAX, 1 << 31] {
            reader.ring.written().store(wrong, Ordering::Relaxed);
            assert_eq!(reader.peek(0), None, "{wrong}");
        }
        for wrong in [1, SIZE + 1, 1 << 31] {
            writer.ring.taken().store(wrong, Ordering::Relaxed);
            assert_eq!((writer.waiting(), writer.has_room(SIZE + 1)), (0, false), "{wrong}");
        }
        assert!(!writer.needs_wakeup());
    }

    #[test]
    fn a_layout_that_makes_no_sense_is_refused() {
        let memory = memory();
        let map = |at, size| Writer::<u64>::map(memory.as_fd(), RECEIVE, &at, size).err();
        assert!(map(AT, 7).is_some(), "not a power of two");
        assert!(map(libc::xdp_ring_offset { producer: 2, ..AT }, SIZE).is_some());
        assert!(map(libc::xdp_ring_offset { flags: 4096, ..AT }, SIZE).is_some());
        assert!(map(libc::xdp_ring_offset { desc: 193, ..AT }, SIZE).is_some());
        assert!(map(libc::xdp_ring_offset { desc: u64::MAX, ..AT }, SIZE).is_some());
    }
}
