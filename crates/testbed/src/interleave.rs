//! Candidates in turn, A B C A B C …, so that a machine whose speed swings
//! from minute to minute treats all alike.
//!
//! A ratio is taken within each round, between runs that were neighbours in
//! time; the median of these ratios is far steadier than the ratio of two
//! medians.

use std::fmt;

use crate::error::Error;
use crate::sample::Sample;

/// One run of a candidate.
pub type Run<'a> = Box<dyn FnMut() -> Result<Sample, Error> + 'a>;

/// Something to measure.
pub struct Candidate<'a> {
    label: String,
    run: Run<'a>,
}

impl<'a> Candidate<'a> {
    /// A candidate by the name under which results list it.
    pub fn new(label: impl Into<String>, run: impl FnMut() -> Result<Sample, Error> + 'a) -> Self {
        Self { label: label.into(), run: Box::new(run) }
    }
}

impl fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("label", &self.label).finish_non_exhaustive()
    }
}

/// What a candidate gave in all its rounds.
#[derive(Debug)]
pub struct Measured {
    /// The candidate's label.
    pub label: String,
    /// One sample per round; fewer when it failed.
    pub samples: Vec<Sample>,
    /// Why it was not run any further.
    pub failure: Option<Error>,
}

/// Runs all candidates once per round, in the given order. One that fails is
/// not run again; the others go on.
pub fn interleave(rounds: usize, candidates: &mut [Candidate<'_>]) -> Comparison {
    interleave_with(rounds, candidates, |_, _| ())
}

/// As [`interleave`]; tells `progress` the round, from 0, and the label before
/// each run.
pub fn interleave_with(
    rounds: usize,
    candidates: &mut [Candidate<'_>],
    mut progress: impl FnMut(usize, &str),
) -> Comparison {
    let empty = |c: &Candidate<'_>| Measured {
        label: c.label.clone(),
        samples: Vec::with_capacity(rounds),
        failure: None,
    };
    let mut measured: Vec<Measured> = candidates.iter().map(empty).collect();
    for round in 0..rounds {
        for (candidate, measured) in candidates.iter_mut().zip(&mut measured) {
            if measured.failure.is_some() {
                continue;
            }
            progress(round, &candidate.label);
            match (candidate.run)() {
                Ok(sample) => measured.samples.push(sample),
                Err(error) => measured.failure = Some(error),
            }
        }
    }
    Comparison { measured }
}

/// All candidates side by side, in the order in which they were given.
#[derive(Debug)]
pub struct Comparison {
    /// One entry per candidate.
    pub measured: Vec<Measured>,
}

impl Comparison {
    /// The candidate of that label.
    #[must_use]
    pub fn get(&self, label: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.label == label)
    }

    /// The median over the rounds of `figure` of one candidate ÷ `figure` of
    /// another in the same round. `None` when no round has both, or a label
    /// is unknown.
    #[must_use]
    pub fn ratio(&self, label: &str, base: &str, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        self.get(label)?.ratio_to(self.get(base)?, figure)
    }
}

impl Measured {
    /// The median of `figure` over the rounds; `None` without samples.
    #[must_use]
    pub fn median(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        Some(self.spread(figure)?.median)
    }

    /// How `figure` is spread over the rounds; `None` without samples.
    #[must_use]
    pub fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().map(figure))
    }

    /// The median of the per-round ratios of `figure` to that of `base`.
    #[must_use]
    pub fn ratio_to(&self, base: &Self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let rounds = self.samples.iter().zip(&base.samples);
        let ratios = rounds.map(|(ours, theirs)| figure(ours) / figure(theirs));
        Some(Spread::of(ratios)?.median)
    }
}

/// Order statistics of a figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// A quarter is below.
    pub lower_quartile: f64,
    /// Half is below.
    pub median: f64,
    /// A quarter is above.
    pub upper_quartile: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`. What is not a number does not count; `None`
    /// when nothing is left.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            min,
            lower_quartile: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper_quartile: quantile(&sorted, 0.75),
            max,
        })
    }

    /// `(max - min) / median`: how far the rounds lie apart.
    #[must_use]
    pub fn relative(&self) -> f64 {
        (self.max - self.min) / self.median
    }
}

/// Linear between neighbours; `sorted` has at least one value.
fn quantile(sorted: &[f64], at: f64) -> f64 {
    let place = at * (sorted.len() - 1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn sample(goodput: u64) -> Sample {
        Sample { bytes: goodput, seconds: 1.0, ..Sample::default() }
    }

    #[test]
    fn candidates_take_turns() {
        let order = RefCell::new(String::new());
        let candidate = |label: &'static str| {
            Candidate::new(label, || {
                order.borrow_mut().push_str(label);
                Ok(sample(1))
            })
        };
        let mut told = String::new();
        let mut candidates = [candidate("a"), candidate("b"), candidate("c")];
        let comparison =
            interleave_with(2, &mut candidates, |round, label| told += &format!("{round}{label}"));
        assert_eq!(*order.borrow(), "abcabc");
        assert_eq!(told, "0a0b0c1a1b1c");
        assert!(comparison.measured.iter().all(|m| m.samples.len() == 2));
    }

    #[test]
    fn a_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() {
        // The machine is ten times faster in the last round.
        let (mut ours, mut theirs) = ([20, 30, 200].into_iter(), [10, 10, 100].into_iter());
        let mut candidates = [
            Candidate::new("ours", || Ok(sample(ours.next().unwrap()))),
            Candidate::new("theirs", || Ok(sample(theirs.next().unwrap()))),
        ];
        let comparison = interleave(3, &mut candidates);
        assert_eq!(comparison.ratio("ours", "theirs", Sample::goodput), Some(2.0));
        assert_eq!(comparison.get("ours").unwrap().median(Sample::goodput), Some(30.0));
        assert_eq!(comparison.ratio("ours", "nobody", Sample::goodput), None);
    }

    #[test]
    fn a_failure_stops_one_candidate_only() {
        let mut left = 1;
        let mut candidates = [
            Candidate::new("weak", || match left {
                0 => Err(Error::WrongData("on purpose".into())),
                _ => {
                    left -= 1;
                    Ok(sample(3))
                }
            }),
            Candidate::new("strong", || Ok(sample(6))),
        ];
        let comparison = interleave(3, &mut candidates);
        let [weak, strong] = &comparison.measured[..] else { panic!("two candidates") };
        assert_eq!((weak.samples.len(), strong.samples.len()), (1, 3));
        assert!(weak.failure.is_some() && strong.failure.is_none());
        assert_eq!(weak.ratio_to(strong, Sample::goodput), Some(0.5));
    }

    #[test]
    fn spreads_of_few_values() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(Spread::of([5.0]).unwrap().relative(), 0.0);
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!((spread.lower_quartile, spread.upper_quartile), (1.75, 3.25));
    }
}
