//! `landfall carry` from outside.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use landfall_testbed::skip_unless;

/// The library, as its own tests use it.
fn library() -> PathBuf {
    let own = Path::new(env!("CARGO_BIN_EXE_landfall"));
    own.parent().expect("a folder").join("examples/libpreload_for_tests.so")
}

fn missing() -> Option<String> {
    (!library().exists()).then(|| "needs `cargo build -p landfall-preload --examples`".to_owned())
}

struct Key(PathBuf);

impl Key {
    fn new(name: &str, mode: u32) -> Self {
        let name = format!("landfall-carry-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "a key of some length\n").expect("it can be written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        Self(path)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
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
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is /proc");
    let libc = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let libc = libc.into_iter().find(|path| path.contains("/libc.so")).expect("a libc").to_owned();
    let key = Key::new("other", 0o600);
    let command = carry(Path::new(&libc), &["--listen", "127.0.0.1:8183"], &key).output();
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
    assert_eq!(first.wait().expect("it ends").code(), Some(143));
}
