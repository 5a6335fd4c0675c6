//! What was done so far.

landfall_placement::counters! {
    /// Counters of an [`Endpoint`](crate::Endpoint); they only grow.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Stats {
        /// STUs that landed.
        pub stus_received: u64,
        /// Bytes of STUs that landed.
        pub bytes_received: u64,
        /// Blocks that were complete: what an adapter would interrupt the host for.
        pub block_notifications: u64,
        /// STUs that were sent, with those that were sent again.
        pub stus_sent: u64,
        /// Bytes of STUs that were sent, with those that were sent again.
        pub bytes_sent: u64,
        /// Messages that left with their request.
        pub eager_sent: u64,
        /// Messages that came with their request and are in place.
        pub eager_received: u64,
        /// Packets without payload that were sent.
        pub control_sent: u64,
        /// Packets without payload that had no room to wait, and were not sent.
        pub control_dropped: u64,
        /// Blocks of which something was asked for again.
        pub blocks_asked_again: u64,
        /// Bytes that counted as lost, since later ones had overtaken them: with those that were
        /// asked for again and lost again.
        pub bytes_lost: u64,
        /// How often nothing came over a link in time.
        pub link_timeouts: u64,
        /// Bytes that were granted and not sent in time: they stopped counting against the window.
        pub bytes_unused: u64,
        /// How often long packets stopped to arrive over a link.
        pub sizes_lost: u64,
        /// Blocks that went over to another link.
        pub blocks_moved: u64,
        /// STUs that came with a mark of congestion.
        pub stus_marked: u64,
        /// Puts and FetchOps that took effect here.
        pub operations_applied: u64,
        /// Puts and FetchOps that were sent again.
        pub operations_repeated: u64,
        /// Connections that came in, did not prove that they hear us, and made
        /// room for others.
        pub half_open_dropped: u64,
    }
}

impl Stats {
    /// How many of a thousand interrupts of an adapter that tells of each STU
    /// were saved: 984 with Blocks of 64 STUs.
    #[must_use]
    pub const fn interrupts_saved_per_mille(&self) -> u64 {
        if self.stus_received == 0 {
            return 0;
        }
        let saved = self.stus_received.saturating_sub(self.block_notifications);
        saved.saturating_mul(1000) / self.stus_received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_added_up() {
        let one = Stats { stus_received: 1, half_open_dropped: 2, ..Stats::default() };
        let mut all = Stats { stus_received: 10, blocks_moved: 5, ..Stats::default() };
        all += one;
        let wanted =
            Stats { stus_received: 11, blocks_moved: 5, half_open_dropped: 2, ..Stats::default() };
        assert_eq!(all, wanted);
    }
}
