//! [`Totals`]: what many runs did, together.

use std::collections::BTreeMap;
use std::fmt;

use crate::plan::Plan;
use crate::world::Report;

/// What many runs did, together.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Frames that reached engines.
    pub frames: u64,
    /// Events after each of which everything was checked.
    pub events: u64,
    /// Hosts that took part.
    pub hosts: u64,
    /// Virtual time.
    pub time: std::time::Duration,
    /// How often things happened, by their names.
    pub tally: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, plan: &Plan, report: &Report) {
        self.seeds += 1;
        self.frames += report.frames;
        self.events += report.events;
        self.hosts += plan.busy_hosts() as u64;
        self.time += report.time;
        for (what, count) in &report.tally {
            *self.tally.entry(what).or_default() += count;
        }
    }

    /// Adds what other runs did.
    pub fn merge(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.frames += other.frames;
        self.events += other.events;
        self.hosts += other.hosts;
        self.time += other.time;
        for (what, count) in &other.tally {
            *self.tally.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, frames, events, hosts, time, tally } = self;
        let seconds = time.as_secs();
        write!(f, "{seeds} seeds, {hosts} hosts, {frames} frames, {events} events, ")?;
        writeln!(f, "{seconds} s of virtual time")?;
        for (what, count) in tally {
            writeln!(f, "  {count:>12}  {what}")?;
        }
        Ok(())
    }
}
