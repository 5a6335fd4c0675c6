//! What `docs/spec/stp.md` says, read out of the document itself.

use std::ops::Range;

use landfall_testkit::document::{self, Vector};

/// A row of the table of operations: its number and name, and the cells from
/// "flags" on.
pub struct Operation {
    pub number: u8,
    pub name: String,
    pub cells: Vec<String>,
}

/// A field of the header: its name and where it lies.
pub struct Field {
    pub name: String,
    pub at: Range<usize>,
    pub bits: usize,
}

/// The whole page.
pub fn text() -> String {
    document::page("docs/spec/stp.md")
}

/// Every vector.
pub fn vectors() -> Vec<Vector> {
    document::vectors(&text())
}

/// The bytes of one vector.
pub fn vector(name: &str) -> Vec<u8> {
    document::vector(&text(), name)
}

/// The cells of the rows of the table whose header row begins with these.
fn table(header: &[&str]) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let text = text();
    let rows: Vec<_> = text
        .lines()
        .skip_while(|line| {
            let row = cells(line);
            row.len() < header.len() || row.iter().zip(header).any(|(cell, want)| cell != want)
        })
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect();
    assert!(!rows.is_empty(), "the document has no table {header:?}");
    rows
}

/// The fields of the header.
pub fn fields() -> Vec<Field> {
    let rows = table(&["bytes", "field", "bits", "what it holds"]).into_iter();
    rows.map(|row| {
        let (first, last) = row[0].split_once('–').unwrap_or((&row[0], &row[0]));
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let at = number(first)..number(last) + 1;
        Field { name: row[1].clone(), at, bits: number(&row[2]) }
    })
    .collect()
}

/// The operations, with the fields that each uses.
pub fn operations() -> Vec<Operation> {
    let rows = table(&["Op", "name", "flags", "Param"]).into_iter();
    rows.map(|row| Operation {
        number: row[0].parse().expect("a number"),
        name: row[1].clone(),
        cells: row[2..].to_vec(),
    })
    .collect()
}

/// Where proofs lie: the vectors of each row, and the bytes.
pub fn proofs() -> Vec<(Vec<String>, Range<usize>)> {
    let rows = table(&["proof in bytes", "of"]).into_iter();
    rows.map(|row| {
        let (first, last) = row[0].split_once('–').expect("a range");
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let names = row[1].split(',').map(|name| name.trim().to_owned()).collect();
        (names, number(first)..number(last) + 1)
    })
    .collect()
}

/// The flags: bit and name.
pub fn flags() -> Vec<(u8, String)> {
    let rows = table(&["bit", "name", "meaning"]).into_iter();
    rows.map(|row| {
        let bit = row[0].strip_prefix("0x").and_then(|hex| u8::from_str_radix(hex, 16).ok());
        (bit.expect("a bit"), row[1].clone())
    })
    .collect()
}

/// The reasons: number and words.
pub fn reasons() -> Vec<(u8, String)> {
    let rows = table(&["number", "reason"]).into_iter();
    rows.map(|row| (row[0].parse().expect("a number"), row[1].clone())).collect()
}
