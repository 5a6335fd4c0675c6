//! And beyond: the same firmware with today's constants, and where it would break.
//!
//! | file | what is there |
//! | --- | --- |
//! | `today` | today's constants, each with where it comes from |
//! | `stp`, `qpip` | frame by frame, on two simulated hosts with such adapters |
//! | `defrag`, `clan` | stages of a pipeline |
//!
//! Nothing here is measured anywhere: all values are the model's alone. What an adapter
//! spends is what its firmware spends in the papers' tables, in cycles; the tables have
//! the sizes that they had.

mod clan;
mod defrag;
mod qpip;
mod stp;
mod today;

use super::exhibit::Constant;
use super::exhibit::{Exhibit, Row, Value};
use super::pipeline::{self, Stage};
use today::{LINKS, Nanos};

/// What can be the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Link,
    Bus,
    Dma,
    Processor,
}

impl Resource {
    const ALL: [Self; 4] = [Self::Link, Self::Bus, Self::Dma, Self::Processor];
}

/// What each column holds; the last is the adapter's processor, or what stands for it.
fn columns(processor: &'static str) -> Vec<&'static str> {
    vec!["Gbit/s", "million packets/s", "one way, µs", "link, %", "bus, %", "DMA, %", processor]
}

/// What came of one configuration.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Bits of payload in a second.
    rate: f64,
    /// Packets in a second.
    packets: f64,
    /// Seconds.
    one_way: f64,
    /// The share of the time for which each resource is busy, in the order of
    /// [`Resource::ALL`].
    busy: [f64; 4],
    /// What these are called here.
    names: [&'static str; 4],
}

/// What the resources are called where an adapter has a processor.
const NAMES: [&str; 4] = ["the link", "the bus", "the DMA engine", "the processor"];

impl Outcome {
    /// It did not get through.
    const NONE: Self = Self {
        rate: f64::NAN,
        packets: f64::NAN,
        one_way: f64::NAN,
        busy: [f64::NAN; 4],
        names: NAMES,
    };

    /// Many units, one behind the other, through stages; and the first of them alone.
    /// What is under way is not bounded.
    fn of_stages(stages: &[(Resource, Nanos)], delay: Nanos, payload: f64) -> Self {
        const UNITS: usize = 10_000;
        let stages: Vec<Stage> = stages
            .iter()
            .map(|(resource, busy)| Stage::new(*resource as usize, busy / 1e9))
            .collect();
        let (one, many) = (pipeline::run(&stages, 1, 1), pipeline::run(&stages, UNITS, usize::MAX));
        let packets = UNITS as f64 / many.end;
        Self {
            rate: packets * payload * 8.0,
            packets,
            one_way: one.end + delay / 1e9,
            busy: Resource::ALL.map(|resource| many.share(resource as usize)),
            names: NAMES,
        }
    }

    /// What is busy longest, if anything is for half of the time.
    fn limit(&self) -> &'static str {
        let shares = self.names.into_iter().zip(self.busy);
        let busiest = shares.max_by(|a, b| a.1.total_cmp(&b.1));
        busiest.filter(|(_, share)| *share > 0.5).map_or("waiting", |(name, _)| name)
    }

    /// A line of an exhibit, which says what the limit is.
    fn row(&self, link: u64, what: &str) -> Row {
        let limit = self.limit();
        let [link_busy, bus, dma, busy] = self.busy.map(|share| share * 100.0);
        let (rate, packets, one_way) = (self.rate / 1e9, self.packets / 1e6, self.one_way * 1e6);
        let values = [rate, packets, one_way, link_busy, bus, dma, busy].map(Value::alone);
        Row::new(format!("{} Gbit/s, {what}: {limit}", link / 1_000_000_000), values.to_vec())
    }
}

/// For both links, what was asked of a design.
fn rows<T>(asked: &[(T, String)], outcome: impl Fn(u64, &T) -> Outcome) -> Vec<Row> {
    let line = |link, (what, label): &(T, String)| outcome(link, what).row(link, label);
    LINKS.iter().flat_map(|link| asked.iter().map(move |it| line(*link, it))).collect()
}

/// A line of an exhibit of breaking points: bits of payload in a second.
fn up_to(what: impl Into<String>, bits_per_second: f64) -> Row {
    Row::new(what, vec![Value::alone(bits_per_second / 1e9)])
}

/// What each column of breaking points holds.
const BREAKS_AT: &str = "keeps up to, Gbit/s";

/// All exhibits.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    [stp::exhibits(), qpip::exhibits(), defrag::exhibits(), clan::exhibits()].concat()
}

/// What the machines are taken to be.
#[must_use]
pub fn constants() -> Vec<Constant> {
    today::constants()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes() -> Vec<Exhibit> {
        let all = exhibits();
        let is_outcome = |exhibit: &Exhibit| exhibit.columns.len() == columns("").len();
        let (outcomes, breaks): (Vec<_>, Vec<_>) = all.into_iter().partition(is_outcome);
        assert_eq!((outcomes.len(), breaks.len()), (4, 4), "one of each for each design");
        outcomes
    }

    /// A link carries no more than its bits, and nothing is busy for longer than it takes.
    #[test]
    fn nothing_does_more_than_it_can() {
        for exhibit in outcomes() {
            let half = exhibit.rows.len() / 2;
            for (at, row) in exhibit.rows.iter().enumerate() {
                let values: Vec<f64> = row.values.iter().map(|value| value.model).collect();
                let link = LINKS[at / half] as f64 / 1e9;
                assert!(values[0] > 0.0 && values[0] <= link, "{}: {values:?}", row.label);
                let is_share = |share: &f64| (0.0..=100.5).contains(share);
                assert!(values[3..].iter().all(is_share), "{}: {values:?}", row.label);
            }
        }
    }

    /// The same over a faster link is not slower, nor later.
    #[test]
    fn a_faster_link_is_no_harm() {
        for exhibit in outcomes() {
            let (slow, fast) = exhibit.rows.split_at(exhibit.rows.len() / 2);
            for (slow, fast) in slow.iter().zip(fast) {
                let value = |row: &Row, at: usize| row.values[at].model;
                assert!(value(fast, 0) > value(slow, 0) * 0.99, "{}", fast.label);
                assert!(value(fast, 2) < value(slow, 2) * 1.01, "{}", fast.label);
            }
        }
    }
}
