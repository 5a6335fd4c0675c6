//! What round trips say about queues, round by round; and whether it helps to yield to them.
//!
//! A queue that stands longer than the target is a reason for a smaller
//! window, if the queue is our own. Beside a flow that stops for losses only,
//! it is not: that flow takes every byte that we give up. So a decrease for
//! delay is a trial. When we alone fill the queue, round trips become shorter
//! in proportion to the window. Where they do not, somebody else keeps the
//! queue full: the decrease is taken back, and delay is not listened to for a
//! while.

use crate::config::Config;
use crate::rtt::RttEstimator;
use crate::ticks::Ticks;

/// Long round trips in a row that are enough to hold slow start back before
/// the round is over (RFC 9406, `N_RTT_SAMPLE`).
const SAMPLES: u8 = 8;

/// Rounds after which delay is listened to again.
const DEAF_ROUNDS: u8 = 192;

/// Rounds after a decrease for loss or a mark until round trips show its effect.
const SETTLING_ROUNDS: u8 = 3;

/// What may be concluded from delay at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Whatever it says is believed.
    Listening,
    /// A queue stands. Another round has to say so, in which everything was
    /// sent when it stood already: so its round trips belong to the window.
    Suspecting,
    /// The window was made smaller from `window`, at a round trip of `rtt`;
    /// in the second round from then on its effect shows.
    Trial { window: u64, rtt: Ticks, rounds: u8 },
    /// For this many rounds nothing, unless round trips get longer than `until`.
    Deaf { rounds: u8, until: Ticks },
}

