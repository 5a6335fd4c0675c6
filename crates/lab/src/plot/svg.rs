//! SVG, as far as plots need it: lines, boxes, marks and words.
//!
//! What does not live here: what a plot shows (`panel`), and where in it (`bars`, `curves`).
//!
//! Groups of bars that lie: labels are long, and so have room.

use std::fmt::{Display, Write as _};

use nic_firmware_model::reproduce::{Provenance, Value};

use super::panel::{Bars, Scale};
use super::{LEADING, Legend, WIDTH, words};

/// The looks of every plot, light or dark as the reader has it.
///
/// A page with several plots has this once; a plot that stands alone has it inside.
pub const STYLE: &str = "\
.plot text{font:12px system-ui,sans-serif;fill:#222}
.plot .small{font-size:11px;fill:#555}
.plot .strong{font-weight:600}
.plot .paper{fill:#fff}
.plot .grid{stroke:#ddd}
.plot .axis{stroke:#555}
.plot .line{fill:none;stroke-width:2}
.plot .stated{fill:#fff;stroke:#111;stroke-width:1.6}
.plot .fitted{fill-opacity:.55}
.plot .f0{fill:#0072b2}.plot .s0{stroke:#0072b2}
.plot .f1{fill:#e69f00}.plot .s1{stroke:#e69f00;stroke-dasharray:7 4}
.plot .f2{fill:#009e73}.plot .s2{stroke:#009e73;stroke-dasharray:2 3}
.plot .f3{fill:#cc79a7}.plot .s3{stroke:#cc79a7;stroke-dasharray:9 3 2 3}
.plot .f4{fill:#56b4e9}.plot .s4{stroke:#56b4e9;stroke-dasharray:4 2}
.plot .f5{fill:#d55e00}.plot .s5{stroke:#d55e00;stroke-dasharray:12 4}
@media (prefers-color-scheme:dark){
.plot text{fill:#ddd}
.plot .small{fill:#aaa}
.plot .paper{fill:#16181c}
.plot .grid{stroke:#383c44}
.plot .axis{stroke:#999}
.plot .stated{fill:#16181c;stroke:#fff}
}
";

/// How many series are told apart by their colours.
const COLOURS: usize = 6;

/// The class that fills with a series' colour.
pub(crate) fn fill(series: usize) -> String {
    format!("f{}", series % COLOURS)
}

/// The class that draws a line with it, dashed in a way of its own.
pub(crate) fn stroke(series: usize) -> String {
    format!("s{}", series % COLOURS)
}

/// Where a text begins, or ends, or is halfway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// What is drawn so far.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    body: String,
}

impl Drawing {
    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        );
    }

    /// A box. The title is what a reader sees who points at it.
    pub(crate) fn bar(&mut self, class: &str, at: (f64, f64), size: (f64, f64), title: &str) {
        let [x, y, width, height] = [at.0, at.1, size.0.max(0.0), size.1.max(0.0)].map(number);
        let title = escape(title);
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"><title>{title}</title></rect>"#
        );
    }

    /// A line through points.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
        let _ = writeln!(self.body, r#"<polyline class="{class}" points="{}"/>"#, points.join(" "));
    }

    /// A round mark: a value of the model.
    pub(crate) fn dot(&mut self, class: &str, at: (f64, f64), title: &str) {
        let [x, y] = [at.0, at.1].map(number);
        let title = escape(title);
        let _ = writeln!(
            self.body,
            r#"<circle class="{class}" cx="{x}" cy="{y}" r="3.5"><title>{title}</title></circle>"#
        );
    }

    /// A diamond: a value that the paper states.
    pub(crate) fn diamond(&mut self, at: (f64, f64), title: &str) {
        const HALF: f64 = 5.0;
        let (x, y) = at;
        let corners = [(x, y - HALF), (x + HALF, y), (x, y + HALF), (x - HALF, y)]
            .map(|(x, y)| format!("{},{}", number(x), number(y)))
            .join(" ");
        let title = escape(title);
        let _ = writeln!(
            self.body,
            r#"<polygon class="stated" points="{corners}"><title>{title}</title></polygon>"#
        );
    }

    /// Words on a line.
    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, words: &str) {
        self.words(class, at, anchor, "", words);
    }

    /// Words that are read from below to above.
    pub(crate) fn text_upwards(&mut self, class: &str, at: (f64, f64), words: &str) {
        let [x, y] = [at.0, at.1].map(number);
        let turn = format!(r#" transform="rotate(-90 {x} {y})""#);
        self.words(class, at, Anchor::Middle, &turn, words);
    }

    fn words(&mut self, class: &str, at: (f64, f64), anchor: Anchor, more: &str, words: &str) {
        let [x, y] = [at.0, at.1].map(number);
        let words = escape(words);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}"{more}>{words}</text>"#
        );
    }

    /// All of it as an element for a page that has [`STYLE`].
    pub(crate) fn inline(&self, size: (f64, f64), title: &str) -> String {
        self.element(size, title, "")
    }

    /// All of it as a file that stands alone.
    pub(crate) fn file(&self, size: (f64, f64), title: &str) -> String {
        let style = format!("<style>\n{STYLE}</style>\n");
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", self.element(size, title, &style))
    }

    fn element(&self, size: (f64, f64), title: &str, style: &str) -> String {
        let [width, height] = [size.0, size.1].map(number);
        let (title, body) = (escape(title), &self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <title>{title}</title>\n{style}\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        )
    }
}

/// Text where markup is read.
pub(crate) fn escape(text: impl Display) -> String {
    let mut escaped = String::new();
    for letter in text.to_string().chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no place for these, however they are written.
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// About as wide as these words are, in a font that we do not have.
pub(crate) fn width(words: &str) -> f64 {
    6.4 * words.chars().count() as f64
}

/// Words on lines of at most this many letters; a longer word has a line for itself.
pub(crate) fn wrap(words: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A coordinate. There is no place at infinity: what is none is drawn at 0.
fn number(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

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
    value.standing != Provenance::Predicted
}

/// Of a group: what its label or its bars need.
fn height(label: &str, values: &[Option<Value>]) -> f64 {
    let lines = wrap(label, LETTERS).len() as f64 * (LEADING - 2.0);
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
    let lines = wrap(label, LETTERS);
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
        let class = fill(at) + if is_fitted(value) { " fitted" } else { "" };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    #[test]
    fn whatever_is_written_is_well_formed() {
        let mut drawing = Drawing::default();
        let nasty = "a < b && \"c\" > 'd'\u{0}\n]]> é µs";
        drawing.line("grid", (0.0, 1.5), (f64::NAN, f64::INFINITY));
        drawing.bar("f0", (1.0, 2.0), (-3.0, 4.0), nasty);
        drawing.path("line s0", &[(0.0, 0.0), (f64::NEG_INFINITY, 1e300)]);
        drawing.dot("f1", (-0.0001, 3.0), nasty);
        drawing.diamond((3.0, 4.0), nasty);
        drawing.text("small", (1.0, 1.0), Anchor::End, nasty);
        drawing.text_upwards("", (1.0, 1.0), nasty);
        for text in [drawing.inline((10.0, 20.0), nasty), drawing.file((10.0, 20.0), nasty)] {
            let elements = xml::check(&text).unwrap();
            assert!(elements.iter().any(|element| element.name == "polygon"));
            xml::check_numbers(&elements).unwrap();
        }
    }

    #[test]
    fn numbers_are_short_and_finite() {
        let numbers = [1.0, 0.1 + 0.2, -0.001, f64::NAN, f64::INFINITY].map(number);
        assert_eq!(numbers, ["1", "0.3", "0", "0", "0"]);
    }

    #[test]
    fn words_are_wrapped_between_them() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 7), ["incomprehensible"]);
        assert!(wrap("", 7).is_empty());
    }
}
