//! Groups of bars that lie: labels are long, and so have room.

use nic_firmware_model::reproduce::{Standing, Value};

use super::panel::{Bars, Scale};
use super::svg::{self, Anchor, Drawing};
use super::{LEADING, Legend, WIDTH, words};

/// Where the bars begin: labels are to the left of it.
const LEFT: f64 = 290.0;
/// Where the longest may end: its value is to the right of it.
const RIGHT: f64 = WIDTH - 195.0;
/// As many letters as a line of a label has.
const LETTERS: usize = 40;
const BAR: f64 = 13.0;
const GAP: f64 = 3.0;

fn x(scale: &Scale, value: f64) -> f64 {
    LEFT + scale.place(value) * (RIGHT - LEFT)
}

/// Draws the panel; gives where it ends.
pub(crate) fn draw(drawing: &mut Drawing, panel: &Bars, top: f64) -> f64 {
    let values = || panel.rows.iter().flat_map(|(_, values)| values.iter().flatten());
    let scale = Scale::of(values().flat_map(|value| [value.model, value.paper.unwrap_or(0.0)]));
    // One series is named at its axis.
    let is_single = panel.series.len() == 1;
    let legend = Legend {
        names: if is_single { Vec::new() } else { panel.series.iter().map(|it| &**it).collect() },
        has_stated: values().any(|value| value.paper.is_some()),
        has_fitted: values().any(is_fitted),
        is_of_lines: false,
    };
    let top = legend.draw(drawing, top) + 6.0;
    let bottom = panel.rows.iter().fold(top, |y, (label, values)| y + height(label, values));
    axis(drawing, panel, &scale, (top, bottom));
    let mut y = top;
    for (label, values) in &panel.rows {
        group(drawing, (label, values), &panel.series, &scale, y);
        y += height(label, values);
    }
    bottom + 2.0 * LEADING + 6.0
}

fn is_fitted(value: &Value) -> bool {
    value.standing != Standing::Predicted
}

/// Of a group: what its label or its bars need.
fn height(label: &str, values: &[Option<Value>]) -> f64 {
    let lines = svg::wrap(label, LETTERS).len() as f64 * (LEADING - 2.0);
    let bars = values.iter().flatten().count() as f64 * (BAR + GAP);
    lines.max(bars) + 8.0
}

fn group(
    drawing: &mut Drawing,
    (label, values): (&str, &[Option<Value>]),
    series: &[String],
    scale: &Scale,
    top: f64,
) {
    let middle = top + height(label, values) / 2.0;
    let lines = svg::wrap(label, LETTERS);
    let mut y = middle - (lines.len() as f64 / 2.0 - 0.5) * (LEADING - 2.0) + 4.0;
    for line in lines {
        drawing.text("", (LEFT - 8.0, y), Anchor::End, &line);
        y += LEADING - 2.0;
    }
    let count = values.iter().flatten().count() as f64;
    let mut y = middle - count * (BAR + GAP) / 2.0 + GAP / 2.0;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let said = words(value);
        let hint = format!("{label}; {}: {said}", series[at]);
        let end = x(scale, value.model);
        let class = svg::fill(at) + if is_fitted(value) { " fitted" } else { "" };
        drawing.bar(&class, (LEFT, y), (end - LEFT, BAR), &hint);
        let mut free = end;
        if let Some(paper) = value.paper {
            let stated = x(scale, paper);
            drawing.diamond((stated, y + BAR / 2.0), &hint);
            free = free.max(stated + 5.0);
        }
        drawing.text("small", (free + 6.0, y + BAR - 2.5), Anchor::Start, &said);
        y += BAR + GAP;
    }
}

fn axis(drawing: &mut Drawing, panel: &Bars, scale: &Scale, (top, bottom): (f64, f64)) {
    for (value, words) in scale.ticks() {
        let x = x(scale, value);
        drawing.line("grid", (x, top), (x, bottom));
        drawing.text("small", (x, bottom + LEADING - 2.0), Anchor::Middle, &words);
    }
    drawing.line("axis", (LEFT, top), (LEFT, bottom));
    drawing.line("axis", (LEFT, bottom), (RIGHT, bottom));
    let mut name = match panel.series.as_slice() {
        [only] if *only != panel.axis && only != "value" => format!("{only}, {}", panel.axis),
        _ => panel.axis.clone(),
    };
    if scale.is_logarithmic {
        name += " (logarithmic)";
    }
    let at = (f64::midpoint(LEFT, RIGHT), bottom + 2.0 * LEADING);
    drawing.text("", at, Anchor::Middle, &name);
}
