//! Rules for documents: what they point at is there.

use landfall_testkit::document::{features, functions_below, names_in, unproven};
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
    let repository = Repository::here();
    let functions = functions_below(repository.root());
    let mut wrong = Vec::new();
    let pages = repository.files("md");
    for page in pages.iter().filter(|page| page.path.starts_with("docs/spec/")) {
        let features = features(&page.text);
        if features.is_empty() {
            wrong.push(format!("{} has no table of features with their tests", page.path));
        }
        let missing = unproven(&features, &functions).into_iter();
        wrong.extend(missing.map(|what| format!("{}: {what}", page.path)));
    }
    expect_none("the tables of features in docs/spec", &wrong);
}

/// A page that the site's contents do not name is not on the site.
#[test]
fn every_page_is_in_the_contents_of_the_site() {
    let repository = Repository::here();
    let contents = repository.read("docs/SUMMARY.md").expect("there is a docs/SUMMARY.md");
    let missing: Vec<_> = repository
        .files("md")
        .iter()
        .filter_map(|page| page.path.strip_prefix("docs/"))
        .filter(|page| *page != "SUMMARY.md" && !contents.contains(&format!("]({page})")))
        .map(str::to_owned)
        .collect();
    expect_none("the contents of the site, docs/SUMMARY.md, lack", &missing);
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

/// A newcomer's questions are answered by files, and by what to look for in them.
#[test]
fn each_question_is_answered_by_what_is_there() {
    let repository = Repository::here();
    let architecture = repository.read("ARCHITECTURE.md").expect("there is an ARCHITECTURE.md");
    let answers = answers(&architecture);
    assert!(answers.len() >= 10, "the table of questions was not found: {answers:?}");
    let mut wrong = Vec::new();
    for (question, steps) in &answers {
        if steps.len() > MOST_STEPS {
            wrong.push(format!("{question} takes {} steps", steps.len()));
        }
        for Step { file, item } in steps {
            let text = repository.read(file).unwrap_or_default();
            if !declares(&text, item) {
                wrong.push(format!("{question} there is no `{item}` in {file}"));
            }
        }
    }
    expect_none("questions in ARCHITECTURE.md, under `Where to look`", &wrong);
}

/// No answer leads through more files.
const MOST_STEPS: usize = 3;

/// A step of an answer: [`file`](path) → `item`.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    file: String,
    item: String,
}

/// The questions of a document, with the steps of their answers.
fn answers(document: &str) -> Vec<(String, Vec<Step>)> {
    let lines = document.lines().skip_while(|line| *line != "## Where to look").skip(1);
    lines
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(question, _)| question.ends_with('?'))
        .map(|(question, answer)| (question.to_owned(), steps(answer)))
        .collect()
}

fn steps(answer: &str) -> Vec<Step> {
    let step = |(at, _): (usize, &str)| {
        let (_, file) = answer[..at].rsplit_once("](")?;
        let (item, _) = answer[at + ") → `".len()..].split_once('`')?;
        Some(Step { file: file.to_owned(), item: item.to_owned() })
    };
    answer.match_indices(") → `").filter_map(step).collect()
}

/// Is there a function, a type or a trait with this name?
fn declares(text: &str, item: &str) -> bool {
    ["fn ", "struct ", "enum ", "trait "].iter().any(|kind| {
        let declaration = format!("{kind}{item}");
        text.match_indices(&declaration).any(|(at, _)| {
            let next = text[at + declaration.len()..].chars().next();
            next.is_some_and(|next| !next.is_alphanumeric() && next != '_')
        })
    })
}

#[test]
fn the_steps_of_an_answer_are_read_as_they_are_written() {
    let text = "## Where to look\n| question | where |\n| --- | --- |\n\
        | Where? | [`a`](x/a.rs) → `find`, then `b`; [`c`](x/c.rs) → `Thing` |\n## Else\n";
    let step = |file: &str, item: &str| Step { file: file.to_owned(), item: item.to_owned() };
    let expected = vec![step("x/a.rs", "find"), step("x/c.rs", "Thing")];
    assert_eq!(answers(text), [("Where?".to_owned(), expected)]);
    assert!(declares("pub fn find(x: u8) {", "find") && declares("struct Thing<T>", "Thing"));
    assert!(!declares("fn finder() {", "find") && !declares("find()", "find"));
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
            Some(Invariant { number, tests: names_in(last) })
        })
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
