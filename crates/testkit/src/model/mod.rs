//! The simplest possible drivers, a checker of the contract, and operation
//! sequences: the oracle of property tests and fuzzing. Clear, not fast.

mod checked;
mod memory;
mod packet;
mod subjects;
mod under_way;
mod wire;
mod world;

pub use checked::{Checked, Violation};
pub use memory::Memory;
pub use packet::{Packet, cut, gather, put};
pub use subjects::{Findings, placement_bookkeeping};
pub use under_way::{Bounds, UnderWay, pass_time, scatter};
pub use wire::{End, Faults, NaiveWire};

// Decisions, decoded from any bytes: the same for property tests and fuzzing.

/// Gives one decision after another until the bytes end; then zeros.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// The decisions that these bytes stand for.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether all bytes are used up.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next byte.
    pub const fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// The next two bytes, the upper one first.
    pub const fn word(&mut self) -> u16 {
        let upper = self.byte();
        u16::from_be_bytes([upper, self.byte()])
    }

    /// One of `0..bound`: of one byte, or of two where one says too little.
    pub fn below(&mut self, bound: usize) -> usize {
        let choice = if bound > 256 { self.word() } else { self.byte().into() };
        usize::from(choice) % bound.max(1)
    }

    /// One of `0..bound`, of two bytes: they say how far along it lies.
    pub fn scaled(&mut self, bound: u32) -> u32 {
        ((u64::from(self.word()) * u64::from(bound)) >> 16) as u32
    }

    /// The next bytes, or zeros.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    /// One of a list.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Yes or no.
    pub const fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// The next `len` bytes as they are, or fewer if there are no more.
    pub fn raw(&mut self, len: usize) -> &'a [u8] {
        let (raw, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_decisions_in_their_order_and_zeros_follow() {
        let mut choices = Choices::new(&[7, 1, 2, 0x12, 0x34, 3, 9, 8, 5]);
        assert_eq!((choices.byte(), choices.flag(), choices.below(2)), (7, true, 0));
        assert_eq!(choices.word(), 0x1234);
        assert_eq!(choices.pick(&['a', 'b', 'c']), 'a');
        assert_eq!(choices.below(300), (9 << 8 | 8) % 300);
        assert!(!choices.is_over());
        assert_eq!(choices.raw(4), [5]);
        assert!(choices.is_over());
        assert_eq!((choices.byte(), choices.word(), choices.below(0)), (0, 0, 0));
        assert_eq!(choices.raw(1), []);
        let mut choices = Choices::new(&[0x80, 0, 0xff, 0xff, 4, 5]);
        assert_eq!((choices.scaled(10), choices.scaled(10)), (5, 9));
        assert_eq!(choices.array(), [4, 5, 0]);
    }
}
