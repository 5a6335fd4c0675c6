//! `landfall nbd mount`: a device as a file, over whatever carries it, until it is told to end.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_testbed::privileges;
use landfall_testkit::skip_unless;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Folder, Server};
use crate::common::landfall;

/// Long for what ends at once.
const LIMIT: Duration = Duration::from_secs(60);

fn why_not() -> Option<String> {
    if !privileges::is_root() {
        return Some("needs root to mount".into());
    }
    (!Path::new("/dev/fuse").exists()).then(|| "needs FUSE".into())
}

/// The program with a device mounted, and the file that it is.
struct Mounted {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    ready: Value,
}

impl Mounted {
    fn new(uri: &str, place: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(["nbd", "mount", uri, place, "--json"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{error}: {line}{said}")
        });
        Self { child, out, ready }
    }

    fn open(&self) -> File {
        let file = self.ready["file"].as_str().unwrap();
        OpenOptions::new().read(true).write(true).open(file).unwrap()
    }

    fn signal(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits until it has ended; gives its exit code, and what it said then.
    fn ended(mut self) -> (Option<i32>, String, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut printed, mut said) = (String::new(), String::new());
        self.out.read_to_string(&mut printed).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), printed, said)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(file) = self.ready["file"].as_str() {
            // What a test that failed leaves.
            let _ = rustix_unmount(file);
        }
    }
}

fn rustix_unmount(file: &str) -> std::io::Result<()> {
    Command::new("umount").args(["--lazy", file]).stderr(Stdio::null()).status().map(drop)
}

fn place(folder: &Folder) -> String {
    let place = folder.path("device");
    File::create(&place).unwrap();
    place
}

/// Writes, syncs, unmounts, mounts and reads.
fn exercise(name: &str, listen: &[&str]) {
    skip_unless!(why_not());
    let folder = Folder::new(name);
    let disk = folder.path("disk");
    File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    let export = format!("disk=file:{disk}");
    let server = Server::start(&[listen, &["--export", &export]].concat());
    let tunnel = server.ready["tunnel"].as_str();
    let more: Vec<&str> = tunnel.map_or_else(Vec::new, |tunnel| {
        vec!["--address", "10.9.0.3/24", "--tunnel", "127.0.0.1:0", "--peer", tunnel]
    });
    let place = place(&folder);
    let mounted = Mounted::new(&server.uri("disk"), &place, &more);
    assert_eq!(mounted.ready["size"], 8 << 20);
    let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at / 3) as u8).collect();
    let file = mounted.open();
    file.write_all_at(&bytes, 4099).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(&disk).unwrap()[4099..][..bytes.len()] == bytes[..]);
    mounted.signal();
    let (code, printed, said) = mounted.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains("a signal"), "{printed}");
    assert_eq!(fs::metadata(&place).unwrap().len(), 0, "it is unmounted");

    let again = Mounted::new(&server.uri("disk"), &place, &more);
    let mut back = vec![0; bytes.len()];
    again.open().read_exact_at(&mut back, 4099).unwrap();
    assert!(back == bytes);
    again.signal();
    assert_eq!(again.ended().0, Some(0));
    assert!(server.end());
}

#[test]
fn a_device_is_a_file_over_tcp() {
    exercise("mount-tcp", &["--listen", "127.0.0.1:0"]);
}

#[test]
fn a_device_is_a_file_over_queue_pairs() {
    exercise("mount-qp", &["--listen", "qp://10.9.0.2:10809", "--tunnel", "127.0.0.1:0"]);
}

#[test]
fn a_device_is_a_file_over_stp() {
    exercise("mount-stp", &["--listen", "stp://127.0.0.1:10809/udp/0"]);
}

#[test]
fn a_file_in_use_outlives_one_signal_and_not_two() {
    skip_unless!(why_not());
    let folder = Folder::new("mount-busy");
    let server = Server::start(&["--listen", "127.0.0.1:0", "--export", "disk=mem:8M"]);
    let mut mounted = Mounted::new(&server.uri("disk"), &place(&folder), &[]);
    let file = mounted.open();
    mounted.signal();
    let mut said = BufReader::new(mounted.child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("is in use, and stays"), "{line}");
    file.write_all_at(&[3; 512], 0).unwrap();
    mounted.signal();
    mounted.child.stderr = Some(said.into_inner());
    let (code, _, said) = mounted.ended();
    assert_eq!(code, Some(1));
    assert!(said.contains("is in use: it was cut off"), "{said}");
    file.read_exact_at(&mut [0; 512], 0).unwrap_err();
}

#[test]
fn a_server_that_goes_ends_it_and_says_so() {
    skip_unless!(why_not());
    let folder = Folder::new("mount-gone");
    let server = Server::start(&["--listen", "127.0.0.1:0", "--export", "disk=mem:8M"]);
    let mounted = Mounted::new(&server.uri("disk"), &place(&folder), &[]);
    let file = mounted.open();
    assert!(server.end());
    // Anyone who uses it hears of it.
    file.read_exact_at(&mut [0; 512], 0).unwrap_err();
    let (code, _, said) = mounted.ended();
    assert_eq!(code, Some(1));
    assert!(said.contains("the connection is over"), "{said}");
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let folder = Folder::new("mount-errors");
    let server = Server::start(&["--listen", "127.0.0.1:0", "--export", "disk=mem:8M"]);
    let (disk, none) = (server.uri("disk"), folder.path("none"));
    let place = place(&folder);
    for (arguments, told) in [
        ([disk.as_str(), none.as_str()], "make it first, an empty file or an empty folder"),
        ([place.as_str(), place.as_str()], "is a file: nbd://HOST/NAME is an export"),
        (["nbd://127.0.0.1:1/disk", place.as_str()], "cannot connect to nbd://127.0.0.1:1/disk"),
        ([disk.as_str(), "/dev/null"], "neither a file nor a folder"),
    ] {
        let output = landfall(&[&["nbd", "mount"][..], &arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(told), "{arguments:?}: {said}");
    }
    let impatient = landfall(&["nbd", "mount", &disk, &place, "--patience", "0"]);
    assert_eq!(impatient.status.code(), Some(2));
}
