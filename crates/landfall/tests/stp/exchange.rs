//! Two processes in two network namespaces exchange bytes over a virtual cable:
//! by UDP (of the kernel, and by packets), as frames of ethertype 0x8181, and as IP protocol 118; and again
//! with 2 % of the packets lost each way. The hashes at both ends are equal.
//!
//! 64 MB for each carrier; with `LANDFALL_LONG=1` 10 GB.
//! `LANDFALL_EXCHANGE_BYTES` chooses another size.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::PORT;
use anyhow::{Context as _, bail, ensure};
use landfall::stp::blocking::{Connection, Endpoint};
use landfall::stp::{Config, Error, Peer, Transport, UDP_PORT};
use landfall_placement::PathId;
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_transport::Driver;
use landfall_transport::fault::{Faults, Faulty};
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};
use landfall_transport::rawip::{RawIpConfig, RawIpDriver};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};

/// One Transfer; a few of them are under way at a time.
const CHUNK: usize = 4 << 20;
const AHEAD: usize = 4;
const MTU: u32 = 1500;
/// Of a million packets.
const LOSS: u32 = 20_000;

#[test]
fn two_processes_exchange_bytes_over_udp() {
    require_namespaces!();
    exchange("udp", None);
}

#[test]
fn two_processes_exchange_bytes_over_udp_by_packets() {
    require_namespaces!();
    exchange("udp-packet", None);
}

#[test]
fn two_processes_exchange_bytes_over_ethernet() {
    require_namespaces!();
    exchange("ethernet", None);
}

#[test]
fn two_processes_exchange_bytes_over_ip() {
    require_namespaces!();
    exchange("ip", None);
}

#[test]
fn they_do_so_over_udp_with_loss() {
    require_namespaces!();
    exchange("udp", Some(LOSS));
}

#[test]
fn they_do_so_over_udp_by_packets_with_loss() {
    require_namespaces!();
    exchange("udp-packet", Some(LOSS));
}

#[test]
fn they_do_so_over_ethernet_with_loss() {
    require_namespaces!();
    exchange("ethernet", Some(LOSS));
}

#[test]
fn they_do_so_over_ip_with_loss() {
    require_namespaces!();
    exchange("ip", Some(LOSS));
}

fn bytes_to_send() -> u64 {
    let chosen = std::env::var("LANDFALL_EXCHANGE_BYTES").ok().and_then(|text| text.parse().ok());
    let long = std::env::var_os("LANDFALL_LONG").is_some();
    chosen.unwrap_or(if long { 10_000_000_000 } else { 64_000_000 })
}

fn exchange(carrier: &str, loss: Option<u32>) {
    let cable = VethPair::new(VethConfig { mtu: MTU, ..VethConfig::default() }).unwrap();
    let bytes = bytes_to_send();
    let receiver = start("receiver", carrier, loss, bytes, &cable.b, &cable.a);
    let sender = start("sender", carrier, loss, bytes, &cable.a, &cable.b);
    // A bound for what hangs, far beyond what a slow machine needs.
    let until = Instant::now() + Duration::from_secs(120 + bytes / 10_000_000);
    let [sent, received] = [sender, receiver].map(|child| child.report(until));
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!(sent.hash, received.hash, "{carrier}");
    assert_eq!((sent.bytes, received.bytes), (bytes, bytes), "{carrier}");
    println!(
        "{carrier}{}: {bytes} bytes, BLAKE3 {} at both ends, {:.2} GB/s; sender {}; receiver {}",
        loss.map_or_else(String::new, |loss| format!(" with {} % loss", f64::from(loss) / 1e4)),
        sent.hash,
        received.bytes as f64 / received.seconds / 1e9,
        sent.notes,
        received.notes,
    );
}

/// One end, in a process of its own.
struct End(Child);

struct Report {
    hash: String,
    bytes: u64,
    seconds: f64,
    notes: String,
}

