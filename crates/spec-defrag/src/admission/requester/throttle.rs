//! A token bucket that may go into debt; what a requester is told once.

use landfall_placement::{Duration, Instant};

use super::super::frame::{Mac, Priority};
use super::super::{ConfigError, SHORTEST, address, number, time};

const SECOND: i128 = 1_000_000_000;

/// Returns bytes at a steady rate, up to a burst.
///
/// What is in the bucket says whether something may be sent, not how long it may be: a
/// packet longer than the burst passes, and its debt is paid before the next one. So
/// no size of burst can stop a packet for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    /// Bytes per second.
    rate: u64,
    /// In bytes × seconds / 10⁹, so that no fraction is lost.
    burst: i128,
    level: i128,
    at: Instant,
}

impl Throttle {
    /// A full bucket.
    pub(super) fn new(rate: u64, burst: u32) -> Self {
        let burst = i128::from(burst) * SECOND;
        Self { rate, burst, level: burst, at: Instant::ZERO }
    }

    fn level(&self, now: Instant) -> i128 {
        let gained = i128::from(now.since(self.at).as_nanos() as u64) * i128::from(self.rate);
        self.burst.min(self.level.saturating_add(gained))
    }

    /// How many bytes are in it: while there are any, a packet may be sent.
    pub(super) fn bytes(&self, now: Instant) -> u64 {
        let bytes = self.level(now).div_euclid(SECOND);
        u64::try_from(bytes).unwrap_or(0)
    }

    /// When there is at least one byte in it.
    pub(super) fn open_at(&self, now: Instant) -> Instant {
        let missing = SECOND - self.level(now);
        if missing <= 0 {
            return now;
        }
        let nanos = missing.unsigned_abs().div_ceil(u128::from(self.rate).max(1));
        now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Counts bytes that were sent.
    pub(super) fn take(&mut self, now: Instant, bytes: u64) {
        self.level = self.level(now).saturating_sub(i128::from(bytes) * SECOND);
        self.at = self.at.max(now);
    }
}

// How many bytes were sent of late.

/// A window is counted in this many parts.
const PARTS: usize = 8;

/// One more than the parts: a window may begin within one.
const COUNTERS: usize = PARTS + 1;

/// Counts bytes over a window that moves in steps of an eighth of its length.
///
/// It counts a whole window and up to an eighth more, so that no window with too many
/// bytes is missed, wherever it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    part: Duration,
    /// The number of the part that `bytes[0]` counts.
    newest: u64,
    bytes: [u64; COUNTERS],
    last: Option<Instant>,
}

impl Meter {
    pub(super) fn new(window: Duration) -> Self {
        let part = (window / PARTS as u32).max(Duration::from_nanos(1));
        Self { part, newest: 0, bytes: [0; COUNTERS], last: None }
    }

    /// Counts bytes that were sent. Returns how many were within the last window.
    pub(super) fn count(&mut self, now: Instant, bytes: u64) -> u64 {
        let part = now.as_nanos() / self.part.as_nanos().max(1) as u64;
        let steps = part.saturating_sub(self.newest).min(COUNTERS as u64) as usize;
        self.bytes.rotate_right(steps % COUNTERS);
        self.bytes[..steps].fill(0);
        self.newest = self.newest.max(part);
        self.bytes[0] = self.bytes[0].saturating_add(bytes);
        self.last = Some(now);
        self.bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// When something was sent last.
    pub(super) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.bytes = [0; COUNTERS];
    }
}

/// How a sender asks one receiver to send fast. The defaults fit those of
/// [`GateConfig`](super::super::GateConfig) and a link of 1 Gbit/s: what is throttled
/// takes less than two hundredths of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// The address of the sender.
    pub address: Mac,
    /// The address of the receiver.
    pub receiver: Mac,
    /// A transfer of this many bytes asks by itself, and so does sending as many within
    /// [`window`](Self::window). `None`: only [`Requester::ask`](super::Requester::ask) asks.
    pub implicit: Option<u64>,
    /// See [`implicit`](Self::implicit).
    pub window: Duration,
    /// Who asked because of what it sent lets go after so long without sending.
    pub linger: Duration,
    /// What may be sent in slow mode, in bytes per second. Never zero: transfers that
    /// wait for one another would stand still.
    pub slow_rate: u64,
    /// How much of that may be sent at once.
    pub slow_burst: u32,
    /// A refused transfer is delayed, for so long at most, before it goes on slowly.
    /// Zero: it goes on at once.
    pub delay: Duration,
    /// How soon a request is repeated that nobody answers; doubled each time.
    pub retry: Duration,
    /// After this many requests without any answer the receiver is taken for one that
    /// has no gate: then nothing is throttled.
    pub attempts: u16,
    /// How often such a receiver is asked again.
    pub silent_retry: Duration,
    /// How many transfers there may be at once.
    pub transfers: u16,
    /// The priority tag of what the requester sends.
    pub priority: Option<Priority>,
}

