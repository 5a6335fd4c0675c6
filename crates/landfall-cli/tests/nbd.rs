//! `landfall nbd`: serving, looking, copying and measuring, as people do it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{json, landfall};

/// A server in a process of its own, and where it is.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(["nbd", "serve", "--json", "--seconds", "300"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        out.read_line(&mut line).expect("it says where it is");
        let ready: Value = serde_json::from_str(&line).expect("in a line of JSON");
        let address = ready["listening"][0].as_str().expect("it listens").to_owned();
        // What it says at its end has room.
        child.stdout = Some(out.into_inner());
        Self { child, address }
    }

    fn uri(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
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

#[test]
fn a_device_is_served_looked_at_copied_and_measured() {
    let folder = Folder::new("copy");
    let (source, disk, back) = (folder.path("a"), folder.path("b"), folder.path("c"));
    let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at / 5) as u8).collect();
    std::fs::write(&source, &bytes).unwrap();
    std::fs::File::create(&disk).unwrap().set_len(4 << 20).unwrap();
    let disk_export = format!("disk=file:{disk}");
    let listen = ["--listen", "127.0.0.1:0"];
    let exports = ["--export", &disk_export, "--export", "memory=mem:64M"];
    let server = Server::start(&[&listen[..], &exports].concat());

    let info = succeeded(&["nbd", "info", "--list", "--json", &server.uri("")]);
    let names: Vec<_> = info["exports"].as_array().unwrap().iter().map(|e| &e["name"]).collect();
    assert_eq!(names, ["disk", "memory"]);
    assert_eq!(info["exports"][0]["size"], 4 << 20);
    assert_eq!(info["exports"][0]["replies"], "extended");

    let copied = succeeded(&["nbd", "copy", "--json", &source, &server.uri("disk")]);
    assert_eq!(copied["bytes"], 3_000_001);
    succeeded(&["nbd", "copy", "--json", &server.uri("disk"), &server.uri("memory")]);
    succeeded(&["nbd", "copy", "--json", &server.uri("memory"), &back]);
    let back = std::fs::read(&back).unwrap();
    assert_eq!(back.len(), 64 << 20);
    assert!(back[..bytes.len()] == bytes[..] && back[bytes.len()..].iter().all(|b| *b == 0));

    for (work, order) in [("read", "random"), ("write", "sequential"), ("mixed", "random")] {
        let how = ["--work", work, "--order", order, "--seconds", "0.1", "--depth", "8"];
        let uri = server.uri("memory");
        let bench = succeeded(&[&["nbd", "bench", "--json", &uri][..], &how].concat());
        assert!(bench["requests"].as_u64().unwrap() > 0, "{bench}");
        assert!(bench["latency_us"]["p99"].as_f64() >= bench["latency_us"]["p50"].as_f64());
    }
    assert!(server.end(), "a signal ends it in order");
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
    let server = Server::start(&["--export", "disk=mem:1M", "--listen", "127.0.0.1:0"]);
    assert!(said(&["info", &server.uri("none")]).contains("no export `none`"));
}
