//! How much may be under way: the congestion window and what moves it.
//!
//! One [`Controller`] per connection holds the window of either algorithm. It
//! knows bytes and moments, no segments: which bytes are lost is decided by the
//! scoreboard, when a recovery begins and ends by the sender. During a recovery
//! [`Prr`] says, acknowledgement by acknowledgement, what may be sent.
//!
//! A receiver that merges segments acknowledges dozens of them at once, and the
//! sender hands out super-segments, so growth counts acknowledged bytes (RFC
//! 3465) with no limit per acknowledgement, as Linux does: a limit of two
//! segments would make slow start slower the better the receiver merges.

mod cubic;
mod dctcp;
mod prr;
#[cfg(test)]
mod tests;

use landfall_placement::{Duration, Instant};

use cubic::{Cubic, Epoch, HyStart, SlowStartStep};
use dctcp::Dctcp;

pub(crate) use prr::{Delivery, Prr};

/// No window is larger: the receiver cannot offer more (RFC 7323, section 2.3).
const LARGEST_WINDOW: u32 = 1 << 30;

/// Which algorithm moves the congestion window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CongestionControl {
    /// Additive increase, halved on loss (RFC 5681 and 6582).
    NewReno,
    /// A cubic function of the time since the last loss (RFC 9438): fills fast
    /// paths with long delay, and is fair to NewReno on others.
    #[default]
    Cubic,
    /// As NewReno, but reduced by as much of a window as was marked (RFC 8257), and marks
    /// are echoed so that the other side can do the same. For networks of one's own whose
    /// switches mark early: both ends have to have chosen it, which nobody negotiates, and
    /// [`ecn`](crate::TcpConfig::ecn).
    Dctcp,
}

impl CongestionControl {
    /// A receiver echoes the mark of each segment, in place of echoing the first until the
    /// sender has heard of it (RFC 3168).
    pub(crate) const fn echoes_each_mark(self) -> bool {
        matches!(self, Self::Dctcp)
    }
}

/// What one acknowledgement tells the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) now: Instant,
    /// Bytes that it acknowledged for the first time.
    pub(crate) bytes: u64,
    /// The position it acknowledged up to.
    pub(crate) acknowledged: u64,
    /// The position after the last byte ever sent.
    pub(crate) next: u64,
    /// The round trip of the newest byte it acknowledged, if that is known.
    pub(crate) rtt: Option<Duration>,
    /// The smoothed round trip.
    pub(crate) smoothed: Duration,
    /// Bytes under way before this acknowledgement.
    pub(crate) in_flight: u64,
    /// The window, and nothing else, kept the sender from sending more.
    pub(crate) is_window_limited: bool,
}

/// How fast new data may leave: a window in a part of the round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacingRate {
    window: u32,
    nanos: u64,
}

impl PacingRate {
    /// How long this many bytes take. (Both factors are below 2^32 and 2^40 at most.)
    pub(crate) fn time(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * u128::from(self.nanos) / u128::from(self.window);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many bytes leave in a time.
    pub(crate) fn bytes(self, time: Duration) -> u64 {
        let bytes = time.as_nanos() * u128::from(self.window) / u128::from(self.nanos);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Debug)]
enum Algorithm {
    /// Nothing was congested so far, and slow start goes on: there is no function yet.
    NewRenoBegins(HyStart),
    CubicBegins(HyStart),
    NewReno(NewReno),
    Cubic(Cubic),
    /// Marks alone end its slow start: switches that mark early leave no delay to be seen.
    Dctcp(Dctcp),
}

impl Algorithm {
    fn new(chosen: CongestionControl) -> Self {
        match chosen {
            CongestionControl::NewReno => Self::NewRenoBegins(HyStart::default()),
            CongestionControl::Cubic => Self::CubicBegins(HyStart::default()),
            CongestionControl::Dctcp => Self::Dctcp(Dctcp::default()),
        }
    }

    /// What the first slow start watches, as long as it goes on.
    fn first_slow_start(&mut self) -> Option<&mut HyStart> {
        match self {
            Self::NewRenoBegins(hystart) | Self::CubicBegins(hystart) => Some(hystart),
            Self::NewReno(_) | Self::Cubic(_) | Self::Dctcp(_) => None,
        }
    }

    fn end_first_slow_start(&mut self) {
        match self {
            Self::NewRenoBegins(_) => *self = Self::NewReno(NewReno::default()),
            Self::CubicBegins(_) => *self = Self::Cubic(Cubic::default()),
            Self::NewReno(_) | Self::Cubic(_) | Self::Dctcp(_) => {}
        }
    }
}

/// The window at one moment, to be restored where a reduction was a mistake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedWindow {
    window: u32,
    threshold: u32,
    epoch: Epoch,
}

