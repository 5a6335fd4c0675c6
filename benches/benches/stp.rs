//! STP's engine alone, with no I/O: what an STU costs to receive and to send,
//! over how many connections, in Transfers of which length.

use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use landfall_benches::{BATCH, StpPair};

/// Part of a round: what is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Poll and let go of a batch.
    Send,
    /// Guess, place, placed.
    Receive,
    /// That, and all else that the receiving engine does: requests, grants,
    /// acknowledgements, events.
    ReceiveAndAnswer,
}

/// Times a part until this many batches of STUs went by.
fn time(line: &mut StpPair, part: Part, batches: u64) -> Duration {
    let (mut spent, mut stus) = (Duration::ZERO, 0);
    while stus < batches * BATCH as u64 {
        line.offer();
        let start = Instant::now();
        line.send();
        let sent = start.elapsed();
        let start = Instant::now();
        stus += line.receive() as u64;
        let received = start.elapsed();
        line.answer();
        let answered = start.elapsed();
        line.hear();
        spent += match part {
            Part::Send => sent,
            Part::Receive => received,
            Part::ReceiveAndAnswer => answered,
        };
    }
    spent
}

/// How many connections take turns, with Transfers of how many bytes.
const LINES: [(&str, usize, u64); 7] = [
    ("1 connection, 1 MiB", 1, 1 << 20),
    ("1000 connections, 1 MiB", 1_000, 1 << 20),
    ("100000 connections, 1 MiB", 100_000, 1 << 20),
    ("1 connection, 64 KiB", 1, 64 << 10),
    ("100000 connections, 64 KiB", 100_000, 64 << 10),
    ("1 connection, 64 MiB", 1, 64 << 20),
    ("1 connection, 64 GiB", 1, 64 << 30),
];

fn bench(group: &mut BenchmarkGroup<'_, WallTime>, part: Part) {
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, connections, transfer) in LINES {
        let mut line = None;
        group.bench_function(name, |bencher| {
            let line = line.get_or_insert_with(|| {
                let mut line = StpPair::new(connections, transfer);
                line.warm_up();
                line
            });
            bencher.iter_custom(|batches| time(line, part, batches));
        });
    }
}

fn stp_receive(criterion: &mut Criterion) {
    bench(&mut criterion.benchmark_group("stp_receive"), Part::Receive);
}

fn stp_receive_and_answer(criterion: &mut Criterion) {
    bench(&mut criterion.benchmark_group("stp_receive_and_answer"), Part::ReceiveAndAnswer);
}

fn stp_send(criterion: &mut Criterion) {
    bench(&mut criterion.benchmark_group("stp_send"), Part::Send);
}

criterion_group!(benches, stp_receive, stp_receive_and_answer, stp_send);
criterion_main!(benches);
