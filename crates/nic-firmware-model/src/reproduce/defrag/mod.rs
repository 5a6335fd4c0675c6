//! Speculative defragmentation with the Hamachi: Figures 1, 4 and 5, Tables 1 and 2.
//!
//! A 400 MHz Pentium II under Linux 2.2 receives pages of 4096 bytes over Gigabit
//! Ethernet, each in three fragments. Its processor is the limit; what it spends on
//! a byte is known for one case, the standard one, and the others have copies less,
//! or more: as many as adapter and engine make of the frames that come. In this paper a
//! megabyte is 10^6 bytes.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `hosts` | two hosts with such adapters, frame by frame |

mod hosts;

use crate::hamachi;
use landfall_placement::Duration;

use self::hosts::{Load, Outcome, PAGE, Processor, Receiving, SEGMENT, crossing, transfer};
use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Row, Value};

/// Nanoseconds.
type Nanos = f64;

const STANDARD: f64 = 42.0;
/// Read and written once, in memory of 300 MB/s.
const COPY: Nanos = 2.0 / 0.3;
/// A change of the page table, for each page.
const REMAP: Nanos = 750.0;
/// A bus of four bytes at 33 MHz, in MB/s.
const BUS: f64 = 4.0 * 33.333_333;

/// Packets of a transfer.
const PACKETS: usize = 1_000;
/// A tenth of what the paper sent for Table 1.
const TENTH: usize = 10_000;

/// All that the processor does for a byte in the standard case.
fn standard() -> Nanos {
    1e3 / STANDARD
}

/// In the standard case each byte is copied once.
fn processor(page: Nanos) -> Processor {
    Processor { byte: standard() - COPY, copied: COPY, page }
}

const fn pages(is_handed_over: bool) -> Receiving {
    Receiving::Pages { is_handed_over, steers: false }
}

fn load(packets: usize, len: u32) -> Load {
    Load { packets, len, streams: 1, foreign_every: 0 }
}

fn plain(receiving: Receiving, page: Nanos, len: u32) -> Outcome {
    transfer(receiving, processor(page), load(PACKETS, len))
}

fn figure_1(standard: Outcome) -> Exhibit {
    Exhibit {
        design: Design::Defrag,
        name: "Figure 1",
        title: "What a standard stack makes of a Gigabit",
        columns: vec!["TCP as a share of what the bus gives"],
        rows: vec![Row::new(
            "Gigabit Ethernet, standard TCP",
            vec![Value::predicted(1.0 / 3.0, standard.rate / BUS)],
        )],
        remarks: vec![
            "\"The TCP performance is about one third of the maximal achievable rate\", which is \
             \"close to the PCI bus limit\": 133 MB/s. The figure's other bars are drawn only; \
             Myrinet's MPI is not modelled here.",
        ],
    }
}

fn figure_4(standard: Outcome) -> Exhibit {
    let rate = |receiving, page| plain(receiving, page, PAGE).rate;
    Exhibit {
        design: Design::Defrag,
        name: "Figure 4",
        title: "Throughput of large transfers",
        columns: vec!["MB/s (10^6)"],
        rows: vec![
            Row::new("standard", vec![Value::calibrated(STANDARD, standard.rate)]),
            Row::new(
                "defragmented in place, but copied to the user",
                vec![Value::alone(rate(pages(false), 0.0))],
            ),
            Row::new("with page remapping", vec![Value::predicted(65.0, rate(pages(true), REMAP))]),
            Row::new("with fast buffers", vec![Value::predicted(75.0, rate(pages(true), 0.0))])
                .off_because(
                    "The model takes one copy away, at the speed of memory that the STP paper \
                     names. That is 6.7 ns a byte; the paper's two values are 10.5 ns apart: its \
                     copy also sums, and pushes other data out of the cache.",
                ),
        ],
        remarks: vec![
            "Defragmenting alone \"does not increase the performance much\", says the paper.",
            "Two hosts with a Hamachi each, frame by frame: how many bytes the driver copies is \
             what adapter and engine made of the frames.",
        ],
    }
}

fn figure_5() -> Exhibit {
    Exhibit {
        design: Design::Defrag,
        name: "Figure 5",
        title: "Throughput when one end is a standard one",
        columns: vec!["MB/s (10^6)"],
        rows: vec![
            Row::new(
                "our fragments, standard receiver",
                vec![Value::predicted(STANDARD, plain(Receiving::Standard, 0.0, PAGE).rate)],
            ),
            Row::new(
                "standard sender, our receiver, every guess missed",
                vec![Value::predicted(35.0, plain(pages(true), 0.0, SEGMENT).rate)],
            ),
        ],
        remarks: vec!["A missed guess is one more copy: out of the wrong place."],
    }
}

