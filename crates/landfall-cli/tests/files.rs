//! `landfall files`: a directory served and mounted, as people do it. For root, who mounts.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_testkit::skip_unless;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn why_no_mounts() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "needs root, who mounts".into())
}

/// A command in a process of its own, and what it said first.
struct Running {
    child: Child,
    ready: Value,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .arg("files")
            .args(arguments)
            .args(["--json", "--seconds", "300"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        out.read_line(&mut line).expect("it says that it is ready");
        let ready = serde_json::from_str(&line).expect("in a line of JSON");
        child.stdout = Some(out.into_inner());
        Self { child, ready }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for its end: whether it was a success, and what it said of errors.
    fn end(mut self) -> (bool, String) {
        let status = self.child.wait().expect("it ends");
        let mut said = String::new();
        let errors = self.child.stderr.as_mut().expect("it is piped");
        errors.read_to_string(&mut said).expect("it is text");
        (status.success(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("landfall-files-{name}-{}", std::process::id()));
        for part in ["data", "mnt"] {
            std::fs::create_dir_all(path.join(part)).expect("there is room");
        }
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("it is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only if a test failed is it still mounted.
        let _ =
            Command::new("umount").args(["-l", &self.path("mnt")]).stderr(Stdio::null()).status();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_mounted(path: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there is /proc");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(path))
}

#[test]
fn files_are_served_and_mounted_until_a_signal() {
    skip_unless!(why_no_mounts());
    for over in ["shm", "udp"] {
        let folder = Folder::new(over);
        let (data, at) = (folder.path("data"), folder.path("mnt"));
        let listen = match over {
            "shm" => format!("shm:{}", folder.path("meet")),
            _ => "127.0.0.1:0".to_owned(),
        };
        let server = Running::start(&["serve", "--dir", &data, "--listen", &listen]);
        let place = server.ready["listening"][0].as_str().expect("it listens").to_owned();
        let mount = Running::start(&["mount", &place, &at]);
        assert_eq!(mount.ready["mounted"].as_str(), Some(&*at));
        let text = "every byte has its place".repeat(100_000);
        std::fs::write(Path::new(&at).join("file"), &text).expect("it is written");
        assert_eq!(std::fs::read_to_string(Path::new(&data).join("file")).unwrap(), text);
        assert_eq!(std::fs::read_to_string(Path::new(&at).join("file")).unwrap(), text);
        mount.signal(Signal::TERM);
        assert_eq!(mount.end(), (true, String::new()), "{over}");
        assert!(!is_mounted(&at), "{over}");
        server.signal(Signal::INT);
        assert_eq!(server.end(), (true, String::new()), "{over}");
    }
}

#[test]
fn a_killed_client_leaves_nothing_and_a_killed_server_unmounts() {
    skip_unless!(why_no_mounts());
    let folder = Folder::new("killed");
    let (data, at) = (folder.path("data"), folder.path("mnt"));
    let listen = format!("shm:{}", folder.path("meet"));
    let server = Running::start(&["serve", "--dir", &data, "--listen", &listen]);
    let mount = Running::start(&["mount", &listen, &at]);
    let mut writing = Command::new("dd")
        .args(["if=/dev/zero", &format!("of={at}/large"), "bs=1M", "count=100000"])
        .stderr(Stdio::null())
        .spawn()
        .expect("dd starts");
    until("it writes", || Path::new(&data).join("large").exists());
    mount.signal(Signal::KILL);
    assert!(!writing.wait().expect("it ends").success());
    drop(mount);
    Command::new("umount").args(["-l", &at]).status().expect("umount starts");
    std::fs::remove_file(Path::new(&data).join("large")).expect("it is there");
    // The server goes on, for the next one.
    let mount = Running::start(&["mount", &listen, &at]);
    std::fs::write(Path::new(&at).join("file"), "text").expect("it is written");
    server.signal(Signal::KILL);
    drop(server);
    until("it is noticed", || std::fs::write(Path::new(&at).join("file"), "more").is_err());
    let (is_success, said) = mount.end();
    assert!(!is_success && said.contains("is gone"), "{said}");
    assert!(!is_mounted(&at));
}

#[test]
fn what_is_wrong_is_said() {
    let folder = Folder::new("wrong");
    let (data, none) = (folder.path("data"), folder.path("none"));
    let refused = |arguments: &[&str], expected: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .arg("files")
            .args(arguments)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    };
    refused(&["serve", "--dir", &none, "--listen", "127.0.0.1:0"], "cannot export");
    refused(&["serve", "--dir", &data, "--listen", "nowhere"], "shm:FOLDER");
    refused(&["mount", &format!("shm:{none}"), &data], "nobody serves at");
}
