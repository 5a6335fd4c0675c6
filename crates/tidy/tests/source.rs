//! Rules for source files that no compiler checks.

use std::collections::BTreeSet;

use landfall_tidy::{File, Repository, expect_none};

/// A longer file is asking to be two.
const MOST_LINES: usize = 600;

/// The crates whose business is with the kernel and with shared memory, and the
/// allocators of tests that count and of firmware that must not allocate, and its
/// entry: there is no safe way to write one.
const MAY_BE_UNSAFE: [&str; 5] = [
    "crates/transport/",
    "crates/testbed/",
    // It stands between C programs and C's library.
    "crates/sockets-compat/preload/",
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

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
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