fn start(
    role: &str,
    carrier: &str,
    loss: Option<u32>,
    bytes: u64,
    here: &VethEnd,
    there: &VethEnd,
) -> End {
    let hex = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).concat();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "stp::exchange::an_end_in_a_process_of_its_own", "--nocapture"])
        .env("LANDFALL_EXCHANGE_ROLE", role)
        .env("LANDFALL_EXCHANGE_CARRIER", carrier)
        .env("LANDFALL_EXCHANGE_LOSS", loss.unwrap_or(0).to_string())
        .env("LANDFALL_EXCHANGE_BYTES", bytes.to_string())
        .env("LANDFALL_EXCHANGE_INTERFACE", &here.name)
        .env("LANDFALL_EXCHANGE_HERE", here.ipv4.to_string())
        .env("LANDFALL_EXCHANGE_THERE", there.ipv4.to_string())
        .env("LANDFALL_EXCHANGE_STATION", hex(there.mac.0))
        .stdout(Stdio::piped());
    End(here.namespace.enter(move || command.spawn()).unwrap().unwrap())
}

impl End {
    fn report(mut self, until: Instant) -> anyhow::Result<Report> {
        while self.0.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "an end takes far too long");
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut text = String::new();
        self.0.stdout.take().context("the output")?.read_to_string(&mut text)?;
        let Some((_, line)) = text.split_once("REPORT ") else { bail!("no report: {text}") };
        let mut words = line.lines().next().unwrap_or_default().splitn(4, ' ');
        let mut word = || words.next().context("a word");
        Ok(Report {
            hash: word()?.to_owned(),
            bytes: word()?.parse()?,
            seconds: word()?.parse()?,
            notes: word()?.to_owned(),
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Over already, or not wanted any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: the others start it again as a process.
#[test]
fn an_end_in_a_process_of_its_own() {
    let Ok(role) = std::env::var("LANDFALL_EXCHANGE_ROLE") else { return };
    let bytes = bytes_to_send();
    let endpoint = bind().unwrap();
    let (hash, bytes, seconds) = match role.as_str() {
        "sender" => send(&endpoint, bytes),
        _ => receive(&endpoint),
    }
    .unwrap();
    let stats = endpoint.stats();
    let counters = stats.paths[0].counters;
    println!(
        "REPORT {hash} {bytes} {seconds} {:.1} units a receive, {} bytes copied, {} Blocks asked \
         for again, {} link time-outs",
        counters.units_per_receive(),
        counters.bytes_copied,
        stats.engine.blocks_asked_again,
        stats.engine.link_timeouts,
    );
    endpoint.close();
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(format!("LANDFALL_EXCHANGE_{name}")).context(name.to_owned())
}

fn bind() -> anyhow::Result<Endpoint> {
    let (here, interface) = (variable("HERE")?.parse()?, variable("INTERFACE")?);
    let loss = variable("LOSS")?.parse()?;
    let transport = match variable("CARRIER")?.as_str() {
        "udp" => {
            let config = UdpConfig::new(std::net::SocketAddr::new(here, UDP_PORT), MTU);
            lossy(loss, Transport::udp_with(config), move |path, regions| {
                UdpDriver::open(path, config, regions)
            })
        }
        "udp-packet" => {
            let address = std::net::SocketAddr::new(here, UDP_PORT);
            let config = UdpPacketConfig::new(address, MTU);
            lossy(loss, Transport::udp_packet_with(config.clone()), move |path, regions| {
                Ok(UdpPacketDriver::open(path, &config, regions)?)
            })
        }
        "ethernet" => {
            let framing = Framing::Payload { ethertype: 0x8181 };
            let config = PacketConfig::new(&*interface, framing);
            lossy(loss, Transport::ethernet_with(config.clone()), move |path, regions| {
                Ok(PacketDriver::open(path, &config, regions)?)
            })
        }
        _ => {
            let config = RawIpConfig::new(here, 118, MTU);
            lossy(loss, Transport::ip_with(config.clone()), move |path, regions| {
                Ok(RawIpDriver::open(path, &config, regions)?)
            })
        }
    };
    // The cable is ours alone: no window has to yield to others.
    let builder = Endpoint::builder().path(transport).config(Config::default());
    Ok(Endpoint::from(builder.bind()?))
}

/// The driver with faults around it, or the transport as it is.
fn lossy<D: Driver + Send + 'static>(
    loss: u32,
    plain: Transport,
    open: impl FnOnce(PathId, &Regions) -> io::Result<D> + Send + 'static,
) -> Transport {
    if loss == 0 {
        return plain;
    }
    Transport::driver(move |path, regions| {
        let driver = open(path, regions)?;
        Faulty::new(driver, Faults::loss(loss), [118; 32], regions).map_err(io::Error::other)
    })
}

fn peer() -> anyhow::Result<Peer> {
    let there = variable("THERE")?.parse()?;
    Ok(match variable("CARRIER")?.as_str() {
        "udp" | "udp-packet" => Peer::Socket(std::net::SocketAddr::new(there, UDP_PORT)),
        "ethernet" => {
            let digits = variable("STATION")?;
            let mut station = [0; 6];
            for (n, byte) in station.iter_mut().enumerate() {
                *byte = u8::from_str_radix(digits.get(2 * n..2 * n + 2).context("a station")?, 16)?;
            }
            Peer::Ethernet(station)
        }
        _ => Peer::Ip(there),
    })
}

/// The other process may not listen yet.
fn connect(endpoint: &Endpoint) -> anyhow::Result<Connection> {
    let (peer, until) = (peer()?, Instant::now() + Duration::from_secs(60));
    loop {
        match endpoint.connect(peer, PORT) {
            Err(Error::NotConnected(_)) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return Ok(other?),
        }
    }
}

/// Each Transfer has bytes of its own.
fn send(endpoint: &Endpoint, bytes: u64) -> anyhow::Result<(String, u64, f64)> {
    let connection = connect(endpoint)?;
    let (start, mut hasher) = (Instant::now(), blake3::Hasher::new());
    let mut under_way = VecDeque::new();
    let noise = super::noise(1, CHUNK);
    let mut begun = 0;
    while begun < bytes || !under_way.is_empty() {
        if begun < bytes && under_way.len() < AHEAD {
            let mut memory = endpoint.memory((bytes - begun).min(CHUNK as u64) as usize)?;
            let len = memory.len();
            memory.copy_from_slice(&noise[..len]);
            for (word, at) in memory.as_chunks_mut::<8>().0.iter_mut().step_by(512).zip(begun..) {
                *word = at.to_le_bytes();
            }
            hasher.update(&memory);
            let number = (begun / CHUNK as u64) as u32;
            begun += len as u64;
            under_way.push_back(connection.send(memory).opaque(number).start());
        } else if let Some(oldest) = under_way.pop_front() {
            oldest.wait()?;
        }
    }
    connection.close()?;
    Ok((hasher.finalize().to_hex().to_string(), begun, start.elapsed().as_secs_f64()))
}

fn receive(endpoint: &Endpoint) -> anyhow::Result<(String, u64, f64)> {
    let connection = endpoint.listen(PORT)?.accept()?;
    let (start, mut hasher) = (Instant::now(), blake3::Hasher::new());
    let mut under_way = VecDeque::new();
    for _ in 0..AHEAD {
        under_way.push_back(connection.receive(endpoint.memory(CHUNK)?).start());
    }
    let (mut received, mut next, mut early) = (0, 0, BTreeMap::new());
    while let Some(oldest) = under_way.pop_front() {
        let message = match oldest.wait() {
            Ok(message) => message,
            Err(error) if error.is_graceful_close() => continue,
            Err(error) => return Err(error.into()),
        };
        received += message.len() as u64;
        // One whose request was lost comes after those behind it.
        early.insert(message.opaque(), message);
        while let Some(message) = early.remove(&next) {
            // Read where it landed.
            hasher.update(&message);
            next += 1;
            under_way.push_back(connection.receive(message.into_memory()).start());
        }
    }
    ensure!(early.is_empty(), "a Transfer is missing");
    let seconds = start.elapsed().as_secs_f64();
    connection.closed()?;
    Ok((hasher.finalize().to_hex().to_string(), received, seconds))
}
