//! [`Pins`]: what a driver holds during one turn.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

use landfall_placement::{InternetSum, RegionId, Span, WordOp};

use super::grant::Window;
use super::pinned::check_length;
use super::slot::{Slot, State};
use super::{AccessError, RawSpan, Regions, Rights, words};

/// The regions that a driver uses during one turn: each is pinned at its first
/// use and released with all others at the end of the turn, which costs one
/// pair of atomic operations per region and turn, not per unit.
///
/// Every use checks id, generation, bounds and right, and that the grant has
/// not ended: a region that is revoked in the middle of a turn is refused from
/// then on, while what was resolved before stays good memory until
/// [`release`](Self::release). A driver that goes to sleep releases first, or
/// nobody can take anything back.
pub struct Pins {
    regions: Regions,
    held: Vec<Held>,
    /// For each hash, one more than the place in `held` of the region that
    /// came last; those before it follow in `Held::before`.
    heads: Box<[u32; Self::HEADS]>,
    /// The place in `held` of the region that was used last.
    last: usize,
}

/// A pin, and the chain of regions with the same hash.
#[derive(Clone, Copy)]
struct Held {
    id: RegionId,
    slot: NonNull<Slot>,
    window: Window,
    before: u32,
}

// SAFETY: pins are counted in atomics and belong to no thread; the memory
// behind them may be used from everywhere, through atomic words.
unsafe impl Send for Pins {}
// SAFETY: nothing is used or changed through a shared reference.
unsafe impl Sync for Pins {}

impl Pins {
    const HEADS: usize = 256;

    /// Holds nothing yet.
    #[must_use]
    pub fn new(regions: &Regions) -> Self {
        Self {
            regions: regions.clone(),
            held: Vec::new(),
            heads: Box::new([0; Self::HEADS]),
            last: 0,
        }
    }

    /// The table whose regions these are.
    #[must_use]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// The address of a span, if it may be used so. It is good until
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// What the check found.
    #[inline]
    pub fn resolve(&mut self, span: &Span, needed: Rights) -> Result<RawSpan, AccessError> {
        self.window(span.region)?.raw(span, needed)
    }

    /// Copies bytes into a span. An aligned word is written in one step, and
    /// anyone who reads it sees all that was written before it.
    ///
    /// # Errors
    /// The span may not be written, or is not as long as the bytes.
    #[inline]
    pub fn copy_in(&mut self, span: &Span, bytes: &[u8]) -> Result<(), AccessError> {
        let window = self.window(span.region)?;
        let range = window.check(span, Rights::WRITE)?;
        check_length(span, bytes.len())?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        words::copy_in(unsafe { window.words() }, range.start, bytes);
        Ok(())
    }

    /// Copies a span out.
    ///
    /// # Errors
    /// The span may not be read, or is not as long as the buffer.
    #[inline]
    pub fn copy_out(&mut self, span: &Span, into: &mut [u8]) -> Result<(), AccessError> {
        let window = self.window(span.region)?;
        let range = window.check(span, Rights::READ)?;
        check_length(span, into.len())?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        words::copy_out(unsafe { window.words() }, range.start, into);
        Ok(())
    }

    /// Copies a span to another one of the same length. The two do not
    /// overlap; where they do, bytes mix.
    ///
    /// # Errors
    /// The one may not be read, or the other not written, or they differ in
    /// length.
    #[inline]
    pub fn copy(&mut self, from: &Span, to: &Span) -> Result<(), AccessError> {
        check_length(to, from.len as usize)?;
        let source = *self.window(from.region)?;
        let at = source.check(from, Rights::READ)?.start;
        let target = *self.window(to.region)?;
        let range = target.check(to, Rights::WRITE)?;
        // SAFETY: both pinned until `release`, which needs `self` exclusively.
        let (source, target) = unsafe { (source.words(), target.words()) };
        words::copy(source, at, target, range.start, range.len());
        Ok(())
    }

    /// Copies a span out, like [`copy_out`](Self::copy_out), without holding
    /// its region any longer than it is held already.
    ///
    /// # Errors
    /// As [`copy_out`](Self::copy_out).
    pub fn peek(&self, span: &Span, into: &mut [u8]) -> Result<(), AccessError> {
        let Some(held) = self.held_under(span.region) else {
            return self.regions.read(span, into);
        };
        held.state().check_live(span.region)?;
        let range = held.window.check(span, Rights::READ)?;
        check_length(span, into.len())?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        words::copy_out(unsafe { held.window.words() }, range.start, into);
        Ok(())
    }

    /// Copies words of memory that is not in the table into a span. Others may write both
    /// meanwhile.
    ///
    /// # Errors
    /// The span may not be written, or there are not as many bytes from byte `at` on.
    pub(crate) fn copy_from_words(
        &mut self,
        from: &[AtomicU64],
        at: usize,
        to: &Span,
    ) -> Result<(), AccessError> {
        let window = self.window(to.region)?;
        let range = window.check(to, Rights::WRITE)?;
        check_length(to, size_of_val(from).saturating_sub(at).min(range.len()))?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        words::copy(from, at, unsafe { window.words() }, range.start, range.len());
        Ok(())
    }

