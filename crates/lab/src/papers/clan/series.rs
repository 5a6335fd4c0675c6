//! Order in a handful of figures.

use landfall_testbed::Spread;

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
