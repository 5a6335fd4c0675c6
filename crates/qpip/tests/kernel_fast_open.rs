//! TCP Fast Open (RFC 7413) with the kernel's, which Python asks for: a client that asks for
//! a cookie, and then sends with its opening, and a server that takes that.

use std::process::{Command, Output, Stdio};

use landfall_testbed::{privileges, skip_unless};
use landfall_transport::packet::PacketDriver;
use qpip::{CloseReason, Config};

use crate::station::Station;
use crate::station::conversation::{Echo, Script};
use crate::station::exchange::PORT;
use crate::station::kernel::{Kernel, Task};
use crate::station::net::Cable;

/// Opens twice with data, and hears it again each time.
const CLIENT: &str = "
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
kind = socket.AF_INET6 if ':' in host else socket.AF_INET
for n in range(2):
    end = socket.socket(kind, socket.SOCK_STREAM)
    said = b'%d' % n * 700
    end.sendto(said, socket.MSG_FASTOPEN, (host, port))
    end.settimeout(60)
    heard = b''
    while len(heard) < len(said):
        heard += end.recv(4096)
    assert heard == said
    end.shutdown(socket.SHUT_WR)
    assert end.recv(1) == b''
";

/// Says again what two clients say.
const SERVER: &str = "
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
kind = socket.AF_INET6 if ':' in host else socket.AF_INET
listener = socket.socket(kind, socket.SOCK_STREAM)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
listener.settimeout(60)
listener.bind((host, port))
listener.listen(5)
print('listens', flush=True)
for n in range(2):
    end, _ = listener.accept()
    end.settimeout(60)
    while True:
        heard = end.recv(4096)
        if not heard:
            break
        end.sendall(heard)
    end.close()
";

fn why_not() -> Option<String> {
    match Command::new("python3").arg("--version").stdin(Stdio::null()).output() {
        Err(error) => Some(format!("needs python3: {error}")),
        Ok(_) => privileges::why_no_namespaces(),
    }
}

/// A program of the kernel's side. No program may take longer than tests do.
fn python(kernel: &Kernel, program: &'static str, at: std::net::SocketAddr) -> Task<Output> {
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    kernel.task(move || {
        let mut command = Command::new("timeout");
        command.args(["100", "python3", "-c", program, &host, &port]).stdin(Stdio::null()).output()
    })
}

#[track_caller]
fn finish(task: Task<Output>, station: &mut Station<PacketDriver>) {
    let output = task.join(station);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
}

fn fast() -> Config {
    let mut config = Config::default();
    config.tcp.fast_open = true;
    config
}

/// A counter of the kernel's TCP.
fn counter(kernel: &Kernel, name: &str) -> u64 {
    let path = "/proc/thread-self/net/netstat";
    let text = kernel.namespace.enter(|| std::fs::read_to_string(path)).unwrap().unwrap();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("TcpExt: "))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let at = lines[0].iter().position(|known| *known == name).unwrap();
    lines[1][at].parse().unwrap()
}

#[test]
fn a_kernel_sends_with_its_second_opening_and_the_station_takes_it() {
    skip_unless!(why_not());
    let cable = Cable::new();
    cable.kernel.sysctl("ipv4/tcp_fastopen", "3");
    for is_ipv4 in [true, false] {
        let mut station = cable.station_as(fast(), |config| config);
        let at = station.at(is_ipv4, PORT);
        let listener = station.listen(at);
        let pairs = [(); 2].map(|()| station.offer(listener, Echo::default()));
        finish(python(&cable.kernel, CLIENT, at), &mut station);
        for pair in pairs {
            let report = station.finish(pair);
            assert_eq!((report.received, report.closed), (700, Some(CloseReason::Finished)));
        }
        let stats = *station.adapter.stats();
        assert_eq!((stats.accepted, stats.fast_opened), (2, 1), "the first asks for a cookie");
    }
}

#[test]
fn the_station_sends_with_its_second_opening_and_a_kernel_takes_it() {
    skip_unless!(why_not());
    let cable = Cable::new();
    cable.kernel.sysctl("ipv4/tcp_fastopen", "3");
    for is_ipv4 in [true, false] {
        let mut station = cable.station_as(fast(), |config| config);
        let at = std::net::SocketAddr::new(cable.kernel.address(is_ipv4), PORT);
        let before = counter(&cable.kernel, "TCPFastOpenPassive");
        let server = python(&cable.kernel, SERVER, at);
        let mut answered = 0;
        while answered < 2 {
            let script = Script::default();
            script.tell(&[b'a' + answered; 900]);
            let pair = station.connect_saying(at, script.clone());
            station.until("it is answered, or refused", |station| {
                script.0.borrow().heard.len() == 900 || station.is_over(pair)
            });
            // Until Python listens it refuses.
            if station.is_over(pair) {
                station.turn_for(std::time::Duration::from_millis(50));
                continue;
            }
            assert_eq!(script.0.borrow().heard, [b'a' + answered; 900]);
            script.0.borrow_mut().end = true;
            assert_eq!(station.finish(pair).closed, Some(CloseReason::Finished));
            answered += 1;
        }
        finish(server, &mut station);
        let passive = counter(&cable.kernel, "TCPFastOpenPassive") - before;
        assert_eq!(passive, 1, "the first asks for a cookie");
    }
}
