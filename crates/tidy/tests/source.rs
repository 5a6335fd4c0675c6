//! Rules for source files that no compiler checks; and that the page that says who keeps the
//! promises of `unsafe` code names all of it.

use std::collections::{BTreeMap, BTreeSet};

use landfall_tidy::{File, Repository, code, expect_none, is_test};

/// A longer file is asking to be two.
const MOST_LINES: usize = 600;

const TOOL: &str = "crates/landfall-cli/src/";
/// Without tests, comments and blank lines.
const MOST_OF_THE_TOOL: usize = 10_000;

/// The crates whose business is with the kernel and with shared memory, and the
/// allocators of tests that count and of firmware that must not allocate, and its
/// entry: there is no safe way to write one.
const MAY_BE_UNSAFE: [&str; 7] = [
    "crates/transport/",
    "crates/testbed/",
    // It stands between C programs and C's library.
    "crates/sockets-compat/preload/",
    // What C programs call.
    "crates/capi/",
    "crates/libfabric-provider/",
    "benches/tests/counting/",
    "firmware/",
];

/// This file spells out what it looks for.
const THIS_FILE: &str = "crates/tidy/tests/source.rs";

#[test]
fn source_files_are_short() {
    let long: Vec<_> = sources()
        .iter()
        .filter(|file| !is_test(&file.path) && file.text.lines().count() > MOST_LINES)
        .map(|file| format!("{}: {} lines", file.path, file.text.lines().count()))
        .collect();
    expect_none("split these by who owns the state", &long);
}

/// The tool only calls what the libraries can do. What measures is the laboratory's.
#[test]
fn the_tool_is_small() {
    let sources = sources();
    let tests: BTreeSet<String> = sources.iter().flat_map(test_modules).collect();
    let lines: usize = sources
        .iter()
        .filter(|file| file.path.starts_with(TOOL) && !is_test(&file.path))
        .filter(|file| !tests.contains(&file.path))
        .map(|file| code(&file.text).filter(|line| !matches!(line.trim(), "" | FOR_TESTS)).count())
        .sum();
    assert!(lines > 1_000, "only {lines} lines were found below {TOOL}");
    assert!(lines < MOST_OF_THE_TOOL, "{TOOL} has {lines} lines of code: move some to a library");
}

const FOR_TESTS: &str = "#[cfg(test)]";

/// The files of modules that are declared for tests alone, or for tests and fuzzing.
fn test_modules(file: &File) -> Vec<String> {
    let Some((folder, "mod.rs" | "main.rs" | "lib.rs")) = file.path.rsplit_once('/') else {
        return Vec::new();
    };
    let declared = file.text.lines().zip(file.text.lines().skip(1)).filter_map(|(above, line)| {
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        let is_for_tests = matches!(above.trim(), FOR_TESTS | "#[cfg(any(test, fuzzing))]");
        is_for_tests.then(|| format!("{folder}/{name}.rs"))
    });
    declared.collect()
}

/// Two ways to declare a module with parts are two places to look for it.
#[test]
fn a_module_with_parts_is_a_mod_rs() {
    let sources = sources();
    let folders: BTreeSet<&str> = sources.iter().flat_map(|file| folders_of(&file.path)).collect();
    let beside: Vec<_> = sources
        .iter()
        .filter_map(|file| {
            let folder = file.path.strip_suffix(".rs")?;
            folders.contains(folder).then(|| format!("{} to {folder}/mod.rs", file.path))
        })
        .collect();
    expect_none("move these into their folders", &beside);
}

/// The folders that a file is in, from the innermost to the outermost.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at])
}

#[test]
fn unsafe_code_stays_where_it_belongs() {
    let code = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait", "unsafe("];
    let found =
        find(&code, |file| !MAY_BE_UNSAFE.iter().any(|allowed| file.path.starts_with(allowed)));
    expect_none("unsafe code belongs into crates/transport", &found);
}

#[test]
fn other_crates_forbid_unsafe_code() {
    let open: Vec<_> = sources()
        .iter()
        .filter(|file| file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs"))
        .filter(|file| !MAY_BE_UNSAFE.iter().any(|allowed| file.path.starts_with(allowed)))
        .filter(|file| !file.text.contains("#![forbid(unsafe_code)]"))
        .map(|file| file.path.clone())
        .collect();
    expect_none("these need #![forbid(unsafe_code)]", &open);
}

#[test]
fn nothing_is_left_for_later() {
    let leftovers = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore", "FIXME", "TODO", "XXX"];
    expect_none("finish these", &find(&leftovers, |_| true));
}

#[test]
fn no_file_names_somebodys_machine() {
    let places = ["/home/", "/root/", "/Users/", "/work/", "/tmp/"];
    let found: Vec<_> = Repository::here()
        .files("")
        .iter()
        .filter(|file| file.path != THIS_FILE && file.path != "Cargo.lock")
        .flat_map(|file| {
            lines_with(file, |line| places.iter().any(|place| names_place(line, place)))
        })
        .collect();
    expect_none("use a relative path, or std::env::temp_dir()", &found);
}

/// Whether `place` starts a path in this line, rather than continuing a longer one
/// (`docs/work/` or `https://host/work/` are nobody's machine).
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || "-_.)}".contains(before))
    })
}

#[test]
fn a_place_is_told_from_a_part_of_a_path() {
    assert!(names_place("cd /home/ann/src", "/home/"));
    assert!(names_place("open(\"/tmp/x\")", "/tmp/"));
    assert!(!names_place("https://example.org/home/", "/home/"));
    assert!(!names_place("docs/work/plan.md", "/work/"));
}

fn sources() -> Vec<File> {
    Repository::here().files("rs")
}

/// The lines of code (not of comments) with one of `needles`.
fn find(needles: &[&str], applies_to: impl Fn(&File) -> bool) -> Vec<String> {
    sources()
        .iter()
        .filter(|file| file.path != THIS_FILE && applies_to(file))
        .flat_map(|file| {
            lines_with(file, |line| {
                let is_comment = line.trim_start().starts_with("//");
                needles.iter().any(|needle| {
                    let word = needle.chars().all(char::is_uppercase);
                    line.contains(needle) && (word || !is_comment)
                })
            })
        })
        .collect()
}

fn lines_with(file: &File, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    file.text
        .lines()
        .enumerate()
        .filter(|(_, line)| is_wanted(line))
        .map(|(number, line)| format!("{}:{}: {}", file.path, number + 1, line.trim()))
        .collect()
}

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
