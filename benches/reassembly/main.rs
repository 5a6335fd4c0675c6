//! Reassembly by itself: `spec_defrag::reassembly` beside smoltcp's and beside the algorithm of DPDK's
//! `ip_frag`, in turn: time for each fragment and for each packet, and what a flood costs.
//!
//! ```sh
//! cargo bench -p landfall-benches --bench reassembly
//! ```
//!
//! With `--test` each is run once and briefly; that all make the same packets is checked in both. With
//! `-- --instructions` it runs itself under `valgrind --tool=callgrind` and counts instructions for each
//! fragment, which do not depend on what else the machine does.

mod dpdk;
mod smoltcp;

use std::env;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use landfall_placement::{Instant as Moment, RegionId};
use landfall_testkit::trials::noise;
use spec_defrag::HashSecret;
use spec_defrag::cut::{Cutter, Df};
use spec_defrag::reassembly::{Config, Reassembler};

use self::smoltcp::Smoltcp;

/// The most fragments of a packet in DPDK's table as it is built by default; the largest that it
/// can be built with here.
const FEW: usize = 8;
const MANY: usize = 64;
const PACKETS: usize = 4_096;

/// A UDP datagram from a host in fragments for an MTU of 1500.
fn fragments(host: u32, id: u16, len: usize) -> Vec<Vec<u8>> {
    let mut frame = vec![2; 12];
    let total = (28 + len) as u16;
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend([0, 0, 64, 17, 0, 0]);
    frame.extend(host.to_be_bytes());
    frame.extend([10, 0, 1, 1]);
    let sum = !landfall_placement::checksum::sum_of(&frame[14..]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0, 9, 0, 9]);
    frame.extend(((8 + len) as u16).to_be_bytes());
    frame.extend([0, 0]);
    let body = noise(u64::from(host) << 16 | u64::from(id), len);
    let span = RegionId::new(1, 1).span(0, len as u32);
    let mut cutter = Cutter::new(Df::Refuse, [1; 32]);
    let pieces = cutter.cut(&frame, span, 1500).expect("it can be cut");
    pieces
        .map(|piece| {
            let at = piece.payload.offset as usize;
            [&piece.head[..], &body[at..at + piece.payload.len as usize]].concat()
        })
        .collect()
}

/// Frames in the order in which they come.
struct Traffic {
    name: &'static str,
    frames: Vec<Vec<u8>>,
    packets: usize,
    longest: usize,
}

fn traffic() -> Vec<Traffic> {
    let many = |count: u16, hosts: u32, len| -> Vec<Vec<Vec<u8>>> {
        (0..count).map(|id| fragments(0x0a00_0002 + u32::from(id) % hosts, id, len)).collect()
    };
    let entry = |name, packets: Vec<Vec<Vec<u8>>>, between: bool, back: bool| {
        let longest = packets[0].len();
        let count = packets.len();
        let mut frames = Vec::new();
        // Sixteen senders' fragments, one by one.
        let together = if between { 16 } else { 1 };
        for group in packets.chunks(together) {
            for at in 0..longest {
                let at = if back { longest - 1 - at } else { at };
                frames.extend(group.iter().map(|packet| packet[at].clone()));
            }
        }
        Traffic { name, frames, packets: count, longest }
    };
    vec![
        entry("4 KiB, in order", many(2_048, 1, 4_096), false, false),
        entry("4 KiB, 16 senders", many(2_048, 16, 4_096), true, false),
        entry("4 KiB, backwards", many(2_048, 1, 4_096), false, true),
        entry("60 KiB, in order", many(160, 1, 61_440), false, false),
        entry("60 KiB, 16 senders", many(160, 16, 61_440), true, false),
        entry("60 KiB, backwards", many(160, 1, 61_440), false, true),
    ]
}

/// How often the frames are gone through for one figure. It is what is counted, too: see [`count`].
#[inline(never)]
fn timed(rounds: u32, mut round: impl FnMut() -> u64) -> (Duration, u64) {
    let mut packets = 0;
    let mut best = Duration::MAX;
    for _ in 0..rounds {
        let start = Instant::now();
        packets = round();
        best = best.min(start.elapsed());
    }
    (best, packets)
}

fn config() -> Config {
    Config::new(HashSecret::new(0x1234, 0x5678))
}

/// As a list, or copied into one piece.
fn ours(traffic: &Traffic, rounds: u32, is_flat: bool) -> (Duration, u64) {
    let mut reassembler = Reassembler::new(config());
    let mut room = vec![0; 1 << 16];
    timed(rounds, || {
        let mut packets = 0;
        for frame in &traffic.frames {
            let Some(packet) = reassembler.offer(Moment::from_millis(1), frame).packet() else {
                continue;
            };
            packets += 1;
            if is_flat {
                black_box(packet.copy_to(&mut room)).expect("there is room");
            } else {
                black_box(packet.pieces().map(<[u8]>::len).sum::<usize>());
            }
        }
        packets
    })
}

