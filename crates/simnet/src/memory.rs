//! The memory of a node, with every write watched.
//!
//! It plays the part of a real driver's region table: a [`RegionId`] with its
//! generation is the grant, and each use is checked. Beyond that it can say
//! who wrote where ([`Memory::journal`]), and it notices anyone who writes into
//! bytes that were delivered ([`Memory::freeze`]): invariant 1 of the family.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use landfall_placement::{Instant, RegionId, Span, WordFunction, WordOp, WordWidth};

/// Why memory was not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// The region was taken back, or never was.
    Stale,
    /// The span leaves its region.
    OutOfBounds,
    /// A word does not lie at a multiple of its width.
    Misaligned,
    /// There are as many regions as the memory may have.
    Full,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the region was taken back, or never was",
            Self::OutOfBounds => "the span leaves its region",
            Self::Misaligned => "the word does not lie at a multiple of its width",
            Self::Full => "there are as many regions as there may be",
        })
    }
}

impl core::error::Error for MemoryError {}

/// On whose behalf bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A frame landed where the engine guessed; it may be anything.
    Guess,
    /// A payload was written where the engine placed it.
    Placed,
    /// An operation on a word.
    Word,
    /// The user of the node.
    User,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// When.
    pub at: Instant,
    /// On whose behalf.
    pub by: Writer,
    /// Where.
    pub span: Span,
}

/// A write into frozen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The write.
    pub write: Write,
    /// Frozen bytes that it touched.
    pub touched: Span,
    /// Whether they are others now than before.
    pub changed: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = if self.changed { "changed" } else { "was written to again" };
        let Write { at, by, span } = self.write;
        write!(f, "{} was final, and {effect} at {at}: a write by {by:?} to {span}", self.touched)
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    region: Option<Region>,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    frozen: Intervals,
}

/// Regions of bytes, by their ids.
#[derive(Debug)]
pub struct Memory {
    slots: Vec<Slot>,
    most_regions: usize,
    journal: VecDeque<Write>,
    journal_len: usize,
    violation: Option<Violation>,
    violations: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(1 << 16)
    }
}

impl Memory {
    /// Memory of at most this many regions at a time.
    #[must_use]
    pub fn new(most_regions: usize) -> Self {
        Self {
            slots: Vec::new(),
            most_regions: most_regions.min(u32::MAX as usize),
            journal: VecDeque::new(),
            journal_len: 0,
            violation: None,
            violations: 0,
        }
    }

    /// Makes a region of these bytes.
    ///
    /// # Errors
    /// [`MemoryError::Full`].
    pub fn lend(&mut self, bytes: Vec<u8>) -> Result<RegionId, MemoryError> {
        let region = Some(Region { bytes, frozen: Intervals::default() });
        if let Some(index) = self.slots.iter().position(|slot| slot.region.is_none()) {
            let slot = &mut self.slots[index];
            slot.region = region;
            return Ok(RegionId::new(index as u32, slot.generation));
        }
        if self.slots.len() >= self.most_regions {
            return Err(MemoryError::Full);
        }
        self.slots.push(Slot { generation: 0, region });
        Ok(RegionId::new((self.slots.len() - 1) as u32, 0))
    }

