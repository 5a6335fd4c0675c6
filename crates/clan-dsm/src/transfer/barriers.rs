//! What is told once writes have arrived. Barriers: has all that was written before arrived?
//! And writes from memory, among those of the program: how much of each has not.
//!
//! Over a link that acknowledges frames nothing has to be sent for one. It is
//! reached when all frames that were loaded before it are acknowledged, and
//! all chains of DMA requests are done that were in a queue when it was asked
//! for.

use alloc::collections::VecDeque;

use landfall_tables::Table;

use crate::error::Ended;
use crate::ids::{BarrierId, WriteId};

/// The barriers of one link.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    /// How many frames were loaded.
    loaded: u64,
    /// In the order of the calls. Each is reached in its turn.
    waiting: VecDeque<Waiting>,
    chains: Chains,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: BarrierId,
    /// So many frames; known once all that was written before it is loaded.
    frames: Option<u64>,
    /// So many chains had been submitted.
    chains: u64,
}

/// Which chains are done, by the order in which they were submitted.
#[derive(Debug, Default)]
struct Chains {
    /// All before this one are done.
    first: u64,
    is_done: VecDeque<bool>,
}

impl Barriers {
    /// One more, after all chains that were submitted so far.
    pub(crate) fn begin(&mut self, id: BarrierId) {
        let chains = self.chains.first + self.chains.is_done.len() as u64;
        self.waiting.push_back(Waiting { id, frames: None, chains });
    }

    /// All that was written before it is loaded, the last of it maybe into a
    /// frame that is being filled.
    pub(crate) fn loaded_up_to(&mut self, id: BarrierId, is_filling: bool) {
        let frames = self.loaded + u64::from(is_filling);
        if let Some(one) = self.waiting.iter_mut().find(|waiting| waiting.id == id) {
            one.frames = Some(frames);
        }
    }

    /// A frame is filled.
    pub(crate) fn frame_loaded(&mut self) {
        self.loaded += 1;
    }

    /// A chain was submitted; its number is to be given back.
    pub(crate) fn chain_submitted(&mut self) -> u64 {
        self.chains.is_done.push_back(false);
        self.chains.first + self.chains.is_done.len() as u64 - 1
    }

    /// A chain is done, well or not.
    pub(crate) fn chain_done(&mut self, number: u64) {
        let Chains { first, is_done } = &mut self.chains;
        let place = number.checked_sub(*first).and_then(|at| is_done.get_mut(at as usize));
        if let Some(place) = place {
            *place = true;
        }
        while is_done.front() == Some(&true) {
            is_done.pop_front();
            *first += 1;
        }
    }

    /// The next barrier that is reached when so many frames are acknowledged.
    pub(crate) fn poll_reached(&mut self, acknowledged: u64) -> Option<BarrierId> {
        let first = self.waiting.front()?;
        let is_reached = first.frames.is_some_and(|frames| frames <= acknowledged)
            && first.chains <= self.chains.first;
        if is_reached { self.waiting.pop_front().map(|reached| reached.id) } else { None }
    }

    /// A barrier that will never be reached; to be asked until there is none.
    pub(crate) fn poll_lost(&mut self) -> Option<BarrierId> {
        self.waiting.pop_front().map(|lost| lost.id)
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    left: u64,
    result: Result<(), Ended>,
}

/// The writes from memory that are under way.
#[derive(Debug)]
pub(crate) struct Writes {
    table: Table<Write>,
}

impl Writes {
    pub(crate) const fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// One more, of so many bytes.
    pub(crate) fn begin(&mut self, len: u64) -> Option<WriteId> {
        self.table.insert(Write { left: len, result: Ok(()) }).map(WriteId::new)
    }

    /// It never began.
    pub(crate) fn forget(&mut self, id: WriteId) {
        if self.table.named(id.index, id.generation).is_some() {
            self.table.remove(id.index);
        }
    }

    /// So many bytes of it need no more care, since they arrived or since that is
    /// over. With the last of them it is done.
    pub(crate) fn done(
        &mut self,
        id: WriteId,
        len: u64,
        result: Result<(), Ended>,
    ) -> Option<Result<(), Ended>> {
        let write = self.table.named_mut(id.index, id.generation)?;
        write.left = write.left.saturating_sub(len);
        write.result = write.result.and(result);
        if write.left > 0 {
            return None;
        }
        self.table.remove(id.index).map(|write| write.result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_with_its_last_byte_and_well_if_all_of_them_are() {
        let mut writes = Writes::new(2);
        let (good, bad) = (writes.begin(10).unwrap(), writes.begin(10).unwrap());
        assert_eq!(writes.begin(1), None, "there are two");
        assert_eq!(writes.done(good, 4, Ok(())), None);
        assert_eq!(writes.done(bad, 4, Err(Ended::Silent)), None);
        assert_eq!(writes.done(good, 6, Ok(())), Some(Ok(())));
        assert_eq!(writes.done(good, 6, Ok(())), None, "it is over");
        assert_eq!(writes.done(bad, 6, Ok(())), Some(Err(Ended::Silent)));
    }

    #[test]
    fn it_waits_for_frames_and_chains_that_were_before_it() {
        let mut barriers = Barriers::default();
        let early = barriers.chain_submitted();
        let other = barriers.chain_submitted();
        barriers.frame_loaded();
        let first = BarrierId::new((0, 0));
        barriers.begin(first);
        let late = barriers.chain_submitted();
        assert_eq!(barriers.poll_reached(1), None, "what was written is not all loaded");
        barriers.loaded_up_to(first, true);
        barriers.frame_loaded();
        barriers.chain_done(other);
        assert_eq!(barriers.poll_reached(2), None, "a chain is not done");
        barriers.chain_done(early);
        assert_eq!(barriers.poll_reached(1), None, "a frame is not acknowledged");
        assert_eq!(barriers.poll_reached(2), Some(first), "whatever came after it");
        assert_eq!(barriers.poll_reached(2), None);
        let second = BarrierId::new((1, 0));
        barriers.begin(second);
        barriers.loaded_up_to(second, false);
        assert_eq!(barriers.poll_reached(2), None);
        barriers.chain_done(late);
        assert_eq!(barriers.poll_reached(2), Some(second));
        barriers.begin(BarrierId::new((2, 0)));
        assert!(barriers.poll_lost().is_some() && barriers.poll_lost().is_none());
    }
}
