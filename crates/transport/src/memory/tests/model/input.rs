//! A string of bytes, read as the arguments of calls.

use landfall_placement::{RegionId, Span, WordFunction, WordOp, WordWidth};

/// What is left of the string.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte; zero behind the end.
    pub(super) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// Mostly within a short region, sometimes at the end of all numbers.
    fn offset(&mut self) -> u64 {
        match self.byte() {
            near @ 0..=239 => u64::from(near),
            far => u64::MAX - u64::from(far - 240),
        }
    }

    pub(super) fn span(&mut self, id: RegionId) -> Span {
        let offset = self.offset();
        let len = match self.byte() {
            short @ 0..=251 => u32::from(short) % 64,
            252 => 255,
            long => u32::MAX - u32::from(long - 253),
        };
        id.span(offset, len)
    }

    /// The length of a buffer for a span: mostly the right one.
    pub(super) fn length_for(&mut self, len: u32) -> usize {
        // Such a span is refused before anybody looks at the length.
        let len = len.min(300) as usize;
        match self.byte() {
            250..=252 => len + 1,
            253.. => len.saturating_sub(1),
            _ => len,
        }
    }

    pub(super) fn word_op(&mut self, region: RegionId) -> WordOp {
        let width = if self.byte().is_multiple_of(2) { WordWidth::Four } else { WordWidth::Eight };
        let aligned = !self.byte().is_multiple_of(8);
        let offset = self.offset();
        let offset = if aligned { offset & !u64::from(width.bytes() - 1) } else { offset };
        WordOp { region, offset, width, function: self.function() }
    }

    fn function(&mut self) -> WordFunction {
        let choice = self.byte();
        // Numbers in both halves, so that a step over the middle shows.
        let number = u64::from_le_bytes([0; 8].map(|_: u8| self.byte()));
        match choice % 8 {
            0 => WordFunction::Load,
            1 => WordFunction::Store(number),
            2 => WordFunction::Swap(number),
            3 => WordFunction::Add(number),
            4 => WordFunction::And(number),
            5 => WordFunction::Or(number),
            6 => WordFunction::Xor(number),
            // A word of equal bytes, as memory is filled at first, or one that was stored.
            _ => {
                let expected = u64::from_le_bytes([self.byte(); 8]);
                WordFunction::CompareSwap { expected, new: number }
            }
        }
    }
}
