//! The exhibits as a page of Markdown: `docs/reproduction.md`.

use core::fmt::Write as _;

use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Note, Row, Standing, Value};
use super::qpip;
use super::{beyond, clan, defrag, stp};

/// What the model says of one paper, or of what none of them says.
#[derive(Clone, Debug, PartialEq)]
pub struct Chapter {
    /// Which design; none where it is of all four.
    pub design: Option<Design>,
    /// Its tables and figures.
    pub exhibits: Vec<Exhibit>,
    /// What the model is made of.
    pub constants: Vec<Constant>,
}

impl Chapter {
    /// Runs the model for one paper; without a design, for what comes after all of them.
    #[must_use]
    pub fn of(design: Option<Design>) -> Self {
        let (exhibits, constants) = match design {
            Some(Design::Stp) => (stp::exhibits(), stp::constants()),
            Some(Design::Qpip) => (qpip::exhibits(), qpip::constants()),
            Some(Design::Defrag) => (defrag::exhibits(), defrag::constants()),
            Some(Design::Clan) => (clan::exhibits(), clan::constants()),
            None => (beyond::exhibits(), beyond::constants()),
        };
        Self { design, exhibits, constants }
    }

    /// Its heading.
    #[must_use]
    pub fn title(&self) -> String {
        self.design.map_or_else(|| "And beyond: today's constants".into(), |one| one.to_string())
    }

    /// How well the paper is met.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let errors = |standing| {
            let values = self.exhibits.iter().flat_map(Exhibit::stated);
            let mut errors: Vec<f64> = values
                .filter(|(_, _, value)| value.standing == standing)
                .filter_map(|(_, _, value)| Some(value.error()?.abs()))
                .collect();
            errors.sort_by(f64::total_cmp);
            errors
        };
        let (fitted, free) = (errors(Standing::Calibrated), errors(Standing::Predicted));
        Summary {
            calibrated_worst: fitted.last().copied(),
            predicted: free.len(),
            within: free.iter().filter(|error| **error <= 0.15).count(),
            median: free.get(free.len() / 2).copied(),
            worst: free.last().copied(),
        }
    }
}

/// How well a paper is met. Errors are shares of the paper's values, without signs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The largest error of a value that constants were fitted to.
    pub calibrated_worst: Option<f64>,
    /// How many of the stated values are predicted.
    pub predicted: usize,
    /// How many of those are within 15 %.
    pub within: usize,
    /// The median of their errors.
    pub median: Option<f64>,
    /// The largest.
    pub worst: Option<f64>,
}

/// All papers that are modelled, and what comes after them.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let papers = [Design::Stp, Design::Qpip, Design::Defrag, Design::Clan];
    papers.into_iter().map(Some).chain([None]).map(Chapter::of).collect()
}

const TITLE: &str = "# The papers, reproduced\n";

const ORIGIN: &str = "
<!-- This page is written by the model: `UPDATE_REPRODUCTION=1 cargo test -p nic-firmware-model
--test suite the_page`. A test fails where it is not what the model says. -->
";

const HEAD: &str = "
Each table and figure: the paper's value, the model's, and how far off that is. The paper's
values are those that its words and tables state; where it only draws a point, the model's
value stands alone. *Given* values were put into the model, to *calibrated* ones it was
fitted, and all others it predicts.
";

/// The page in the repository: it says how it came to be.
#[must_use]
pub fn page(chapters: &[Chapter]) -> String {
    [TITLE, ORIGIN, &content(chapters)].concat()
}

/// The same for anybody's use.
#[must_use]
pub fn markdown(chapters: &[Chapter]) -> String {
    [TITLE, &content(chapters)].concat()
}

fn content(chapters: &[Chapter]) -> String {
    let mut page = String::from(HEAD);
    summary(&mut page, chapters);
    for chapter in chapters {
        let _ = write!(page, "\n## {}\n", chapter.title());
        for exhibit in &chapter.exhibits {
            write_exhibit(&mut page, exhibit);
        }
        write_constants(&mut page, &chapter.constants);
    }
    page
}

fn summary(page: &mut String, chapters: &[Chapter]) {
    if chapters.iter().all(|chapter| chapter.design.is_none()) {
        return;
    }
    page.push_str("\n| | calibrated, worst | predicted | within 15 % | median | worst |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for chapter in chapters.iter().filter(|chapter| chapter.design.is_some()) {
        let Summary { calibrated_worst, predicted, within, median, worst } = chapter.summary();
        let _ = writeln!(
            page,
            "| {} | {} | {predicted} | {within} | {} | {} |",
            chapter.title(),
            share(calibrated_worst),
            share(median),
            share(worst),
        );
    }
}

/// An error of a [`Summary`], in percent.
#[must_use]
pub fn share(error: Option<f64>) -> String {
    error.map_or_else(|| "-".to_owned(), |error| format!("{:.1} %", error * 100.0))
}

fn write_exhibit(page: &mut String, exhibit: &Exhibit) {
    let _ = write!(page, "\n### {}: {}\n\n", exhibit.name, exhibit.title);
    page.push_str("| |");
    for column in &exhibit.columns {
        let _ = write!(page, " {column} |");
    }
    page.push_str("\n| --- |");
    page.push_str(&" --- |".repeat(exhibit.columns.len()));
    page.push('\n');
    for row in &exhibit.rows {
        write_row(page, row);
    }
    let notes = exhibit.notes();
    if !notes.is_empty() {
        page.push('\n');
    }
    for Note { about, text } in notes {
        let _ = match about {
            Some(row) => writeln!(page, "- *{row}*: {text}"),
            None => writeln!(page, "- {text}"),
        };
    }
}

fn write_row(page: &mut String, row: &Row) {
    let _ = write!(page, "| {} |", row.label);
    for value in &row.values {
        let _ = write!(page, " {} |", cell(value));
    }
    page.push('\n');
}

/// "paper → model (error, standing)".
fn cell(value: &Value) -> String {
    let model = number(value.model);
    match (value.paper, value.error()) {
        (Some(paper), Some(error)) => {
            let (paper, error) = (number(paper), error * 100.0);
            // No minus before what rounds to nothing.
            let error = if error.abs() < 0.05 { 0.0 } else { error };
            match value.standing {
                Standing::Predicted => format!("{paper} → **{model}** ({error:+.1} %)"),
                standing => format!("{paper} → {model} ({standing})"),
            }
        }
        _ => model,
    }
}

/// A value as it is shown: with three digits, or all that stand before the point.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    if digits > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn write_constants(page: &mut String, constants: &[Constant]) {
    page.push_str("\n### What the model is made of\n\n");
    page.push_str("| constant | value | | from |\n| --- | --- | --- | --- |\n");
    for constant in constants {
        let Constant { name, value, unit, source, standing } = constant;
        let value = number(*value);
        let _ = writeln!(page, "| {name} | {value} {unit} | {standing} | {source} |");
    }
}
