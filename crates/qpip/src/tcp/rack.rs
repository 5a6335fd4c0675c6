//! RACK-TLP (RFC 8985): when a transmission counts as lost, and the probe that
//! finds out whether the last ones are.
//!
//! A transmission is lost when one that left later has arrived and a round trip
//! and the reordering window have passed. The window matters more here than in
//! the RFC: behind segmentation offload and a receiver that merges, the last
//! segment of a super-segment comes before its others, on every link.

use super::flight::{Delivered, Flight, Losses, Sent};
use core::ops::Range;
use landfall_placement::{Duration, Instant};

/// `DupThresh`: this many selectively acknowledged segments count as loss as long
/// as the path never reordered anything.
const DUPLICATES: u64 = 3;
/// Section 6.2, step 4: a wider window lasts for this many recoveries.
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

/// In front of all that was ever sent: nothing ends at the beginning.
const OLDEST: Sent = Sent { at: Instant::ZERO, end: 0 };

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
    /// `RACK.xmit_ts` and `RACK.end_seq`: the newest transmission that arrived,
    /// older than all where none has.
    newest: Sent,
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
            newest: OLDEST,
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
        if let Some(newest) = newest {
            self.rtt_nanos = now.as_nanos().saturating_sub(newest.at.as_nanos());
            self.newest = self.newest.max(newest);
        }
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

    /// How long after it left data that was overtaken counts as lost.
    fn patience(&self, window: Duration) -> Duration {
        Duration::from_nanos(self.rtt_nanos).saturating_add(window)
    }

    /// Step 5: marks what is lost. Called for each acknowledgement and when the
    /// timer runs out.
    pub(crate) fn detect(
        &self,
        now: Instant,
        flight: &mut Flight,
        path: &Path,
        is_recovering: bool,
    ) -> Losses {
        if self.newest == OLDEST {
            return Losses::default();
        }
        let window = self.reordering_window(flight, path, is_recovering);
        flight.lose_older(self.newest, self.patience(window), now)
    }

    /// Section 6.3: the retransmission timer ran out. The first segment is lost,
    /// and all that left long enough ago, whether overtaken or not. Returns the
    /// bytes lost now.
    pub(crate) fn on_timeout(&self, now: Instant, flight: &mut Flight, path: &Path) -> u64 {
        let window = self.reordering_window(flight, path, true);
        // Nothing is under way.
        let Some(first) = flight.first().map(|first| first.start()..first.end()) else {
            return 0;
        };
        let lost = flight.mark_lost(first);
        // Later than everything: nothing is spared for not being overtaken.
        let newest = Sent { at: Instant::FAR_FUTURE, end: u64::MAX };
        lost + flight.lose_older(newest, self.patience(window), now).bytes
    }
}

