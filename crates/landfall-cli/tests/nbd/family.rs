//! Our clients over queue pairs and over STP: by a tunnel and on loopback as anybody, between
//! two hosts as root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces};
use landfall_testkit::skip_unless;
use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, Server, exercise, exports, succeeded};
use crate::common::landfall;
use crate::services::why_missing;

/// Less than the time after which a server gives up a client that is silent.
const SOON: Duration = Duration::from_secs(30);

const QUEUE_PAIRS: [&str; 4] = ["--listen", "qp://10.9.0.2:10809", "--tunnel", "127.0.0.1:0"];
const STP: [&str; 2] = ["--listen", "stp://127.0.0.1:10809/udp/0"];

fn start(listen: &[&str], more: &[&str]) -> Server {
    Server::start(&[listen, more].concat())
}

/// How a client gets to a server: nothing more is needed over STP.
fn options(server: &Server) -> Vec<String> {
    let Some(tunnel) = server.ready["tunnel"].as_str() else { return Vec::new() };
    ["--address", "10.9.0.3/24", "--tunnel", "127.0.0.1:0", "--peer", tunnel]
        .map(str::to_owned)
        .to_vec()
}

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

#[test]
fn over_queue_pairs_all_is_as_over_tcp() {
    let folder = Folder::new("qp");
    let server = start(&QUEUE_PAIRS, &words(&exports(&folder)));
    assert!(server.uri("disk").starts_with("nbd+qp://10.9.0.2:10809/disk"), "{}", server.ready);
    exercise(&folder, &server, &words(&options(&server)));
    assert!(server.end(), "a signal ends it in order");
}

#[test]
fn over_stp_all_is_as_over_tcp() {
    let folder = Folder::new("stp");
    let server = start(&STP, &words(&exports(&folder)));
    assert!(server.uri("disk").starts_with("nbd+stp://127.0.0.1:10809/disk?udp="));
    exercise(&folder, &server, &[]);
    assert!(server.end(), "a signal ends it in order");
}

#[test]
fn from_queue_pairs_to_stp_by_one_copy() {
    let folder = Folder::new("across");
    let (from, to) = (folder.path("from"), folder.path("to"));
    let bytes: Vec<u8> = (0..2_000_000u32).map(|at| (at / 3) as u8).collect();
    fs::write(&from, &bytes).unwrap();
    fs::write(&to, vec![7; bytes.len()]).unwrap();
    let one = start(&QUEUE_PAIRS, &["--export", &format!("disk=file:{from}"), "--read-only"]);
    let two = start(&STP, &["--export", &format!("disk=file:{to}")]);
    let copy = ["nbd", "copy", "--json", &one.uri("disk"), &two.uri("disk")];
    succeeded(&[&copy[..], &words(&options(&one))].concat());
    assert!(fs::read(&to).unwrap() == bytes);
    let back = ["nbd", "copy", &two.uri("disk"), &one.uri("disk")];
    let refused = landfall(&[&back[..], &words(&options(&one))].concat());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("read-only"), "{said}");
}