impl RequesterConfig {
    /// The defaults for a sender and a receiver with these addresses.
    #[must_use]
    pub const fn new(address: Mac, receiver: Mac) -> Self {
        Self {
            address,
            receiver,
            implicit: Some(256 * 1024),
            window: Duration::from_millis(10),
            linger: Duration::from_millis(20),
            slow_rate: 2_000_000,
            slow_burst: 16 * 1024,
            delay: Duration::ZERO,
            retry: Duration::from_millis(1),
            attempts: 5,
            silent_retry: Duration::from_secs(1),
            transfers: 256,
            priority: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        address(self.address)?;
        address(self.receiver)?;
        if self.address == self.receiver {
            return Err(ConfigError::SameAddress);
        }
        number("implicit", self.implicit.unwrap_or(1), 1, u64::MAX)?;
        number("slow_rate", self.slow_rate, 1, u64::from(u32::MAX) * 1_000)?;
        number("slow_burst", self.slow_burst.into(), 1, u32::MAX.into())?;
        number("attempts", self.attempts.into(), 1, 64)?;
        number("transfers", self.transfers.into(), 1, u16::MAX.into())?;
        time("window", self.window, SHORTEST)?;
        time("linger", self.linger, SHORTEST)?;
        time("delay", self.delay, Duration::ZERO)?;
        time("retry", self.retry, SHORTEST)?;
        time("silent_retry", self.silent_retry, self.retry)
    }
}

// What a requester tells and answers.

/// How one may send to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As ever: nothing was asked for, or the receiver has no gate.
    Plain,
    /// At low priority, and throttled: an answer is still to come, or it was no.
    Slow,
    /// With a lease: in bursts cut for the receiver's speculation.
    Fast {
        /// Up to when, unless it is renewed.
        until: Instant,
    },
}

/// How much may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How.
    pub mode: Mode,
    /// Bytes. While it is not zero a whole packet may be sent, longer or not;
    /// in slow mode the next one then waits for longer.
    pub bytes: u64,
    /// If no bytes: when to ask again.
    pub again: Option<Instant>,
}

/// The answer to asking for fast mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is none yet.
    Pending,
    /// Yes.
    Granted {
        /// Up to when, unless it is renewed.
        until: Instant,
    },
    /// Not yet.
    Refused {
        /// How many get their turn first; `None` without a place in the queue.
        position: Option<u16>,
        /// When the receiver is asked again.
        ask_again: Instant,
    },
    /// The receiver does not answer: it has no gate.
    NoGate,
    /// This transfer did not ask, or is over.
    NotAsked,
}

/// Something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequesterEvent {
    /// From now on it is fast.
    Granted {
        /// Up to when, unless it is renewed.
        until: Instant,
    },
    /// Not yet: it goes on slowly.
    Refused {
        /// How many get their turn first; `None` without a place in the queue.
        position: Option<u16>,
        /// After how long the receiver is asked again.
        wait: Duration,
    },
    /// It was fast and is slow now. The receiver is asked again.
    Lost(Lost),
    /// The receiver has no gate: it goes on as ever.
    NoGate,
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It ran out: nobody answered.
    RanOut,
    /// The receiver did not renew it: it is somebody else's turn.
    TurnOver,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_longer_than_the_burst_passes_and_is_paid_for() {
        let mut throttle = Throttle::new(1_000, 10);
        let start = Instant::from_millis(5);
        assert_eq!((throttle.bytes(start), throttle.open_at(start)), (10, start));
        throttle.take(start, 110);
        assert_eq!(throttle.bytes(start), 0);
        // 100 bytes of debt and one to be open, at a byte each millisecond.
        let open = throttle.open_at(start);
        assert_eq!(open, Instant::from_millis(5 + 101));
        assert_eq!(throttle.bytes(open - Duration::from_nanos(1)), 0);
        assert_eq!(throttle.bytes(open), 1);
        assert_eq!(throttle.bytes(Instant::FAR_FUTURE), 10, "no more than the burst");
    }

    #[test]
    fn in_the_long_run_it_is_the_rate() {
        let mut throttle = Throttle::new(2_000_003, 16_384);
        let (mut now, mut sent) = (Instant::ZERO, 0);
        while now < Instant::from_millis(10_000) {
            now = throttle.open_at(now);
            throttle.take(now, 4_096);
            sent += 4_096;
        }
        let most = 20_000_030 + 16_384 + 2 * 4_096;
        assert!((20_000_030..=most).contains(&sent), "{sent}");
    }

    #[test]
    fn no_numbers_overflow() {
        let mut throttle = Throttle::new(u64::from(u32::MAX) * 1_000, u32::MAX);
        for now in [Instant::FAR_FUTURE, Instant::ZERO] {
            throttle.take(now, u64::MAX);
            assert_eq!(throttle.bytes(now), 0);
            assert!(throttle.open_at(now) >= now);
        }
    }

    #[test]
    fn it_counts_a_window_and_at_most_an_eighth_more() {
        let window = Duration::from_millis(8);
        for start in 0..20 {
            let start = Instant::from_micros(start * 137);
            let mut meter = Meter::new(window);
            assert_eq!(meter.count(start, 5), 5);
            assert_eq!(meter.count(start + window, 7), 12, "within one window");
            let later = start + window + Duration::from_millis(9);
            assert_eq!(meter.count(later, 1), 1, "both are too long ago");
        }
    }

    #[test]
    fn time_that_stands_still_or_leaps_is_counted() {
        let mut meter = Meter::new(Duration::from_nanos(1));
        assert_eq!(meter.count(Instant::ZERO, u64::MAX), u64::MAX);
        assert_eq!(meter.count(Instant::ZERO, 1), u64::MAX);
        assert_eq!(meter.count(Instant::FAR_FUTURE, 3), 3);
        assert_eq!(meter.last(), Some(Instant::FAR_FUTURE));
        meter.clear();
        assert_eq!(meter.count(Instant::FAR_FUTURE, 4), 4);
    }
}
