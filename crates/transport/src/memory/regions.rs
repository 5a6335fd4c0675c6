//! [`Regions`]: the table of what is lent, to be shared by all who use it.

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use landfall_placement::{RegionId, Span, WordOp};

use super::grant::{Loans, Window};
use super::pinned::Pinned;
use super::slot::{Backing, Lent, Slot, Slots};
use super::{
    AccessError, LendError, LendRefusal, MappedMemory, Memory, Rights, SharedMemory, TakeBackError,
};

/// The table of lent memory. Clones are the same table.
///
/// The id that [`lend`](Self::lend) gives is the grant: anyone who has it may use
/// the memory within the rights until [`revoke`](Self::revoke) or
/// [`take_back`](Self::take_back). Each use checks id, generation, bounds and
/// right. The first generation of a slot is 1, so that a default id is never
/// good; after its last generation a slot is retired, never reused.
///
/// ```
/// use landfall_transport::memory::{AccessError, Memory, Regions, Rights};
///
/// let regions = Regions::new(16);
/// let id = regions.lend(Memory::zeroed(4096), Rights::WRITE)?;
/// regions.write(&id.span(10, 5), b"hello")?; // a driver or a peer does this
/// let memory = regions.take_back(id)?;
/// assert_eq!(&memory[10..15], b"hello");
/// assert_eq!(regions.write(&id.span(10, 5), b"again"), Err(AccessError::Stale(id)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Regions(Arc<Table>);

struct Table {
    slots: Slots,
    admin: Mutex<Admin>,
    /// The last pin of a revoked region is gone.
    unpinned: Condvar,
    max: u32,
}

/// What changes only under the lock.
struct Admin {
    /// Slots that were used and can be granted again.
    free: Vec<u32>,
    /// Slots below this number were granted before.
    used: u32,
    /// Slots that are granted, or revoked and not yet taken back.
    held: u32,
}

/// What somebody who takes back expects.
#[derive(Clone, Copy)]
enum Kind {
    Own,
    Shared,
}

/// A slot that can be granted, while the table is locked.
struct FreeSlot<'a> {
    slot: &'a Slot,
    index: u32,
    admin: MutexGuard<'a, Admin>,
}

impl FreeSlot<'_> {
    fn grant(mut self, window: Window, backing: Backing) -> RegionId {
        self.admin.held += 1;
        // SAFETY: the lock is held; slots that were not used, and those that
        // can be used again, are Free.
        let generation = unsafe { self.slot.grant(Lent { window, backing }) };
        RegionId::new(self.index, generation)
    }
}

impl Regions {
    /// How long [`take_back`](Self::take_back) waits for those who uses the memory.
    pub const TAKE_BACK_LIMIT: Duration = Duration::from_secs(10);

    /// A table of at most `max_regions` regions at a time. Room for them is
    /// made as they come.
    #[must_use]
    pub fn new(max_regions: u32) -> Self {
        Self::with_first_generation(max_regions, 1)
    }

    /// A table whose slots start late in their lives: for tests of their end.
    #[doc(hidden)]
    #[must_use]
    pub fn with_first_generation(max_regions: u32, generation: u32) -> Self {
        Self(Arc::new(Table {
            slots: Slots::new(generation.max(1)),
            admin: Mutex::new(Admin { free: Vec::new(), used: 0, held: 0 }),
            unpinned: Condvar::new(),
            max: max_regions,
        }))
    }

    /// Grants the use of this memory within these rights. While it is lent,
    /// no reference to its bytes exists.
    ///
    /// ```compile_fail,E0382
    /// # use landfall_transport::memory::{Memory, Regions, Rights};
    /// let memory = Memory::zeroed(4096);
    /// let id = Regions::new(1).lend(memory, Rights::WRITE).unwrap();
    /// println!("{}", memory[0]); // A driver may be writing there.
    /// ```
    ///
    /// # Errors
    /// [`LendError`], which gives the memory back: the table is full, or the
    /// rights allow nothing.
    pub fn lend(&self, memory: Memory, rights: Rights) -> Result<RegionId, LendError> {
        // SAFETY: a `Memory` fulfils all that a window asks for, and goes into
        // the slot beside the window, so that nobody makes a reference to its
        // bytes until the slot is cleared and the window gone.
        let window = unsafe { Window::new(memory.base(), memory.len(), rights) };
        match self.vacant(rights) {
            Ok(vacancy) => Ok(vacancy.grant(window, Backing::Own(memory))),
            Err(why) => Err(LendError { why, memory }),
        }
    }

