//! RACK-TLP (RFC 8985): when a transmission counts as lost, and the probe that
//! finds out whether the last ones are.
//!
//! A transmission is lost when one that left later has arrived and a round trip
//! and the reordering window have passed. The window matters more here than in
//! the RFC: behind segmentation offload and a receiver that merges, the last
//! segment of a super-segment comes before its others, on every link.

use super::flight::{Delivered, Flight, Sent};
use core::ops::Range;
use landfall_placement::{Duration, Instant};

#[cfg(test)]
mod tests;

/// `DupThresh`: so many selectively acknowledged segments count as loss as long
/// as the path never reordered anything.
const DUPLICATES: u64 = 3;
/// Section 6.2, step 4: a wider window lasts for so many recoveries.
const PERSISTENCE: u8 = 16;
/// `TLP.max_ack_delay`: a receiver may keep the acknowledgement of a single
/// segment back for so long (section 7.2).
const MOST_ACK_DELAY: Duration = Duration::from_millis(200);
/// A probe waits at least so much longer than two round trips: on a fast
/// network those are less than a receiver needs to be scheduled. (Linux:
/// `TCP_TIMEOUT_MIN`, two ticks.)
const PROBE_SLACK: Duration = Duration::from_millis(2);
/// The probe timer before there is a measured round trip (section 7.2).
const PROBE_UNMEASURED: Duration = Duration::from_secs(1);

/// The path, as measured so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) smoothed: Duration,
    pub(crate) least: Duration,
    pub(crate) mss: u32,
}

/// What RACK remembers of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// `RACK.xmit_ts` and `RACK.end_seq`: the newest transmission that arrived.
    newest: Option<Sent>,
    /// `RACK.rtt`: its round trip.
    rtt_nanos: u64,
    /// `RACK.fack`: the highest position that arrived.
    highest: u64,
    /// `RACK.dsack_round`: repeats seen before this position is acknowledged are
    /// of the same round.
    round_end: u64,
    /// No window below this one, bar zero: see [`Rack::new`].
    floor_micros: u32,
    /// `RACK.reo_wnd_mult`, in quarters of the least round trip.
    quarters: u8,
    /// `RACK.reo_wnd_persist`.
    persistence: u8,
    is_reordering: bool,
}

impl Rack {
    /// `floor` is the least reordering window once there is one: how long the
    /// receiving machine may take over one batch of segments whose last one it
    /// acknowledges first. A quarter of a fast network's round trip is less.
    pub(crate) fn new(floor: Duration) -> Self {
        Self {
            newest: None,
            rtt_nanos: 0,
            highest: 0,
            round_end: 0,
            floor_micros: u32::try_from(floor.as_micros()).unwrap_or(u32::MAX),
            quarters: 1,
            persistence: 0,
            is_reordering: false,
        }
    }

    /// Steps 2 and 3 of section 6.2, for each acknowledgement that delivered
    /// something. `echo` is the latest moment at which the timestamp that it
    /// echoes can have been sent, if it has one.
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        echo: Option<Instant>,
        least: Option<Duration>,
    ) {
        if let Some(end) = delivered.lowest_original
            && end < self.highest
        {
            self.is_reordering = true;
        }
        // Whether the last transmission arrived or an earlier one of the same
        // data is not known for sure. It was an earlier one if the echoed
        // timestamp is older, or if the round trip would be impossibly short.
        let is_certain = |sent: &Sent| {
            delivered.newest_original == Some(*sent)
                || !(echo.is_some_and(|echo| echo < sent.at)
                    || least.is_some_and(|least| now.since(sent.at) < least))
        };
        let certain = delivered.newest.filter(is_certain);
        if certain.is_none() && delivered.newest.is_some_and(|sent| sent.end < self.highest) {
            // The RFC takes only data for reordered that was sent once. This was
            // sent again by mistake, and what came late is the original.
            self.is_reordering = true;
        }
        self.highest = self.highest.max(delivered.highest);
        let newest = certain.or(delivered.newest_original);
        let Some(newest) = newest else { return };
        self.rtt_nanos = now.as_nanos().saturating_sub(newest.at.as_nanos());
        self.newest = self.newest.max(Some(newest));
    }

    /// Step 4: the peer says that it got something twice (RFC 2883), so
    /// something that was late had been taken for lost: with no window at all,
    /// if no reordering had been seen. Not to be called for the repeat that a
    /// loss probe caused.
    pub(crate) fn on_duplicate_report(&mut self, flight: &Flight) {
        if flight.unacknowledged() >= self.round_end {
            self.round_end = flight.next();
            self.is_reordering = true;
            self.quarters = self.quarters.saturating_add(1);
            self.persistence = PERSISTENCE;
        }
    }

    /// Step 4: a fast recovery or one after a time-out has ended.
    pub(crate) fn on_recovery_end(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.quarters = 1;
        }
    }

    /// How long data may be late that was overtaken (step 4).
    fn reordering_window(&self, flight: &Flight, path: &Path, is_recovering: bool) -> Duration {
        if !self.is_reordering {
            let enough = DUPLICATES * u64::from(path.mss);
            if is_recovering || flight.sacked_bytes() >= enough {
                return Duration::ZERO;
            }
        }
        let window = path.least / 4 * u32::from(self.quarters);
        window.min(path.smoothed).max(Duration::from_micros(u64::from(self.floor_micros)))
    }

    /// So long after it left, data that was overtaken is lost.
    fn patience(&self, window: Duration) -> Duration {
        Duration::from_nanos(self.rtt_nanos).saturating_add(window)
    }

    /// Step 5: marks what is lost. Called for each acknowledgement and when the
    /// timer runs out. Gives the bytes lost now and, if something is late but
    /// not yet lost, when to call it again.
    pub(crate) fn detect(
        &self,
        now: Instant,
        flight: &mut Flight,
        path: &Path,
        is_recovering: bool,
    ) -> (u64, Option<Instant>) {
        let Some(newest) = self.newest else { return (0, None) };
        let window = self.reordering_window(flight, path, is_recovering);
        flight.lose_older(newest, self.patience(window), now)
    }

    /// Section 6.3: the retransmission timer ran out. The first segment is lost,
    /// and all that left long enough ago, whether overtaken or not. Gives the
    /// bytes lost now.
    pub(crate) fn on_timeout(&self, now: Instant, flight: &mut Flight, path: &Path) -> u64 {
        let window = self.reordering_window(flight, path, true);
        let Some(first) = flight.first().map(|first| first.start()..first.end()) else {
            return 0;
        };
        let lost = flight.mark_lost(first);
        // Later than everything: nothing is spared for not being overtaken.
        let newest = Sent { at: Instant::FAR_FUTURE, end: u64::MAX };
        lost + flight.lose_older(newest, self.patience(window), now).0
    }
}

