//! [`HostProcessor`]: what a host's processor does, and when that is done.

use std::collections::VecDeque;

use landfall_placement::{Duration, Instant};

/// A processor: its jobs one after another. An interrupt delays the one under way.
#[derive(Clone, Debug)]
pub struct HostProcessor<J> {
    waiting: VecDeque<(Duration, J)>,
    doing: Option<(Instant, J)>,
    free_at: Instant,
    /// Until then an interrupt finds the handler of the one before.
    handler_until: Instant,
    busy: Duration,
    handlers: u64,
}

impl<J> Default for HostProcessor<J> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            doing: None,
            free_at: Instant::ZERO,
            handler_until: Instant::ZERO,
            busy: Duration::ZERO,
            handlers: 0,
        }
    }
}

impl<J> HostProcessor<J> {
    /// One more job, which takes so long.
    pub fn ask(&mut self, now: Instant, time: Duration, job: J) {
        self.waiting.push_back((time, job));
        self.begin(now);
    }

    /// An interrupt, whose handler takes `busy`, and has heard of all that came until
    /// `latency` from now. What comes before that is its, too.
    pub fn interrupt(&mut self, now: Instant, latency: Duration, busy: Duration) {
        if now < self.handler_until {
            return;
        }
        self.handler_until = now + latency;
        self.handlers += 1;
        self.busy += busy;
        self.free_at = self.free_at.max(now) + busy;
        if let Some((until, _)) = &mut self.doing {
            *until += busy;
        }
    }

    /// Has it no job?
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.doing.is_none()
    }

    /// When the job under way is done.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.doing.as_ref().map(|(until, _)| *until)
    }

    /// The job that is done, if one is; the next one is begun.
    pub fn poll(&mut self, now: Instant) -> Option<J> {
        let (_, job) = self.doing.take_if(|(until, _)| *until <= now)?;
        self.begin(now);
        Some(job)
    }

    /// How many handlers of interrupts ran.
    #[must_use]
    pub const fn handlers(&self) -> u64 {
        self.handlers
    }

    /// For how long it was busy, with what it has begun.
    #[must_use]
    pub const fn busy(&self) -> Duration {
        self.busy
    }

    fn begin(&mut self, now: Instant) {
        if self.doing.is_some() {
            return;
        }
        let Some((time, job)) = self.waiting.pop_front() else { return };
        self.free_at = self.free_at.max(now) + time;
        self.busy += time;
        self.doing = Some((self.free_at, job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_one_after_another_and_interrupts_between() {
        let mut processor = HostProcessor::default();
        let (at, long) = (Instant::from_micros, Duration::from_micros);
        processor.ask(at(0), long(5), 'a');
        processor.ask(at(0), long(2), 'b');
        processor.interrupt(at(1), long(3), long(3));
        // The same handler hears of this one.
        processor.interrupt(at(3), long(3), long(3));
        assert_eq!((processor.poll_timeout(), processor.poll(at(7))), (Some(at(8)), None));
        assert_eq!((processor.poll(at(8)), processor.poll_timeout()), (Some('a'), Some(at(10))));
        assert_eq!((processor.poll(at(10)), processor.is_idle()), (Some('b'), true));
        processor.interrupt(at(20), long(3), long(3));
        processor.ask(at(21), long(1), 'c');
        assert_eq!(processor.poll_timeout(), Some(at(24)), "behind the handler");
        assert_eq!((processor.busy(), processor.handlers()), (long(14), 2));
    }
}
