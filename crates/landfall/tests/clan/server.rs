//! The event-driven server of the paper, with few clients and with many.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{builder, channel_pair_with, linked, loopback, noise, pairs, shared_pair, soon};
use landfall::clan::messaging::Messaging;
use landfall::clan::network::{Config, Port, PortAddress, Reason, Wait};
use landfall::clan::server::{Client, Server, ServerStats, Shape};
use landfall::clan::{Error, Local, Rights};

const PORT: Port = Port(7);

/// A server that turns requests around, for as long as the clients do something.
fn with_server<N: Messaging>(
    (here, there): &(N, N),
    shape: Shape,
    most: usize,
    clients: impl FnOnce(&N, PortAddress) + Send,
) -> ServerStats {
    let at = PortAddress { host: here.host_id(), port: PORT };
    let done = AtomicBool::new(false);
    let turn_around = |request: &[u8], reply: &mut Vec<u8>| reply.extend(request.iter().rev());
    let mut server = Server::open(here, PORT, shape, most, turn_around).unwrap();
    let until = Some(Instant::now() + Duration::from_secs(120));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            // What was said last is still heard.
            while !(done.load(Ordering::Relaxed) && server.connections() == 0) {
                server.round(&[], Some(Duration::from_millis(10))).unwrap();
                assert!(Some(Instant::now()) < until, "some never said good-bye");
            }
            server.stats()
        });
        // Also when a client panics: then the server stops, and the test fails.
        let flag = Flag(&done);
        clients(there, at);
        drop(flag);
        serving.join().unwrap()
    })
}

struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}

#[test]
fn requests_of_any_length_are_answered_in_their_order() {
    for (name, pair) in pairs() {
        answered_in_order(name, &pair);
    }
    let (_folder, pair) = shared_pair();
    answered_in_order("processes", &pair);
}

fn answered_in_order<N: Messaging>(name: &str, pair: &(N, N)) {
    let shape = Shape { size: 5000, depth: 4 };
    let stats = with_server(pair, shape, 8, |node, at| {
        let mut client = Client::connect(node, at, shape, soon()).unwrap();
        let mut reply = Vec::new();
        for (nth, len) in [0, 1, 8, 100, 4999, 5000, 17].into_iter().enumerate() {
            let request = noise(nth as u64, len);
            client.call(&request, &mut reply, soon()).unwrap();
            assert!(reply == reversed(&request), "{name}, {len} bytes");
        }
        // As many at a time as there are places, and one more is not taken.
        for round in 0..50 {
            let request = |n: u64| noise(round * 10 + n, 300);
            (0..4).for_each(|n| client.send(&request(n)).unwrap());
            assert!(matches!(client.send(b"more"), Err(Error::Busy)), "{name}");
            for n in 0..4 {
                client.wait_reply(&mut reply, soon()).unwrap();
                assert!(reply == reversed(&request(n)), "{name}");
            }
        }
        assert!(!client.try_reply(&mut reply).unwrap());
        assert!(matches!(client.send(&[0; 5001]), Err(Error::TooLong { .. })), "{name}");
        let (memory, _) = node.expose(4096, Rights::Read).unwrap();
        memory.copy_in(0, &noise(9, 4096)).unwrap();
        client.send_from(&memory, 0..4096).unwrap();
        client.spin_reply(&mut reply, soon()).unwrap();
        assert!(reply == reversed(&noise(9, 4096)), "{name}");
        client.close().unwrap();
    });
    assert_eq!((stats.requests, stats.accepted, stats.ended), (208, 1, 1), "{name}");
}

fn with_room_for(clients: usize) -> Config {
    let most = clients + 10;
    Config { endpoints: most, apertures: most, windows: most, tripwires: most, ..Config::default() }
}

#[test]
fn thousands_of_endpoints_are_served_by_one_thread() {
    const CLIENTS: usize = 2000;
    thousands_are_served(&channel_pair_with(&with_room_for(CLIENTS)), CLIENTS);
    // Each maps memory of its own there, both ways.
    let (_folder, pair) = shared_pair();
    thousands_are_served(&pair, 1000);
}

