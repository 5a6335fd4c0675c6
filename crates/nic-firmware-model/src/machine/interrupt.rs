//! When the host is interrupted.

use landfall_placement::{Duration, Instant};

/// When reports lead to an interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalescing {
    /// Never: the host sees each report at once.
    #[default]
    Watched,
    /// Some time after the first report that the host must hear of, or once there
    /// are so many of them.
    After {
        /// How long the first waits.
        time: Duration,
        /// How many do not wait.
        reports: u32,
    },
}

/// The interrupt line of an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupt {
    coalescing: Coalescing,
    waiting: u32,
    due: Option<Instant>,
    raised: u64,
}

impl Interrupt {
    /// A line that is low.
    #[must_use]
    pub const fn new(coalescing: Coalescing) -> Self {
        Self { coalescing, waiting: 0, due: None, raised: 0 }
    }

    /// There is something that the host must hear of.
    pub fn request(&mut self, now: Instant) {
        self.waiting = self.waiting.saturating_add(1);
        let due = match self.coalescing {
            Coalescing::Watched => now,
            Coalescing::After { reports, .. } if self.waiting >= reports => now,
            Coalescing::After { time, .. } => now + time,
        };
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
    }

    /// It must hear of it now.
    pub fn hurry(&mut self, now: Instant) {
        self.waiting = self.waiting.max(1);
        self.due = Some(self.due.map_or(now, |other| other.min(now)));
    }

    /// Is the host interrupted now? Then the line is low again.
    pub fn take(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.raised += 1;
        self.waiting = 0;
        self.due = None;
        true
    }

    /// When it will be.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Does the host see each report at once?
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.coalescing == Coalescing::Watched
    }

    /// How often the host was interrupted.
    #[must_use]
    pub const fn raised(&self) -> u64 {
        self.raised
    }

    /// What it would have been interrupted for is gone.
    pub fn reset(&mut self) {
        self.waiting = 0;
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_wait_and_many_do_not() {
        let time = Duration::from_micros(100);
        let mut line = Interrupt::new(Coalescing::After { time, reports: 3 });
        let at = Instant::from_micros;
        assert!(!line.take(at(0)));
        line.request(at(0));
        line.request(at(50));
        assert_eq!((line.due(), line.take(at(99))), (Some(at(100)), false));
        assert!(line.take(at(100)) && !line.take(at(100)));
        for _ in 0..3 {
            line.request(at(200));
        }
        assert!(line.take(at(200)));
        line.request(at(300));
        line.hurry(at(310));
        assert!(line.take(at(310)));
        assert_eq!(line.raised(), 3);
    }
}
