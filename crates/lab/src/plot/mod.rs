//! One writer of plots: panels below each other, each with its legend, as SVG.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | a drawing of panels, and what their marks mean |
//! | `panel` | bars and curves; which values of an exhibit share a panel |
//! | `curves` | where things are in it |
//! | `svg` | how they are written down |

mod curves;
pub mod panel;
pub(crate) mod svg;

use nic_firmware_model::reproduce::report::{number, stated};
use nic_firmware_model::reproduce::{Exhibit, Provenance, Value};

use panel::Panel;
use svg::{Anchor, Drawing};

pub use svg::STYLE;

/// As wide as a column of text.
pub(crate) const WIDTH: f64 = 860.0;
/// What is left empty at the sides.
pub(crate) const MARGIN: f64 = 14.0;
/// From one line of text to the next.
pub(crate) const LEADING: f64 = 16.0;

/// A finished drawing.
#[derive(Debug)]
pub struct Plot {
    drawing: Drawing,
    height: f64,
    title: String,
}

impl Plot {
    /// For a page that has [`STYLE`].
    pub fn inline(&self) -> String {
        self.drawing.inline((WIDTH, self.height), &self.title)
    }

    /// As a file that stands alone.
    pub fn file(&self) -> String {
        self.drawing.file((WIDTH, self.height), &self.title)
    }
}

/// Draws it.
pub fn plot(exhibit: &Exhibit) -> Plot {
    of_panels(&format!("{}: {}", exhibit.name, exhibit.title), &panel::panels(exhibit))
}

/// Draws these below each other.
pub fn of_panels(title: &str, panels: &[Panel]) -> Plot {
    let mut drawing = Drawing::default();
    let mut y = 12.0;
    for line in svg::wrap(title, 112) {
        y += LEADING;
        drawing.text("strong", (MARGIN, y), Anchor::Start, &line);
    }
    for panel in panels {
        y = match panel {
            Panel::Bars(panel) => svg::draw(&mut drawing, panel, y + 14.0),
            Panel::Curves(panel) => curves::draw(&mut drawing, panel, y + 14.0),
        };
    }
    Plot { drawing, height: y + 12.0, title: title.to_owned() }
}

/// What the marks of a panel mean.
#[derive(Debug)]
pub(crate) struct Legend<'a> {
    pub(crate) names: Vec<&'a str>,
    /// Some of its values are stated by the paper.
    pub(crate) has_stated: bool,
    /// Some of them the model did not predict.
    pub(crate) has_fitted: bool,
    pub(crate) is_of_lines: bool,
}

impl Legend<'_> {
    /// Draws it, in as many lines as it needs; gives where it ends.
    pub(crate) fn draw(&self, drawing: &mut Drawing, top: f64) -> f64 {
        let (mut x, mut y) = (MARGIN, top + LEADING);
        let mut room = |words: &str| {
            let wide = 24.0 + svg::width(words) + 18.0;
            if x > MARGIN && x + wide > WIDTH - MARGIN {
                (x, y) = (MARGIN, y + LEADING);
            }
            let at = (x, y);
            x += wide;
            at
        };
        for (series, name) in self.names.iter().enumerate() {
            let (x, y) = room(name);
            if self.is_of_lines {
                let class = format!("line {}", svg::stroke(series));
                drawing.line(&class, (x, y - 4.0), (x + 20.0, y - 4.0));
            } else {
                drawing.bar(&svg::fill(series), (x + 4.0, y - 9.0), (12.0, 10.0), name);
            }
            drawing.text("", (x + 24.0, y), Anchor::Start, name);
        }
        if self.has_stated {
            let words = "what the paper states";
            let (x, y) = room(words);
            drawing.diamond((x + 10.0, y - 4.0), words);
            drawing.text("", (x + 24.0, y), Anchor::Start, words);
        }
        if self.has_fitted {
            let words = "pale: given, fitted or restated, not predicted";
            let (x, y) = room(words);
            drawing.bar("f0 fitted", (x + 4.0, y - 9.0), (12.0, 10.0), words);
            drawing.text("", (x + 24.0, y), Anchor::Start, words);
        }
        y + 4.0
    }
}

/// A value in words, with the paper's where there is one.
pub(crate) fn words(value: &Value) -> String {
    let model = number(value.model);
    let Some(paper) = stated(value) else { return model };
    match (value.standing, value.error().filter(|error| error.is_finite())) {
        (Provenance::Predicted, Some(error)) => {
            let error = error * 100.0;
            // No minus before what rounds to nothing.
            let error = if error.abs() < 0.05 { 0.0 } else { error };
            format!("{model}, paper {paper} ({error:+.1} %)")
        }
        // Nothing is a share of 0.
        (Provenance::Predicted, None) => format!("{model}, paper {paper}"),
        (standing, _) => format!("{model}, paper {paper} ({standing})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;
    use nic_firmware_model::reproduce::{Design, Row};

    fn exhibit() -> Exhibit {
        let rows = [1, 10, 100, 1000].map(|endpoints| {
            let values = [
                Value::predicted(f64::from(endpoints), 3.0),
                Value::alone(f64::NAN),
                Value::fitted(0.0, 0.0),
                Value::alone(7e9),
            ];
            Row::new(format!("{endpoints} endpoints"), values.to_vec())
        });
        let mut rows = rows.to_vec();
        rows.push(Row::new("<nobody> & \"all\"", vec![Value::alone(2.0); 4]));
        Exhibit {
            design: Design::Clan,
            name: "Figure <0>",
            title: "Ends & means",
            columns: vec!["asleep, µs", "awake, µs", "busy, %", "> \"unit\" & more"],
            rows,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn whatever_an_exhibit_holds_the_drawing_is_sound() {
        let plot = plot(&exhibit());
        for text in [plot.file(), plot.inline()] {
            let elements = xml::check(&text).unwrap();
            xml::check_numbers(&elements).unwrap();
        }
    }

    #[test]
    fn axes_have_their_units_and_stated_values_their_marks() {
        let text = plot(&exhibit()).file();
        for axis in [">asleep, µs (logarithmic)<", ">endpoints (logarithmic)<", ">busy, %<"] {
            assert!(text.contains(axis), "{axis} in {text}");
        }
        // Eight values are stated, in two panels with a legend each.
        assert_eq!(text.matches("class=\"stated\"").count(), 8 + 2, "{text}");
    }

    #[test]
    fn a_value_is_told_with_the_papers() {
        assert_eq!(words(&Value::alone(2.5)), "2.5");
        assert_eq!(words(&Value::predicted(2.0, 2.5)), "2.5, paper 2 (+25.0 %)");
        assert_eq!(words(&Value::fitted(2.0, 2.0)), "2, paper 2 (fitted)");
        assert_eq!(words(&Value::predicted(0.0, 2.0)), "2, paper 0");
    }
}