/// Frames are kept, and nothing is copied; as a list.
fn keeping(traffic: &Traffic, rounds: u32) -> (Duration, u64) {
    let mut reassembler: Reassembler<&[u8]> = Reassembler::keeping(config());
    timed(rounds, || {
        let mut packets = 0;
        for frame in &traffic.frames {
            let mut frame = Some(&frame[..]);
            let outcome = reassembler.offer_frame(Moment::from_millis(1), &mut frame);
            let Some(packet) = outcome.packet() else { continue };
            packets += 1;
            black_box(packet.pieces().map(<[u8]>::len).sum::<usize>());
        }
        packets
    })
}

fn dpdk<const N: usize>(traffic: &Traffic, rounds: u32, is_flat: bool) -> (Duration, u64) {
    let mut table = dpdk::Table::<N>::new(PACKETS, 30_000_000);
    let mut room = vec![0; 1 << 16];
    timed(rounds, || {
        let mut packets = 0;
        for frame in &traffic.frames {
            let Some(chain) = table.offer(1, frame) else { continue };
            packets += 1;
            let mut at = 0;
            for piece in chain.pieces() {
                if is_flat {
                    room[at..at + piece.len()].copy_from_slice(piece);
                }
                at += piece.len();
            }
            black_box((at, &room));
        }
        packets
    })
}

fn smoltcp(traffic: &Traffic, rounds: u32) -> (Duration, u64) {
    let mut smoltcp = Smoltcp::new();
    timed(rounds, || {
        let mut packets = 0;
        for frame in &traffic.frames {
            smoltcp.offer(1, frame, |packet| {
                packets += 1;
                black_box(packet.len());
            });
        }
        packets
    })
}

/// All make the same packets of the same frames.
fn check(traffic: &Traffic) {
    let mut reassembler = Reassembler::new(config());
    let mut keeping: Reassembler<&[u8]> = Reassembler::keeping(config());
    let mut table = dpdk::Table::<MANY>::new(PACKETS, 30_000_000);
    let mut smoltcp = Smoltcp::new();
    for frame in &traffic.frames {
        let ours = reassembler.offer(Moment::from_millis(1), frame).packet();
        let ours = ours.map(|packet| packet.to_vec()[34..].to_vec());
        let mut kept = Some(&frame[..]);
        let listed = keeping.offer_frame(Moment::from_millis(1), &mut kept).packet();
        assert_eq!(ours, listed.map(|packet| packet.to_vec()[34..].to_vec()), "{}", traffic.name);
        let theirs = table.offer(1, frame).map(|chain| chain.pieces().flatten().copied().collect());
        assert_eq!(ours, theirs, "{}", traffic.name);
        let mut others = Vec::new();
        smoltcp.offer(1, frame, |packet| others.push(packet[20..].to_vec()));
        assert_eq!(ours.into_iter().collect::<Vec<_>>(), others, "{}", traffic.name);
    }
}

