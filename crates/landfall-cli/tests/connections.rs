//! `landfall ss` and `landfall top` beside a program that runs under the library.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall_testbed::skip_unless;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;

use crate::run::{library, why_not};

/// A connection to itself, over which bytes go until its stdin ends.
const PROGRAM: &str = "
import select, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
def move():
    for one, other in ((a, b), (b, a)):
        one.sendall(bytes(1000))
        assert len(other.recv(1000, socket.MSG_WAITALL)) == 1000
for turn in range(9): move()
print(listener.getsockname()[1], flush=True)
while not select.select([0], [], [], 0.01)[0]: move()
";

struct Program {
    child: Child,
    port: u16,
}

impl Program {
    fn start() -> Self {
        let mut command = landfall(&["run", "--", "python3", "-c", PROGRAM]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("it speaks");
        Self { child, port: line.trim().parse().expect("it says its port") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn landfall(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
    command.args(words).env("LANDFALL_PRELOAD", library());
    for name in crate::run::VARIABLES {
        command.env_remove(name);
    }
    command
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(words: &[&str]) -> String {
    text(&landfall(words).output().expect("it starts"))
}

#[test]
fn connections_are_shown_to_people_and_to_programs() {
    skip_unless!(why_not());
    let program = Program::start();
    let port = program.port.to_string();
    let table = said(&["ss", "--port", &port]);
    assert_eq!(table.matches("both ends have the library").count(), 2, "{table}");
    assert!(table.contains(&format!("127.0.0.1:{port} ← 127.0.0.1:")), "{table}");
    assert!(table.ends_with("2 ends: 2 memory\n"), "{table}");

    let json = said(&["ss", "--json", "--port", &port, "--program", "python*"]);
    let report: Value = serde_json::from_str(&json).expect("it is JSON");
    let rows = report["connections"].as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{json}");
    for row in rows {
        assert_eq!((&row["transport"], &row["reason"]), (&"memory".into(), &"both_here".into()));
        assert!(row["sent_bytes"].as_u64() >= Some(9000), "{row}");
        assert!(row["received_bytes"].as_u64() >= Some(9000), "{row}");
        assert!(row.get("sent_per_second").is_none(), "{row}");
    }
    let none = said(&["ss", "--port", &port, "--transport", "tcp"]);
    assert!(none.starts_with("None of ") && none.ends_with(" connections is so.\n"), "{none}");
}

#[test]
fn rates_are_of_the_time_between_two_looks() {
    skip_unless!(why_not());
    let program = Program::start();
    let port = program.port.to_string();
    let json = said(&["top", "--once", "--json", "--port", &port]);
    let report: Value = serde_json::from_str(&json).expect("it is JSON");
    let rows = report["connections"].as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{json}");
    assert!(rows.iter().all(|row| row["sent_per_second"].as_u64() > Some(0)), "{json}");
    let table = said(&["top", "--once", "--port", &port]);
    assert!(table.contains("received/s"), "{table}");
}

/// Waits until a program ends by itself.
fn ends(child: &mut Child) -> Option<i32> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return status.code();
        }
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn it_ends_in_order_at_a_signal() {
    let mut command = landfall(&["top"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    // It has shown something, so it hears signals.
    stdout.read_exact(&mut [0]).expect("it speaks");
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(asked.expect("kill starts").success());
    assert_eq!(ends(&mut child), Some(0));
}

#[test]
fn it_ends_at_a_key_and_leaves_the_terminal_as_it_was() {
    let has_setsid = Command::new("setsid").arg("--version").output().is_ok();
    skip_unless!((!has_setsid).then(|| "needs the program setsid".to_owned()));
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let mut master = File::from(master);
    let end = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let (stdin, stdout, kept) = (end(), end(), end());
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_landfall"), "top"]);
    let mut child = command.stdin(stdin).stdout(stdout).spawn().expect("it starts");
    let mut shown = Vec::new();
    while !shown.ends_with(b"\x1b[J") {
        let mut byte = [0];
        master.read_exact(&mut byte).expect("it draws");
        shown.extend(byte);
    }
    let modes = || tcgetattr(&kept).unwrap().local_modes;
    assert!(!modes().contains(LocalModes::ICANON), "keys count at once");
    master.write_all(b"q").expect("it can be typed");
    assert_eq!(ends(&mut child), Some(0));
    assert!(modes().contains(LocalModes::ICANON | LocalModes::ECHO));
}

#[test]
fn prometheus_reads_how_connections_go_and_why() {
    skip_unless!(why_not());
    let program = Program::start();
    let port = program.port.to_string();
    let words = ["top", "--metrics", "127.0.0.1:0", "--port", &port];
    let mut child = landfall(&words).stdout(Stdio::piped()).spawn().expect("it starts");
    let stdout: ChildStdout = child.stdout.take().expect("it is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("it speaks");
    let at = line.trim().strip_prefix("metrics at http://").expect("it says where");
    let at = at.strip_suffix("/metrics").expect("it says where");
    let fetch = || {
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it hears");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let until = Instant::now() + Duration::from_secs(20);
    let answer = loop {
        let answer = fetch();
        // Bytes are those since the first look.
        let moved = "landfall_sockets_bytes_total{program=\"python3";
        let has_bytes = answer.lines().any(|line| {
            line.starts_with(moved)
                && line.contains("transport=\"memory\",direction=\"sent\"")
                && !line.ends_with(" 0")
        });
        if has_bytes || Instant::now() > until {
            break answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let _ = child.kill();
    let _ = child.wait();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let both = "transport=\"memory\",reason=\"both_here\"} 2";
    let line =
        answer.lines().find(|line| line.starts_with("landfall_sockets_connections{program="));
    assert!(line.is_some_and(|line| line.ends_with(both)), "{answer}");
    assert!(answer.contains("# TYPE landfall_sockets_bytes_total counter"), "{answer}");
}
