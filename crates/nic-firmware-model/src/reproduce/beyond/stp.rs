//! STP, frame by frame: two hosts with adapters that run the Tigon-II's firmware.

use core::time::Duration;

use super::super::exhibit::{Design as Paper, Exhibit, Row};
use super::today::{self, CLOCK, INTERRUPT, LINKS, ON_THE_CABLE, SETUP, WAKE};
use super::{BREAKS_AT, NAMES, Outcome, columns, rows, up_to};
use crate::machine::Sram;
use crate::tigon::Tables;
use crate::tigon::figures::{Account, Design, HostFigures, Message, one_way, transfer};

/// What one call writes.
const WRITE: u32 = 2 << 20;
const WRITES: u32 = 3;

fn design(link: u64, stu: u8) -> Design {
    Design {
        costs: today::MACHINE,
        rate: link,
        overhead: ON_THE_CABLE,
        delay: today::ONE_WAY,
        interrupt: Duration::from_nanos(INTERRUPT as u64),
        wake: Duration::from_nanos(WAKE as u64),
        ..Design::PAPER.with_stu(stu)
    }
}

/// For which share of the time a side's link, bus, DMA engine and processor are busy.
fn busy(design: &Design, account: &Account, side: &HostFigures, way: usize) -> [f64; 4] {
    let packets = account.receiver.stus_placed as f64;
    let on_the_cable = packets * f64::from(design.frame() + design.overhead) * 8.0;
    let dma = side.transfers[way] as f64 * SETUP / 1e9 + side.bus;
    [on_the_cable / design.rate as f64, side.bus, dma, side.processor]
        .map(|seconds| seconds / account.seconds)
}

fn outcome(link: u64, stu: u8) -> Outcome {
    let design = design(link, stu);
    let Some(account) = transfer(&design, WRITES, WRITE, Duration::ZERO) else {
        return Outcome::NONE;
    };
    let receiver = busy(&design, &account, &account.receiver, 0);
    let sender = busy(&design, &account, &account.sender, 1);
    let mut most = receiver;
    for (most, other) in most.iter_mut().zip(sender) {
        *most = most.max(other);
    }
    Outcome {
        rate: account.rate() * 8.0,
        packets: account.receiver.stus_placed as f64 / account.seconds,
        one_way: one_way(&design, Message::Put, 1 << stu).unwrap_or(f64::NAN),
        busy: most,
        names: NAMES,
    }
}

fn now() -> Exhibit {
    let asked = [6, 10, 12, 13].map(|stu: u8| (stu, format!("packets of {} bytes", 1u32 << stu)));
    Exhibit {
        design: Paper::Stp,
        name: "STP",
        title: "Transfers of 2 MiB with the Tigon-II's firmware",
        columns: columns("processor, %"),
        rows: rows(&asked, |link, stu| outcome(link, *stu)),
        remarks: vec![
            "Frame by frame. The share of a resource is that of the side where it is greater. One \
             way is that of a Put of one packet, until the receiver's kernel knows.",
        ],
    }
}

fn breaks() -> Exhibit {
    let cycles = Design::PAPER.cycles;
    let each = f64::from(cycles.header + cycles.lookup + cycles.dma + cycles.update);
    let with_sums = |payload: f64| each + f64::from(cycles.sum(payload as usize));
    let bits = |payload: f64, nanos: f64| payload * 8e9 / nanos;
    let nanos = |cycles: f64| cycles * 1e9 / CLOCK as f64;
    let mut all: Vec<Row> = [64.0, 1024.0, 4096.0, 8192.0]
        .map(|payload| {
            up_to(format!("processor, packets of {payload}"), bits(payload, nanos(each)))
        })
        .to_vec();
    all.push(up_to(
        "processor that makes the checksum, packets of 4096",
        bits(4096.0, nanos(with_sums(4096.0))),
    ));
    // A head and a page.
    let fetched = |payload: f64| 2.0 * SETUP + today::on_the_bus(payload + 40.0);
    all.push(up_to("DMA of the sender, packets of 1024", bits(1024.0, fetched(1024.0))));
    all.push(up_to("DMA of the sender, packets of 4096", bits(4096.0, fetched(4096.0))));
    let design = design(LINKS[1], 12);
    let sizes = design.sizes();
    let slots = f64::from(sizes.arrivals) * 4096.0;
    all.push(up_to("slots of 1 MiB of SRAM, the bus standing still for 10 µs", bits(slots, 1e4)));
    let mut sram = Sram::new(design.sram);
    let blocks = sizes.reserve(&mut sram).map_or(0, |()| Tables::most(&sram, 64));
    let granted = blocks as f64 * 64.0 * 4096.0;
    all.push(up_to(
        format!("the {blocks} Blocks that fit into the rest, over a round trip of 1 ms"),
        bits(granted, 1e6),
    ));
    Exhibit {
        design: Paper::Stp,
        name: "STP",
        title: "Where it breaks",
        columns: vec![BREAKS_AT],
        rows: all,
        remarks: vec![
            "The receiver's processor comes first: what it does is for each packet, and the \
             standard's answer is a larger packet. Its tables are for Blocks, not for \
             connections, and far from their bound.",
        ],
    }
}

pub(super) fn exhibits() -> Vec<Exhibit> {
    vec![now(), breaks()]
}
