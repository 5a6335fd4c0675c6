//! [`BurstMemory`]: the memory of a burst, by its names.

use landfall_placement::{Area, RegionId, Span};

use crate::memory::{AccessError, LendRefusal, Memory, Pins, RawSpan, Regions, Rights};

/// The memory in which the parts of a burst lie: slots for heads and for what
/// spilled over, which belong to the list, and any region of the table.
///
/// The slots have names like all other memory, so that an engine can say
/// "from there to here". But the names are good here alone, and for
/// reading: the table knows nothing behind them. So the slots belong to nobody
/// else, and are read like any memory of the program.
///
/// This is a view, for as long as the list is borrowed. What the list keeps for the
/// kernel stays with the list: a view cannot be released, nor put in place of another
/// one's memory.
///
/// ```compile_fail,E0599
/// # use landfall_transport::{memory::Regions, scatter::Posted};
/// # let mut posted = Posted::new(&Regions::new(4), 1).unwrap();
/// // The places of a posted list stay pinned: they are released with the list.
/// posted.memory().release();
/// ```
///
/// ```compile_fail,E0614
/// # use landfall_transport::{memory::Regions, scatter::Posted};
/// # let (mut one, mut other) = (Posted::new(&Regions::new(4), 1).unwrap(), Posted::new(&Regions::new(4), 1).unwrap());
/// // The slots that a list names are not exchanged.
/// core::mem::swap(&mut *one.memory(), &mut *other.memory());
/// ```
#[derive(Debug)]
pub struct BurstMemory<'a>(&'a mut SlotMemory);

impl BurstMemory<'_> {
    /// The name of all head slots, one after another.
    #[must_use]
    pub fn heads(&self) -> Area {
        self.0.heads()
    }

    /// The name of all spill slots, one after another.
    #[must_use]
    pub fn spill(&self) -> Area {
        self.0.spill()
    }

    /// The first bytes of a frame of the last burst: as many as its descriptor
    /// asked for, or all. Empty for a slot that got no frame.
    #[must_use]
    #[inline]
    pub fn head(&self, slot: u16) -> &[u8] {
        self.0.head(slot)
    }

    /// Copies bytes from a slot or a region to another place of the same
    /// length in a region. The two do not overlap. Nothing is copied from and
    /// to anywhere.
    ///
    /// # Errors
    /// The one may not be read or the other not written, or they differ in
    /// length. The slots cannot be written.
    #[inline]
    pub fn copy(&mut self, from: &Span, to: &Span) -> Result<(), AccessError> {
        if from.len == 0 && to.len == 0 {
            return Ok(());
        }
        if let Some(slots) = self.0.slots_of(to.region) {
            return Err(slots.not_to_be_written());
        }
        let slots = if from.region == self.0.spill.id {
            &self.0.spill
        } else if from.region == self.0.heads.id {
            &self.0.heads
        } else {
            self.0.pins.copy(from, to)?;
            self.0.copied += u64::from(from.len);
            return Ok(());
        };
        self.0.pins.copy_in(to, slots.bytes(from)?)?;
        self.0.copied += u64::from(from.len);
        Ok(())
    }

    /// Reads the bytes of a slot or a region.
    ///
    /// # Errors
    /// They may not be read, or are not as many as the buffer has.
    #[inline]
    pub fn read(&self, from: &Span, into: &mut [u8]) -> Result<(), AccessError> {
        if from.len == 0 && into.is_empty() {
            return Ok(());
        }
        let Some(slots) = self.0.slots_of(from.region) else {
            return self.0.pins.peek(from, into);
        };
        let bytes = slots.bytes(from)?;
        if bytes.len() != into.len() {
            return Err(AccessError::WrongLength { span: *from, buffer: into.len() });
        }
        into.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes bytes into a region: what an engine made anew, to its place.
    ///
    /// # Errors
    /// They may not be written, or are not as many as the span has.
    #[inline]
    pub fn write(&mut self, to: &Span, bytes: &[u8]) -> Result<(), AccessError> {
        match self.0.slots_of(to.region) {
            Some(slots) => Err(slots.not_to_be_written()),
            None => self.0.pins.copy_in(to, bytes),
        }
    }

    /// How many bytes were copied here, in all.
    #[must_use]
    pub const fn bytes_copied(&self) -> u64 {
        self.0.copied
    }
}

/// What a list owns and holds: its slots, and the regions of its places.
#[derive(Debug)]
pub(super) struct SlotMemory {
    heads: Slots,
    spill: Slots,
    /// For each head slot, how many bytes the last burst left in it.
    filled: Vec<u16>,
    /// Pages, and whatever else is lent.
    pins: Pins,
    copied: u64,
}

