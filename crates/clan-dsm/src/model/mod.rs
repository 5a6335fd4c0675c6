//! Naive models of the adapter, and what it is compared with them on: the oracle
//! of property tests and fuzzing. Clear, not fast.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `naive` | a host: arrays of bytes, a list of tripwires, one word at a time; tripwires beside naive ones, changed alike and compared |
//! | `mod` | decisions, decoded from any bytes |
//! | `native` | hosts around switches: bursts are split, joined and interleaved |
//! | `pair` | two adapters over a network that loses, doubles, mixes up and damages |

pub mod naive;
pub mod native;
pub mod pair;

/// Gives one decision after another until the bytes end; then zeros.
#[derive(Clone, Debug)]
pub(super) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// One of `0..bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let wide = if bound > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % bound.max(1)
    }

    /// One of a list, which is not empty.
    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Up to `most` bytes as they are.
    pub(super) fn raw(&mut self, most: usize) -> &'a [u8] {
        let len = self.below(most + 1).min(self.bytes.len());
        let (raw, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        raw
    }
}
