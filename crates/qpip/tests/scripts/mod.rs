//! TCP by scripts: packets with times in, packets with times out, by section of each RFC.
//!
//! | file | what it has |
//! | --- | --- |
//! | `text` | the form of a script |
//! | `peer` | makes what comes, and looks at what leaves |
//! | `adapter` | plays one to an adapter, in virtual time |
//! | `kernel` | plays one to a kernel, in real time |
//! | `*.txt` | the scripts: a file for each RFC, or for each side of a connection |
//!
//! `LANDFALL_SCRIPT=word` plays those only whose name has the word.

mod adapter;
mod kernel;
mod peer;
mod text;

use text::{Script, Subject};

/// Longer than this no script of a kernel takes.
const LONGEST: f64 = 12.0;

/// The files with scripts.
const FILES: [&str; 24] = [
    "immediate.txt",
    "rfc9293.txt",
    "states.txt",
    "malformed.txt",
    "urgent.txt",
    "sender.txt",
    "receiver.txt",
    "rfc1122.txt",
    "rfc2018.txt",
    "rfc3168.txt",
    "rfc3708.txt",
    "rfc5681.txt",
    "rfc5682.txt",
    "rfc5961.txt",
    "rfc6298.txt",
    "rfc6928.txt",
    "rfc7323.txt",
    "rfc7413.txt",
    "rfc8257.txt",
    "rfc8985.txt",
    "rfc9768.txt",
    "options.txt",
    "pacing.txt",
    "window.txt",
];

/// The scripts of a file that are asked for.
fn scripts_of(file: &str) -> Vec<Script> {
    // Read, not included: a script is changed without compiling anything.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts = text::read(file, &std::fs::read_to_string(folder.join(file)).unwrap());
    assert!(!scripts.is_empty(), "{file} has no scripts");
    if let Ok(only) = std::env::var("LANDFALL_SCRIPT") {
        scripts.retain(|script| script.name.contains(&only));
    }
    scripts
}

/// Fails where one did not pass, and says which.
fn report(failures: &[(Script, String)], all: usize) {
    let failed = failures.iter().map(|(script, why)| {
        format!("{}:{}: [{}]\n    {why}", script.file, script.line, script.name)
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{} of {all} scripts:\n{}", failed.len(), failed.join("\n"));
}

/// Plays all scripts of some files to the adapter.
fn play(files: &[&str]) {
    let scripts: Vec<Script> = files.iter().flat_map(|file| scripts_of(file)).collect();
    let mut failures = Vec::new();
    for script in &scripts {
        for predicts in [true, false] {
            let play = || adapter::Player::new(script, predicts).play(script);
            let why = match std::panic::catch_unwind(play) {
                Ok(Ok(())) => continue,
                Ok(Err(why)) => why,
                Err(_) => "it panicked".into(),
            };
            let why = if predicts { why } else { format!("without prediction: {why}") };
            failures.push((script.clone(), why));
        }
    }
    report(&failures, scripts.len());
}

/// The kernel agrees, or does what the script says that it does.
#[test]
fn the_kernel_plays_the_scripts_too() {
    landfall_testbed::skip_unless!(kernel::why_not());
    let mut scripts: Vec<Script> = FILES.iter().flat_map(|file| scripts_of(file)).collect();
    scripts.retain(|script| script.engine_only.is_none());
    for script in &scripts {
        let seconds = script.seconds(Subject::Kernel);
        assert!(seconds <= LONGEST, "[{}] takes {seconds} s of a kernel", script.name);
    }
    let all = scripts.len();
    report(&kernel::play(scripts), all);
}

#[test]
fn every_file_with_scripts_is_played() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".txt")).collect();
    let mut files = FILES.to_vec();
    names.sort();
    files.sort_unstable();
    assert_eq!(names, files);
}

#[test]
fn scripts_of_rfc_9293() {
    play(&["rfc9293.txt", "states.txt"]);
}

#[test]
fn scripts_of_malformed_headers_and_options() {
    play(&["malformed.txt"]);
}

#[test]
fn scripts_of_immediate_data() {
    play(&["immediate.txt"]);
}

#[test]
fn scripts_of_rfc_9768() {
    play(&["rfc9768.txt"]);
}

#[test]
fn scripts_of_urgent_data() {
    play(&["urgent.txt"]);
}

#[test]
fn scripts_of_senders_and_receivers() {
    play(&["sender.txt", "receiver.txt"]);
}

#[test]
fn scripts_of_rfc_1122() {
    play(&["rfc1122.txt"]);
}

#[test]
fn scripts_of_rfc_5961() {
    play(&["rfc5961.txt"]);
}

#[test]
fn scripts_of_rfc_2018_and_2883() {
    play(&["rfc2018.txt"]);
}

#[test]
fn scripts_of_rfc_5681_3042_and_6582() {
    play(&["rfc5681.txt", "rfc6928.txt"]);
}

#[test]
fn scripts_of_rfc_5682_3708_and_3522() {
    play(&["rfc5682.txt", "rfc3708.txt"]);
}

#[test]
fn scripts_of_rfc_8985() {
    play(&["rfc8985.txt"]);
}

#[test]
fn scripts_of_rfc_7323() {
    play(&["rfc7323.txt"]);
}

#[test]
fn scripts_of_rfc_6298() {
    play(&["rfc6298.txt"]);
}

#[test]
fn scripts_of_rfc_3168() {
    play(&["rfc3168.txt"]);
}

#[test]
fn scripts_of_rfc_7413() {
    play(&["rfc7413.txt"]);
}

#[test]
fn scripts_of_rfc_8257() {
    play(&["rfc8257.txt"]);
}

#[test]
fn scripts_of_the_window_that_is_memory() {
    play(&["window.txt"]);
}

#[test]
fn scripts_of_what_is_chosen_for_a_connection() {
    play(&["options.txt", "pacing.txt"]);
}
