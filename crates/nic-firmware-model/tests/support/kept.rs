//! Runs that are kept in the repository: what crossed the link, and what was there in
//! the end. `cargo test -p nic-firmware-model --test '*_golden'` shows what differs, and
//! where.
#![allow(dead_code, reason = "each test uses a part of it")]

#[path = "capture.rs"]
mod capture;

use std::path::PathBuf;

#[allow(unused_imports, reason = "each test uses a part of it")]
pub(crate) use capture::{blocks, differences};

/// Both parts of a run are what is kept under these names. `UPDATE_GOLDEN=1` writes
/// them anew.
pub(crate) fn expect(trace: &str, capture: &[u8], end: &str, lines: &str) {
    let (trace_path, end_path) = (path(trace), path(end));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&trace_path, capture).expect("the folder is there");
        std::fs::write(&end_path, lines).expect("the folder is there");
    }
    let was = std::fs::read(trace_path).expect("UPDATE_GOLDEN=1 writes it");
    let mut found = differences(trace, capture, &was);
    let known = std::fs::read_to_string(end_path).expect("UPDATE_GOLDEN=1 writes it");
    found.extend(lines_that_differ(end, lines, &known));
    tell(&found);
}

/// Two captures must be the same.
pub(crate) fn compare(name: &str, is: &[u8], was: &[u8]) {
    tell(&differences(name, is, was));
}

/// FNV-1a, of 64 bits: it need not withstand anybody.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn tell(found: &[String]) {
    const FIRST: usize = 20;
    assert!(
        found.is_empty(),
        "{} differences; the first of them:\n  {}\nWhere this is meant: UPDATE_GOLDEN=1 writes \
         anew what is kept.",
        found.len(),
        found[..found.len().min(FIRST)].join("\n  ")
    );
}

fn lines_that_differ(name: &str, is: &str, was: &str) -> Vec<String> {
    let (mut is, mut was) = (is.lines(), was.lines());
    let mut found = Vec::new();
    for nth in 1.. {
        match (is.next(), was.next()) {
            (None, None) => break,
            (is, was) if is == was => {}
            (is, was) => {
                let text = |line: Option<&str>| line.unwrap_or("(no such line)").to_owned();
                found.push(format!("{name}, line {nth}: {}\n    was {}", text(is), text(was)));
            }
        }
    }
    found
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}
