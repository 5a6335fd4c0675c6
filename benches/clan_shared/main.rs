//! CLAN over shared memory beside what else one machine has: iceoryx2, Unix sockets,
//! TCP over loopback, and bare memory. All in one run, in turn, each end a thread that
//! is pinned to a core.
//!
//! ```sh
//! cargo bench -p landfall-benches --features iceoryx2 --bench clan_shared
//! ```
//!
//! With `--test` each is run once and briefly, to see that it works.

mod bare;
mod clan;
mod iceoryx;
mod kernel;
mod sides;

use std::time::Duration;

use anyhow::Result;

use sides::{Cores, Opened, Place, Waiting, Work};

/// One end of what is measured, made on its own thread.
type Open = fn(&Work, &Place) -> Result<Opened>;

/// What is measured: name, what it is done with, and the unit of the figures.
struct Column {
    title: &'static str,
    work: Work,
    /// From seconds for each message to what is printed.
    shown: fn(f64) -> f64,
}

const WORD: usize = 8;
const LINE: usize = 64;
const ELEMENT: usize = 32;
const PIECE: usize = 64 << 10;

const MICROSECONDS: fn(f64) -> f64 = |seconds| seconds * 1e6;

fn columns() -> [Column; 6] {
    let column = |title, work, shown| Column { title, work, shown };
    let there_and_back = |bytes, waiting, cores| {
        let (there_and_back, is_stream) = (true, false);
        Work { there_and_back, is_stream, bytes, waiting, cores }
    };
    [
        column("8 B, µs", there_and_back(WORD, Waiting::Spin, Cores::Two), MICROSECONDS),
        column("64 B, µs", there_and_back(LINE, Waiting::Spin, Cores::Two), MICROSECONDS),
        column("32 B, M/s", one_way(ELEMENT, false), |seconds| 1e-6 / seconds),
        column("64 KiB, GB/s", one_way(PIECE, true), |seconds| PIECE as f64 * 1e-9 / seconds),
        column(
            "woken, one core, µs",
            there_and_back(WORD, Waiting::Sleep, Cores::One),
            MICROSECONDS,
        ),
        column(
            "woken, two cores, µs",
            there_and_back(WORD, Waiting::Sleep, Cores::Two),
            MICROSECONDS,
        ),
    ]
}

const fn one_way(bytes: usize, is_stream: bool) -> Work {
    let (waiting, cores) = (Waiting::Balanced, Cores::Two);
    Work { there_and_back: false, is_stream, bytes, waiting, cores }
}

/// Lengths of the messages of a stream.
const SWEEP: [usize; 10] = [64, 128, 256, 512, 750, 1024, 2048, 4096, 16 << 10, PIECE];

const LANES: [(&str, Open); 7] = [
    ("bare memory", bare::open),
    ("CLAN", clan::open),
    ("CLAN, 64 published at once", clan::open_batched),
    ("iceoryx2", iceoryx::open),
    ("iceoryx2, left in place", iceoryx::open_in_place),
    ("Unix sockets", kernel::open_unix),
    ("TCP, loopback", kernel::open_tcp),
];

/// What every ratio is taken to.
const RIVAL: &str = "Unix sockets";

fn main() -> Result<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (rounds, time) =
        if is_test { (1, Duration::from_millis(5)) } else { (7, Duration::from_millis(300)) };
    iceoryx::be_quiet();
    let columns = columns();
    // By lane and column, a figure for each round.
    let mut found = vec![vec![Vec::new(); columns.len()]; LANES.len()];
    for _ in 0..rounds {
        for (at, column) in columns.iter().enumerate() {
            for (lane, (_, open)) in LANES.iter().enumerate() {
                if let Some(seconds) = sides::run(&column.work, *open, time)? {
                    found[lane][at].push((column.shown)(seconds));
                }
            }
        }
    }
    print(&columns, &found);
    sweep(rounds, time)
}

/// The stream of CLAN by the length of its messages, each published by itself: from which
/// length on it has half of its best rate (750 bytes in the paper).
fn sweep(rounds: usize, time: Duration) -> Result<()> {
    let mut found = vec![Vec::new(); SWEEP.len()];
    for _ in 0..rounds {
        for (figures, bytes) in found.iter_mut().zip(SWEEP) {
            let seconds = sides::run(&one_way(bytes, true), clan::open, time)?;
            figures.extend(seconds.map(|seconds| bytes as f64 * 1e-9 / seconds));
        }
    }
    let rates: Vec<_> = found.iter().filter_map(|figures| median(figures)).collect();
    let best = rates.iter().copied().fold(0.0, f64::max);
    println!("\nCLAN's stream by length of message, GB/s and share of the best:\n");
    println!("| bytes | GB/s | |\n| ---: | ---: | ---: |");
    for (bytes, rate) in SWEEP.iter().zip(&rates) {
        println!("| {bytes} | {rate:.2} | {:.0} % |", 100.0 * rate / best);
    }
    Ok(())
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn print(columns: &[Column], found: &[Vec<Vec<f64>>]) {
    let rival = LANES.iter().position(|(name, _)| *name == RIVAL).unwrap_or_default();
    let titles: Vec<_> = columns.iter().map(|column| column.title).collect();
    println!("medians; in brackets × {RIVAL}, the median of the ratios of the rounds\n");
    println!("| | {} |", titles.join(" | "));
    println!("| --- |{}", " ---: |".repeat(columns.len()));
    for ((name, _), figures) in LANES.iter().zip(found) {
        let cells = figures.iter().zip(&found[rival]).map(|(figures, rivals)| {
            let ratios: Vec<_> = figures.iter().zip(rivals).map(|(ours, its)| ours / its).collect();
            let both = median(figures).zip(median(&ratios));
            both.map_or_else(|| "-".into(), |(figure, ratio)| format!("{figure:.2} ({ratio:.2})"))
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    println!(
        "\n8 B and 64 B: there and back, both ends spinning. 32 B and 64 KiB: one way, copied in\n\
         and out. Woken: 8 B there and back, both ends asleep until the other has written; on one\n\
         core the processor time of both, which is what it takes when nothing else runs there."
    );
}
