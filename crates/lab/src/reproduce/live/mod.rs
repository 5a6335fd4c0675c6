//! What this machine measures for the exhibits of the papers: `--live`.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | all papers in turn, each value beside the paper's and the model's |
//! | `qpip` | QPIP's figures, by the paths of `perf`; the values in Markdown, HTML and CSV |
//!
//! What does not live here: how STP, speculative defragmentation and CLAN are measured;
//! that is `paper stp`, `paper defrag` and `paper clan`, at a smaller scale.

mod qpip;

use std::time::Duration;

use nic_firmware_model::reproduce::report::Chapter;
use nic_firmware_model::reproduce::{Design, Exhibit};
use serde::Serialize;

use super::page;
use crate::machine::Machine;
use crate::papers::{clan, defrag, stp};
use crate::style::Progress;

pub(super) use qpip::{csv, html, introduction, markdown};

/// A value that was measured, and where it belongs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    exhibit: &'static str,
    row: String,
    column: &'static str,
    value: f64,
    by: String,
}

impl Found {
    /// A value for the exhibit of this name; `by` says what was measured.
    pub(crate) fn new(
        exhibit: &'static str,
        row: impl Into<String>,
        column: &'static str,
        value: f64,
        by: impl Into<String>,
    ) -> Self {
        Self { exhibit, row: row.into(), column, value, by: by.into() }
    }
}

/// All that was measured for the papers that were asked for.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    pub(super) machine: Machine,
    /// Of values that were measured for a moment only: they say nothing.
    pub(super) quick: bool,
    pub(super) exhibits: Vec<LiveExhibit>,
    /// What could not be measured, and why.
    pub(super) absent: Vec<Absent>,
}

/// What was measured for one exhibit.
#[derive(Debug, Serialize)]
pub(super) struct LiveExhibit {
    /// That of the exhibit it belongs to.
    pub(super) id: String,
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) values: Vec<LiveValue>,
}

/// A value beside the paper's and the model's.
#[derive(Debug, Serialize)]
pub(super) struct LiveValue {
    pub(super) row: String,
    pub(super) column: &'static str,
    /// What the paper states; none where it states nothing.
    pub(super) paper: Option<f64>,
    /// What the model of the paper's adapter says; none where it says nothing.
    pub(super) model: Option<f64>,
    /// What this machine does.
    pub(super) live: f64,
    /// By what.
    pub(super) by: String,
}

/// What could not be measured.
#[derive(Debug, Serialize)]
pub(super) struct Absent {
    /// What the command line calls the paper.
    pub(super) design: &'static str,
    pub(super) reason: String,
}

type Measured = anyhow::Result<(Vec<Found>, Vec<String>)>;

/// Measures in a minute or two. What goes wrong is absent; the rest is not.
pub(super) fn measure(chapters: &[Chapter], quick: bool, progress: &Progress) -> Live {
    let (mut exhibits, mut absent) = (Vec::new(), Vec::new());
    for chapter in chapters {
        let Some(design) = chapter.design else { continue };
        let key = page::key(chapter.design);
        progress.say(&format!("measuring: {key}"));
        let (found, lacks) = match of(design, quick, progress) {
            Ok(measured) => measured,
            Err(error) => (Vec::new(), vec![format!("it went wrong: {error:#}")]),
        };
        exhibits.extend(beside(chapter, &found));
        absent.extend(lacks.into_iter().map(|reason| Absent { design: key, reason }));
    }
    Live { machine: Machine::read(), quick, exhibits, absent }
}

fn of(design: Design, quick: bool, progress: &Progress) -> Measured {
    match design {
        Design::Stp => stp(quick, progress),
        Design::Qpip => qpip::found(quick, progress),
        Design::Defrag => defrag::found(quick),
        Design::Clan => clan::found(quick, progress),
    }
}

