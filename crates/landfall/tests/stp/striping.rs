//! One connection over two UDP paths, with links that carry unlike amounts.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::{PORT, noise, run, within};
use landfall::stp::{Config, Connection, Endpoint, Link, Memory, Peer, Transport};
use landfall_placement::PathId;
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};
use landfall_transport::udp::UdpConfig;

fn two_paths() -> Endpoint {
    // As over a network: by the socket, in packets of 1500 bytes.
    let path = || Transport::udp_with(UdpConfig::new(([127, 0, 0, 1], 0).into(), 1500));
    // A window that the links carry in a moment.
    let config = Config { block_stus: 4, blocks_ahead: 64, window: 256 << 10, ..Config::default() };
    Endpoint::builder().path(path()).path(path()).config(config).bind().expect("loopback")
}

fn address(endpoint: &Endpoint, path: u16) -> SocketAddr {
    match endpoint.local_of(PathId(path)) {
        Some(Peer::Socket(address)) => address,
        other => panic!("UDP has an address, not {other:?}"),
    }
}

/// A connection with two links; the client reaches the server's paths at these addresses.
async fn joined(
    (client, server): (&Endpoint, &Endpoint),
    to: [SocketAddr; 2],
) -> (Connection, Connection, Vec<Link>) {
    let listener = server.listen(PORT).unwrap();
    let (near, far) =
        within(async { tokio::join!(client.connect(to[0], PORT), listener.accept()) }).await;
    let (near, far) = (near.unwrap(), far.unwrap());
    near.add_link(PathId(1), to[1]).unwrap();
    let links = within(async {
        loop {
            let links = far.links();
            if links.len() == 2 {
                return links;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let links = links.await;
    (near, far, links)
}

/// How many units came over each path.
fn received(endpoint: &Endpoint) -> [u64; 2] {
    let stats = endpoint.stats();
    [0, 1].map(|path| stats.paths[path].counters.units_received)
}

#[test]
fn an_offer_comes_over_the_link_that_is_chosen_for_it() {
    const LEN: usize = 1 << 20;
    let (client, server) = (two_paths(), two_paths());
    let to = [0, 1].map(|path| address(&server, path));
    run(async {
        let (near, far, links) = joined((&client, &server), to).await;
        for chosen in [1, 0] {
            let before = received(&server);
            let sending = near.send(noise(1, LEN)).start();
            let offer = within(far.offer()).await.unwrap();
            offer.choose_link(links[chosen].path, links[chosen].peer).unwrap();
            let nobody = offer.choose_link(PathId(0), Peer::Node(77));
            assert!(nobody.is_err(), "there is no such link");
            let message = within(offer.accept(Memory::zeroed(LEN))).await.unwrap();
            assert!(*message == noise(1, LEN));
            within(sending).await.unwrap();
            let after = received(&server);
            let came = [0, 1].map(|path| after[path] - before[path]);
            let data = (LEN / 1_500) as u64;
            assert!(came[chosen] >= data && came[1 - chosen] < data / 4, "{came:?}");
        }
    });
}

/// What waits to be carried over one link, in the direction of Data.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    carried: u64,
}

/// Two links between a client and a server. In every round the first carries this many packets
/// to the server and the second this many. A round waits a while for a link that has fewer, so
/// that rounds, and no clock, are what rates are measured by: threads that the machine keeps
/// waiting cost nobody a round.
struct Links {
    queues: Arc<(Mutex<[Queue; 2]>, Condvar)>,
    rounds: Arc<Mutex<u64>>,
    is_over: Arc<AtomicBool>,
    fronts: [SocketAddr; 2],
}

const PER_ROUND: [usize; 2] = [3, 9];

impl Links {
    /// How long a round waits for a link that has too little to carry.
    const PATIENCE: Duration = Duration::from_millis(20);

    fn new(client: [SocketAddr; 2], server: [SocketAddr; 2]) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            Arc::new(socket)
        };
        let (fronts, backs) = ([socket(), socket()], [socket(), socket()]);
        let links = Self {
            queues: Arc::default(),
            rounds: Arc::default(),
            is_over: Arc::default(),
            fronts: [0, 1].map(|nth| fronts[nth].local_addr().unwrap()),
        };
        for nth in 0..2 {
            let queues = Arc::clone(&links.queues);
            links.carry(&fronts[nth], move |packet| {
                queues.0.lock().unwrap()[nth].packets.push_back(packet.to_vec());
                queues.1.notify_one();
            });
            let (front, to) = (Arc::clone(&fronts[nth]), client[nth]);
            links.carry(&backs[nth], move |packet| {
                let _ = front.send_to(packet, to);
            });
        }
        links.pace(backs, server);
        links
    }

    /// Hands on what comes to a socket.
    fn carry(&self, from: &Arc<UdpSocket>, to: impl Fn(&[u8]) + Send + 'static) {
        let (from, is_over) = (Arc::clone(from), Arc::clone(&self.is_over));
        std::thread::spawn(move || {
            let mut packet = vec![0; 2_048];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((len, _)) = from.recv_from(&mut packet) {
                    to(&packet[..len]);
                }
            }
        });
    }

    fn pace(&self, backs: [Arc<UdpSocket>; 2], server: [SocketAddr; 2]) {
        let (queues, rounds) = (Arc::clone(&self.queues), Arc::clone(&self.rounds));
        let is_over = Arc::clone(&self.is_over);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let (lock, more) = &*queues;
                let mut waiting = lock.lock().unwrap();
                let is_short = |queues: &mut [Queue; 2]| {
                    (0..2).any(|nth| queues[nth].packets.len() < PER_ROUND[nth])
                };
                waiting = more.wait_timeout_while(waiting, Self::PATIENCE, is_short).unwrap().0;
                let mut carried = 0;
                for nth in 0..2 {
                    let queue = &mut waiting[nth];
                    let count = queue.packets.len().min(PER_ROUND[nth]);
                    for packet in queue.packets.drain(..count) {
                        let _ = backs[nth].send_to(&packet, server[nth]);
                    }
                    queue.carried += count as u64;
                    carried += count;
                }
                drop(waiting);
                if carried > 0 {
                    *rounds.lock().unwrap() += 1;
                }
            }
        });
    }

    /// Rounds with packets, and packets carried over each link.
    fn count(&self) -> (u64, [u64; 2]) {
        let rounds = *self.rounds.lock().unwrap();
        let queues = self.queues.0.lock().unwrap();
        (rounds, [queues[0].carried, queues[1].carried])
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Links of unlike rates together carry at least 0.9 of what each could carry alone.
#[test]
fn striping_gains_what_unlike_links_have_together() {
    const LEN: usize = 8 << 20;
    let (client, server) = (two_paths(), two_paths());
    let ends = [&client, &server].map(|end| [0, 1].map(|path| address(end, path)));
    let links = Links::new(ends[0], ends[1]);
    run(async {
        let (near, far, _) = joined((&client, &server), links.fronts).await;
        let bytes = noise(1, LEN);
        let before = links.count();
        let sending = near.send(bytes.clone()).start();
        let message = within(far.receive(Memory::zeroed(LEN))).await.unwrap();
        assert!(*message == bytes);
        within(sending).await.unwrap();
        let after = links.count();
        let rounds = after.0 - before.0;
        let carried: u64 = (0..2).map(|nth| after.1[nth] - before.1[nth]).sum();
        let most = rounds * PER_ROUND.iter().sum::<usize>() as u64;
        let used = carried as f64 / most as f64;
        println!("{carried} packets in {rounds} rounds: {used:.2} of what both links carry");
        assert!(used >= 0.9, "{carried} packets in {rounds} rounds: {used:.2} of both links");
        let repeated = carried.saturating_sub((LEN / 1_432) as u64);
        assert!(repeated < carried / 10, "{repeated} of {carried} packets came again");
    });
}

/// Lets no more leave an end than this, in Mbit/s. Says why that cannot be done here.
fn limit(end: &VethEnd, rate: u64) -> Option<String> {
    let rate = format!("{rate}mbit");
    let words = ["qdisc", "add", "dev", &end.name, "root", "tbf", "rate", &rate];
    let mut tc = Command::new("tc");
    tc.args(words).args(["burst", "64kb", "latency", "20ms"]);
    match end.namespace.enter(|| tc.output()).expect("the namespace is there") {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("tc: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(why) => Some(format!("tc of iproute2 is needed: {why}")),
    }
}

/// The same over two cables of the kernel's, of which one carries three times as much. With what
/// each has carried, the time that it took at its rate is known; the longer of both is how long
/// all took. How near that comes to the best is for the test before this: here an end that has to
/// wait for a processor sends to both cables what they then have room for. But it is more than the
/// faster cable has alone.
#[test]
fn striping_gains_what_two_cables_of_unlike_rates_have_together() {
    const LEN: usize = 48 << 20;
    const RATES: [u64; 2] = [40, 120];
    require_namespaces!();
    let [here, there] = [0, 1].map(|_| Namespace::new().unwrap());
    let cables = [0, 1].map(|cable| {
        VethPair::between(&here, &there, VethConfig { cable, ..VethConfig::default() }).unwrap()
    });
    for (cable, rate) in cables.iter().zip(RATES) {
        skip_unless!(limit(&cable.a, rate));
    }
    let at = |end: &VethEnd| SocketAddr::new(end.ipv4.into(), 8_181);
    let bind = |ends: [&VethEnd; 2]| {
        let [one, other] = ends.map(|end| Transport::udp(at(end)));
        let builder = Endpoint::builder().path(one).path(other).plaintext();
        ends[0].namespace.enter(|| builder.bind()).unwrap().expect("the paths open")
    };
    let [client, server] = [bind([&cables[0].a, &cables[1].a]), bind([&cables[0].b, &cables[1].b])];
    run(async {
        let to = [at(&cables[0].b), at(&cables[1].b)];
        let (near, far, _) = joined((&client, &server), to).await;
        let bytes = noise(1, LEN);
        let before = received(&server);
        let sending = near.send(bytes.clone()).start();
        let message = within(far.receive(Memory::zeroed(LEN))).await.unwrap();
        assert!(*message == bytes);
        within(sending).await.unwrap();
        let after = received(&server);
        let units = [0, 1].map(|nth| (after[nth] - before[nth]) as f64);
        let took = (units[0] / RATES[0] as f64).max(units[1] / RATES[1] as f64);
        let used = (units[0] + units[1]) / took / RATES.iter().sum::<u64>() as f64;
        let faster_alone = RATES[1] as f64 / RATES.iter().sum::<u64>() as f64;
        assert!(used > faster_alone, "{units:?} units: {used:.2} of both cables");
    });
}
