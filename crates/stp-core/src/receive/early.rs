//! Short messages that came with their request. Their memory is known only once the request
//! was looked at, and where the user is asked, later still: so they wait in the engine, as
//! many bytes as were said to be taken and no more, and the driver deposits them.

use alloc::vec::Vec;

use landfall_placement::{Deposit, Spans};

use super::State;
use crate::context::Context;
use crate::error::Ended;
use crate::network::Network;
use crate::receive::Receives;
use crate::ticket::Purpose;

impl Receives {
    /// The next of them that goes to its memory.
    pub(crate) fn next_early(&mut self, into: &mut Spans) -> Option<Deposit<'_>> {
        loop {
            let (index, generation) = self.early.pop_front()?;
            let Some(receive) = self.table.named_mut(index, generation) else { continue };
            if receive.state != State::Open {
                continue;
            }
            let (Some(bytes), Some(memory)) = (receive.early.take(), receive.memory) else {
                continue;
            };
            into.push(memory.span(0, bytes.len() as u32)).ok()?;
            self.deposited = Vec::from(bytes);
            let ticket = Purpose::Early { index, generation }.pack();
            return Some(Deposit { bytes: &self.deposited, ticket });
        }
    }

    /// It is there, or its memory failed.
    pub(crate) fn land_early(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        generation: u32,
        is_in_place: bool,
    ) {
        let known = self.table.named(index, generation);
        if let Some(len) = known.filter(|known| known.state == State::Open).map(|known| known.len) {
            if !is_in_place {
                return self.begin_ending_receive(net, cx, index, Ended::MemoryFailed);
            }
            cx.stats.eager_received += 1;
            cx.stats.bytes_received += len;
            self.complete_receive(net, cx, index);
        }
    }
}
