//! Ways through a TAP interface: `tap_ways [ROUNDS]`, as root.
//!
//! Frames that the kernel has queued are read, and others written, one for each call
//! or many by one call of `io_uring`, in turns: nanoseconds for each, medians. Then one TCP
//! connection over a cable of the kernel's, super-packets whole, and over two TAP interfaces
//! between which a thread each way passes super-packets in user space, without any other link.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use landfall_testbed::cpu::CpuMeter;
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput, WorkerPlace};
use landfall_testbed::{Namespace, VethConfig, VethPair};
use landfall_transport::memory::Regions;
use landfall_transport::tap::{
    FrameReader, FrameWriter, TapConfig, open_frames, open_super_frames,
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// This many frames are read or written in a round: what one turn of a busy thread finds.
const BATCH: usize = 64;
/// The longest frame, with a header in front.
const ROOM: usize = 66 << 10;

fn main() -> Result<(), Error> {
    let rounds = std::env::args().nth(1).map_or(Ok(200), |text| text.parse())?;
    println!("{BATCH} frames at once, ns for each, medians of {rounds}");
    for len in [1_000, 8_000, 60_000] {
        let namespace = Namespace::new()?;
        let [read, write] = namespace.enter(|| frames(len, rounds))??;
        for (what, [calls, ring]) in [("read", read), ("write", write)] {
            println!("{len:6} bytes  {what:5}  a call for each {calls:6}  io_uring {ring:6}");
        }
    }
    let mut rows = [("kernel TCP, veth", Vec::new()), ("two TAPs, user space", Vec::new())];
    for _ in 0..5 {
        let cable = VethPair::new(VethConfig::default())?;
        rows[0].1.push(tcp(Endpoints::over(&cable)?)?);
        rows[1].1.push(through_user_space()?);
    }
    println!("one connection, super-packets whole, medians of 5    GB/s  CPU-s/GB");
    for (what, mut seen) in rows {
        seen.sort_by(|one, other| one[0].total_cmp(&other[0]));
        let [rate, cpu] = seen[seen.len() / 2];
        println!("{what:48} {rate:8.2} {cpu:9.2}");
    }
    Ok(())
}

/// Reads and writes this many rounds of frames with this payload: `[read, write]`, each by a call
/// for each frame and by `io_uring`.
fn frames(len: usize, rounds: usize) -> Result<[[u64; 2]; 2], Error> {
    let config = TapConfig {
        mtu: Some(65_000),
        kernel_address: Some((address(0), 24)),
        ..TapConfig::new("tap0")
    };
    let (reader, writer) = open_frames(&config, &Regions::new(1))?;
    let fd = reader.interest().fd;
    let ip = |arguments: &str| {
        std::process::Command::new("ip").args(arguments.split_whitespace()).status()
    };
    ip("neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev tap0 nud permanent")?;
    ip("link set tap0 txqueuelen 1000")?;
    let socket = UdpSocket::bind("10.9.0.1:7000")?;
    let payload = vec![7; len];
    let mut memory: Vec<Vec<u8>> = (0..BATCH).map(|_| vec![0; ROOM]).collect();
    let mut ring = IoUring::new(2 * BATCH as u32)?;
    let mut taken: [[Vec<u64>; 2]; 2] = <_>::default();
    for round in 0..rounds {
        // What comes first has no advantage.
        for way in [round % 2, 1 - round % 2] {
            while read(fd, &mut memory[0]).is_some() {}
            for _ in 0..BATCH {
                socket.send_to(&payload, "10.9.0.2:7000")?;
            }
            let began = Instant::now();
            let lens = match way {
                0 => memory.iter_mut().map(|frame| read(fd, frame).unwrap_or(0)).collect(),
                _ => by_ring(&mut ring, fd, &mut memory, &[])?,
            };
            taken[0][way].push(began.elapsed().as_nanos() as u64 / BATCH as u64);
            assert!(lens.iter().all(|it| *it >= len), "{lens:?}");
            // They come back: from another station, to a port that nobody has.
            for frame in &mut memory {
                let (stations, addresses) = frame.split_at_mut(26);
                let (to, from) = stations[..12].split_at_mut(6);
                to.swap_with_slice(from);
                let (source, destination) = addresses[..8].split_at_mut(4);
                source.swap_with_slice(destination);
            }
            let began = Instant::now();
            match way {
                0 => {
                    for (frame, len) in memory.iter().zip(&lens) {
                        writer.write(&[IoSlice::new(&frame[..*len])])?;
                    }
                }
                _ => drop(by_ring(&mut ring, fd, &mut memory, &lens)?),
            }
            taken[1][way].push(began.elapsed().as_nanos() as u64 / BATCH as u64);
            socket.set_nonblocking(true)?;
            let mut came = vec![0; ROOM];
            while socket.recv_from(&mut came).is_ok() {}
        }
    }
    Ok(taken.map(|ways| ways.map(median)))
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

/// A frame; `None` if there is none.
fn read(fd: RawFd, into: &mut [u8]) -> Option<usize> {
    // SAFETY: the slice is borrowed exclusively, and has this many bytes.
    let len = unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(len).ok()
}

/// Reads a frame into each of these, or writes what is there of the given lengths, with one call.
fn by_ring(
    ring: &mut IoUring,
    fd: RawFd,
    memory: &mut [Vec<u8>],
    written: &[usize],
) -> Result<Vec<usize>, Error> {
    for (nth, frame) in memory.iter_mut().enumerate() {
        let entry = match written.get(nth) {
            Some(len) => opcode::Write::new(types::Fd(fd), frame.as_ptr(), *len as u32).build(),
            None => {
                let room = frame.len() as u32;
                opcode::Read::new(types::Fd(fd), frame.as_mut_ptr(), room).build()
            }
        };
        // SAFETY: the memory is borrowed until all entries are done, below.
        unsafe { ring.submission().push(&entry.user_data(nth as u64)) }?;
    }
    ring.submit_and_wait(memory.len())?;
    let mut lens = vec![0; memory.len()];
    for done in ring.completion() {
        lens[done.user_data() as usize] = usize::try_from(done.result()).unwrap_or(0);
    }
    Ok(lens)
}

/// One connection for a second: GB/s, and seconds of all processors for each GB.
fn tcp(endpoints: Endpoints) -> Result<[f64; 2], Error> {
    let meter = CpuMeter::start()?;
    let plan = Plan::new(endpoints, Amount::Time(Duration::from_secs(1)));
    let sample = TcpThroughput::new(plan).run()?;
    let busy = meter.stop()?.process.busy_s();
    let rate = sample.goodput() / 1e9;
    Ok([rate, busy / rate])
}

/// The same over two TAP interfaces.
fn through_user_space() -> Result<[f64; 2], Error> {
    let namespaces = [Namespace::new()?, Namespace::new()?];
    let open = |nth: usize| {
        let config =
            TapConfig { kernel_address: Some((address(nth), 24)), ..TapConfig::new("tap0") };
        namespaces[nth].enter(|| open_super_frames(&config, &Regions::new(2)))
    };
    let ([near, far], is_over) = ([open(0)??, open(1)??], AtomicBool::new(false));
    let mut endpoints = Endpoints::loopback()?;
    let place = |nth: usize, core| {
        let namespace = Some(namespaces[nth].clone());
        WorkerPlace { namespace, address: address(nth), core }
    };
    endpoints.send = place(0, endpoints.send.core);
    endpoints.receive = place(1, endpoints.receive.core);
    thread::scope(|scope| {
        scope.spawn(|| pass(&near.0, &far.1, &is_over));
        scope.spawn(|| pass(&far.0, &near.1, &is_over));
        let rate = tcp(endpoints);
        is_over.store(true, Ordering::Relaxed);
        rate
    })
}

fn address(nth: usize) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, nth as u8 + 1).into()
}

/// Passes what the one interface sends to the other, until it is over.
fn pass(from: &FrameReader, to: &FrameWriter, is_over: &AtomicBool) {
    let mut frame = vec![0; ROOM];
    let fd = from.interest().fd;
    while !is_over.load(Ordering::Relaxed) {
        if let Some(len) = read(fd, &mut frame) {
            // What the other one does not take is lost, as on a wire.
            let _ = to.write(&[IoSlice::new(&frame[..len])]);
        } else {
            let mut waits = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor, which lives through the call.
            unsafe { libc::poll(&raw mut waits, 1, 20) };
        }
    }
}
