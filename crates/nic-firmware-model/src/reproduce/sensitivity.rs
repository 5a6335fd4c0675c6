//! What the assumed constants do: each halved and doubled, and the model run again.

use core::time::Duration;

use super::exhibit::{Exhibit, Provenance};
use crate::runs;

/// An assumed constant: its name, and how it is varied.
pub type Variable<I> = (&'static str, fn(&mut I, f64));

/// A duration, longer or shorter.
#[must_use]
pub fn times(time: Duration, by: f64) -> Duration {
    time.mul_f64(by)
}

/// What became of the values of a chapter when a constant was another.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// How many predicted values are within their limits.
    pub met: usize,
    /// The value that moved most: where it stands, and by how much, as a share.
    pub most: Option<(String, f64)>,
}

/// A constant, halved and doubled.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Which constant.
    pub name: &'static str,
    /// Half of it.
    pub halved: Change,
    /// Twice as much.
    pub doubled: Change,
}

/// Varies each constant by itself. Runs that a constant does not touch are not made again.
#[must_use]
pub fn of<I: Clone + Sync>(
    inputs: &I,
    variables: &[Variable<I>],
    run: impl Fn(&I) -> Vec<Exhibit> + Sync,
) -> Vec<Effect> {
    let usual = run(inputs);
    let changed: Vec<_> = variables
        .iter()
        .flat_map(|&(_, vary)| {
            [0.5, 2.0].map(|by| {
                let mut inputs = inputs.clone();
                vary(&mut inputs, by);
                inputs
            })
        })
        .collect();
    let changes = runs::each(&changed, |inputs| compare(&usual, &run(inputs)));
    let effects = variables.iter().zip(changes.chunks_exact(2));
    let effect = |(&(name, _), both): (&Variable<I>, &[Change])| {
        let [halved, doubled] = both else { return None };
        Some(Effect { name, halved: halved.clone(), doubled: doubled.clone() })
    };
    effects.filter_map(effect).collect()
}

fn compare(usual: &[Exhibit], other: &[Exhibit]) -> Change {
    let predicted = other.iter().flat_map(Exhibit::stated).map(|(_, _, value)| value);
    let predicted = predicted.filter(|value| value.standing == Provenance::Predicted);
    // What the tests hold the values to is of the usual constants.
    let met = predicted.filter(|value| value.is_close() == Some(true)).count();
    let mut most: Option<(String, f64)> = None;
    for (before, after) in usual.iter().zip(other) {
        for (row, changed) in before.rows.iter().zip(&after.rows) {
            let cells = row.values.iter().zip(&changed.values).zip(&before.columns);
            for ((value, changed), column) in cells {
                let share = (changed.model - value.model) / value.model;
                let is_more = most.as_ref().is_none_or(|(_, most)| share.abs() > most.abs());
                // What is nothing, or moves by less than is shown, says nothing.
                if share.is_finite() && share.abs() >= 0.000_5 && is_more {
                    most = Some((format!("{}, {}, {column}", before.name, row.label), share));
                }
            }
        }
    }
    Change { met, most }
}
