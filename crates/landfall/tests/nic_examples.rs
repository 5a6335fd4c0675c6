//! The examples, as they are, by configuration over simulated adapters: each has a test. For
//! an ordinary user those that need privileges skip with one line.

mod defrag_support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use defrag_support::{PATIENCE, noise};
use landfall::nic::VARIABLE;
use landfall_testbed::{Namespace, require_namespaces, skip_unless};

/// `cargo test` builds examples beside tests; with `--test` it does not.
fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let path = test.parent()?.parent()?.join("examples").join(name);
    path.exists().then_some(path)
}

fn why_not(name: &str) -> Option<String> {
    let why = || format!("the example {name} is not built: cargo build -p landfall --examples");
    built(name).is_none().then(why)
}

/// An example that runs, and what it says. It ends with this.
struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Running {
    /// Starts an example with simulated adapters, in the namespace of this thread.
    fn start(name: &str, arguments: &[&str], transport: &str) -> Self {
        let mut child = Command::new(built(name).expect("it was there"))
            .args(arguments)
            .env(VARIABLE, transport)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (tell, lines) = channel();
        let out: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("it is piped"));
        let err: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("it is piped"));
        for stream in [out, err] {
            let tell = tell.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
        }
        Self { name: name.to_owned(), child, lines, said: String::new() }
    }

    /// Waits for a line with these words.
    fn expect(&mut self, words: &str) -> &mut Self {
        let until = Instant::now() + PATIENCE;
        while !self.said.contains(words) {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{} does not say {words:?}, but\n{}", self.name, self.said)
                }
            }
        }
        self
    }

    fn note(&mut self, line: &str) {
        self.said.push_str(line);
        self.said.push('\n');
    }

    /// Waits until it has ended by itself, well, and gives all that it said.
    fn finish(mut self) -> String {
        let until = Instant::now() + PATIENCE;
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            self.note(&line);
        }
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                assert!(status.success(), "{} said:\n{}", self.name, self.said);
                return std::mem::take(&mut self.said);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} does not end; it said:\n{}", self.name, self.said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs an example to its end, in front of the paths that it asks for and, where these are
/// of this process alone anyway, without any.
fn says(name: &str, arguments: &[&str], what: &[&str]) {
    for transport in ["nic", "nic,wire"] {
        let said = Running::start(name, arguments, transport).finish();
        for what in what {
            assert!(said.contains(what), "{name} does not say {what:?}, but\n{said}");
        }
    }
}

/// An example without a test here would be one of which nobody knows.
#[test]
fn each_example_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let here = include_str!("nic_examples.rs");
    for example in std::fs::read_dir(folder).expect("there are examples") {
        let name = example.expect("it is a file").path();
        let name = name.file_stem().and_then(|name| name.to_str()).expect("names are text");
        assert!(here.contains(&format!("fn the_example_{name}_runs_over_")), "{name}");
    }
}

#[test]
fn the_example_bulk_runs_over_adapters() {
    skip_unless!(why_not("bulk"));
    says("bulk", &["8", "256"], &["the hashes are equal"]);
}

#[test]
fn the_example_reactor_runs_over_an_adapter_at_both_ends() {
    skip_unless!(why_not("reactor"));
    says("reactor", &["16"], &["hello from elsewhere", "on one thread"]);
}

#[test]
fn the_example_striping_runs_over_two_adapters_each() {
    skip_unless!(why_not("striping"));
    says("striping", &["16"], &["the second path is dropped", "at both ends"]);
}

#[test]
fn the_example_remote_memory_runs_over_adapters() {
    skip_unless!(why_not("remote_memory"));
    says("remote_memory", &["200"], &["a Get sees 7 and 200", "finds \"the last\" there"]);
}

#[test]
fn the_example_qpip_rpc_runs_over_adapters() {
    skip_unless!(why_not("qpip_rpc"));
    says("qpip_rpc", &[], &["10000 calls, 32 at a time"]);
}

/// The same between two processes: the cards stand in front of tunnels.
#[test]
fn the_example_qpip_rpc_runs_over_adapters_of_two_processes() {
    skip_unless!(why_not("qpip_rpc"));
    // Nobody else has it: it was free just now.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let at = free.local_addr().expect("it is bound").to_string();
    drop(free);
    let mut server = Running::start("qpip_rpc", &["serve", &at], "nic");
    server.expect("serving at");
    let client = Running::start("qpip_rpc", &["call", "127.0.0.1:0", &at], "nic");
    assert!(client.finish().contains("10000 calls"));
    server.finish();
}

