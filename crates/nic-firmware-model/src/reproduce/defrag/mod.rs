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

use landfall_placement::Duration;

use self::hosts::{
    Crossing, Load, Machine, Outcome, PAGE, Processor, Receiving, SEGMENT, Transfer,
};
use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Row, Value};
use super::sensitivity::{self, Effect, Variable, times};
use crate::machine::Coalescing;

/// Nanoseconds.
type Nanos = f64;

const STANDARD: f64 = 42.0;
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

/// What the paper does not say, and so was chosen.
#[derive(Clone, Copy)]
struct Assumed {
    /// A byte read and written once, in memory of 300 MB/s.
    copy: Nanos,
    machine: Machine,
}

impl Default for Assumed {
    fn default() -> Self {
        Self { copy: 2.0 / 0.3, machine: Machine::default() }
    }
}

const COPY: &str = "copy, each byte (read and written)";
const DESCRIPTOR: &str = "descriptor, read by the adapter before its buffer is filled";
const TIME_OUT: &str = "time-out, from the first frame to the driver's look";
const WINDOW: &str = "bytes under way";

impl Assumed {
    const ALL: [Variable<Self>; 4] = [
        // Together with all else it is what the standard case spends on a byte: there is a
        // limit to it.
        (COPY, |it, by| it.copy = (it.copy * by).min(standard())),
        (DESCRIPTOR, |it, by| {
            let dma = &mut it.machine.costs.dma;
            dma.setup = times(dma.setup, by);
        }),
        (TIME_OUT, |it, by| {
            if let Coalescing::After { time, .. } = &mut it.machine.costs.interrupts {
                *time = times(*time, by);
            }
        }),
        (WINDOW, |it, by| it.machine.window = (f64::from(it.machine.window) * by) as u32),
    ];

    /// In the standard case each byte is copied once.
    fn processor(&self, page: Nanos) -> Processor {
        Processor { byte: standard() - self.copy, copied: self.copy, page }
    }

    fn transfer(&self, receiving: Receiving, page: Nanos, load: Load) -> Outcome {
        let (machine, processor) = (self.machine, self.processor(page));
        Transfer { machine, receiving, processor, load }.outcome()
    }

    fn plain(&self, receiving: Receiving, page: Nanos, len: u32) -> Outcome {
        self.transfer(receiving, page, Load::plain(PACKETS, len))
    }
}

const fn pages(is_handed_over: bool) -> Receiving {
    Receiving::Pages { is_handed_over, steers: false }
}

fn figure_1(standard: Outcome) -> Exhibit {
    Exhibit {
        design: Design::Defrag,
        name: "Figure 1",
        title: "What a standard stack makes of a Gigabit",
        columns: vec!["TCP as a share of what the bus gives"],
        rows: vec![Row::new(
            "Gigabit Ethernet, standard TCP",
            vec![Value::restated(1.0 / 3.0, standard.rate / BUS)],
        )],
        remarks: vec![
            "\"The TCP performance is about one third of the maximal achievable rate\", which is \
             \"close to the PCI bus limit\": 133 MB/s. The figure's other bars are drawn only; \
             Myrinet's MPI is not modelled here.",
        ],
    }
}

fn figure_4(assumed: &Assumed, standard: Outcome) -> Exhibit {
    let rate = |receiving, page| assumed.plain(receiving, page, PAGE).rate;
    Exhibit {
        design: Design::Defrag,
        name: "Figure 4",
        title: "Throughput of large transfers",
        columns: vec!["MB/s (10^6)"],
        rows: vec![
            Row::new("standard", vec![Value::fitted(STANDARD, standard.rate)]),
            Row::new(
                "defragmented in place, but copied to the user",
                vec![Value::alone(rate(pages(false), 0.0))],
            ),
            Row::new("with page remapping", vec![Value::restated(65.0, rate(pages(true), REMAP))]),
            Row::new(
                "with fast buffers",
                vec![Value::restated(75.0, rate(pages(true), 0.0)).held_to(58.3)],
            )
            .off_because(
                "The model takes one copy away, at the speed of memory that the STP paper \
                     names. That is 6.7 ns a byte; the paper's two values are 10.5 ns apart: its \
                     copy also sums, and pushes other data out of the cache.",
            ),
        ],
        remarks: vec![
            "Both rates are what the standard case leaves when one copy is taken away, and a change \
             of the page table put in: sums of inputs, so that they are met is no success.",
            "Defragmenting alone \"does not increase the performance much\", says the paper.",
            "Two hosts with a Hamachi each, frame by frame: how many bytes the driver copies is \
             what adapter and engine made of the frames.",
        ],
    }
}

