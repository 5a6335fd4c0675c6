//! Bandwidth against size: its peak, where half of it is reached, and what a message
//! costs whatever its length. And order in a handful of figures.

use landfall_testbed::Spread;
use serde::Serialize;

/// A point of a curve: a message of this length takes this long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) bytes: u64,
    pub(super) ns: f64,
    pub(super) mbit_per_s: f64,
}

impl Point {
    pub(super) fn new(bytes: u64, ns: f64) -> Self {
        Self { bytes, ns, mbit_per_s: bytes as f64 * 8e3 / ns }
    }
}

/// See the module.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// What the kernel offers, for comparison.
    pub(super) peer: bool,
    pub(super) points: Vec<Point>,
    pub(super) peak_mbit_per_s: f64,
    /// The length with half of the peak; nothing where the shortest message has more.
    pub(super) half_of_peak_bytes: Option<f64>,
    /// What the shortest message takes beyond its bytes at the peak.
    pub(super) set_up_us: f64,
}

impl Curve {
    /// From points in the order of their lengths; nothing without points.
    pub(super) fn new(name: &'static str, peer: bool, points: Vec<Point>) -> Option<Self> {
        let peak_mbit_per_s = most(points.iter().map(|point| point.mbit_per_s))?;
        let shortest = points.first()?;
        let set_up_us = (shortest.ns - shortest.bytes as f64 * 8e3 / peak_mbit_per_s) / 1e3;
        let half_of_peak_bytes = half(&points, peak_mbit_per_s / 2.0);
        Some(Self { name, peer, points, peak_mbit_per_s, half_of_peak_bytes, set_up_us })
    }

    pub(super) fn at(&self, bytes: u64) -> Option<&Point> {
        self.points.iter().find(|point| point.bytes == bytes)
    }
}

/// The length that first reaches this bandwidth: between two points a byte more takes
/// the same time each.
fn half(points: &[Point], mbit_per_s: f64) -> Option<f64> {
    let reaches = points.iter().position(|point| point.mbit_per_s >= mbit_per_s)?;
    let (before, after) = (points.get(reaches.checked_sub(1)?)?, &points[reaches]);
    let (from, to) = (before.bytes as f64, after.bytes as f64);
    let ns_per_byte = (after.ns - before.ns) / (to - from);
    let bytes_per_ns = mbit_per_s / 8e3;
    // bytes = bytes_per_ns × (before.ns + (bytes - from) × ns_per_byte)
    let bytes =
        bytes_per_ns * (before.ns - from * ns_per_byte) / (1.0 - bytes_per_ns * ns_per_byte);
    Some(bytes.clamp(from, to))
}

/// The middle of them; nothing of nothing.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Spread::of(values)?.median)
}

pub(super) fn most(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Spread::of(values)?.max)
}

/// How far the one farthest away is from the middle, as a share of it: 0.1 is "flat
/// within 10 %".
pub(super) fn unevenness(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let spread = Spread::of(values)?;
    let farthest = (spread.max - spread.median).max(spread.median - spread.min);
    Some(farthest / spread.median)
}
