//! How fast SCSI over STP reads, beside `iscsi-perf` of libiscsi over the kernel's TCP: random
//! reads of 4 KiB with one and with 32 under way, and reads of 1 MiB in order with eight.
//!
//! ```sh
//! landfall scsi serve --target iqn.2026-01.example:ours --lun 1=file:disk.img \
//!     --listen 127.0.0.1:3271 --listen stp://127.0.0.1:3272 --plaintext
//! cargo run --release -p landfall-storage --example scsi_over_stp -- 127.0.0.1:8181 3272 1
//! iscsi-perf -r -m 32 -b 8 -t 3 iscsi://127.0.0.1:3271/iqn.2026-01.example:ours/1
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use landfall::stp::{Endpoint, Memory, Transport, blocking};
use landfall_storage::scsi::Lun;
use landfall_storage::scsi::sst::Initiator;

/// Each work runs for this time.
const TIME: Duration = Duration::from_secs(3);

/// What is read.
struct Work {
    name: &'static str,
    len: usize,
    depth: usize,
    in_order: bool,
}

const WORKS: [Work; 3] = [
    Work { name: "random 4 KiB, depth 1", len: 4 << 10, depth: 1, in_order: false },
    Work { name: "random 4 KiB, depth 32", len: 4 << 10, depth: 32, in_order: false },
    Work { name: "sequential 1 MiB, depth 8", len: 1 << 20, depth: 8, in_order: true },
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "scsi_over_stp ADDRESS:UDP-PORT PORT LUN";
    let target: SocketAddr = words.next().ok_or(usage)?.parse()?;
    let port: u16 = words.next().ok_or(usage)?.parse()?;
    let lun: u16 = words.next().ok_or(usage)?.parse()?;
    let lun = Lun::new(lun).ok_or("no unit has that number")?;
    let endpoint = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    let connection = blocking::Endpoint::from(endpoint).connect(target, port)?;
    let initiator = Initiator::new(connection.as_async().clone(), "iqn.2026-01.example:reader")?;
    // The first command is told that the unit is new to this initiator.
    let _ = initiator.ready(lun).wait();
    let capacity = initiator.capacity(lun).wait()?;
    let last = u64::from_be_bytes(*capacity.memory.first_chunk().ok_or("no capacity")?);
    for work in &WORKS {
        let (reads, longest) = run(&initiator, lun, work, last + 1)?;
        let rate = reads as f64 / TIME.as_secs_f64();
        let bytes = rate * work.len as f64 / 1e6;
        println!("{:26} {rate:9.0} a second {bytes:6.0} MB/s, longest {longest:.1?}", work.name);
    }
    Ok(())
}

/// Keeps as many reads under way as the work wants. Gives how many there were, and how long the
/// longest took.
fn run(
    initiator: &Initiator,
    lun: Lun,
    work: &Work,
    blocks: u64,
) -> Result<(u64, Duration), Box<dyn Error>> {
    const BLOCK: u64 = 512;
    let places = blocks * BLOCK / work.len as u64;
    let (mut place, mut seed) = (0, 1u64);
    let mut next = || {
        // A generator of Knuth's.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        place = if work.in_order { (place + 1) % places } else { (seed >> 33) % places };
        place * work.len as u64 / BLOCK
    };
    let mut under_way = VecDeque::new();
    for _ in 0..work.depth {
        let memory = Memory::zeroed(work.len);
        under_way.push_back((Instant::now(), initiator.read(lun, next(), memory)));
    }
    let (start, mut reads, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while let Some((began, read)) = under_way.pop_front() {
        let memory = read.wait()?.memory;
        longest = longest.max(began.elapsed());
        reads += 1;
        if start.elapsed() < TIME {
            under_way.push_back((Instant::now(), initiator.read(lun, next(), memory)));
        }
    }
    Ok((reads, longest))
}
