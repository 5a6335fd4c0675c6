//! Who sends pieces, and how much of what is kept is theirs: what keeps the flood of one source
//! from costing others their packets.

use landfall_placement::assumed;
use landfall_tables::{AgeList, EntryKey, HashIndex, HashSecret, Table};

use crate::wire::Key;

/// The address of a host that pieces come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    bits: u128,
    is_v6: bool,
}

/// The sender of a packet's pieces.
#[inline]
pub(crate) const fn address(key: &Key) -> Address {
    Address { bits: key.source, is_v6: key.protocol == Key::IPV6 }
}

/// What is kept for one source.
#[derive(Debug)]
pub(crate) struct Source {
    address: Address,
    hash: u32,
    /// How much its packets hold.
    pub(crate) bytes: u64,
    /// How many they are.
    pub(crate) count: u32,
    /// Its packets, in the order in which they began.
    pub(crate) packets: AgeList,
}

/// The sources of all packets, and the one that was asked for last.
#[derive(Debug)]
pub(crate) struct Sources {
    table: Table<Source>,
    index: HashIndex,
    /// Stays without any packet until another is asked for: the next packet is
    /// likely to be its.
    recent: Option<u32>,
}

impl Sources {
    pub(crate) fn new(packets: u32, secret: HashSecret) -> Self {
        // One more than packets: the recent source needs none.
        let table = Table::new(packets as usize + 1);
        Self { table, index: HashIndex::new(secret), recent: None }
    }

    /// The entry of this source, which is made if there is none. It stays until
    /// another is asked for, and for as long as it has packets.
    #[inline]
    pub(crate) fn enter(&mut self, address: Address) -> Option<u32> {
        if let Some(recent) = self.recent
            && self.table.get(recent).is_some_and(|source| source.address == address)
        {
            return Some(recent);
        }
        self.enter_other(address)
    }

    fn enter_other(&mut self, address: Address) -> Option<u32> {
        if let Some(recent) = self.recent.take() {
            self.leave(recent);
        }
        let hash = self.index.hash(&address);
        let is_meant = |at| self.table.get(at).is_some_and(|source| source.address == address);
        if let Some(at) = self.index.find_hashed(hash, is_meant) {
            self.recent = Some(at);
            return Some(at);
        }
        let source = Source { address, hash, bytes: 0, count: 0, packets: AgeList::new() };
        let EntryKey { index: at, .. } = self.table.insert(source)?;
        self.index.insert_hashed(hash, at);
        self.recent = Some(at);
        Some(at)
    }

    /// A source without packets is forgotten, unless it was asked for last.
    #[inline]
    pub(crate) fn leave(&mut self, at: u32) {
        let Some(source) =
            assumed(self.table.get(at), "packets that are known have a source that is")
        else {
            return;
        };
        if source.packets.is_empty() && self.recent != Some(at) {
            self.index.remove_hashed(source.hash, at);
            self.table.remove(at);
        }
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&Source> {
        self.table.get(at)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Source> {
        self.table.get_mut(at)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}
