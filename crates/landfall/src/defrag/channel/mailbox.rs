//! [`Mailbox`]: an engine whose units are messages, and which knows nothing else.

use std::collections::VecDeque;

use landfall_placement::{
    Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal, Refusals,
    Spans, Ticket, Timeout, Transmit, Unit,
};
use spec_defrag::admission::frame::MESSAGE_LEN;

/// Messages that wait to leave, for peers with keys and without; more count as lost. A gate has as
/// many frames for its driver.
const MOST: usize = 256;

/// A message of admission control.
pub(super) type Bytes = [u8; MESSAGE_LEN];

/// Messages that came and that are to leave.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    outgoing: VecDeque<(Peer, Bytes)>,
    incoming: Option<(Peer, Bytes)>,
    refusals: Refusals,
}

impl Mailbox {
    /// A message is to leave.
    pub(super) fn post(&mut self, to: Peer, message: Bytes) {
        if self.outgoing.len() < MOST {
            self.outgoing.push_back((to, message));
        } else {
            self.refusals.count(Refusal::NoRoom);
        }
    }
}

impl Engine for Mailbox {
    type Event = (Peer, Bytes);

    fn handle_path(&mut self, _: Instant, _: PathId, _: PathState) {}

    fn guess(&self, _: PathId, _: usize) -> Option<Guess> {
        None
    }

    fn place(&mut self, _: Instant, unit: &Unit<'_>, _: &mut Spans) -> Result<Placement, Refusal> {
        // Nothing else is sealed by anyone who has the keys.
        let message = unit.head.try_into().map_err(|_| self.refusals.count(Refusal::Malformed))?;
        self.incoming = Some((unit.from, message));
        Ok(Placement::Consumed)
    }

    fn handle_placed(&mut self, _: Instant, _: Ticket, _: Landing) {}

    fn poll_transmit(
        &mut self,
        _: Instant,
        _: PathId,
        head: &mut [u8],
        _: &mut Spans,
    ) -> Option<Transmit> {
        let place = head.first_chunk_mut::<MESSAGE_LEN>()?;
        let (to, message) = self.outgoing.pop_front()?;
        *place = message;
        Some(Transmit {
            to,
            head_len: MESSAGE_LEN as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: Ticket::from_raw(0),
        })
    }

    fn handle_sent(&mut self, _: Instant, _: Ticket) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.incoming.take()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}
