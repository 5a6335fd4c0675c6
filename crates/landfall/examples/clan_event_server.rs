//! The event-driven server of the CLAN paper (section 5.3): one thread, any number of
//! endpoints, one queue of events.
//!
//! ```sh
//! cargo run --release --example clan_event_server -- 1000
//! ```
//!
//! Server and client are two nodes over UDP on loopback. The client spins for its
//! replies: first it asks as fast as it can, on an endpoint at random each time, with
//! one request under way (the server never sleeps); then with pauses, so that the
//! server has to be woken; then on many endpoints at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall::clan::Error;
use landfall::clan::network::server::{Client, Server, Shape};
use landfall::clan::network::{Config, HostId, Node, Port, PortAddress, Transport};

const PORT: Port = Port(7);
const SHAPE: Shape = Shape { size: 64, depth: 1 };
const ROUNDS: u32 = 20_000;

fn main() -> Result<()> {
    let endpoints = std::env::args().nth(1).map_or(Ok(100), |count| count.parse())?;
    let (here, there) = (node(1, endpoints)?, node(2, endpoints)?);
    let echo = |request: &[u8], reply: &mut Vec<u8>| reply.extend_from_slice(request);
    let mut server = Server::open(&here, PORT, SHAPE, endpoints, echo)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.run(|| done.load(Ordering::Relaxed))?;
            anyhow::Ok(server.stats())
        });
        let asked = ask(&there, &here, endpoints);
        done.store(true, Ordering::Relaxed);
        let stats = serving.join().expect("the server does not panic")?;
        println!("server: {stats:?}");
        asked
    })
}

fn node(host: u16, endpoints: usize) -> Result<Node> {
    // What the node itself needs beside the connections.
    let room = endpoints + 16;
    let config = Config {
        endpoints: room,
        apertures: room,
        windows: room,
        tripwires: room,
        messages: room,
        ..Config::shared_network()
    };
    let host = HostId::new(host).context("hosts have fourteen bits")?;
    let path = Transport::udp("127.0.0.1:0".parse()?);
    Ok(Node::builder(host).path(path).config(config).open()?)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(30))
}

fn ask(node: &Node, server: &Node, endpoints: usize) -> Result<()> {
    node.link(server.local().context("UDP has an address")?)?.wait_up(soon())?;
    let at = PortAddress { host: server.host(), port: PORT };
    let started = Instant::now();
    let connect = |_| Client::connect(node, at, SHAPE, soon());
    let mut clients = (0..endpoints).map(connect).collect::<Result<Vec<Client>, _>>()?;
    println!("{endpoints} endpoints connected in {:?}", started.elapsed());

    let mut random = Random(1);
    let mut reply = Vec::new();
    for (what, pause, rounds) in
        [("busy", Duration::ZERO, ROUNDS), ("idle", Duration::from_micros(200), ROUNDS / 20)]
    {
        let mut trips = Duration::ZERO;
        for _ in 0..rounds {
            let client = &mut clients[random.below(endpoints)];
            let begun = Instant::now();
            client.call(b"a small message", &mut reply, soon())?;
            trips += begun.elapsed();
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        println!("server {what}: {:?} per round trip", trips / rounds);
    }

    let started = Instant::now();
    let rounds = (ROUNDS as usize / endpoints).max(1);
    for _ in 0..rounds {
        for client in &mut clients {
            while let Err(error) = client.send(b"a small message") {
                anyhow::ensure!(matches!(error, Error::Busy), error);
                node.turn();
            }
        }
        for client in &mut clients {
            client.spin_reply(&mut reply, soon())?;
        }
    }
    let per_second = (rounds * endpoints) as f64 / started.elapsed().as_secs_f64();
    println!("{endpoints} at a time: {per_second:.0} requests per second");
    Ok(())
}

/// Numbers that are random enough to choose a connection.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
