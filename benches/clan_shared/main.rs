//! CLAN over shared memory beside what else one machine has: iceoryx2, Aeron, Unix sockets, pipes, TCP
//! over loopback, channels between threads, and bare memory. All in one run, in turn, each end a thread
//! that is pinned to a core; those of CLAN and iceoryx2 have a mapping each, as two processes have.
//!
//! ```sh
//! cargo bench -p landfall-benches --features iceoryx2 --bench clan_shared
//! ```
//!
//! With the feature `aeron` as well Aeron is among them. That builds its C code, and needs
//! CMake 3.30 (`pip install cmake` has it), libclang, and the headers of libuuid, libbsd and zlib.
//!
//! With `--test` each is run once and briefly, to see that it works.

#[cfg(feature = "aeron")]
mod aeron;
mod bare;
mod clan;
mod iceoryx;
mod kernel;
mod sides;
mod threads;
mod verbs;

use std::time::Duration;

use anyhow::Result;

use sides::{Cores, Kind, Opened, Place, Waiting, Work};

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

fn words() -> Vec<Column> {
    let column = |title, work, shown| Column { title, work, shown };
    let there_and_back =
        |bytes, waiting, cores| Work { kind: Kind::ThereAndBack, bytes, waiting, cores };
    vec![
        column("8 B, µs", there_and_back(WORD, Waiting::Spin, Cores::Two), MICROSECONDS),
        column("64 B, µs", there_and_back(LINE, Waiting::Spin, Cores::Two), MICROSECONDS),
        column("32 B, M/s", one_way(Kind::Elements, ELEMENT), |seconds| 1e-6 / seconds),
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

/// Messages that are copied in and out, or written and read where they lie.
fn messages(kind: Kind) -> Vec<Column> {
    let column = |title, bytes, shown| Column { title, work: one_way(kind, bytes), shown };
    vec![
        column("1 KiB, GB/s", 1 << 10, |seconds| 1024e-9 / seconds),
        column("64 KiB, GB/s", PIECE, |seconds| PIECE as f64 * 1e-9 / seconds),
        column("1 MiB, GB/s", 1 << 20, |seconds| f64::from(1 << 20) * 1e-9 / seconds),
        column("4 MiB, GB/s", 4 << 20, |seconds| f64::from(4 << 20) * 1e-9 / seconds),
    ]
}

const fn one_way(kind: Kind, bytes: usize) -> Work {
    Work { kind, bytes, waiting: Waiting::Balanced, cores: Cores::Two }
}

/// Lengths of the messages of a stream.
const SWEEP: [usize; 10] = [64, 128, 256, 512, 750, 1024, 2048, 4096, 16 << 10, PIECE];

const LANES: &[(&str, Open)] = &[
    ("bare memory", bare::open),
    ("CLAN, words", clan::open_words),
    ("CLAN", clan::open),
    ("CLAN, 64 published at once", clan::open_batched),
    ("CLAN, queue pairs", verbs::open),
    ("CLAN, RDMA writes", verbs::open_writes),
    ("iceoryx2", iceoryx::open),
    #[cfg(feature = "aeron")]
    ("Aeron", aeron::open),
    ("crossbeam, threads", threads::open_crossbeam),
    ("rtrb, threads", threads::open_rtrb),
    ("Unix sockets", kernel::open_unix),
    ("pipes", kernel::open_pipe),
    ("TCP, loopback", kernel::open_tcp),
];

fn main() -> Result<()> {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (rounds, time) =
        if is_test { (1, Duration::from_millis(5)) } else { (7, Duration::from_millis(300)) };
    iceoryx::be_quiet();
    println!(
        "Medians; in brackets × the lane that is named, the median of the ratios of the rounds."
    );
    table(
        "8 B and 64 B: there and back, both ends spinning. 32 B: one way, each by itself. Woken: 8 B\n\
         there and back, both ends asleep until the other has written; on one core the processor\n\
         time of both, which is what it takes when nothing else runs there.",
        &words(),
        "Unix sockets",
        (rounds, time),
    )?;
    let copied = messages(Kind::Stream);
    table("One way, copied in and copied out.", &copied, "bare memory", (rounds, time))?;
    let in_place = messages(Kind::InPlace);
    let title = "One way, written where they lie and read there, all of them.";
    table(title, &in_place, "iceoryx2", (rounds, time))?;
    #[cfg(feature = "aeron")]
    aeron::end();
    sweep(rounds, time)
}

/// Measures each lane with each column, round by round, and prints what was found.
fn table(
    title: &str,
    columns: &[Column],
    rival: &str,
    (rounds, time): (usize, Duration),
) -> Result<()> {
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
    println!("\n{title}\n");
    print(columns, &found, rival);
    Ok(())
}

/// The stream of CLAN by the length of its messages, each published by itself: from which
/// length on it has half of its best rate (750 bytes in the paper).
fn sweep(rounds: usize, time: Duration) -> Result<()> {
    let mut found = vec![Vec::new(); SWEEP.len()];
    for _ in 0..rounds {
        for (figures, bytes) in found.iter_mut().zip(SWEEP) {
            let seconds = sides::run(&one_way(Kind::Stream, bytes), clan::open, time)?;
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

fn print(columns: &[Column], found: &[Vec<Vec<f64>>], rival: &str) {
    let rivals = LANES.iter().position(|(name, _)| *name == rival).unwrap_or_default();
    let titles: Vec<_> = columns.iter().map(|column| column.title).collect();
    println!("| × {rival} in brackets | {} |", titles.join(" | "));
    println!("| --- |{}", " ---: |".repeat(columns.len()));
    let has_figures = |figures: &&(_, &Vec<Vec<f64>>)| figures.1.iter().any(|one| !one.is_empty());
    let lanes = LANES.iter().map(|(name, _)| *name).zip(found);
    for (name, figures) in lanes.filter(|lane| has_figures(&lane)) {
        let cells = figures.iter().zip(&found[rivals]).map(|(figures, rivals)| {
            let ratios: Vec<_> = figures.iter().zip(rivals).map(|(ours, its)| ours / its).collect();
            match (median(figures), median(&ratios)) {
                (Some(figure), Some(ratio)) => format!("{figure:.2} ({ratio:.2})"),
                (Some(figure), None) => format!("{figure:.2}"),
                (None, _) => "-".into(),
            }
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}