/// The congestion window of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Controller {
    mss: u32,
    window: u32,
    threshold: u32,
    initial: u32,
    algorithm: Algorithm,
}

impl Controller {
    /// A controller that begins in slow start, with the initial window of RFC
    /// 6928, section 2: ten segments, but at most 14,600 bytes, or two segments.
    pub(crate) fn new(algorithm: CongestionControl, mss: u32) -> Self {
        let mss = mss.clamp(1, 1 << 16);
        let initial = (10 * mss).min((2 * mss).max(14_600));
        let algorithm = Algorithm::new(algorithm);
        Self { mss, window: initial, threshold: u32::MAX, initial, algorithm }
    }

    /// The opening had to be repeated: one segment leaves at first (RFC 5681, 3.1).
    pub(crate) fn opening_was_lost(&mut self) {
        self.window = self.mss;
    }

    /// How many bytes may be under way outside of a recovery.
    pub(crate) fn window(&self) -> u64 {
        u64::from(self.window)
    }

    /// How fast new data leaves where it is paced, as in Linux: two windows in a round trip
    /// while slow start may double the window, six in five round trips later. So the window
    /// is filled, and acknowledgements stay the clock.
    pub(crate) fn pacing_rate(&self, smoothed: Duration) -> PacingRate {
        let nanos = u64::try_from(smoothed.as_nanos()).unwrap_or(u64::MAX);
        let nanos = if self.window < self.threshold / 2 { nanos / 2 } else { nanos / 6 * 5 };
        PacingRate { window: self.window.max(1), nanos: nanos.max(1) }
    }

    /// The window that a connection begins with.
    pub(crate) fn initial_window(&self) -> u64 {
        u64::from(self.initial)
    }

    /// Below it the window grows by slow start.
    pub(crate) fn slow_start_threshold(&self) -> u64 {
        u64::from(self.threshold)
    }