fn stp(quick: bool, progress: &Progress) -> Measured {
    let brief = stp::Scale { rounds: 3, time: Duration::from_millis(200) };
    let scale = if quick { stp::Scale::QUICK } else { brief };
    let report = stp::measure(scale, false, progress)?;
    let mut found = Vec::new();
    for (table, lines) in [("Table 1", &report.table_1), ("Table 2", &report.table_2)] {
        for line in lines {
            let row = format!("{}, {}", line.test, line.packet_bytes);
            for ours in &line.ours {
                let frames = if ours.offload { "super-packets" } else { "each frame crosses" };
                let by = format!("{}, {}, {frames}", ours.transport, report.link);
                let columns = [
                    ("MB/s (2^20)", Some(ours.megabytes_per_s)),
                    ("receiver, %", ours.cpu_core_percent_receive),
                    ("sender, %", ours.cpu_core_percent_send),
                ];
                for (column, value) in columns {
                    let Some(value) = value else { continue };
                    found.push(Found::new(table, row.clone(), column, value, by.clone()));
                }
            }
        }
    }
    let mut lacks: Vec<String> = report.absent.iter().map(|absent| absent.line()).collect();
    if report.link == "loopback" {
        lacks.push(
            "frames on a cable, as in the paper: it needs root; over loopback segments and STUs \
             are as long as links of the MTU would carry"
                .into(),
        );
    }
    Ok((found, lacks))
}

/// What was found, at the exhibits that it belongs to.
fn beside(chapter: &Chapter, found: &[Found]) -> Vec<LiveExhibit> {
    let ids = page::ids(chapter);
    let exhibits = chapter.exhibits.iter().zip(ids).map(|(exhibit, id)| {
        let of_it = found.iter().filter(|found| found.exhibit == exhibit.name);
        let values = of_it.map(|found| value(exhibit, found)).collect();
        LiveExhibit { id, name: exhibit.name, title: exhibit.title, values }
    });
    exhibits.filter(|exhibit| !exhibit.values.is_empty()).collect()
}

fn value(exhibit: &Exhibit, found: &Found) -> LiveValue {
    let at = exhibit.columns.iter().position(|column| *column == found.column);
    let row = exhibit.rows.iter().find(|row| row.label == found.row);
    let known = row.zip(at).and_then(|(row, at)| row.values.get(at));
    LiveValue {
        row: found.row.clone(),
        column: found.column,
        paper: known.and_then(|value| value.paper),
        model: known.map(|value| value.model).filter(|model| model.is_finite()),
        live: found.value,
        by: found.by.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_firmware_model::reproduce::{Row, Value};

    #[test]
    fn a_value_stands_beside_those_of_its_row_and_column() {
        let exhibit = Exhibit {
            design: Design::Stp,
            name: "Table 1",
            title: "A table",
            columns: vec!["MB/s", "%"],
            rows: vec![Row::new("TCP", vec![Value::predicted(75.0, 74.0), Value::alone(3.0)])],
            remarks: Vec::new(),
        };
        let chapter = Chapter {
            design: Some(Design::Stp),
            exhibits: vec![exhibit],
            constants: Vec::new(),
            effects: Vec::new(),
        };
        let found = [
            Found::new("Table 1", "TCP", "MB/s", 3000.0, "kernel"),
            Found::new("Table 1", "TCP", "%", 50.0, "kernel"),
            Found::new("Table 1", "pigeons", "MB/s", 1.0, "birds"),
            Found::new("Table 9", "TCP", "MB/s", 1.0, "nobody"),
        ];
        let exhibits = beside(&chapter, &found);
        assert_eq!(exhibits.len(), 1);
        let stated = exhibits[0].values.iter().map(|value| (value.paper, value.model, value.live));
        let expected =
            [(Some(75.0), Some(74.0), 3000.0), (None, Some(3.0), 50.0), (None, None, 1.0)];
        assert_eq!(stated.collect::<Vec<_>>(), expected);
    }
}
