//! The tables of the firmware: granted Blocks, and what was not said of them.

use stp_core::offload::{Block, Blocks, words_per_block};

use crate::machine::{Exhausted, Sram, Store};

/// Granted Blocks, a bit for each of their STUs that came, and one for each of
/// which the host has not heard.
#[derive(Debug)]
pub struct Tables<'s> {
    blocks: Store<'s, Block>,
    came: Store<'s, u64>,
    untold: Store<'s, u64>,
    stus: u16,
}

/// How many bytes of SRAM a Block of at most so many STUs takes.
const fn bytes_per_block(stus: u16) -> usize {
    size_of::<Block>() + 2 * size_of::<u64>() * words_per_block(stus)
}

impl<'s> Tables<'s> {
    /// Tables in this storage, for Blocks of at most so many STUs; both
    /// lists of bits have [`words_per_block`] words for each Block.
    #[must_use]
    pub fn new(
        blocks: impl Into<Store<'s, Block>>,
        came: impl Into<Store<'s, u64>>,
        untold: impl Into<Store<'s, u64>>,
        stus: u16,
    ) -> Self {
        Self { blocks: blocks.into(), came: came.into(), untold: untold.into(), stus }
    }

    /// How many Blocks fit into what is left of the SRAM.
    #[must_use]
    pub fn most(sram: &Sram, stus: u16) -> usize {
        sram.room_for(bytes_per_block(stus)).min(1 << 16)
    }

    /// Reserves the SRAM for so many Blocks.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn reserve(sram: &mut Sram, blocks: usize, stus: u16) -> Result<(), Exhausted> {
        sram.reserve("blocks", blocks, bytes_per_block(stus))
    }

    /// Tables of so many Blocks in memory of their own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(blocks: usize, stus: u16) -> Self {
        let words = blocks.saturating_mul(words_per_block(stus));
        Self::new(
            Store::filled_with(blocks, Block::default),
            Store::filled_with(words, || 0),
            Store::filled_with(words, || 0),
            stus,
        )
    }

    /// The table of Blocks.
    #[inline]
    pub(super) fn blocks(&mut self) -> Blocks<'_> {
        Blocks::new(&mut self.blocks, &mut self.came, self.stus)
    }

    /// The bits of what was not said of a Block.
    fn untold(&mut self, index: u16) -> &mut [u64] {
        let words = words_per_block(self.stus);
        let start = usize::from(index) * words;
        self.untold.get_mut(start..start + words).unwrap_or(&mut [])
    }

    /// An STU landed, and the host has not heard of it.
    #[inline]
    pub(super) fn note_untold(&mut self, index: u16, stu: u16) {
        if let Some(word) = self.untold(index).get_mut(usize::from(stu / 64)) {
            *word |= 1 << (stu % 64);
        }
    }

    /// The host hears of all of a Block. Was there anything?
    pub(super) fn forget_untold(&mut self, index: u16) -> bool {
        let words = self.untold(index);
        let had = words.iter().any(|word| *word != 0);
        words.fill(0);
        had
    }

    /// The host hears of the first 64 STUs of which it has not heard all: the
    /// first of them, and a bit for each of which it has not.
    pub(super) fn take_untold(&mut self, index: u16) -> Option<(u16, u64)> {
        let mut words = self.untold(index).iter_mut().enumerate();
        let (nth, word) = words.find(|(_, word)| **word != 0)?;
        let first = u16::try_from(nth * 64).ok()?;
        Some((first, core::mem::take(word)))
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.blocks().clear();
        self.untold.fill(0);
    }
}