    /// Ends a region and gives its bytes back. Its id is never valid again.
    ///
    /// # Errors
    /// [`MemoryError::Stale`].
    pub fn take_back(&mut self, id: RegionId) -> Result<Vec<u8>, MemoryError> {
        self.region(id)?;
        let slot = &mut self.slots[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.region.take().map(|region| region.bytes).ok_or(MemoryError::Stale)
    }

    /// All bytes of a region.
    ///
    /// # Errors
    /// [`MemoryError::Stale`].
    pub fn bytes(&self, id: RegionId) -> Result<&[u8], MemoryError> {
        Ok(&self.region(id)?.bytes)
    }

    /// The bytes of a span.
    ///
    /// # Errors
    /// [`MemoryError::Stale`], [`MemoryError::OutOfBounds`].
    pub fn read(&self, span: Span) -> Result<&[u8], MemoryError> {
        let region = self.region(span.region)?;
        Ok(&region.bytes[range(span, region)?])
    }

    /// Is there such a span?
    ///
    /// # Errors
    /// [`MemoryError::Stale`], [`MemoryError::OutOfBounds`].
    pub fn check(&self, span: Span) -> Result<(), MemoryError> {
        self.read(span).map(|_| ())
    }

    /// Writes bytes to the start of a span; what does not fit is not written.
    ///
    /// # Errors
    /// [`MemoryError::Stale`], [`MemoryError::OutOfBounds`]; then nothing is written.
    pub fn write(
        &mut self,
        at: Instant,
        by: Writer,
        span: Span,
        bytes: &[u8],
    ) -> Result<(), MemoryError> {
        let bytes = &bytes[..bytes.len().min(span.len as usize)];
        let written = Span { len: bytes.len() as u32, ..span };
        let place = range(span, self.region(span.region)?)?.start;
        let region = self.region_mut(span.region)?;
        let place = place..place + bytes.len();
        let touched = region.frozen.overlap(&(place.start as u64..place.end as u64));
        let target = &mut region.bytes[place.clone()];
        let violation = touched.map(|touched| {
            let part = touched.start as usize - place.start..touched.end as usize - place.start;
            (target[part.clone()] != bytes[part], touched)
        });
        target.copy_from_slice(bytes);
        let write = Write { at, by, span: written };
        if let Some((changed, touched)) = violation {
            let touched = span.region.span(touched.start, (touched.end - touched.start) as u32);
            self.violation.get_or_insert(Violation { write, touched, changed });
            self.violations += 1;
        }
        self.note(write);
        Ok(())
    }

    /// Does an operation on a word, and says what it held before.
    ///
    /// # Errors
    /// Any but [`MemoryError::Full`]; then nothing is written.
    pub fn word(&mut self, at: Instant, op: WordOp) -> Result<u64, MemoryError> {
        let width = op.width.bytes();
        if !op.offset.is_multiple_of(u64::from(width)) {
            return Err(MemoryError::Misaligned);
        }
        let span = op.region.span(op.offset, width);
        let old = match (op.width, self.read(span)?) {
            (WordWidth::Four, &[a, b, c, d]) => u64::from(u32::from_ne_bytes([a, b, c, d])),
            (WordWidth::Eight, &[a, b, c, d, e, f, g, h]) => {
                u64::from_ne_bytes([a, b, c, d, e, f, g, h])
            }
            _ => return Err(MemoryError::OutOfBounds),
        };
        // Operands are cut to the width of the word, the expected value too.
        let function = match (op.width, op.function) {
            (WordWidth::Four, WordFunction::CompareSwap { expected, new }) => {
                WordFunction::CompareSwap { expected: expected & u64::from(u32::MAX), new }
            }
            (_, function) => function,
        };
        let new = function.apply(old);
        match op.width {
            WordWidth::Four => self.write(at, Writer::Word, span, &(new as u32).to_ne_bytes())?,
            WordWidth::Eight => self.write(at, Writer::Word, span, &new.to_ne_bytes())?,
        }
        Ok(old)
    }

    /// From now on these bytes are final: a write to them is a [`Violation`].
    ///
    /// # Errors
    /// [`MemoryError::Stale`], [`MemoryError::OutOfBounds`].
    pub fn freeze(&mut self, span: Span) -> Result<(), MemoryError> {
        let range = range(span, self.region(span.region)?)?;
        self.region_mut(span.region)?.frozen.insert(range.start as u64..range.end as u64);
        Ok(())
    }

    /// These bytes may be written again: the user gave them out anew.
    ///
    /// # Errors
    /// [`MemoryError::Stale`], [`MemoryError::OutOfBounds`].
    pub fn thaw(&mut self, span: Span) -> Result<(), MemoryError> {
        let range = range(span, self.region(span.region)?)?;
        self.region_mut(span.region)?.frozen.remove(range.start as u64..range.end as u64);
        Ok(())
    }

    /// The first write into final bytes, if there was one.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.violation
    }

