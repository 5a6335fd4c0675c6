//! Which of the granted Blocks adapters have, and what they must be told.
//!
//! Each Block is had by an adapter or by the engine, for its whole life; from one
//! to the other it goes only by way of the adapter's word that nothing of it is
//! under way. What an adapter must be told is noted Block by Block, so that it
//! never is more than there are Blocks.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::{PathId, assumed};
use landfall_tables::ChangeQueue;

use crate::offload::{Block, Command};

/// Who has a Block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The engine, or nobody.
    #[default]
    Engine,
    /// An adapter.
    Adapter,
    /// An adapter, until it says that it gave it back.
    Returning,
    /// Nobody; it is free once the adapter says that nothing of it is under way.
    Leaving,
    /// Nobody; it is free once those that were taken back before are.
    Left,
}

/// What the adapter of a Block must be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PendingCommands {
    open: bool,
    grant: bool,
    redirect: bool,
    tell: bool,
}

impl PendingCommands {
    fn is_none(self) -> bool {
        self == Self::default()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    owner: Owner,
    adapter: u8,
    pending: PendingCommands,
}

/// What one adapter must be told.
#[derive(Debug, Default)]
struct Queue {
    /// Blocks with news.
    changed: ChangeQueue,
    /// Blocks that it must close, in order.
    closes: VecDeque<u16>,
}

/// Which Blocks adapters have. Without adapters it is empty and does nothing.
#[derive(Debug)]
pub(crate) struct Mirror {
    entries: Vec<Entry>,
    queues: Vec<Queue>,
    /// Blocks that were taken back and are not free yet, in the order in which
    /// they become so.
    leaving: VecDeque<u16>,
    /// How many ever were among them, and how many have become free.
    left: u64,
    freed: u64,
}

impl Mirror {
    pub(crate) fn new(adapters: u8, blocks: usize) -> Self {
        let count = if adapters == 0 { 0 } else { blocks };
        Self {
            entries: vec![Entry::default(); count],
            queues: (0..adapters).map(|_| Queue::default()).collect(),
            leaving: VecDeque::new(),
            left: 0,
            freed: 0,
        }
    }

    /// Are there adapters at all?
    pub(crate) fn is_on(&self) -> bool {
        !self.queues.is_empty()
    }

    #[inline]
    pub(crate) fn owner(&self, block: u16) -> Owner {
        self.entries.get(usize::from(block)).map_or(Owner::Engine, |entry| entry.owner)
    }

