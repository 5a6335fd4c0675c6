//! Speculative defragmentation over memory, with no kernel: what a fragment costs
//! when it landed where it belongs, by the conventional path, lent as a list, and
//! in a loop that does nothing but the copy.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use landfall_benches::{DefragPair, Join};

const JOINS: [(&str, Join); 3] = [
    ("speculative", Join::Speculative),
    ("conventional", Join::Conventional),
    ("lists", Join::Lists),
];

fn joins(c: &mut Criterion) {
    for page in [4096, 61_440] {
        let mut group = c.benchmark_group(format!("defrag/page {page}"));
        group.throughput(Throughput::Elements(1));
        for (name, join) in JOINS {
            let mut line = DefragPair::new(join, page, 1);
            group.bench_function(name, |b| b.iter_custom(|frames| time(&mut line, frames)));
        }
        let mut line = DefragPair::new(Join::Conventional, page, 1);
        group.bench_function("copy alone", |b| {
            b.iter_custom(|frames| timed(frames, || line.copy_only(page)));
        });
        group.finish();
    }
}

/// The cost of a fragment does not depend on how many flows there are.
fn flows(c: &mut Criterion) {
    let mut group = c.benchmark_group("defrag/flows");
    group.throughput(Throughput::Elements(1));
    for flows in [1, 10, 100, 1_000, 10_000] {
        for (name, join) in &JOINS[..2] {
            let mut line = DefragPair::new(*join, 4096, flows);
            group.bench_function(BenchmarkId::new(*name, flows), |b| {
                b.iter_custom(|frames| time(&mut line, frames));
            });
        }
    }
    group.finish();
}

fn time(line: &mut DefragPair, frames: u64) -> std::time::Duration {
    timed(frames, || line.burst().0)
}

/// The time of this many frames, which come by bursts.
fn timed(frames: u64, mut burst: impl FnMut() -> usize) -> std::time::Duration {
    let start = std::time::Instant::now();
    let mut done = 0;
    while done < frames {
        done += burst() as u64;
    }
    start.elapsed().mul_f64(frames as f64 / done as f64)
}

criterion_group!(benches, joins, flows);
criterion_main!(benches);
