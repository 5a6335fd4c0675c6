//! The DMA queues of a [`SharedNode`]: the processor that asks is the engine.

use std::ops::Range;
use std::sync::Arc;

use super::aperture::SharedLocal;
use super::remote::SharedRemote;
use super::{SharedNode, trouble};
use crate::clan::dma::sealed::DirectMemory;
use crate::clan::dma::{DirectQueue, DmaEngine};
use crate::clan::{Access, Error};

impl DirectMemory for SharedNode {
    fn write_now(
        from: &SharedLocal,
        range: Range<u64>,
        to: &SharedRemote,
        offset: u64,
    ) -> Result<(), Error> {
        let len = range.end.saturating_sub(range.start);
        let mut writer = to.another_writer()?;
        writer.write_from(offset, from.memory(), range).map_err(trouble::memory)?;
        writer.commit();
        to.touch_own_now(offset, len, Access::Write);
        Ok(())
    }

    fn read_now(
        from: &SharedRemote,
        offset: u64,
        into: &SharedLocal,
        range: Range<u64>,
    ) -> Result<(), Error> {
        from.read_into(offset, into.memory(), range)
    }

    fn word_now(to: &SharedRemote, offset: u64, word: u64) -> Result<(), Error> {
        let mut writer = to.another_writer()?;
        writer.store(offset, word.to_le()).map_err(trouble::memory)?;
        writer.commit();
        to.touch_own_now(offset, 8, Access::Write);
        Ok(())
    }

    fn owns(&self, local: Option<&SharedLocal>, remote: &SharedRemote) -> bool {
        let node = &self.0.node;
        local.is_none_or(|local| Arc::ptr_eq(&local.aperture().node, node)) && remote.is_of(node)
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.0.node.is_down() { Err(Error::NodeGone) } else { Ok(()) }
    }

    fn wake_sleepers(&self) {
        self.0.node.sleeper.wake();
    }
}

impl DmaEngine for SharedNode {
    type DmaQueue = DirectQueue<Self>;

    fn dma_queue(&self, depth: usize) -> Result<DirectQueue<Self>, Error> {
        DirectQueue::new(self, depth)
    }
}
