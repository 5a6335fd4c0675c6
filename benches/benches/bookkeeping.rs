//! What an engine does for each unit that arrives: guess, place, placed.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use landfall_benches::{Endless, NumberedPair, Pair, StreamPair};

const BATCH: usize = 61;

/// Times the receiver alone, in batches as a driver has them.
fn receive<E: Endless>(line: &mut Pair<E>, batches: u64) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..batches {
        line.next_batch(BATCH);
        let start = Instant::now();
        let placed = line.receive();
        spent += start.elapsed();
        assert_eq!(placed, BATCH, "every unit has a place");
        line.answer();
    }
    spent
}

fn bookkeeping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bookkeeping");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut numbered = NumberedPair::new(1024);
    group.bench_function("numbered, 61 units", |bencher| {
        bencher.iter_custom(|batches| receive(&mut numbered, batches));
    });
    let mut stream = StreamPair::new();
    group.bench_function("stream, 61 units", |bencher| {
        bencher.iter_custom(|batches| receive(&mut stream, batches));
    });
    group.finish();
}

criterion_group!(benches, bookkeeping);
criterion_main!(benches);