impl SlotMemory {
    /// This many slots for heads and spilled bytes.
    ///
    /// # Errors
    /// The table has no room for the names.
    pub(super) fn new(
        regions: &Regions,
        slots: usize,
        (head, spill): (u32, u32),
    ) -> Result<Self, LendRefusal> {
        Ok(Self {
            heads: Slots::new(regions, slots, head)?,
            spill: Slots::new(regions, slots, spill)?,
            filled: vec![0; slots],
            pins: Pins::new(regions),
            copied: 0,
        })
    }

    /// To be read and copied.
    pub(super) const fn view(&mut self) -> BurstMemory<'_> {
        BurstMemory(self)
    }

    pub(super) fn heads(&self) -> Area {
        self.heads.area()
    }

    pub(super) fn spill(&self) -> Area {
        self.spill.area()
    }

    /// The first bytes of a frame of the last burst.
    #[inline]
    pub(super) fn head(&self, slot: u16) -> &[u8] {
        let filled = self.filled.get(usize::from(slot)).copied().unwrap_or(0);
        let from = usize::from(slot) * self.heads.stride;
        self.heads.memory.get(from..from + usize::from(filled)).unwrap_or_default()
    }

    /// Returns up what is held of the regions: before a sleep, or nobody could
    /// take anything back.
    pub(super) fn release(&mut self) {
        self.pins.release();
    }

    /// A place of a descriptor, held until the next release.
    #[inline]
    pub(super) fn place(&mut self, span: &Span) -> Result<RawSpan, AccessError> {
        self.pins.resolve(span, Rights::WRITE)
    }

    /// Where a head slot is.
    pub(super) fn head_slot(&self, slot: usize) -> RawSpan {
        self.heads.slot(slot)
    }

    /// Where a spill slot is.
    pub(super) fn spill_slot(&self, slot: usize) -> RawSpan {
        self.spill.slot(slot)
    }

    /// This many bytes are in this head slot.
    #[inline]
    pub(super) fn fill(&mut self, slot: usize, bytes: u16) {
        if let Some(filled) = self.filled.get_mut(slot) {
            *filled = bytes;
        }
    }

    /// No head slot holds anything.
    pub(super) fn forget(&mut self) {
        self.filled.fill(0);
    }

    /// Leaves all slots and pinned regions to the kernel, for good.
    #[cfg(feature = "io-uring")]
    pub(super) fn abandon(&mut self) {
        self.filled.clear();
        let pins = Pins::new(self.pins.regions());
        std::mem::forget(std::mem::replace(&mut self.pins, pins));
        for slots in [&mut self.heads, &mut self.spill] {
            std::mem::forget(std::mem::replace(&mut slots.memory, Memory::zeroed(0)));
        }
    }

    #[inline]
    fn slots_of(&self, region: RegionId) -> Option<&Slots> {
        [&self.heads, &self.spill].into_iter().find(|slots| slots.id == region)
    }
}

/// Slots of the same length, one after another, under a name.
#[derive(Debug)]
struct Slots {
    regions: Regions,
    /// The table has nothing behind it.
    id: RegionId,
    memory: Memory,
    stride: usize,
}

impl Slots {
    fn new(regions: &Regions, slots: usize, stride: u32) -> Result<Self, LendRefusal> {
        let stride = stride as usize;
        let id = regions.lend(Memory::zeroed(0), Rights::READ).map_err(|error| error.why)?;
        let memory = Memory::zeroed(slots * stride);
        Ok(Self { regions: regions.clone(), id, memory, stride })
    }

    fn area(&self) -> Area {
        Area::new(self.id, 0, self.memory.len() as u64)
    }

    #[inline]
    fn bytes(&self, span: &Span) -> Result<&[u8], AccessError> {
        let range = span.end().map(|end| span.offset as usize..end as usize);
        let bytes = range.and_then(|range| self.memory.get(range));
        bytes.ok_or(AccessError::OutOfBounds { span: *span, len: self.memory.len() as u64 })
    }

    /// The slot as an address. Who writes there does it while the memory is
    /// borrowed exclusively.
    fn slot(&self, slot: usize) -> RawSpan {
        let at = (slot * self.stride).min(self.memory.len());
        // SAFETY: within the memory, or right behind it.
        let ptr = unsafe { self.memory.base().add(at) };
        RawSpan { ptr, len: self.stride.min(self.memory.len() - at) }
    }

    const fn not_to_be_written(&self) -> AccessError {
        AccessError::Forbidden { region: self.id, needed: Rights::WRITE, granted: Rights::READ }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // Nobody can hold what has no bytes for longer than a moment; if so,
        // the name stays used up until the table goes.
        let _ = self.regions.try_take_back(self.id);
    }
}