fn figure_5(assumed: &Assumed) -> Exhibit {
    Exhibit {
        design: Design::Defrag,
        name: "Figure 5",
        title: "Throughput when one end is a standard one",
        columns: vec!["MB/s (10^6)"],
        rows: vec![
            Row::new(
                "our fragments, standard receiver",
                vec![Value::restated(STANDARD, assumed.plain(Receiving::Standard, 0.0, PAGE).rate)],
            ),
            Row::new(
                "standard sender, our receiver, every guess missed",
                vec![Value::restated(35.0, assumed.plain(pages(true), 0.0, SEGMENT).rate)],
            ),
        ],
        remarks: vec!["A missed guess is one more copy: out of the wrong place."],
    }
}

/// The other reading of Table 1: the foreign packets come in bursts.
fn together(assumed: &Assumed) -> Exhibit {
    const AT_ONCE: usize = 100;
    let rows =
        [("100, all at once", TENTH, AT_ONCE / 10), ("10,000, 100 at once", TENTH / 10, AT_ONCE)]
            .map(|(label, foreign_every, foreign_burst)| {
                let load = Load { foreign_every, foreign_burst, ..Load::plain(TENTH, PAGE) };
                let outcome = assumed.transfer(pages(true), 0.0, load);
                let misses = 10.0 * (outcome.packets - outcome.in_place) as f64;
                Row::new(label, vec![Value::alone(misses), Value::alone(outcome.rate)])
            });
    Exhibit {
        design: Design::Defrag,
        name: "Table 1, the other reading",
        title: "The same interferences, together",
        columns: vec!["failed packets", "MB/s (10^6)"],
        rows: rows.to_vec(),
        remarks: vec![
            "\"Packets interfered\" may be foreign packets each of which met a packet of the transfer \
             (the table above), or foreign packets that came in bursts, most of which met each other. The \
             paper's 28 failed packets of 10,000 fit the second: a burst costs a packet or two, \
             however long it is. Which of them was measured the paper does not say, so this one is \
             shown and not scored.",
        ],
    }
}

fn table_1(assumed: &Assumed) -> Exhibit {
    // What the paper states, and what the model says instead.
    let row = |label: &str, foreign_every, failed: (f64, f64), rate: (f64, f64)| {
        let load = Load { foreign_every, ..Load::plain(TENTH, PAGE) };
        let outcome = assumed.transfer(pages(true), 0.0, load);
        let misses = 10.0 * (outcome.packets - outcome.in_place) as f64;
        let of_rate = match foreign_every {
            // Figure 4's.
            0 => Value::restated(rate.0, outcome.rate),
            _ => Value::predicted(rate.0, outcome.rate),
        };
        let failed =
            Value::predicted(failed.0, misses).of_packets(10.0 * TENTH as f64).held_to(failed.1);
        Row::new(label, vec![failed, of_rate.held_to(rate.1)])
    };
    Exhibit {
        design: Design::Defrag,
        name: "Table 1",
        title: "What interferences cost a transfer of 100,000 packets",
        columns: vec!["failed packets", "MB/s (10^6)"],
        rows: vec![
            row("0 packets interfered", 0, (2.0, 0.0), (75.0, 58.3))
                .off_because("The paper does not say what the two were. The rate is Figure 4's."),
            row("100", 1_000, (15.0, 140.0), (73.0, 58.2)).off_because(
                "A foreign frame shifts what is behind it in its list, and a packet that is cut in \
                 two by the end of a list may be cut off: more than one packet for each. In the \
                 paper it is one for seven, or for 357; it does not say when the others came.",
            ),
            row("10,000", 10, (28.0, 13_340.0), (63.0, 51.5)).off_because(
                "The same. The rate falls by an eighth of Figure 4's, as in the paper by a sixth.",
            ),
        ],
        remarks: vec![
            "A tenth of it is run; failed packets are ten times what failed there.",
            "The paper's counts are 20, 150 and 280 of a million packets: what is off is given in \
             packets per million, and not as a share of so little.",
        ],
    }
}

