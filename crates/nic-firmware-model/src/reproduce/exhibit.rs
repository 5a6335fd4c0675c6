//! An exhibit: a table or a figure of a paper, its values beside the model's; and the
//! constants that the model is made of.

use core::fmt;

/// Which of the four designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Design {
    /// The Scheduled Transfer Protocol on the Tigon-II.
    Stp,
    /// Queue pairs on the LANai 9.
    Qpip,
    /// Speculative defragmentation with the Hamachi.
    Defrag,
    /// The adapter of CLAN, with tripwires.
    Clan,
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stp => "STP on the Tigon-II",
            Self::Qpip => "QPIP on the LANai 9",
            Self::Defrag => "Speculative defragmentation with the Hamachi",
            Self::Clan => "The CLAN adapter",
        })
    }
}

/// Where the model's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// The model was fed it.
    Given,
    /// Constants of the model were fitted to it.
    Fitted,
    /// No source states it: a constant that was chosen, within a range.
    Assumed,
    /// An input, or another row, said again: an identity, or one input and arithmetic. It is
    /// shown; that it is met is no success, that it is missed is a failure.
    Restated,
    /// The model says so by itself, from inputs that were stated apart.
    Predicted,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "given",
            Self::Fitted => "fitted",
            Self::Assumed => "assumed",
            Self::Restated => "restated",
            Self::Predicted => "predicted",
        })
    }
}

/// What is off by no more than this share of the paper's value is met.
pub const MET: f64 = 0.15;
/// What is missed is held to its value within this share of it.
pub const HELD: f64 = 0.05;

const MILLION: f64 = 1e6;

/// How it is measured how far off a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// As a share of the paper's value.
    Share,
    /// In packets per million: the value counts some of `of` packets, and so few of them that a
    /// share of it says nothing.
    PerMillion {
        /// How many packets there were.
        of: f64,
    },
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Share => "share",
            Self::PerMillion { .. } => "packets per million",
        })
    }
}

/// Whether a scored value is that of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Score {
    /// It is, within its limit.
    Met,
    /// It is not; or nothing holds it within its limit.
    Missed,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// What the paper states; `None` where it only draws a point, or says nothing. Where it
    /// states a range, the upper end.
    pub paper: Option<f64>,
    /// The lower end of a range; `None` where the paper states one value.
    pub least: Option<f64>,
    /// What the model says.
    pub model: f64,
    /// Where that comes from.
    pub standing: Provenance,
    /// How it is measured how far off that is.
    pub measure: Measure,
    /// What the model is known to say instead of the paper; `None` where it is to meet it. A test
    /// fails where the model says anything else.
    pub held: Option<f64>,
}

impl Value {
    const fn new(paper: Option<f64>, model: f64, standing: Provenance) -> Self {
        Self { paper, least: None, model, standing, measure: Measure::Share, held: None }
    }

    /// Something that the paper states and the model predicts.
    #[must_use]
    pub const fn predicted(paper: f64, model: f64) -> Self {
        Self::new(Some(paper), model, Provenance::Predicted)
    }

    /// Something that the paper states and constants were fitted to.
    #[must_use]
    pub const fn fitted(paper: f64, model: f64) -> Self {
        Self::new(Some(paper), model, Provenance::Fitted)
    }

    /// Something that the paper states and the model was fed.
    #[must_use]
    pub const fn given(paper: f64, model: f64) -> Self {
        Self::new(Some(paper), model, Provenance::Given)
    }

    /// Something that the paper states and that follows from an input, or from another row.
    #[must_use]
    pub const fn restated(paper: f64, model: f64) -> Self {
        Self::new(Some(paper), model, Provenance::Restated)
    }

    /// Something that the paper does not state in words.
    #[must_use]
    pub const fn alone(model: f64) -> Self {
        Self::new(None, model, Provenance::Predicted)
    }

    /// The same where the paper states a range, from here to its value: nothing in it is off.
    #[must_use]
    pub const fn down_to(self, least: f64) -> Self {
        Self { least: Some(least), ..self }
    }

