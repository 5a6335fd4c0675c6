//! Clients without a connection: each datagram is answered by itself.

use std::net::SocketAddr;

use anyhow::Result;
use landfall::qpip::{
    Access, Completion, Memory, MemoryRegion, Operation, PostError, QueuePair, QueuePairId,
    QueuePairOptions, Status,
};
use landfall_placement::Random;

use super::{Common, LETTERS};
use crate::serve::ledger::Ledger;
use crate::serve::{Service, answers_anything};

/// So many datagrams are being answered at a time; what comes beside them is lost, as
/// datagrams may be.
const PLACES: u32 = 32;
/// Longer than any.
const PLACE: u64 = 64 << 10;
/// Answers with characters have at most so many.
const ANSWER: u64 = 512;
pub(super) const COMPLETIONS: u32 = 2 * PLACES + 1;

pub(super) struct Datagrams {
    pair: QueuePair,
    local: SocketAddr,
    memory: MemoryRegion,
    random: Random,
}

impl Datagrams {
    pub(super) fn open(common: &Common, local: SocketAddr) -> Result<Self> {
        let options = QueuePairOptions {
            send_depth: PLACES,
            receive_depth: PLACES,
            ..QueuePairOptions::udp()
        };
        let mut pair = common.domain.queue_pair(&options, &common.done, &common.done)?;
        pair.bind(local)?;
        let memory = Memory::zeroed(PLACES as usize * PLACE as usize);
        let memory = common.domain.register(memory, Access::ReadWrite)?;
        // How long an answer is nobody has to guess.
        let mut datagrams = Self { pair, local, memory, random: Random::new([8; 32]) };
        for place in 0..u64::from(PLACES) {
            datagrams.post(place)?;
        }
        Ok(datagrams)
    }

    pub(super) fn id(&self) -> QueuePairId {
        self.pair.id()
    }

    fn post(&mut self, place: u64) -> Result<()> {
        // One byte less than a place: a request of UDP's longest, and no more.
        let part = self.memory.part(place * PLACE..(place + 1) * PLACE - 1)?;
        Ok(self.pair.post_receive(place, &[part])?)
    }

    pub(super) fn completed(
        &mut self,
        next: &Completion,
        common: &Common,
        ledger: &Ledger,
    ) -> Result<()> {
        if next.operation == Operation::Send {
            if next.status == Status::Success {
                ledger.datagram_went(u64::from(next.len));
            }
            // Characters were sent from elsewhere, and their request is posted already.
            return if common.service == Service::Echo { self.post(next.id) } else { Ok(()) };
        }
        if next.status == Status::Success {
            ledger.datagram_came(u64::from(next.len));
        }
        let is_answered = next.status == Status::Success && self.answer(next, common)?;
        // What is echoed lies there until it has left.
        if is_answered && common.service == Service::Echo { Ok(()) } else { self.post(next.id) }
    }

    /// Answers a datagram, if it is to be; true: an answer is on its way.
    fn answer(&mut self, came: &Completion, common: &Common) -> Result<bool> {
        let Some(from) = came.from else { return Ok(false) };
        if answers_anything(from.port()) || from == self.local {
            return Ok(false);
        }
        let part = match common.service {
            Service::Discard => return Ok(false),
            Service::Echo => {
                let start = came.id * PLACE;
                self.memory.part(start..start + u64::from(came.len))?
            }
            Service::Source => {
                let len = 1 + self.random.below(ANSWER);
                let start = self.random.below(LETTERS as u64 - ANSWER);
                common.letters.part(start..start + len)?
            }
        };
        match self.pair.post_send_to(came.id, &[part], from) {
            Ok(()) => Ok(true),
            // Nothing to send back, or too much is under way: a datagram is lost.
            Err(PostError::Empty | PostError::QueueFull | PostError::CompletionQueueFull) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
