//! Clients of our own, for which nobody needs privileges.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use landfall::clan::network::server::{Client, Shape};
use landfall::clan::network::{HostId, Node, Port, PortAddress, Transport as ClanTransport};
use landfall::qpip::{Access, Adapter, Link, Mapping, Memory, Operation, QueuePairOptions, Status};
use landfall::stp::blocking::Endpoint;
use landfall::stp::{Memory as StpMemory, Transport};
use serde_json::Value;

use super::{PATIENCE, Serving, is_characters, noise};
use crate::common::landfall;

fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

/// A queue pair that talks to a service inside of a tunnel: sends bytes, says that this
/// was all, and hears what comes.
#[test]
fn echo_in_a_tunnel_gives_every_byte_back() {
    const LEN: usize = 200_000;
    let serving = Serving::start("echo --tunnel 127.0.0.1:0 --once -v");
    let inside: SocketAddr = serving.word_behind("at").parse().unwrap();
    let link = Link::tunnel("127.0.0.1:0".parse().unwrap(), [inside]);
    let adapter = Adapter::builder().link(link).address("10.9.0.9/24").open().unwrap();
    let domain = adapter.domain().unwrap();
    let mut done = adapter.completion_queue(64).unwrap();
    let options = QueuePairOptions::tcp(Mapping::Stream);
    let mut pair = domain.queue_pair(&options, &done, &done).unwrap();
    let bytes = noise(LEN);
    let out = domain.register(Memory::from_bytes(&bytes), Access::Read).unwrap();
    let room = domain.register(Memory::zeroed(LEN + 1), Access::Write).unwrap();
    pair.post_receive(0, &[room.part(0..LEN as u64).unwrap()]).unwrap();
    pair.post_receive(1, &[room.part(LEN as u64..LEN as u64 + 1).unwrap()]).unwrap();
    let at = "10.9.0.2:7".parse().unwrap();
    pair.connect(at).wait_for(PATIENCE).expect("in time").unwrap();
    pair.post_send(7, &[out.whole().unwrap()]).unwrap();
    pair.shutdown().unwrap();
    let mut came = 0;
    loop {
        let next = done.wait_for(PATIENCE).unwrap().expect("in time");
        match (next.operation, next.status) {
            (Operation::Receive, Status::Flushed) => break,
            (Operation::Receive, Status::Success) => came += next.len as usize,
            (Operation::Send, Status::Success) => assert_eq!(next.len as usize, LEN),
            (_, status) => panic!("{status}"),
        }
    }
    let mut heard = vec![0; LEN];
    room.copy_out(0, &mut heard).unwrap();
    assert!(came == LEN && heard == bytes, "{came} bytes came back");
    let (summary, said) = serving.end();
    assert_eq!(summary["ended"], "the first client has gone");
    assert_eq!(summary["sent_bytes"], LEN, "{said}");
    assert!(said.contains("finished"), "{said}");
}

/// Runs a service over STP, and gives its summary when this client has gone.
fn over_stp(service: &str, client: impl FnOnce(&Endpoint, landfall::stp::Peer)) -> Value {
    let words = format!("{service} --over stp --address 127.0.0.1:0 --once -v");
    let serving = Serving::start(&words);
    let at: SocketAddr = serving.word_behind("at").parse().unwrap();
    let endpoint = Endpoint::bind(Transport::udp("127.0.0.1:0".parse().unwrap())).unwrap();
    client(&endpoint, at.into());
    let (summary, said) = serving.end();
    assert_eq!(summary["ended"], "the first client has gone", "{said}");
    assert_eq!((&summary["over"], &summary["clients"]), (&"stp".into(), &1.into()));
    summary
}

#[test]
fn echo_over_stp_gives_each_transfer_back() {
    let lengths = [1, 1024, 300_000];
    let summary = over_stp("echo", |endpoint, at| {
        let connection = endpoint.connect(at, 7).unwrap();
        for (nth, len) in (0..).zip(lengths) {
            let bytes = noise(len);
            let sending = connection.send(bytes.clone()).opaque(nth).start();
            let echoed = connection.receive(StpMemory::zeroed(len)).wait().unwrap();
            assert!(echoed[..] == bytes[..] && echoed.opaque() == nth);
            sending.wait().unwrap();
        }
        connection.close().unwrap();
    });
    let all: usize = lengths.iter().sum();
    assert_eq!((&summary["received_bytes"], &summary["sent_bytes"]), (&all.into(), &all.into()));
}

/// What a scrape of the metrics of a server gives.
fn scraped(serving: &Serving) -> String {
    let address = serving.ready.split("http://").nth(1).expect("it says where").trim();
    let address = address.strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    text
}