    /// The same as a count of some of `packets`, compared in packets per million.
    #[must_use]
    pub const fn of_packets(self, packets: f64) -> Self {
        Self { measure: Measure::PerMillion { of: packets }, ..self }
    }

    /// The same where the model is known to say something else: this. It counts as missed.
    #[must_use]
    pub const fn held_to(self, model: f64) -> Self {
        Self { held: Some(model), ..self }
    }

    /// How far off the model is, in the value's [`Measure`]: from the paper's value, or from the
    /// end of its range.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.error_of(self.model)
    }

    fn error_of(&self, model: f64) -> Option<f64> {
        let most = self.paper?;
        let least = self.least.unwrap_or(most);
        if (least..most).contains(&model) {
            return Some(0.0);
        }
        let end = if model < least { least } else { most };
        Some((model - end) / self.unit(end))
    }

    /// What the measure's one is, in the unit of the value.
    const fn unit(&self, paper: f64) -> f64 {
        match self.measure {
            Measure::Share => paper,
            Measure::PerMillion { of } => of / MILLION,
        }
    }

    /// How far off it may be and is met, in its measure: a share of [`MET`], or one packet, which
    /// is the last digit of a count.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        match self.measure {
            Measure::Share => MET,
            Measure::PerMillion { of } => MILLION / of,
        }
    }

    /// How much more or less than [`Value::held`] the model may say, in the unit of the value.
    #[must_use]
    pub fn give(&self, held: f64) -> f64 {
        let least = match self.measure {
            Measure::Share => 0.0,
            Measure::PerMillion { .. } => 1.0,
        };
        f64::max(held.abs() * HELD, least)
    }

    /// How far off the tests let it be, in its measure.
    #[must_use]
    pub fn bound(&self) -> Option<f64> {
        let Some(held) = self.held else { return self.paper.map(|_| self.limit()) };
        let give = self.give(held);
        let ends = [self.error_of(held - give)?, self.error_of(held + give)?];
        Some(f64::max(ends[0].abs(), ends[1].abs()))
    }

    /// Whether the tests let it be what it is: within its limit, or what it is known to be.
    #[must_use]
    pub fn is_within_bound(&self) -> Option<bool> {
        match self.held {
            Some(held) => self.paper.map(|_| (self.model - held).abs() <= self.give(held)),
            None => self.is_close(),
        }
    }

    /// Whether it is within its limit, whatever the tests would let it be.
    #[must_use]
    pub fn is_close(&self) -> Option<bool> {
        Some(self.error()?.abs() <= self.limit())
    }

    /// Is it scored, and met? What is restated counts where it is missed only. A bound that is
    /// wider than the limit is a miss, whatever the model says.
    #[must_use]
    pub fn scored(&self) -> Option<Score> {
        let is_met = self.is_close()? && self.bound()? <= self.limit();
        match self.standing {
            Provenance::Predicted if is_met => Some(Score::Met),
            Provenance::Predicted | Provenance::Restated if !is_met => Some(Score::Missed),
            _ => None,
        }
    }
}

/// A line of an exhibit.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was done.
    pub label: String,
    /// What came of it, one for each column.
    pub values: Vec<Value>,
    /// What the model lacks, where it is off.
    pub why: Option<&'static str>,
}

impl Row {
    /// A line that needs no explanation.
    #[must_use]
    pub fn new(label: impl Into<String>, values: Vec<Value>) -> Self {
        Self { label: label.into(), values, why: None }
    }

    /// The same, with what the model lacks.
    #[must_use]
    pub const fn off_because(mut self, why: &'static str) -> Self {
        self.why = Some(why);
        self
    }
}

/// A table or a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Exhibit {
    /// Of which paper.
    pub design: Design,
    /// Its name there.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What each column holds, with its unit.
    pub columns: Vec<&'static str>,
    /// Its lines.
    pub rows: Vec<Row>,
    /// Its conditions.
    pub remarks: Vec<&'static str>,
}

/// A word about an exhibit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// The first row that it is about; none where it is about all.
    pub about: Option<&'a str>,
    /// What is to be said.
    pub text: &'static str,
}

