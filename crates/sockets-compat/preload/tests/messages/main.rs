//! The paper's `socket(PF_INET, SOCK_SEQPACKET, IPPROTO_STP)` from a program in C that
//! knows nothing of us: among its kind, and with `StpSeqPacket` at the other end.

#[path = "../common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::example;
use landfall_testbed::skip_unless;
use sockets_compat::{StpListener, StpSeqPacket};

/// Whatever takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(200);
const PORT: u16 = 7;

fn missing() -> Option<String> {
    let has = Command::new("cc").arg("--version").stdout(Stdio::null()).status();
    has.is_err().then(|| "needs a compiler of C (cc)".to_owned())
}

/// The program, compiled once for all tests of this process.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages/program.c");
        // Anyone who built this may be another user than the one who runs it.
        let user = std::fs::metadata("/proc/self").expect("there is /proc").uid();
        let binary = std::env::temp_dir().join(format!("landfall-messages-in-c-{user}"));
        // Another run may be at it, too: each puts a whole one in the place.
        let own = binary.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_FORTIFY_SOURCE=2", "-o"]);
        let output = compiler.arg(&own).arg(&source).output().expect("cc starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&own, &binary).expect("it can be renamed");
        binary
    })
}

/// A port of UDP that was free a moment ago, so that no test meets another.
fn udp_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.local_addr().expect("it has an address").port()
}

struct Running(Child);

impl Running {
    fn start(role: &'static str, udp: u16) -> Self {
        let mut command = Command::new(program());
        command.args([role, &PORT.to_string()]).env("LANDFALL_STP", format!("udp/{udp}"));
        command.env("LD_PRELOAD", example("libpreload_for_tests.so"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }

    /// A server that listens already.
    fn serve(role: &'static str, udp: u16) -> Self {
        let mut running = Self::start(role, udp);
        let mut line = String::new();
        let stdout = running.0.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it can be read");
        assert_eq!(line, "ready\n", "{}", running.complaints());
        running
    }

    fn complaints(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = self.0.kill();
            let _ = stderr.read_to_string(&mut said);
        }
        said
    }

    /// How it ended.
    fn ended(&mut self) -> std::process::ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "it stands still: {}", self.complaints());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ends_well(mut self) {
        let status = self.ended();
        assert!(status.success(), "{status}: {}", self.complaints());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn both(server: &'static str, client: &'static str) {
    let udp = udp_port();
    let server = Running::serve(server, udp);
    Running::start(client, udp).ends_well();
    server.ends_well();
}

#[test]
fn each_write_is_one_transfer_and_each_read_a_whole_one() {
    skip_unless!(missing());
    both("serve_echo", "ask_echo");
}

#[test]
fn what_the_receiver_refuses_is_message_too_long() {
    skip_unless!(missing());
    both("serve_limit", "ask_limit");
}

#[test]
fn readiness_and_calls_that_do_not_wait() {
    skip_unless!(missing());
    both("serve_ready", "ask_ready");
}

#[test]
fn children_go_on_and_accept() {
    skip_unless!(missing());
    both("serve_forks", "ask_forks");
}

#[test]
fn the_last_words_of_a_program_arrive() {
    skip_unless!(missing());
    both("serve_last_words", "ask_last_words");
}

#[test]
fn time_limits_and_streams_of_c() {
    skip_unless!(missing());
    both("serve_late", "ask_late");
}

#[test]
fn many_connections_leave_nothing_behind() {
    skip_unless!(missing());
    both("serve_often", "ask_often");
}

#[test]
fn a_killed_peer_is_an_error_in_time() {
    skip_unless!(missing());
    let udp = udp_port();
    let mut server = Running::serve("serve_then_die", udp);
    Running::start("ask_one_who_dies", udp).ends_well();
    assert!(!server.ended().success());
}

#[test]
fn a_port_is_taken_while_somebody_listens() {
    skip_unless!(missing());
    Running::serve("listen_twice", udp_port()).ends_well();
}

#[test]
fn nobody_listens_there() {
    skip_unless!(missing());
    let udp = udp_port();
    // Somebody has that port of UDP, but not that of STP.
    let _other = StpListener::bind(format!("stp://127.0.0.1:{}/udp/{udp}", PORT + 1)).unwrap();
    Running::start("ask_nobody", udp).ends_well();
}

#[test]
fn without_the_library_there_is_no_such_socket() {
    skip_unless!(missing());
    let mut alone = Command::new(program());
    let status = alone.args(["no_such_socket", "7"]).status().expect("it starts");
    assert!(status.success());
    let mut off = Command::new(program());
    off.args(["no_such_socket", "7"]).env("LANDFALL_SOCKETS", "off");
    off.env("LD_PRELOAD", example("libpreload_for_tests.so"));
    assert!(off.status().expect("it starts").success());
}

#[test]
fn a_program_of_c_and_one_of_ours_understand_each_other() {
    skip_unless!(missing());
    let udp = udp_port();
    let address = format!("stp://127.0.0.1:{PORT}/udp/{udp}");
    let server = Running::serve("serve_echo", udp);
    let socket = StpSeqPacket::connect(&address).unwrap();
    for len in [1, 40_000, 700_000] {
        let message: Vec<u8> = (0..len).map(|at: usize| (at * 7 + at / 256) as u8).collect();
        assert_eq!(socket.send(&message).unwrap(), len);
        assert_eq!(socket.recv_message().unwrap().unwrap(), message);
    }
    drop(socket);
    server.ends_well();

    let listener = StpListener::bind(&address).unwrap();
    let client = Running::start("ask_echo", udp);
    listener.set_accept_timeout(Some(PATIENCE)).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    while let Some(message) = socket.recv_message().unwrap() {
        socket.send(&message).unwrap();
    }
    drop(socket);
    client.ends_well();
}
