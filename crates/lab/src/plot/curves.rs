//! Lines over a number.

use nic_firmware_model::reproduce::{Provenance, Value};

use super::panel::{Curve, Curves, Scale};
use super::svg::{self, Anchor, Drawing};
use super::{LEADING, Legend, WIDTH, words};

const LEFT: f64 = 76.0;
const RIGHT: f64 = WIDTH - 60.0;
const HEIGHT: f64 = 280.0;
/// The horizontal axis is logarithmic beyond this.
const FAR: f64 = 50.0;

/// Where values are on the paper.
struct Frame {
    top: f64,
    first: f64,
    last: f64,
    is_logarithmic: bool,
    scale: Scale,
}

impl Frame {
    fn of(panel: &Curves, top: f64) -> Self {
        let points = || panel.lines.iter().flat_map(|line| &line.points);
        let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let last = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        let values = points().flat_map(|(_, value)| [value.model, value.paper.unwrap_or(0.0)]);
        let is_logarithmic = first > 0.0 && last / first > FAR;
        Self { top, first, last, is_logarithmic, scale: Scale::of(values) }
    }

    fn x(&self, over: f64) -> f64 {
        let share = if self.is_logarithmic {
            (over / self.first).log10() / (self.last / self.first).log10()
        } else {
            (over - self.first) / (self.last - self.first)
        };
        // Some room beside the first and the last.
        LEFT + 20.0 + share.clamp(0.0, 1.0) * (RIGHT - LEFT - 40.0)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - self.scale.place(value))
    }

    fn bottom(&self) -> f64 {
        self.top + HEIGHT
    }
}

/// Draws the panel; gives where it ends.
pub(crate) fn draw(drawing: &mut Drawing, panel: &Curves, top: f64) -> f64 {
    let values = || panel.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let is_single = panel.lines.len() == 1;
    let lines = panel.lines.iter().map(|line| line.name.as_str());
    let legend = Legend {
        names: if is_single { Vec::new() } else { lines.collect() },
        has_stated: values().any(|value| value.paper.is_some()),
        has_fitted: values().any(|value| is_fitted(&value)),
        is_of_lines: true,
    };
    let top = legend.draw(drawing, top) + 8.0;
    let frame = Frame::of(panel, top);
    axes(drawing, panel, &frame);
    for (at, line) in panel.lines.iter().enumerate() {
        curve(drawing, line, at, &frame);
    }
    frame.bottom() + 2.0 * LEADING + 6.0
}

fn is_fitted(value: &Value) -> bool {
    value.standing != Provenance::Predicted
}

fn curve(drawing: &mut Drawing, line: &Curve, at: usize, frame: &Frame) {
    let places: Vec<(f64, f64)> =
        line.points.iter().map(|(over, value)| (frame.x(*over), frame.y(value.model))).collect();
    drawing.path(&format!("line {}", svg::stroke(at)), &places);
    for ((over, value), place) in line.points.iter().zip(places) {
        let hint = format!("{}, {over}: {}", line.name, words(value));
        let class = svg::fill(at) + if is_fitted(value) { " fitted" } else { "" };
        drawing.dot(&class, place, &hint);
        if let Some(paper) = value.paper {
            drawing.diamond((frame.x(*over), frame.y(paper)), &hint);
        }
    }
}

fn axes(drawing: &mut Drawing, panel: &Curves, frame: &Frame) {
    let (top, bottom) = (frame.top, frame.bottom());
    for (value, words) in frame.scale.ticks() {
        let y = frame.y(value);
        drawing.line("grid", (LEFT, y), (RIGHT, y));
        drawing.text("small", (LEFT - 7.0, y + 4.0), Anchor::End, &words);
    }
    // The values that were tried, each under its points.
    let mut written = f64::NEG_INFINITY;
    let mut overs: Vec<f64> =
        panel.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    overs.sort_by(f64::total_cmp);
    overs.dedup();
    for over in overs {
        let (x, words) = (frame.x(over), over.to_string());
        drawing.line("grid", (x, top), (x, bottom));
        if x - svg::width(&words) / 2.0 > written + 4.0 {
            drawing.text("small", (x, bottom + LEADING - 1.0), Anchor::Middle, &words);
            written = x + svg::width(&words) / 2.0;
        }
    }
    drawing.line("axis", (LEFT, top), (LEFT, bottom));
    drawing.line("axis", (LEFT, bottom), (RIGHT, bottom));
    let logarithmic = |is: bool| if is { " (logarithmic)" } else { "" };
    let over = format!("{}{}", panel.over, logarithmic(frame.is_logarithmic));
    let across = (f64::midpoint(LEFT, RIGHT), bottom + 2.0 * LEADING);
    drawing.text("", across, Anchor::Middle, &over);
    let axis = match panel.lines.as_slice() {
        [only] if only.name != panel.axis => format!("{}, {}", only.name, panel.axis),
        _ => panel.axis.clone(),
    };
    let name = format!("{axis}{}", logarithmic(frame.scale.is_logarithmic));
    drawing.text_upwards("", (20.0, f64::midpoint(top, bottom)), &name);
}
