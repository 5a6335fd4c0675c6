//! Which link a chain of DMA requests goes over, and as the how many-th.

use alloc::vec::Vec;

use super::Nic;
use crate::ids::{DmaId, LinkId};
use crate::transfer::dma::Done;

#[derive(Clone, Copy, Debug)]
struct Chain {
    dma: DmaId,
    link: LinkId,
    number: u64,
}

/// The chains that are under way, by the slots of their names.
#[derive(Debug, Default)]
pub(super) struct Chains(Vec<Option<Chain>>);

impl Chains {
    /// A chain was given to the DMA engine.
    pub(super) fn submitted(&mut self, dma: DmaId, link: LinkId, number: u64) {
        let index = dma.index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(Chain { dma, link, number });
    }

    /// A chain is done. Over which link did it go, and with which number?
    pub(super) fn done(&mut self, dma: DmaId) -> Option<(LinkId, u64)> {
        let chain = self.0.get_mut(dma.index as usize)?.take_if(|chain| chain.dma == dma)?;
        Some((chain.link, chain.number))
    }
}

impl Nic {
    /// Tells of the chains that are done.
    pub(super) fn settle_chains(&mut self) {
        while let Some(Done { endpoint, dma, result }) = self.dma.poll_done() {
            self.events.push_promised(crate::Event::Dma { endpoint, dma, result });
            let Some((link, number)) = self.chains.done(dma) else { continue };
            if let Some(line) = self.lines.get_mut(link) {
                line.barriers.chain_done(number);
                self.reach_barriers(link);
            }
        }
    }
}
