//! Read-modify-write operations on remote words, of the side that asks.
//!
//! The other side's driver does them in one indivisible step and in its place
//! among the writes, exactly once: the link beneath repeats what was lost and
//! drops what comes twice.

use landfall_placement::Refusal;
use landfall_tables::Table;

use crate::address::Key;
use crate::ids::OperationId;

#[derive(Clone, Copy, Debug)]
struct Operation {
    link: u32,
    nonce: Key,
}

/// The operations of this host that are under way.
#[derive(Debug)]
pub(crate) struct Operations {
    table: Table<Operation>,
}

impl Operations {
    pub(crate) fn new(most: usize) -> Self {
        Self { table: Table::new(most.clamp(1, usize::from(u16::MAX))) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// One more.
    pub(crate) fn begin(&mut self, link: u32, nonce: Key) -> Option<OperationId> {
        self.table.insert(Operation { link, nonce }).map(OperationId::new)
    }

    /// An answer came, good or bad: which operation is over?
    pub(crate) fn answered(
        &mut self,
        link: u32,
        slot: u16,
        nonce: Key,
    ) -> Result<OperationId, Refusal> {
        let index = u32::from(slot);
        let operation = self.table.get(index).filter(|operation| operation.link == link);
        if operation.ok_or(Refusal::UnknownId)?.nonce != nonce {
            return Err(Refusal::WrongKey);
        }
        Ok(self.end(index))
    }

    /// Some operation of a link that is gone; to be asked until there is none.
    pub(crate) fn link_gone(&mut self, link: u32) -> Option<OperationId> {
        let of_it = |index: &u32| self.table.get(*index).is_some_and(|one| one.link == link);
        let index = self.table.indices().find(of_it)?;
        Some(self.end(index))
    }

    fn end(&mut self, index: u32) -> OperationId {
        let id = OperationId::new((index, self.table.generation(index)));
        self.table.remove(index);
        id
    }
}