    /// Grants the use of a part of shared memory. Parts may overlap, and the
    /// memory may be used by its owner and by other processes meanwhile.
    ///
    /// # Errors
    /// The table is full, the rights allow nothing, the part is not within
    /// the memory, or does not start at a multiple of eight.
    pub fn lend_shared(
        &self,
        memory: &SharedMemory,
        part: Range<u64>,
        rights: Rights,
    ) -> Result<RegionId, LendRefusal> {
        let Range { start, end } = part;
        if start > end || end > memory.len() {
            return Err(LendRefusal::OutOfBounds { start, end, len: memory.len() });
        }
        if !start.is_multiple_of(8) {
            return Err(LendRefusal::Misaligned(start));
        }
        // SAFETY: within the mapping, or right behind it.
        let base = unsafe { memory.base().add(start as usize) };
        // SAFETY: a mapping starts on a page, the start is a multiple of eight,
        // the last page is mapped as a whole, and nobody makes a reference to
        // plain bytes of it; the slot keeps it mapped.
        let window = unsafe { Window::new(base, (end - start) as usize, rights) };
        Ok(self.vacant(rights)?.grant(window, Backing::Shared(memory.clone())))
    }

    /// Grants the use of memory that the caller has mapped by itself. Its grant ends as that of
    /// shared memory does.
    ///
    /// # Errors
    /// The table is full, or the rights allow nothing.
    pub fn lend_mapped_memory(
        &self,
        memory: &MappedMemory,
        rights: Rights,
    ) -> Result<RegionId, LendRefusal> {
        // SAFETY: what anyone who made it has promised; the slot keeps it mapped.
        unsafe { self.lend_mapped(memory.base(), memory.len(), rights, memory.owner()) }
    }

    /// Grants the use of memory that a driver has: the kernel's ring, or pages
    /// of its own. Its grant ends as that of shared memory does.
    ///
    /// # Safety
    /// `base` is a multiple of eight. Until `owner` is dropped there are `len`
    /// bytes from it on, filled up to a multiple of eight: initialised, and as
    /// writable as the rights say. Meanwhile user space writes them through
    /// atomic words only, and makes references to plain bytes of them only
    /// while nobody can write those.
    pub(crate) unsafe fn lend_mapped(
        &self,
        base: NonNull<u8>,
        len: usize,
        rights: Rights,
        owner: Arc<dyn Send + Sync>,
    ) -> Result<RegionId, LendRefusal> {
        // SAFETY: the caller's promise; the slot keeps the owner.
        let window = unsafe { Window::new(base, len, rights) };
        Ok(self.vacant(rights)?.grant(window, Backing::Mapped(owner)))
    }

    /// The same, where nobody may write what is on loan.
    ///
    /// # Safety
    /// As for [`lend_mapped`](Self::lend_mapped); the loans live as long as
    /// the owner. References to plain bytes of what is on loan may be made.
    pub(crate) unsafe fn lend_with_loans(
        &self,
        (base, len): (NonNull<u8>, usize),
        rights: Rights,
        loans: NonNull<Loans>,
        owner: Arc<dyn Send + Sync>,
    ) -> Result<RegionId, LendRefusal> {
        // SAFETY: the caller's promise; the slot keeps the owner.
        let window = unsafe { Window::new(base, len, rights).with_loans(loans) };
        Ok(self.vacant(rights)?.grant(window, Backing::Mapped(owner)))
    }

