//! `landfall nbd bench`: how fast an export is.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use landfall_placement::Random;
use landfall_storage::Features;
use landfall_storage::client::{Client, Pending};
use serde::Serialize;

use super::target::{ConnectArgs, Target};
use crate::style;
use crate::transfer::options::parse_size;

const EXAMPLES: &str = "\
Examples:
  landfall nbd bench nbd://host/disk                           random reads of 4 KiB
  landfall nbd bench nbd://host/disk --work write --depth 1   one write after another
  landfall nbd bench nbd://host/disk --order sequential --block 256K --json";

/// Options of `landfall nbd bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The export: nbd://HOST:PORT/NAME, nbds://HOST/NAME, nbd+unix:///NAME?socket=PATH. What
    /// is in it is overwritten by --work write and mixed
    #[arg(value_parser = Target::parse)]
    server: Target,
    /// What is done
    #[arg(long, value_enum, default_value = "read")]
    work: Work,
    /// In order, or anywhere
    #[arg(long, value_enum, default_value = "random")]
    order: Order,
    /// Bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = parse_size)]
    block: u64,
    /// Requests under way at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// How long it runs
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    connect: ConnectArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Work {
    Read,
    Write,
    /// Both by turns
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Sequential,
    Random,
}

#[derive(Debug, Serialize)]
struct Summary {
    work: Work,
    order: Order,
    block: u64,
    depth: u32,
    requests: u64,
    bytes: u64,
    seconds: f64,
    requests_per_second: f64,
    bytes_per_second: f64,
    latency_us: Latency,
    cpu_seconds: f64,
    /// Of this process: the server's is its own.
    bytes_per_cpu_second: f64,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    most: f64,
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

/// Measures, and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let client = args.server.connect(&args.connect)?;
    let export = client.export();
    if args.block == 0 || args.block > export.size {
        bail!(
            "blocks of {} do not fit into {}",
            style::bytes(args.block),
            style::bytes(export.size)
        );
    }
    if args.work != Work::Read && export.features.has(Features::READ_ONLY) {
        bail!("the export is read-only: only --work read is possible");
    }
    let blocks = export.size / args.block;
    let mut bench = Bench {
        client,
        args,
        blocks,
        next: 0,
        random: Random::new([8; 32]),
        flying: VecDeque::new(),
        free: Vec::new(),
        latencies: Vec::new(),
    };
    let cpu = cpu_seconds();
    let started = Instant::now();
    bench.run(started + Duration::from_secs_f64(args.seconds.clamp(0.01, 3600.0)))?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu;
    let requests = bench.latencies.len() as u64;
    let bytes = requests * args.block;
    let summary = Summary {
        work: args.work,
        order: args.order,
        block: args.block,
        depth: args.depth,
        requests,
        bytes,
        seconds,
        requests_per_second: requests as f64 / seconds,
        bytes_per_second: bytes as f64 / seconds,
        latency_us: Latency::of(bench.latencies),
        cpu_seconds,
        bytes_per_cpu_second: bytes as f64 / cpu_seconds.max(1e-9),
    };
    if args.json {
        style::print_json(&summary)?;
    } else {
        let Latency { p50, p90, p99, most } = summary.latency_us;
        style::print(&format!(
            "{:.0} requests/s, {}/s; latency {p50:.1} µs, 90 % {p90:.1}, 99 % {p99:.1}, at most \
             {most:.1}; {:.2} s of CPU here\n",
            summary.requests_per_second,
            style::bytes(summary.bytes_per_second as u64),
            summary.cpu_seconds,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What this process has used of the processors.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

struct Bench<'a> {
    client: Client,
    args: &'a Args,
    blocks: u64,
    next: u64,
    random: Random,
    flying: VecDeque<(Instant, Pending<Vec<u8>>)>,
    free: Vec<Vec<u8>>,
    latencies: Vec<u32>,
}

impl Bench<'_> {
    fn run(&mut self, until: Instant) -> Result<()> {
        loop {
            let is_over = Instant::now() >= until;
            // New requests are asked for together, so that they leave together.
            while !is_over && self.flying.len() < self.args.depth as usize {
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
        let block = match self.args.order {
            Order::Sequential => self.next % self.blocks,
            Order::Random => self.random.next_u64() % self.blocks,
        };
        self.next += 1;
        let buffer = self.free.pop().unwrap_or_else(|| vec![0x5a; self.args.block as usize]);
        let writes = match self.args.work {
            Work::Read => false,
            Work::Write => true,
            Work::Mixed => self.next.is_multiple_of(2),
        };
        let (asked, offset) = (Instant::now(), block * self.args.block);
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
