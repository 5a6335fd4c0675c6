//! Many nodes of CLAN on one host, and many subscribers of one publisher: what each costs.
//!
//! ```sh
//! ulimit -n 200000
//! cargo bench -p landfall-benches --bench clan_crowd
//! ```
//!
//! Each node has a thread and a few descriptors, as each process with one has; here they are all of
//! this process. With `--test` there are few of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall::clan::layer::publish::{Config, Publisher, Subscriber};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{Fabric, Rights};
use landfall_testkit::TemporaryFolder;

const NODES: [usize; 5] = [1, 10, 100, 1_000, 10_000];
const SUBSCRIBERS: [usize; 4] = [1, 10, 100, 1_000];
const MESSAGE: [u8; 64] = [7; 64];
/// Publications that a subscriber may be late.
const SLOTS: u32 = 16;

fn main() -> Result<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let most = if is_test { 10 } else { usize::MAX };
    println!("A node more among so many others, which another has mapped a page of:\n");
    println!("| nodes | opened, µs | mapped, µs | resident, KiB | descriptors |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for count in NODES.into_iter().filter(|count| *count <= most) {
        row(count, nodes);
    }
    println!("\nA publication of 64 bytes to so many subscribers, a node each:\n");
    println!("| subscribers | all told, µs | ns for each | a subscriber of all reads it, ns |");
    println!("| ---: | ---: | ---: | ---: |");
    for count in SUBSCRIBERS.into_iter().filter(|count| *count <= most) {
        row(count, subscribers);
    }
    Ok(())
}

/// Prints what was measured, or why it could not be.
fn row(count: usize, measure: fn(usize) -> Result<String>) {
    match measure(count) {
        Ok(figures) => println!("| {count} | {figures} |"),
        Err(error) => println!("| {count} | not here: {error:#} | | |"),
    }
}

fn nodes(count: usize) -> Result<String> {
    let folder = TemporaryFolder::new("clan-crowd");
    let (descriptors, resident) = (descriptors()?, resident()?);
    let one = node_in(&folder)?;
    let started = Instant::now();
    let others = (0..count).map(|_| node_in(&folder)).collect::<Result<Vec<_>>>()?;
    let opened = started.elapsed();
    let exposed = others.iter().map(|node| Ok(node.expose(4096, Rights::Write)?));
    let exposed = exposed.collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let mapped = exposed.iter().map(|(_, cookie)| Ok(one.map(cookie)?));
    let mapped = mapped.collect::<Result<Vec<_>>>()?;
    let mapping = started.elapsed();
    let each = |all: usize| all as f64 / count as f64;
    let figures = format!(
        "{:.0} | {:.0} | {:.0} | {:.1}",
        micros(opened, count),
        micros(mapping, count),
        each(self::resident()?.saturating_sub(resident)) / 1024.0,
        each(self::descriptors()?.saturating_sub(descriptors)),
    );
    drop(mapped);
    Ok(figures)
}

fn subscribers(count: usize) -> Result<String> {
    const ROUNDS: usize = 2_000;
    let folder = TemporaryFolder::new("clan-crowd");
    let config = Config::new(MESSAGE.len() as u32, SLOTS);
    let mut publisher = Publisher::open(&node_in(&folder)?, config)?;
    let mut all = Vec::new();
    for _ in 0..count {
        let half = Subscriber::open(&node_in(&folder)?, config)?;
        publisher.add(&half.cookie())?;
        all.push(half.connect(&publisher.cookie())?);
    }
    let (mut publishing, mut reading) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS / count + 10 {
        let started = Instant::now();
        let delivery = publisher.publish(&MESSAGE)?;
        publishing += started.elapsed();
        anyhow::ensure!(delivery.sent == count, "round {round}: {delivery:?}");
        let started = Instant::now();
        for subscriber in &mut all {
            let publication = subscriber.try_next()?.context("nothing came")?;
            anyhow::ensure!(publication.bytes == MESSAGE && publication.missed == 0);
        }
        reading += started.elapsed();
    }
    let rounds = ROUNDS / count + 10;
    Ok(format!(
        "{:.1} | {:.0} | {:.0}",
        micros(publishing, rounds),
        micros(publishing, rounds * count) * 1e3,
        micros(reading, rounds * count) * 1e3,
    ))
}

/// One more of those that meet in this folder.
fn node_in(folder: &TemporaryFolder) -> Result<SharedNode> {
    Ok(SharedNode::open(SharedConfig::new(folder.path()))?)
}

fn micros(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

/// Bytes of memory that this process has touched.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
    Ok(kibibytes.parse::<usize>()? * 1024)
}

fn descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}
