//! QPIP's engine alone, with no I/O: what a segment costs to receive, what a
//! message costs from its doorbell to its completion, over how many connections.

use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use landfall_benches::{BATCH, QpipPair};

/// Part of a round: what is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The receiver's adapter: guess, place, placed.
    Receive,
    /// That, the completion, its memory posted again, and the acknowledgement.
    ReceiveAndAnswer,
    /// The sender's side: a message is posted, sent, acknowledged and reaped.
    Message,
}

/// Times a part until this many batches of segments went by.
fn time(line: &mut QpipPair, part: Part, batches: u64) -> Duration {
    let (mut spent, mut segments) = (Duration::ZERO, 0);
    while segments < batches * BATCH as u64 {
        let start = Instant::now();
        line.post();
        line.send();
        let sent = start.elapsed();
        let start = Instant::now();
        segments += line.receive() as u64;
        let received = start.elapsed();
        line.answer();
        let answered = start.elapsed();
        let start = Instant::now();
        line.hear();
        line.reap();
        let heard = start.elapsed();
        spent += match part {
            Part::Receive => received,
            Part::ReceiveAndAnswer => answered,
            Part::Message => sent + heard,
        };
    }
    spent
}

fn bench(group: &mut BenchmarkGroup<'_, WallTime>, part: Part) {
    group.throughput(Throughput::Elements(BATCH as u64));
    for connections in [1, 100, 10_000] {
        let mut line = None;
        group.bench_function(format!("{connections} connections"), |bencher| {
            let line = line.get_or_insert_with(|| {
                let mut line = QpipPair::new(connections);
                line.warm_up();
                line
            });
            bencher.iter_custom(|batches| time(line, part, batches));
        });
    }
}

/// Where a segment is lost now and then: the scoreboard, recovery, and CUBIC.
fn qpip_recovery(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("qpip_recovery");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, part) in [("sender", Part::Message), ("receiver", Part::ReceiveAndAnswer)] {
        let mut line = None;
        group.bench_function(format!("{name}, 1 in 100 lost"), |bencher| {
            let line = line.get_or_insert_with(|| {
                let mut line = QpipPair::new(1);
                line.warm_up();
                line.losing_one_in(100)
            });
            bencher.iter_custom(|batches| time(line, part, batches));
            assert!(line.segments_again() > 0, "what was lost was sent again");
        });
    }
}

fn qpip_receive(criterion: &mut Criterion) {
    bench(&mut criterion.benchmark_group("qpip_receive"), Part::Receive);
}

fn qpip_receive_and_answer(criterion: &mut Criterion) {
    bench(&mut criterion.benchmark_group("qpip_receive_and_answer"), Part::ReceiveAndAnswer);
}

fn qpip_message(criterion: &mut Criterion) {
    bench(&mut criterion.benchmark_group("qpip_message"), Part::Message);
}

criterion_group!(benches, qpip_receive, qpip_receive_and_answer, qpip_message, qpip_recovery);
criterion_main!(benches);
