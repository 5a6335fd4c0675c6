//! The processor of an adapter: one handler at a time, each to its end.

use landfall_placement::Instant;

use super::parts::time_of;
use crate::firmware::{Meter, Stage};

/// Counts cycles, stage by stage, and says when the processor is free.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor {
    clock: u64,
    free_at: Instant,
    /// Of the handler that runs.
    cycles: u64,
    account: [u64; Stage::ALL.len()],
    handlers: u64,
}

impl Processor {
    /// A processor of so many cycles in a second; 0: they take no time.
    #[must_use]
    pub const fn new(clock: u64) -> Self {
        Self {
            clock,
            free_at: Instant::ZERO,
            cycles: 0,
            account: [0; Stage::ALL.len()],
            handlers: 0,
        }
    }

    /// When it is free for the next handler.
    #[must_use]
    pub const fn free_at(&self) -> Instant {
        self.free_at
    }

    /// A handler begins.
    #[inline]
    pub fn begin(&mut self) -> &mut impl Meter {
        self.cycles = 0;
        self
    }

    /// It ended; says when: now, and the cycles that it spent.
    #[inline]
    pub fn end(&mut self, now: Instant) -> Instant {
        self.handlers += 1;
        self.free_at = now + time_of(self.cycles, self.clock);
        self.free_at
    }

    /// How many cycles were spent in a stage.
    #[must_use]
    pub fn spent(&self, stage: Stage) -> u64 {
        self.account.get(stage as usize).copied().unwrap_or(0)
    }

    /// How many handlers ran.
    #[must_use]
    pub const fn handlers(&self) -> u64 {
        self.handlers
    }

    /// It starts anew; what was counted stays.
    pub fn reset(&mut self) {
        self.free_at = Instant::ZERO;
    }
}

impl Meter for Processor {
    #[inline]
    fn spend(&mut self, stage: Stage, cycles: u32) {
        self.cycles += u64::from(cycles);
        if let Some(spent) = self.account.get_mut(stage as usize) {
            *spent += u64::from(cycles);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_take_time_and_are_kept_apart() {
        let mut processor = Processor::new(100_000_000);
        let now = Instant::from_micros(7);
        let meter = processor.begin();
        meter.spend(Stage::Header, 100);
        meter.spend(Stage::Dma, 50);
        meter.spend(Stage::Header, 50);
        assert_eq!(processor.end(now), Instant::from_micros(9));
        assert_eq!((processor.spent(Stage::Header), processor.spent(Stage::Dma)), (150, 50));
        processor.begin();
        assert_eq!(processor.end(now), now, "nothing was spent");
        assert_eq!(processor.handlers(), 2);
    }
}
