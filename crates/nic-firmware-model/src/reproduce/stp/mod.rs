//! STP on the Tigon-II: Tables 1 and 2, the interrupts that are saved, striping, and
//! what the paper promises of GSN.
//!
//! Two dual-processor machines, a Gigabit link, a 32-bit PCI bus at each end. In this
//! paper a megabyte is 2^20 bytes, and 100 % are both processors of a machine.
//!
//! | file | what is there |
//! | --- | --- |
//! | `hosts` | what the tables state, and what the machines spend, fitted to the lines that may be fitted to; the same, each with the line that it comes from |

mod hosts;

use core::time::Duration;

use hosts::{Assumed, Costs, SendMethod, TABLE_1, TABLE_2, TableRow};

use super::exhibit::{Design as Paper, Exhibit, Row, Value};
use super::sensitivity::{self, Effect};
use crate::machine::{self, Coalescing};
use crate::tigon::figures::{Account, Design, Message, one_way, transfer};

pub use hosts::constants;

const COLUMNS: [&str; 3] = ["MB/s (2^20)", "receiver, %", "sender, %"];

/// What a cell is to the model.
#[derive(Clone, Copy)]
enum Cell {
    /// Fitted to it.
    Fit,
    /// It says the cell of another line again: the limit is the same.
    Same,
    /// The same, and off: the model says this.
    SameOff(f64),
    /// Predicted.
    Free,
    /// The same, and off: the model says this.
    Off(f64),
}

use Cell::{Fit, Free, Off, Same, SameOff};

impl Cell {
    fn value(self, paper: f64, model: f64) -> Value {
        match self {
            Fit => Value::fitted(paper, model),
            Same => Value::restated(paper, model),
            SameOff(held) => Value::restated(paper, model).held_to(held),
            Free => Value::predicted(paper, model),
            Off(held) => Value::predicted(paper, model).held_to(held),
        }
    }
}

/// Table 1, line by line: behind sendfile() the receiver is what it is behind write(), and so
/// is the rate, of which it is the limit.
const CELLS_1: [[Cell; 3]; 10] = [
    [Fit, Fit, Fit],
    [Free, Free, Off(66.6)],
    [Same, Same, Off(14.4)],
    [Same, SameOff(39.9), Free],
    [Fit, Fit, Fit],
    [Fit, Fit, Fit],
    [Free, Free, Free],
    [SameOff(52.0), Same, Off(26.7)],
    [Same, Same, Free],
    // The rate is the number of packets that the adapter takes, which was given.
    [Same, Off(4.32), Off(14.2)],
];

const CELLS_2: [[Cell; 3]; 4] = [
    [Fit, Fit, Off(31.4)],
    [Free, Free, Free],
    // What one connection keeps busy was fitted to the first line.
    [Off(39.0), SameOff(62.0), Off(37.5)],
    [Free, Free, Free],
];

fn row(costs: &Costs, line: &TableRow, touches: bool, cells: [Cell; 3]) -> Row {
    let (rate, receiver, sender) = costs.model(line, touches);
    let stated = [line.rate, line.receiver, line.sender];
    let values = stated.into_iter().zip([rate, receiver, sender]).zip(cells);
    let values = values.map(|((paper, model), cell)| cell.value(paper, model));
    Row::new(format!("{}, {}", line.label, line.packet), values.collect())
}

/// What the model lacks where a line of Table 1 is off.
const fn why_in_table_1(line: &TableRow) -> Option<&'static str> {
    match (line.method, line.is_truncated, line.packet as u32) {
        (SendMethod::Stp, _, 1064) => Some(
            "The rate is the limit of 50,000 packets a second, of which the paper says \"about\": \
             its line has 54,000. Its receiver spends 6.4 µs on a packet of a page and 2.9 on \
             one of a quarter. Pages, and an interrupt and a grant for each Block, are all \
             that the model charges, and that is half of it: something seems to be done for \
             each packet, which one calibrated line cannot tell from pages. The sender is \
             short by what the rate is, and as much again.",
        ),
        (SendMethod::TcpSendfile, false, _) => Some(
            "The paper's sender with sendfile() spends 28 µs on a packet of 9000 bytes and 7 on one \
             of 1500 while its receiver is the limit, but 33 and 15 when it is not; the model's \
             spends the same in both. That sendfile() at 1500 is slower than write(), \
             although the receiver is the limit of both, the paper does not explain.",
        ),
        (SendMethod::TcpSendfile, true, _) => Some(
            "With MSG_TRUNC the paper's receiver is busy for 31 % behind sendfile() and for 35 % \
             behind write(), with the same packets at the same rate. The model's does not know \
             how they were sent.",
        ),
        (SendMethod::TcpWrite, true, _) => Some(
            "What the sender spends on a byte in the lines that were calibrated includes \
             waiting for the receiver to open its window.",
        ),
        _ => None,
    }
}

