//! How many bytes were sent of late.

use landfall_placement::{Duration, Instant};

/// A window is counted in so many parts.
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

    /// So many bytes were sent; gives how many within the last window.
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

#[cfg(test)]
mod tests {
    use super::*;

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
