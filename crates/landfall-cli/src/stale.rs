//! Whatever is said of commands is still understood: the lines of the READMEs and of the
//! documentation, and the examples of every help text. Tests alone.

use std::fs;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};

use crate::cli::Cli;

/// What stands before the words of a command.
const STARTS: [&str; 4] = [
    "landfall ",
    "target/release/landfall ",
    "./target/release/landfall ",
    "cargo run --release -- ",
];

/// The words of the commands of this program in a line for a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default();
    let parts = line.split(['|', ';', '&']).map(str::trim);
    parts.filter_map(|part| words(without_prefixes(part))).collect()
}

/// Without `sudo`, a prompt, and what is set for the command alone.
fn without_prefixes(mut part: &str) -> &str {
    loop {
        let (first, rest) = part.split_once(' ').unwrap_or((part, ""));
        let is_setting = first.split_once('=').is_some_and(|(name, _)| {
            name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        });
        if !is_setting && !["sudo", "$", "time"].contains(&first) {
            return part;
        }
        part = rest.trim_start();
    }
}

fn words(part: &str) -> Option<Vec<String>> {
    let rest = STARTS.iter().find_map(|start| part.strip_prefix(start))?;
    let words = rest.split(' ').filter(|word| !word.is_empty());
    // What the shell does with the output is its own affair.
    let words = words.take_while(|word| !word.starts_with(['>', '<']));
    let unquoted = |word: &str| word.trim_matches(['\'', '"']).to_owned();
    Some(words.map(unquoted).collect())
}

/// Is it understood?
fn understood(words: &[String]) -> Result<(), String> {
    let line = ["landfall".to_owned()].into_iter().chain(words.iter().cloned());
    match Cli::try_parse_from(line) {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
            _ => Err(format!("`landfall {}`: {error}", words.join(" "))),
        },
    }
}

/// The lines of a text that are meant for a shell.
fn shell_lines(markdown: &str) -> Vec<&str> {
    let (mut lines, mut in_shell) = (Vec::new(), false);
    for line in markdown.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(language) => in_shell = ["sh", "bash", "console"].contains(&language),
            None if in_shell => lines.push(line.trim()),
            None => {}
        }
    }
    lines
}

#[test]
fn every_command_that_the_documentation_tells_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for file in [
        "README.md",
        "crates/landfall-cli/README.md",
        "docs/README.md",
        "docs/bigmtu.md",
        "docs/clan-ip.md",
        "docs/demo.md",
        "docs/performance.md",
        "docs/perf-json.md",
        "docs/reproduction.md",
        "docs/send-receive.md",
        "docs/sockets.md",
        "docs/storage.md",
        "crates/sockets-compat/preload/README.md",
        "docs/wireshark/README.md",
        "CONTRIBUTING.md",
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        for words in shell_lines(&text).into_iter().flat_map(commands) {
            understood(&words).unwrap_or_else(|error| panic!("{file}: {error}"));
            count += 1;
        }
    }
    assert!(count > 10, "only {count} commands were found");
}

/// The folder of a package by its name.
fn folder_of(package: &str) -> String {
    let short = package.strip_prefix("landfall-").unwrap_or(package);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let name = if root.join(package).is_dir() { package } else { short };
    format!("crates/{name}")
}

/// What cargo looks for an example in: the packages that it takes by itself, or the one that
/// is named.
#[test]
fn every_example_that_the_documentation_starts_is_where_cargo_looks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("default-members = "));
    let own: Vec<String> =
        members.unwrap().split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let mut count = 0;
    for file in [
        "README.md",
        "CONTRIBUTING.md",
        "crates/landfall/README.md",
        "crates/landfall-cli/README.md",
        "crates/nic-firmware-model/README.md",
        "docs/performance.md",
        "docs/spec/firmware.md",
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        for line in text.split("cargo run ").skip(1) {
            let words: Vec<&str> = line.split([' ', '`', '\n']).take(8).collect();
            let behind = |word| words.iter().skip_while(|it| **it != word).nth(1).copied();
            let Some(example) = behind("--example") else { continue };
            let folders = behind("-p").map_or_else(|| own.clone(), |named| vec![folder_of(named)]);
            let is_there = |folder: &String| {
                let examples = root.join(folder).join("examples");
                examples.join(example).is_dir() || examples.join(format!("{example}.rs")).is_file()
            };
            assert!(folders.iter().any(is_there), "{file}: --example {example} of {folders:?}");
            count += 1;
        }
    }
    assert!(count > 5, "only {count} examples were found");
}

#[test]
fn every_example_of_a_help_text_is_understood() {
    let mut command = Cli::command();
    command.build();
    let count = check_examples(&command, "landfall");
    assert!(count > 30, "only {count} examples were found");
}

fn check_examples(command: &Command, name: &str) -> usize {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    let below = below.filter(|below| below.get_name() != "help");
    let mut count = 0;
    let (mut own, mut leaves) = (0, true);
    for below in below {
        leaves = false;
        count += check_examples(below, &format!("{name} {}", below.get_name()));
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for line in help.lines().filter(|line| line.starts_with("  ")) {
        // What it is for stands behind it, at some distance.
        let line = line.trim().split("   ").next().unwrap_or_default();
        for words in commands(line) {
            understood(&words).unwrap_or_else(|error| panic!("the help of {name}: {error}"));
            own += 1;
        }
    }
    assert!(own > 0 || !leaves, "the help of `{name}` has no example");
    count + own
}

#[test]
fn commands_are_found_among_other_words() {
    let found = |line| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        found("sudo target/release/landfall perf local --veth   # why"),
        ["perf local --veth"]
    );
    assert_eq!(found("cargo run --release -- demo"), ["demo"]);
    assert_eq!(found("NO_COLOR=1 landfall demo --json | jq '.acts[]'"), ["demo --json"]);
    assert_eq!(found("landfall completions bash > file"), ["completions bash"]);
    assert_eq!(found("landfall serve echo & nc 10.9.0.2 7"), ["serve echo"]);
    assert!(found("cargo test --workspace").is_empty());
    assert!(understood(&["demo".to_owned(), "--loud".to_owned()]).is_err());
}
