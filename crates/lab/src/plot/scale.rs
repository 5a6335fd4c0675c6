//! From values to places on an axis, and the values that are written beside it.

/// Largest over smallest, beyond which an axis is logarithmic.
const LINEAR: f64 = 150.0;

/// An axis that begins at 0, or at a power of ten.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    pub(crate) is_logarithmic: bool,
}

impl Scale {
    /// One with room for all of these, linear if they allow.
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (smallest, largest) = limits(values);
        if largest / smallest > LINEAR {
            let power = |value: f64| 10_f64.powi(value as i32);
            let (low, high) = (smallest.log10().floor(), largest.log10().ceil());
            return Self { low: power(low), high: power(high), is_logarithmic: true };
        }
        let step = step(largest);
        Self { low: 0.0, high: (largest / step).ceil() * step, is_logarithmic: false }
    }

    /// Where a value is: 0 at the beginning, 1 at the end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The values that are written beside the axis, with their words.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        if self.is_logarithmic {
            let decades = (self.high / self.low).log10().round() as i32;
            let from = self.low.log10().round() as i32;
            return (from..=from + decades)
                .map(|power| 10_f64.powi(power))
                .map(|value| (value, value.to_string()))
                .collect();
        }
        let step = step(self.high);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let count = (self.high / step).round() as u32;
        let values = (0..=count).map(|at| f64::from(at) * step);
        values.map(|value| (value, format!("{value:.digits$}"))).collect()
    }
}

/// The smallest that is more than nothing, and the largest.
fn limits(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let positive = values.filter(|value| value.is_finite() && *value > 0.0);
    let largest = positive.clone().fold(f64::MIN_POSITIVE, f64::max);
    let smallest = positive.fold(f64::INFINITY, f64::min);
    // Nothing but zeros: any axis does.
    if smallest.is_finite() { (smallest, largest) } else { (1.0, 1.0) }
}

/// 1, 2 or 5 times a power of ten, so that some four to eight of them make the whole.
fn step(whole: f64) -> f64 {
    let power = 10_f64.powf((whole / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|step| whole / step <= 7.0).unwrap_or(steps[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(values: &[f64]) -> Vec<String> {
        Scale::of(values.iter().copied()).ticks().into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(words(&[98.4, 97.7]), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(
            words(&[0.33]),
            ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30", "0.35"]
        );
        assert_eq!(words(&[4.8, 4767.0]), ["1", "10", "100", "1000", "10000"]);
        assert_eq!(words(&[0.06, 250.0]), ["0.01", "0.1", "1", "10", "100", "1000"]);
    }

    #[test]
    fn places_are_on_the_axis_whatever_the_value() {
        let values: [&[f64]; 5] =
            [&[1.0], &[0.0, 1e-300, 1e300], &[], &[0.0], &[f64::NAN, f64::INFINITY, 3.0]];
        for values in values {
            let scale = Scale::of(values.iter().copied());
            for value in values.iter().copied().chain([-1.0, 0.0, 7.0, f64::NAN]) {
                let place = scale.place(value);
                assert!((0.0..=1.0).contains(&place), "{values:?}: {value} at {place}");
            }
        }
    }

    #[test]
    fn nothing_is_at_the_beginning_and_the_largest_within() {
        let scale = Scale::of([0.0, 58.3, 75.0].into_iter());
        assert!(!scale.is_logarithmic && scale.place(0.0) == 0.0);
        assert!(scale.place(58.3) < scale.place(75.0));
        let scale = Scale::of([0.0, 2.0, 13_340.0].into_iter());
        assert!(scale.is_logarithmic && scale.place(0.0) == 0.0);
        assert!(scale.place(2.0) > 0.0);
    }
}
