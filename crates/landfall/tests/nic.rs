//! Simulated adapters as a transport: between two endpoints of a process, and in front of
//! real paths. The examples run over them, too: as they are, by configuration.
//! Each example has a test. For an ordinary user those that need privileges skip with one
//! line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::stp::{PORT, memory_with};
use crate::support::{PATIENCE, noise, run, within};
use landfall::nic::{Pace, VARIABLE, Wire, WireConfig};
use landfall::qpip;
use landfall::stp::{Endpoint, Memory, Peer, Transport};
use landfall_testbed::{Namespace, require_namespaces, skip_unless};

const LEN: usize = 3 << 20;

fn endpoint(wire: &Wire, nodes: &[u32]) -> Endpoint {
    let path = |node: &u32| Transport::nic(wire, Peer::Node(*node), Pace::Free);
    let builder = nodes.iter().fold(Endpoint::builder(), |builder, node| builder.path(path(node)));
    builder.bind().expect("nobody has these addresses")
}

/// The adapters place all Data: nothing of it is copied by the processor.
#[test]
fn a_transfer_over_two_adapters_each_lands_where_it_belongs() {
    run(async {
        let wire = Wire::new(WireConfig::default());
        let (sender, receiver) = (endpoint(&wire, &[1, 2]), endpoint(&wire, &[3, 4]));
        let listener = receiver.listen(PORT).expect("the port is free");
        let connection = within(sender.connect(Peer::Node(3), PORT)).await.expect("connected");
        connection.add_link(sender.paths()[1], Peer::Node(4)).expect("the other path");
        let accepted = within(listener.accept()).await.expect("accepted");
        let bytes = noise(1, LEN);
        let taking = accepted.receive(Memory::zeroed(LEN)).start();
        within(connection.send(memory_with(&bytes))).await.expect("sent");
        let message = within(taking).await.expect("received");
        assert!(message[..] == bytes[..], "every byte, once, at its place");
        let counters = receiver.stats().paths.iter().map(|path| path.counters).collect::<Vec<_>>();
        let placed: u64 = counters.iter().map(|counters| counters.payload_bytes).sum();
        let copied: u64 = counters.iter().map(|counters| counters.bytes_copied).sum();
        assert!(placed >= LEN as u64 && counters.iter().all(|path| path.guessed_right > 100));
        assert_eq!(copied, 0, "of {placed} bytes");
        within(connection.close()).await.expect("closed");
    });
}

/// At the pace of the papers' adapters frames may be lost where this machine looks too
/// late: whatever happens, the bytes are right.
#[test]
fn the_pace_of_the_papers_changes_no_byte() {
    run(async {
        let wire = Wire::new(WireConfig::default());
        let bind = |node| {
            let path = Transport::nic(&wire, Peer::Node(node), Pace::Period);
            Endpoint::builder().path(path).bind().expect("nobody has this address")
        };
        let (sender, receiver) = (bind(1), bind(2));
        let listener = receiver.listen(PORT).expect("the port is free");
        let connection = within(sender.connect(Peer::Node(2), PORT)).await.expect("connected");
        let accepted = within(listener.accept()).await.expect("accepted");
        let bytes = noise(2, LEN / 8);
        let taking = accepted.receive(Memory::zeroed(bytes.len())).start();
        within(connection.send(memory_with(&bytes))).await.expect("sent");
        let message = within(taking).await.expect("received");
        assert!(message[..] == bytes[..], "every byte, once, at its place");
    });
}

/// Paths with cards in front of them reach those that have none, and the other way round.
#[test]
fn a_card_before_a_path_changes_nothing_for_the_other_side() {
    run(async {
        let path = || Transport::udp("127.0.0.1:0".parse().expect("an address"));
        for is_sender in [true, false] {
            let behind = |wanted: bool| match wanted {
                true => path().behind_nic(Pace::Free),
                false => path(),
            };
            let bind = |path| Endpoint::builder().path(path).bind().expect("loopback");
            let (sender, receiver) = (bind(behind(is_sender)), bind(behind(!is_sender)));
            let listener = receiver.listen(PORT).expect("the port is free");
            let to = receiver.local().expect("UDP has an address");
            let connection = within(sender.connect(to, PORT)).await.expect("connected");
            let accepted = within(listener.accept()).await.expect("accepted");
            let bytes = noise(4, LEN);
            let taking = accepted.receive(Memory::zeroed(LEN)).start();
            within(connection.send(memory_with(&bytes))).await.expect("sent");
            let message = within(taking).await.expect("received");
            assert!(message[..] == bytes[..], "every byte, once, at its place");
            if !is_sender {
                let counters = receiver.stats().paths[0].counters;
                // A unit has less than 64 KiB.
                let least = LEN as u64 >> 16;
                assert!(counters.guessed_right >= least, "the card placed: {counters:?}");
            }
            within(connection.close()).await.expect("closed");
        }
    });
}

