//! [`Pacer`]: new data leaves at the rate of the congestion control, not in bursts, where
//! that is chosen ([`Pacing`]).
//!
//! As much as the rate carries in a millisecond leaves at once, so that a sender wakes a
//! thousand times a second at most; then nothing new leaves before its time has come.

use landfall_placement::{Duration, Instant};

use super::config::Pacing;
use super::congestion::PacingRate;
use super::sender::{Recovery, Sender, Sizes};

/// So long is what leaves at once.
const BURST: Duration = Duration::from_millis(1);
/// A path with so long a round trip is a long one.
const LONG: Duration = Duration::from_millis(4);

/// When new data of one connection may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When what has left has had its time.
    next: Instant,
    /// New data waits for that.
    is_holding: bool,
}

impl Pacer {
    /// Does new data wait? Then it does until [`deadline`](Self::deadline).
    pub(super) fn holds(&mut self, now: Instant) -> bool {
        let until = if self.is_holding { now } else { now + BURST };
        self.is_holding = self.next > until;
        self.is_holding
    }

    /// This many bytes left. Who was woken a little late catches up.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, rate: PacingRate) {
        let is_nearly_on_time = self.next + BURST >= now;
        let start = if is_nearly_on_time { self.next } else { now };
        self.next = start + rate.time(bytes);
    }

    /// When what waits may leave; never, where nothing does.
    pub(super) fn deadline(&self) -> Instant {
        if self.is_holding { self.next } else { Instant::FAR_FUTURE }
    }

    /// Time passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.is_holding &= self.next > now;
    }
}

/// How long one segment may be, of those that a device cuts.
fn longest(rate: PacingRate, mss: u32) -> u32 {
    let burst = u32::try_from(rate.bytes(BURST)).unwrap_or(u32::MAX);
    (burst / mss * mss).max(2 * mss)
}

impl Sender {
    /// Does new data leave at a rate on this path? What waits in queues does not make it long.
    #[inline]
    pub(super) fn paces(&self, pacing: Pacing) -> bool {
        match pacing {
            Pacing::Never => false,
            Pacing::OnLongPaths => self.rtt.least().is_some_and(|least| least >= LONG),
            Pacing::Always => true,
        }
    }

    /// Where nothing was measured so far there is no rate.
    fn pacing_rate(&self) -> Option<PacingRate> {
        let smoothed = self.rtt.smoothed()?;
        Some(self.controller.pacing_rate(smoothed))
    }

    /// Segments that a device cuts are no longer than a burst.
    pub(super) fn paced(&self, sizes: Sizes) -> Sizes {
        let longest = self.pacing_rate().map_or(u32::MAX, |rate| longest(rate, sizes.mss));
        Sizes { most: sizes.most.min(longest), ..sizes }
    }

    /// Does new data from this position on wait for its time? The first window does not
    /// (RFC 6928), nor does one that is not much larger, a probe, or what leaves after a
    /// time-out: that is little.
    pub(super) fn is_held_back(&mut self, now: Instant, start: u64) -> bool {
        let little = self.controller.initial_window();
        let is_little = start <= little || self.controller.window() <= 2 * little;
        let is_loss = matches!(self.recovery, Recovery::Loss { .. });
        let may_wait = !is_little && !is_loss && !self.is_probe_due;
        let is_held = may_wait && self.pacer.as_mut().is_some_and(|pacer| pacer.holds(now));
        if is_held {
            // The rate follows from the window, so that it is the window that is too small.
            self.limited_upto = start;
        }
        is_held
    }

    /// This many bytes left, and have their time.
    pub(super) fn sent_paced(&mut self, now: Instant, bytes: u64) {
        if let Some(rate) = self.pacing_rate() {
            self.pacer.get_or_insert_default().on_sent(now, bytes, rate);
        }
    }
}