    /// A moment at which nobody has the region pinned, and nobody pins it: no
    /// driver writes there, and no system call is under way that could. None
    /// if somebody has it pinned.
    pub(crate) fn seize(&self, id: RegionId) -> Result<Option<Seized<'_>>, AccessError> {
        let slot = self.slot(id)?;
        // Only then: one that is dropped lets go.
        Ok(slot.seize(id)?.then(|| Seized { regions: self, slot }))
    }

    /// Locks the table and takes a slot that can be granted.
    fn vacant(&self, rights: Rights) -> Result<FreeSlot<'_>, LendRefusal> {
        if rights.is_empty() {
            return Err(LendRefusal::NoRights);
        }
        let mut admin = self.lock();
        let index = match admin.free.pop() {
            Some(index) => index,
            None if admin.used < self.0.max => {
                admin.used += 1;
                admin.used - 1
            }
            None => return Err(LendRefusal::TableFull { max: self.0.max }),
        };
        Ok(FreeSlot { slot: self.0.slots.get_or_make(index), index, admin })
    }

    /// Ends the grant at once: from now on each new use of the id is refused.
    /// Uses under way are not stopped, and hold the memory until they end.
    ///
    /// # Errors
    /// The id names nothing that is granted.
    pub fn revoke(&self, id: RegionId) -> Result<(), AccessError> {
        self.slot(id)?.revoke(id)
    }

    /// Ends the grant, waits until nobody uses the memory any more, and gives
    /// it back. After that nobody writes to it.
    ///
    /// Do not wait on the thread that drives the I/O: its pins end with its
    /// turn. [`try_take_back`](Self::try_take_back) never waits.
    ///
    /// # Errors
    /// The id names no memory that is lent, or it is still in use after
    /// [`TAKE_BACK_LIMIT`](Self::TAKE_BACK_LIMIT); the grant has ended then,
    /// and `take_back` may be called again.
    pub fn take_back(&self, id: RegionId) -> Result<Memory, TakeBackError> {
        self.take_back_within(id, Self::TAKE_BACK_LIMIT)
    }

    /// Like [`take_back`](Self::take_back), but does not wait.
    ///
    /// # Errors
    /// Like `take_back`, at once.
    pub fn try_take_back(&self, id: RegionId) -> Result<Memory, TakeBackError> {
        self.take_back_within(id, Duration::ZERO)
    }

    /// Like [`take_back`](Self::take_back), with a limit of your own.
    ///
    /// # Errors
    /// Like `take_back`.
    pub fn take_back_within(&self, id: RegionId, limit: Duration) -> Result<Memory, TakeBackError> {
        match self.end(id, Kind::Own, limit)? {
            Backing::Own(memory) => Ok(memory),
            Backing::Shared(_) | Backing::Mapped(_) => Err(TakeBackError::Shared(id)),
        }
    }

    /// Ends the grant of shared memory and waits, at most `limit`, until
    /// nobody uses the region any more. The memory itself was never away.
    ///
    /// # Errors
    /// Like [`take_back`](Self::take_back).
    pub fn take_back_shared(&self, id: RegionId, limit: Duration) -> Result<(), TakeBackError> {
        self.end(id, Kind::Shared, limit).map(drop)
    }

    /// Revokes, waits, and empties the slot.
    fn end(&self, id: RegionId, kind: Kind, limit: Duration) -> Result<Backing, TakeBackError> {
        let slot = self.slot(id)?;
        let mut admin = self.lock();
        slot.state().check_held(id)?;
        // SAFETY: the lock is held, and the slot was just seen to hold something.
        let lent = unsafe { slot.lent() };
        match (lent.map(|lent| &lent.backing), kind) {
            (Some(Backing::Own(_)), Kind::Shared) => return Err(TakeBackError::NotShared(id)),
            (Some(Backing::Shared(_) | Backing::Mapped(_)), Kind::Own) => {
                return Err(TakeBackError::Shared(id));
            }
            _ => {}
        }
        match slot.revoke(id) {
            Ok(()) | Err(AccessError::Revoked(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let start = Instant::now();
        loop {
            // SAFETY: the lock is held, and the slot was just seen Revoked.
            if let Some((lent, reusable)) = unsafe { slot.clear() } {
                admin.held -= 1;
                if reusable {
                    admin.free.push(id.index);
                }
                return Ok(lent.backing);
            }
            let waited = start.elapsed();
            let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(TakeBackError::StillInUse { region: id, waited });
            };
            admin = (self.0.unpinned.wait_timeout(admin, left))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            // Somebody else may have taken it meanwhile.
            slot.state().check_held(id)?;
        }
    }

    /// Holds a region: it stays where it is, and cannot be taken back, until
    /// the pin is dropped. This is what keeps memory for an operation that is
    /// in flight; within a turn, [`Pins`](super::Pins) is cheaper.
    ///
    /// # Errors
    /// The id names nothing that is granted.
    pub fn pin(&self, id: RegionId) -> Result<Pinned, AccessError> {
        let slot = self.slot(id)?;
        let window = self.pin_slot(slot, id)?;
        // SAFETY: the pin that was just made is handed over.
        Ok(unsafe { Pinned::new(self.clone(), id, slot, window) })
    }

    /// Counts a pin and gives the window that it holds.
    #[inline]
    pub(super) fn pin_slot(&self, slot: &Slot, id: RegionId) -> Result<Window, AccessError> {
        slot.pin(id)?;
        // SAFETY: pinned just now, and a pinned slot holds something.
        unsafe { slot.lent() }.map(|lent| lent.window).ok_or(AccessError::Unknown(id))
    }

    /// Returns a pin up.
    ///
    /// # Safety
    /// The caller made the pin, and gives it up once.
    #[inline]
    pub(super) unsafe fn unpin_slot(&self, slot: &Slot) {
        // SAFETY: the caller's promise.
        if unsafe { slot.unpin() } {
            self.wake_waiting();
        }
    }

    /// Wakes who waits for memory that somebody used until now.
    fn wake_waiting(&self) {
        // Anyone who waits checks under the lock: with it, no wake-up is lost.
        drop(self.lock());
        self.0.unpinned.notify_all();
    }

    /// Copies a span of a region out.
    ///
    /// # Errors
    /// The span may not be read, or is not as long as the buffer.
    pub fn read(&self, span: &Span, into: &mut [u8]) -> Result<(), AccessError> {
        self.pin(span.region)?.copy_out(span, into)
    }

    /// Copies bytes into a span of a region.
    ///
    /// # Errors
    /// The span may not be written, or is not as long as the bytes.
    pub fn write(&self, span: &Span, bytes: &[u8]) -> Result<(), AccessError> {
        self.pin(span.region)?.copy_in(span, bytes)
    }

    /// Does a word operation; gives what the word held before.
    ///
    /// # Errors
    /// The word may not be used, is not aligned, or not within the region.
    pub fn word(&self, op: &WordOp) -> Result<u64, AccessError> {
        self.pin(op.region)?.word(op)
    }

    /// How long the region is.
    ///
    /// # Errors
    /// The id names nothing that is granted.
    pub fn len(&self, id: RegionId) -> Result<u64, AccessError> {
        Ok(self.pin(id)?.len())
    }

    /// What its grant allows.
    ///
    /// # Errors
    /// The id names nothing that is granted.
    pub fn rights(&self, id: RegionId) -> Result<Rights, AccessError> {
        Ok(self.pin(id)?.rights())
    }

    /// How many regions are granted, or revoked and not yet taken back.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.lock().held
    }

    /// How many there may be at a time.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.0.max
    }

    /// The slot that the id is about, if it was ever granted.
    #[inline]
    pub(super) fn slot(&self, id: RegionId) -> Result<&Slot, AccessError> {
        self.0.slots.get(id.index).ok_or(AccessError::Unknown(id))
    }

    /// A thread that panicked under the lock left nothing half done.
    fn lock(&self) -> MutexGuard<'_, Admin> {
        self.0.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody pins the region while this lives.
pub(crate) struct Seized<'a> {
    regions: &'a Regions,
    slot: &'a Slot,
}

impl Drop for Seized<'_> {
    fn drop(&mut self) {
        // SAFETY: seized when this was made.
        if unsafe { self.slot.let_go() } {
            self.regions.wake_waiting();
        }
    }
}

impl fmt::Debug for Seized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seized")
    }
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regions").field("max", &self.0.max).field("held", &self.held()).finish()
    }
}