/// What to do at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing in particular.
    GoOn,
    /// A queue stands that may be ours: make the window smaller, to this.
    Yield(u64),
    /// Yielding did not help: take the window back to what it was.
    Return(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelayWatch {
    state: State,
    /// The shortest round trip of this round.
    least: Ticks,
    /// Round trips in a row that were long enough to end slow start.
    late: u8,
    /// Rounds in a row in which no queue stood.
    quiet: u8,
}

impl DelayWatch {
    pub(crate) const fn new() -> Self {
        Self { state: State::Listening, least: Ticks::NONE, late: 0, quiet: 0 }
    }

    pub(crate) fn handle_sample(&mut self, config: &Config, base: Ticks, sample: Ticks) {
        self.least = self.least.least(sample);
        let is_late = sample > base.plus(rise(config, base));
        self.late = if is_late { self.late.saturating_add(1) } else { 0 };
    }

    /// Somebody told of congestion, by loss or by mark: whatever was tried is
    /// over, and it takes a while until round trips show the decrease.
    pub(crate) fn handle_congestion(&mut self) {
        self.state = State::Deaf { rounds: SETTLING_ROUNDS, until: Ticks::MAX };
        self.quiet = 0;
    }

    /// Whether slow start shall wait for the end of the round: a queue seems
    /// to stand, unless it is the one that every burst makes.
    pub(crate) const fn holds_slow_start(&self) -> bool {
        self.late >= SAMPLES && !self.is_deaf()
    }

    /// Whether slow start shall end, at the end of a round in which not one
    /// round trip was without a queue (HyStart++, RFC 9406, 4.2).
    pub(crate) fn ends_slow_start(&self, config: &Config, base: Ticks) -> bool {
        self.least > base.plus(rise(config, base)) && !self.is_deaf()
    }

    /// Rounds in a row in which no queue stood and nobody told of congestion.
    pub(crate) const fn quiet_rounds(&self) -> u8 {
        self.quiet
    }

    /// Whether no queue stands that would be a reason for a smaller window.
    pub(crate) fn is_short(&self, config: &Config, rtt: &RttEstimator) -> bool {
        // At the start of a round, the longer view has to do.
        let latest = if self.least.is_none() { rtt.smoothed_ticks() } else { self.least };
        !latest.is_none() && latest <= rtt.base().plus(target(config, rtt.base()))
    }

    pub(crate) const fn is_deaf(&self) -> bool {
        matches!(self.state, State::Deaf { .. })
    }

    /// Whether others were found to keep the queue full.
    pub(crate) const fn is_competing(&self) -> bool {
        matches!(self.state, State::Deaf { until, .. } if until.0 < Ticks::MAX.0)
    }

    /// A round is over in which delay was not looked at.
    pub(crate) fn skip_round(&mut self) {
        self.next_round();
        if let State::Deaf { rounds, until } = self.state {
            self.state = Self::deaf(rounds.saturating_sub(1), until);
        }
    }

    /// A round is over: everything that was sent in it has arrived or is lost.
    pub(crate) fn end_round(&mut self, config: &Config, base: Ticks, window: u64) -> Advice {
        let (least, target) = (self.next_round(), target(config, base));
        if least.is_none() {
            return Advice::GoOn; // Nothing was timed: the round tells nothing.
        }
        let is_quiet = least <= base.plus(Ticks(target.0 / 4));
        self.quiet = if is_quiet { self.quiet.saturating_add(1) } else { 0 };
        let is_long = least > base.plus(target);
        match self.state {
            State::Suspecting if is_long => {
                self.state = State::Trial { window, rtt: least, rounds: 2 };
                Advice::Yield(drained(window, least, base).max(window / 2))
            }
            State::Listening | State::Suspecting => self.listen(is_long),
            State::Deaf { until, .. } if least > until => self.listen(is_long),
            State::Deaf { rounds, until } => {
                self.state = Self::deaf(rounds.saturating_sub(1), until);
                Advice::GoOn
            }
            State::Trial { window, rtt, rounds: rounds @ 1.. } => {
                self.state = State::Trial { window, rtt, rounds: rounds - 1 };
                Advice::GoOn
            }
            State::Trial { window: before, rtt, .. } => {
                if has_helped(before, window, rtt, least, base) {
                    return self.listen(is_long);
                }
                let until = base.plus(next_level(target, rtt.beyond(base)));
                self.state = State::Deaf { rounds: DEAF_ROUNDS, until };
                Advice::Return(before)
            }
        }
    }

    const fn deaf(rounds: u8, until: Ticks) -> State {
        if rounds == 0 { State::Listening } else { State::Deaf { rounds, until } }
    }

    fn listen(&mut self, is_long: bool) -> Advice {
        self.state = if is_long { State::Suspecting } else { State::Listening };
        Advice::GoOn
    }

    /// Begins a round; gives the shortest round trip of the one before.
    fn next_round(&mut self) -> Ticks {
        core::mem::take(&mut self.least)
    }
}

/// The target times the power of two that is above this queue: steps that all
/// flows on a path have in common. Many that share a queue and yielded one
/// after another, each in vain, try again at the same time.
fn next_level(target: Ticks, queue: Ticks) -> Ticks {
    let steps = (queue.0 / target.0.max(1)).checked_ilog2().map_or(0, |log| log + 1);
    Ticks(target.0.checked_shl(steps).unwrap_or(u32::MAX).max(target.0))
}

/// What of a window the path holds without a queue; and a sixteenth less, so
/// that the queue gets empty and the shortest round trip is seen again.
fn drained(window: u64, rtt: Ticks, base: Ticks) -> u64 {
    scaled(scaled(window, base.0, rtt.0), 15, 16)
}

/// The delay at which slow start ends. RFC 9406 has 4 and 16 ms for its bounds;
/// the lower one is the configured floor here, as paths may be much shorter.
fn rise(config: &Config, base: Ticks) -> Ticks {
    const MOST: u32 = 16_000_000 >> 6;
    Ticks((base.0 / 8).min(MOST)).max(Ticks::from(config.delay_floor))
}

/// The longest that a queue may stand: three eighths of the shortest round
/// trip. To yield then leaves the path full.
fn target(config: &Config, base: Ticks) -> Ticks {
    let share = Ticks(base.0 / 8 * 3);
    share.max(Ticks::from(config.delay_floor))
}

/// Whether round trips became shorter, by three quarters at least of what is to
/// be expected where nobody else fills the queue.
fn has_helped(before: u64, window: u64, rtt_before: Ticks, rtt: Ticks, base: Ticks) -> bool {
    let proportional = scaled(u64::from(rtt_before.0), clamp_u32(window), clamp_u32(before));
    let expected = Ticks(clamp_u32(proportional)).max(base);
    let wanted = rtt_before.beyond(expected).0 / 4 * 3;
    rtt_before.beyond(rtt).0 >= wanted
}

/// `value` × `by` / `of`, without overflow on the way.
pub(crate) fn scaled(value: u64, by: u32, of: u32) -> u64 {
    let wide = u128::from(value) * u128::from(by) / u128::from(of.max(1));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

pub(crate) fn clamp_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::Duration;

    const CONFIG: Config = Config::new(1_000);
    /// 10 ms.
    const BASE: Ticks = Ticks(156_250);
    const WINDOW: u64 = 1_000_000;

    /// A round trip of the base and this many tenths of it.
    fn longer(tenths: u32) -> Ticks {
        Ticks(BASE.0 / 10 * (10 + tenths))
    }

    fn round(watch: &mut DelayWatch, window: u64, rtt: Ticks) -> Advice {
        round_at(watch, BASE, window, rtt)
    }

    fn round_at(watch: &mut DelayWatch, base: Ticks, window: u64, rtt: Ticks) -> Advice {
        watch.handle_sample(&CONFIG, base, rtt);
        watch.end_round(&CONFIG, base, window)
    }

    /// Lets a queue of six tenths stand until the watch yields.
    fn yielding() -> (DelayWatch, u64) {
        let mut watch = DelayWatch::new();
        assert_eq!(round(&mut watch, WINDOW, longer(6)), Advice::GoOn, "one round may err");
        let Advice::Yield(to) = round(&mut watch, WINDOW, longer(6)) else { panic!("{watch:?}") };
        // 1 / 1.6 of it, less a sixteenth.
        assert!(to.abs_diff(585_937) < 10, "{to}");
        assert_eq!(round(&mut watch, to, longer(6)), Advice::GoOn, "too early to judge");
        assert_eq!(round(&mut watch, to, longer(3)), Advice::GoOn, "still");
        (watch, to)
    }

    #[test]
    fn who_fills_the_queue_alone_yields_and_listens_on() {
        let (mut watch, to) = yielding();
        assert_eq!(round(&mut watch, to, BASE), Advice::GoOn);
        assert!(!watch.is_competing());
        assert_eq!(watch.state, State::Listening);
    }

    #[test]
    fn who_yields_in_vain_returns_and_goes_deaf_until_the_queue_doubles() {
        let (mut watch, to) = yielding();
        assert_eq!(round(&mut watch, to, longer(4)), Advice::Return(WINDOW));
        assert!(watch.is_competing());
        for _ in 0..100 {
            assert_eq!(round(&mut watch, WINDOW, longer(7)), Advice::GoOn);
        }
        // The level above six tenths is twice the target, 7.5 tenths.
        assert_eq!(round(&mut watch, WINDOW, longer(8)), Advice::GoOn);
        assert!(!watch.is_competing());
        assert!(matches!(round(&mut watch, WINDOW, longer(8)), Advice::Yield(_)));
    }

    #[test]
    fn deafness_ends() {
        let (mut watch, to) = yielding();
        assert_eq!(round(&mut watch, to, longer(4)), Advice::Return(WINDOW));
        let deaf = (0..1_000).take_while(|_| {
            round(&mut watch, WINDOW, longer(5));
            watch.is_deaf()
        });
        assert_eq!(deaf.count() + 1, usize::from(DEAF_ROUNDS));
    }

    #[test]
    fn a_short_queue_and_a_single_long_round_are_no_reason() {
        let mut watch = DelayWatch::new();
        for _ in 0..100 {
            assert_eq!(round(&mut watch, WINDOW, longer(3)), Advice::GoOn);
            assert_eq!(round(&mut watch, WINDOW, longer(9)), Advice::GoOn);
        }
    }

    #[test]
    fn it_never_yields_more_than_half_at_once() {
        let mut watch = DelayWatch::new();
        round(&mut watch, WINDOW, longer(100));
        assert_eq!(round(&mut watch, WINDOW, longer(100)), Advice::Yield(WINDOW / 2));
    }

    #[test]
    fn slow_start_is_held_by_eight_long_round_trips_and_ended_by_a_long_round() {
        let mut watch = DelayWatch::new();
        for _ in 0..7 {
            watch.handle_sample(&CONFIG, BASE, longer(2));
            assert!(!watch.holds_slow_start());
        }
        watch.handle_sample(&CONFIG, BASE, longer(2));
        assert!(watch.holds_slow_start() && watch.ends_slow_start(&CONFIG, BASE));
        // A burst makes a queue of its own: its first units do not see it.
        watch.handle_sample(&CONFIG, BASE, BASE);
        assert!(!watch.holds_slow_start() && !watch.ends_slow_start(&CONFIG, BASE));
    }

    #[test]
    fn on_short_paths_the_floor_counts() {
        let short = Ticks::from(Duration::from_micros(20));
        let mut watch = DelayWatch::new();
        for micros in [100, 200, 219] {
            watch.handle_sample(&CONFIG, short, Ticks::from(Duration::from_micros(micros)));
            assert_eq!(watch.end_round(&CONFIG, short, WINDOW), Advice::GoOn);
            assert_eq!(watch.state, State::Listening, "{micros}");
        }
    }

    /// 10.24 ms, of which an eighth and three eighths are whole steps: 20,000 and 60,000.
    const EVEN: Ticks = Ticks(160_000);

    /// A round with this queue, in steps of 64 ns.
    fn even_round(watch: &mut DelayWatch, queue: u32) -> Advice {
        round_at(watch, EVEN, WINDOW, Ticks(EVEN.0 + queue))
    }

    #[test]
    fn a_queue_of_three_eighths_is_tolerated_and_a_longer_one_is_not() {
        let mut watch = DelayWatch::new();
        even_round(&mut watch, 60_000);
        assert_eq!(watch.state, State::Listening);
        even_round(&mut watch, 60_001);
        assert_eq!(watch.state, State::Suspecting);
    }

    #[test]
    fn a_deaf_watch_listens_again_beyond_the_next_level_of_the_queue() {
        let mut watch = DelayWatch::new();
        let long = Ticks(EVEN.0 + 96_000);
        // Two rounds say so, and three of half a window show that yielding was in vain.
        for window in [WINDOW, WINDOW, WINDOW / 2, WINDOW / 2, WINDOW / 2] {
            round_at(&mut watch, EVEN, window, long);
        }
        // The first multiple of 60,000 by a power of two that is above 96,000.
        let until = Ticks(EVEN.0 + 120_000);
        assert_eq!(watch.state, State::Deaf { rounds: DEAF_ROUNDS, until });
        even_round(&mut watch, 120_000);
        assert!(watch.is_competing());
        even_round(&mut watch, 120_001);
        assert_eq!(watch.state, State::Suspecting);
    }

    #[test]
    fn rounds_are_quiet_up_to_a_quarter_of_what_is_tolerated() {
        let mut watch = DelayWatch::new();
        for queue in [0, 100, 15_000] {
            even_round(&mut watch, queue);
        }
        assert_eq!(watch.quiet_rounds(), 3);
        even_round(&mut watch, 15_001);
        assert_eq!(watch.quiet_rounds(), 0);
        even_round(&mut watch, 0);
        assert_eq!(watch.quiet_rounds(), 1);
        watch.handle_congestion();
        assert_eq!(watch.quiet_rounds(), 0, "somebody told of congestion");
    }

    #[test]
    fn after_congestion_three_rounds_tell_nothing_in_slow_start_too() {
        let ends: [fn(&mut DelayWatch); 2] = [
            |watch| watch.skip_round(),
            |watch| assert_eq!(watch.end_round(&CONFIG, EVEN, WINDOW), Advice::GoOn),
        ];
        for end in ends {
            let mut watch = DelayWatch::new();
            watch.handle_congestion();
            for _ in 0..3 {
                assert!(watch.is_deaf() && !watch.is_competing());
                (0..8).for_each(|_| watch.handle_sample(&CONFIG, EVEN, Ticks(EVEN.0 * 2)));
                assert!(!watch.holds_slow_start() && !watch.ends_slow_start(&CONFIG, EVEN));
                end(&mut watch);
            }
            assert!(!watch.is_deaf());
        }
    }

    #[test]
    fn a_round_that_is_skipped_leaves_nothing_to_the_next() {
        let mut watch = DelayWatch::new();
        watch.handle_sample(&CONFIG, EVEN, EVEN);
        watch.skip_round();
        watch.handle_sample(&CONFIG, EVEN, Ticks(EVEN.0 * 2));
        assert!(watch.ends_slow_start(&CONFIG, EVEN), "its shortest round trip is of this round");
    }

    /// RFC 9406, 4.2: an eighth, between bounds.
    #[test]
    fn slow_start_ends_at_an_eighth_but_16_ms_on_long_paths() {
        let ms = |ms| Ticks::from(Duration::from_millis(ms));
        let is_late = |base, rtt| {
            let mut watch = DelayWatch::new();
            (0..8).for_each(|_| watch.handle_sample(&CONFIG, base, rtt));
            assert_eq!(watch.holds_slow_start(), watch.ends_slow_start(&CONFIG, base));
            watch.holds_slow_start()
        };
        assert!(!is_late(ms(80), ms(89)) && is_late(ms(80), ms(91)));
        assert!(!is_late(ms(1_000), ms(1_015)) && is_late(ms(1_000), ms(1_017)));
    }

    /// Where an eighth is less than the step in which times are kept.
    #[test]
    fn a_round_trip_that_did_not_grow_is_never_late() {
        let config = Config { delay_floor: Duration::ZERO, ..CONFIG };
        let (base, mut watch) = (Ticks(7), DelayWatch::new());
        (0..8).for_each(|_| watch.handle_sample(&config, base, base));
        assert!(!watch.holds_slow_start() && !watch.ends_slow_start(&config, base));
    }

    #[test]
    fn a_queue_is_short_by_the_latest_that_is_known_of_it() {
        // 64 ms, with a target of 24 ms.
        let now = landfall_placement::Instant::from_millis(1_000);
        let mut rtt = RttEstimator::new();
        let mut watch = DelayWatch::new();
        assert!(!watch.is_short(&CONFIG, &rtt), "nothing is known");
        let ms = Duration::from_millis;
        rtt.handle_sample(now, now - ms(64));
        assert!(watch.is_short(&CONFIG, &rtt), "the smoothed round trip is the shortest");
        for (took, is_short) in [(88, true), (89, false)] {
            watch.handle_sample(&CONFIG, rtt.base(), Ticks::from(ms(took)));
            assert_eq!(watch.is_short(&CONFIG, &rtt), is_short, "{took} ms in this round");
            watch.skip_round();
        }
        // (7 * 64 + 300) / 8 = 93.5.
        rtt.handle_sample(now, now - ms(300));
        assert!(!watch.is_short(&CONFIG, &rtt), "the smoothed round trip is long");
    }
}