/// Who joins, and how.
type Subject = (&'static str, fn(&Traffic, u32) -> (Duration, u64));

const SUBJECTS: [Subject; 6] = [
    ("spec_defrag, as a list", |traffic, rounds| ours(traffic, rounds, false)),
    ("spec_defrag, in one piece", |traffic, rounds| ours(traffic, rounds, true)),
    ("spec_defrag, frames kept", keeping),
    ("ip_frag, as a chain", |traffic, rounds| ip_frag(traffic, rounds, false)),
    ("ip_frag, in one piece", |traffic, rounds| ip_frag(traffic, rounds, true)),
    ("smoltcp, interface and socket", smoltcp),
];

/// With as small a table as will do: for 8 fragments of a packet, or for 64.
fn ip_frag(traffic: &Traffic, rounds: u32, is_flat: bool) -> (Duration, u64) {
    match traffic.longest {
        ..=FEW => dpdk::<FEW>(traffic, rounds, is_flat),
        _ => dpdk::<MANY>(traffic, rounds, is_flat),
    }
}

fn times(rounds: u32) {
    println!("| traffic | what | ns a fragment | ns a packet | GB/s |");
    println!("| --- | --- | --- | --- | --- |");
    for traffic in traffic() {
        check(&traffic);
        let bytes: usize = traffic.frames.iter().map(Vec::len).sum();
        for (what, run) in SUBJECTS {
            let (time, packets) = run(&traffic, rounds);
            assert_eq!(packets, traffic.packets as u64, "{}: {what}", traffic.name);
            let nanos = time.as_nanos() as f64;
            println!(
                "| {} | {what} | {:.0} | {:.0} | {:.2} |",
                traffic.name,
                nanos / traffic.frames.len() as f64,
                nanos / packets as f64,
                bytes as f64 / nanos
            );
        }
    }
}

/// Tells the copy under valgrind what to run: the number of the traffic and of the subject.
const WORK: &str = "LANDFALL_REASSEMBLY_WORK";
/// What it goes through, the first time with tables and buffers that are still to grow.
const COUNTED: u32 = 10;

fn instructions() {
    println!("| traffic | what | instructions a fragment |");
    println!("| --- | --- | --- |");
    for (at, traffic) in traffic().iter().enumerate() {
        for (nth, (what, _)) in SUBJECTS.iter().enumerate() {
            match count(at, nth) {
                Ok(all) => {
                    let each = all as f64 / f64::from(COUNTED) / traffic.frames.len() as f64;
                    println!("| {} | {what} | {each:.0} |", traffic.name);
                }
                Err(why) => println!("{what}: not counted (is valgrind installed?): {why}"),
            }
        }
    }
}

/// Runs this program under callgrind: how many instructions [`timed`] took.
fn count(traffic: usize, subject: usize) -> Result<u64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*reassembly*timed*")
        .arg(program)
        .env(WORK, format!("{traffic} {subject}"))
        .output()
        .map_err(|error| format!("valgrind cannot be started ({error})"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| format!("it said: {said}"))
}

/// What the copy under valgrind does.
fn work(what: &str) -> Option<()> {
    let (at, subject) = what.split_once(' ')?;
    let traffic = traffic().into_iter().nth(at.parse().ok()?)?;
    let (_, run) = SUBJECTS.get(subject.parse::<usize>().ok()?)?;
    run(&traffic, COUNTED);
    Some(())
}

/// First fragments that never become packets, and after each ten of them one fragment of an honest
/// sender: how many of its packets come out, and what is held.
fn flood(name: &str, count: u32, host_of: impl Fn(u32) -> u32) {
    let flood: Vec<Vec<u8>> =
        (0..count).map(|n| fragments(host_of(n), n as u16, 4_096).swap_remove(0)).collect();
    let honest: Vec<Vec<u8>> =
        (0..count / 30).flat_map(|id| fragments(0x0a00_0002, id as u16, 4_096)).collect();
    let wanted = f64::from(count / 30);
    let mut frames = Vec::new();
    for (ten, one) in flood.chunks(10).zip(&honest) {
        frames.extend(ten);
        frames.push(one);
    }
    let show = |what: &str, packets: u64, memory: usize, time: Duration| {
        println!(
            "| {name} | {what} | {:.1} % | {} KiB | {:.0} |",
            100.0 * packets as f64 / wanted,
            memory >> 10,
            time.as_nanos() as f64 / frames.len() as f64
        );
    };
    let now = |at: usize| at as u64; // a frame each microsecond
    let mut reassembler = Reassembler::new(config());
    let (mut packets, mut memory) = (0, 0);
    let start = Instant::now();
    for (at, frame) in frames.iter().enumerate() {
        let moment = Moment::from_micros(now(at));
        packets += u64::from(reassembler.offer(moment, frame).packet().is_some());
        memory = memory.max(reassembler.memory());
    }
    show("spec_defrag", packets, memory as usize, start.elapsed());
    let mut table = dpdk::Table::<FEW>::new(16_384, 30_000_000);
    let (mut packets, mut memory) = (0, 0);
    let start = Instant::now();
    for (at, frame) in frames.iter().enumerate() {
        packets += u64::from(table.offer(now(at), frame).is_some());
        memory = memory.max(table.memory());
    }
    show("ip_frag of 8, 16,384 packets", packets, memory, start.elapsed());
    let mut smoltcp = Smoltcp::new();
    let mut packets = 0;
    let start = Instant::now();
    for (at, frame) in frames.iter().enumerate() {
        smoltcp.offer(now(at), frame, |_| packets += 1);
    }
    // Its 32 buffers grow to the longest packet that was in each.
    show("smoltcp, 32 buffers", packets, 32 * 4_104, start.elapsed());
}

fn main() {
    if let Ok(what) = env::var(WORK) {
        work(&what).expect("it is a traffic and a subject");
        return;
    }
    if env::args().any(|word| word == "--instructions") {
        return instructions();
    }
    let is_test = env::args().any(|word| word == "--test");
    times(if is_test { 1 } else { 30 });
    println!("\n| flood | what | honest packets | most held | ns a frame |");
    println!("| --- | --- | --- | --- | --- |");
    let count = if is_test { 3_000 } else { 150_000 };
    flood("one source", count, |_| 0x0a63_0001);
    flood("addresses made up", count, |n| 0x0b00_0000 + n);
}
