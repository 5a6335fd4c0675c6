//! In `landfall` one loop decides who drives, spins, sleeps and wakes: that of the runtime.

use std::collections::BTreeSet;

use landfall_tidy::{File, Repository, code, expect_none};

const CRATE: &str = "crates/landfall/src/";
const RUNTIME: &str = "crates/landfall/src/runtime/";

/// What a loop of one's own cannot do without: a thread, sleep, a spin, or turns.
const DRIVING: [&str; 11] = [
    "thread::Builder",
    "thread::spawn(",
    "thread::scope(",
    "thread::sleep(",
    "thread::park",
    "until_ready(",
    "spin_loop(",
    "Waiter::",
    "Driver::turn(",
    ".turn()",
    ".relax()",
];

/// What does so elsewhere, and why.
const EXCEPTIONS: [(&str, &str, &str); 15] = [
    ("clan/fabric.rs", "spin_loop(", "what `relax` is where nothing has to be driven"),
    ("clan/layer/waiting.rs", ".relax()", "spins at a word in memory; each round is a turn"),
    ("clan/network/engines.rs", ".turn()", "`select` is one turn and one sleep of the runtime"),
    ("clan/network/engines.rs", ".relax()", "turns for a user who spins"),
    ("clan/network/driver.rs", ".turn()", "turns for a reactor of the user's own"),
    ("clan/network/node.rs", ".relax()", "turns for a user who spins"),
    ("clan/server/client.rs", ".relax()", "spins at a reply, as the paper's client"),
    ("clan/server/mod.rs", ".relax()", "polls before it selects, as the paper's server"),
    ("clan/shared/endpoints.rs", "until_ready(", "`select` of a queue, where nothing is driven"),
    ("clan/shared/directory.rs", "thread::sleep(", "waits for a lock file, and drives nothing"),
    ("clan/shared/names.rs", "thread::sleep(", "waits for a file in a folder, and drives nothing"),
    ("qpip/adapter.rs", ".turn()", "turns for a user who drives"),
    ("qpip/driver.rs", ".turn()", "turns for a reactor of the user's own"),
    ("stp/driver.rs", ".turn()", "turns for a reactor of the user's own"),
    ("verbs/stp/sends.rs", ".turn()", "requests that were begun together leave in one turn"),
];

#[test]
fn only_the_runtime_starts_threads_sleeps_spins_and_makes_turns() {
    let found: Vec<_> = driving()
        .into_iter()
        .filter(|(path, needle, _)| !is_excepted(path, needle))
        .map(|(path, _, line)| format!("{path}: {line}"))
        .collect();
    expect_none(
        "make it a Source or a Protocol, and let crates/landfall/src/runtime drive",
        &found,
    );
}

#[test]
fn every_exception_is_still_needed() {
    let there: BTreeSet<_> =
        driving().into_iter().map(|(path, needle, _)| (path, needle)).collect();
    let gone: Vec<_> = EXCEPTIONS
        .iter()
        .filter(|(path, needle, _)| !there.contains(&(format!("{CRATE}{path}"), *needle)))
        .map(|(path, needle, why)| format!("{path}, {needle}: {why}"))
        .collect();
    expect_none("take these out of the list", &gone);
}

/// Path, what was found, and the line.
fn driving() -> Vec<(String, &'static str, String)> {
    let files = Repository::here().files("rs").into_iter();
    let ours = files.filter(|file| {
        file.path.starts_with(CRATE)
            && !file.path.starts_with(RUNTIME)
            && !file.path.ends_with("/tests.rs")
    });
    ours.flat_map(|file| in_file(&file)).collect()
}

fn in_file(file: &File) -> Vec<(String, &'static str, String)> {
    code(&file.text)
        .flat_map(|line| {
            let found = DRIVING.iter().filter(|needle| line.contains(**needle));
            found.map(|needle| (file.path.clone(), *needle, line.trim().to_owned()))
        })
        .collect()
}

fn is_excepted(path: &str, needle: &str) -> bool {
    EXCEPTIONS
        .iter()
        .any(|(file, what, _)| path.strip_prefix(CRATE) == Some(file) && *what == needle)
}

#[test]
fn a_loop_of_its_own_is_found() {
    let text = "// thread::spawn(f)\nloop { until_ready(&fds, time)?; }\nmod tests {\nx.turn()\n}";
    let file = File { path: format!("{CRATE}new.rs"), text: text.to_owned() };
    let found: Vec<_> = in_file(&file).into_iter().map(|(_, needle, _)| needle).collect();
    assert_eq!(found, ["until_ready("]);
}
