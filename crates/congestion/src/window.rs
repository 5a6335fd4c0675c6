//! The window itself: [`Window`]; how much was lost lately: `Ledger`.

use landfall_placement::{Duration, Instant};

use crate::config::Config;
use crate::delay::{Advice, DelayWatch, clamp_u32, scaled};
use crate::rtt::RttEstimator;
use crate::ticks::Ticks;

/// Bytes that came through, as told to [`Window::handle_arrived`].
///
/// A receiver that grants blocks tells of each unit as it comes (or of a batch
/// of them together), with the time of its own grant, and may time them all:
/// of a round, the shortest counts. Who tells only of whole blocks learns of
/// queues a block too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// How many.
    pub bytes: u64,
    /// When they were sent, or granted by the receiver.
    pub sent: Instant,
    /// Whether the time since then is a round trip: not where they were sent
    /// twice, and not where they waited for something else than the network.
    pub timed: bool,
    /// Whether the network marked them ([`Ecn::CongestionExperienced`]).
    ///
    /// [`Ecn::CongestionExperienced`]: landfall_placement::Ecn::CongestionExperienced
    pub marked: bool,
    /// The bytes that were under way until now, these among them.
    pub under_way: u64,
}

/// How a window moves at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It doubles in each round trip.
    SlowStart,
    /// It grows slowly, and yields to delay, marks and loss.
    Avoidance,
    /// The same, but not to delay: others keep the queue full.
    Competing,
}

/// How many bytes may be under way on one path to one peer.
///
/// Anyone who decides what is sent next holds it: a sender, or a receiver that
/// grants. It is told what arrived and what was lost, and when that had been
/// sent. It takes at most 112 bytes, allocates nothing and calls nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    bytes: u64,
    /// Slow start goes up to here.
    threshold: u64,
    /// Arrived bytes, times four, that were not yet turned into growth.
    credit: u64,
    /// The last decrease: what was sent before tells nothing new.
    decreased: Instant,
    /// What the window was before it.
    before: u64,
    /// When the round began: it is over when something sent since then arrives.
    round: Instant,
    /// The most that was under way in this round, in steps of 64 bytes.
    peak: u32,
    /// What arrived in this round, in steps of 64 bytes.
    came: u32,
    /// What the path held in the last rounds, without its queues, in steps of 64 bytes:
    /// what arrived in a shortest round trip.
    held: u32,
    rtt: RttEstimator,
    delay: DelayWatch,
    ledger: Ledger,
}

/// There may be very many.
const _: () = assert!(size_of::<Window>() <= 112);

/// What a window becomes for a reason, as a share: numerator and denominator.
type Share = (u64, u64);

/// RFC 5681, 3.1: not less than this remains after a loss.
const ON_LOSS: Share = (1, 2);
/// And not more than RFC 9438, 4.6, leaves.
const MOST_ON_LOSS: Share = (7, 10);
/// RFC 9438, 4.6: beside flows that keep the queue full, who sends in bursts
/// (as a receiver that grants makes its senders do) meets the end of the queue
/// first and loses most. To give up less makes up for some of that.
const ON_LOSS_COMPETING: Share = (7, 10);
/// RFC 8511 (ABE): a mark comes from a short queue, so less has to be given up.
const ON_MARK: Share = (7, 10);

/// Rounds without a queue after which growth accelerates; up to four times as
/// many for large windows. Flows that grow by one unit shall not be overtaken
/// while they regain what a mark took from them.
const PATIENCE: u64 = 32;
/// On long paths that would be minutes: there it is a second, as in H-TCP, and this many rounds
/// at least.
const LONG_PATIENCE: (Duration, u64) = (Duration::from_secs(1), 8);
/// What accelerates growth does so the more, the more such parts a window has: a path that
/// holds thousands of units is filled in some rounds, not in some hundred.
const UNITS_OF_LARGE: u64 = 256;

