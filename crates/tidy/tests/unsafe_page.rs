//! The page that says who keeps the promises of `unsafe` code names all of it.

use std::collections::BTreeMap;

use landfall_tidy::{Repository, expect_none};

const PAGE: &str = "crates/transport/SAFETY.md";
/// The crates that it is about.
const FOLDERS: [&str; 2] = ["crates/transport/src/", "crates/testbed/src/"];
/// What is looked for, and what follows it where it counts.
const WORD: &str = "unsafe";
const FOLLOWED_BY: [&str; 4] = ["{", "fn", "impl", "trait"];

#[test]
fn the_page_of_unsafe_code_names_every_file_and_its_number_of_lines() {
    let there = lines_to_promise_for();
    assert!(there.len() > 50, "only {} files have unsafe code", there.len());
    let named = named();
    let mut wrong = Vec::new();
    for (path, lines) in &there {
        match named.get(path) {
            None => wrong.push(format!("{path}: not on the page, {lines} lines")),
            Some(said) if said != lines => {
                wrong.push(format!("{path}: {lines} lines, and the page says {said}"));
            }
            Some(_) => {}
        }
    }
    let gone = named.keys().filter(|path| !there.contains_key(*path));
    wrong.extend(gone.map(|path| format!("{path}: on the page, and has none")));
    expect_none(&format!("say in {PAGE} what is promised and by whom"), &wrong);
}

/// How many lines of code have `unsafe` in them, by file.
fn lines_to_promise_for() -> BTreeMap<String, usize> {
    let files = Repository::here().files("rs").into_iter();
    let ours = files.filter(|file| FOLDERS.iter().any(|folder| file.path.starts_with(folder)));
    let counted =
        ours.map(|file| (file.path, file.text.lines().filter(asks_for_a_promise).count()));
    counted.filter(|(_, lines)| *lines > 0).collect()
}

fn asks_for_a_promise(line: &&str) -> bool {
    let counts = |after: &str| FOLLOWED_BY.iter().any(|code| after.trim_start().starts_with(code));
    !line.trim_start().starts_with("//") && line.split(WORD).skip(1).any(counts)
}

/// What the tables of the page say: a link to the file, and a number.
fn named() -> BTreeMap<String, usize> {
    let page = Repository::here().read(PAGE).unwrap_or_default();
    page.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<(String, usize)> {
    let (file, rest) = line.strip_prefix("| [`")?.split_once("`](")?;
    let (link, rest) = rest.split_once(") | ")?;
    let (lines, _) = rest.split_once(" |")?;
    let path = match link.strip_prefix("../") {
        Some(beside) => format!("crates/{beside}"),
        None => format!("crates/transport/{link}"),
    };
    assert!(link.ends_with(file.trim_start_matches("testbed/")), "{file} is not {link}");
    Some((path, lines.parse().ok()?))
}

#[test]
fn a_row_names_a_file_and_a_number() {
    let ours = "| [`wait.rs`](src/wait.rs) | 12 | a promise | its keeper |";
    assert_eq!(row(ours), Some(("crates/transport/src/wait.rs".to_owned(), 12)));
    let beside = "| [`testbed/sys.rs`](../testbed/src/sys.rs) | 3 | a promise | its keeper |";
    assert_eq!(row(beside), Some(("crates/testbed/src/sys.rs".to_owned(), 3)));
    assert_eq!(row("| file | lines | obligation | kept by |"), None);
    for (line, counts) in [("let x = W { f() };", true), ("// W { }", false), ("W_fn()", false)] {
        assert_eq!(asks_for_a_promise(&&*line.replace('W', WORD)), counts, "{line}");
    }
}
