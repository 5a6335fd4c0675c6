//! [`Submission`]: what is asked of the management without an answer.

use landfall_placement::{Instant, RegionId};
use qpip::{CompletionQueueId, DomainId, ListenerId, MemoryKey, QueuePairId};

use super::Core;

/// Something that its user has dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Submission {
    DestroyPair(QueuePairId),
    ForgetQueue(CompletionQueueId),
    DropMemory(MemoryKey, RegionId),
    DropDomain(DomainId),
    StopListening(ListenerId),
}

impl Core {
    /// What was posted before, by any thread that the submitting one has heard from, comes
    /// first.
    pub(super) fn submitted(&mut self, now: Instant, submission: Submission) {
        self.take_posts(now);
        match submission {
            Submission::DestroyPair(id) => self.destroy_pair(now, id),
            Submission::ForgetQueue(id) => self.forget_queue(id),
            Submission::DropMemory(key, region) => self.drop_memory(key, region),
            Submission::DropDomain(id) => self.drop_domain(id),
            Submission::StopListening(id) => self.stop_listening(id),
        }
        self.hear();
    }
}
