//! `soak`: runs one seed after another, until one fails or time is up.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use landfall_soak::{Plan, Totals, diagram, run, shrink, told};

/// Runs all protocols in one simulated network after another, with faults of every kind.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For this many minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// This many seeds, whatever time that takes.
    #[arg(long)]
    count: Option<u64>,
    /// This many runs at a time.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Only these steps of the seed's plan, as a failing run names them.
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<usize>>,
    /// Print what happens in the run of the first seed, a line each, and nothing else.
    #[arg(long)]
    tell: bool,
    /// Go on after a seed that fails.
    #[arg(long)]
    keep_going: bool,
    /// This many runs to make a failing one smaller.
    #[arg(long, default_value_t = 400)]
    shrink: u32,
    /// Where the diagrams of failing runs go.
    #[arg(long, default_value = ".")]
    diagrams: PathBuf,
}

fn main() -> Result<()> {
    // `cargo run -p landfall-soak -- soak --seed 1` and without the word.
    let words = std::env::args().enumerate().filter(|(n, word)| *n != 1 || word != "soak");
    let options = Options::parse_from(words.map(|(_, word)| word));
    if options.tell {
        print!("{}", told(&plan_of(&options, options.seed)));
        return Ok(());
    }
    // Panics of engines are findings; the place is told by the report of the run.
    if options.threads > 1 || options.count != Some(1) {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(options.minutes * 60.0);
    let next = AtomicU64::new(options.seed);
    let (is_over, totals) = (AtomicBool::new(false), Mutex::new(Totals::default()));
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut mine = Totals::default();
                while !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_enough = match options.count {
                        Some(count) => seed >= options.seed.saturating_add(count),
                        None => Instant::now() >= end,
                    };
                    if is_enough {
                        break;
                    }
                    if !try_seed(&options, seed, &mut mine) {
                        failed.fetch_add(1, Ordering::Relaxed);
                        is_over.fetch_or(!options.keep_going, Ordering::Relaxed);
                    }
                }
                if let Ok(mut totals) = totals.lock() {
                    totals.merge(&mine);
                }
            });
        }
    });
    let totals = totals.into_inner().context("a thread panicked")?;
    println!("from seed {} on, in {:.1} s:", options.seed, began.elapsed().as_secs_f64());
    print!("{totals}");
    match failed.into_inner() {
        0 => Ok(()),
        failed => bail!("{failed} seeds failed"),
    }
}

/// The plan of a seed, or what was chosen of it.
fn plan_of(options: &Options, seed: u64) -> Plan {
    let mut plan = Plan::draw(seed);
    if let Some(only) = &options.only {
        let mut n = 0;
        plan.steps.retain(|_| (only.contains(&n), n += 1).0);
    }
    plan
}

/// Runs a seed; tells of it, and draws it, where it fails.
fn try_seed(options: &Options, seed: u64, totals: &mut Totals) -> bool {
    let plan = plan_of(options, seed);
    let report = run(&plan);
    totals.add(&plan, &report);
    if report.wrong.is_empty() {
        return true;
    }
    println!("seed {seed} fails: {:#?}", report.wrong);
    let again = run(&plan);
    if again.wrong != report.wrong || again.digest != report.digest {
        println!("and differs when it is run again: {:#?}", again.wrong);
    }
    let shrunk = shrink(&plan, report, options.shrink);
    println!("with less ({} runs): {:#?}", shrunk.runs, shrunk.report.wrong);
    let steps: Vec<_> = shrunk.steps.iter().map(ToString::to_string).collect();
    println!("{:#?}\n{:?}\n{:?}", shrunk.plan.steps, shrunk.plan.how, shrunk.plan.planes);
    println!("again: soak --seed {seed} --count 1 --only {}", steps.join(","));
    let file = options.diagrams.join(format!("soak-{seed}.svg"));
    match std::fs::write(&file, diagram(&shrunk.plan)) {
        Ok(()) => println!("drawn: {}", file.display()),
        Err(error) => println!("{} cannot be written: {error}", file.display()),
    }
    false
}