    /// Copies a span out to words of memory that is not in the table.
    ///
    /// # Errors
    /// The span may not be read, or there is no room for it from byte `at` on.
    pub(crate) fn copy_to_words(
        &mut self,
        from: &Span,
        to: &[AtomicU64],
        at: usize,
    ) -> Result<(), AccessError> {
        let window = self.window(from.region)?;
        let range = window.check(from, Rights::READ)?;
        check_length(from, size_of_val(to).saturating_sub(at).min(range.len()))?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        words::copy(unsafe { window.words() }, range.start, to, at, range.len());
        Ok(())
    }

    /// Copies out what a driver received into a span that it guessed. That is
    /// moving its own writing aside, and needs the right to write, not to read.
    ///
    /// # Errors
    /// The span may not be written, or is not as long as the buffer.
    #[inline]
    pub(crate) fn move_aside(&mut self, span: &Span, into: &mut [u8]) -> Result<(), AccessError> {
        let window = self.window(span.region)?;
        let range = window.check(span, Rights::WRITE)?;
        check_length(span, into.len())?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        words::copy_out(unsafe { window.words() }, range.start, into);
        Ok(())
    }

    /// The Internet sum over the bytes of these spans, one after another. It
    /// is the driver's check of what it placed, and needs no right to read.
    ///
    /// # Errors
    /// One of the spans is not within a granted region.
    pub fn sum(&mut self, spans: &[Span]) -> Result<InternetSum, AccessError> {
        let mut sum = InternetSum::new();
        for span in spans {
            let window = self.window(span.region)?;
            let range = window.check(span, Rights::NONE)?;
            // SAFETY: pinned until `release`, which needs `self` exclusively.
            let memory = unsafe { window.words() };
            words::add_to_sum(memory, range.start, range.len(), &mut sum);
        }
        Ok(sum)
    }

    /// Does a word operation; gives what the word held before.
    ///
    /// # Errors
    /// The word may not be used, is not aligned, or not within the region.
    pub fn word(&mut self, op: &WordOp) -> Result<u64, AccessError> {
        let window = self.window(op.region)?;
        let at = window.check_word(op)?;
        // SAFETY: pinned until `release`, which needs `self` exclusively.
        let memory = unsafe { window.words() };
        words::word(memory, at, op.width, op.function).ok_or(AccessError::Misaligned(*op))
    }

    /// The end of the turn: what was resolved must not be used any more.
    pub fn release(&mut self) {
        for held in &self.held {
            self.heads[Self::hash(held.id)] = 0;
            // SAFETY: slots live as long as the table, which `regions` keeps;
            // each entry is one pin, and all are forgotten below.
            unsafe { self.regions.unpin_slot(held.slot.as_ref()) };
        }
        self.held.clear();
    }

    /// The window of a region that is held, now if not before.
    #[inline]
    fn window(&mut self, id: RegionId) -> Result<&Window, AccessError> {
        match self.held.get(self.last) {
            Some(held) if held.id == id => {}
            _ => self.last = self.find(id)?,
        }
        let held = &self.held[self.last];
        held.state().check_live(id)?;
        Ok(&held.window)
    }

    /// The place in `held` of a region that was held before, or is from now on.
    fn find(&mut self, id: RegionId) -> Result<usize, AccessError> {
        if let Some(at) = self.place_of(id) {
            return Ok(at);
        }
        let hash = Self::hash(id);
        let slot = self.regions.slot(id)?;
        let window = self.regions.pin_slot(slot, id)?;
        let (slot, before) = (NonNull::from(slot), self.heads[hash]);
        self.held.push(Held { id, slot, window, before });
        // There are fewer slots than numbers, and each is held at most once.
        self.heads[hash] = self.held.len() as u32;
        Ok(self.held.len() - 1)
    }

    /// The place in `held` of a region, if it is held.
    fn place_of(&self, id: RegionId) -> Option<usize> {
        let mut next = self.heads[Self::hash(id)];
        while let Some(at) = (next as usize).checked_sub(1) {
            let held = &self.held[at];
            if held.id == id {
                return Some(at);
            }
            next = held.before;
        }
        None
    }

    /// The pin of a region, if it is held.
    fn held_under(&self, id: RegionId) -> Option<&Held> {
        let last = self.held.get(self.last).filter(|held| held.id == id);
        last.or_else(|| self.held.get(self.place_of(id)?))
    }

    const fn hash(id: RegionId) -> usize {
        id.index as usize % Self::HEADS
    }
}

impl Held {
    /// Whether the grant lasts.
    #[inline]
    fn state(&self) -> State {
        // SAFETY: slots live as long as the table, which the owner of this keeps.
        unsafe { self.slot.as_ref() }.state()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins").field("held", &self.held.len()).finish_non_exhaustive()
    }
}
