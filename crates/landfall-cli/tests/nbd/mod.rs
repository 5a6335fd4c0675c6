//! `landfall nbd`: serving, looking, copying and measuring, as people do it.
//!
//! | file | what it shows |
//! | --- | --- |
//! | this | the server under test, and clients over the kernel's sockets |
//! | `family` | our clients over queue pairs and STP, encrypted and not |
//! | `mount` | a device as a file of this host (root) |
//! | `scsi` | the same devices for initiators of iSCSI |
//! | `kernel` | unmodified clients at an adapter of queue pairs (root) |

mod family;
mod kernel;
mod mount;
mod scsi;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{json, landfall};

/// A server in a process of its own, and what it said first.
struct Server {
    child: Child,
    ready: Value,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        Self::of(command.args(["nbd", "serve"]).args(arguments))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command
            .args(["--json", "--seconds", "300"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        out.read_line(&mut line).expect("it says where it is");
        let ready = serde_json::from_str(&line).expect("in a line of JSON");
        // What it says at its end has room.
        child.stdout = Some(out.into_inner());
        Self { child, ready }
    }

    /// The address of an export where clients come in first.
    fn uri(&self, name: &str) -> String {
        let address = self.ready["listening"][0].as_str().expect("it listens");
        let (at, query) = address.split_once('?').unwrap_or((address, ""));
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{at}{name}{mark}{query}")
    }

    fn end(mut self) -> bool {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends").success()
    }
}

impl Drop for Server {
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
        let path = std::env::temp_dir().join(format!("landfall-nbd-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("there is room");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("it is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn succeeded(arguments: &[&str]) -> Value {
    let output = landfall(arguments);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {problems}");
    json(&output)
}

/// What [`exercise`] needs of a server.
fn exports(folder: &Folder) -> Vec<String> {
    let disk = folder.path("disk");
    std::fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    ["--export", &format!("disk=file:{disk}"), "--export", "memory=mem:64M"]
        .map(str::to_owned)
        .to_vec()
}

/// Looks, copies there, across and back, compares, and measures; with these options of a client.
fn exercise(folder: &Folder, server: &Server, how: &[&str]) {
    let (source, back) = (folder.path("source"), folder.path("back"));
    let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at / 5) as u8).collect();
    std::fs::write(&source, &bytes).unwrap();
    let does = |words: &[&str]| succeeded(&[&["nbd"], words, how, &["--json"]].concat());

    let info = does(&["info", "--list", &server.uri("")]);
    let names: Vec<_> = info["exports"].as_array().unwrap().iter().map(|e| &e["name"]).collect();
    assert_eq!(names, ["disk", "memory"]);
    assert_eq!(info["exports"][0]["size"], 4 << 20);
    assert_eq!(info["exports"][0]["replies"], "extended");

    let copied = does(&["copy", &source, &server.uri("disk")]);
    assert_eq!(copied["bytes"], 3_000_001);
    does(&["copy", &server.uri("disk"), &server.uri("memory")]);
    does(&["copy", &server.uri("memory"), &back]);
    let back = std::fs::read(&back).unwrap();
    assert_eq!(back.len(), 64 << 20);
    assert!(back[..bytes.len()] == bytes[..] && back[bytes.len()..].iter().all(|b| *b == 0));

    for (work, order) in [("read", "random"), ("write", "sequential"), ("mixed", "random")] {
        let load = ["--work", work, "--order", order, "--seconds", "0.1", "--depth", "8"];
        let bench = does(&[&["bench", &server.uri("memory")][..], &load].concat());
        assert!(bench["requests"].as_u64().unwrap() > 0, "{bench}");
        assert!(bench["latency_us"]["p99"].as_f64() >= bench["latency_us"]["p50"].as_f64());
    }
}

#[test]
fn a_device_is_served_looked_at_copied_and_measured() {
    let folder = Folder::new("copy");
    let exports = exports(&folder);
    let exports: Vec<&str> = exports.iter().map(String::as_str).collect();
    let server = Server::start(&[&["--listen", "127.0.0.1:0"][..], &exports].concat());
    exercise(&folder, &server, &[]);
    assert!(server.end(), "a signal ends it in order");
}

/// A client that writes for as long as the server is there, and the server ended meanwhile: in
/// order, and the client says why it cannot go on.
fn ends_among_requests(server: Server, client: &[&str], disk: &str) {
    let mut client = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(client)
        .args(["--depth", "16", "--seconds", "200"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let started = Instant::now();
    while std::fs::metadata(disk).unwrap().blocks() == 0 {
        assert!(client.try_wait().unwrap().is_none(), "it writes");
        assert!(started.elapsed() < Duration::from_secs(100), "nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.end(), "a signal ends it in order");
    let ended = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
}

#[test]
fn a_signal_ends_a_server_among_requests() {
    let folder = Folder::new("among");
    let exports = exports(&folder);
    let exports: Vec<&str> = exports.iter().map(String::as_str).collect();
    let server = Server::start(&[&["--listen", "127.0.0.1:0"][..], &exports].concat());
    let uri = server.uri("disk");
    ends_among_requests(server, &["nbd", "bench", &uri, "--work", "write"], &folder.path("disk"));
}

#[test]
fn a_socket_of_this_host_goes_with_its_server() {
    let folder = Folder::new("unix");
    let socket = folder.path("socket");
    let server = Server::start(&["--export", "=mem:1M", "--unix", &socket, "--read-only"]);
    let uri = format!("nbd+unix:///?socket={socket}");
    let info = succeeded(&["nbd", "info", "--json", &uri]);
    assert!(info["exports"][0]["features"].as_array().unwrap().contains(&"read-only".into()));
    let refused = landfall(&["nbd", "bench", "--work", "write", &uri]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("read-only"));
    assert!(server.end());
    assert!(!Path::new(&socket).exists());
}

#[test]
fn what_is_wrong_is_said() {
    let said = |arguments: &[&str]| {
        let output = landfall(&[&["nbd"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&["serve", "--export", "x=file:none.img"]).contains("cannot open none.img"));
    assert!(said(&["serve", "--export", "x=y"]).contains("NAME=file:PATH"));
    let twice = ["serve", "--export", "x=mem:1", "--export", "x=mem:1"];
    assert!(said(&twice).contains("one name"));
    assert!(said(&["info", "http://host/"]).contains("nbd://"));
    assert!(said(&["info", "disk.img"]).contains("is a file"));
    let tunnel = ["serve", "--export", "x=mem:1M", "--tunnel", "127.0.0.1:0"];
    assert!(said(&tunnel).contains("--tunnel means nothing here"));
    let no_tls = ["serve", "--export", "x=mem:1M", "--tls-required"];
    assert!(said(&no_tls).contains("--tls-cert"));
    let itself = ["info", "nbd+qp://10.9.0.2/x", "--tunnel", "127.0.0.1:0"];
    assert!(said(&itself).contains("--address"));
    assert!(said(&["info", "nbds+qp://10.9.0.2/x"]).contains("--tls-ca"));
    let server = Server::start(&["--export", "disk=mem:1M", "--listen", "127.0.0.1:0"]);
    assert!(said(&["info", &server.uri("none")]).contains("no export `none`"));
}
