//! Bad networks, and peers that are killed: nothing is lost, nothing hangs, nothing
//! is believed that is not so.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{builder, host, linked, loopback, noise, soon, until};
use landfall::clan::network::{
    Config, DmaQueue, Endpoint, HostId, Node, Notice, Peer, Port, PortAddress, Request, Transport,
    Window, WordFunction,
};
use landfall::clan::{Access, Cookie, Error, Fabric, Local, Remote, Rights, Stage, Tripwire};
use landfall_testkit::trials::{count_kills, kills};
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::udp::{UdpConfig, UdpDriver};

/// Of a million packets.
const MANY: u32 = 50_000;

fn bad_udp(seed: u8, tell: std::sync::mpsc::Sender<SocketAddr>) -> Transport {
    let faults = Faults {
        loss: MANY,
        duplication: MANY,
        reordering: MANY,
        corruption: MANY / 5,
        ..Faults::default()
    };
    Transport::driver(move |path, regions| {
        let config = UdpConfig::new(([127, 0, 0, 1], 0).into(), 1500);
        let driver = UdpDriver::open(path, config, regions)?;
        tell.send(driver.local_address()).map_err(io::Error::other)?;
        Faulty::new(driver, faults, [seed; 32], regions).map_err(io::Error::other)
    })
}

#[test]
fn bad_networks_lose_and_change_nothing() {
    let (tell, told) = std::sync::mpsc::channel();
    // UDP on loopback has no checksum of its own that would catch the flipped bits.
    let config = Config::shared_network().with_checksum();
    let open = |number: u8| {
        let transport = bad_udp(number, tell.clone());
        builder(number.into()).path(transport).config(config.clone()).open().unwrap()
    };
    let (here, there) = (open(1), open(2));
    let (_, at) = (told.recv().unwrap(), told.recv().unwrap());
    let (here, there) = linked((here, there), Some(at.into()));
    let (memory, cookie) = here.expose(1 << 20, Rights::ReadWrite).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    for round in 1..=20u64 {
        tripwire.arm();
        let bytes = noise(round, 50_003);
        window.write(1001, &bytes).unwrap();
        window.write(60_000, &bytes[..100]).unwrap();
        window.store(0, round).unwrap();
        window.commit().unwrap();
        until(&here, || memory.load(0).unwrap() == round);
        let mut found = vec![0; bytes.len()];
        memory.copy_out(1001, &mut found).unwrap();
        assert!(found == bytes, "round {round}");
        assert!(tripwire.wait(soon()).unwrap());
        assert_eq!(window.wait_change(8, WordFunction::Add(1), soon()).unwrap(), round - 1);
        let mut read = [0; 100];
        window.read(60_000, &mut read, soon()).unwrap();
        assert_eq!(read[..], bytes[..100]);
        window.wait_for(Stage::Delivered, soon()).unwrap();
    }
}

/// Anyone who does not answer for a third of a second is gone.
fn hasty() -> Config {
    let milliseconds = Duration::from_millis;
    Config {
        keep_alive: Some(milliseconds(50)),
        retry_after: milliseconds(5),
        retry_floor: milliseconds(2),
        give_up_after: 6,
        ..Config::default()
    }
}

const PORT: Port = Port(7);
const RECORD: usize = 20_000;

/// What the killed process does: it writes records, a flag behind each, and waits
/// until the other side has seen it; and it reads, and changes words, all the time.
///
/// Without the variable that the test below gives to its processes it does nothing.
#[test]
fn peer_that_will_be_killed() {
    let Ok(address) = std::env::var("CLAN_TEST_PEER") else { return };
    let to: SocketAddr = address.parse().unwrap();
    let node = builder(2).path(loopback()).config(hasty()).open().unwrap();
    node.link(to).unwrap().wait_up(soon()).unwrap();
    let (memory, cookie) = node.expose(1 << 16, Rights::ReadWrite).unwrap();
    let endpoint = node.endpoint(None).unwrap();
    let mut body = [0; 40];
    body[..Cookie::LEN].copy_from_slice(&cookie.to_bytes());
    endpoint.connect(PortAddress { host: host(1), port: PORT }, body).unwrap();
    let Some(Notice::Accepted { body, .. }) = endpoint.wait_next(soon()).unwrap() else { return };
    let mut window = window_of(&node, &body);
    println!("ready");
    io::stdout().flush().unwrap();
    for round in 1u64.. {
        let bytes = vec![round as u8; RECORD];
        window.write(64, &bytes).unwrap();
        window.store(0, round).unwrap();
        window.commit().unwrap();
        window.wait_change(16, WordFunction::Add(1), soon()).unwrap();
        until(&node, || memory.load(0).unwrap() == round);
    }
}

