//! Many nodes of CLAN on one host, and many subscribers of one publisher: what each costs.
//!
//! ```sh
//! cargo bench -p landfall-benches --bench clan_crowd
//! ```
//!
//! Each node has a thread and a few descriptors, as each process with one has; here they are all of
//! this process, and where that has too few descriptors, of some that it starts. With `--test`
//! there are few of them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall::clan::layer::publish::{Config, Publisher, Subscriber};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{Fabric, Rights};
use landfall_testkit::TemporaryFolder;

const NODES: [usize; 4] = [1, 10, 100, 1_000];
/// More nodes than one process has descriptors for, in this number of processes.
const CROWD: usize = 10_000;
const PROCESSES: usize = 20;
/// How this program is started to open nodes: with a folder and how many.
const OPENS: &str = "--opens-nodes";
const SUBSCRIBERS: [usize; 4] = [1, 10, 100, 1_000];
const MESSAGE: [u8; 64] = [7; 64];
/// Publications that a subscriber may be late.
const SLOTS: u32 = 16;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, folder, count] = &words[..]
        && word == OPENS
    {
        return open_nodes(Path::new(folder), count.parse()?);
    }
    let is_test = words.iter().any(|argument| argument == "--test");
    let most = if is_test { 10 } else { usize::MAX };
    println!("A node more among this many others, of which another node has mapped a page:\n");
    println!("| nodes | opened, µs | mapped, µs | resident, KiB | descriptors |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for count in NODES.into_iter().filter(|count| *count <= most) {
        row(count, nodes);
    }
    row(CROWD.min(most), crowd);
    println!("\nA publication of 64 bytes to this many subscribers, two of a node:\n");
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
    let before = Held::now()?;
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
    let (opened, mapping) = (micros(opened, count), micros(mapping, count));
    let figures = format!("{opened:.0} | {mapping:.0} | {}", before.more_for_each(count)?);
    drop(mapped);
    Ok(figures)
}

/// The last process of many tells what its nodes took.
fn crowd(count: usize) -> Result<String> {
    let folder = TemporaryFolder::new("clan-crowd");
    let processes = PROCESSES.min(count);
    let mut running = Vec::new();
    let mut last = String::new();
    for _ in 0..processes {
        let mut process = Command::new(std::env::current_exe()?)
            .args([OPENS.as_ref(), folder.path().as_os_str()])
            .arg((count / processes).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        last.clear();
        let said = process.stdout.take().context("its output is piped")?;
        BufReader::new(said).read_line(&mut last)?;
        anyhow::ensure!(!last.is_empty(), "a process could not open its nodes");
        running.push(process);
    }
    for mut process in running {
        // The end of its input is what it waits for.
        drop(process.stdin.take());
        process.wait()?;
    }
    Ok(last.trim_end().to_owned())
}

fn open_nodes(folder: &Path, count: usize) -> Result<()> {
    let before = Held::now()?;
    let started = Instant::now();
    let open = |_| Ok(SharedNode::open(SharedConfig::new(folder))?);
    let nodes = (0..count).map(open).collect::<Result<Vec<_>>>()?;
    let opened = micros(started.elapsed(), count);
    println!("{opened:.0} | - | {}", before.more_for_each(count)?);
    std::io::stdin().read_line(&mut String::new())?;
    drop(nodes);
    Ok(())
}

fn subscribers(count: usize) -> Result<String> {
    const ROUNDS: usize = 2_000;
    let folder = TemporaryFolder::new("clan-crowd");
    let config = Config::new(MESSAGE.len() as u32, SLOTS);
    let mut publisher = Publisher::open(&node_in(&folder)?, config)?;
    let mut all = Vec::new();
    let nodes = (0..count.div_ceil(2)).map(|_| node_in(&folder)).collect::<Result<Vec<_>>>()?;
    for number in 0..count {
        let half = Subscriber::open(&nodes[number / 2], config)?;
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

/// What this process holds.
struct Held {
    /// Kibibytes of memory that it has touched.
    resident: usize,
    descriptors: usize,
}

impl Held {
    fn now() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = line.and_then(|line| line.split_whitespace().next()).context("no VmRSS")?;
        let descriptors = std::fs::read_dir("/proc/self/fd")?.count();
        Ok(Self { resident: resident.parse()?, descriptors })
    }

    /// What it holds more now, for each of this many: two cells of a row.
    fn more_for_each(&self, count: usize) -> Result<String> {
        let now = Self::now()?;
        let each = |now: usize, before| now.saturating_sub(before) as f64 / count as f64;
        let resident = each(now.resident, self.resident);
        Ok(format!("{resident:.0} | {:.1}", each(now.descriptors, self.descriptors)))
    }
}
