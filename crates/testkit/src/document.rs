//! Pages of `docs/` that tests hold to: the bytes that they show, and the tests that they
//! name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::root;

/// The text of a file, whose path is seen from the root of the repository.
///
/// # Panics
///
/// If there is no such file.
#[must_use]
pub fn page(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Bytes that a page shows: a block of text whose first line is `vector` and a name, and
/// whose other lines are hex digits. Words for people are behind a semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The words behind `vector`.
    pub name: String,
    /// What is shown.
    pub bytes: Vec<u8>,
}

/// Every vector of a page.
///
/// # Panics
///
/// If a line is something else than whole bytes in hex.
#[must_use]
pub fn vectors(page: &str) -> Vec<Vector> {
    let blocks = page.split("```").filter_map(|block| block.strip_prefix("text\nvector "));
    blocks
        .map(|block| {
            let (name, lines) = block.split_once('\n').expect("a vector has bytes");
            let bytes = lines.lines().flat_map(|line| bytes_of(name, line)).collect();
            Vector { name: name.trim().to_owned(), bytes }
        })
        .collect()
}

/// The bytes of one vector.
///
/// # Panics
///
/// If the page has no vector of this name.
#[must_use]
pub fn vector(page: &str, name: &str) -> Vec<u8> {
    let found = vectors(page).into_iter().find(|vector| vector.name == name);
    found.unwrap_or_else(|| panic!("the document has no vector {name:?}")).bytes
}

fn bytes_of(name: &str, line: &str) -> Vec<u8> {
    let hex = line.split(';').next().unwrap_or_default();
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    assert!(digits.len().is_multiple_of(2), "{name}: half a byte in {line:?}");
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// A row of a table whose last column is `test` or `tests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The row, as it is written.
    pub row: String,
    /// The tests that show what it says.
    pub tests: Vec<String>,
}

/// The rows of all tables of tests. A row whose last cell is empty is a heading.
#[must_use]
pub fn features(page: &str) -> Vec<Feature> {
    let mut in_table = false;
    let mut rows = Vec::new();
    for line in page.lines() {
        let last = line.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default().trim();
        let is_heading = last.is_empty() || line.starts_with("| **") || line.starts_with("| ---");
        if !line.starts_with('|') {
            in_table = false;
        } else if matches!(last, "test" | "tests") {
            in_table = true;
        } else if in_table && !is_heading {
            rows.push(Feature { row: line.to_owned(), tests: names_in(last) });
        }
    }
    rows
}

/// The last parts of the paths in backticks; what is no path of names is a file or a
/// sentence, and not a test.
#[must_use]
pub fn names_in(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter_map(|code| code.rsplit("::").next())
        .map(str::to_owned)
        .collect()
}

/// What is wrong with the tests of these features: a line for each feature that names none,
/// and for each name that no function has.
#[must_use]
pub fn unproven(features: &[Feature], functions: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for Feature { row, tests } in features {
        if tests.is_empty() {
            wrong.push(format!("no test shows it: {row}"));
        }
        let missing = tests.iter().filter(|test| !functions.contains(*test));
        wrong.extend(missing.map(|test| format!("there is no test `{test}`: {row}")));
    }
    wrong
}

/// The names of all functions in the Rust sources below a folder. Not of tests alone: a test
/// that runs over several fabrics has its attribute where it is run.
#[must_use]
pub fn functions_below(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder may vanish while it is read: a build beside us cleans up.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, is_folder) = (entry.path(), entry.file_type().is_ok_and(|t| t.is_dir()));
            if is_folder && entry.file_name() != "target" {
                folders.push(path);
            } else if !is_folder
                && path.extension().is_some_and(|extension| extension == "rs")
                && let Ok(source) = fs::read_to_string(path)
            {
                let after = source.split("fn ").skip(1);
                let found = after.filter_map(|rest| rest.split_once(['(', '<']));
                names.extend(found.map(|(name, _)| name.to_owned()));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
| a | b |
| --- | --- |
| 1 | 2 |

| feature | test |
| --- | --- |
| **Part** | |
| it runs | `it_runs`, `m::it_ends`, see `x.rs` |
| more | none |

```text
vector Data and more
00 01 ; the head
ff
```
";

    #[test]
    fn rows_of_tables_of_tests_are_found() {
        let found: Vec<_> = features(PAGE).into_iter().map(|feature| feature.tests).collect();
        assert_eq!(found, [vec!["it_runs".to_owned(), "it_ends".to_owned()], vec![]]);
    }

    #[test]
    fn features_without_tests_and_tests_that_do_not_exist_are_told() {
        let functions = BTreeSet::from(["it_runs".to_owned()]);
        let [missing, none] = &unproven(&features(PAGE), &functions)[..] else { panic!("two") };
        assert!(missing.starts_with("there is no test `it_ends`: | it runs |"), "{missing}");
        assert!(none.starts_with("no test shows it: | more |"), "{none}");
    }

    #[test]
    fn functions_are_found_by_their_names() {
        let functions = functions_below(&root().join("crates/testkit"));
        assert!(functions.contains("functions_are_found_by_their_names"));
        assert!(!functions.contains("no_such_function"));
    }

    #[test]
    fn vectors_are_read_without_words_for_people() {
        let bytes = vec![0x00, 0x01, 0xff];
        assert_eq!(vector(PAGE, "Data and more"), bytes);
        assert_eq!(vectors(PAGE), [Vector { name: "Data and more".to_owned(), bytes }]);
    }

    #[test]
    #[should_panic(expected = "half a byte in \"0\"")]
    fn half_a_byte_is_no_vector() {
        let _ = vectors("```text\nvector x\n0\n```");
    }
}