fn thousands_are_served<N: Messaging>(pair: &(N, N), many: usize) {
    let shape = Shape { size: 64, depth: 1 };
    let stats = with_server(pair, shape, many, |node, at| {
        let connect = |_| Client::connect(node, at, shape, soon()).unwrap();
        let mut clients: Vec<Client<N>> = (0..many).map(connect).collect();
        let refused = Client::connect(node, at, shape, soon());
        assert!(matches!(refused, Err(Error::Refused(Reason::NoRoom))), "{refused:?}");
        let mut reply = Vec::new();
        for round in 0..3u64 {
            for (n, client) in (0..).zip(&mut clients) {
                while let Err(error) = client.send(&noise(round + n, 40)) {
                    assert!(matches!(error, Error::Busy), "{error}");
                    node.relax();
                }
            }
            for (n, client) in (0..).zip(&mut clients) {
                client.spin_reply(&mut reply, soon()).unwrap();
                assert!(reply == reversed(&noise(round + n, 40)));
            }
        }
        for client in clients {
            // The way may be full of good-byes.
            while let Err(Error::Busy) = client.close() {
                node.relax();
            }
        }
    });
    assert_eq!(stats.requests, 3 * many as u64);
    assert_eq!((stats.accepted, stats.ended), (many as u64, many as u64));
}

#[test]
fn clients_that_make_no_sense_spoil_only_their_own_connection() {
    let open = |number| builder(number).path(loopback()).wait(Wait::Block).open().unwrap();
    lawless_clients(&linked((open(1), open(2)), None));
    let (_folder, pair) = shared_pair();
    lawless_clients(&pair);
}

fn lawless_clients<N: Messaging>(pair: &(N, N)) {
    let shape = Shape { size: 64, depth: 2 };
    let stats = with_server(pair, shape, 4, |node, at| {
        let mut good = Client::connect(node, at, shape, soon()).unwrap();
        let other = Shape { size: 65, depth: 2 };
        let refused = Client::connect(node, at, other, soon());
        assert!(matches!(refused, Err(Error::Refused(Reason::Malformed))), "{refused:?}");
        let mut bad = Client::connect(node, at, shape, soon()).unwrap();
        // Where a write is a store the server may see it before it is published, and ends it.
        let scribbled = bad.scribble(99 << 32 | 1);
        assert!(matches!(scribbled, Ok(()) | Err(Error::Refused(_))), "{scribbled:?}");
        let mut reply = Vec::new();
        for _ in 0..20 {
            good.call(b"still there", &mut reply, soon()).unwrap();
            assert_eq!(reply, reversed(b"still there"));
        }
        good.close().unwrap();
    });
    assert_eq!((stats.accepted, stats.ended, stats.requests), (2, 2, 20));
}

/// Requests that wait together, more than a send buffer has room for the replies of: the first
/// that asked is answered first, and no connection is looked at again and again meanwhile.
#[test]
fn replies_that_find_no_room_leave_in_the_order_of_their_requests() {
    const CLIENTS: usize = 2000;
    /// So far from its place a reply may leave: a batch of the server and what a buffer holds.
    const AWAY: usize = 128;
    // Room for the replies of some 26 requests.
    let config = Config { write_buffer: 4096, ..with_room_for(CLIENTS) };
    let (here, there) = channel_pair_with(&config);
    let shape = Shape { size: 8, depth: 1 };
    let (paused, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut order: Vec<usize> = Vec::new();
    let note = |request: &[u8], reply: &mut Vec<u8>| {
        order.push(u64::from_le_bytes(request.try_into().unwrap()) as usize);
        reply.extend(request);
    };
    let mut server = Server::open(&here, PORT, shape, CLIENTS, note).unwrap();
    let stats = std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                if paused.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                } else {
                    server.round(&[], Some(Duration::from_millis(1))).unwrap();
                }
            }
            server.stats()
        });
        // Also when this panics: then the server stops, and the test fails.
        let flag = Flag(&done);
        let at = PortAddress { host: here.host_id(), port: PORT };
        let connect = |_| Client::connect(&there, at, shape, soon()).unwrap();
        let mut clients: Vec<Client> = (0..CLIENTS).map(connect).collect();
        paused.store(true, Ordering::SeqCst);
        for (number, client) in clients.iter_mut().enumerate() {
            while let Err(error) = client.send(&(number as u64).to_le_bytes()) {
                assert!(matches!(error, Error::Busy), "{error}");
                there.turn();
            }
        }
        paused.store(false, Ordering::SeqCst);
        let mut reply = Vec::new();
        for client in &mut clients {
            client.spin_reply(&mut reply, soon()).unwrap();
        }
        drop(flag);
        serving.join().unwrap()
    });
    assert_eq!(stats.requests, CLIENTS as u64);
    // One that finds no room is looked at once more, and at most once with each that has some.
    assert!(stats.tries <= 4 * CLIENTS as u64, "{stats:?}");
    // Where there was no room the request is read once more: the last time counts.
    let mut left: Vec<usize> = Vec::new();
    for number in order.into_iter().rev() {
        if !left.contains(&number) {
            left.push(number);
        }
    }
    left.reverse();
    for (place, number) in left.into_iter().enumerate() {
        assert!(place.abs_diff(number) <= AWAY, "{number} left as number {place}");
    }
}
