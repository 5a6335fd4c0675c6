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

/// Whatever is this close to the paper is met.
pub const MET: f64 = 0.15;

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
    /// How far off the model may be, as a share of the paper's value. A test fails beyond
    /// it, and where the model is much closer than that.
    pub bound: f64,
}

impl Value {
    const fn new(paper: Option<f64>, model: f64, standing: Provenance) -> Self {
        Self { paper, least: None, model, standing, bound: MET }
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

    /// The same with a bound of its own.
    #[must_use]
    pub const fn within(self, bound: f64) -> Self {
        Self { bound, ..self }
    }

    /// How far off the model is, as a share of the paper's value, or of the end of its range.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let most = self.paper?;
        let least = self.least.unwrap_or(most);
        if (least..most).contains(&self.model) {
            return Some(0.0);
        }
        let end = if self.model < least { least } else { most };
        Some((self.model - end) / end)
    }

    /// Is it scored, and how far off is it? What is restated counts where it is missed only.
    #[must_use]
    pub fn scored(&self) -> Option<f64> {
        let error = self.error()?.abs();
        match self.standing {
            Provenance::Predicted => Some(error),
            Provenance::Restated if error > MET => Some(error),
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