#[test]
fn the_example_clan_event_server_runs_over_adapters() {
    skip_unless!(why_not("clan_event_server"));
    says("clan_event_server", &["8"], &["8 endpoints connected", "server: "]);
}

#[test]
fn the_example_clan_queue_runs_over_adapters() {
    skip_unless!(why_not("clan_queue"));
    let what = ["copied in batches too", "stream of 65536-byte messages", "a call and its reply"];
    says("clan_queue", &["2000", "1"], &what);
}

/// The kernel's own socket talks to a queue pair behind a card.
#[test]
fn the_example_qpip_echo_runs_over_an_adapter_and_the_kernels_socket() {
    require_namespaces!();
    skip_unless!(why_not("qpip_echo"));
    let kernel = Namespace::new().expect("a namespace");
    let start = || Running::start("qpip_echo", &["tap", "landfall0"], "nic");
    let mut echo = kernel.enter(start).expect("a thread");
    echo.expect("echo on 10.9.0.2:7");
    let talk = || -> std::io::Result<()> {
        let at = "10.9.0.2:7".parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let bytes = noise(1, 300_000);
        let (mut sender, sent) = (stream.try_clone()?, bytes.clone());
        let sending = std::thread::spawn(move || {
            sender.write_all(&sent)?;
            sender.shutdown(Shutdown::Write)
        });
        let mut came = Vec::new();
        stream.read_to_end(&mut came)?;
        sending.join().expect("no panic")?;
        assert!(came == bytes, "{} bytes came back", came.len());
        Ok(())
    };
    kernel.enter(talk).expect("a thread").expect("it answers");
    echo.expect("accepted");
}

/// A server on the kernel's socket, and a client behind a card.
#[test]
fn the_example_qpip_http_runs_over_an_adapter_and_the_kernels_socket() {
    require_namespaces!();
    skip_unless!(why_not("qpip_http"));
    const BODY: usize = 3_000_000;
    let kernel = Namespace::new().expect("a namespace");
    let arguments = ["tap", "landfall0", "10.9.0.1:8000", "/"];
    let client = kernel.enter(|| Running::start("qpip_http", &arguments, "nic"));
    let client = client.expect("a thread");
    let serve = || {
        let until = Instant::now() + PATIENCE;
        // The address comes with the client's cable.
        let listener = loop {
            match TcpListener::bind("10.9.0.1:8000") {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut asked = String::new();
        let mut lines = BufReader::new(stream.try_clone()?);
        while !asked.ends_with("\r\n\r\n") {
            lines.read_line(&mut asked)?;
        }
        assert!(asked.starts_with("GET / HTTP/1.1"), "{asked}");
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n")?;
        // The client prints it.
        let line = [[b'x'; 999].as_slice(), b"\n"].concat();
        stream.write_all(&line.repeat(BODY / line.len()))
    };
    kernel.enter(serve).expect("a thread").expect("it is asked");
    let said = client.finish();
    assert!(said.contains("200 OK") && said.contains(&format!("({BODY} bytes")), "{said}");
}

/// Pages that a card put behind the descriptors of its list.
#[test]
fn the_example_defrag_pages_runs_over_an_adapter() {
    require_namespaces!();
    skip_unless!(why_not("defrag_pages"));
    let cable = defrag_support::cable();
    let (from, to) = (&cable.a, &cable.b);
    let (here, there) = (format!("{}:7001", from.ipv4), format!("{}:7000", to.ipv4));
    let mac = to.mac.to_string();
    for transport in ["nic", "nic,costs=period"] {
        let arguments = ["receive", &to.name, "7000"];
        let receive = || Running::start("defrag_pages", &arguments, transport);
        let mut receiver = to.namespace.enter(receive).expect("a thread");
        receiver.expect("nic: ");
        let arguments = ["send", &from.name, &here, &there, &mac, "500"];
        let send = || Running::start("defrag_pages", &arguments, transport);
        from.namespace.enter(send).expect("a thread").finish();
        receiver.expect("500 pages, 2048000 bytes; joined without a copy: ");
    }
}

#[test]
fn a_transport_that_there_is_not_is_refused_in_clear_words() {
    skip_unless!(why_not("bulk"));
    let path = built("bulk").expect("it was there");
    let child = Command::new(path).arg("1").env(VARIABLE, "pigeons").output().expect("it runs");
    let complained = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && complained.contains("LANDFALL_TRANSPORT=pigeons"));
    assert!(complained.contains("`nic`"), "{complained}");
}
