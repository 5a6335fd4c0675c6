//! [`MtuProbe`]: a segment of data that is longer than its path is known to carry (RFC 4821, 7).
//!
//! What is looked for, and when, is known where the sizes of paths are
//! ([`SizeSearch`](crate::ip::size_search::SizeSearch)). Here it is decided whether a segment may
//! be such a probe, and what became of it: a probe that alone is lost was too long, and nothing
//! is congested.

use alloc::boxed::Box;

use super::sender::{Recovery, Sender, Sizes};
use crate::ip::size_search::ProbeOutcome;

/// The least number of segments that follow a probe: what tells of them tells that it was lost
/// (RFC 4821, 7.4). One more than `DupThresh`.
const FOLLOWERS: u64 = 4;

/// A probe that is under way, or whose outcome nobody has taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct MtuProbe {
    start: u64,
    end: u64,
    /// The bytes that IP carries: TCP header, options and payload.
    packet: u32,
    outcome: Option<ProbeOutcome>,
}

impl Sender {
    /// Where a segment that starts here would end as a probe. Nothing where it cannot be one. The
    /// message that it is of ends at `cut`, and what is posted at `posted_end`.
    #[inline]
    pub(super) fn mtu_probe_end(
        &self,
        start: u64,
        cut: u64,
        posted_end: u64,
        sizes: Sizes,
    ) -> Option<u64> {
        if sizes.probe <= sizes.mss {
            return None;
        }
        let len = u64::from(sizes.probe);
        let needed = len + FOLLOWERS * u64::from(sizes.mss);
        let is_calm = matches!(self.recovery, Recovery::No)
            && self.flight.lost_bytes() == 0
            && !self.is_probe_due
            && self.mtu_probe.is_none();
        let has_followers = start + needed <= posted_end.min(self.window_end);
        let fits = self.allowance() >= needed.max(self.pipe() + len);
        (is_calm && has_followers && fits && start + len <= cut).then_some(start + len)
    }

    /// A probe left.
    pub(super) fn sent_mtu_probe(&mut self, start: u64, end: u64, packet: u32) {
        self.mtu_probe = Some(Box::new(MtuProbe { start, end, packet, outcome: None }));
    }

    /// The bytes that IP carries of the probe that is under way.
    #[inline]
    pub(crate) fn mtu_probe_packet(&self) -> Option<u32> {
        self.mtu_probe.as_ref().map(|probe| probe.packet)
    }

    /// Looks what became of the probe. Returns whether it alone is lost: then the window stays
    /// (RFC 4821, 7.6.2).
    #[cold]
    pub(super) fn judge_mtu_probe(&mut self) -> bool {
        // There is none, or it was judged before.
        let Some(probe) = self.mtu_probe.as_deref_mut().filter(|probe| probe.outcome.is_none())
        else {
            return false;
        };
        let (start, end) = (probe.start, probe.end);
        let first = self.flight.at(start).filter(|_| self.flight.unacknowledged() <= start);
        let outcome = match first {
            None => ProbeOutcome::Arrived,
            Some(first) if first.is_sacked() => ProbeOutcome::Arrived,
            Some(first) if first.is_lost() => {
                let is_alone = self.flight.lost_bytes() == self.flight.lost_within(start..end)
                    && matches!(self.recovery, Recovery::No);
                if is_alone { ProbeOutcome::Lost } else { ProbeOutcome::Unknown }
            }
            Some(_) => return false,
        };
        probe.outcome = Some(outcome);
        if outcome == ProbeOutcome::Lost {
            // What repairs it tells of no loss that nobody knew.
            self.probe.forget();
        }
        outcome == ProbeOutcome::Lost
    }

    /// Where what is marked as lost at `start` ends, `usual` unless that is a probe.
    pub(super) fn lost_end(&self, start: u64, usual: u64) -> u64 {
        let probe = self.mtu_probe.as_ref().filter(|probe| probe.start == start);
        probe.map_or(usual, |probe| probe.end)
    }

    /// All that is under way is sent again: nobody will know what became of the probe.
    pub(super) fn give_up_mtu_probe(&mut self) {
        if let Some(probe) = &mut self.mtu_probe {
            probe.outcome.get_or_insert(ProbeOutcome::Unknown);
        }
    }

    /// What became of a probe, with the bytes that IP carried of it; once.
    pub(crate) fn take_mtu_outcome(&mut self) -> Option<(u32, ProbeOutcome)> {
        let probe = self.mtu_probe.as_ref()?;
        let outcome = (probe.packet, probe.outcome?);
        self.mtu_probe = None;
        Some(outcome)
    }
}