impl Exhibit {
    /// Its conditions, then what the model lacks where a row is off, each reason once.
    #[must_use]
    pub fn notes(&self) -> Vec<Note<'_>> {
        let mut notes: Vec<Note<'_>> =
            self.remarks.iter().map(|&text| Note { about: None, text }).collect();
        for row in &self.rows {
            if let Some(text) = row.why
                && !notes.iter().any(|note| note.about.is_some() && note.text == text)
            {
                notes.push(Note { about: Some(&row.label), text });
            }
        }
        notes
    }

    /// Every value that the paper states, with the row and column it stands in.
    pub fn stated(&self) -> impl Iterator<Item = (&str, &'static str, &Value)> {
        self.rows.iter().flat_map(move |row| {
            let cells = self.columns.iter().zip(&row.values);
            cells
                .filter(|(_, value)| value.paper.is_some())
                .map(move |(column, value)| (row.label.as_str(), *column, value))
        })
    }
}

/// A constant of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// The words of the paper that it comes from, or what it was fitted to.
    pub source: &'static str,
    /// Given by a paper, fitted, or assumed.
    pub standing: Provenance,
}

impl Constant {
    /// One that the paper states.
    #[must_use]
    pub const fn given(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, value, unit, source, standing: Provenance::Given }
    }

    /// One that no source states; `source` says why this much, and in which range it may lie.
    #[must_use]
    pub const fn assumed(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, value, unit, source, standing: Provenance::Assumed }
    }

    /// One that was fitted.
    #[must_use]
    pub const fn fitted(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, value, unit, source, standing: Provenance::Fitted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_its_limit_is_met() {
        for (model, score) in [(85.1, Score::Met), (114.9, Score::Met), (84.9, Score::Missed)] {
            let value = Value::predicted(100.0, model);
            assert_eq!(value.scored(), Some(score), "{value:?}");
        }
        assert_eq!(Value::restated(100.0, 110.0).scored(), None);
        assert_eq!(Value::restated(100.0, 120.0).scored(), Some(Score::Missed));
        assert_eq!(Value::alone(120.0).scored(), None);
    }

    /// A bound that would let a value be far off is no agreement, even where it is met.
    #[test]
    fn a_wide_bound_is_a_miss() {
        for held in [20.0, 84.0, 116.0, 250.0] {
            let value = Value::predicted(100.0, 100.0).held_to(held);
            assert!(value.bound() > Some(value.limit()), "{value:?}");
            assert_eq!(value.scored(), Some(Score::Missed), "{value:?}");
        }
    }

    #[test]
    fn what_is_missed_is_held_to_what_it_is() {
        let value = |model| Value::predicted(11.0, model).held_to(37.5);
        for (model, is_within) in [(37.5, true), (39.3, true), (35.5, false), (11.0, false)] {
            assert_eq!(value(model).is_within_bound(), Some(is_within), "{model}");
        }
        // 37.5 and a twentieth more, beside 11.
        assert!((value(37.5).bound().unwrap() - 2.58).abs() < 0.01);
    }

    /// One packet is the last digit of a count, however small the count is.
    #[test]
    fn counts_are_compared_in_packets_per_million() {
        let value = |model| Value::predicted(2.0, model).of_packets(1e5);
        let scores = [(1.0, Score::Met), (3.0, Score::Met), (0.0, Score::Missed)];
        for (model, score) in scores {
            assert_eq!(value(model).scored(), Some(score), "{model}");
        }
        assert_eq!(value(0.0).error(), Some(-20.0));
        assert_eq!(value(13_340.0).error(), Some(133_380.0));
        let held = [value(1.0), value(1.1)].map(|value| value.held_to(0.0).is_within_bound());
        assert_eq!(held, [Some(true), Some(false)]);
    }

    #[test]
    fn nothing_in_a_range_is_off() {
        let value = |model| Value::predicted(75.0, model).down_to(50.0);
        assert_eq!(value(60.0).error(), Some(0.0));
        assert_eq!(value(40.0).error(), Some(-0.2));
        assert_eq!(value(90.0).error(), Some(0.2));
        assert_eq!(value(99.5).held_to(99.5).scored(), Some(Score::Missed));
    }
}
