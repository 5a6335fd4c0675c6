//! The grants of a link whose Data is expected, and which of them it answers: so round trips
//! are measured, and what is lost is told from what comes late.

use alloc::collections::VecDeque;

use landfall_placement::Instant;

use crate::offload::{StuId, StuRange};

/// How many grants of a link are remembered until their Data comes.
const MOST: usize = 1024;

/// How many of them Data may overtake and still be recognised.
const LOOK_AHEAD: usize = 16;

/// A grant that went out: STUs `from` to before `end` of a Block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issued {
    pub(crate) block: u16,
    pub(crate) generation: u16,
    pub(crate) from: u16,
    pub(crate) end: u16,
    pub(crate) at: Instant,
}

impl Issued {
    fn covers(&self, stu_id: StuId) -> bool {
        self.block == stu_id.block
            && self.generation == stu_id.generation
            && (self.from..self.end).contains(&stu_id.stu)
    }
}

/// The grants of a link whose Data is expected next, in their order.
#[derive(Debug, Default)]
pub(crate) struct IssuedGrants {
    grants: VecDeque<Issued>,
    /// When the latest of them went out that Data has answered.
    pub(crate) answered: Instant,
}

impl IssuedGrants {
    /// A grant goes out.
    pub(crate) fn push(&mut self, issued: Issued) {
        if self.grants.len() < MOST {
            self.grants.push_back(issued);
        }
    }

    /// The grant that an STU answers, which is the first of those that are left then.
    #[inline]
    fn answered_by(&mut self, stu_id: StuId) -> Option<&Issued> {
        if !self.grants.front()?.covers(stu_id) {
            // Those that it has overtaken are complete, or will come again.
            let overtaken = self.grants.iter().take(LOOK_AHEAD);
            let nth = overtaken.clone().position(|issued| issued.covers(stu_id))?;
            self.grants.drain(..nth);
        }
        self.grants.front()
    }

    /// When the last of the STUs that come was granted, if they come for the first time: of
    /// what was asked for again it is not clear which grant it answers.
    #[inline]
    pub(crate) fn granted_at(&mut self, stus: StuRange) -> Option<Instant> {
        let mut stu_id = stus.first;
        loop {
            let issued = *self.answered_by(stu_id)?;
            if issued.end >= stus.end() {
                self.answered = self.answered.max(issued.at);
                return Some(issued.at);
            }
            // A run goes on over the end of a grant.
            stu_id.stu = issued.end;
        }
    }

    /// What is missing of a Block before an STU is asked for again: what comes of that from now
    /// on may answer either grant, and measures no round trip (Karn's rule).
    pub(crate) fn forget(&mut self, block: u16, before: u16) {
        self.grants.retain_mut(|issued| {
            if issued.block == block {
                issued.from = issued.from.max(before);
            }
            issued.from < issued.end
        });
    }
}
