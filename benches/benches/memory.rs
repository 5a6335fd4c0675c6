//! The region table, copies into lent memory and sums, beside a bare `memcpy`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use landfall_placement::{InternetSum, checksum};
use landfall_transport::memory::{Memory, Pins, Regions, Rights};

fn resolve(criterion: &mut Criterion) {
    let regions = Regions::new(16);
    let memory = Memory::zeroed(1 << 20);
    let region = regions.lend(memory, Rights::READ | Rights::WRITE).expect("room for a region");
    let mut pins = Pins::new(&regions);
    let mut group = criterion.benchmark_group("region table");
    group.bench_function("check a span, pinned in this turn", |bencher| {
        let mut offset = 0;
        bencher.iter(|| {
            offset = (offset + 1024) % (1 << 20);
            pins.resolve(&region.span(offset, 1024), Rights::WRITE)
        });
    });
    group.bench_function("pin and release", |bencher| {
        bencher.iter(|| {
            let place = pins.resolve(&region.span(0, 1024), Rights::WRITE);
            pins.release();
            place
        });
    });
    group.finish();
}

fn copy(criterion: &mut Criterion) {
    let regions = Regions::new(16);
    let region = regions.lend(Memory::zeroed(1 << 20), Rights::WRITE).expect("room for a region");
    let mut pins = Pins::new(&regions);
    let mut plain = vec![0u8; 1 << 20];
    let mut group = criterion.benchmark_group("copy");
    for len in [64, 1024, 8192] {
        let source = vec![7u8; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("into lent memory", len), &source, |b, source| {
            let mut offset = 0;
            b.iter(|| {
                offset = (offset + len as u64) % (1 << 19);
                pins.copy_in(&region.span(offset, len as u32), source)
            });
        });
        group.bench_with_input(BenchmarkId::new("memcpy", len), &source, |b, source| {
            let mut offset = 0;
            b.iter(|| {
                offset = (offset + len) % (1 << 19);
                plain[offset..offset + len].copy_from_slice(std::hint::black_box(source));
            });
        });
    }
    group.finish();
}

fn sum(criterion: &mut Criterion) {
    let regions = Regions::new(16);
    let region = regions.lend(Memory::zeroed(1 << 20), Rights::READ).expect("room for a region");
    let mut pins = Pins::new(&regions);
    let mut group = criterion.benchmark_group("Internet sum");
    for len in [20, 1460, 65_536] {
        let bytes = vec![0xa5u8; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("of a slice", len), &bytes, |b, bytes| {
            b.iter(|| checksum::sum_of(std::hint::black_box(bytes)));
        });
        group.bench_with_input(BenchmarkId::new("of lent memory", len), &len, |b, len| {
            b.iter(|| pins.sum(&[region.span(0, *len as u32)]).map(|sum: InternetSum| sum.sum()));
        });
    }
    group.finish();
}

criterion_group!(benches, resolve, copy, sum);
criterion_main!(benches);
