//! Tripsets: several tripwires that are waited for together; and which tripwires belong
//! together: to one memory, to one tripset, and those of a tripset that have fired. Those are
//! lists whose links lie beside each tripwire, so that putting in and taking out cost the same
//! however long they are.

use landfall_placement::assumed;

use alloc::vec::Vec;

use landfall_tables::Table;

use crate::address::TripsetId;
use crate::error::Error;

/// The tripsets of one host.
#[derive(Debug)]
pub(super) struct Sets {
    sets: Table<Set>,
    /// The set of each tripwire, and whether it is in the list of those that
    /// have fired.
    of: Vec<Option<Membership>>,
}

#[derive(Debug, Default)]
struct Set {
    members: Ends,
    /// In the order of their firing.
    fired: Ends,
}

#[derive(Clone, Copy, Debug)]
struct Membership {
    set: u32,
    has_fired: bool,
}

impl Sets {
    pub(super) const fn new(most: usize) -> Self {
        Self { sets: Table::new(most), of: Vec::new() }
    }

    pub(super) fn open(&mut self) -> Result<TripsetId, Error> {
        self.sets.insert(Set::default()).map(TripsetId::of).ok_or(Error::NoRoom)
    }

    pub(super) fn close(&mut self, chains: &mut Chains, id: TripsetId) -> Result<(), Error> {
        while let Some(index) = self.named(id)?.members.first() {
            self.leave(chains, index)?;
        }
        self.sets.remove(id.index);
        Ok(())
    }

    pub(super) fn join(
        &mut self,
        chains: &mut Chains,
        id: TripsetId,
        index: u32,
        has_fired: bool,
    ) -> Result<(), Error> {
        let Some(set) = self.sets.named_mut(id.index, id.generation) else {
            return Err(Error::Unknown);
        };
        if self.of.len() <= index as usize {
            self.of.resize(index as usize + 1, None);
        }
        let of = &mut self.of[index as usize];
        if of.is_some() {
            return Err(Error::Taken);
        }
        *of = Some(Membership { set: id.index, has_fired });
        chains.push(Chain::Member, &mut set.members, index);
        if has_fired {
            chains.push(Chain::Fired, &mut set.fired, index);
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, chains: &mut Chains, index: u32) -> Result<(), Error> {
        let of = self.of.get_mut(index as usize).and_then(Option::take).ok_or(Error::Unknown)?;
        let set = self.sets.get_mut(of.set).ok_or(Error::Unknown)?;
        chains.take_out(Chain::Member, &mut set.members, index);
        if of.has_fired {
            chains.take_out(Chain::Fired, &mut set.fired, index);
        }
        Ok(())
    }

    /// A tripwire fired that had not.
    #[inline]
    pub(super) fn fired(&mut self, chains: &mut Chains, index: u32) {
        if let Some((set, of)) = self.membership(index)
            && !core::mem::replace(&mut of.has_fired, true)
        {
            chains.push(Chain::Fired, &mut set.fired, index);
        }
    }

    /// A tripwire that had fired was cleared.
    pub(super) fn cleared(&mut self, chains: &mut Chains, index: u32) {
        if let Some((set, of)) = self.membership(index)
            && core::mem::take(&mut of.has_fired)
        {
            chains.take_out(Chain::Fired, &mut set.fired, index);
        }
    }

    /// The first of a set that has fired.
    pub(super) fn first_fired(&self, id: TripsetId) -> Result<Option<u32>, Error> {
        Ok(self.named(id)?.fired.first())
    }

    fn membership(&mut self, index: u32) -> Option<(&mut Set, &mut Membership)> {
        let of = self.of.get_mut(index as usize)?.as_mut()?;
        Some((self.sets.get_mut(of.set)?, of))
    }

    fn named(&self, id: TripsetId) -> Result<&Set, Error> {
        self.sets.named(id.index, id.generation).ok_or(Error::Unknown)
    }
}

const NOBODY: u32 = u32::MAX;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Chain {
    /// All of one memory.
    Place = 0,
    /// All of one tripset.
    Member = 1,
    /// Those of one tripset that have fired.
    Fired = 2,
}

/// A list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    first: u32,
    last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self { first: NOBODY, last: NOBODY }
    }
}

impl Ends {
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NOBODY).then_some(self.first)
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// The links of all tripwires.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    links: Vec<[Link; 3]>,
}

impl Chains {
    /// Puts one that is in no such list at the end of this one.
    pub(super) fn push(&mut self, chain: Chain, ends: &mut Ends, index: u32) {
        let alone = [Link { before: NOBODY, after: NOBODY }; 3];
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, alone);
        }
        self.link(chain, index, |link| *link = Link { before: ends.last, after: NOBODY });
        self.link(chain, ends.last, |link| link.after = index);
        ends.last = index;
        if ends.first == NOBODY {
            ends.first = index;
        }
    }

    /// Takes one out of the list that it is in.
    pub(super) fn take_out(&mut self, chain: Chain, ends: &mut Ends, index: u32) {
        let Some(links) =
            assumed(self.links.get(index as usize), "what is in a list has its links")
        else {
            return;
        };
        let Link { before, after } = links[chain as usize];
        self.link(chain, before, |link| link.after = after);
        self.link(chain, after, |link| link.before = before);
        if before == NOBODY {
            ends.first = after;
        }
        if after == NOBODY {
            ends.last = before;
        }
    }

    fn link(&mut self, chain: Chain, index: u32, change: impl FnOnce(&mut Link)) {
        if let Some(links) = self.links.get_mut(index as usize) {
            change(&mut links[chain as usize]);
        }
    }
}