/// What an acknowledgement means for the loss probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAck {
    /// The acknowledged position.
    pub(crate) acknowledged: u64,
    /// It reports exactly this range as received twice.
    pub(crate) duplicate: Option<(u64, u64)>,
    /// It repeats the last acknowledgement and has no blocks.
    pub(crate) is_bare_duplicate: bool,
}

/// The tail loss probe (section 7).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossProbe {
    /// `TLP.end_seq`: what was sent up to when the probe left; 0 for none.
    end: u64,
    /// `TLP.is_retrans`.
    is_retransmission: bool,
}

impl LossProbe {
    /// A probe left and is not answered: no other leaves before that, and the
    /// retransmission timer runs instead (section 7.3).
    pub(crate) fn is_pending(&self) -> bool {
        self.end != 0
    }

    /// When to probe (section 7.2): two round trips after `now`, the moment of
    /// the last transmission or acknowledgement, and no later than the
    /// retransmission timer. Nothing is to be probed while the flight is empty,
    /// in a recovery, without selective acknowledgements, or with a probe
    /// pending; all but the last is for the caller to see to.
    pub(crate) fn deadline(
        &self,
        now: Instant,
        flight: &Flight,
        smoothed: Option<Duration>,
        mss: u32,
        retransmission: Instant,
    ) -> Option<Instant> {
        if self.is_pending() || flight.is_empty() {
            return None;
        }
        let is_single = flight.outstanding() <= u64::from(mss);
        let slack = if is_single { MOST_ACK_DELAY } else { PROBE_SLACK };
        let wait = smoothed.map_or(PROBE_UNMEASURED, |rtt| rtt.saturating_mul(2) + slack);
        Some((now + wait).min(retransmission))
    }

    /// What to send where there is no new data: the last segment of the flight.
    pub(crate) fn tail(flight: &Flight, mss: u32) -> Option<Range<u64>> {
        let last = flight.last()?;
        Some(last.start().max(last.end().saturating_sub(u64::from(mss)))..last.end())
    }

    /// The probe left: new data, already part of the flight, or its tail.
    pub(crate) fn on_sent(&mut self, flight: &Flight, is_retransmission: bool) {
        *self = Self { end: flight.next(), is_retransmission };
    }

    /// Section 7.4.2, for each acknowledgement. Gives `true` when the probe
    /// repaired a loss that nothing else told of: the controller must hear of
    /// it as of any loss.
    pub(crate) fn on_ack(&mut self, ack: &ProbeAck) -> bool {
        if !self.is_pending() || ack.acknowledged < self.end {
            return false;
        }
        let is_repeat = ack.duplicate.is_some_and(|(_, end)| end == self.end);
        let is_over = ack.acknowledged > self.end;
        let is_answered = !self.is_retransmission || is_repeat || is_over || ack.is_bare_duplicate;
        if !is_answered {
            // Acknowledged up to the probe: the repeat may be on its way yet.
            return false;
        }
        let is_repair = self.is_retransmission && !is_repeat && is_over;
        self.end = 0;
        is_repair
    }

    /// A time-out took over.
    pub(crate) fn forget(&mut self) {
        self.end = 0;
    }
}