#[test]
fn what_is_counted_is_told_to_prometheus() {
    let words = "echo --over stp --address 127.0.0.1:0 --once --metrics 127.0.0.1:0";
    let serving = Serving::start(words);
    let at: SocketAddr = serving.word_behind("at").parse().unwrap();
    assert!(scraped(&serving).contains("\nlandfall_serve_clients_total 0\n"));
    let endpoint = Endpoint::bind(Transport::udp("127.0.0.1:0".parse().unwrap())).unwrap();
    let connection = endpoint.connect(at, 7).unwrap();
    connection.send(noise(100_000)).wait().unwrap();
    drop(connection.receive(StpMemory::zeroed(100_000)).wait().unwrap());
    // What went is counted when its end is known.
    let until = soon().unwrap();
    let is_counted = |text: &str| text.contains("\nlandfall_serve_sent_bytes_total 100000\n");
    let text = loop {
        let text = scraped(&serving);
        if is_counted(&text) {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
    };
    for line in [
        "# TYPE landfall_stp_bytes_received_total counter",
        "landfall_stp_bytes_received_total 100000",
        "landfall_stp_connections 1",
        "landfall_path_up{path=\"0\"} 1",
        "landfall_serve_clients 1",
        "landfall_serve_received_bytes_total 100000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
    connection.close().unwrap();
    serving.end();
}

#[test]
fn source_and_discard_over_stp() {
    let summary = over_stp("discard", |endpoint, at| {
        let connection = endpoint.connect(at, 9).unwrap();
        connection.send(noise(100_000)).wait().unwrap();
        connection.close().unwrap();
    });
    assert_eq!((&summary["received_bytes"], &summary["sent_bytes"]), (&100_000.into(), &0.into()));
    let summary = over_stp("source", |endpoint, at| {
        let connection = endpoint.connect(at, 19).unwrap();
        let read = connection.read(StpMemory::zeroed(10_000), 0).wait().unwrap();
        assert!(read.len() == 10_000 && is_characters(&read));
        // Four are sent ahead: when eight have come, some are known to have come.
        for _ in 0..8 {
            let message = connection.receive(StpMemory::zeroed(1 << 20)).wait().unwrap();
            assert!(is_characters(&message));
        }
        connection.abort();
    });
    assert!(summary["sent_bytes"].as_u64() > Some(10_000), "{summary}");
}

#[test]
fn calls_over_clan_are_answered() {
    let shape = Shape { size: 4096, depth: 8 };
    for (service, port) in [("echo", 7), ("discard", 9), ("source", 19)] {
        let words = format!("{service} --over clan --address 127.0.0.1:0 --host 5");
        let serving = Serving::start(&words);
        let at: SocketAddr = serving.word_behind("at").parse().unwrap();
        let path = ClanTransport::udp("127.0.0.1:0".parse().unwrap());
        let node = Node::open(HostId::new(6).unwrap(), path).unwrap();
        node.link(at).unwrap().wait_up(soon()).unwrap();
        let to = PortAddress { host: HostId::new(5).unwrap(), port: Port(port) };
        let mut client = Client::connect(&node, to, shape, soon()).unwrap();
        let mut reply = Vec::new();
        for len in [8, 100, 4096] {
            let bytes = noise(len);
            client.call(&bytes, &mut reply, soon()).unwrap();
            match service {
                "echo" => assert!(reply == bytes),
                "discard" => assert!(reply.is_empty()),
                _ => assert!(reply.len() == 4096 && is_characters(&reply)),
            }
        }
        let (summary, said) = serving.end_by("-TERM");
        assert_eq!((&summary["clients"], &summary["received_bytes"]), (&1.into(), &4204.into()));
        assert_eq!(summary["ended"], "a signal", "{said}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_advice() {
    for (words, advice) in [
        ("echo --interface eth0", "--address 192.168.1.77/24"),
        ("echo --address 10.9.0.2", "10.9.0.1/24"),
        ("echo --over stp --tap x", "--over qpip"),
        ("echo --over clan --address 10.0.0.0/8", "127.0.0.1:8182"),
        ("echo --tunnel 192.0.2.1:9", "--tunnel"),
    ] {
        let words: Vec<_> = ["serve"].into_iter().chain(words.split(' ')).collect();
        let output = landfall(&words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(advice), "{words:?}: {said}");
    }
    for words in ["", "shout", "echo --over carrier-pigeon", "echo --clients 0", "echo --port x"] {
        let words: Vec<_> = ["serve"].into_iter().chain(words.split_terminator(' ')).collect();
        assert_eq!(landfall(&words).status.code(), Some(2), "{words:?}");
    }
}
