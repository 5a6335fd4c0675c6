//! The exhibits as a page of Markdown: `docs/reproduction.md`.

use core::fmt::Write as _;

use super::exhibit::{
    Constant, Design, Exhibit, HELD, Measure, Note, Provenance, Row, Score, Value,
};
use super::sensitivity::{Change, Effect};
use super::{beyond, clan, defrag, qpip, stp};
use crate::runs;

/// What the model says of one paper, or of what none of them says.
#[derive(Clone, Debug, PartialEq)]
pub struct Chapter {
    /// Which design; none where it is of all four.
    pub design: Option<Design>,
    /// Its tables and figures.
    pub exhibits: Vec<Exhibit>,
    /// What the model is made of.
    pub constants: Vec<Constant>,
    /// What its assumed constants do; empty where nothing is compared with a paper.
    pub effects: Vec<Effect>,
}

impl Chapter {
    /// Runs the model for one paper; without a design, for what comes after all of them.
    #[must_use]
    pub fn of(design: Option<Design>) -> Self {
        let (exhibits, constants, effects) = match design {
            Some(Design::Stp) => (stp::exhibits(), stp::constants(), stp::sensitivity()),
            Some(Design::Qpip) => (qpip::exhibits(), qpip::constants(), qpip::sensitivity()),
            Some(Design::Defrag) => {
                (defrag::exhibits(), defrag::constants(), defrag::sensitivity())
            }
            Some(Design::Clan) => (clan::exhibits(), clan::constants(), clan::sensitivity()),
            None => (beyond::exhibits(), beyond::constants(), Vec::new()),
        };
        Self { design, exhibits, constants, effects }
    }

    /// Its heading.
    #[must_use]
    pub fn title(&self) -> String {
        self.design.map_or_else(|| "And beyond: today's constants".into(), |one| one.to_string())
    }

    /// How well the paper is met.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let stated = || self.exhibits.iter().flat_map(Exhibit::stated).map(|(_, _, value)| value);
        let count = |standing| stated().filter(|value| value.standing == standing).count();
        let scores = |score| stated().filter(|value| value.scored() == Some(score)).count();
        let errors = |is_of: fn(Measure) -> bool| {
            let scored = stated().filter(|it| it.scored().is_some() && is_of(it.measure));
            let mut errors: Vec<f64> = scored.filter_map(Value::error).map(f64::abs).collect();
            errors.sort_by(f64::total_cmp);
            errors
        };
        let shares = errors(|measure| measure == Measure::Share);
        let counts = errors(|measure| matches!(measure, Measure::PerMillion { .. }));
        let free = |it: &&Constant| matches!(it.standing, Provenance::Fitted | Provenance::Assumed);
        let shows_the_paper = |it: &&Exhibit| it.stated().next().is_some();
        Summary {
            figures: self.exhibits.iter().filter(shows_the_paper).count(),
            given: count(Provenance::Given),
            fitted: count(Provenance::Fitted),
            restated: count(Provenance::Restated),
            predicted: count(Provenance::Predicted),
            free_constants: self.constants.iter().filter(free).count(),
            met: scores(Score::Met),
            missed: scores(Score::Missed),
            median: shares.get(shares.len() / 2).copied(),
            worst: shares.last().copied(),
            worst_per_million: counts.last().copied(),
        }
    }

    /// What is scored and missed: where it stands, and why it is off.
    pub fn missed(&self) -> impl Iterator<Item = Miss<'_>> {
        self.exhibits.iter().flat_map(|exhibit| {
            exhibit.rows.iter().flat_map(move |row| {
                let cells = exhibit.columns.iter().zip(&row.values);
                cells
                    .filter(|(_, value)| value.scored() == Some(Score::Missed))
                    .map(move |(column, value)| Miss { exhibit, row, column, value })
            })
        })
    }
}

/// A scored value that is missed.
#[derive(Clone, Copy, Debug)]
pub struct Miss<'a> {
    /// The table or figure.
    pub exhibit: &'a Exhibit,
    /// The line of it.
    pub row: &'a Row,
    /// What the value is of.
    pub column: &'static str,
    /// The value.
    pub value: &'a Value,
}

