//! Short messages that came with their request. Their memory is known only once the request
//! was looked at, and where the user is asked, later still: so they wait in the engine, as
//! many bytes as were said to be taken and no more, and the driver deposits them.

use alloc::vec::Vec;

use landfall_placement::{Deposit, Instant, Spans};

use super::State;
use crate::endpoint::Endpoint;
use crate::error::Ended;
use crate::ticket::Purpose;

impl Endpoint {
    /// Messages of up to so many bytes are taken with their request: none where payloads go by
    /// an adapter.
    pub(crate) fn takes_eagerly(&self) -> u16 {
        if self.granted.mirror.is_on() { 0 } else { self.config.eager }
    }

    /// The memory of a Transfer is known: if all of it came with its request, it is deposited
    /// there. False: it has to be granted.
    pub(super) fn begin_early(&mut self, index: u32) -> bool {
        let Some(receive) = self.receives.get_mut(index) else { return false };
        if receive.early.is_none() || receive.is_limited() {
            receive.early = None;
            return false;
        }
        receive.state = State::Open;
        let name = (index, self.receives.generation(index));
        // Of a Transfer that has ended since, nothing is left to do.
        if self.early.len() >= self.config.receives {
            let receives = &self.receives;
            self.early.retain(|(index, generation)| receives.named(*index, *generation).is_some());
        }
        self.early.push_back(name);
        true
    }

    /// The next of them that goes to its memory.
    pub(crate) fn next_early(&mut self, into: &mut Spans) -> Option<Deposit<'_>> {
        loop {
            let (index, generation) = self.early.pop_front()?;
            let Some(receive) = self.receives.named_mut(index, generation) else { continue };
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
        now: Instant,
        (index, generation): (u32, u32),
        is_in_place: bool,
    ) {
        let known = self.receives.named(index, generation);
        let Some(len) = known.filter(|known| known.state == State::Open).map(|known| known.len)
        else {
            return;
        };
        if !is_in_place {
            return self.begin_ending_receive(now, index, Ended::MemoryFailed);
        }
        self.stats.eager_received += 1;
        self.stats.bytes_received += len;
        self.complete_receive(now, index);
    }
}
