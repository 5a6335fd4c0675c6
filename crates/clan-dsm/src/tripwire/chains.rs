//! Which tripwires belong together: to one memory, to one tripset, and those of
//! a tripset that have fired. Lists whose links lie beside each tripwire, so that
//! putting in and taking out cost the same however long they are.

use alloc::vec::Vec;

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
        let Some(links) = self.links.get(index as usize) else { return };
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
