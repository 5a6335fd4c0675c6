//! Queue pairs and kernel TCP over a path that is long and loses frames, in turns, and beside
//! each other where the path is narrow.
//!
//! ```sh
//! sudo cargo bench -p landfall-benches --bench long_path            # three rounds of 10 s
//! sudo cargo bench -p landfall-benches --bench long_path -- 5 20    # five of 20 s
//! ```
//!
//! Both go over the same cable of `landfall-testbed`, whose relay delays each frame, loses some
//! by random numbers, and carries frames of the MTU only. Both have CUBIC. It needs root.

use std::time::Duration;

use anyhow::Context;
use landfall_lab::workload::qpip::{self, LowerLayer, Setup};
use landfall_testbed::long_cable::Path;
use landfall_testbed::rivals::{Amount, Congestion, Endpoints, Plan, TcpThroughput};
use landfall_testbed::{LongCable, Sample, VethConfig, privileges};

/// The round trips of the issue, and how many frames of a million get lost.
const PATHS: [(u64, u32); 2] = [(20, 10_000), (100, 1_000)];
/// A path that both share: its round trip in milliseconds, and bytes a second.
const SHARED: (u64, u64) = (20, 2_500_000);
const MESSAGE: usize = 16 << 10;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_test = words.iter().any(|word| word == "--test");
    let mut numbers = words.iter().filter_map(|word| word.parse::<u64>().ok());
    let (rounds, seconds) = match (numbers.next(), numbers.next()) {
        _ if is_test => (1, 1),
        (rounds, seconds) => (rounds.unwrap_or(3), seconds.unwrap_or(10)),
    };
    if let Some(why) = privileges::why_no_namespaces() {
        println!("skipped: {why}");
        return Ok(());
    }
    let time = Duration::from_secs(seconds);
    for (round_trip, lost_per_million) in PATHS {
        let lost = f64::from(lost_per_million) / 10_000.0;
        println!("{round_trip} ms there and back, {lost} % lost:");
        let mut ratios = Vec::new();
        for round in 1..=rounds {
            let path = |seed| Path {
                delay: Duration::from_millis(round_trip / 2),
                lost_per_million,
                bytes_per_second: None,
                seed,
            };
            let theirs = kernel(&LongCable::new(VethConfig::default(), path(round))?, time)?;
            let ours = ours(&LongCable::new(VethConfig::default(), path(round))?, time)?;
            let ratio = rate(&ours) / rate(&theirs);
            println!(
                "  kernel TCP {:.2} MB/s, queue pairs {:.2} MB/s: {ratio:.2}",
                rate(&theirs),
                rate(&ours)
            );
            ratios.push(ratio);
        }
        ratios.sort_by(f64::total_cmp);
        println!("  median {:.2} ×", ratios[ratios.len() / 2]);
    }
    beside_each_other(rounds, time)
}

fn plan(cable: &LongCable, time: Duration) -> anyhow::Result<Plan> {
    let endpoints = Endpoints::over(cable.pair())?;
    Ok(Plan { limit: time * 6, ..Plan::new(endpoints, Amount::Time(time)) })
}

fn kernel(cable: &LongCable, time: Duration) -> anyhow::Result<Sample> {
    let mut tcp = TcpThroughput::new(plan(cable, time)?);
    tcp.options.congestion = Some(Congestion::Cubic);
    tcp.run().context("kernel TCP")
}

fn ours(cable: &LongCable, time: Duration) -> anyhow::Result<Sample> {
    let setup = Setup::over(LowerLayer::Packet(cable.pair()));
    let outcome = qpip::stream(&plan(cable, time)?, &setup, qpip::shape(MESSAGE));
    Ok(outcome.context("queue pairs")?.sample)
}

/// Megabytes a second.
fn rate(sample: &Sample) -> f64 {
    sample.bytes as f64 / sample.seconds / 1e6
}

/// One connection of each at a time over a narrow path without other losses: which share ours has.
fn beside_each_other(rounds: u64, time: Duration) -> anyhow::Result<()> {
    let (round_trip, bytes_per_second) = SHARED;
    println!("beside each other, {round_trip} ms and {} MB/s:", bytes_per_second as f64 / 1e6);
    let mut shares = Vec::new();
    for seed in 1..=rounds {
        let path = Path {
            delay: Duration::from_millis(round_trip / 2),
            lost_per_million: 0,
            bytes_per_second: Some(bytes_per_second),
            seed,
        };
        let cable = LongCable::new(VethConfig::default(), path)?;
        let (theirs, ours) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| kernel(&cable, time));
            let ours = ours(&cable, time);
            (theirs.join().expect("no panic"), ours)
        });
        let (theirs, ours) = (rate(&theirs?), rate(&ours?));
        let share = ours / (ours + theirs);
        println!(
            "  kernel TCP {theirs:.2} MB/s, queue pairs {ours:.2} MB/s: {:.0} %",
            share * 100.0
        );
        shares.push(share);
    }
    shares.sort_by(f64::total_cmp);
    println!("  median {:.0} % of what both had", shares[shares.len() / 2] * 100.0);
    Ok(())
}