impl Window {
    /// A window for a path of which nothing is known.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            bytes: config.bounded(config.initial_window),
            threshold: u64::MAX,
            credit: 0,
            decreased: Instant::ZERO,
            before: 0,
            round: Instant::ZERO,
            peak: 0,
            came: 0,
            held: 0,
            rtt: RttEstimator::new(),
            delay: DelayWatch::new(),
            ledger: Ledger::new(),
        }
    }

    /// How many bytes may be under way at once.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes may leave now, where this many are under way. With nothing
    /// under way one unit always may, or a small window would stand still.
    #[must_use]
    pub fn room(&self, config: &Config, under_way: u64) -> u64 {
        if under_way == 0 {
            self.bytes.max(config.unit())
        } else {
            self.bytes.saturating_sub(under_way)
        }
    }

    /// How long to wait after `bytes` left before more do, to spread a window
    /// over its round trip. A courtesy to queues while the window holds a unit
    /// or more (RFC 9002, 7.7); a duty below that.
    #[must_use]
    pub fn pause(&self, config: &Config, bytes: u64) -> Duration {
        // Quarters: faster than the window says, and by the shortest round
        // trip, so that it is never pacing that holds the window back.
        let (round, quarters) = match self.phase() {
            _ if self.bytes < config.unit() => (self.rtt.smoothed(), 4),
            Phase::SlowStart => (self.rtt.shortest(), 8),
            Phase::Avoidance | Phase::Competing => (self.rtt.shortest(), 5),
        };
        let Some(round) = round else { return Duration::ZERO };
        let (round, parts) = (round.as_nanos() as u64, self.bytes.max(1).saturating_mul(quarters));
        // Windows and round trips of this world fit into 64 bits together,
        // where a division is several times as fast.
        let nanos = match round.checked_mul(4).and_then(|round| round.checked_mul(bytes)) {
            Some(whole) => whole / parts,
            None => {
                let wide = u128::from(round) * 4 * u128::from(bytes) / u128::from(parts);
                u64::try_from(wide).unwrap_or(u64::MAX)
            }
        };
        Duration::from_nanos(nanos)
    }

    /// How the window moves at the moment.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        if self.bytes < self.threshold {
            Phase::SlowStart
        } else if self.delay.is_competing() {
            Phase::Competing
        } else {
            Phase::Avoidance
        }
    }

    /// What is known of the round trips.
    #[must_use]
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// How long to wait for what was sent before [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn timeout(&self, config: &Config) -> Duration {
        self.rtt.timeout(config)
    }

    /// How much was lost lately, in parts per million.
    #[must_use]
    pub fn loss(&self) -> u32 {
        self.ledger.parts_per_million()
    }

    /// Bytes arrived.
    pub fn handle_arrived(&mut self, config: &Config, now: Instant, arrived: &Arrived) {
        self.ledger.add_arrived(config, arrived.bytes);
        if arrived.timed {
            let rtt = Ticks::between(arrived.sent, now);
            self.rtt.handle_sample(now, arrived.sent);
            self.delay.handle_sample(config, self.rtt.base(), rtt);
        }
        if arrived.marked {
            self.handle_congestion(config, now, arrived.sent, self.part(ON_MARK));
        }
        let under_way = clamp_u32(arrived.under_way.div_ceil(64));
        self.peak = self.peak.max(under_way);
        self.came = self.came.saturating_add(clamp_u32(arrived.bytes.div_ceil(64)));
        if self.is_used() && !arrived.marked && arrived.sent >= self.decreased {
            self.grow(config, arrived.bytes);
        }
        // The second condition follows from the first, where the caller means
        // what it says.
        let took = Ticks::between(self.round, now);
        if arrived.sent >= self.round && took >= self.rtt.base() {
            // A round in which little was asked for says little: it counts for a few.
            self.held -= self.held / 8;
            let held = scaled(u64::from(self.came), self.rtt.base().0, took.0);
            self.held = self.held.max(clamp_u32(held));
            (self.round, self.peak, self.came) = (now, under_way, 0);
            self.end_round(config, now);
        }
    }

    /// Bytes that were sent, or granted, at `sent` will not arrive: later ones
    /// did, by a margin that speaks against reordering.
    pub fn handle_lost(&mut self, config: &Config, now: Instant, sent: Instant, bytes: u64) {
        self.ledger.add_lost(config, bytes);
        let is_bearable = self.ledger.parts_per_million() <= config.loss_tolerance
            && self.delay.is_short(config, &self.rtt);
        if is_bearable {
            return;
        }
        let to = if self.delay.is_competing() {
            self.part(ON_LOSS_COMPETING)
        } else {
            // What the path holds is no part of the queue that overflowed.
            let held = u64::from(self.held) * 64;
            held.min(self.part(MOST_ON_LOSS)).max(self.part(ON_LOSS))
        };
        self.handle_congestion(config, now, sent, to);
    }

    /// What was taken for lost at `when` was only late, by reordering or because a host paused:
    /// if the window was made smaller then, and not since, it becomes what it was (RFC 4015,
    /// RFC 5682).
    ///
    /// ```
    /// use landfall_congestion::{Config, Window};
    /// use landfall_placement::Instant;
    ///
    /// let (config, now) = (Config::new(1_460), Instant::from_millis(20));
    /// let mut window = Window::new(&config);
    /// let before = window.bytes();
    /// window.handle_lost(&config, now, Instant::from_millis(10), 1_460);
    /// assert!(window.bytes() < before);
    /// window.handle_spurious(&config, now);
    /// assert_eq!(window.bytes(), before);
    /// ```
    pub fn handle_spurious(&mut self, config: &Config, when: Instant) {
        if when == self.decreased && self.before > self.bytes {
            self.bytes = config.bounded(self.before);
            self.threshold = self.threshold.max(self.bytes);
            // Whatever is told of the same moment once more changes nothing.
            self.before = 0;
        }
    }

    /// Nothing arrived for a whole [`timeout`](Self::timeout), although bytes
    /// are under way: start again from one unit (RFC 5681, 3.1).
    pub fn handle_timeout(&mut self, config: &Config, now: Instant) {
        if self.rtt.backoff() == 0 {
            self.threshold = (self.bytes / 2).max(config.unit().saturating_mul(2));
        }
        self.rtt.handle_timeout();
        self.decrease_to(now, config.bounded(config.unit().min(self.bytes)));
    }

    /// Nothing arrived for a whole [`timeout`](Self::timeout), the `nth` in a row, counted from
    /// one: [`handle_timeout`](Self::handle_timeout), unless it is a probe
    /// ([`Config::probes`]), which leaves the window as it is. Returns whether it was one: then
    /// what is under way is not lost yet, and the oldest of it is sent again to find out.
    ///
    /// Anyone who calls this keeps the time of the next time-out, twice as long as this one.
    ///
    /// ```
    /// use landfall_congestion::{Config, Window};
    /// use landfall_placement::Instant;
    ///
    /// let config = Config::new(1_460);
    /// let mut window = Window::new(&config);
    /// let before = window.bytes();
    /// assert!(window.handle_silence(&config, Instant::from_millis(20), 1));
    /// assert_eq!(window.bytes(), before);
    /// assert!(!window.handle_silence(&config, Instant::from_millis(60), 2));
    /// assert!(window.bytes() < before);
    /// ```
    pub fn handle_silence(&mut self, config: &Config, now: Instant, nth: u8) -> bool {
        let is_probe = config.is_probe(nth);
        if !is_probe {
            self.handle_timeout(config, now);
        }
        is_probe
    }

    /// Something is sent, or granted, while nothing was under way. If that was
    /// so for long, the window starts again (RFC 5681, 4.1): what it was is
    /// remembered as the end of slow start.
    pub fn handle_start(&mut self, config: &Config, now: Instant) {
        // The last round began up to one round trip before the last arrival.
        let idle = self.timeout(config) + self.rtt.smoothed().unwrap_or_default();
        if now.since(self.round) > idle && self.rtt.smoothed().is_some() {
            self.threshold = self.threshold.max(self.bytes / 4 * 3);
            self.bytes = config.bounded(self.bytes.min(config.initial_window));
            self.credit = 0;
            self.round = now;
        }
    }

    const fn part(&self, (share, of): Share) -> u64 {
        self.bytes / of * share
    }

    /// A reason to send less, from something that was sent at `sent`. Once in
    /// a round trip: what was sent before the last decrease tells nothing new.
    fn handle_congestion(&mut self, config: &Config, now: Instant, sent: Instant, to: u64) {
        if sent < self.decreased {
            return;
        }
        self.decrease_to(now, config.bounded(to));
        self.threshold = self.bytes;
    }

    fn decrease_to(&mut self, now: Instant, bytes: u64) {
        self.before = core::mem::replace(&mut self.bytes, bytes);
        self.decreased = now;
        self.credit = 0;
        self.delay.handle_congestion();
    }

    fn end_round(&mut self, config: &Config, now: Instant) {
        if self.phase() == Phase::SlowStart {
            if self.delay.ends_slow_start(config, self.rtt.base()) {
                self.threshold = self.bytes;
            }
            // Whether the queue is to be yielded to, the next round shows.
            return self.delay.skip_round();
        }
        match self.delay.end_round(config, self.rtt.base(), self.bytes) {
            Advice::GoOn => {}
            Advice::Yield(to) => {
                self.bytes = config.bounded(to.min(self.bytes));
                self.threshold = self.bytes;
                self.credit = 0;
                self.decreased = now;
                self.before = 0;
            }
            // By slow start, not at once: a burst into a full queue helps nobody.
            Advice::Return(to) => self.threshold = config.bounded(to),
        }
    }

    /// RFC 7661: growth needs evidence, and a window that stays half empty for
    /// a round gives none.
    const fn is_used(&self) -> bool {
        self.peak as u64 * 64 * 2 >= self.bytes
    }

    /// The rounds without a queue after which a window of this many units grows faster.
    fn patience(&self, units: u64) -> u64 {
        let (time, least) = LONG_PATIENCE;
        let round = self.rtt.smoothed_ticks().0.max(1);
        let rounds = u64::from(Ticks::from(time).0 / round).max(least);
        (units / 4).clamp(PATIENCE, 4 * PATIENCE).min(rounds)
    }

    fn grow(&mut self, config: &Config, bytes: u64) {
        if self.phase() == Phase::SlowStart {
            if !self.delay.holds_slow_start() {
                // RFC 5681, 3.1, and never beyond its threshold.
                let growth = bytes.min(self.threshold - self.bytes);
                self.bytes = config.bounded(self.bytes.saturating_add(growth));
            }
            return;
        }
        // A unit for each window that arrived; more, in quarters of a unit, the
        // longer no queue was seen (as H-TCP does by time), up to an eighth of
        // the window in a round.
        let mut quarters = 4;
        let quiet = u64::from(self.delay.quiet_rounds());
        if quiet > LONG_PATIENCE.1 {
            let units = self.bytes / config.unit();
            let beyond = quiet.saturating_sub(self.patience(units));
            quarters += (beyond * (units / UNITS_OF_LARGE).max(1)).min(units / 2);
        }
        self.credit = self.credit.saturating_add(bytes.saturating_mul(quarters));
        let step = self.bytes.max(1).saturating_mul(4);
        if self.credit >= step {
            let units = self.credit / step;
            self.credit %= step;
            let growth = units.saturating_mul(config.unit()).min(self.bytes / 2);
            self.bytes = config.bounded(self.bytes.saturating_add(growth.max(1)));
        }
    }
}