    fn entry(&mut self, block: u16) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(block))
    }

    /// The adapter that has a path.
    fn adapter_of(&self, path: PathId) -> u8 {
        path.0.min(self.queues.len().saturating_sub(1) as u16) as u8
    }

    /// Something of a Block that an adapter has, or shall have, is new.
    fn note(&mut self, block: u16, change: impl FnOnce(&mut PendingCommands)) {
        if let Some(entry) = self.entry(block)
            && entry.owner == Owner::Adapter
        {
            change(&mut entry.pending);
            let adapter = usize::from(entry.adapter);
            if let Some(queue) = self.queues.get_mut(adapter) {
                queue.changed.push(block.into());
            }
        }
    }

    /// A Block was opened: the adapter of its path has it.
    pub(crate) fn open(&mut self, block: u16, path: PathId) {
        let adapter = self.adapter_of(path);
        if let Some(entry) = self.entry(block) {
            *entry = Entry { owner: Owner::Adapter, adapter, pending: PendingCommands::default() };
            self.note(block, |pending| pending.open = true);
        }
    }

    /// More of a Block was granted.
    pub(crate) fn grant(&mut self, block: u16) {
        self.note(block, |pending| pending.grant = true);
    }

    /// Something of a Block is asked for again, though it may have come.
    pub(crate) fn ask(&mut self, block: u16) {
        self.note(block, |pending| pending.tell = true);
    }

    /// The Data of a Block comes over another path. What belongs to another
    /// adapter then is the engine's: an adapter gets only Blocks of which
    /// nothing has come.
    pub(crate) fn redirect(&mut self, block: u16, path: PathId) {
        let adapter = self.adapter_of(path);
        if let Some(entry) = self.entry(block)
            && entry.owner == Owner::Adapter
        {
            if entry.adapter == adapter {
                self.note(block, |pending| pending.redirect = true);
            } else if self.ask_to_close(block) {
                self.set_owner(block, Owner::Returning);
            } else {
                self.set_owner(block, Owner::Engine);
            }
        }
    }

    fn set_owner(&mut self, block: u16, owner: Owner) {
        if let Some(entry) = self.entry(block) {
            entry.owner = owner;
        }
    }

    /// The adapter that has a Block must close it. False where it never heard of it.
    fn ask_to_close(&mut self, block: u16) -> bool {
        let Some(entry) = assumed(self.entry(block), "an adapter has this Block") else {
            return false;
        };
        let pending = core::mem::take(&mut entry.pending);
        let adapter = usize::from(entry.adapter);
        let Some(queue) =
            assumed(self.queues.get_mut(adapter), "a Block of an adapter has one that there is")
        else {
            return false;
        };
        queue.changed.remove(block.into());
        if !pending.open {
            queue.closes.push_back(block);
        }
        !pending.open
    }

    /// A Block is complete, or was taken back, and its place is given up. It may
    /// be used again when [`Mirror::next_free`] names it.
    pub(crate) fn give_back(&mut self, block: u16, is_complete: bool) {
        let owner = match self.owner(block) {
            Owner::Adapter if is_complete => {
                // The adapter saw that before we did: it has forgotten it.
                self.forget_pending(block);
                Owner::Left
            }
            Owner::Adapter if self.ask_to_close(block) => Owner::Leaving,
            Owner::Returning => Owner::Leaving,
            Owner::Leaving => return,
            Owner::Adapter | Owner::Engine | Owner::Left => Owner::Left,
        };
        self.set_owner(block, owner);
        self.leaving.push_back(block);
        self.left += 1;
    }

    fn forget_pending(&mut self, block: u16) {
        if let Some(entry) = self.entry(block) {
            entry.pending = PendingCommands::default();
            let adapter = usize::from(entry.adapter);
            if let Some(queue) = self.queues.get_mut(adapter) {
                queue.changed.remove(block.into());
            }
        }
    }

    /// The next Block whose place is free again.
    pub(crate) fn next_free(&mut self) -> Option<u16> {
        let block = *self.leaving.front()?;
        if self.owner(block) != Owner::Left {
            return None;
        }
        self.leaving.pop_front();
        self.freed += 1;
        self.set_owner(block, Owner::Engine);
        Some(block)
    }

    /// How many Blocks must have become free until all that were taken back have.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// How many Blocks have become free.
    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }

    /// An adapter could not take a Block.
    pub(crate) fn refused(&mut self, adapter: u8, block: u16) {
        if self.is_at(adapter, block) && self.owner(block) == Owner::Adapter {
            self.forget_pending(block);
            self.set_owner(block, Owner::Engine);
        }
    }

    /// An adapter has a Block no longer.
    pub(crate) fn closed(&mut self, adapter: u8, block: u16) {
        if !self.is_at(adapter, block) {
            return;
        }
        match self.owner(block) {
            Owner::Returning => self.set_owner(block, Owner::Engine),
            Owner::Leaving => self.set_owner(block, Owner::Left),
            Owner::Engine | Owner::Adapter | Owner::Left => {}
        }
    }

    /// Is an adapter the one that has, or had, a Block?
    pub(crate) fn is_at(&self, adapter: u8, block: u16) -> bool {
        self.entries.get(usize::from(block)).is_some_and(|entry| entry.adapter == adapter)
    }

    /// An adapter has forgotten all.
    pub(crate) fn lose(&mut self, adapter: u8) {
        let Some(queue) = assumed(
            self.queues.get_mut(usize::from(adapter)),
            "only adapters that there are lose what they have",
        ) else {
            return;
        };
        queue.changed.clear();
        queue.closes.clear();
        for entry in self.entries.iter_mut().filter(|entry| entry.adapter == adapter) {
            entry.pending = PendingCommands::default();
            entry.owner = match entry.owner {
                Owner::Adapter | Owner::Returning | Owner::Engine => Owner::Engine,
                Owner::Leaving | Owner::Left => Owner::Left,
            };
        }
    }

    /// The next thing that an adapter must be told. `block_at` looks a Block up.
    pub(crate) fn next_command<'b>(
        &mut self,
        adapter: u8,
        block_at: impl Fn(u16) -> Option<&'b Block>,
    ) -> Option<Command> {
        let queue = self.queues.get_mut(usize::from(adapter))?;
        while let Some(index) = queue.changed.first() {
            let index = index as u16;
            let known = self.entries.get_mut(usize::from(index)).zip(block_at(index));
            let Some((Entry { pending, .. }, block)) = known else {
                queue.changed.pop();
                continue;
            };
            let command = next_command(pending, index, block);
            if pending.is_none() {
                queue.changed.pop();
            }
            if command.is_some() {
                return command;
            }
        }
        let index = queue.closes.pop_front()?;
        let generation = block_at(index)?.generation();
        Some(Command::Close { index, generation })
    }
}