/// What an acknowledgement means for the loss probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAck {
    /// The acknowledged position.
    pub(crate) acknowledged: u64,
    /// It reports exactly this range as received twice.
    pub(crate) duplicate: Option<Range<u64>>,
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

    /// Section 7.4.2, for each acknowledgement. Returns `true` when the probe
    /// repaired a loss that nothing else told of: the controller must hear of
    /// it as of any loss.
    pub(crate) fn on_ack(&mut self, ack: &ProbeAck) -> bool {
        if !self.is_pending() || ack.acknowledged < self.end {
            return false;
        }
        let is_repeat = ack.duplicate.as_ref().is_some_and(|range| range.end == self.end);
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

#[cfg(test)]
mod tests {
    use super::super::flight::{Delivered, Flight};
    use super::*;

    const MSS: u32 = 1_000;
    const FLOOR: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(40);
    const QUARTER: Duration = Duration::from_millis(10);
    const PATH: Path = Path { smoothed: RTT, least: RTT, mss: MSS };

    struct Play {
        flight: Flight,
        rack: Rack,
        is_recovering: bool,
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    impl Play {
        /// This many segments were sent, one each millisecond from the start of time.
        fn new(segments: u64) -> Self {
            let mut flight = Flight::new(0, 1_000);
            for segment in 0..segments {
                flight.push(MSS, at(segment));
            }
            Self { flight, rack: Rack::new(FLOOR), is_recovering: false }
        }

        /// An acknowledgement; positions in segments. Returns lost segments and timer.
        fn ack(
            &mut self,
            now: Instant,
            upto: u64,
            blocks: &[(u64, u64)],
        ) -> (u64, Option<Instant>) {
            let mut delivered = Delivered::default();
            self.flight.ack(upto * 1_000, &mut delivered);
            for &(start, end) in blocks {
                self.flight.sack(start * 1_000..end * 1_000, &mut delivered);
            }
            self.rack.on_delivered(now, &delivered, None, Some(RTT));
            self.detect(now)
        }

        fn detect(&mut self, now: Instant) -> (u64, Option<Instant>) {
            let found = self.rack.detect(now, &mut self.flight, &PATH, self.is_recovering);
            (found.bytes / 1_000, found.recheck_at)
        }
    }

    #[test]
    fn three_segments_behind_a_hole_mean_loss_at_once() {
        // RFC 8985, section 6.2, step 4: no reordering seen, DupThresh reached.
        let mut play = Play::new(10);
        assert_eq!(play.ack(at(41), 0, &[(1, 2)]), (0, Some(at(50))));
        assert_eq!(play.ack(at(42), 0, &[(1, 3)]).0, 0);
        let (lost, timer) = play.ack(at(43), 0, &[(1, 4)]);
        assert_eq!((lost, timer), (1, None));
        assert_eq!(play.flight.next_lost(u64::MAX), Some(0..1_000));
    }

    #[test]
    fn one_segment_behind_a_hole_means_loss_after_the_reordering_window() {
        // Step 5: the timer of section 6.3 finds it.
        let mut play = Play::new(2);
        let (lost, timer) = play.ack(at(41), 0, &[(1, 2)]);
        // Sent at 0; round trip 40, and a quarter of it.
        assert_eq!((lost, timer), (0, Some(at(50))));
        assert_eq!(play.detect(at(49)), (0, Some(at(50))));
        assert_eq!(play.detect(at(50)), (1, None));
    }

    #[test]
    fn reordering_once_seen_widens_the_window_for_good() {
        // Steps 3 and 4.
        let mut play = Play::new(20);
        play.ack(at(42), 0, &[(2, 3)]);
        play.ack(at(43), 3, &[]);
        assert!(play.rack.is_reordering);
        let (lost, timer) = play.ack(at(47), 3, &[(4, 8)]);
        assert_eq!((lost, timer), (0, Some(at(3 + 40 + 10))));
    }

    #[test]
    fn a_mistake_shows_reordering_too() {
        // The echoed timestamp is older than the repetition: the original came late.
        let mut play = Play::new(10);
        play.ack(at(44), 0, &[(1, 5)]);
        play.flight.retransmitted(0..1_000, at(44));
        let mut delivered = Delivered::default();
        play.flight.ack(5_000, &mut delivered);
        play.rack.on_delivered(at(90), &delivered, Some(at(1)), Some(RTT));
        assert!(play.rack.is_reordering);
        // As does a report of something that came twice.
        let mut play = Play::new(10);
        play.rack.on_duplicate_report(&play.flight);
        assert!(play.rack.is_reordering);
    }

    #[test]
    fn the_newest_arrival_stays_the_newest() {
        // Step 2: what comes late does not turn the clock back.
        let mut play = Play::new(10);
        play.ack(at(47), 0, &[(7, 8)]);
        play.ack(at(48), 1, &[]);
        assert_eq!(play.rack.newest, Sent { at: at(7), end: 8_000 });
    }

    #[test]
    fn data_lost_and_sent_again_is_no_reordering() {
        let mut play = Play::new(10);
        play.ack(at(44), 0, &[(1, 5)]);
        play.flight.retransmitted(0..1_000, at(44));
        play.is_recovering = true;
        play.ack(at(84), 5, &[]);
        assert!(!play.rack.is_reordering);
    }

    #[test]
    fn the_tail_of_a_super_segment_that_comes_first_loses_nothing() {
        // The last segment of each of five super-segments is acknowledged before the
        // others of it, as on every link that segments in the device and merges at
        // the receiver. A fast network: a quarter of the round trip is 10 us.
        let micros = Instant::from_micros;
        let path = Path {
            smoothed: Duration::from_micros(40),
            least: Duration::from_micros(40),
            mss: MSS,
        };
        let (mut flight, mut rack) = (Flight::new(0, 100), Rack::new(FLOOR));
        for _ in 0..5 {
            flight.push(44_000, micros(0));
        }
        for segment in 0..5_u64 {
            let (start, end) = (segment * 44_000, (segment + 1) * 44_000);
            for (wait, upto, block) in [(40, start, Some(end - 1_000..end)), (340, end, None)] {
                let now = micros(400 * segment + wait);
                let mut delivered = Delivered::default();
                flight.ack(upto, &mut delivered);
                if let Some(block) = block {
                    flight.sack(block, &mut delivered);
                }
                rack.on_delivered(now, &delivered, None, Some(path.least));
                let Losses { bytes: lost, recheck_at: timer } =
                    rack.detect(now, &mut flight, &path, false);
                assert_eq!(lost, 0);
                assert!(timer.is_none_or(|timer| timer >= now + Duration::from_micros(900)));
            }
        }
        assert!(flight.is_empty());
        assert!(rack.is_reordering);
    }

    #[test]
    fn the_head_of_a_super_segment_is_lost_in_the_end() {
        let mut play =
            Play { flight: Flight::new(0, 100), rack: Rack::new(FLOOR), is_recovering: false };
        play.flight.push(44_000, at(0));
        let (lost, timer) = play.ack(at(40), 0, &[(43, 44)]);
        assert_eq!((lost, timer), (0, Some(at(50))));
        assert_eq!(play.detect(at(50)), (43, None));
        assert_eq!(play.flight.next_lost(u64::MAX), Some(0..43_000));
    }

    #[test]
    fn a_lost_retransmission_is_found_by_what_left_after_it() {
        // Section 3.1: what neither DupThresh nor NewReno can.
        let mut play = Play::new(10);
        assert_eq!(play.ack(at(44), 0, &[(1, 5)]).0, 1);
        play.is_recovering = true;
        play.flight.retransmitted(0..1_000, at(50));
        play.flight.push(MSS, at(60));
        // The rest of the old window says nothing about the retransmission.
        assert_eq!(play.ack(at(55), 0, &[(1, 10)]), (0, None));
        let (lost, _) = play.ack(at(100), 0, &[(1, 11)]);
        assert_eq!(lost, 1);
        assert_eq!(play.flight.next_lost(u64::MAX), Some(0..1_000));
    }

    #[test]
    fn an_acknowledgement_too_early_for_the_retransmission_is_of_the_original() {
        // Step 2: its round trip is below the least.
        let mut play = Play::new(4);
        play.flight.retransmitted(0..1_000, at(39));
        play.ack(at(41), 1, &[]);
        assert_eq!(play.rack.newest, OLDEST);
        // Or the timestamp that it echoes is older.
        play.flight.retransmitted(1_000..2_000, at(50));
        let mut delivered = Delivered::default();
        play.flight.ack(2_000, &mut delivered);
        play.rack.on_delivered(at(95), &delivered, Some(at(49)), Some(RTT));
        assert_eq!(play.rack.newest, OLDEST);
        play.flight.retransmitted(2_000..3_000, at(100));
        let mut delivered = Delivered::default();
        play.flight.ack(3_000, &mut delivered);
        play.rack.on_delivered(at(145), &delivered, Some(at(101)), Some(RTT));
        assert_eq!(play.rack.newest, Sent { at: at(100), end: 3_000 });
    }

    #[test]
    fn each_round_with_a_repeat_widens_the_window_by_a_quarter_up_to_a_round_trip() {
        // Step 4.
        let mut play = Play::new(10);
        play.rack.is_reordering = true;
        let window = |play: &Play| play.rack.reordering_window(&play.flight, &PATH, true);
        assert_eq!(window(&play), QUARTER);
        play.rack.on_duplicate_report(&play.flight);
        play.rack.on_duplicate_report(&play.flight);
        assert_eq!(window(&play), QUARTER * 2, "once per round");
        play.ack(at(60), 10, &[]);
        for _ in 0..5 {
            play.flight.push(MSS, at(60));
            play.rack.on_duplicate_report(&play.flight);
            let end = play.flight.next() / 1_000;
            play.ack(at(100), end, &[]);
        }
        assert_eq!(window(&play), RTT, "no more than a round trip");
        for recovery in 0..16 {
            assert_eq!(window(&play), RTT, "recovery {recovery}");
            play.rack.on_recovery_end();
        }
        assert_eq!(window(&play), QUARTER, "sixteen recoveries without a repeat");
    }

    #[test]
    fn a_time_out_loses_the_first_segment_and_what_is_old() {
        // Section 6.3.
        let mut play = Play::new(3);
        play.ack(at(40), 1, &[]);
        play.flight.push(MSS, at(300));
        assert_eq!(play.rack.on_timeout(at(320), &mut play.flight, &PATH), 2_000);
        assert_eq!(play.flight.next_lost(u64::MAX), Some(1_000..3_000));
        assert_eq!(play.flight.pipe(), 1_000);
        // The first one counts even when it was just sent.
        play.flight.retransmitted(1_000..3_000, at(330));
        assert_eq!(play.rack.on_timeout(at(331), &mut play.flight, &PATH), 1_000);
    }

    #[test]
    fn without_any_arrival_nothing_is_judged() {
        let mut play = Play::new(3);
        assert_eq!(play.detect(at(10_000)), (0, None));
    }

    #[test]
    fn a_probe_waits_two_round_trips_and_no_longer_than_the_time_out() {
        // Section 7.2.
        let probe = LossProbe::default();
        let mut flight = Flight::new(0, 10);
        let never = Instant::FAR_FUTURE;
        let when = |flight: &Flight, rtt, timeout| probe.deadline(at(0), flight, rtt, MSS, timeout);
        assert_eq!(when(&flight, Some(RTT), never), None, "nothing is under way");
        flight.push(MSS, at(0));
        assert_eq!(when(&flight, Some(RTT), never), Some(at(80 + 200)), "a single segment");
        assert_eq!(when(&flight, None, never), Some(at(1_000)));
        flight.push(MSS, at(0));
        assert_eq!(when(&flight, Some(RTT), never), Some(at(82)));
        assert_eq!(when(&flight, Some(RTT), at(50)), Some(at(50)));
    }

    #[test]
    fn a_probe_repeats_the_last_segment_of_the_last_transmission() {
        let mut flight = Flight::new(0, 10);
        assert_eq!(LossProbe::tail(&flight, MSS), None);
        flight.push(44_500, at(0));
        assert_eq!(LossProbe::tail(&flight, MSS), Some(43_500..44_500));
        flight.push(300, at(0));
        assert_eq!(LossProbe::tail(&flight, MSS), Some(44_500..44_800));
    }

    /// A probe of two segments that were sent, and the acknowledgements of it.
    fn probe(is_retransmission: bool, acks: &[ProbeAck]) -> (bool, bool) {
        let mut flight = Flight::new(0, 10);
        flight.push(2 * MSS, at(0));
        let mut probe = LossProbe::default();
        probe.on_sent(&flight, is_retransmission);
        assert_eq!(probe.deadline(at(0), &flight, Some(RTT), MSS, at(9)), None, "one at a time");
        let is_repair = acks.iter().any(|ack| probe.on_ack(ack));
        let is_pending = probe.is_pending();
        probe.forget();
        assert!(!probe.is_pending());
        (is_repair, is_pending)
    }

    #[test]
    fn a_probe_is_answered_in_four_ways() {
        // Section 7.4.2.
        let ack =
            |acknowledged| ProbeAck { acknowledged, duplicate: None, is_bare_duplicate: false };
        assert_eq!(probe(false, &[ack(1_000)]), (false, true));
        assert_eq!(probe(false, &[ack(2_000)]), (false, false), "new data says nothing of loss");
        assert_eq!(probe(true, &[ack(2_000)]), (false, true), "the repeat may be reported yet");
        let repeat = ProbeAck { duplicate: Some(1_000..2_000), ..ack(2_000) };
        assert_eq!(probe(true, &[ack(2_000), repeat]), (false, false), "both arrived");
        let bare = ProbeAck { is_bare_duplicate: true, ..ack(2_000) };
        assert_eq!(probe(true, &[ack(2_000), bare]), (false, false), "both, without such reports");
        assert_eq!(
            probe(true, &[ack(2_000), ack(3_000)]),
            (true, false),
            "the probe repaired a loss"
        );
    }
}
