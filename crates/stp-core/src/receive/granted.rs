//! The granted Blocks: what an adapter knows of them, and what only the engine knows.

use crate::offload::bits_needed;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{Instant, Random};

use crate::config::Config;
use crate::mirror::Mirror;
use crate::offload::{Block, Blocks, Run, run, words_per_block};
use crate::receive::Grant;

/// The granted Blocks: what an adapter knows, and what only the engine knows.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) blocks: Vec<Block>,
    bits: Vec<u64>,
    stus: u16,
    pub(crate) grants: Vec<Grant>,
    pub(crate) mirror: Mirror,
    pub(crate) free: Vec<u16>,
}

impl Granted {
    pub(crate) fn new(config: &Config, random: &mut Random) -> Self {
        // Twice as many as a Block is given: where STUs become shorter, they are equal parts of
        // the old ones, and may be little more than half of what the link carries.
        let stus = (words_per_block(1 << config.block_stus) * 2 * 64) as u16;
        let count = config.blocks;
        Self {
            // Where generations begin is one thing more that forged Data must know.
            blocks: (0..count).map(|_| Block::free(random.next_u32() as u16)).collect(),
            bits: vec![0; bits_needed(count, stus)],
            stus,
            grants: vec![Grant::new(0, 0, Instant::ZERO); count],
            mirror: Mirror::new(config.adapters, count),
            free: (0..count).rev().map(|index| index as u16).collect(),
        }
    }

    /// The table of the offload seam.
    #[inline]
    pub(crate) fn table(&mut self) -> Blocks<'_> {
        Blocks::new(&mut self.blocks, &mut self.bits, self.stus)
    }

    #[inline]
    pub(crate) fn block(&self, index: u16) -> &Block {
        &self.blocks[usize::from(index)]
    }

    #[inline]
    pub(crate) fn grant(&mut self, index: u16) -> &mut Grant {
        &mut self.grants[usize::from(index)]
    }

    pub(crate) fn number_of(&self, index: u16) -> u32 {
        self.block(index).expected().number
    }

    pub(crate) fn take_free(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// The place of a Block is given up. It is free at once, where no adapter may
    /// have anything under way to it.
    pub(crate) fn give_back(&mut self, index: u16, is_complete: bool) {
        if self.mirror.is_on() {
            self.mirror.give_back(index, is_complete);
        } else {
            self.free.push(index);
        }
    }
}

impl Granted {
    /// The run of a Block from an STU on: see [`Blocks::run`].
    #[inline]
    fn run(&self, index: u16, from: u16) -> Option<Run> {
        run(&self.blocks, &self.bits, words_per_block(self.stus), index, from)
    }

    /// Of the Blocks from this one on, in the order of their grants, the nth run
    /// behind the highest STU that came.
    #[inline]
    pub(crate) fn nth_run(&self, first: u16, nth: usize) -> Option<Run> {
        let (mut block, mut left) = (first, nth);
        loop {
            let known = self.blocks.get(usize::from(block))?;
            let mut from = known.highest();
            while let Some(run) = self.run(block, from) {
                if left == 0 {
                    return Some(run);
                }
                left -= 1;
                from = run.end;
            }
            block = self.grants.get(usize::from(block))?.behind;
        }
    }

    /// The nth gap of the first of these Blocks, if none expects anything else.
    pub(crate) fn nth_gap(&self, first: u16, nth: usize) -> Option<Run> {
        if self.nth_run(first, 0).is_some() {
            return None;
        }
        let mut run = self.run(first, 0)?;
        for _ in 0..nth {
            run = self.run(first, run.end)?;
        }
        Some(run)
    }
}