/// One thing of what is new of a Block. To open it says all there is to say.
fn next_command(pending: &mut PendingCommands, index: u16, block: &Block) -> Option<Command> {
    let generation = block.generation();
    if pending.open {
        *pending = PendingCommands::default();
        return Some(Command::Open { index, block: *block });
    }
    if core::mem::take(&mut pending.redirect) {
        let expected = block.expected();
        let (path, peer) = (expected.path, expected.peer);
        return Some(Command::Redirect { index, generation, path, peer });
    }
    if core::mem::take(&mut pending.grant) {
        return Some(Command::Grant { index, generation, end: block.granted() });
    }
    core::mem::take(&mut pending.tell).then_some(Command::Tell { index, generation })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::{Blocks, Expected, bits_needed};
    use landfall_placement::RegionId;

    const FIRST: PathId = PathId(0);
    const OTHER: PathId = PathId(1);

    /// Blocks that were granted, each of 64 bytes.
    fn granted(count: u16) -> Vec<Block> {
        let mut blocks = vec![Block::default(); usize::from(count)];
        let mut bits = vec![0; bits_needed(blocks.len(), 4)];
        let mut table = Blocks::new(&mut blocks, &mut bits, 4);
        for index in 0..count {
            let memory = RegionId::new(0, 0).span(u64::from(index) * 64, 64);
            assert!(table.open(index, Expected::default(), 0, memory, 4));
        }
        blocks
    }

    fn commands(mirror: &mut Mirror, adapter: u8, blocks: &[Block]) -> Vec<Command> {
        let mut all = Vec::new();
        while let Some(command) =
            mirror.next_command(adapter, |index| blocks.get(usize::from(index)))
        {
            all.push(command);
        }
        all
    }

    #[test]
    fn what_is_new_is_said_once_however_often_it_changed() {
        let blocks = granted(2);
        let mut mirror = Mirror::new(1, 2);
        mirror.open(0, FIRST);
        mirror.grant(0);
        assert_eq!(
            commands(&mut mirror, 0, &blocks),
            [Command::Open { index: 0, block: blocks[0] }],
            "to open it says all"
        );
        for _ in 0..9 {
            mirror.grant(0);
            mirror.ask(0);
            mirror.grant(1);
        }
        let generation = blocks[0].generation();
        let end = blocks[0].granted();
        assert_eq!(
            commands(&mut mirror, 0, &blocks),
            [Command::Grant { index: 0, generation, end }, Command::Tell { index: 0, generation }],
            "and nothing of what the engine has"
        );
    }

    #[test]
    fn places_become_free_in_the_order_in_which_they_were_given_up() {
        let blocks = granted(4);
        let mut mirror = Mirror::new(1, 4);
        for block in 0..3 {
            mirror.open(block, FIRST);
        }
        commands(&mut mirror, 0, &blocks);
        // Two that the adapter has, one that it never heard of, one of the engine's.
        mirror.open(2, FIRST);
        for block in [1, 0, 2, 3] {
            mirror.give_back(block, false);
        }
        assert_eq!((mirror.next_free(), mirror.left(), mirror.freed()), (None, 4, 0));
        let closes = commands(&mut mirror, 0, &blocks);
        assert_eq!(closes.len(), 2, "{closes:?}");
        mirror.closed(0, 0);
        assert_eq!(mirror.next_free(), None, "the first is not closed");
        mirror.closed(7, 1);
        assert_eq!(mirror.next_free(), None, "that is another adapter");
        mirror.closed(0, 1);
        let freed: Vec<_> = core::iter::from_fn(|| mirror.next_free()).collect();
        assert_eq!((freed, mirror.freed()), (vec![1, 0, 2, 3], 4));
    }

    #[test]
    fn from_one_adapter_to_another_a_block_goes_by_way_of_the_engine() {
        let blocks = granted(1);
        let mut mirror = Mirror::new(2, 1);
        mirror.open(0, FIRST);
        commands(&mut mirror, 0, &blocks);
        mirror.redirect(0, OTHER);
        assert_eq!(mirror.owner(0), Owner::Returning, "nobody places it now");
        assert!(matches!(commands(&mut mirror, 0, &blocks)[..], [Command::Close { .. }]));
        assert_eq!(commands(&mut mirror, 1, &blocks), []);
        mirror.closed(0, 0);
        assert_eq!(mirror.owner(0), Owner::Engine);
    }

    #[test]
    fn an_adapter_that_is_lost_holds_nothing_up() {
        let blocks = granted(2);
        let mut mirror = Mirror::new(1, 2);
        mirror.open(0, FIRST);
        mirror.open(1, FIRST);
        commands(&mut mirror, 0, &blocks);
        mirror.give_back(0, false);
        mirror.lose(0);
        assert_eq!((mirror.next_free(), mirror.owner(1)), (Some(0), Owner::Engine));
        assert_eq!(commands(&mut mirror, 0, &blocks), []);
        mirror.closed(0, 0);
        assert_eq!(mirror.next_free(), None, "a late word changes nothing");
    }
}
