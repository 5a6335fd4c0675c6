//! Header prediction: what a connection expects next, said to the offload seam.

use super::config::Mapping;
use super::receiver::Claim;
use super::tcb::Tcb;
use crate::offload::Prediction;
use crate::queue::Queues;

impl Tcb {
    /// The next segment, if all goes as usual; nothing where it does not, or
    /// where nothing has come so far.
    pub(crate) fn predict(&self, queues: &Queues) -> Option<Prediction> {
        if !self.is_synchronized() || !self.receiver.has_begun() {
            return None;
        }
        let (expected, course, places) = self.receiver.predict(&queues.receive)?;
        let (acknowledged, sent) = self.sent_numbers();
        let (edge, recent) = (self.receiver.edge_number(), self.recent_stamp());
        let has_messages = !matches!(self.mapping, Mapping::Stream);
        Some(Prediction {
            expected,
            edge,
            acknowledged,
            sent,
            recent,
            has_messages,
            course,
            places,
        })
    }

    /// Is what was predicted still what comes next?
    #[inline]
    pub(crate) fn is_on_course(&self, next: &Prediction) -> bool {
        self.is_synchronized() && self.receiver.is_on_course(next.expected, next.course)
    }

    /// What may be acknowledged: from here, up to here.
    #[inline]
    pub(crate) fn sent_numbers(&self) -> (u32, u32) {
        (self.sender.number_of(self.sender.acknowledged()), self.sender.next_number())
    }

    /// The latest timestamp of theirs, where both sides use them.
    #[inline]
    pub(crate) fn recent_stamp(&self) -> Option<u32> {
        self.stamps.as_ref().map(super::timestamps::Timestamps::recent)
    }

    /// The right edge of the window, as a number.
    #[inline]
    pub(crate) fn edge_number(&self) -> u32 {
        self.receiver.edge_number()
    }

    /// Claims the place of a segment that came as predicted.
    #[inline]
    pub(crate) fn claim_predicted(&mut self, len: u32, is_pushed: bool) -> Claim {
        self.receiver.claim_predicted(len, is_pushed)
    }
}