/// How well a paper is met. Errors are without signs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Tables and figures with values that the paper states.
    pub figures: usize,
    /// Stated values that the model was fed.
    pub given: usize,
    /// Those that constants were fitted to.
    pub fitted: usize,
    /// Those that follow from one input, or say another row again.
    pub restated: usize,
    /// Those that the model predicts.
    pub predicted: usize,
    /// Constants that were fitted or assumed: the degrees of freedom.
    pub free_constants: usize,
    /// Predicted values that are met.
    pub met: usize,
    /// Values that are farther off, predicted or restated.
    pub missed: usize,
    /// The median error of those two, where it is a share.
    pub median: Option<f64>,
    /// The largest.
    pub worst: Option<f64>,
    /// The largest of those in packets per million.
    pub worst_per_million: Option<f64>,
}

/// All papers that are modelled, and what comes after them.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let papers = [Design::Stp, Design::Qpip, Design::Defrag, Design::Clan];
    let all: Vec<_> = papers.into_iter().map(Some).chain([None]).collect();
    runs::each(&all, |design| Chapter::of(*design))
}

const TITLE: &str = "# The papers, reproduced\n";

const ORIGIN: &str = "
<!-- This page is written by the model: `UPDATE_REPRODUCTION=1 cargo test -p nic-firmware-model
--test suite the_page`. A test fails where it is not what the model says. -->
";

const HEAD: &str = "
Each table and figure: the paper's value, the model's, and how far off that is. The paper's
values are those that its words and tables state; where it only draws a point, the model's
value stands alone. A value is

- *given* where the model was fed it,
- *fitted* where constants were fitted to it,
- *restated* where it follows from one input, or says another row again: an identity, a sum, a
  limit that is the same. That it is met is no success; that it is missed counts,
- **predicted** otherwise. Only these are scored.

How far off a value is, is a share of the paper's, and within 15 % is met. A share says nothing of
a count that is near nothing: of packets that are fewer than one in a thousand the difference is given
in packets per million, and met is what is within one packet of the paper's count, its last digit.
What is not met is missed, and the tests hold it to what the model says now, within 5 % of that (a
count within one packet at least): no bound of a test is so wide that what is far off would pass as met.

Constants that no source states are *assumed*; what comes of half and of twice as much stands
below each chapter.
";

/// What our own machines say against the papers, before anything else: measured, not modelled.
const AGAINST: &str = "
## Where what we measure contradicts a paper

On machines of today, over the same protocols (`landfall paper defrag`, `landfall perf`, with
the figures and their dates in [performance](performance.md) and [clan-ip](clan-ip.md)):

- Joining fragments in place and copying to the user is *faster* than fast buffers and page
  remapping, which the paper on speculative defragmentation found best: a copy costs less than
  a change of the page table, or than looking after lent memory.
- With IP over CLAN a byte goes there and back in the time of the kernel's TCP on the same link or a
  little less, and 1 KiB takes *longer*; in the paper both are faster.
- A file system on a block device over queue pairs (Figure 7 of QPIP, `landfall paper qpip`)
  is *not* faster by what the paper found, and its reads cost the client *more* processor time
  than over sockets: without an adapter that runs TCP, both ends' processors run it either way.
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
    let mut page = String::new();
    score(&mut page, chapters);
    page.push_str(HEAD);
    summary(&mut page, chapters);
    if chapters.len() > 1 {
        misses(&mut page, chapters);
        page.push_str(AGAINST);
    }
    for chapter in chapters {
        let _ = write!(page, "\n## {}\n", chapter.title());
        for exhibit in &chapter.exhibits {
            write_exhibit(&mut page, exhibit);
        }
        write_constants(&mut page, &chapter.constants);
        write_effects(&mut page, &chapter.effects);
    }
    page
}

/// Those that are of a paper.
fn papers(chapters: &[Chapter]) -> impl Iterator<Item = &Chapter> {
    chapters.iter().filter(|chapter| chapter.design.is_some())
}

/// The whole in one sentence.
fn score(page: &mut String, chapters: &[Chapter]) {
    if papers(chapters).next().is_none() {
        return;
    }
    let mut all = Summary::default();
    for Summary { figures, predicted, met, missed, free_constants, .. } in
        papers(chapters).map(Chapter::summary)
    {
        all.figures += figures;
        all.predicted += predicted;
        all.met += met;
        all.missed += missed;
        all.free_constants += free_constants;
    }
    let Summary { figures, predicted, met, missed, free_constants, .. } = all;
    let _ = write!(
        page,
        "\n**{figures} tables and figures, {predicted} independent predictions with \
         {free_constants} free constants: {met} within 15 %, {missed} missed** (restated values \
         that are off among them). Why stands with each.\n",
    );
}