    pub(crate) fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// New data was acknowledged, outside of a fast recovery. (After a time-out
    /// the window grows from one segment by the same rules.)
    pub(crate) fn on_ack(&mut self, ack: &Progress) {
        let mut bytes = u32::try_from(ack.bytes).unwrap_or(u32::MAX).min(LARGEST_WINDOW);
        // A window that is not used says nothing about the path, so it does not
        // grow (RFC 7661, section 1). Slow start doubles it, so half is enough.
        let is_half_used = self.window() < ack.in_flight.saturating_mul(2);
        let may_grow = ack.is_window_limited || (self.is_slow_start() && is_half_used);
        if self.is_slow_start() {
            bytes = self.slow_start(ack, bytes, may_grow);
        }
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) if !may_grow => cubic.pause(ack.now),
            _ if !may_grow || bytes == 0 => {}
            // It has no end that is known before.
            Algorithm::NewRenoBegins(_) | Algorithm::CubicBegins(_) => {}
            Algorithm::NewReno(reno) | Algorithm::Dctcp(Dctcp { reno, .. }) => {
                self.window += reno.growth(self.window, self.mss, bytes);
            }
            Algorithm::Cubic(cubic) => {
                self.window = cubic.grow(self.window, self.mss, bytes, ack.now, ack.smoothed);
            }
        }
        self.window = self.window.min(LARGEST_WINDOW);
    }

    /// Grows up to the threshold (RFC 5681, section 3.1) and gives the bytes
    /// that are left for congestion avoidance.
    fn slow_start(&mut self, ack: &Progress, bytes: u32, may_grow: bool) -> u32 {
        let first = self.algorithm.first_slow_start();
        let verdict = first.map_or(SlowStartStep::Grow, |hystart| hystart.on_ack(ack));
        let step = match verdict {
            _ if !may_grow => 0,
            SlowStartStep::Grow => bytes,
            SlowStartStep::GrowSlowly => bytes / cubic::SLOWER_BY,
            SlowStartStep::Leave => {
                self.threshold = self.window;
                self.algorithm.end_first_slow_start();
                return bytes;
            }
        };
        let used = step.min(self.threshold - self.window).min(LARGEST_WINDOW);
        self.window = (self.window + used).min(LARGEST_WINDOW);
        if matches!(verdict, SlowStartStep::Grow) { step - used } else { 0 }
    }

    /// The path is congested. Called once per recovery: not again before
    /// everything that was under way now has been acknowledged. The window is
    /// the new threshold at once, also for what follows the recovery; in it,
    /// [`Prr`] leads there gently.
    pub(crate) fn on_congestion(&mut self, in_flight: u64) {
        self.threshold = self.reduced(in_flight);
        self.window = self.threshold;
    }

    /// Something of what is under way was marked. Called as
    /// [`on_congestion`](Self::on_congestion) is, once for what is under way: a mark counts as
    /// a loss (RFC 3168, 6.1.2), unless more is known.
    pub(crate) fn on_mark(&mut self, in_flight: u64) {
        let used = self.used(in_flight);
        let Algorithm::Dctcp(dctcp) = &mut self.algorithm else {
            return self.on_congestion(in_flight); // Others know nothing more.
        };
        self.threshold = dctcp.on_mark(used).max(2 * self.mss);
        self.window = self.threshold;
    }

    /// How much of what is acknowledged was marked, in a recovery or not.
    #[inline]
    pub(crate) fn count_marks(&mut self, bytes: u64, marked: u64, upto: u64, next: u64) {
        if let Algorithm::Dctcp(dctcp) = &mut self.algorithm {
            dctcp.count(bytes, marked, upto, next);
        }
    }

    /// The retransmission timer ran out (RFC 5681, section 3.1). A repeated
    /// time-out of the same data does not lower the threshold again.
    pub(crate) fn on_timeout(&mut self, in_flight: u64, is_repeated: bool) {
        if !is_repeated {
            self.threshold = self.reduced(in_flight);
            if let Algorithm::Cubic(cubic) = &mut self.algorithm {
                cubic.on_timeout();
            }
        }
        self.window = self.mss;
    }

    /// Nothing was sent for `idle`. After more than a retransmission time-out
    /// the old window says nothing any more (RFC 5681, section 4.1).
    pub(crate) fn on_idle(&mut self, now: Instant, idle: Duration, timeout: Duration) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.pause(now);
        }
        if idle > timeout {
            self.window = self.window.min(self.initial);
        }
    }

    /// The window as it is now, before it is reduced.
    pub(crate) fn save(&self) -> SavedWindow {
        let epoch = match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.epoch(),
            // No function ran.
            _ => Epoch::default(),
        };
        SavedWindow { window: self.window, threshold: self.threshold, epoch }
    }

    /// The reduction since then was a mistake: what seemed lost was late (RFC 4015 for
    /// the window, RFC 9438, section 4.9, for the function).
    pub(crate) fn restore(&mut self, saved: &SavedWindow) {
        self.window = self.window.max(saved.window);
        self.threshold = saved.threshold;
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.restore(saved.epoch);
        }
    }

    /// No more than this many bytes are under way from now on.
    pub(crate) fn limit(&mut self, bytes: u32) {
        self.window = self.window.min(bytes).max(self.mss);
    }

    /// Segments hold this many bytes from now on. Where they became smaller the
    /// window shrinks as they do, so that no more packets than before leave at
    /// once (RFC 5681, section 3.1).
    pub(crate) fn set_mss(&mut self, mss: u32) {
        let mss = mss.clamp(1, 1 << 16);
        if mss < self.mss {
            let scaled = u64::from(self.window) * u64::from(mss) / u64::from(self.mss);
            self.window = u32::try_from(scaled).unwrap_or(LARGEST_WINDOW);
        }
        self.mss = mss;
        self.initial = (10 * mss).min((2 * mss).max(14_600));
        self.window = self.window.max(mss);
    }

    /// What of the window was used.
    ///
    /// RFC 5681, equation 4, reduces what is under way and not the window, so
    /// that a window that was not used does not hide the congestion. A sender
    /// of whole super-segments is always a little below its window, so here the
    /// window counts as used when half of it is.
    fn used(&self, in_flight: u64) -> u32 {
        let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        if in_flight >= self.window / 2 { self.window } else { in_flight }
    }

    /// The slow start threshold after congestion.
    fn reduced(&mut self, in_flight: u64) -> u32 {
        let used = self.used(in_flight);
        self.algorithm.end_first_slow_start();
        let threshold = match &mut self.algorithm {
            Algorithm::NewReno(reno) | Algorithm::Dctcp(Dctcp { reno, .. }) => {
                reno.on_congestion(used)
            }
            Algorithm::Cubic(cubic) => cubic.on_congestion(used),
            Algorithm::NewRenoBegins(_) | Algorithm::CubicBegins(_) => {
                debug_assert!(false, "it was ended");
                used / 2
            }
        };
        threshold.max(2 * self.mss)
    }
}

/// Bytes acknowledged since the window last grew.
#[derive(Clone, Copy, Debug, Default)]
struct NewReno {
    acked: u32,
}

impl NewReno {
    /// What a window in congestion avoidance grows by: a segment for each window
    /// of acknowledged bytes (RFC 3465, section 2.1).
    fn growth(&mut self, window: u32, mss: u32, bytes: u32) -> u32 {
        let acked = self.acked.saturating_add(bytes);
        self.acked = acked % window;
        // One acknowledgement never covers much more than a window.
        if acked >= window { mss } else { 0 }
    }

    /// RFC 5681, equation 4.
    fn on_congestion(&mut self, used: u32) -> u32 {
        self.acked = 0;
        used / 2
    }
}
