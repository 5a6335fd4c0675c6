//! Simulated adapters as a transport: between two endpoints of a process, and under the
//! examples, as they are, by configuration.

#[path = "support/mod.rs"]
mod support;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall::nic::{Pace, VARIABLE, Wire, WireConfig};
use landfall::qpip;
use landfall::stp::{Endpoint, Memory, Peer, Transport};
use landfall_testbed::skip_unless;
use support::{PORT, memory_with, noise, run, within};

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

// ---- The examples, as they are ----------------------------------------------------

/// Runs an example of this crate over simulated adapters, and gives what it printed.
fn example(name: &str, arguments: &[&str]) -> Result<String, String> {
    let Some(path) = built(name) else { return Err(format!("{name} is not built")) };
    let mut child = Command::new(path)
        .args(arguments)
        .env(VARIABLE, "nic")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let is_over = wait(&mut child);
    let mut said = String::new();
    let out = child.stdout.as_mut().expect("it is piped");
    out.read_to_string(&mut said).expect("an example prints text");
    let mut complained = String::new();
    let error = child.stderr.as_mut().expect("it is piped");
    error.read_to_string(&mut complained).expect("an example prints text");
    if is_over { Ok(said) } else { Err(format!("{name} said:\n{said}{complained}")) }
}

/// Did it end well, and within the time that it gets? It prints less than a pipe holds.
fn wait(child: &mut Child) -> bool {
    let until = Instant::now() + Duration::from_secs(300);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
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

fn says(name: &str, arguments: &[&str], what: &[&str]) {
    let said = example(name, arguments).unwrap_or_else(|error| panic!("{error}"));
    for what in what {
        assert!(said.contains(what), "{name} does not say {what:?}, but\n{said}");
    }
}

#[test]
fn the_example_bulk_runs_over_adapters() {
    skip_unless!(why_not("bulk"));
    says("bulk", &["8", "256"], &["the hashes are equal"]);
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

#[test]
fn a_transport_that_there_is_not_is_refused_in_clear_words() {
    skip_unless!(why_not("bulk"));
    let path = built("bulk").expect("it was there");
    let child = Command::new(path).arg("1").env(VARIABLE, "pigeons").output().expect("it runs");
    let complained = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && complained.contains("LANDFALL_TRANSPORT=pigeons"));
    assert!(complained.contains("`nic`"), "{complained}");
}
