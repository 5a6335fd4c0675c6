//! Programs that no one here wrote talk to queue pairs, and queue pairs to them:
//! `curl`, `nc`, `iperf3`, and Python's `http.server`. As an ordinary user, or
//! where one of them is not installed, a test skips with one line.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

use landfall_testbed::{privileges, skip_unless};
use landfall_transport::packet::PacketDriver;
use qpip::CloseReason;

use crate::station::conversation::{Echo, Pattern, Script};
use crate::station::exchange::{PORT, Server, content_length, split_message};
use crate::station::kernel::{Connection, Kernel, Stage, Test};
use crate::station::net::Cable;
use crate::station::{Shape, Station};
use landfall_testkit::TemporaryFolder;

/// Why this program cannot be talked to.
fn why_not(program: &str, ask: &str) -> Option<String> {
    match Command::new(program).arg(ask).stdin(Stdio::null()).output() {
        Err(error) => Some(format!("needs {program}: {error}")),
        Ok(_) => privileges::why_no_namespaces(),
    }
}

fn some_bytes(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pattern::new(11).fill(&mut bytes);
    bytes
}

/// Runs a program of the kernel's side to its end, while the station turns.
#[track_caller]
fn run_to_end(
    station: &mut Station<PacketDriver>,
    kernel: &Kernel,
    stdin: impl Into<Stdio>,
    words: &[&str],
) -> Output {
    // No program may take longer than tests do.
    let mut command = Command::new("timeout");
    command.arg("100").args(words).stdin(stdin);
    let output = kernel.task(move || command.output()).join(station);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {}: {errors}", output.status);
    output
}

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

/// An address as it stands in a URL.
fn in_url(address: SocketAddr) -> String {
    format!("http://{address}/document")
}

#[test]
fn curl_fetches_from_a_queue_pair_and_stores_to_one() {
    skip_unless!(why_not("curl", "--version"));
    let folder = TemporaryFolder::new("curl");
    let document = Rc::new(some_bytes(8 << 20));
    let cable = Cable::new();
    let mut station = cable.station();
    for is_ipv4 in [true, false] {
        let at = station.at(is_ipv4, PORT);
        let (listener, url, stored) = (station.listen(at), in_url(at), Rc::default());
        let fetching = station.offer(listener, Server::new(&document, &stored));
        let curl = ["curl", "--silent", "--show-error", "--noproxy", "*", &url];
        let fetched = run_to_end(&mut station, &cable.kernel, Stdio::null(), &curl);
        assert!(fetched.stdout == *document, "curl got {} bytes", fetched.stdout.len());
        assert_eq!(station.finish(fetching).closed, Some(CloseReason::Finished));

        let storing = station.offer(listener, Server::new(&document, &stored));
        let file = open(&folder.write("upload", &*document));
        let words = [&curl[..], &["--upload-file", "-"]].concat();
        // Of unknown length it would be chunked: say how long it is.
        let path = folder.path().join("upload");
        let words = [&words[..words.len() - 1], &[path.to_str().unwrap()]].concat();
        run_to_end(&mut station, &cable.kernel, file, &words);
        assert!(*stored.borrow() == *document, "{} bytes came", stored.borrow().len());
        assert_eq!(station.finish(storing).closed, Some(CloseReason::Finished));
        station.adapter.stop_listening(listener).unwrap();
    }
}

#[test]
fn nc_talks_to_a_queue_pair_that_echoes() {
    skip_unless!(why_not("nc", "-h"));
    let folder = TemporaryFolder::new("nc");
    let words = some_bytes(4 << 20);
    let cable = Cable::new();
    let mut station = cable.station();
    for is_ipv4 in [true, false] {
        let at = station.at(is_ipv4, PORT);
        let listener = station.listen(at);
        let echoing = station.offer(listener, Echo::default());
        let stdin = open(&folder.write("words", &words));
        let (host, port) = (at.ip().to_string(), at.port().to_string());
        // -N: after the end of its input it says that it has ended.
        let nc = ["nc", "-N", &host, &port];
        let heard = run_to_end(&mut station, &cable.kernel, stdin, &nc);
        assert!(heard.stdout == words, "nc got {} bytes", heard.stdout.len());
        assert_eq!(station.finish(echoing).closed, Some(CloseReason::Finished));
        station.adapter.stop_listening(listener).unwrap();
    }
}

