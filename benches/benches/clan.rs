//! CLAN: what it costs to find out which tripwires a burst of writes touches,
//! whether one is armed or a million; and how many bursts two engines pass to each
//! other that are joined in memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use landfall_benches::{Bursts, NicPair, TripLine};

/// As many as fit in the caches beside the tables.
const BATCH: u64 = 4096;

const BURSTS: [(&str, Bursts); 6] = [
    ("a word beside tripwires", Bursts::Beside),
    ("a word beside tripwires, in order", Bursts::BesideInOrder),
    ("a word anywhere", Bursts::Anywhere(1)),
    ("64 bytes anywhere", Bursts::Anywhere(8)),
    ("64 bytes, in order", Bursts::InOrder(8)),
    ("1448 bytes, in order", Bursts::InOrder(181)),
];

fn matches(criterion: &mut Criterion) {
    for (tripwires, longest) in [(1, 1), (4096, 1), (1_000_000, 1), (4096, 64)] {
        let mut line = TripLine::new(tripwires, longest);
        let title = format!("clan/{tripwires} tripwires of up to {longest} words");
        let mut group = criterion.benchmark_group(title);
        group.throughput(Throughput::Elements(1));
        for (name, bursts) in BURSTS {
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter_custom(|count| time(&mut line, bursts, count));
            });
        }
        group.finish();
    }
}

/// The time that this many bursts take which were drawn before.
fn time(line: &mut TripLine, bursts: Bursts, count: u64) -> Duration {
    let mut spent = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        line.draw(batch as usize, bursts);
        left -= batch;
        let start = Instant::now();
        black_box(line.match_bursts());
        spent += start.elapsed();
    }
    spent
}

/// The engine alone, from the program's call to what it hears of the end: bursts per
/// second, of this many words.
fn bursts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("clan/bursts of the engine alone");
    group.throughput(Throughput::Elements(1));
    let lengths = [("a word", 1), ("16 words", 16), ("256 words", 256)];
    for (name, words) in lengths.into_iter().chain([("a super-packet", NicPair::LONGEST)]) {
        let mut line = NicPair::new(words);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| {
                let start = Instant::now();
                black_box(line.write(count));
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, matches, bursts);
criterion_main!(benches);
