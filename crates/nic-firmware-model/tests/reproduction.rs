//! The model against the papers, and the page that shows it.

use std::path::Path;
use std::sync::LazyLock;

use nic_firmware_model::reproduce::report::{Chapter, chapters, page};
use nic_firmware_model::reproduce::{Exhibit, Standing};

/// Simulated once for all tests.
static CHAPTERS: LazyLock<Vec<Chapter>> = LazyLock::new(chapters);

fn all() -> impl Iterator<Item = &'static Exhibit> {
    CHAPTERS.iter().flat_map(|Chapter { exhibits, .. }| exhibits)
}

/// What was fitted fits.
#[test]
fn calibrated_values_are_met() {
    for exhibit in all() {
        for (row, column, value) in exhibit.stated() {
            if value.standing != Standing::Predicted {
                let error = value.error().unwrap();
                assert!(
                    error.abs() <= 0.03,
                    "{}, {row}, {column}: {value:?} is off by {:.1} %",
                    exhibit.name,
                    error * 100.0
                );
            }
        }
    }
}

/// Where a prediction is off, the page says why.
#[test]
fn whatever_is_off_is_explained() {
    for exhibit in all() {
        for row in &exhibit.rows {
            let off = row.values.iter().any(|value| {
                value.error().is_some_and(|error| error.abs() > 0.15)
                    && value.standing == Standing::Predicted
            });
            assert!(
                !off || row.why.is_some(),
                "{}, {}: {:?}, and no word about it",
                exhibit.name,
                row.label,
                row.values
            );
        }
    }
}

/// Every row has a value in every column.
#[test]
fn exhibits_are_tables() {
    for exhibit in all() {
        for row in &exhibit.rows {
            assert_eq!(row.values.len(), exhibit.columns.len(), "{}, {}", exhibit.name, row.label);
            let all_finite = row.values.iter().all(|value| value.model.is_finite());
            assert!(all_finite, "{}, {}: {:?}", exhibit.name, row.label, row.values);
        }
    }
}

/// `docs/reproduction.md` is what the model says now.
#[test]
fn the_page_is_what_the_model_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduction.md");
    let now = page(&CHAPTERS);
    if std::env::var_os("UPDATE_REPRODUCTION").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(now.lines()).position(|(old, new)| old != new);
    assert!(
        written == now,
        "{} is stale, from line {} on: run this test with UPDATE_REPRODUCTION=1",
        path.display(),
        differs.unwrap_or_else(|| written.lines().count().min(now.lines().count())) + 1
    );
}
