//! A Transfer has its memory, and begins: it is laid out in Blocks that are granted, or it came
//! with
//! its request and is deposited.

use landfall_placement::{Area, assumed};

use super::{Receives, State};
use crate::context::Context;
use crate::network::Network;
use crate::wire::Reason;

impl Receives {
    /// Joins an offered Transfer and memory: it begins, or is too long.
    pub(crate) fn give_memory(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        memory: Area,
        takes_part: bool,
    ) {
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        receive.memory = Some(memory);
        let wanted = receive.wanted();
        let fits = wanted <= memory.len;
        receive.len = wanted.min(memory.len);
        // Of two limits it would not be sure which one its sender heard last.
        if !fits && (!takes_part || receive.limit.is_some()) {
            return self.reject_offer(net, cx, index, Reason::TooLong);
        }
        if !self.begin_receive(net, cx, index) {
            self.reject_offer(net, cx, index, Reason::TooLong);
        }
    }

    /// A Transfer has its memory: lays out its Blocks. False where it has more
    /// of them than can be numbered.
    pub(crate) fn begin_receive(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
    ) -> bool {
        if self.begin_early(cx, index) {
            return true;
        }
        let Some(receive) = self.assumed(index) else {
            return false;
        };
        let (connection, most_block) = (receive.connection, receive.most_block);
        let stu = net.smallest_stu(connection);
        let Some(receive) = self.assumed_mut(index) else {
            return false;
        };
        let Some(memory) = assumed(receive.memory, "a Transfer begins when it has its memory")
        else {
            return false;
        };
        // Buffers lie at multiples of their size in a region, Blocks at multiples of theirs in
        // a buffer. They are powers of two, whatever STUs are: those change with the path.
        let block_size = (u32::from(stu) << cx.config.block_stus).ilog2() as u8;
        let block_size = block_size.min(most_block).min(cx.config.buffer);
        let size = 1u64 << block_size;
        let lead = memory.offset & (size - 1);
        let blocks = if receive.len == 0 { 0 } else { (lead + receive.len).div_ceil(size) };
        // More Blocks than there are numbers.
        let Ok(blocks) = u32::try_from(blocks) else { return false };
        receive.block_size = block_size;
        receive.lead = lead as u32;
        receive.blocks = blocks;
        receive.rest = receive.len;
        receive.state = State::Open;
        if receive.is_limited() {
            let len = receive.len;
            self.send_limit(net, cx, index, len);
        }
        if blocks == 0 {
            self.complete_receive(net, cx, index);
        } else {
            self.make_ready(net, index);
        }
        true
    }

    /// The memory of a Transfer is known: if all of it came with its request, it is deposited
    /// there. False: it has to be granted.
    pub(crate) fn begin_early(&mut self, cx: &mut Context, index: u32) -> bool {
        let Some(receive) = self.assumed_mut(index) else {
            return false;
        };
        if receive.early.is_none() || receive.is_limited() {
            receive.early = None;
            return false;
        }
        receive.state = State::Open;
        let name = (index, self.table.generation(index));
        // Of a Transfer that has ended since, nothing is left to do.
        if self.early.len() >= cx.config.receives {
            let receives = &self.table;
            self.early.retain(|(index, generation)| receives.named(*index, *generation).is_some());
        }
        self.early.push_back(name);
        true
    }
}
