//! What endpoints, adapters and nodes count, as the text that Prometheus reads.
//!
//! ```
//! use landfall::metrics::Metrics;
//! use landfall::stp::{Transport, blocking::Endpoint};
//!
//! let endpoint = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
//! let mut metrics = Metrics::new();
//! metrics.add(&[("service", "backup")], &endpoint.stats());
//! let text = metrics.to_string(); // for whatever answers HTTP, as `text/plain; version=0.0.4`
//! assert!(text.contains("# TYPE landfall_stp_bytes_received_total counter"));
//! assert!(text.contains("landfall_stp_connections{service=\"backup\"} 0"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Names begin with `landfall_`; counters end with `_total`, all others are gauges. What was
//! refused is `landfall_refusals_total`, with the reason as a label; what drivers did is
//! `landfall_path_…`, with the path's number. What does not live here: a server, and histograms.

use std::collections::BTreeMap;
use std::fmt;

use landfall_placement::{Counter, Refusals};

#[cfg(any(feature = "clan", feature = "stp"))]
use crate::runtime::PathStats;

/// A name and a value that tell samples of one metric apart.
pub type Label<'a> = (&'a str, &'a str);

/// Something that can be exported.
pub trait Measured {
    /// Adds its samples, all with these labels.
    fn measure(&self, metrics: &mut Metrics, labels: &[Label<'_>]);
}

/// Samples by metric. [`to_string`](ToString::to_string) is the text of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, Family>);

/// All samples of one metric.
#[derive(Clone, Debug)]
struct Family {
    kind: &'static str,
    help: String,
    /// By their labels, as they are written.
    samples: BTreeMap<String, u64>,
}

impl Metrics {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what something counts. Where two things have the same labels, what they count is
    /// added up.
    pub fn add(&mut self, labels: &[Label<'_>], measured: &impl Measured) {
        measured.measure(self, labels);
    }

    /// Adds to a counter, whose name gets the end `_total`.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[Label<'_>], value: u64) {
        self.sample(format!("{name}_total"), ("counter", help), labels, value);
    }

    /// Adds to a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[Label<'_>], value: u64) {
        self.sample(name.to_owned(), ("gauge", help), labels, value);
    }

    /// Adds counters that know their names, each behind this prefix.
    pub fn counters(
        &mut self,
        prefix: &str,
        labels: &[Label<'_>],
        counters: impl Iterator<Item = Counter>,
    ) {
        for Counter { name, help, value } in counters {
            self.counter(&format!("landfall_{prefix}_{name}"), help.trim(), labels, value);
        }
    }

    fn sample(
        &mut self,
        name: String,
        (kind, help): (&'static str, &str),
        labels: &[Label<'_>],
        value: u64,
    ) {
        let family = self.0.entry(name).or_insert_with(|| Family {
            kind,
            help: help.replace('\\', "\\\\").replace('\n', " "),
            samples: BTreeMap::new(),
        });
        let sample = family.samples.entry(written(labels)).or_default();
        *sample = sample.saturating_add(value);
    }
}

/// Labels between braces; nothing for none.
fn written(labels: &[Label<'_>]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escaped =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let each: Vec<_> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", each.join(","))
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Family { kind, help, samples }) in &self.0 {
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
            for (labels, value) in samples {
                f.write_str(name)?;
                f.write_str(labels)?;
                writeln!(f, " {value}")?;
            }
        }
        Ok(())
    }
}

impl Measured for Refusals {
    fn measure(&self, metrics: &mut Metrics, labels: &[Label<'_>]) {
        for (reason, count) in self.iter() {
            let mut labels = labels.to_vec();
            labels.push(("reason", reason.as_str()));
            let help = "Packets that were refused, by the first reason";
            metrics.counter("landfall_refusals", help, &labels, count);
        }
    }
}

#[cfg(any(feature = "clan", feature = "stp"))]
impl Measured for [PathStats] {
    fn measure(&self, metrics: &mut Metrics, labels: &[Label<'_>]) {
        for (nth, path) in self.iter().enumerate() {
            let nth = nth.to_string();
            let mut labels = labels.to_vec();
            labels.push(("path", &nth));
            metrics.gauge("landfall_path_up", "Does the path work?", &labels, path.is_up.into());
            let help = "The longest packet that the path takes, in bytes";
            metrics.gauge("landfall_path_unit_bytes", help, &labels, path.limits.unit.into());
            metrics.counters("path", &labels, path.counters.counters());
        }
    }
}

#[cfg(feature = "stp")]
impl Measured for crate::stp::Stats {
    fn measure(&self, metrics: &mut Metrics, labels: &[Label<'_>]) {
        metrics.counters("stp", labels, self.engine.counters());
        metrics.counters("seal", labels, self.seal.counters());
        let gauges = [
            ("connections", "Connections, in any state", self.connections as u64),
            (
                "granted_bytes",
                "Bytes that senders may send and that have not arrived",
                self.granted_bytes,
            ),
            ("operations", "Operations under way", self.operations as u64),
            ("regions", "Regions that are registered", self.regions.into()),
        ];
        for (name, help, value) in gauges {
            metrics.gauge(&format!("landfall_stp_{name}"), help, labels, value);
        }
        let help = "Bytes that were not in registered memory, and were copied there";
        metrics.counter("landfall_stp_bytes_copied_in", help, labels, self.bytes_copied_in);
        metrics.add(labels, &self.refusals);
        self.paths[..].measure(metrics, labels);
    }
}

#[cfg(feature = "qpip")]
impl Measured for crate::qpip::Stats {
    fn measure(&self, metrics: &mut Metrics, labels: &[Label<'_>]) {
        metrics.counters("qpip", labels, self.counters());
    }
}

#[cfg(feature = "clan")]
impl Measured for crate::clan::network::Stats {
    fn measure(&self, metrics: &mut Metrics, labels: &[Label<'_>]) {
        metrics.counters("clan", labels, self.engine.counters());
        metrics.counters("seal", labels, self.seal.counters());
        metrics.gauge("landfall_clan_links", "Links that are up", labels, self.links as u64);
        let help = "Pieces of memory that are in use";
        metrics.gauge("landfall_clan_regions", help, labels, self.regions.into());
        metrics.add(labels, &self.refusals);
        self.paths[..].measure(metrics, labels);
    }
}

#[cfg(test)]
mod tests {
    use landfall_placement::Refusal;

    use super::*;

    #[test]
    fn a_family_has_its_head_once_and_labels_are_escaped() {
        let mut metrics = Metrics::new();
        metrics.gauge("landfall_things", "What there is\nand was", &[("of", "a\"b\\c\nd")], 1);
        metrics.gauge("landfall_things", "said again", &[("of", "e")], 2);
        metrics.gauge("landfall_things", "said again", &[("of", "e")], 3);
        assert_eq!(
            metrics.to_string(),
            "# HELP landfall_things What there is and was\n\
             # TYPE landfall_things gauge\n\
             landfall_things{of=\"a\\\"b\\\\c\\nd\"} 1\n\
             landfall_things{of=\"e\"} 5\n"
        );
    }

    #[test]
    fn reasons_are_labels() {
        let mut refusals = Refusals::new();
        refusals.count(Refusal::Malformed);
        refusals.count(Refusal::Malformed);
        let mut metrics = Metrics::new();
        metrics.add(&[("host", "a")], &refusals);
        let text = metrics.to_string();
        let reason = Refusal::Malformed.as_str();
        let line = format!("landfall_refusals_total{{host=\"a\",reason=\"{reason}\"}} 2\n");
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("# TYPE landfall_refusals_total counter\n"), "{text}");
    }
}
