//! Registered memory as plain vectors.

use alloc::vec::Vec;

use landfall_placement::{Area, RegionId, Span, WordOp, WordWidth};

/// Regions by their index; each has one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    regions: Vec<(u32, Vec<u8>)>,
}

impl Memory {
    /// No region yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { regions: Vec::new() }
    }

    /// Registers bytes, and names them.
    pub fn lend(&mut self, bytes: Vec<u8>) -> RegionId {
        self.regions.push((0, bytes));
        RegionId::new(self.regions.len() as u32 - 1, 0)
    }

    /// Makes a region this long, if the name is good and it is shorter; zeros follow.
    pub fn grow(&mut self, region: RegionId, len: usize) {
        if let Some((generation, bytes)) = self.regions.get_mut(region.index as usize)
            && *generation == region.generation
            && bytes.len() < len
        {
            bytes.resize(len, 0);
        }
    }

    /// Ends a grant: its name means nothing any more. Gives the new one.
    pub fn renew(&mut self, region: RegionId) -> Option<RegionId> {
        let (generation, _) = self.regions.get_mut(region.index as usize)?;
        if *generation != region.generation {
            return None;
        }
        *generation += 1;
        Some(RegionId::new(region.index, *generation))
    }

    /// The bytes of a region, if the name is good.
    #[must_use]
    pub fn region(&self, region: RegionId) -> Option<&[u8]> {
        let (generation, bytes) = self.regions.get(region.index as usize)?;
        (*generation == region.generation).then_some(bytes)
    }

    /// The bytes of a region, to be changed.
    pub fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        let (generation, bytes) = self.regions.get_mut(region.index as usize)?;
        (*generation == region.generation).then_some(bytes)
    }

    /// The bytes of a span, if it lies in a region.
    #[must_use]
    pub fn get(&self, span: &Span) -> Option<&[u8]> {
        let range = usize::try_from(span.offset).ok()?..usize::try_from(span.end()?).ok()?;
        self.region(span.region)?.get(range)
    }

    /// The bytes of an area, if it lies in a region.
    #[must_use]
    pub fn area(&self, area: &Area) -> Option<&[u8]> {
        let end = area.offset.checked_add(area.len)?;
        let range = usize::try_from(area.offset).ok()?..usize::try_from(end).ok()?;
        self.region(area.region)?.get(range)
    }

    /// The bytes of a span, to be changed.
    pub fn get_mut(&mut self, span: &Span) -> Option<&mut [u8]> {
        let range = usize::try_from(span.offset).ok()?..usize::try_from(span.end()?).ok()?;
        self.region_mut(span.region)?.get_mut(range)
    }

    /// Does a word operation; gives what the word held before.
    pub fn word(&mut self, op: &WordOp) -> Option<u64> {
        let span = op.region.span(op.offset, op.width.bytes());
        if !op.offset.is_multiple_of(u64::from(op.width.bytes())) {
            return None;
        }
        let bytes = self.get_mut(&span)?;
        match op.width {
            WordWidth::Four => {
                let word: &mut [u8; 4] = bytes.try_into().ok()?;
                let old = u64::from(u32::from_ne_bytes(*word));
                *word = (op.function.apply(old) as u32).to_ne_bytes();
                Some(old)
            }
            WordWidth::Eight => {
                let word: &mut [u8; 8] = bytes.try_into().ok()?;
                let old = u64::from_ne_bytes(*word);
                *word = op.function.apply(old).to_ne_bytes();
                Some(old)
            }
        }
    }
}
