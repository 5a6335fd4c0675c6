//! Reads of a network block device whose server is in this process, through the public API of
//! `landfall-storage` with its defaults.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::qpip::{Adapter, Link, TunnelConfig};
use landfall_storage::client::{Client, Options};
use landfall_storage::device::{BlockDevice, MemoryDevice};
use landfall_storage::server::{Offer, Server};
use landfall_storage::sockets_compat::{QpHost, StpHost, StpOptions, StpStream};
use landfall_storage::stream::queue_pair_options;
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::{CpuSplit, RttHistogram, Sample};

/// The size of the device: more than a cache holds.
const SIZE: u64 = 64 << 20;

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The kernel's TCP.
    Tcp,
    /// STP by UDP, both with their defaults.
    Stp,
    /// Queue pairs of two adapters, with a tunnel through UDP between them.
    Qp,
}

/// How it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    /// Bytes of a request.
    pub(crate) len: u32,
    /// Requests under way at a time.
    pub(crate) depth: usize,
}

/// Reads for a time; a server that does not answer for the limit beyond it has failed.
pub(crate) fn run(
    carrier: Carrier,
    reads: Reads,
    (time, limit): (Duration, Duration),
) -> Result<Sample> {
    let device = MemoryDevice::new(SIZE);
    let piece: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    for offset in (0..SIZE).step_by(piece.len()) {
        device.write(offset, &piece)?;
    }
    let server = Server::builder().offer(Offer::new("disk", device)).start()?;
    let options = Options::export("disk");
    // Kept until the client is gone.
    let (client, _host) = match carrier {
        Carrier::Tcp => {
            let address = server.listen("127.0.0.1:0")?;
            (Client::connect_tcp(address, &options)?, None)
        }
        Carrier::Stp => {
            let host = StpHost::bind_udp("127.0.0.1:0".parse()?, StpOptions::default())?;
            let address = server.streams().listen_stp(&host, 0)?;
            let stream = Arc::new(StpStream::connect(address)?);
            (Client::connect(stream, &options)?, Some(Host::Stp(host)))
        }
        Carrier::Qp => {
            let (near, far) = adapters()?;
            server.streams().listen_qp(&far, SocketAddr::new(FAR, PORT))?;
            let stream = Arc::new(near.connect(SocketAddr::new(FAR, PORT))?);
            (Client::connect(stream, &options)?, Some(Host::Qp(near, far)))
        }
    };
    let (done, heard) = channel();
    let reading = client.clone();
    let thread = thread::Builder::new().name("nbd-reader".into());
    let thread = thread.spawn(move || {
        // Nobody hears it where the time is over.
        let _ = done.send(read(&reading, reads, time));
    })?;
    let Ok(sample) = heard.recv_timeout(time + limit) else {
        client.end("it takes too long");
        bail!("a read was not answered within {limit:?}");
    };
    thread.join().ok().context("the thread that reads has panicked")?;
    sample
}

/// What carries a connection, for as long as that is there.
#[expect(dead_code, reason = "it is kept and not used")]
enum Host {
    Stp(StpHost),
    Qp(QpHost, QpHost),
}

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const PORT: u16 = 10_809;
/// The largest frames that a datagram carries.
const MTU: u32 = 65_000;

/// Two adapters, the first of which knows where the second is.
fn adapters() -> Result<(QpHost, QpHost)> {
    let open = |address: IpAddr, config| -> Result<Adapter> {
        let builder = Adapter::builder().link(Link::tunnel_with(config));
        Ok(builder.address(format!("{address}/24")).open()?)
    };
    let config = TunnelConfig::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), MTU);
    let far = open(FAR, TunnelConfig { learn_peers: true, ..config.clone() })?;
    let there = far.links().first().and_then(|link| link.tunnel_address);
    let peers = vec![there.context("a tunnel has an address")?];
    let near = open(NEAR, TunnelConfig { peers, ..config })?;
    Ok((QpHost::new(near, queue_pair_options())?, QpHost::new(far, queue_pair_options())?))
}

fn read(client: &Client, reads: Reads, time: Duration) -> Result<Sample> {
    let (mut under_way, mut free, mut offset) = (VecDeque::new(), Vec::new(), 0);
    let (mut round_trips, mut messages) = (RttHistogram::new(), 0_u64);
    let (meter, process) = (CpuMeter::start()?, TaskUse::of_this_process()?);
    let started = Instant::now();
    loop {
        let is_over = started.elapsed() >= time;
        while !is_over && under_way.len() < reads.depth {
            let buffer = free.pop().unwrap_or_else(|| vec![0; reads.len as usize]);
            under_way.push_back((Instant::now(), client.read(offset, buffer)));
            offset = (offset + u64::from(reads.len)) % SIZE;
        }
        let Some((asked, pending)) = under_way.pop_front() else { break };
        free.push(pending.wait().context("a read has failed")?);
        round_trips.record(asked.elapsed());
        messages += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    let (cpu, process) = (meter.stop()?, (TaskUse::of_this_process()? - process).busy_s());
    let receive_s = cpu.thread.busy_s();
    // The server's threads, and those of STP at both ends.
    let send_s = (process - receive_s).max(0.0);
    let cpu = CpuSplit { send_s, receive_s, machine_s: cpu.machine_s };
    let bytes = messages * u64::from(reads.len);
    let (rtt, user_copied_bytes) = (round_trips.summary(), bytes);
    Ok(Sample { bytes, messages, seconds, cpu, rtt, user_copied_bytes, ..Sample::default() })
}