/// Table 1: TCP and STP.
fn table_1(costs: &Costs) -> Exhibit {
    let rows = TABLE_1.iter().zip(CELLS_1).map(|(line, cells)| {
        let row = row(costs, line, false, cells);
        match why_in_table_1(line) {
            Some(why) => row.off_because(why),
            None => row,
        }
    });
    Exhibit {
        design: Paper::Stp,
        name: "Table 1",
        title: "TCP and STP performance",
        columns: COLUMNS.to_vec(),
        rows: rows.collect(),
        remarks: vec![
            "STP's lines are measured frame by frame on two simulated hosts with Tigon-IIs: \
             `write()` after `write()` of 512 KiB, each a Transfer. TCP's are computed: no adapter \
             takes anything off it.",
            "With MSG_TRUNC the receiver does not copy to the user.",
        ],
    }
}

/// Table 2: the receiver touches the data.
fn table_2(costs: &Costs) -> Exhibit {
    let mut rows: Vec<Row> = TABLE_2
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let row = row(costs, line, true, CELLS_2[at]);
            match (line.method, at) {
            (SendMethod::Stp, _) => row,
            (_, 0) => row.off_because(
                "The paper does not say with which call its sender sent; the model's copies. Per \
                 packet the paper's sender spends 77 µs here, 109 with write() in Table 1, and \
                 28 with sendfile().",
            ),
            _ => row.off_because(
                "The paper sees TCP collapse under the interrupts of 1500-byte packets: the \
                 receiver spends 105 µs on each, four times what it does without touching. The \
                 model's costs do not grow with the load; neither a window that closes while \
                 data is touched nor losses would keep its processors busy. No line that may \
                 be calibrated with shows the effect, so none is put in.",
            ),
        }
        })
        .collect();
    let read_only = Costs { touch_uncached: costs.touch_uncached / 2.0, ..costs.clone() };
    for line in TABLE_2.iter().filter(|line| line.method == SendMethod::Stp) {
        let (rate, receiver, sender) = read_only.stp(line, 1, true);
        let values = [rate, receiver, sender].map(Value::alone).to_vec();
        rows.push(Row::new(
            format!("{}, {}, if touching only read", line.label, line.packet),
            values,
        ));
    }
    Exhibit {
        design: Paper::Stp,
        name: "Table 2",
        title: "Results when the receiver touches the data",
        columns: COLUMNS.to_vec(),
        rows,
        remarks: vec![
            "TCP's data is touched packet by packet as it comes, STP's when the whole Transfer is \
             there, and only then is the next one taken.",
            "\"With TCP, however, the performance drop is smaller due to the data already being \
             cached\": so STP's touching is not calibrated with TCP's, but takes what memory \
             takes, each byte read and written. TCP's touching was calibrated with its own line, and comes \
             out dearer: its receiver is also hindered by what comes meanwhile.",
        ],
    }
}

/// The interrupts that are saved by telling the host of whole Blocks only: one for 64.
fn interrupts(costs: &Costs) -> Exhibit {
    let account = costs.measure(&TABLE_1[4], 1, false);
    let of_blocks = account.map(|all| (all.blocks, all));
    let of_all = account.map(|all| (all.receiver.interrupts, all));
    let row = |label, paper: Option<f64>, counted: Option<(u64, Account)>| {
        let per = |whole: fn(&Account) -> u64| match &counted {
            Some((interrupts, all)) => *interrupts as f64 / whole(all) as f64,
            None => f64::NAN,
        };
        let saved = (1.0 - per(|all| all.receiver.stus_placed)) * 100.0;
        let saved = paper.map_or(Value::alone(saved), |paper| Value::restated(paper, saved));
        Row::new(label, vec![saved, Value::alone(per(|all| all.blocks))])
    };
    Exhibit {
        design: Paper::Stp,
        name: "Section 2, interrupts",
        title: "Interrupts saved with Blocks of 64 STUs",
        columns: vec!["saved, %", "for each Block"],
        rows: vec![
            row("those for Blocks", Some(98.4), of_blocks),
            row("with those for control operations", None, of_all),
        ],
        remarks: vec![
            "Counted at the receiver of Table 1's line of 4136 bytes: Transfers of 512 KiB, each \
             asked for and granted.",
        ],
    }
}