fn window_of(node: &Node, body: &[u8; 40]) -> Window {
    let cookie = body[..Cookie::LEN].try_into().unwrap();
    node.map(&Cookie::from_bytes(&cookie).unwrap()).unwrap()
}

/// A process that is killed whatever happens.
struct KillOnDrop(Child);

impl KillOnDrop {
    fn start(address: Peer) -> Self {
        let Peer::Socket(address) = address else { panic!("{address}") };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "clan::faults::peer_that_will_be_killed", "--nocapture"])
            .env("CLAN_TEST_PEER", address.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || BufReader::new(stdout).lines().for_each(drop));
        Self(child)
    }

    fn kill(&mut self) {
        // SIGKILL: nothing of it runs any more.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other side of one that is killed: everything that goes on with it.
struct Survivor {
    endpoint: Endpoint,
    queue: DmaQueue,
    window: Window,
    memory: <Node as Fabric>::Local,
}

fn accept(node: &Node, listener: &Endpoint) -> (Survivor, HostId) {
    let Some(Notice::Request(request)) = listener.wait_next(soon()).unwrap() else {
        panic!("nobody asks");
    };
    let (memory, cookie) = node.expose(1 << 16, Rights::ReadWrite).unwrap();
    let endpoint = node.endpoint(None).unwrap();
    let mut body = [0; 40];
    body[..Cookie::LEN].copy_from_slice(&cookie.to_bytes());
    endpoint.accept(&request, body).unwrap();
    let window = window_of(node, &request.body);
    let queue = endpoint.dma_queue(16).unwrap();
    (Survivor { endpoint, queue, window, memory }, request.from.host)
}

impl Survivor {
    /// Takes records for so long, and keeps the way back full. Each record that a
    /// flag tells of is whole.
    fn live(&mut self, node: &Node, time: Duration) {
        let started = Instant::now();
        let mut seen = 0;
        while started.elapsed() < time {
            node.turn();
            let round = self.memory.load(0).unwrap();
            if round > seen {
                assert_eq!(round, seen + 1);
                let mut record = vec![0; RECORD];
                self.memory.copy_out(64, &mut record).unwrap();
                assert!(record.iter().all(|byte| *byte == round as u8), "record {round}");
                seen = round;
                self.window.store(0, round).unwrap();
                self.window.commit().unwrap();
            }
            let part = 32_768..40_960;
            let back =
                Request::Write { from: &self.memory, range: part, to: &self.window, offset: 4096 };
            match self.queue.push(&[back]) {
                Ok(_) | Err(Error::Busy) => {}
                Err(other) => panic!("{other}"),
            }
            while let Some(done) = self.queue.try_done() {
                done.result.unwrap();
            }
        }
    }

    /// All that waits for it hears that it is gone.
    fn outlive(mut self, node: &Node) {
        let tripwire = node.watch(&self.memory, 8..16, Access::Write, Some(&self.window)).unwrap();
        tripwire.arm();
        assert!(tripwire.wait(soon()).unwrap());
        assert!(matches!(self.window.check(), Err(Error::PeerLost)));
        assert!(matches!(self.window.store(0, 1), Err(Error::PeerLost)));
        let read = self.window.read(0, &mut [0; 8], soon());
        assert!(matches!(read, Err(Error::PeerLost)), "{read:?}");
        let delivered = self.window.wait_for(Stage::Delivered, soon());
        assert!(matches!(delivered, Err(Error::PeerLost)), "{delivered:?}");
        // Each chain that was under way has its end.
        while let Some(done) = self.queue.wait_done(soon()).unwrap() {
            if let Err(error) = done.result {
                assert!(matches!(error, Error::PeerLost | Error::NoRoute), "{error}");
            }
        }
        loop {
            let notice = self.endpoint.wait_next(soon()).unwrap().expect("it hears of the end");
            if notice.is_last() {
                break;
            }
        }
    }
}

#[test]
fn a_peer_that_is_killed_is_noticed_and_leaves_nothing_behind() {
    let node = builder(1).path(loopback()).config(hasty()).open().unwrap();
    let listener = node.endpoint(Some(PORT)).unwrap();
    listener.listen().unwrap();
    let before = node.stats();
    let rounds = kills(8);
    for round in 0..rounds {
        let kill = round % 8;
        let mut doomed = KillOnDrop::start(node.local().unwrap());
        let (mut survivor, host) = accept(&node, &listener);
        // Some moment in the middle of it.
        survivor.live(&node, Duration::from_micros(kill * kill * 700));
        let link = node.link_to(host).expect("it is up");
        doomed.kill();
        assert!(link.wait_down(soon()).unwrap().is_some());
        survivor.outlive(&node);
        until(&node, || node.stats().regions == before.regions);
        assert_eq!(node.stats().links, 0);
    }
    count_kills("a peer of CLAN by UDP", rounds);
}
