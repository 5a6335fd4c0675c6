//! Adapters that take Data off the engine: the commands they get, and the reports they give.
//!
//! The engine's table of Blocks stays the one that counts. What an adapter has
//! done is booked there as if the engine had placed it, without a look at the
//! headers that the adapter has checked.

use landfall_placement::Refusal;

use crate::context::Context;
use crate::mirror::Owner;
use crate::network::Network;
use crate::offload::{Command, Landed, Loss, Report, StuId};
use crate::receive::Receives;
use crate::wire::hold;

/// What is the same for all STUs that one report says landed.
#[derive(Clone, Copy)]
struct Landing {
    adapter: u8,
    block: u16,
    generation: u16,
    /// How many of them carried a congestion mark.
    marked: u16,
    /// How long their sender held the grant, as it is on the wire.
    hold: u16,
}

impl Receives {
    /// The next command for an adapter.
    pub(crate) fn poll_command(&mut self, adapter: u8) -> Option<Command> {
        let blocks = &self.granted.blocks;
        self.granted.mirror.next_command(adapter, |index| blocks.get(usize::from(index)))
    }

    /// An adapter took something off the engine.
    pub(crate) fn handle_report(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        adapter: u8,
        report: &Report,
    ) {
        match *report {
            Report::Landed(landed) => {
                let Landed { index, generation, first, bits, marked, hold } = landed;
                let nths = (0..64u16).filter(|nth| bits >> nth & 1 == 1);
                let stus = nths.filter_map(|nth| first.checked_add(nth));
                let of = Landing { adapter, block: index, generation, marked, hold };
                self.book_landed(net, cx, of, stus);
            }
            Report::Through { index, generation, end, marked, hold } => {
                let of = Landing { adapter, block: index, generation, marked, hold };
                self.book_landed(net, cx, of, 0..end);
            }
            Report::Lost { stu_id, why, marked, hold } => {
                if !self.book(net, cx, adapter, stu_id, hold) {
                    return;
                }
                self.granted.table().mark(stu_id.block, marked);
                if why == Loss::Corrupt {
                    cx.refusals.count(Refusal::BadChecksum);
                }
                self.land_stus(net, cx, stu_id.into(), false, why == Loss::MemoryGone);
            }
            Report::Refused { index, generation } => {
                if self.is_generation(index, generation) {
                    self.granted.mirror.refused(adapter, index);
                }
            }
            Report::Closed { index, generation } => {
                if self.is_generation(index, generation) {
                    self.granted.mirror.closed(adapter, index);
                    self.free_what_left();
                }
            }
        }
    }

    /// An adapter has forgotten all of its commands, and will report on none of them: its Blocks are
    /// the engine's.
    pub(crate) fn adapter_lost(&mut self, adapter: u8) {
        self.granted.mirror.lose(adapter);
        self.free_what_left();
    }

    fn is_generation(&self, index: u16, generation: u16) -> bool {
        let block = self.granted.blocks.get(usize::from(index));
        block.is_some_and(|block| block.generation() == generation)
    }

    /// STUs of a Block landed; those of which that is known stay so.
    fn book_landed(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        of: Landing,
        stus: impl Iterator<Item = u16>,
    ) {
        let mut marked = Some(of.marked);
        for stu in stus {
            let stu_id = StuId { block: of.block, generation: of.generation, stu };
            if !self.book(net, cx, of.adapter, stu_id, of.hold) {
                continue;
            }
            if let Some(marked) = marked.take() {
                self.granted.table().mark(of.block, marked);
            }
            self.land_stus(net, cx, stu_id.into(), true, false);
        }
    }

    /// An STU came, to a Block that an adapter has: what is noted when the engine
    /// places it.
    fn book(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        adapter: u8,
        stu_id: StuId,
        hold: u16,
    ) -> bool {
        let mirror = &self.granted.mirror;
        // What it gives back it still had when this came.
        let has = matches!(mirror.owner(stu_id.block), Owner::Adapter | Owner::Returning);
        if !has || !mirror.is_at(adapter, stu_id.block) {
            return false;
        }
        if !self.granted.table().book(stu_id) {
            return false;
        }
        self.note_data(net, cx, stu_id.into(), hold::decode(hold));
        true
    }
}
