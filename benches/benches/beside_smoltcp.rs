//! Queue pairs, smoltcp and kernel TCP over one cable, in turns: bytes a second, and the
//! processor time that they take.
//!
//! ```sh
//! sudo cargo bench -p landfall-benches --bench beside_smoltcp         # three rounds of 3 s
//! sudo cargo bench -p landfall-benches --bench beside_smoltcp -- 5 4  # five of 4 s
//! ```
//!
//! smoltcp and queue pairs both have packet sockets at both ends, frames of 1,500 bytes, and two
//! threads that sleep where there is nothing to do. smoltcp has the best of several sizes of
//! its buffers. The kernel cuts for itself and for queue pairs where the cable takes more at
//! once; smoltcp has no such thing, so the rows with real frames are those to compare. It needs
//! root.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use landfall_lab::workload::qpip::{self, LowerLayer, Setup};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput};
use landfall_testbed::{Sample, VethConfig, VethEnd, VethPair, privileges};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Medium, RawSocket, wait};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

const PORT: u16 = 7_000;
const MESSAGE: usize = 16 << 10;
/// smoltcp's buffers: more than a packet socket holds is lost at once, and how much is best
/// differs from machine to machine. Its best counts.
const ROOMS: [usize; 3] = [32 << 10, 64 << 10, 128 << 10];
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_test = words.iter().any(|word| word == "--test");
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let (rounds, seconds) = match (numbers.next(), numbers.next()) {
        _ if is_test => (1, 1),
        (rounds, seconds) => (rounds.unwrap_or(3), seconds.unwrap_or(3)),
    };
    if let Some(why) = privileges::why_no_namespaces() {
        println!("skipped: {why}");
        return Ok(());
    }
    let pair = VethPair::new(VethConfig::default())?;
    let time = Duration::from_secs(seconds);
    for is_real in [true, false] {
        pair.set_real_frames(is_real)?;
        println!("{}:", if is_real { "real frames" } else { "super frames where they can" });
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let mut theirs = 0.0f64;
            for room in ROOMS {
                theirs = theirs.max(smoltcp(&pair, time, room).context("smoltcp")?);
            }
            let ours = queue_pairs(&pair, time).context("queue pairs")?;
            let kernel = kernel(&pair, time).context("kernel TCP")?;
            println!(
                "  smoltcp {theirs:.2} GB/s, queue pairs {ours:.2} GB/s, kernel TCP {kernel:.2} GB/s"
            );
            ratios.push(ours / theirs);
        }
        ratios.sort_by(f64::total_cmp);
        println!("  queue pairs ÷ smoltcp: {:.1}", ratios[ratios.len() / 2]);
    }
    Ok(())
}

fn plan(pair: &VethPair, time: Duration) -> anyhow::Result<Plan> {
    Ok(Plan::new(Endpoints::over(pair)?, Amount::Time(time)))
}

/// Gigabytes a second.
fn rate(sample: &Sample) -> f64 {
    sample.bytes as f64 / sample.seconds / 1e9
}

fn queue_pairs(pair: &VethPair, time: Duration) -> anyhow::Result<f64> {
    let setup = Setup::over(LowerLayer::Packet(pair));
    Ok(rate(&qpip::stream(&plan(pair, time)?, &setup, qpip::shape(MESSAGE))?.sample))
}

fn kernel(pair: &VethPair, time: Duration) -> anyhow::Result<f64> {
    Ok(rate(&TcpThroughput::new(plan(pair, time)?).run()?))
}

/// A host of smoltcp's, with one socket.
struct Host {
    device: RawSocket,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    started: Instant,
}

/// An address that the kernel does not have at that end.
fn address(end: &VethEnd) -> IpAddress {
    let [a, b, c, d] = end.ipv4.octets();
    IpAddress::v4(a, b, c, d ^ 0x40)
}