/// Bytes that arrived and bytes that were lost, the older ones fading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    arrived: u32,
    lost: u32,
}

/// This many units are remembered, before both sides are halved.
const HORIZON: u64 = 4_096;

impl Ledger {
    pub(crate) const fn new() -> Self {
        Self { arrived: 0, lost: 0 }
    }

    pub(crate) fn add_arrived(&mut self, config: &Config, bytes: u64) {
        self.arrived = added(self.arrived, bytes);
        self.fade(config);
    }

    pub(crate) fn add_lost(&mut self, config: &Config, bytes: u64) {
        self.lost = added(self.lost, bytes);
        self.fade(config);
    }

    fn fade(&mut self, config: &Config) {
        let total = u64::from(self.arrived) + u64::from(self.lost);
        if total > HORIZON.saturating_mul(config.unit()).min(u64::from(u32::MAX)) {
            (self.arrived, self.lost) = (self.arrived / 2, self.lost / 2);
        }
    }

    /// Lost bytes among all, in parts per million.
    pub(crate) fn parts_per_million(&self) -> u32 {
        let total = u64::from(self.arrived) + u64::from(self.lost);
        let parts = u64::from(self.lost) * 1_000_000 / total.max(1);
        parts as u32 // At most a million.
    }
}

fn added(sum: u32, bytes: u64) -> u32 {
    sum.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config::new(1_000);

    #[test]
    fn the_share_of_what_was_lost_is_known_and_fades() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.parts_per_million(), 0);
        for n in 0..10_000 {
            if n % 100 == 0 {
                ledger.add_lost(&CONFIG, 1_000);
            } else {
                ledger.add_arrived(&CONFIG, 1_000);
            }
        }
        assert!(ledger.parts_per_million().abs_diff(10_000) < 500, "{ledger:?}");
        for _ in 0..50_000 {
            ledger.add_arrived(&CONFIG, 1_000);
        }
        assert!(ledger.parts_per_million() < 10, "{ledger:?}");
    }

    #[test]
    fn any_numbers_give_a_share() {
        let mut ledger = Ledger::new();
        ledger.add_lost(&CONFIG, u64::MAX);
        assert_eq!(ledger.parts_per_million(), 1_000_000);
        ledger.add_arrived(&CONFIG, u64::MAX);
        assert!(ledger.parts_per_million() < 1_000_000);
    }

    #[test]
    fn four_thousand_and_ninety_six_units_are_remembered_and_then_halved() {
        let mut ledger = Ledger::new();
        ledger.add_arrived(&CONFIG, 3_000_000);
        ledger.add_lost(&CONFIG, 1_096_000);
        assert_eq!(ledger, Ledger { arrived: 3_000_000, lost: 1_096_000 });
        ledger.add_arrived(&CONFIG, 2);
        assert_eq!(ledger, Ledger { arrived: 1_500_001, lost: 548_000 });
    }
}