    /// How many writes went into final bytes.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Keeps the last `len` writes from now on.
    pub fn keep_journal(&mut self, len: usize) {
        self.journal_len = len;
        self.journal.clear();
    }

    /// The writes that were kept, the oldest first.
    pub fn journal(&self) -> impl Iterator<Item = &Write> + '_ {
        self.journal.iter()
    }

    fn note(&mut self, write: Write) {
        if self.journal_len == 0 {
            return;
        }
        if self.journal.len() == self.journal_len {
            self.journal.pop_front();
        }
        self.journal.push_back(write);
    }

    fn region(&self, id: RegionId) -> Result<&Region, MemoryError> {
        let slot =
            self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.region.as_ref()).ok_or(MemoryError::Stale)
    }

    fn region_mut(&mut self, id: RegionId) -> Result<&mut Region, MemoryError> {
        let slot = self.slots.get_mut(id.index as usize);
        let slot = slot.filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.region.as_mut()).ok_or(MemoryError::Stale)
    }
}

/// Where a span lies among the bytes of its region.
fn range(span: Span, region: &Region) -> Result<Range<usize>, MemoryError> {
    let end = span.end().and_then(|end| usize::try_from(end).ok());
    let end = end.filter(|end| *end <= region.bytes.len()).ok_or(MemoryError::OutOfBounds)?;
    Ok(end - span.len as usize..end)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Adds a range.
    fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Everything that touches it becomes one with it. Ranges do not
        // overlap, so their ends are in the order of their starts.
        while let Some((&s, &e)) = self.0.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes a range out.
    fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some(Range { start, end }) = self.last_overlap(&range) {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
    }

    /// The part of `range` that is in the set; of several parts the last.
    fn overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let found = self.last_overlap(range)?;
        Some(found.start.max(range.start)..found.end.min(range.end))
    }

    fn last_overlap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (&start, &end) = self.0.range(..range.end).next_back()?;
        (end > range.start && !range.is_empty()).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    const NOW: Instant = Instant::from_micros(3);

    #[test]
    fn invariant_7_a_stale_region_is_refused() {
        let mut memory = Memory::default();
        let old = memory.lend(vec![1; 8]).unwrap();
        assert_eq!(memory.take_back(old), Ok(vec![1; 8]));
        let new = memory.lend(vec![2; 8]).unwrap();
        assert_eq!((new.index, new.generation), (old.index, old.generation + 1));
        assert_eq!(memory.read(old.span(0, 1)), Err(MemoryError::Stale));
        assert_eq!(memory.take_back(old), Err(MemoryError::Stale));
        assert_eq!(memory.write(NOW, Writer::User, old.span(0, 1), &[9]), Err(MemoryError::Stale));
        assert_eq!(memory.bytes(new), Ok(&[2; 8][..]));
        assert_eq!(memory.read(RegionId::new(7, 0).span(0, 0)), Err(MemoryError::Stale));
    }

    #[test]
    fn spans_that_leave_their_region_are_refused() {
        let mut memory = Memory::new(1);
        let region = memory.lend(vec![0; 8]).unwrap();
        for span in [(0, 9), (8, 1), (9, 0), (u64::MAX, 1), (u64::MAX, 0)] {
            let span = region.span(span.0, span.1);
            assert_eq!(memory.read(span), Err(MemoryError::OutOfBounds), "{span}");
            assert_eq!(memory.freeze(span), Err(MemoryError::OutOfBounds), "{span}");
        }
        assert_eq!(memory.read(region.span(8, 0)), Ok(&[][..]));
        assert_eq!(memory.lend(vec![]), Err(MemoryError::Full));
    }

    #[test]
    fn invariant_1_writes_into_final_bytes_are_noticed() {
        let mut memory = Memory::default();
        let region = memory.lend(vec![0; 16]).unwrap();
        memory.freeze(region.span(4, 4)).unwrap();
        memory.write(NOW, Writer::Placed, region.span(0, 4), &[1; 4]).unwrap();
        memory.write(NOW, Writer::Placed, region.span(8, 8), &[1; 8]).unwrap();
        assert_eq!(memory.violation(), None);
        memory.write(NOW, Writer::Guess, region.span(2, 3), &[0; 3]).unwrap();
        let violation = memory.violation().unwrap();
        assert_eq!((violation.touched, violation.changed), (region.span(4, 1), false));
        memory.write(NOW, Writer::Placed, region.span(7, 4), &[5; 4]).unwrap();
        assert_eq!(memory.violations(), 2);
        memory.thaw(region.span(4, 4)).unwrap();
        memory.write(NOW, Writer::User, region.span(0, 16), &[7; 16]).unwrap();
        assert_eq!(memory.violations(), 2);
    }

    #[test]
    fn a_change_of_final_bytes_is_said_to_be_one() {
        let mut memory = Memory::default();
        let region = memory.lend(vec![0; 16]).unwrap();
        memory.freeze(region.span(4, 4)).unwrap();
        memory.write(NOW, Writer::Placed, region.span(0, 16), &[3; 16]).unwrap();
        let violation = memory.violation().unwrap();
        assert!(violation.changed);
        let text = alloc::string::ToString::to_string(&violation);
        assert!(text.contains("changed") && text.contains("Placed"), "{text}");
    }

    #[test]
    fn the_journal_keeps_the_last_writes() {
        let mut memory = Memory::default();
        let region = memory.lend(vec![0; 16]).unwrap();
        memory.keep_journal(2);
        for n in 0..5 {
            memory.write(NOW, Writer::User, region.span(n, 10), &[n as u8]).unwrap();
        }
        let spans: Vec<_> = memory.journal().map(|write| write.span).collect();
        assert_eq!(spans, [region.span(3, 1), region.span(4, 1)]);
    }

    #[test]
    fn words_are_cut_to_their_width() {
        let mut memory = Memory::default();
        let region = memory.lend(vec![0xff; 16]).unwrap();
        let op = |offset, width, function| WordOp { region, offset, width, function };
        let add = op(4, WordWidth::Four, WordFunction::Add(2));
        assert_eq!(memory.word(NOW, add), Ok(0xffff_ffff));
        assert_eq!(memory.read(region.span(4, 4)), Ok(&1u32.to_ne_bytes()[..]));
        assert_eq!(memory.read(region.span(8, 4)), Ok(&[0xff; 4][..]), "nothing carries over");
        let swap = WordFunction::CompareSwap { expected: 7 << 32 | 1, new: 5 };
        assert_eq!(memory.word(NOW, op(4, WordWidth::Four, swap)), Ok(1));
        assert_eq!(memory.read(region.span(4, 4)), Ok(&5u32.to_ne_bytes()[..]));
        let store = op(8, WordWidth::Eight, WordFunction::Store(9));
        assert_eq!(memory.word(NOW, store), Ok(u64::MAX));
        let crooked = op(4, WordWidth::Eight, WordFunction::Load);
        assert_eq!(memory.word(NOW, crooked), Err(MemoryError::Misaligned));
        let outside = op(16, WordWidth::Four, WordFunction::Load);
        assert_eq!(memory.word(NOW, outside), Err(MemoryError::OutOfBounds));
    }

    proptest! {
        #[test]
        fn equals_a_set_of_numbers(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..60),
            asked in (0u64..60, 0u64..12),
        ) {
            let (mut intervals, mut model) = (Intervals::default(), [false; 80]);
            for (insert, start, len) in steps {
                let range = start..start + len;
                model[start as usize..(start + len) as usize].fill(insert);
                if insert { intervals.insert(range) } else { intervals.remove(range) }
            }
            let listed = intervals.0.iter().flat_map(|(&start, &end)| start..end);
            let expected = (0..80).filter(|n| model[*n as usize]);
            prop_assert!(listed.eq(expected));
            let asked = asked.0..asked.0 + asked.1;
            let hit = asked.clone().any(|n| model[n as usize]);
            let overlap = intervals.overlap(&asked);
            prop_assert_eq!(overlap.is_some(), hit);
            for n in overlap.into_iter().flatten() {
                prop_assert!(model[n as usize] && asked.contains(&n));
            }
        }
    }
}
