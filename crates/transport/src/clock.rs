//! Where `now` comes from: the monotonic clock, as an engine's [`Instant`].

use std::time::Instant as StdInstant;

use landfall_placement::{Duration, Instant};

/// Counts from the moment it was made. Copies count from the same moment, so
/// that several drivers of one engine agree about the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: StdInstant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: StdInstant::now() }
    }

    /// The time on this clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// How long until `then`; nothing if that has passed.
    #[must_use]
    pub fn until(&self, then: Instant) -> Duration {
        then.since(self.now())
    }
}