/// One stream, which nothing crosses.
fn table_2(assumed: &Assumed) -> Exhibit {
    let alone = assumed.plain(pages(true), 0.0, PAGE);
    let row = |label, paper| Row::new(label, vec![Value::restated(paper, alone.success())]);
    Exhibit {
        design: Design::Defrag,
        name: "Table 2",
        title: "Zero-copy packets that were joined in place",
        columns: vec!["%"],
        rows: vec![
            row("TPC-D, hosts: one stream", 100.0),
            row("SOR, master: transfers one after another", 99.0),
        ],
        remarks: vec![
            "What nothing crosses is joined in place, by construction. The applications themselves \
             are not run here; `landfall paper defrag` simulates their traffic.",
            "Of TPC-D's master, at which two hosts answer at once, the paper has 48 %: how much of \
             the answers overlapped is in its trace only, so the next table shows the curve.",
        ],
    }
}

/// Two hosts answer, each as fast as half of the receiver takes; 1 in 50 apart, so that every
/// shift of the one against the other occurs. The second begins later.
fn overlap(assumed: &Assumed) -> Exhibit {
    const ANSWER: usize = PACKETS / 4;
    let page_time = (assumed.processor(0.0).byte * f64::from(PAGE)) as u64;
    let periods = [2 * page_time, 2 * page_time * 51 / 50].map(Duration::from_nanos);
    let rows = [0, 20, 40, 60, 80, 100].map(|percent| {
        let later = periods[0].saturating_mul((ANSWER * (100 - percent) / 100) as u32);
        let (machine, processor) = (assumed.machine, assumed.processor(0.0));
        let crossing = Crossing { machine, processor, packets: ANSWER, periods, later };
        Row::new(format!("{percent} %"), vec![Value::alone(crossing.outcome().success())])
    });
    Exhibit {
        design: Design::Defrag,
        name: "Table 2, TPC-D's master",
        title: "Two answers that overlap by so much",
        columns: vec!["joined in place, %"],
        rows: rows.to_vec(),
        remarks: vec![
            "The paper's 48 % is one point of such a curve; at which overlap it does not say. Where \
             the whole of both answers overlaps and more than that is joined here, the paper's \
             streams met in a way that this model's do not.",
        ],
    }
}

/// What the paper hoped for, beside what it had.
fn reading_headers(assumed: &Assumed) -> Exhibit {
    let row = |streams: usize| {
        let outcomes = [false, true].map(|steers| {
            let receiving = Receiving::Pages { is_handed_over: true, steers };
            assumed.transfer(receiving, 0.0, Load { streams, ..Load::plain(PACKETS, PAGE) })
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
    let Assumed { copy, machine: Machine { costs, window } } = Assumed::default();
    let time_out = match costs.interrupts {
        Coalescing::After { time, .. } => time.as_secs_f64() * 1e6,
        Coalescing::Watched => 0.0,
    };
    vec![
        Constant::fitted(
            "receiver, each byte, standard",
            1e3 / STANDARD,
            "ns",
            "5.1: \"about 42 MByte/s\"",
        ),
        Constant::given("bus", BUS, "MB/s", "2: a PCI bus of 32 bits at 33 MHz"),
        Constant::assumed(
            COPY,
            copy,
            "ns",
            "the STP paper, 1: \"several hundred MB/s\", taken as 300",
        ),
        Constant::assumed(
            DESCRIPTOR,
            costs.dma.setup.as_secs_f64() * 1e6,
            "µs",
            "16 bytes over a bus of 32 bits and 33 MHz, with its wait",
        ),
        Constant::assumed(
            TIME_OUT,
            time_out,
            "µs",
            "3.2.2 has \"a timeout\" and no value; a shorter one cuts lists short, and more packets \
             in two",
        ),
        Constant::assumed(WINDOW, f64::from(window) / 1024.0, "KiB", "the window of Linux 2.2"),
        Constant::assumed(
            "change of a page table, each page",
            REMAP / 1e3,
            "µs",
            "on the CLAN paper's hosts, 5.1: a system call of \"about .75 µs\"",
        ),
    ]
}

/// All exhibits of the paper, and what it hoped for.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    with(&Assumed::default())
}

fn with(assumed: &Assumed) -> Vec<Exhibit> {
    let standard = assumed.plain(Receiving::Standard, 0.0, SEGMENT);
    vec![
        figure_1(standard),
        figure_4(assumed, standard),
        figure_5(assumed),
        table_1(assumed),
        together(assumed),
        table_2(assumed),
        overlap(assumed),
        reading_headers(assumed),
    ]
}

/// What the assumed constants do to the values.
#[must_use]
pub fn sensitivity() -> Vec<Effect> {
    sensitivity::of(&Assumed::default(), &Assumed::ALL, with)
}