/// Datagrams that cross in fragments have one checksum, which the card cannot compute.
#[test]
fn datagrams_longer_than_a_frame_leave_a_card_whole() {
    use qpip::{Access, Adapter, Link, QueuePairOptions, Status};

    const BYTES: usize = 5_000;
    let wire = Wire::new(WireConfig::default());
    let open = |address: &str| {
        let link = Link::nic(&wire, 1_514, Pace::Free);
        Adapter::builder().link(link).address(address).open().expect("a card")
    };
    let (one, two) = (open("10.0.0.1/24"), open("10.0.0.2/24"));
    let side = |adapter: &Adapter, at: &str, memory| {
        let domain = adapter.domain().expect("a domain");
        let done = adapter.completion_queue(16).expect("a queue");
        let mut pair = domain.queue_pair(&QueuePairOptions::udp(), &done, &done).expect("a pair");
        let at = pair.bind(at.parse().expect("an address")).expect("free");
        let region = domain.register(memory, Access::ReadWrite).expect("registered");
        (pair, at, region, done, domain)
    };
    let bytes = noise(5, BYTES);
    let (mut there, to, target, mut received, _domain) =
        side(&two, "10.0.0.2:7", Memory::zeroed(BYTES));
    there.post_receive(1, &[target.part(0..BYTES as u64).expect("all")]).expect("posted");
    let (mut here, _, source, _sent, _other) = side(&one, "10.0.0.1:7", memory_with(&bytes));
    here.post_send_to(2, &[source.part(0..BYTES as u64).expect("all")], to).expect("posted");
    let came = received.wait_for(Duration::from_secs(60)).expect("it goes on").expect("it comes");
    assert_eq!((came.status, came.len as usize), (Status::Success, BYTES));
    let mut found = vec![0; BYTES];
    target.copy_out(0, &mut found).expect("all of it");
    assert!(found == bytes, "every byte, once, at its place");
}

#[test]
fn an_address_that_somebody_has_is_refused_by_name() {
    let wire = Wire::new(WireConfig::default());
    let _first = endpoint(&wire, &[1]);
    let path = Transport::nic(&wire, Peer::Node(1), Pace::Free);
    let refused = Endpoint::builder().path(path).bind().expect_err("it is taken").to_string();
    assert!(refused.contains("a simulated adapter at node 1"), "{refused}");
    assert!(refused.contains("plugged in already"), "{refused}");
}

/// A message over a connection of queue pairs: the cards place it.
#[test]
fn messages_of_queue_pairs_land_in_the_posted_memory() {
    use qpip::{Access, Adapter, Link, Mapping, QueuePairOptions, Status};

    const BYTES: usize = 60_000;
    let wire = Wire::new(WireConfig::default());
    let open = |address: &str| {
        let link = Link::nic(&wire, 1_514, Pace::Free);
        Adapter::builder().link(link).address(address).open().expect("a card")
    };
    let (client, server) = (open("10.0.0.1/24"), open("10.0.0.2/24"));
    let side = |adapter: &Adapter, memory| {
        let domain = adapter.domain().expect("a domain");
        let done = adapter.completion_queue(16).expect("a queue");
        let options = QueuePairOptions::tcp(Mapping::Message);
        let pair = domain.queue_pair(&options, &done, &done).expect("a pair");
        let region = domain.register(memory, Access::ReadWrite).expect("registered");
        (pair, region, done, domain)
    };
    let bytes = noise(3, BYTES);
    let (mut there, target, mut received, _domain) = side(&server, Memory::zeroed(BYTES));
    there.post_receive(7, &[target.part(0..BYTES as u64).expect("all")]).expect("posted");
    let listener = server.listen("10.0.0.2:7000".parse().expect("an address")).expect("free");
    listener.offer(there).expect("offered");
    let (mut here, source, mut sent, _other) = side(&client, memory_with(&bytes));
    here.connect("10.0.0.2:7000".parse().expect("an address")).wait().expect("connected");
    there = listener.accept().wait().expect("accepted");
    here.post_send(8, &[source.part(0..BYTES as u64).expect("all")]).expect("posted");

    let limit = Duration::from_secs(60);
    let arrived = received.wait_for(limit).expect("it goes on").expect("it comes");
    assert_eq!((arrived.id, arrived.status, arrived.len as usize), (7, Status::Success, BYTES));
    let left = sent.wait_for(limit).expect("it goes on").expect("it is acknowledged");
    assert_eq!((left.id, left.status), (8, Status::Success));
    let mut found = vec![0; BYTES];
    target.copy_out(0, &mut found).expect("all of it");
    assert!(found == bytes, "every byte, once, at its place");
    drop((here, there));
}

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
    let here = include_str!("nic.rs");
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
    let cable = crate::defrag::cable();
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