#[test]
fn iperf3_measures_a_queue_pair_both_ways() {
    skip_unless!(why_not("iperf3", "--version"));
    const BYTES: u64 = 32 << 20;
    let cable = Cable::new();
    let mut station = cable.station();
    for (is_ipv4, is_reverse) in [(true, false), (true, true), (false, false), (false, true)] {
        let at = station.at(is_ipv4, PORT);
        let (listener, test) = (station.listen(at), Rc::new(RefCell::new(Test::default())));
        station.shape = Shape::SMALL;
        let control = station.offer(listener, Connection::control(&test));
        station.shape = Shape::BULK;
        let data = station.offer(listener, Connection::data(&test));
        let (host, port, bytes) = (at.ip().to_string(), PORT.to_string(), BYTES.to_string());
        let mut iperf3 = vec!["iperf3", "-c", &host, "-p", &port, "-n", &bytes];
        if is_reverse {
            iperf3.push("-R");
        }
        run_to_end(&mut station, &cable.kernel, Stdio::null(), &iperf3);
        assert_eq!(station.finish(control).closed, Some(CloseReason::Finished));
        station.finish(data);
        assert_eq!((test.borrow().stage, test.borrow().is_reverse), (Stage::Over, is_reverse));
        if !is_reverse {
            assert!(test.borrow().received >= BYTES, "{:?}", test.borrow());
        }
        station.adapter.stop_listening(listener).unwrap();
    }
}

/// A server that ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Serving {
    fn start(kernel: &Kernel, folder: &TemporaryFolder, at: IpAddr) -> io::Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "8000", "--bind", &at.to_string(), "--directory"]);
        command.arg(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        kernel.namespace.enter(|| command.spawn()).unwrap().map(Self)
    }
}

#[test]
fn a_queue_pair_fetches_from_pythons_server() {
    skip_unless!(why_not("python3", "--version"));
    let folder = TemporaryFolder::new("python");
    let document = some_bytes(8 << 20);
    folder.write("document", &document);
    let cable = Cable::new();
    let mut station = cable.station();
    for is_ipv4 in [true, false] {
        let address = cable.kernel.address(is_ipv4);
        let _serving = Serving::start(&cable.kernel, &folder, address).unwrap();
        let at = SocketAddr::new(address, 8000);
        let (mut script, mut tries) = (Script::default(), 0);
        // Until it listens it refuses.
        loop {
            script.tell(b"GET /document HTTP/1.0\r\n\r\n");
            let pair = station.connect(at, script.clone());
            station.until("it is open or refused", |station| {
                let report = station.report(pair);
                report.ends.is_some() || report.closed.is_some()
            });
            if station.report(pair).ends.is_some() {
                let ends = script.clone();
                station.until("the server has said all", |_| ends.0.borrow().heard_end);
                script.0.borrow_mut().end = true;
                assert_eq!(station.finish(pair).closed, Some(CloseReason::Finished));
                break;
            }
            tries += 1;
            assert!(tries < 600, "Python never listens");
            station.turn_for(std::time::Duration::from_millis(100));
            script = Script::default();
        }
        let talk = script.0.borrow();
        let (header, body) = split_message(&talk.heard).unwrap();
        assert!(header.starts_with("HTTP/1.0 200"), "{header}");
        assert_eq!(content_length(&header), Some(document.len()));
        assert!(body == document, "{} bytes came", body.len());
    }
}
