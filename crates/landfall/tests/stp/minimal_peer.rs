//! `examples/minimal_peer.py`, which was written from `docs/spec/stp.md` alone, against this
//! implementation: over UDP and in frames of ethertype 0x8181, with faults in both
//! directions, each side connecting once. Each spoils what it sends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{PORT, memory_with, noise, run, within};
use landfall::stp::{Config, Connection, Endpoint, Faults, Memory, Peer, Transport};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};

/// What the issue of the protocol asks for: parts of a million.
const FAULTS: Faults = Faults {
    loss: 20_000,
    duplication: 50_000,
    reordering: 50_000,
    corruption: 0,
    delay: landfall_placement::Duration::ZERO,
    loss_at_place: 0,
};

const SIZES: [usize; 6] = [0, 1, 1_160, 65_536, 300_001, 1_000_000];

/// Sent once there were grants, which say how much may go with its request.
const SHORT: [usize; 6] = [2, 16, 255, 256, 257, 1_024];

/// The other implementation, which ends with this.
struct Python(Child);

impl Python {
    fn start(arguments: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/minimal_peer_run.py");
        let mut command = Command::new("python3");
        let command = command.arg(script).args(arguments).args(["--faults", "8181"]);
        Self(command.stdout(Stdio::piped()).spawn().expect("python3"))
    }

    /// Waits for its first words, and gives the last of them.
    fn word(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it speaks");
        line.split_whitespace().last().unwrap_or_default().to_owned()
    }

    fn ends_well(&mut self) {
        for _ in 0..6_000 {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not come to its end");
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn why_no_python() -> Option<String> {
    let is_there = Command::new("python3").arg("--version").output().is_ok();
    (!is_there).then(|| "there is no python3".to_owned())
}

/// Transfers of all sizes go there and come back, several at a time.
async fn echoed_by(connection: Connection) {
    for sizes in [SIZES, SHORT] {
        let messages: Vec<_> = (1..).zip(sizes).map(|(seed, len)| noise(seed, len)).collect();
        let sends: Vec<_> =
            messages.iter().map(|bytes| connection.send(memory_with(bytes)).start()).collect();
        let mut came = Vec::new();
        for _ in &messages {
            let offer = within(connection.offer()).await.unwrap();
            let memory = Memory::zeroed(usize::try_from(offer.len()).unwrap());
            came.push(within(offer.accept(memory)).await.unwrap().to_vec());
        }
        for send in sends {
            within(send).await.unwrap();
        }
        came.sort_by_key(Vec::len);
        assert!(came == messages);
    }
    within(connection.close()).await.unwrap();
}

/// Short messages went with their requests, in both directions.
fn assert_eager(endpoint: &Endpoint) {
    let stats = endpoint.stats().engine;
    assert!(stats.eager_sent > 0 && stats.eager_received > 0, "{stats:?}");
}

/// All that comes is sent back, until the other side closes.
async fn echo(connection: Connection) {
    let mut sends = Vec::new();
    for _ in SIZES.into_iter().chain(SHORT) {
        let offer = within(connection.offer()).await.unwrap();
        let memory = Memory::zeroed(usize::try_from(offer.len()).unwrap());
        let message = within(offer.accept(memory)).await.unwrap();
        sends.push(connection.send(memory_with(&message)).start());
    }
    for send in sends {
        within(send).await.unwrap();
    }
    within(connection.closed()).await.unwrap();
}

fn sizes() -> Vec<String> {
    SIZES.iter().chain(&SHORT).map(ToString::to_string).collect()
}

#[test]
fn the_minimal_peer_listens_over_udp() {
    skip_unless!(why_no_python());
    let mut python = Python::start(&["listen", "udp:127.0.0.1:0"]);
    let port: u16 = python.word().parse().unwrap();
    let lossy = Transport::udp("127.0.0.1:0".parse().unwrap()).with_faults(FAULTS, [1; 32]);
    let endpoint = Endpoint::bind(lossy).unwrap();
    run(async {
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        echoed_by(within(endpoint.connect(to, PORT)).await.unwrap()).await;
    });
    assert_eager(&endpoint);
    python.ends_well();
}

#[test]
fn the_minimal_peer_connects_over_udp() {
    skip_unless!(why_no_python());
    let lossy = Transport::udp("127.0.0.1:0".parse().unwrap()).with_faults(FAULTS, [2; 32]);
    let endpoint = Endpoint::bind(lossy).unwrap();
    let listener = endpoint.listen(PORT).unwrap();
    let Some(Peer::Socket(address)) = endpoint.local() else { panic!("UDP has an address") };
    let (carrier, sizes) = (format!("udp:{address}"), sizes());
    let mut arguments = vec!["connect", &carrier];
    arguments.extend(sizes.iter().map(String::as_str));
    let mut python = Python::start(&arguments);
    run(async { echo(within(listener.accept()).await.unwrap()).await });
    assert_eager(&endpoint);
    python.ends_well();
}

fn ethernet(end: &VethEnd) -> Endpoint {
    let lossy = Transport::ethernet(&*end.name).with_faults(FAULTS, [3; 32]);
    // The small peer speaks STP, and nothing below it.
    let config = Config { eager: 256, ..Config::default() };
    let builder = Endpoint::builder().path(lossy).config(config).plaintext();
    end.namespace.enter(|| builder.bind()).unwrap().unwrap()
}

fn cable() -> VethPair {
    VethPair::new(VethConfig { mtu: 1500, ..VethConfig::default() }).unwrap()
}

#[test]
fn the_minimal_peer_listens_in_frames_of_ethertype_8181() {
    require_namespaces!();
    skip_unless!(why_no_python());
    let cable = cable();
    let carrier = format!("eth:{}", cable.b.name);
    let mut python = cable.b.namespace.enter(|| Python::start(&["listen", &carrier])).unwrap();
    assert_eq!(python.word(), "33153", "the ethertype");
    let endpoint = ethernet(&cable.a);
    run(async {
        let to = Peer::Ethernet(cable.b.mac.0);
        echoed_by(within(endpoint.connect(to, PORT)).await.unwrap()).await;
    });
    assert_eager(&endpoint);
    python.ends_well();
}

#[test]
fn the_minimal_peer_connects_in_frames_of_ethertype_8181() {
    require_namespaces!();
    skip_unless!(why_no_python());
    let cable = cable();
    let endpoint = ethernet(&cable.a);
    let listener = endpoint.listen(PORT).unwrap();
    let station = cable.a.mac.0.map(|byte| format!("{byte:02x}")).join(":");
    let (carrier, sizes) = (format!("eth:{}:{station}", cable.b.name), sizes());
    let mut arguments = vec!["connect", &carrier];
    arguments.extend(sizes.iter().map(String::as_str));
    let mut python = cable.b.namespace.enter(|| Python::start(&arguments)).unwrap();
    run(async { echo(within(listener.accept()).await.unwrap()).await });
    assert_eager(&endpoint);
    python.ends_well();
}

/// The 300 lines of the page are that: what is neither empty nor a comment.
#[test]
fn the_minimal_peer_has_about_300_lines() {
    let script = include_str!("../../../../examples/minimal_peer.py");
    let lines = script.lines().filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    assert!(lines.count() <= 350);
}