/// What the adapters of STP's lines were busy with.
fn adapters(costs: &Costs) -> Exhibit {
    let rows = [&TABLE_1[4], &TABLE_1[9]].map(|line| {
        let account = costs.measure(line, 1, false);
        let share = |of: fn(&Account) -> f64| {
            let share = account.map_or(f64::NAN, |all| of(&all) / all.seconds * 100.0);
            Value::alone(share)
        };
        let values = vec![
            share(|all| all.sender.processor),
            share(|all| all.sender.bus),
            share(|all| all.receiver.processor),
            share(|all| all.receiver.bus),
            Value::alone(
                account.map_or(f64::NAN, |all| all.receiver.stus_placed as f64 / all.seconds / 1e3),
            ),
        ];
        Row::new(format!("STP write(), {}", line.packet), values)
    });
    Exhibit {
        design: Paper::Stp,
        name: "Section 2.3, adapters",
        title: "What the Tigon-IIs of STP's lines were busy with",
        columns: vec![
            "sender's processor, %",
            "its bus, %",
            "receiver's processor, %",
            "its bus, %",
            "thousand packets/s",
        ],
        rows: rows.to_vec(),
        remarks: vec![
            "The processors' cycles are ours. With pages the sender's DMA engine is never idle: its \
             bus, and the set-up of two pieces. With a quarter of a page its limit is the number \
             of packets, of which the paper says \"about 50000\".",
        ],
    }
}

/// One Transfer over two adapters.
fn striping(costs: &Costs) -> Exhibit {
    let lines = [(&TABLE_1[4], 1), (&TABLE_1[4], 2), (&TABLE_1[9], 1), (&TABLE_1[9], 2)];
    let rows = lines.map(|(line, links)| {
        let (rate, receiver, sender) = costs.stp(line, links, false);
        let adapters = if links == 1 { "one adapter" } else { "two adapters" };
        let values = [rate, receiver, sender].map(Value::alone).to_vec();
        Row::new(format!("{} bytes, {adapters}", line.packet), values)
    });
    Exhibit {
        design: Paper::Stp,
        name: "Section 2, striping",
        title: "A Transfer over two links",
        columns: COLUMNS.to_vec(),
        rows: rows.to_vec(),
        remarks: vec![
            "The paper describes it and states no value. Each Block is granted on one of the \
             links, and comes over that; each adapter has a bus of its own here. Two behind one \
             32-bit bus would share what one of them fills already.",
        ],
    }
}

/// All exhibits of the paper.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    with(&Assumed::default())
}

fn with(assumed: &Assumed) -> Vec<Exhibit> {
    let costs = Costs::fitted(assumed);
    vec![
        interrupts(&costs),
        table_1(&costs),
        table_2(&costs),
        adapters(&costs),
        striping(&costs),
        promise_of_gsn(&assumed.adapter),
    ]
}

/// What the assumed constants do to the values.
#[must_use]
pub fn sensitivity() -> Vec<Effect> {
    sensitivity::of(&Assumed::default(), &Assumed::ALL, with)
}

/// 10^6 bytes: 790 × 2^20 in a second would be more than the link has bits.
const MEGABYTE: f64 = 1e6;
const LINK: u64 = 6_400_000_000;
/// Of what one call writes nothing is said; large ones are needed on Gigabit Ethernet
/// already.
const LARGE_WRITE: u32 = 4 << 20;

/// A link of GSN, and an adapter that is never in its way: of that the paper states
/// nothing. Packets and Blocks, and the hosts, are those of the other tables.
fn gsn(adapter: &Design) -> Design {
    let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
    Design {
        costs: machine::Costs { interrupts, ..machine::Costs::OFF },
        sram: 8 << 20,
        rate: LINK,
        overhead: 0,
        // Ten metres of cable.
        delay: Duration::from_nanos(50),
        ..*adapter
    }
}

fn rate(design: &Design) -> f64 {
    let account = transfer(design, 4, LARGE_WRITE, Duration::ZERO);
    account.map_or(f64::NAN, |account| account.rate() / MEGABYTE)
}

fn micros(design: &Design, message: Message) -> f64 {
    one_way(design, message, 8).map_or(f64::NAN, |seconds| seconds * 1e6)
}

/// The promise, and what a Tigon-II would make of it.
fn promise_of_gsn(adapter: &Design) -> Exhibit {
    let gsn = gsn(adapter);
    let tigon = Design { costs: adapter.costs, sram: adapter.sram, ..gsn };
    let row = |label, design: &Design, rate_of: Option<f64>, latency_of: Option<f64>| {
        let value = |paper: Option<f64>, model| match paper {
            Some(paper) => Value::predicted(paper, model),
            None => Value::alone(model),
        };
        // An adapter that is never in the way leaves the link's rate: what was given.
        let rate_value = match rate_of {
            Some(paper) => Value::restated(paper, rate(design)),
            None => Value::alone(rate(design)),
        };
        let values = vec![
            rate_value,
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
