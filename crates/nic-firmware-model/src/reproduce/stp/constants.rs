//! What the model is made of, each with the line that it comes from.

use super::super::exhibit::Constant;
use super::super::pipeline::Seconds;
use super::hosts::{Costs, WRITE};
use crate::tigon::figures::Design;

fn micro(seconds: Seconds) -> f64 {
    seconds * 1e6
}

fn nano(seconds: Seconds) -> f64 {
    seconds * 1e9
}

/// What the model is made of.
#[must_use]
pub fn constants() -> Vec<Constant> {
    let costs = Costs::calibrated();
    [given(&costs), of_others(&costs), fitted(&costs), fitted_to_stp(&costs)].concat()
}

fn given(costs: &Costs) -> Vec<Constant> {
    let Design { costs: machine, rate, .. } = costs.adapter;
    vec![
        Constant::given(
            "bus",
            machine.bus.rate as f64 / 1e6,
            "MB/s",
            "2.3: \"the 32-bit PCI bus\", at 33 MHz",
        ),
        Constant::given("wire", rate as f64 / 8e6, "MB/s", "1: \"GigE is 125MB/s\""),
        Constant::given(
            "DMA engine, each packet",
            micro(machine.dma.gap.as_secs_f64()),
            "µs",
            "2.3: \"about 50000 packets/s\"",
        ),
        Constant::given(
            "memory of the adapter",
            f64::from(costs.adapter.sram) / 1024.0,
            "KiB",
            "2.3: \"1MB DEC Gigabit Ethernet Adapters\"",
        ),
        Constant::given(
            "STUs of a Block",
            f64::from(1u32 << costs.adapter.block),
            "",
            "2: \"With a Block size of 64 STUs\"",
        ),
        Constant::given(
            "bytes of one write()",
            f64::from(WRITE) / 1024.0,
            "KiB",
            "2.1: \"large writes (128-512k on GigE)\"",
        ),
        Constant::given(
            "copy, each byte (read and written)",
            nano(costs.copy),
            "ns",
            "1: \"the memory speeds are in the range of several hundred MB/s\", taken as 300",
        ),
        Constant::given(
            "touching what DMA put into memory, each byte",
            nano(costs.touch_uncached),
            "ns",
            "the same memory, read and written; that touching also writes is our assumption",
        ),
    ]
}

/// What this paper does not say.
fn of_others(costs: &Costs) -> Vec<Constant> {
    let cycles = costs.adapter.cycles;
    let received = cycles.header + cycles.lookup + cycles.dma + cycles.update;
    vec![
        Constant::given(
            "processor of the adapter",
            costs.adapter.costs.clock as f64 / 1e6,
            "MHz",
            "not in the paper: the Tigon-II's two processors run at 88 MHz; the firmware uses one",
        ),
        Constant::given(
            "firmware, each packet of Data that comes",
            f64::from(received),
            "cycles",
            "not in the paper: assumed; no line depends on it",
        ),
        Constant::given(
            "interrupt of a host",
            micro(costs.adapter.interrupt.as_secs_f64()),
            "µs",
            "the CLAN paper, 5.1: \"The interrupt latency is 3 µs\"",
        ),
        Constant::given(
            "a process that slept goes on, and calls again",
            micro(costs.adapter.wake.as_secs_f64()),
            "µs",
            "the CLAN paper, 5.1: \"8 µs\", and a system call of \"about .75 µs\"",
        ),
    ]
}

fn fitted(costs: &Costs) -> Vec<Constant> {
    vec![
        Constant::calibrated(
            "TCP receiver, each packet",
            micro(costs.receive.packet),
            "µs",
            "Table 1, TCP write() 9000 and 1500: 75 and 52 MB/s at 55 %",
        ),
        Constant::calibrated("TCP receiver, each byte", nano(costs.receive.byte), "ns", "the same"),
        Constant::calibrated(
            "TCP sender, each packet",
            micro(costs.send.packet),
            "µs",
            "Table 1, TCP write() 9000 and 1500: 48 and 50 %",
        ),
        Constant::calibrated("TCP sender, each byte", nano(costs.send.byte), "ns", "the same"),
        Constant::calibrated(
            "processors that one connection keeps busy at the receiver",
            costs.most_busy,
            "",
            "Table 1, TCP write(): 55 % of two",
        ),
        Constant::calibrated(
            "touching what TCP copied, each byte",
            nano(costs.touch_of_tcp),
            "ns",
            "Table 2, TCP 9000: 49 MB/s at 62 %",
        ),
    ]
}

fn fitted_to_stp(costs: &Costs) -> Vec<Constant> {
    vec![
        Constant::calibrated(
            "DMA set-up, each piece of a packet",
            micro(costs.adapter.costs.dma.setup.as_secs_f64()),
            "µs",
            "Table 1, STP write() 4136: 98 MB/s",
        ),
        Constant::calibrated(
            "STP sender, each page, beside an interrupt for each packet",
            micro(costs.page_out),
            "µs",
            "Table 1, STP write() 4136: 17 %",
        ),
        Constant::calibrated(
            "STP receiver, each page, beside an interrupt for each Block",
            micro(costs.page_in),
            "µs",
            "Table 1, STP write() 4136: 8 %",
        ),
    ]
}
