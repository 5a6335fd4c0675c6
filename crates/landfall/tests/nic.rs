//! Simulated adapters as a transport: between two endpoints of a process, and in front of
//! real paths. Under the examples, as they are, they are in `nic_examples`.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use landfall::nic::{Pace, Wire, WireConfig};
use landfall::qpip;
use landfall::stp::{Endpoint, Memory, Peer, Transport};
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
