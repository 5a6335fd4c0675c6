//! An exhibit as plots: which values share an axis, and whether they are bars or curves.
//!
//! An exhibit is a table whose headings, labels or title carry the units. Values of one
//! unit share a panel. Rows whose labels differ in one number only ("256 bytes", "512
//! bytes", …) are a curve over that number; all others are bars.

use nic_firmware_model::reproduce::{Exhibit, Value};

/// Units that headings use, those first that contain others.
const UNITS: [&str; 12] = [
    "MB/s (10^6)",
    "MB/s (2^20)",
    "MB/s",
    "Mbit/s",
    "Gbit/s",
    "million packets/s",
    "thousand packets/s",
    "thousands",
    "cycles",
    "times that",
    "µs",
    "%",
];

/// This many rows in a sequence are a curve.
const CURVE: usize = 4;

/// Values that share an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Panel {
    /// Values that no number orders.
    Bars(Bars),
    /// Values over a number.
    Curves(Curves),
}

/// One group of bars for each row, one bar of it for each series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What the axis counts.
    pub axis: String,
    /// What the bars of a group are called.
    pub series: Vec<String>,
    /// As many values as there are series.
    pub rows: Vec<(String, Vec<Option<Value>>)>,
}

/// Lines over a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// What the vertical axis counts.
    pub axis: String,
    /// What the horizontal one counts.
    pub over: String,
    /// The lines, each with its name.
    pub lines: Vec<Curve>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is called.
    pub name: String,
    /// In growing order.
    pub points: Vec<(f64, Value)>,
}

/// A value with what it is called.
#[derive(Clone, Debug)]
struct Cell {
    axis: String,
    series: String,
    row: String,
    value: Value,
}

/// The plots of an exhibit, in the order in which their units occur.
pub fn panels(exhibit: &Exhibit) -> Vec<Panel> {
    let cells = cells(exhibit);
    let mut panels = Vec::new();
    for axis in distinct(cells.iter().map(|cell| &cell.axis)) {
        let on_axis: Vec<&Cell> = cells.iter().filter(|cell| cell.axis == axis).collect();
        let (curves, rest) = curves(&axis, &on_axis);
        panels.extend(curves.into_iter().map(Panel::Curves));
        if !rest.is_empty() {
            panels.push(Panel::Bars(bars(axis, &rest)));
        }
    }
    panels
}

fn cells(exhibit: &Exhibit) -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in &exhibit.rows {
        for (column, value) in exhibit.columns.iter().zip(&row.values) {
            // A simulation that gave nothing has no bar.
            if value.model.is_finite() {
                cells.push(cell(exhibit, column, &row.label, *value));
            }
        }
    }
    cells
}

/// The unit stands in the heading, or in the label of the row, or in the title. Where it is
/// nowhere, the heading says what is counted.
fn cell(exhibit: &Exhibit, column: &str, label: &str, value: Value) -> Cell {
    let named = |name: String, instead: &str| if name.is_empty() { instead.into() } else { name };
    let (heading, in_column) = without_unit(column);
    if let Some(unit) = in_column {
        let axis = full_unit(exhibit, unit);
        return Cell { axis, series: named(heading, column), row: label.into(), value };
    }
    let (row, in_row) = without_unit(label);
    let (series, row, axis) = match (in_row, without_unit(exhibit.title).1) {
        (Some(unit), _) => (column, row, unit),
        (None, Some(unit)) => (column, label.into(), unit),
        (None, None) => (column, label.into(), column),
    };
    Cell { axis: axis.into(), series: series.into(), row, value }
}

/// "MB/s" is the megabyte of the other headings.
fn full_unit(exhibit: &Exhibit, unit: &str) -> String {
    let units = exhibit.columns.iter().filter_map(|column| without_unit(column).1);
    let longest = units.filter(|other| other.starts_with(unit)).max_by_key(|other| other.len());
    longest.unwrap_or(unit).to_owned()
}

/// What words say beside their unit, and that.
fn without_unit(words: &str) -> (String, Option<&'static str>) {
    if words.ends_with("this many bytes") {
        return (words.to_owned(), Some("bytes"));
    }
    let mut parts: Vec<&str> = words.split(", ").collect();
    let unit = UNITS.into_iter().find(|unit| parts.contains(unit));
    parts.retain(|part| Some(*part) != unit);
    (parts.join(", "), unit)
}

fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for one in all {
        if !seen.contains(one) {
            seen.push(one.clone());
        }
    }
    seen
}

/// "(b) streaming, 256 bytes" is at 256 on the curve "(b) streaming" over bytes.
fn place_on_curve(label: &str) -> Option<(&str, f64, &str)> {
    let is_digit = |c: char| c.is_ascii_digit();
    let end = label.rfind(is_digit)? + 1;
    let start = label[..end].rfind(|c: char| !is_digit(c)).map_or(0, |at| {
        // The letter before the number may be longer than a byte.
        at + label[at..].chars().next().map_or(1, char::len_utf8)
    });
    let over = label[end..].trim();
    let number = label[start..end].parse().ok()?;
    (!over.is_empty()).then_some((label[..start].trim_end_matches([' ', ',']), number, over))
}

