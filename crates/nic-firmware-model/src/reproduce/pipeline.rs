//! Units that pass one resource after another: processors, buses, DMA engines, a wire.
//!
//! Each resource serves one unit at a time, in their order; a unit goes on when it
//! was served. (A resource that units pass twice serves the whole of one before the
//! next.) That is all that the throughput and the latency of an adapter with
//! its two hosts need, once it is known how long each stage takes.

/// Seconds.
pub type Seconds = f64;

/// What one stage does with a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// The resource that does it.
    pub resource: usize,
    /// For how long it is busy.
    pub busy: Seconds,
    /// For how long the unit is under way behind it while nobody is busy: a wire's
    /// length, a wait for an interrupt.
    pub delay: Seconds,
}

impl Stage {
    /// A stage without any delay behind it.
    #[must_use]
    pub const fn new(resource: usize, busy: Seconds) -> Self {
        Self { resource, busy, delay: 0.0 }
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// When the last unit left the last stage.
    pub end: Seconds,
    /// How long each resource was busy.
    pub busy: Vec<Seconds>,
}

impl Run {
    /// The share of the run that a resource was busy.
    #[must_use]
    pub fn share(&self, resource: usize) -> f64 {
        self.busy.get(resource).copied().unwrap_or(0.0) / self.end
    }
}

/// Sends this many units, all ready at the beginning, through the stages. At most
/// `window` of them are between the first stage and the end at a time.
#[must_use]
pub fn run(stages: &[Stage], units: usize, window: usize) -> Run {
    let resources = stages.iter().map(|stage| stage.resource + 1).max().unwrap_or(0);
    let mut free = vec![0.0_f64; resources];
    let mut busy = vec![0.0_f64; resources];
    let mut ends = Vec::with_capacity(units);
    for unit in 0..units {
        // Units are served in their order, so a unit that was sent `window` ago must be through.
        let mut at = unit.checked_sub(window.max(1)).map_or(0.0, |before| ends[before]);
        for stage in stages {
            let start = f64::max(at, free[stage.resource]);
            free[stage.resource] = start + stage.busy;
            busy[stage.resource] += stage.busy;
            at = start + stage.busy + stage.delay;
        }
        ends.push(at);
    }
    Run { end: ends.last().copied().unwrap_or(0.0), busy }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn the_slowest_resource_sets_the_pace() {
        let stages = [Stage::new(0, 1.0), Stage::new(1, 3.0), Stage::new(2, 2.0)];
        let run = run(&stages, 100, usize::MAX);
        assert!(close(run.end, 1.0 + 100.0 * 3.0 + 2.0), "{}", run.end);
        assert!(close(run.busy[0], 100.0) && close(run.busy[1], 300.0));
    }

    #[test]
    fn a_resource_that_is_used_twice_counts_twice() {
        let stages = [Stage::new(0, 1.0), Stage::new(1, 0.5), Stage::new(0, 1.0)];
        let run = run(&stages, 50, 1);
        assert!(close(run.end, 50.0 * 2.5), "one at a time: {}", run.end);
        assert!(close(run.share(0), 2.0 / 2.5));
    }

    #[test]
    fn a_window_waits_for_delays() {
        let stages = [Stage { resource: 0, busy: 1.0, delay: 9.0 }];
        assert!(close(run(&stages, 10, 1).end, 100.0));
        assert!(close(run(&stages, 10, 10).end, 19.0));
    }
}
