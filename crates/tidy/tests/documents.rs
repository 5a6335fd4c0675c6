//! Rules for documents: what they point at is there.

use std::collections::BTreeSet;

use landfall_tidy::{Repository, expect_none};

/// The invariants are numbered 1 to 8; see the table in `ARCHITECTURE.md`.
const INVARIANTS: u32 = 8;

#[test]
fn each_invariant_names_its_tests_and_they_exist() {
    let architecture =
        Repository::here().read("ARCHITECTURE.md").expect("there is an ARCHITECTURE.md");
    let tests = names_of_tests();
    let rows = invariants(&architecture);
    let mut wrong = Vec::new();
    for number in 1..=INVARIANTS {
        let named: Vec<_> = rows
            .iter()
            .filter(|row| row.number == number)
            .flat_map(|row| row.tests.iter())
            .collect();
        if named.is_empty() {
            wrong.push(format!("invariant {number} names no test in the last column of its row"));
        }
        wrong.extend(
            named
                .into_iter()
                .filter(|name| !tests.contains(name))
                .map(|name| format!("invariant {number}: there is no test `{name}`")),
        );
    }
    expect_none("the table of invariants in ARCHITECTURE.md", &wrong);
}

/// Of each page about a protocol or a machine: a table whose last column is `test` says
/// which ones show what it says.
#[test]
fn each_feature_names_its_tests_and_they_exist() {
    let functions = names_of_functions();
    let mut wrong = Vec::new();
    let pages = Repository::here().files("md");
    for page in pages.iter().filter(|page| page.path.starts_with("docs/spec/")) {
        let rows = rows_with_tests(&page.text);
        if rows.is_empty() {
            wrong.push(format!("{} has no table of features with their tests", page.path));
        }
        for (row, cell) in rows {
            let named = quoted(cell);
            if named.is_empty() {
                wrong.push(format!("{}: no test shows it: {row}", page.path));
            }
            let missing = named.iter().filter(|name| !functions.contains(*name));
            wrong.extend(missing.map(|name| format!("{}: there is no test `{name}`", page.path)));
        }
    }
    expect_none("the tables of features in docs/spec", &wrong);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let repository = Repository::here();
    let dead: Vec<_> = repository
        .files("md")
        .iter()
        .flat_map(|file| {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            links(&file.text)
                .into_iter()
                .filter(|target| !repository.root().join(folder).join(target).exists())
                .map(|target| format!("{} links to {target}", file.path))
                .collect::<Vec<_>>()
        })
        .collect();
    expect_none("dead links", &dead);
}

/// A row `| 3 | what holds | `test_name`, `module::other_test` |`.
struct Invariant {
    number: u32,
    tests: Vec<String>,
}

fn invariants(document: &str) -> Vec<Invariant> {
    document
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> =
                line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
            let (first, last) = (cells.first()?, cells.last()?);
            let number = first.trim().trim_matches('*').trim_end_matches('.').parse().ok()?;
            Some(Invariant { number, tests: quoted(last) })
        })
        .collect()
}

/// The rows of tables of tests, with their last cells. A row without one is a heading.
fn rows_with_tests(page: &str) -> Vec<(&str, &str)> {
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
            rows.push((line, last));
        }
    }
    rows
}

/// The last parts of the paths in backticks; what is no path of names is a file or
/// a sentence, and not a test.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .filter_map(|code| code.rsplit("::").next())
        .map(str::to_owned)
        .collect()
}

/// The names of all functions with an attribute `#[test]`.
fn names_of_tests() -> Vec<String> {
    let mut names = Vec::new();
    for file in Repository::here().files("rs") {
        let mut after_attribute = false;
        for line in file.text.lines().map(str::trim) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                after_attribute = true;
            } else if let Some((before, rest)) = line.split_once("fn ")
                && before.chars().all(|c| c.is_ascii_lowercase() || c == ' ')
            {
                if after_attribute && let Some((name, _)) = rest.split_once(['(', '<']) {
                    names.push(name.to_owned());
                }
                after_attribute = false;
            }
        }
    }
    names
}

/// The names of all functions: a test that runs over several fabrics has its attribute
/// where it is run.
fn names_of_functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in Repository::here().files("rs") {
        let after = file.text.split("fn ").skip(1);
        names.extend(
            after.filter_map(|rest| rest.split_once(['(', '<'])).map(|(n, _)| n.to_owned()),
        );
    }
    names
}

/// The targets of links to files: no addresses, no places within a page, and no
/// examples in code blocks.
fn links(document: &str) -> Vec<String> {
    let mut in_code = false;
    let mut targets = Vec::new();
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') {
                targets.push(target.to_owned());
            }
        }
    }
    targets
}

#[test]
fn the_table_is_read_as_it_is_written() {
    let rows = invariants(
        "| # | rule | test |\n|---|---|---|\n| 1 | `guess` | `a_test`, `m::b_test`, see `x.rs` |\n",
    );
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].number, rows[0].tests.as_slice()),
        (1, &["a_test".to_owned(), "b_test".to_owned()][..])
    );
}

#[test]
fn rows_of_tables_of_tests_are_found() {
    let page = "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n| feature | test |\n| --- | --- |\n\
                | **Part** | |\n| it runs | `it_runs`, `m::it_ends` |\n| more | none |\n";
    let found: Vec<_> = rows_with_tests(page).iter().map(|(_, cell)| quoted(cell)).collect();
    assert_eq!(found, [vec!["it_runs".to_owned(), "it_ends".to_owned()], vec![]]);
}

#[test]
fn links_are_found_outside_of_code() {
    let text =
        "see [a](docs/a.md#part), [b](https://example.org), [c](#here)\n```\n[d](no.md)\n```\n";
    assert_eq!(links(text), ["docs/a.md"]);
}

#[test]
fn this_test_is_found() {
    assert!(names_of_tests().contains(&"this_test_is_found".to_owned()));
    assert!(!names_of_tests().contains(&"names_of_tests".to_owned()));
}
