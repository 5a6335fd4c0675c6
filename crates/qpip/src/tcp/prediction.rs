//! Header prediction: what a connection expects next, said to the offload seam; and what came so,
//! claimed.

use landfall_placement::Instant;

use super::config::Mapping;
use super::immediate::Agreement;
use super::receiver::Claim;
use super::segment::Timestamps;
use super::tcb::Tcb;
use crate::offload::{self, Prediction, SentNumbers};
use crate::queue::Queues;

impl Tcb {
    /// The next segment, if all goes as usual; nothing where it does not, or
    /// where nothing has come so far.
    pub(crate) fn predict(&self, queues: &Queues) -> Option<Prediction> {
        if !self.is_synchronized() || !self.receiver.has_begun() {
            return None;
        }
        let (expected, course, places) = self.receiver.predict(&queues.receive)?;
        let SentNumbers { acknowledged, next: sent } = self.sent_numbers();
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

    /// May segments that came one behind another, and say the same, count as one? Not where each
    /// may bring a word.
    #[inline]
    pub(crate) fn joins_arrivals(&self) -> bool {
        self.immediates.agreement == Agreement::Nothing
    }

    /// Is what was predicted still what comes next?
    #[inline]
    pub(crate) fn is_on_course(&self, next: &Prediction) -> bool {
        self.is_synchronized() && self.receiver.is_on_course(next.expected, next.course)
    }

    /// What may be acknowledged.
    #[inline]
    pub(crate) fn sent_numbers(&self) -> SentNumbers {
        SentNumbers {
            acknowledged: self.sender.number_of(self.sender.acknowledged()),
            next: self.sender.next_number(),
        }
    }

    /// The latest timestamp of theirs, where both sides use them.
    #[inline]
    pub(crate) fn recent_stamp(&self) -> Option<u32> {
        self.stamps.as_ref().map(Timestamps::recent)
    }

    /// The right edge of the window, as a number.
    #[inline]
    pub(crate) fn edge_number(&self) -> u32 {
        self.receiver.edge_number()
    }

    /// Claims the place of a segment that came as predicted. Nothing, where it is not what
    /// comes next any more.
    #[inline]
    pub(crate) fn claim_predicted(
        &mut self,
        now: Instant,
        hit: &offload::Segment,
        queues: &Queues,
    ) -> Option<Claim> {
        let stamps = self.stamps.as_ref().zip(hit.timestamp);
        let is_old = stamps.is_some_and(|(stamps, (value, _))| stamps.is_old(now, value));
        if is_old || !self.is_synchronized() {
            return None;
        }
        self.receiver.claim_predicted(hit, &queues.receive)
    }
}