fn table_1() -> Exhibit {
    let row = |label: &str, foreign_every, failed, rate| {
        let load = Load { foreign_every, ..load(TENTH, PAGE) };
        let outcome = transfer(pages(true), processor(0.0), load);
        let misses = 10.0 * (outcome.packets - outcome.in_place) as f64;
        Row::new(
            label,
            vec![Value::predicted(failed, misses), Value::predicted(rate, outcome.rate)],
        )
    };
    Exhibit {
        design: Design::Defrag,
        name: "Table 1",
        title: "What interferences cost a transfer of 100,000 packets",
        columns: vec!["failed packets", "MB/s (10^6)"],
        rows: vec![
            row("0 packets interfered", 0, 2.0, 75.0)
                .off_because("The paper does not say what the two were. The rate is Figure 4's."),
            row("100", 1_000, 15.0, 73.0).off_because(
                "A foreign frame shifts what is behind it in its list, and a packet that is cut in \
                 two by the end of a list may be cut off: more than one packet for each. In the \
                 paper it is one for seven, or for 357; it does not say when the others came.",
            ),
            row("10,000", 10, 28.0, 63.0).off_because(
                "The same. The rate falls by an eighth of Figure 4's, as in the paper by a sixth.",
            ),
        ],
        remarks: vec!["A tenth of it is run; failed packets are ten times what failed there."],
    }
}

/// Two hosts answer at once, each as fast as half of the receiver takes; 1 in 50 apart, so
/// that every shift of the one against the other occurs.
fn table_2() -> Exhibit {
    let page_time = (processor(0.0).byte * f64::from(PAGE)) as u64;
    let periods = [2 * page_time, 2 * page_time * 51 / 50].map(Duration::from_nanos);
    let crossed = crossing(processor(0.0), PACKETS, periods);
    let alone = plain(pages(true), 0.0, PAGE);
    Exhibit {
        design: Design::Defrag,
        name: "Table 2",
        title: "Zero-copy packets that were joined in place",
        columns: vec!["%"],
        rows: vec![
            Row::new(
                "TPC-D, master: two hosts answer at once",
                vec![Value::predicted(48.0, crossed.success())],
            )
            .off_because(
                "How much of the two answers overlapped is in the paper's trace only; here all \
                 of it does.",
            ),
            Row::new("TPC-D, hosts: one stream", vec![Value::predicted(100.0, alone.success())]),
            Row::new(
                "SOR, master: transfers one after another",
                vec![Value::predicted(99.0, alone.success())],
            ),
        ],
        remarks: vec![
            "The applications themselves are not run here: what counts is which streams cross at \
             the receiver. `landfall paper defrag` simulates their traffic.",
        ],
    }
}

/// What the paper hoped for, beside what it had.
fn reading_headers() -> Exhibit {
    let row = |streams: usize| {
        let outcomes = [false, true].map(|steers| {
            let receiving = Receiving::Pages { is_handed_over: true, steers };
            transfer(receiving, processor(0.0), Load { streams, ..load(PACKETS, PAGE) })
        });
        let [plain, steered] = outcomes;
        let values = [plain.success(), steered.success(), plain.rate, steered.rate];
        let label =
            if streams == 1 { "1 stream".into() } else { format!("{streams} streams in turns") };
        Row::new(label, values.map(Value::alone).to_vec())
    };
    Exhibit {
        design: Design::Defrag,
        name: "An adapter that reads headers",
        title: "\"We found no way to use this information to control the DMA\": here it does",
        columns: vec![
            "in place, %",
            "in place, reading headers, %",
            "MB/s (10^6)",
            "MB/s, reading headers",
        ],
        rows: [1, 2, 3, 4].map(row).to_vec(),
        remarks: vec![
            "Streams take turns frame by frame. The adapter of the paper fills descriptors in \
             their order; the other one picks the descriptor that was meant for the frame, \
             from a list with a page for each stream.",
        ],
    }
}

/// What the model is made of.
#[must_use]
pub fn constants() -> Vec<Constant> {
    vec![
        Constant::calibrated(
            "receiver, each byte, standard",
            standard(),
            "ns",
            "5.1: \"about 42 MByte/s\"",
        ),
        Constant::given(
            "copy, each byte (read and written)",
            COPY,
            "ns",
            "the STP paper, 1: \"several hundred MB/s\", taken as 300",
        ),
        Constant::given(
            "descriptor, read by the adapter before its buffer is filled",
            hamachi::DESCRIPTOR.as_nanos() as f64 / 1e3,
            "µs",
            "assumed: 16 bytes over a bus of 32 bits and 33 MHz, with its wait",
        ),
        Constant::given(
            "time-out, from the first frame to the driver's look",
            hamachi::TIME_OUT.as_nanos() as f64 / 1e3,
            "µs",
            "assumed: 3.2.2 has \"a timeout\" and no value; a shorter one cuts lists short, and \
             more packets in two",
        ),
        Constant::given(
            "bytes under way",
            f64::from(hosts::WINDOW) / 1024.0,
            "KiB",
            "assumed: the window of Linux 2.2",
        ),
        Constant::given(
            "change of a page table, each page",
            REMAP / 1e3,
            "µs",
            "the CLAN paper, 5.1: a system call of \"about .75 µs\"",
        ),
    ]
}

/// All exhibits of the paper, and what it hoped for.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    let standard = plain(Receiving::Standard, 0.0, SEGMENT);
    vec![
        figure_1(standard),
        figure_4(standard),
        figure_5(),
        table_1(),
        table_2(),
        reading_headers(),
    ]
}