impl Host {
    /// On a thread that is in the namespace of this end.
    fn new(end: &VethEnd, room: usize) -> anyhow::Result<Self> {
        let mut device = RawSocket::new(&end.name, Medium::Ethernet)?;
        let mut mac = end.mac.0;
        mac[5] ^= 0x40;
        let config = Config::new(EthernetAddress(mac).into());
        let now = smoltcp::time::Instant::ZERO;
        let mut interface = Interface::new(config, &mut device, now);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(address(end), 24)).expect("there is room");
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; room]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Ok(Self { device, interface, sockets, socket, started: Instant::now() })
    }

    fn now(&self) -> smoltcp::time::Instant {
        smoltcp::time::Instant::from_micros(self.started.elapsed().as_micros() as i64)
    }

    /// Works on what came, and gives the socket.
    fn poll(&mut self) -> &mut tcp::Socket<'static> {
        self.interface.poll(self.now(), &mut self.device, &mut self.sockets);
        self.sockets.get_mut(self.socket)
    }

    /// Sleeps until something comes or is due.
    fn sleep(&mut self) -> anyhow::Result<()> {
        const LONGEST: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(5);
        let due = self.interface.poll_delay(self.now(), &self.sockets).unwrap_or(LONGEST);
        Ok(wait(self.device.as_raw_fd(), Some(due.min(LONGEST)))?)
    }
}

/// From one host of smoltcp's to another; the receiver adds up what came.
fn smoltcp(pair: &VethPair, time: Duration, room: usize) -> anyhow::Result<f64> {
    let is_over = AtomicBool::new(false);
    let (listens, is_listening) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let receiver = scope.spawn(move || {
            pair.b.namespace.enter(move || {
                let mut host = Host::new(&pair.b, room)?;
                host.poll().listen(PORT).map_err(|error| anyhow!("{error:?}"))?;
                listens.send(())?;
                receive(&mut host, is_over)
            })
        });
        let sent = pair.a.namespace.enter(move || {
            let mut host = Host::new(&pair.a, room)?;
            is_listening.recv_timeout(PATIENCE).context("nobody listens")?;
            let to = (address(&pair.b), PORT);
            let socket = host.sockets.get_mut::<tcp::Socket<'_>>(host.socket);
            let asked = socket.connect(host.interface.context(), to, 50_000);
            asked.map_err(|error| anyhow!("{error:?}"))?;
            send(&mut host, time)
        });
        is_over.store(true, Ordering::SeqCst);
        sent??;
        let (bytes, seconds) = receiver.join().expect("no panic")??;
        Ok(bytes as f64 / seconds / 1e9)
    })
}

fn send(host: &mut Host, time: Duration) -> anyhow::Result<()> {
    let message: Vec<u8> = (0..MESSAGE).map(|n| n as u8).collect();
    let asked = Instant::now();
    while !host.poll().may_send() {
        ensure!(asked.elapsed() < PATIENCE, "the connection does not open");
        host.sleep()?;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        let socket = host.poll();
        let mut is_full = true;
        while socket.can_send() {
            socket.send_slice(&message).map_err(|error| anyhow!("{error:?}"))?;
            is_full = false;
        }
        if is_full {
            host.sleep()?;
        }
    }
    Ok(())
}

/// How much came, and in how many seconds from the first byte to the last.
fn receive(host: &mut Host, is_over: &AtomicBool) -> anyhow::Result<(u64, f64)> {
    let mut into = vec![0; MESSAGE];
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    loop {
        let socket = host.poll();
        let mut came = 0;
        while socket.can_recv() {
            came += socket.recv_slice(&mut into).map_err(|error| anyhow!("{error:?}"))?;
        }
        if came > 0 {
            bytes += came as u64;
            last = Instant::now();
            first.get_or_insert(last);
        } else if is_over.load(Ordering::SeqCst) {
            break;
        } else {
            host.sleep()?;
        }
    }
    let first = first.context("nothing came")?;
    Ok((bytes, (last - first).as_secs_f64()))
}