fn summary(page: &mut String, chapters: &[Chapter]) {
    if papers(chapters).next().is_none() {
        return;
    }
    page.push_str(
        "\n| | given | fitted | restated | free constants | predicted | within 15 % | missed | median | worst | worst, packets per million |\n",
    );
    page.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for chapter in papers(chapters) {
        let of = chapter.summary();
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            chapter.title(),
            of.given,
            of.fitted,
            of.restated,
            of.free_constants,
            of.predicted,
            of.met,
            of.missed,
            share(of.median),
            share(of.worst),
            per_million(of.worst_per_million),
        );
    }
}

/// Everything that is off, in one place.
fn misses(page: &mut String, chapters: &[Chapter]) {
    page.push_str("\n## What is missed\n\n| | where | paper → model | held to |\n");
    page.push_str("| --- | --- | --- | --- |\n");
    for chapter in papers(chapters) {
        for Miss { exhibit, row, column, value } in chapter.missed() {
            let _ = writeln!(
                page,
                "| {} | {}, {}, {column} | {} | {} |",
                chapter.title(),
                exhibit.name,
                row.label,
                cell(value),
                held(value),
            );
        }
    }
}

fn write_effects(page: &mut String, effects: &[Effect]) {
    if effects.is_empty() {
        return;
    }
    page.push_str("\n### What the assumed constants do\n\n");
    page.push_str("| constant | half of it: within 15 %, moved most | twice as much |\n");
    page.push_str("| --- | --- | --- |\n");
    for Effect { name, halved, doubled } in effects {
        let _ = writeln!(page, "| {name} | {} | {} |", change(halved), change(doubled));
    }
}

/// "7; Table 1, a row, a column (+12.3 %)".
fn change(Change { met, most }: &Change) -> String {
    match most {
        Some((at, share)) => format!("{met}; {at} ({:+.1} %)", share * 100.0),
        None => format!("{met}; nothing"),
    }
}

/// An error of a [`Summary`], in percent.
#[must_use]
pub fn share(error: Option<f64>) -> String {
    error.map_or_else(|| "-".to_owned(), |error| format!("{:.1} %", error * 100.0))
}

/// An error of a [`Summary`], in packets per million.
#[must_use]
pub fn per_million(error: Option<f64>) -> String {
    error.map_or_else(|| "-".to_owned(), |error| format!("{error:.0}"))
}

/// What a value is to the tests: "37.5 ± 5 %", "0 ± 1".
fn held(value: &Value) -> String {
    let Some(held) = value.held else { return "the paper's".to_owned() };
    let give = value.give(held);
    if give > held.abs() * HELD {
        format!("{} ± {}", number(held), number(give))
    } else {
        format!("{} ± {} %", number(held), number(HELD * 100.0))
    }
}

/// How far off a value is, in its measure: "+12.3 %", "-20 per million".
#[must_use]
pub fn error(value: &Value) -> Option<String> {
    let error = value.error()?;
    Some(match value.measure {
        Measure::Share => {
            let error = error * 100.0;
            // No minus before what rounds to nothing.
            let error = if error.abs() < 0.05 { 0.0 } else { error };
            format!("{error:+.1} %")
        }
        Measure::PerMillion { .. } => format!("{error:+.0} per million"),
    })
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
    match (stated(value), error(value)) {
        (Some(paper), Some(error)) => match value.standing {
            Provenance::Predicted => format!("{paper} → **{model}** ({error})"),
            Provenance::Restated if value.scored().is_some() => {
                format!("{paper} → {model} (restated, {error})")
            }
            standing => format!("{paper} → {model} ({standing})"),
        },
        _ => model,
    }
}

/// What the paper states, as it is shown: "75", "50 to 75", "at most 75".
#[must_use]
pub fn stated(value: &Value) -> Option<String> {
    let most = number(value.paper?);
    Some(match value.least {
        None => most,
        Some(0.0) => format!("at most {most}"),
        Some(least) => format!("{} to {most}", number(least)),
    })
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
