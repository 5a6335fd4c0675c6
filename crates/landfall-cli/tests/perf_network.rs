//! `perf server` and `perf client` end to end: two programs over loopback, whatever the
//! speed of the machine.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall_testkit::TemporaryFolder;
use serde_json::Value;

use crate::common::{json, landfall, schema};

/// Long for whatever a test waits for, on however slow a machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A server of its own, at a port that the kernel chose.
struct Server {
    child: Child,
    port: String,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        Self::of(&[&["--listen", "127.0.0.1"][..], more].concat())
    }

    fn of(more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(["perf", "server", "--port", "0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let port = line.trim().rsplit_once(':').unwrap_or_else(|| panic!("{line}")).1.to_owned();
        Self { child, port, stdout }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port.parse().unwrap())).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn client(&self, more: &[&str]) -> std::process::Output {
        self.client_at("127.0.0.1", more)
    }

    fn client_at(&self, host: &str, more: &[&str]) -> std::process::Output {
        let short = ["--rounds", "1", "--seconds", "0.05", "--json"];
        let to = ["perf", "client", host, "--port", &self.port];
        landfall(&[&to[..], &short, more].concat())
    }

    /// A client is served, as soon as the server is done with one that went away.
    fn serves(&self) {
        let started = Instant::now();
        loop {
            let output = self.client(&["--protocol", "tcp"]);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.code() == Some(0) {
                return;
            }
            assert!(text.contains("another client") && started.elapsed() < LIMIT, "{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// As Ctrl-C does; gives the exit code and the rest of what it said.
    fn interrupt(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().unwrap()
}

#[test]
fn every_protocol_is_measured_between_two_programs_and_ctrl_c_ends_the_server() {
    let server = Server::start(&[]);
    let output = server.client(&[]);
    let report = json(&output);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{problems}\n{report:#}");
    schema::check_settings(&report["machine"]);
    assert_eq!(report["machine"]["link"], "network");
    assert_eq!(report["machine"]["server"]["kernel"], report["machine"]["kernel"]);
    let mut seen = BTreeSet::new();
    for row in rows(&report) {
        schema::check(row, "A row");
        assert!(row["ratio_to_tcp"].as_f64() > Some(0.0), "{row:#}");
        let (protocol, mode) = (row["protocol"].as_str().unwrap(), row["mode"].as_str().unwrap());
        seen.insert((protocol, mode));
        let figure =
            if mode == "latency" { &row["rtt_ns_p50"] } else { &row["goodput_bytes_per_s"] };
        assert!(figure.as_f64() > Some(0.0), "{row:#}");
    }
    let expected = ["stp", "qpip", "tcp", "udp"]
        .into_iter()
        .flat_map(|protocol| ["throughput", "latency"].map(|mode| (protocol, mode)));
    assert_eq!(seen, expected.collect());
    let (code, rest) = server.interrupt();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("done") && rest.ends_with("ended\n"), "{rest}");
}

#[test]
fn a_report_has_both_machines_and_all_rows_and_no_names() {
    let server = Server::start(&[]);
    let folder = TemporaryFolder::new("report");
    let page = folder.path().join("page.md");
    let to = ["perf", "report", "127.0.0.1", "--port", &server.port, "--page"];
    let short = ["--rounds", "1", "--seconds", "0.05", "--message", "1K", "--json"];
    let output = landfall(&[&to[..], &[page.to_str().unwrap()], &short].concat());
    let problems = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{problems}");
    assert!(problems.contains("page.md is written"), "{problems}");

    let text = std::fs::read_to_string(&page).unwrap();
    for part in ["| processor", "## Throughput", "## Round trips", "no card, ", "× TCP"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let names = ["tcp", "udp", "stp/udp", "stp/udp, encrypted", "qpip/tunnel"];
    for name in names {
        assert!(text.lines().any(|line| line.contains(name)), "{name}:\n{text}");
    }
    assert!(!text.contains("127.0.0.1"), "addresses are nobody's business:\n{text}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!text.contains(host.trim()), "{text}");
    // The block at the end is what --json prints.
    let (_, block) = text.split_once("```json\n").unwrap();
    let block: Value = serde_json::from_str(block.trim_end().trim_end_matches("```")).unwrap();
    assert_eq!(block, json(&output));
    schema::check_settings(&block["machine"]);
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_anything_is_measured() {
    let missing = "/no-such-folder/page.md";
    for (page, why) in [(missing, "there is no folder"), ("/tmp", "that is a folder")] {
        let output = landfall(&["perf", "report", "127.0.0.1", "--port", "1", "--page", page]);
        let problems = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{problems}");
        assert!(problems.contains(why), "{problems}");
    }
}

/// As people start it: nothing is said of an address, and clients come by IPv4 and by IPv6.
#[test]
fn a_server_at_all_addresses_measures_with_clients_of_either_family() {
    let server = Server::of(&[]);
    let hosts = ["127.0.0.1", "::1"];
    let usable = hosts.into_iter().filter(|host| std::net::UdpSocket::bind((*host, 0)).is_ok());
    for host in usable {
        let output = server.client_at(host, &["--protocol", "stp,udp"]);
        let report = json(&output);
        let problems = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{host}: {problems}\n{report:#}");
        let seen: BTreeSet<_> =
            rows(&report).iter().map(|row| row["protocol"].as_str().unwrap()).collect();
        assert_eq!(seen, BTreeSet::from(["stp", "tcp", "udp"]), "{host}: {report:#}");
    }
    let (_, said) = server.interrupt();
    assert!(said.contains("\n127.0.0.1:"), "clients are called what they are:\n{said}");
}

#[test]
fn options_reach_the_other_side() {
    let server = Server::start(&[]);
    let more = ["--connections", "3", "--loss", "0.01", "--message", "64K", "--workload", "touch"];
    let report = json(&server.client(&[&more[..], &["--protocol", "stp,tcp,clan"]].concat()));
    let throughput = rows(&report).iter().filter(|row| row["mode"] == "throughput");
    for row in throughput.clone() {
        assert_eq!((&row["connections"], &row["message_bytes"]), (&3.into(), &65_536.into()));
        assert_eq!(row["loss"], if row["protocol"] == "stp" { 0.01 } else { 0.0 }, "{row:#}");
    }
    let touched = throughput.filter(|row| row["workload"] == "touch");
    let touched: BTreeSet<_> = touched.map(|row| row["protocol"].as_str().unwrap()).collect();
    assert_eq!(touched, BTreeSet::from(["stp", "tcp"]));
    let absent = report["machine"]["absent"].as_array().unwrap();
    assert!(absent.iter().any(|row| row["protocol"] == "clan"), "{absent:#?}");
}

#[test]
fn a_protocol_that_the_server_does_not_offer_is_absent_with_its_reason() {
    let server = Server::start(&["--protocol", "tcp,udp"]);
    let report = json(&server.client(&["--protocol", "stp,udp"]));
    let protocols: BTreeSet<_> =
        rows(&report).iter().map(|row| row["protocol"].as_str().unwrap()).collect();
    assert_eq!(protocols, BTreeSet::from(["tcp", "udp"]));
    let absent = report["machine"]["absent"].as_array().unwrap();
    let refused = absent.iter().find(|row| row["protocol"] == "stp").unwrap();
    assert!(refused["reason"].as_str().unwrap().contains("does not offer"), "{refused}");
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let server = Server::start(&[]);
    let port = server.port.clone();
    drop(server);
    for host in ["127.0.0.1", "no-such-host.invalid"] {
        let output = landfall(&["perf", "client", host, "--port", &port]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(host), "{text}");
        assert!(text.contains("perf server") || text.contains("no host"), "{text}");
    }
}

/// What a server of another version would answer, and what is no server at all.
#[test]
fn strangers_are_told_apart_at_both_ends() {
    let server = Server::start(&[]);
    let words = [
        ("{\"say\":\"hello\",\"landfall_perf\":999,\"version\":\"9.9.9\"}\n", "one version"),
        ("{\"say\":\"over\"}\n", "first word"),
        ("GET / HTTP/1.1\r\n\r\n", ""),
    ];
    for (word, answer) in words {
        let started = Instant::now();
        let said = loop {
            let mut stream = server.connect();
            stream.write_all(word.as_bytes()).unwrap();
            let mut said = String::new();
            // It may hang up with words of ours unread.
            let _ = stream.read_to_string(&mut said);
            if !said.contains("another client") || started.elapsed() > LIMIT {
                break said;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(said.contains(answer), "{word}: {said}");
        assert!(!said.contains("offer"), "{word}: {said}");
    }
    server.serves();

    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let answers = std::thread::spawn(move || {
        for line in ["220 mail.example ESMTP\r\n", "{\"say\":\"refused\",\"reason\":\"too old\"}\n"]
        {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            // Until the client hangs up.
            let _ = stream.read_to_string(&mut String::new());
        }
    });
    for word in ["that is no `landfall perf server`", "refuses: too old"] {
        let output = landfall(&["perf", "client", "127.0.0.1", "--port", &port]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(word), "{text}");
    }
    answers.join().unwrap();
}

#[test]
fn a_client_that_is_killed_leaves_a_server_for_the_next() {
    let server = Server::start(&[]);
    for protocol in ["stp", "udp", "tcp"] {
        let mut client = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(["perf", "client", "127.0.0.1", "--port", &server.port])
            .args(["--protocol", protocol, "--seconds", "600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // In the midst of something, whatever it is.
        std::thread::sleep(Duration::from_millis(300));
        client.kill().unwrap();
        client.wait().unwrap();
        server.serves();
    }
}

#[test]
fn a_server_that_is_killed_is_missed_and_told() {
    let mut server = Server::start(&[]);
    let mut client = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(["perf", "client", "127.0.0.1", "--port", &server.port, "--seconds", "600"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    server.child.kill().unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = client.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            client.kill().unwrap();
            panic!("it waits for a server that is gone");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut text = String::new();
    client.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("server"), "{text}");
}

#[test]
fn one_client_at_a_time_and_the_other_is_told() {
    let server = Server::start(&[]);
    let mut first = server.connect();
    let hello = "{\"say\":\"hello\",\"landfall_perf\":3,\"version\":\"";
    writeln!(first, "{hello}{}\"}}", env!("CARGO_PKG_VERSION")).unwrap();
    let mut line = String::new();
    BufReader::new(first.try_clone().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("hello"), "{line}");
    let output = server.client(&[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("another client"), "{text}");
    drop(first);
    server.serves();
}
