//! An exhibit as lines for programs: CSV (RFC 4180) and JSON.

use nic_firmware_model::reproduce::report::{Chapter, Summary};
use nic_firmware_model::reproduce::{Constant, Exhibit, Value};
use serde::Serialize;

use super::live::Live;
use super::page::{self, key};
use crate::table::{csv_number, csv_record};

/// The first line of each CSV file of an exhibit.
pub(crate) const HEADINGS: &str = "row,column,paper,model,kind,error,measure\r\n";

/// A line for each value. What the paper does not state is empty, and so is its error;
/// errors are in the measure of their value.
pub(crate) fn csv(exhibit: &Exhibit) -> String {
    let mut text = String::from(HEADINGS);
    for row in &exhibit.rows {
        for (column, value) in exhibit.columns.iter().zip(&row.values) {
            text += &csv_record([
                row.label.clone(),
                (*column).to_owned(),
                csv_number(value.paper),
                csv_number(Some(value.model)),
                value.standing.to_string(),
                csv_number(value.error()),
                value.measure.to_string(),
            ]);
        }
    }
    text
}

/// What the model is made of.
pub(crate) fn constants_csv(constants: &[Constant]) -> String {
    let mut text = String::from("constant,value,unit,kind,source\r\n");
    for constant in constants {
        text += &csv_record([
            constant.name,
            &csv_number(Some(constant.value)),
            constant.unit,
            &constant.standing.to_string(),
            constant.source,
        ]);
    }
    text
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    chapters: Vec<JsonChapter<'a>>,
    /// What this machine measured; none without `--live`.
    live: Option<&'a Live>,
}

#[derive(Debug, Serialize)]
struct JsonChapter<'a> {
    /// What the command line calls it.
    design: &'static str,
    title: String,
    /// None where there is no paper.
    summary: Option<JsonSummary>,
    exhibits: Vec<JsonExhibit<'a>>,
    constants: Vec<JsonConstant>,
}

/// Errors are without signs: shares of the paper's values, but for that in packets per million.
#[derive(Debug, Serialize)]
struct JsonSummary {
    given: usize,
    fitted: usize,
    restated: usize,
    free_constants: usize,
    predicted: usize,
    within_15_percent: usize,
    missed: usize,
    predicted_median: Option<f64>,
    predicted_worst: Option<f64>,
    worst_packets_per_million: Option<f64>,
}

#[derive(Debug, Serialize)]
struct JsonExhibit<'a> {
    /// What its files are called, before the dot.
    id: String,
    name: &'static str,
    title: &'static str,
    values: Vec<JsonValue<'a>>,
    notes: Vec<JsonNote<'a>>,
}

#[derive(Debug, Serialize)]
struct JsonValue<'a> {
    row: &'a str,
    column: &'static str,
    paper: Option<f64>,
    least: Option<f64>,
    model: f64,
    kind: String,
    /// In this measure.
    error: Option<f64>,
    measure: String,
    /// What the tests hold the model to, where it is not the paper's.
    held: Option<f64>,
}

#[derive(Debug, Serialize)]
struct JsonNote<'a> {
    row: Option<&'a str>,
    text: &'static str,
}

#[derive(Debug, Serialize)]
struct JsonConstant {
    name: &'static str,
    value: f64,
    unit: &'static str,
    kind: String,
    source: &'static str,
}

impl<'a> Report<'a> {
    pub(crate) fn of(chapters: &'a [Chapter], live: Option<&'a Live>) -> Self {
        Self { chapters: chapters.iter().map(chapter).collect(), live }
    }
}

fn chapter(chapter: &Chapter) -> JsonChapter<'_> {
    let constant = |it: &Constant| JsonConstant {
        name: it.name,
        value: it.value,
        unit: it.unit,
        kind: it.standing.to_string(),
        source: it.source,
    };
    let summary = |it: Summary| JsonSummary {
        given: it.given,
        fitted: it.fitted,
        restated: it.restated,
        free_constants: it.free_constants,
        predicted: it.predicted,
        within_15_percent: it.met,
        missed: it.missed,
        predicted_median: it.median,
        predicted_worst: it.worst,
        worst_packets_per_million: it.worst_per_million,
    };
    let ids = page::ids(chapter);
    JsonChapter {
        design: key(chapter.design),
        title: chapter.title(),
        summary: chapter.design.map(|_| summary(chapter.summary())),
        exhibits: chapter.exhibits.iter().zip(ids).map(|(it, id)| exhibit(it, id)).collect(),
        constants: chapter.constants.iter().map(constant).collect(),
    }
}

fn exhibit(exhibit: &Exhibit, id: String) -> JsonExhibit<'_> {
    let mut values = Vec::new();
    for row in &exhibit.rows {
        for (column, value) in exhibit.columns.iter().zip(&row.values) {
            let Value { paper, least, model, standing, measure, held } = *value;
            let (kind, measure) = (standing.to_string(), measure.to_string());
            let (row, error) = (row.label.as_str(), value.error());
            values.push(JsonValue { row, column, paper, least, model, kind, error, measure, held });
        }
    }
    let notes = exhibit.notes().into_iter();
    let notes = notes.map(|note| JsonNote { row: note.about, text: note.text }).collect();
    JsonExhibit { id, name: exhibit.name, title: exhibit.title, values, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_firmware_model::reproduce::{Design, Row};

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let count = Value::predicted(2.0, 5.0).of_packets(1e5);
        let values = vec![Value::predicted(4.0, 5.0), Value::alone(f64::NAN), count];
        let exhibit = Exhibit {
            design: Design::Clan,
            name: "Table 0",
            title: "Nothing",
            columns: vec!["MB/s", "\"so\", µs", "lost"],
            rows: vec![Row::new("a, b", values)],
            remarks: Vec::new(),
        };
        let expected = "row,column,paper,model,kind,error,measure\r\n\
                        \"a, b\",MB/s,4,5,predicted,0.25,share\r\n\
                        \"a, b\",\"\"\"so\"\", µs\",,,predicted,,share\r\n\
                        \"a, b\",lost,2,5,predicted,30,packets per million\r\n";
        assert_eq!(csv(&exhibit), expected);
    }
}
