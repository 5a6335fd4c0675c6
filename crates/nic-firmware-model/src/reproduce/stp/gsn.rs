//! What the paper promises: STP over a link of GSN.

use core::time::Duration;

use super::super::exhibit::{Design as Paper, Exhibit, Row, Value};
use crate::machine::{Coalescing, Costs};
use crate::tigon::figures::{Design, Message, one_way, transfer};

/// 10^6 bytes: 790 × 2^20 in a second would be more than the link has bits.
const MEGABYTE: f64 = 1e6;
const LINK: u64 = 6_400_000_000;
/// Of what one call writes nothing is said; large ones are needed on Gigabit Ethernet
/// already.
const WRITE: u32 = 4 << 20;

/// A link of GSN, and an adapter that is never in its way: of that the paper states
/// nothing. Packets and Blocks, and the hosts, are those of the other tables.
fn gsn() -> Design {
    let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
    Design {
        costs: Costs { interrupts, ..Costs::OFF },
        sram: 8 << 20,
        rate: LINK,
        overhead: 0,
        // Ten metres of cable.
        delay: Duration::from_nanos(50),
        ..Design::PAPER
    }
}

fn rate(design: &Design) -> f64 {
    let account = transfer(design, 4, WRITE, Duration::ZERO);
    account.map_or(f64::NAN, |account| account.rate() / MEGABYTE)
}

fn micros(design: &Design, message: Message) -> f64 {
    one_way(design, message, 8).map_or(f64::NAN, |seconds| seconds * 1e6)
}

/// The promise, and what a Tigon-II would make of it.
pub(super) fn exhibit() -> Exhibit {
    let gsn = gsn();
    let tigon = Design { costs: Design::PAPER.costs, sram: Design::PAPER.sram, ..gsn };
    let row = |label, design: &Design, rate_of: Option<f64>, latency_of: Option<f64>| {
        let value = |paper: Option<f64>, model| match paper {
            Some(paper) => Value::predicted(paper, model),
            None => Value::alone(model),
        };
        let values = vec![
            value(rate_of, rate(design)),
            value(latency_of, micros(design, Message::Transfer)),
            Value::alone(micros(design, Message::Put)),
        ];
        Row::new(label, values)
    };
    Exhibit {
        design: Paper::Stp,
        name: "Section 2",
        title: "STP over a GSN link of 6.4 Gbit/s",
        columns: vec!["MB/s (10^6)", "a Transfer of 8 bytes, µs", "a Put of 8 bytes, µs"],
        rows: vec![
            row("an adapter that keeps up", &gsn, Some(790.0), Some(10.0)),
            row("packets of 64 KiB", &gsn.with_stu(16), None, None),
            row("a Tigon-II behind 32-bit PCI", &tigon, None, None),
        ],
        remarks: vec![
            "Frame by frame: Transfers of 4 MiB in packets of 4136 bytes, 64 to a Block. What the \
             paper's Origins and their adapters cost it does not say: the adapter is free, the \
             link ten metres long, and each packet that a host must hear of interrupts it once.",
            "The paper does not say of what its 10 µs are. A Transfer is asked for, granted and \
             sent: three interrupts. A Put into a persistent region is the third of that.",
            "Until the receiver's kernel knows; a process that slept is woken 8.75 µs later.",
        ],
    }
}
