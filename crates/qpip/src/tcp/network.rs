//! What the adapter asks a connection beside its segments: whether an error of
//! the network can be about it, and what a byte stream has to tell.

use super::config::Mapping;
use super::tcb::{State, Tcb};
use crate::queue::Queues;

impl Tcb {
    /// Is a segment with this number under way? Anybody can write an error; who
    /// does not see what we send has to guess this (RFC 5927, 4.1).
    pub(crate) fn is_under_way(&self, number: u32) -> bool {
        match self.state {
            State::Closed => false,
            State::SynSent | State::SynReceived => number == self.terms.local_first,
            _ => {
                let position = self.sender.position_of(number);
                let oldest = self.sender.acknowledged() as i64;
                position >= oldest && position < self.sender.flight.next() as i64
            }
        }
    }

    /// The part of a request that was reported last was polled: what came
    /// meanwhile may be told.
    pub(crate) fn handle_polled_part(&mut self, queues: &mut Queues) {
        if self.state.is_synchronized() && matches!(self.mapping, Mapping::Stream) {
            self.receiver.report(&mut queues.receive);
        }
    }
}
