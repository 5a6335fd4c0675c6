//! How fast the machine simulates: frames through each adapter, with the costs of the
//! papers, and through whole networks of two hosts with such adapters.
//!
//! A simulated second at full rate has to take less than a real one for each 100,000
//! frames: 100,000 elements in a second, or more.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use landfall_benches::{AdapterPair, Load};
use landfall_placement::Duration;
use nic_firmware_model::{lanai, tigon};

/// One adapter, whose host only listens.
fn alone<L: Load>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut line: AdapterPair<L>) {
    let placed = line.round();
    group.throughput(Throughput::Elements(placed));
    group.bench_function(name, |bencher| bencher.iter(|| assert_eq!(line.round(), placed)));
}

fn adapter(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("adapter");
    alone(&mut group, "Tigon-II", AdapterPair::tigon());
    alone(&mut group, "LANai 9", AdapterPair::lanai());
    alone(&mut group, "Hamachi", AdapterPair::hamachi());
    alone(&mut group, "CLAN", AdapterPair::clan());
}

/// Two hosts with adapters, their engines, and the link between them: frames with payload,
/// each of which is fetched by one adapter and placed by the other.
fn two_hosts(criterion: &mut Criterion) {
    const MEGABYTE: u32 = 1 << 20;
    let mut group = criterion.benchmark_group("two hosts");
    group.sample_size(10);

    let design = tigon::figures::Design::PAPER;
    let frames = u64::from(4 * MEGABYTE / 1024);
    group.throughput(Throughput::Elements(frames));
    group.bench_function("Tigon-II", |bencher| {
        bencher.iter(|| black_box(tigon::figures::transfer(&design, 4, MEGABYTE, Duration::ZERO)));
    });

    let design = lanai::figures::Design::PAPER;
    let (mtu, chunks) = (1_500, 64);
    group.throughput(Throughput::Elements(chunks * 16_384 / u64::from(mtu - 72)));
    group.bench_function("LANai 9", |bencher| {
        bencher.iter(|| black_box(lanai::figures::stream(&design, mtu, chunks)));
    });
}

criterion_group!(benches, adapter, two_hosts);
criterion_main!(benches);
