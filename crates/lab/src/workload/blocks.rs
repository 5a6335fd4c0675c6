//! Reads and writes of a block device that is served over the network, this many under way at a
//! time.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use landfall_placement::Random;
use landfall_storage::Features;
use landfall_storage::client::{Client, Pending};
use landfall_testbed::cpu::TaskUse;
use serde::Serialize;

use crate::style;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Blocks are read.
    Read,
    /// Blocks are written.
    Write,
    /// Both by turns
    Mixed,
}

/// Which block is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The one behind.
    Sequential,
    /// Any.
    Random,
}

/// What is measured, and for how long.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Setup {
    /// What is done
    #[arg(long, value_enum, default_value = "read")]
    pub work: Work,
    /// In order, or anywhere
    #[arg(long, value_enum, default_value = "random")]
    pub order: Order,
    /// Requests under way at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// How long it runs
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
}

/// What was seen; the fields are documented in `docs/storage.md`.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "they say what they are")]
pub struct Summary {
    pub work: Work,
    pub order: Order,
    pub block: u64,
    pub depth: u32,
    pub requests: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub requests_per_second: f64,
    pub bytes_per_second: f64,
    pub latency_us: Latency,
    pub cpu_seconds: f64,
    /// Of this process: the server's is its own.
    pub bytes_per_cpu_second: f64,
}

/// Microseconds from when a request is asked for until its reply has been read.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "they say what they are")]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub most: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency { p50, p90, p99, most } = &self.latency_us;
        write!(
            f,
            "{:.0} requests/s, {}/s; latency {p50:.1} µs, 90 % {p90:.1}, 99 % {p99:.1}, at most \
             {most:.1}; {:.2} s of CPU here",
            self.requests_per_second,
            style::bytes(self.bytes_per_second as u64),
            self.cpu_seconds,
        )
    }
}

impl Latency {
    fn of(mut all: Vec<u32>) -> Self {
        all.sort_unstable();
        let at = |portion: f64| {
            let index = (all.len() as f64 * portion) as usize;
            all.get(index.min(all.len().saturating_sub(1))).map_or(0.0, |ns| f64::from(*ns) / 1e3)
        };
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), most: at(1.0) }
    }
}

/// Measures requests of `block` bytes for the export that this client is connected to. What is in it is overwritten unless
/// blocks are only read.
///
/// # Errors
/// If the block does not fit into the export, if it is read-only and would be written, or if a
/// request fails.
pub fn run(client: &Client, block: u64, setup: &Setup) -> Result<Summary> {
    let Setup { work, order, depth, seconds } = *setup;
    let time = Duration::from_secs_f64(seconds.clamp(0.01, 3600.0));
    let export = client.export();
    ensure!(
        (1..=export.size).contains(&block),
        "blocks of {} do not fit into {}",
        style::bytes(block),
        style::bytes(export.size)
    );
    if work != Work::Read && export.features.has(Features::READ_ONLY) {
        bail!("the export is read-only: only --work read is possible");
    }
    let mut requests = Requests {
        client,
        setup: *setup,
        block,
        blocks: export.size / block,
        next: 0,
        random: Random::new([8; 32]),
        flying: VecDeque::new(),
        free: Vec::new(),
        latencies: Vec::new(),
    };
    let cpu = TaskUse::of_this_process()?;
    let started = Instant::now();
    requests.run(started + time)?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = (TaskUse::of_this_process()? - cpu).busy_s();
    let requests_done = requests.latencies.len() as u64;
    let bytes = requests_done * block;
    Ok(Summary {
        work,
        order,
        block,
        depth,
        requests: requests_done,
        bytes,
        seconds,
        requests_per_second: requests_done as f64 / seconds,
        bytes_per_second: bytes as f64 / seconds,
        latency_us: Latency::of(requests.latencies),
        cpu_seconds,
        bytes_per_cpu_second: bytes as f64 / cpu_seconds.max(1e-9),
    })
}

struct Requests<'a> {
    client: &'a Client,
    setup: Setup,
    block: u64,
    blocks: u64,
    next: u64,
    random: Random,
    flying: VecDeque<(Instant, Pending<Vec<u8>>)>,
    free: Vec<Vec<u8>>,
    latencies: Vec<u32>,
}

impl Requests<'_> {
    fn run(&mut self, until: Instant) -> Result<()> {
        loop {
            let is_over = Instant::now() >= until;
            // New requests are asked for together, so that they leave together.
            while !is_over && self.flying.len() < self.setup.depth as usize {
                self.ask();
            }
            let Some((asked, pending)) = self.flying.pop_front() else { return Ok(()) };
            self.end(asked, pending)?;
            while self.flying.front().is_some_and(|(_, pending)| pending.is_over()) {
                let (asked, pending) = self.flying.pop_front().expect("there is one");
                self.end(asked, pending)?;
            }
        }
    }

    fn ask(&mut self) {
        let block = self.block;
        let nth = match self.setup.order {
            Order::Sequential => self.next % self.blocks,
            Order::Random => self.random.next_u64() % self.blocks,
        };
        self.next += 1;
        let buffer = self.free.pop().unwrap_or_else(|| vec![0x5a; block as usize]);
        let writes = match self.setup.work {
            Work::Read => false,
            Work::Write => true,
            Work::Mixed => self.next.is_multiple_of(2),
        };
        let (asked, offset) = (Instant::now(), nth * block);
        let pending = if writes {
            self.client.write(offset, buffer)
        } else {
            self.client.read(offset, buffer)
        };
        self.flying.push_back((asked, pending));
    }

    fn end(&mut self, asked: Instant, pending: Pending<Vec<u8>>) -> Result<()> {
        let (result, ended) = pending.wait_with_time();
        self.free.push(result.context("a request has failed")?);
        let nanoseconds = ended.saturating_duration_since(asked).as_nanos();
        self.latencies.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
        Ok(())
    }
}