/// What is a curve, and what is left.
fn curves<'a>(axis: &str, cells: &[&'a Cell]) -> (Vec<Curves>, Vec<&'a Cell>) {
    let mut curves: Vec<Curves> = Vec::new();
    let mut rest = Vec::new();
    let ways = cells.iter().map(|cell| {
        let way = place_on_curve(&cell.row).map(|(name, _, over)| format!("{name}\n{over}"));
        format!("{}\n{}", cell.series, way.unwrap_or_default())
    });
    let ways: Vec<String> = ways.collect();
    let has_many_series = distinct(cells.iter().map(|cell| &cell.series)).len() > 1;
    for way in distinct(ways.iter()) {
        let members: Vec<&Cell> = cells
            .iter()
            .zip(&ways)
            .filter(|(_, its)| **its == way)
            .map(|(cell, _)| *cell)
            .collect();
        let points: Option<Vec<(f64, Value)>> =
            members.iter().map(|cell| Some((place_on_curve(&cell.row)?.1, cell.value))).collect();
        let points = points.filter(|points| {
            points.len() >= CURVE && points.is_sorted_by(|before, after| before.0 < after.0)
        });
        let place = place_on_curve(&members[0].row);
        let (Some(points), Some((row, _, over))) = (points, place) else {
            rest.extend(members);
            continue;
        };
        let series = members[0].series.as_str();
        let name = match (row, has_many_series) {
            ("", _) => series.to_owned(),
            (row, true) => format!("{row}, {series}"),
            (row, false) => row.to_owned(),
        };
        let line = Curve { name, points };
        match curves.iter_mut().find(|curves| curves.over == over) {
            Some(curves) => curves.lines.push(line),
            None => curves.push(Curves { axis: axis.into(), over: over.into(), lines: vec![line] }),
        }
    }
    (curves, rest)
}

fn bars(axis: String, cells: &[&Cell]) -> Bars {
    let series = distinct(cells.iter().map(|cell| &cell.series));
    let rows = distinct(cells.iter().map(|cell| &cell.row)).into_iter().map(|row| {
        let value = |series: &String| {
            let cell = cells.iter().find(|cell| cell.row == row && cell.series == *series);
            cell.map(|cell| cell.value)
        };
        let values = series.iter().map(value).collect();
        (row, values)
    });
    Bars { rows: rows.collect(), axis, series }
}

// From values to places on an axis, and the values that are written beside it.

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
    use nic_firmware_model::reproduce::{Design, Row};

    use super::*;

    fn exhibit(title: &'static str, columns: &[&'static str], rows: &[&str]) -> Exhibit {
        let value = |at: usize| Value::alone(at as f64 + 1.0);
        let row = |label: &&str| Row::new(*label, (0..columns.len()).map(value).collect());
        Exhibit {
            design: Design::Clan,
            name: "Figure 0",
            title,
            columns: columns.to_vec(),
            rows: rows.iter().map(row).collect(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn values_of_one_unit_share_an_axis() {
        let columns = ["MB/s (10^6)", "MB/s, reading headers", "sender, %", "failed packets"];
        let panels = panels(&exhibit("A table", &columns, &["here", "there"]));
        let axes = panels.iter().map(|panel| match panel {
            Panel::Bars(bars) => (bars.axis.as_str(), bars.series.len(), bars.rows.len()),
            Panel::Curves(_) => panic!("{panel:?}"),
        });
        let expected = [("MB/s (10^6)", 2, 2), ("%", 1, 2), ("failed packets", 1, 2)];
        assert_eq!(axes.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rows_that_differ_in_a_number_are_a_curve() {
        let rows = [1, 2, 5, 9].map(|n| format!("(b) streaming, {n} bytes, Mbit/s"));
        let mut labels: Vec<&str> = rows.iter().map(String::as_str).collect();
        labels.push("half, at messages of this many bytes");
        let panels = panels(&exhibit("Bandwidth", &["now", "next"], &labels));
        let [Panel::Curves(curves), Panel::Bars(bars)] = panels.as_slice() else {
            panic!("{panels:?}")
        };
        assert_eq!((curves.axis.as_str(), curves.over.as_str()), ("Mbit/s", "bytes"));
        let names: Vec<&str> = curves.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["(b) streaming, now", "(b) streaming, next"]);
        let over: Vec<f64> = curves.lines[1].points.iter().map(|point| point.0).collect();
        assert_eq!(over, [1.0, 2.0, 5.0, 9.0]);
        assert_eq!((bars.axis.as_str(), bars.rows.len()), ("bytes", 1));
    }

    #[test]
    fn the_title_may_have_the_unit() {
        let panels = panels(&exhibit("Bandwidth, Mbit/s", &["DMA"], &["1 byte", "2 bytes"]));
        let [Panel::Bars(bars)] = panels.as_slice() else { panic!("{panels:?}") };
        assert_eq!(bars.axis, "Mbit/s");
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut exhibit = exhibit("A table", &["µs"], &["a", "b"]);
        exhibit.rows[0].values[0].model = f64::NAN;
        let panels = panels(&exhibit);
        let [Panel::Bars(bars)] = panels.as_slice() else { panic!("{panels:?}") };
        assert_eq!(bars.rows.len(), 1);
    }

    #[test]
    fn labels_with_long_letters_are_understood() {
        assert_eq!(place_on_curve("µ7 µs"), Some(("µ", 7.0, "µs")));
        assert_eq!(place_on_curve("seven"), None);
        assert_eq!(place_on_curve("MTU 1500"), None);
    }

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
