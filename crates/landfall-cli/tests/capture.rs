//! `landfall capture` as people use it; tshark reads what it writes.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall::stp::Transport;
use landfall::stp::blocking::Endpoint;
use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces};
use landfall_testkit::{TemporaryFolder, tshark};
use serde_json::Value;

use crate::common::landfall;

const PATIENCE: Duration = Duration::from_secs(60);

/// A capture's file, which goes with the test.
struct Sheet {
    file: PathBuf,
    _folder: TemporaryFolder,
}

impl Sheet {
    fn new(name: &str) -> Self {
        let folder = TemporaryFolder::new(name);
        Self { file: folder.join("capture.pcapng"), _folder: folder }
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// How many frames of it pass this filter, as tshark sees it; none where there is no
    /// tshark.
    fn count(&self, filter: &str) -> Option<usize> {
        let options = ["-X", &tshark::script("stp"), "-Y", filter];
        Some(tshark::fields(&self.file, &["frame.number"], &options)?.len())
    }
}

/// What it says about the capture: the last line on stderr.
fn summary(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_str(said.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {said}"))
}

#[test]
fn what_a_command_sends_and_receives_is_recorded() {
    require_namespaces!();
    let sheet = Sheet::new("command");
    let words = ["capture", "--json", "--most", "64", "--out", sheet.path(), "--"];
    let output = landfall(&[&words[..], &["demo", "--quick", "--json"]].concat());
    // The command's own output is its own.
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["acts"].is_array());
    let summary = summary(&output);
    let frames = summary["frames"].as_u64().unwrap() as usize;
    assert_eq!(summary["file_bytes"], fs::metadata(sheet.path()).unwrap().len());
    assert!(frames > 100, "{summary}");
    let Some(all) = sheet.count("frame") else { return };
    assert_eq!(all, frames);
    let (tcp, udp) = (sheet.count("tcp").unwrap(), sheet.count("udp").unwrap());
    assert!(tcp > 0 && udp > 0, "{tcp} by TCP, {udp} by UDP");
}

/// Runs `capture` around a service at one end of a cable, and a client at the other.
fn around_a_service(cable: &VethPair, sheet: &Sheet, words: &str, client: impl Fn()) -> Value {
    let start = || {
        let mut capture = Command::new(env!("CARGO_BIN_EXE_landfall"));
        capture.args(["capture", "--json", "--seconds", "100", "--out", sheet.path()]);
        capture.args(["--interface", &cable.a.name]).args(words.split(' '));
        capture.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
    };
    let capture = cable.a.namespace.enter(start).unwrap().unwrap();
    client();
    summary(&capture.wait_with_output().unwrap())
}

#[test]
fn on_an_interface_what_is_ours_is_recorded_both_ways() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let sheet = Sheet::new("interface");
    let words = format!("-- serve discard --over stp --once --address {}", cable.a.ipv4);
    let summary = around_a_service(&cable, &sheet, &words, || {
        let path = Transport::udp((cable.b.ipv4, 0).into());
        // The service is plain, and what is captured is to be read.
        let builder = Endpoint::builder().path(path).plaintext();
        let endpoint = cable.b.namespace.enter(|| builder.bind()).unwrap().unwrap();
        let endpoint = Endpoint::from(endpoint);
        let to = SocketAddr::from((cable.a.ipv4, 8181));
        let started = Instant::now();
        let connection = loop {
            match endpoint.connect(to, 9) {
                Ok(connection) => break connection,
                // It does not listen yet.
                Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
            }
        };
        // Something of another kind, which nobody asked for.
        other_traffic(&cable.b.namespace, cable.a.ipv4);
        connection.send(vec![7; 100_000]).wait().unwrap();
        connection.close().unwrap();
    });
    let frames = summary["frames"].as_u64().unwrap() as usize;
    assert!(frames > 4 && summary["lost"] == 0, "{summary}");
    let Some(all) = sheet.count("frame") else { return };
    assert_eq!(all, frames);
    assert_eq!(sheet.count("st"), Some(frames));
    let (came, went) = (
        sheet.count("frame.packet_flags_direction == 1"),
        sheet.count("frame.packet_flags_direction == 2"),
    );
    assert!(came > Some(0) && went > Some(0) && came.unwrap() + went.unwrap() == frames);
    assert_eq!(sheet.count("tcp"), Some(0));
}

/// A connection that nobody accepts.
fn other_traffic(from: &Namespace, to: std::net::Ipv4Addr) {
    let refused = || TcpStream::connect_timeout(&(to, 4000).into(), Duration::from_secs(5));
    assert!(from.enter(refused).unwrap().is_err());
}

#[test]
fn a_bound_is_a_bound_and_the_rest_is_counted() {
    require_namespaces!();
    let sheet = Sheet::new("bound");
    let words = ["capture", "--json", "--most", "1", "--snap", "64", "--out", sheet.path()];
    let output = landfall(&[&words[..], &["--", "demo", "--quick", "--json"]].concat());
    let summary = summary(&output);
    assert!(fs::metadata(sheet.path()).unwrap().len() <= 1 << 20);
    assert!(summary["not_written"].as_u64() > Some(0), "{summary}");
    let Some(all) = sheet.count("frame") else { return };
    assert_eq!(all as u64, summary["frames"].as_u64().unwrap());
    assert_eq!(sheet.count("frame.cap_len > 64"), Some(0));
}

#[test]
fn a_command_keeps_its_exit_code_and_mistakes_are_told() {
    require_namespaces!();
    let sheet = Sheet::new("codes");
    let code = |words: &[&str]| {
        let output = landfall(&[&["capture", "--out", sheet.path()], words].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(code(&["--", "demo", "--loud"]).0, Some(2));
    assert_eq!(code(&["--", "doctor"]).0, Some(0));
    let (status, said) = code(&[]);
    assert!(status == Some(1) && said.contains("--interface"), "{said}");
    let (status, said) = code(&["--interface", "no-such-one"]);
    assert!(status == Some(1) && said.contains("no-such-one"), "{said}");
    let output = landfall(&["capture", "--out", "/no/such/folder/x", "--interface", "lo"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("/no/such/folder/x"), "{said}");
}
