//! `landfall run`: the program takes its place, and what is wrong is said; and `landfall
//! carry` from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use landfall_testbed::skip_unless;

pub(crate) const VARIABLES: [&str; 6] = [
    "LD_PRELOAD",
    "LANDFALL_RULES",
    "LANDFALL_LOG",
    "LANDFALL_LOG_LEVEL",
    "LANDFALL_GROUP",
    "LANDFALL_SOCKETS",
];

fn run(preload: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.arg("run").args(words).env("LANDFALL_PRELOAD", preload);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.output().expect("the program starts")
}

/// A library that every program has: to preload it changes nothing.
fn harmless() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    PathBuf::from(paths.find(|path| path.contains("/libc.so")).expect("a program has libc"))
}

/// The real one, which `cargo test --workspace` builds.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("target/<profile>/deps");
    folder.join("examples/libpreload_for_tests.so")
}

/// Why the real one cannot be tried here.
fn missing() -> Option<String> {
    (!library().exists()).then(|| "needs `cargo build -p landfall-preload --examples`".to_owned())
}

/// The same for a test that needs Python, too.
pub(crate) fn why_not() -> Option<String> {
    let has_python = || Command::new("python3").arg("--version").output().is_ok();
    missing().or_else(|| (!has_python()).then(|| "needs the program python3".to_owned()))
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("landfall-run-{}-{name}", std::process::id()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_program_is_itself() {
    let output = run(&harmless(), &["--", "sh", "-c", "echo $0 $1; exit 7", "a b", "--log"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "a b --log\n".into()));
    let output = run(&harmless(), &["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15), "its signals are its own");
}

#[test]
fn it_is_told_what_was_asked_for() {
    let (rules, log) = (scratch("told.rules"), scratch("told.log"));
    fs::write(&rules, "tcp port=1\n").unwrap();
    let [rules_path, log_path] = [&rules, &log].map(|path| path.to_str().unwrap());
    let script = "echo $LD_PRELOAD $LANDFALL_RULES $LANDFALL_LOG $LANDFALL_LOG_LEVEL";
    let level = ["--log-level", "errors"];
    let words =
        ["--rules", rules_path, "--log", log_path, level[0], level[1], "--", "sh", "-c", script];
    let output = run(&harmless(), &words);
    let real = |path: &Path| fs::canonicalize(path).unwrap().display().to_string();
    let expected = [&harmless(), &rules, &log].map(|path| real(path)).join(" ") + " errors";
    assert_eq!(text(&output.stdout).trim(), expected);
    fs::remove_file(rules).unwrap();
    fs::remove_file(log).unwrap();
}

#[test]
fn a_group_is_told_by_its_number_and_one_that_is_not_there_is_named() {
    let own = rustix::process::getegid().as_raw().to_string();
    let script = ["--", "sh", "-c", "echo $LANDFALL_GROUP"];
    let output = run(&harmless(), &[&["--group", own.as_str()], &script[..]].concat());
    assert_eq!(text(&output.stdout).trim(), own);
    let output = run(&harmless(), &[&["--group", "no-such-group-here"], &script[..]].concat());
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), String::new()));
    assert!(text(&output.stderr).contains("there is no group called no-such-group-here"));
}

#[test]
fn what_cannot_be_started_is_said() {
    for (program, code) in [("/nowhere/program", 127), ("no-such-program", 127), ("/tmp", 126)] {
        let output = run(&harmless(), &["--", program]);
        assert_eq!(output.status.code(), Some(code), "{program}");
        assert!(text(&output.stderr).contains(program), "{}", text(&output.stderr));
    }
    assert_eq!(run(&harmless(), &[]).status.code(), Some(2), "no program");
}

#[test]
fn a_library_that_is_not_there_is_missed() {
    let output = run(Path::new("/nowhere/library.so"), &["--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("/nowhere/library.so"), "{}", text(&output.stderr));
}

#[test]
fn rules_that_make_no_sense_are_refused_before_the_program_starts() {
    let rules = scratch("bad.rules");
    fs::write(&rules, "memory\n\ntcp prot=7\n").unwrap();
    let words = ["--rules", rules.to_str().unwrap(), "--", "echo", "started"];
    let output = run(&harmless(), &words);
    fs::remove_file(&rules).unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), String::new()));
    assert!(text(&output.stderr).contains("line 3: `prot=7` is no condition"));
    let output = run(&harmless(), &["--log", "/nowhere/log", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("/nowhere/log"));
}

/// Both ends of a connection in one process, and some words over it.
const TALK: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
for turn in range(9):
    for (one, other) in ((a, b), (b, a)):
        one.sendall(b'word')
        assert other.recv(9) == b'word'
print('said')
";

#[test]
fn connections_go_through_memory_and_the_log_says_so() {
    skip_unless!(why_not());
    let (log, rules) = (scratch("real.log"), scratch("real.rules"));
    let log_path = log.to_str().unwrap();
    let talk = |more: &[&str]| {
        let words = [&["--log", log_path], more, &["--", "python3", "-c", TALK]].concat();
        let output = run(&library(), &words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("said\n".into(), String::new()));
        let said = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        said
    };
    let said = talk(&[]);
    assert_eq!(said.matches(": memory: both ends have the library\n").count(), 2, "{said}");
    fs::write(&rules, "memory program=ruby*\ntcp address=::ffff:0:0/96\ntcp address=127.0.0.1")
        .unwrap();
    let said = talk(&["--rules", rules.to_str().unwrap()]);
    assert_eq!(said.matches(": tcp: rule in line 3\n").count(), 2, "{said}");
    fs::remove_file(rules).unwrap();
}

struct Key(PathBuf);

impl Key {
    fn new(name: &str, mode: u32) -> Self {
        let name = format!("landfall-carry-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "a key of some length\n").expect("it can be written");
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        Self(path)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn carry(library: &Path, words: &[&str], key: &Key) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.arg("carry").args(words).arg("--key-file").arg(&key.0);
    command.env("LANDFALL_PRELOAD", library);
    command
}

fn said(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let key = Key::new("good", 0o600);
    let of = |words: &[&str]| said(&carry(&library(), words, &key).output().expect("it starts"));
    assert!(of(&["--listen", "0.0.0.0:8183"]).contains("by which other hosts know this one"));
    let alone = of(&["--over", "qpip", "--listen", "127.0.0.1:8183"]);
    assert!(alone.contains("name each with --peer"), "{alone}");
    assert!(of(&["--over", "tcp", "--listen", "127.0.0.1:8183"]).contains("tcp"));
}

/// A library that every program has knows nothing of carrying.
#[test]
fn a_library_of_another_version_is_told_of() {
    let key = Key::new("other", 0o600);
    let command = carry(&harmless(), &["--listen", "127.0.0.1:8183"], &key).output();
    let said = said(&command.expect("it starts"));
    assert!(said.contains("of another version"), "{said}");
}

#[test]
fn a_key_that_others_can_read_is_none() {
    skip_unless!(missing());
    let key = Key::new("open", 0o644);
    let command = carry(&library(), &["--listen", "127.0.0.1:0"], &key).output();
    let said = said(&command.expect("it starts"));
    assert!(said.contains("others can read this key"), "{said}");
}

#[test]
fn one_carries_for_each_protocol_until_it_is_ended() {
    skip_unless!(missing());
    let key = Key::new("one", 0o600);
    let words = ["--listen", "127.0.0.1:0"];
    let mut first =
        carry(&library(), &words, &key).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = first.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("it speaks");
    assert!(line.starts_with("carries by stp at 127.0.0.1:0, at most 256"), "{line}");
    let second = said(&carry(&library(), &words, &key).output().expect("it starts"));
    assert!(second.contains("another carrier for stp is at work here"), "{second}");
    let asked = Command::new("kill").arg(first.id().to_string()).status();
    assert!(asked.expect("kill starts").success());
    assert_eq!(first.wait().expect("it ends").code(), Some(0));
}
