//! Rules and the log: what a program is told to do, and what it says that it did.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::example;

/// A file of this test's own.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("landfall-rules-{}-{name}", std::process::id()))
}

/// Runs a case with rules and a log; what it printed, and the lines of the log.
fn run(name: &str, rules: Option<&str>, words: &[&str]) -> (Output, Vec<String>) {
    let (rules_file, log) = (file(&format!("{name}.rules")), file(&format!("{name}.log")));
    let mut command = Command::new(example("socket_cases"));
    command.args(words).env("LD_PRELOAD", example("libpreload_for_tests.so"));
    command.env("LANDFALL_LOG", &log);
    if let Some(rules) = rules {
        fs::write(&rules_file, rules).expect("rules can be written");
        command.env("LANDFALL_RULES", &rules_file);
    }
    let output = command.output().expect("the cases start");
    let said = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(log);
    let _ = fs::remove_file(rules_file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (output, said.lines().map(str::to_owned).collect())
}

const CASE: &[&str] = &["a_duplicate"];

#[track_caller]
fn each_ends_with(lines: &[String], end: &str) {
    assert!(!lines.is_empty(), "the log is empty");
    for line in lines {
        assert!(line.contains("landfall: socket_cases[") && line.ends_with(end), "{line}");
    }
}

#[test]
fn each_connection_is_told_of_once_at_each_end() {
    let (_, lines) = run("memory", None, &["a_duplicate_by_fcntl"]);
    each_ends_with(&lines, ": memory: both ends have the library");
    let count = |word: &str| lines.iter().filter(|line| line.contains(word)).count();
    assert_eq!((count("] calls 127.0.0.1:"), count("] is called at 127.0.0.1:")), (1, 1));
}

#[test]
fn a_program_that_shows_a_title_keeps_its_name_and_its_log() {
    let (_, lines) = run("title", None, &["with_a_title"]);
    each_ends_with(&lines, ": memory: both ends have the library");
}

#[test]
fn a_rule_leaves_connections_to_tcp_and_the_log_says_which() {
    let rules = "memory port=1\ntcp address=127.0.0.0/8 # all here\n";
    let (_, lines) = run("address", Some(rules), CASE);
    each_ends_with(&lines, ": tcp: rule in line 2");
    let (_, lines) = run("other", Some("tcp address=10.0.0.0/8\ntcp program=other"), CASE);
    each_ends_with(&lines, ": memory: both ends have the library");
}

#[test]
fn a_program_that_no_rule_means_is_left_alone() {
    let (_, lines) = run("program", Some("tcp program=socket_*"), CASE);
    each_ends_with(&lines, " all by TCP: rule in line 1");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn what_is_wrong_with_the_rules_is_said_and_the_program_runs() {
    let (output, lines) = run("wrong", Some("memory\nudp port=7"), CASE);
    each_ends_with(
        &lines,
        "line 2: a rule begins with `memory`, `tcp`, `stp` or `qpip`, not with `udp`",
    );
    assert_eq!(lines.len(), 1);
    assert!(!output.stdout.is_empty());
    // Without a log it is said where programs complain.
    let mut command = Command::new(example("socket_cases"));
    command.args(CASE).env("LD_PRELOAD", example("libpreload_for_tests.so"));
    let output = command.env("LANDFALL_RULES", "/nowhere/rules").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty());
    assert!(said.contains("all by TCP: /nowhere/rules: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_log_that_cannot_be_written_changes_nothing() {
    let mut command = Command::new(example("socket_cases"));
    command.args(CASE).env("LD_PRELOAD", example("libpreload_for_tests.so"));
    command.env("EXPECT_SHARED", "1").env("LANDFALL_LOG", "/nowhere/log");
    let output = command.output().expect("it starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_peer_without_the_library_is_said_to_be_one() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody calls");
        let mut bytes = [0; 100];
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..len]).expect("it can be sent back");
        }
    });
    let (_, lines) = run("alone", None, &["echoed_by", &port.to_string()]);
    each_ends_with(&lines, ": tcp: nobody has taken the memory that was offered");
    echo.join().expect("all was sent back");
    assert_eq!(lines.len(), 1, "{lines:?}");
}