/// A certificate for the address of the adapter that is its own root, and its key.
fn certify(folder: &Folder) -> [String; 2] {
    let (certificate, key) = (folder.path("cert.pem"), folder.path("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=adapter"])
        .args(["-addext", "subjectAltName=IP:10.9.0.2"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    [certificate, key]
}

#[test]
fn queue_pairs_have_tls_and_nobody_comes_in_without_it() {
    skip_unless!(why_missing(&["openssl"]));
    let folder = Folder::new("tls");
    let [certificate, key] = certify(&folder);
    let exports = exports(&folder);
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-required"];
    let server = start(&QUEUE_PAIRS, &[&words(&exports), &tls[..]].concat());
    assert!(server.uri("disk").starts_with("nbds+qp://"), "{}", server.ready);
    let options = options(&server);
    let trusting = [&words(&options), &["--tls-ca", &certificate][..]].concat();
    exercise(&folder, &server, &trusting);
    let plain = server.uri("disk").replace("nbds", "nbd");
    let refused = landfall(&[&["nbd", "info", &plain], &words(&options)[..]].concat());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("TLS"), "{said}");
}

/// The program, with an identity of its own.
fn with_state(state: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(words).env("LANDFALL_STATE", state).stdin(Stdio::null());
    command
}

fn run(host: &Namespace, state: &str, words: &[&str]) -> Output {
    host.enter(|| with_state(state, words).output()).unwrap().unwrap()
}

#[test]
fn between_hosts_stp_is_encrypted_and_only_the_right_server_is_used() {
    require_namespaces!();
    let (folder, cable) = (Folder::new("hosts"), VethPair::new(VethConfig::default()).unwrap());
    let (here, there) = (&cable.a.namespace, &cable.b.namespace);
    let serve = |state: &str, more: &[&str]| {
        let listen = format!("stp://{}:10809", cable.b.ipv4);
        let usual = ["nbd", "serve", "--export", "disk=mem:8M", "--listen", &listen];
        let words = [&usual[..], more].concat();
        let state = folder.path(state);
        there.enter(|| Server::of(&mut with_state(&state, &words))).unwrap()
    };
    let info = |uri: &str, more: &[&str]| {
        let words = [&["nbd", "info", uri], more].concat();
        run(here, &folder.path("client"), &words)
    };
    let server = serve("one", &[]);
    let uri = server.uri("disk");
    assert!(server.ready["key"].as_str().is_some(), "{}", server.ready);
    assert!(info(&uri, &[]).status.success());
    // Without encryption there is no talking to it.
    assert!(!info(&uri, &["--plaintext"]).status.success());
    assert!(server.end());
    // Somebody else at that address is not the one that is known.
    let stranger = serve("two", &[]);
    let refused = info(&uri, &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("key"), "{said}");
    assert!(stranger.end());

    let keys = ["a.key", "b.key"].map(|name| folder.path(name));
    for (nth, key) in (1..).zip(&keys) {
        fs::write(key, [nth; 32]).unwrap();
        fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let server = serve("three", &["--key-file", &keys[0]]);
    assert!(info(&uri, &["--key-file", &keys[0]]).status.success());
    assert!(!info(&uri, &["--key-file", &keys[1]]).status.success());
    assert!(server.end());
}

/// A client that goes on for long, in the background.
fn busy(server: &Server) -> Child {
    let options = options(server);
    Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(["nbd", "bench", &server.uri("disk"), "--seconds", "240"])
        .args(&options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A server that tells of its clients.
struct Talking {
    server: Server,
    told: BufReader<ChildStderr>,
}

impl Talking {
    fn start(listen: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.args(["nbd", "serve", "-v", "--export", "disk=mem:8M"]).args(listen);
        let mut server = Server::of(command.stderr(Stdio::piped()));
        let told = BufReader::new(server.child.stderr.take().expect("it is piped"));
        Self { server, told }
    }

    /// Waits until it tells this of a client.
    fn wait_for(&mut self, what: &str) {
        let (started, mut line) = (Instant::now(), String::new());
        while !line.contains(what) {
            line.clear();
            assert!(self.told.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        assert!(started.elapsed() < SOON, "{line}");
    }
}

#[test]
fn a_client_that_is_ended_leaves_its_place_to_others() {
    for listen in [&QUEUE_PAIRS[..], &STP] {
        let mut talking = Talking::start(listen);
        let mut client = busy(&talking.server);
        talking.wait_for("came");
        kill_process(Pid::from_child(&client), Signal::TERM).unwrap();
        assert_eq!(client.wait().unwrap().code(), Some(143));
        talking.wait_for("gone");
        assert!(talking.server.end());
    }
}

#[test]
fn a_server_that_ends_tells_its_clients() {
    for listen in [&QUEUE_PAIRS[..], &STP] {
        let mut talking = Talking::start(listen);
        let mut client = busy(&talking.server);
        talking.wait_for("came");
        assert!(talking.server.end());
        let started = Instant::now();
        assert_eq!(client.wait().unwrap().code(), Some(1));
        assert!(started.elapsed() < SOON);
    }
}
