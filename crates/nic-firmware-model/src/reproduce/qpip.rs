//! QPIP on the LANai 9: Figures 3, 4 and 7, Tables 1 to 3, and the helps of hardware
//! that the paper asks for.
//!
//! Two hosts with such cards in the simulator, the firmware's cycles counted
//! ([`crate::lanai::figures`]). In this paper a megabyte is 10^6 bytes.

use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Row, Value};
use super::sensitivity::{self, Effect, Variable, times};
use crate::lanai::figures::{
    self, Design as Card, Occupancy, Protocol, receive_side, round_trip, transmit_side,
};
use crate::lanai::figures::{Access, Traffic, block_throughput};
use crate::lanai::{Helps, Paper};

/// What no table states, and so was chosen.
#[derive(Clone, Copy)]
struct Assumed {
    /// Seconds for a byte that is read and written. The STP paper, 1: "several hundred MB/s",
    /// taken as 300.
    copy: f64,
    card: Card,
}

impl Default for Assumed {
    fn default() -> Self {
        Self { copy: 2.0 / 300e6, card: Card::PAPER }
    }
}

const COPY: &str = "copy, each byte (read and written)";
const SWITCH: &str = "switch that cuts through";
const FRAMING: &str = "type and check sequence of Myrinet";
const UDP: &str = "headers of UDP, built and parsed";
const LOOKUP: &str = "search for the connection, of the 7 µs of a parse";

impl Assumed {
    const ALL: [Variable<Self>; 5] = [
        (COPY, |it, by| it.copy *= by),
        (SWITCH, |it, by| it.card.way = times(it.card.way, by)),
        (FRAMING, |it, by| it.card.framing = (f64::from(it.card.framing) * by) as u32),
        (UDP, |it, by| {
            for cycles in [&mut it.card.stages.build_udp, &mut it.card.stages.parse_udp] {
                *cycles = (f64::from(*cycles) * by) as u32;
            }
        }),
        (LOOKUP, |it, by| {
            // A parse stays as long as it is.
            let stages = &mut it.card.stages;
            stages.lookup = (f64::from(stages.lookup) * by) as u32;
        }),
    ];
}

/// What did not come back has no value.
fn measured(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

fn stage_name(stage: Paper) -> &'static str {
    match stage {
        Paper::Doorbell => "Doorbell Process",
        Paper::Schedule => "Schedule",
        Paper::GetRequest => "Get WR",
        Paper::GetData => "Get Data",
        Paper::BuildTransport => "Build TCP Hdr",
        Paper::BuildIp => "Build IP Hdr",
        Paper::Send => "Send",
        Paper::UpdateSent | Paper::UpdateReceived => "Update",
        Paper::MediaReceive => "Media Rcv",
        Paper::ParseIp => "IP Parse",
        Paper::ParseTransport => "TCP Parse",
        Paper::PutData => "Put Data",
        Paper::Checksum => "Checksum",
    }
}

/// A table of stages; a dash of the paper is a zero here.
fn stages(
    name: &'static str,
    title: &'static str,
    columns: [&'static str; 2],
    ours: &[Occupancy],
    papers: &[(f64, f64)],
) -> Exhibit {
    let row = |(ours, (data, ack)): (&Occupancy, &(f64, f64))| {
        let ack = if *ack == 0.0 { Value::alone(ours.ack) } else { Value::given(*ack, ours.ack) };
        Row::new(stage_name(ours.stage), vec![Value::given(*data, ours.data), ack])
    };
    Exhibit {
        design: Design::Qpip,
        name,
        title,
        columns: columns.to_vec(),
        rows: ours.iter().zip(papers).map(row).collect(),
        remarks: vec!["Given to the firmware as cycles, and counted as it runs."],
    }
}

fn table_2() -> Exhibit {
    let papers = [
        (1.0, 1.0),
        (2.0, 2.0),
        (5.5, 0.0),
        (4.5, 0.0),
        (5.0, 5.0),
        (1.0, 1.0),
        (1.0, 1.0),
        (1.5, 1.5),
    ];
    stages(
        "Table 2",
        "Transmit side network interface processing costs",
        ["data send, µs", "ACK send, µs"],
        &transmit_side(&Card::PAPER),
        &papers,
    )
}

fn table_3() -> Exhibit {
    let papers =
        [(1.0, 1.0), (1.0, 1.0), (1.5, 1.5), (7.0, 14.0), (5.5, 0.0), (4.5, 0.0), (1.5, 9.0)];
    stages(
        "Table 3",
        "Receive side network interface processing costs",
        ["data receive, µs", "ACK receive, µs"],
        &receive_side(&Card::PAPER),
        &papers,
    )
}

fn figure_3(card: &Card) -> Exhibit {
    let without = card.with_firmware_checksum();
    let row = |label, protocol, paper| {
        let in_firmware = Value::predicted(paper, measured(round_trip(&without, protocol)));
        let emulated = Value::alone(measured(round_trip(card, protocol)));
        Row::new(label, vec![in_firmware, emulated])
    };
    Exhibit {
        design: Design::Qpip,
        name: "Section 4.2.1, Figure 3",
        title: "A message of one byte there and back",
        columns: vec!["checksum in firmware, µs", "in hardware, µs"],
        rows: vec![row("UDP", Protocol::Udp, 73.0), row("TCP", Protocol::Tcp, 113.0)],
        remarks: vec![
            "What the bars of the figure show with the checksum in hardware no text states.",
        ],
    }
}

/// What a host spends in this paper; all that the compared systems are made of.
mod host {
    /// Table 1: a message through TCP/IP in the host, both ways.
    pub(super) const SOCKET: f64 = 29.9e-6;
    /// Table 1: a message of a queue pair, both ways.
    pub(super) const QUEUE_PAIR: f64 = 2.5e-6;
    /// 4.2: "4x550MHz Pentium-III processors".
    pub(super) const CLOCK: f64 = 550e6;
    /// The same.
    pub(super) const PROCESSORS: f64 = 4.0;
    /// 4.2.3: of all processors, for the filesystem.
    pub(super) const FILESYSTEM: f64 = 0.26;

    /// Seconds that one end of a connection spends on a byte, in packets that hold so
    /// many: half of a message for each packet, and a copy.
    pub(super) fn socket(payload: f64, copy: f64) -> f64 {
        SOCKET / 2.0 / payload + copy
    }
}

fn table_1() -> Exhibit {
    let row = |label, cycles, micros: f64| {
        let in_cycles = micros / 1e6 * host::CLOCK;
        Row::new(label, vec![Value::given(micros, micros), Value::given(cycles, in_cycles)])
    };
    Exhibit {
        design: Design::Qpip,
        name: "Table 1",
        title: "Host overhead for transmit and receive paths",
        columns: vec!["µs", "cycles"],
        rows: vec![
            row("Host-based IP", 16_445.0, host::SOCKET * 1e6),
            row("QPIP", 1_386.0, host::QUEUE_PAIR * 1e6),
        ],
        remarks: vec!["Cycles are those of a processor of 550 MHz."],
    }
}

/// Chunks of 16 KiB on links of this MTU: millions of bytes in a second.
fn stream(card: &Card, mtu: u32) -> f64 {
    measured(figures::throughput(card, mtu, figures::CHUNKS))
}

/// What the simulated runs of this paper came to.
struct Streams {
    native: f64,
    firmware_checksum: f64,
    mtu_9000: f64,
    mtu_1500: f64,
}

/// Blocks of a network block device with MTU 9000, four requests of 64 KiB at a time:
/// millions of bytes in a second.
fn blocks(card: &Card, access: Access) -> f64 {
    let traffic = Traffic { access, block: 64 << 10, ahead: 4, count: 100 };
    measured(block_throughput(card, 9_000, &traffic))
}

impl Streams {
    fn run(card: &Card) -> Self {
        const NATIVE: u32 = figures::CHUNK + 72;
        let (with, without) = (*card, card.with_firmware_checksum());
        Self {
            native: stream(&with, NATIVE),
            firmware_checksum: stream(&without, NATIVE),
            mtu_9000: stream(&with, 9_000),
            mtu_1500: stream(&with, 1_500),
        }
    }
}

fn figure_4(streams: &Streams, copy: f64) -> Exhibit {
    let queue_pair = |rate: Value| {
        let chunks = rate.model * 1e6 / f64::from(figures::CHUNK);
        vec![rate, Value::alone(chunks * host::QUEUE_PAIR / 2.0 * 100.0)]
    };
    // "22% less than the gigabit Ethernet", of which no other number is stated.
    let ethernet = 35.4 / (1.0 - 0.22);
    let busy = ethernet * 1e6 * host::socket(1_448.0, copy) * 100.0;
    Exhibit {
        design: Design::Qpip,
        name: "Section 4.2.1, Figure 4",
        title: "Throughput of 10 MB in chunks of 16 KiB over TCP",
        columns: vec!["MB/s (10^6)", "processor of one host, %"],
        rows: vec![
            Row::new("native MTU", queue_pair(Value::fitted(75.6, streams.native))),
            Row::new(
                "native MTU, checksum in firmware",
                queue_pair(Value::fitted(26.4, streams.firmware_checksum)),
            ),
            Row::new("MTU 9000", queue_pair(Value::predicted(70.1, streams.mtu_9000))),
            Row::new("MTU 1500", queue_pair(Value::predicted(35.4, streams.mtu_1500))),
            Row::new(
                "Gigabit Ethernet, MTU 1500",
                vec![Value::given(ethernet, ethernet), Value::alone(busy)],
            ),
        ],
        remarks: vec![
            "Over the whole run, from the first chunk that is posted to the last byte that is in \
             its place.",
            "The paper has less than 1 % of a processor for QPIP, and \"half to ¾\" for the others.",
            "Of Gigabit Ethernet the paper says that QPIP at MTU 1500 is 22 % below it. The model \
             takes that rate, and says what it costs the host.",
        ],
    }
}

/// The client's processor does the filesystem's work for all three, and TCP's for two.
fn figure_7(Assumed { copy, card }: &Assumed) -> Exhibit {
    let [reads, writes] = [blocks(card, Access::Read), blocks(card, Access::Write)];
    let queue_pair = f64::midpoint(reads, writes) * 1e6;
    // What the filesystem spends on a byte, where QPIP keeps its card busy.
    let filesystem = host::FILESYSTEM * host::PROCESSORS / queue_pair;
    let socket = |payload| filesystem + host::socket(payload, *copy);
    let message = host::QUEUE_PAIR / f64::from(64 << 10);
    let row = |label, payload: f64, rate: Option<f64>, effect: Option<f64>| {
        let value = |paper: Option<f64>, model| match paper {
            Some(paper) => Value::predicted(paper, model),
            None => Value::alone(model),
        };
        let sockets_rate = 1.0 / socket(payload);
        Row::new(
            label,
            vec![
                Value::alone(queue_pair / 1e6),
                Value::alone(sockets_rate / 1e6),
                value(rate, queue_pair / sockets_rate),
                value(effect, socket(payload) / (filesystem + message)),
            ],
        )
    };
    Exhibit {
        design: Design::Qpip,
        name: "Section 4.2.3, Figure 7",
        title: "The client of a network block device",
        columns: vec![
            "QPIP, MB/s (10^6), mean of reads and writes",
            "over sockets, MB/s",
            "QPIP's throughput, times that",
            "its MB per CPU-second, times that",
        ],
        rows: vec![
            row("Gigabit Ethernet, MTU 1500", 1_448.0, Some(2.37), Some(2.33)),
            row("IP over Myrinet, MTU 9000", 8_948.0, Some(1.40), None),
        ],
        remarks: vec![
            "The paper states the range over reads, writes and both networks: 40 % to 137 % more \
             throughput \"at up to 133% better CPU effectiveness\". The highest is taken to be that \
             against Gigabit Ethernet, the lowest that against IP over Myrinet.",
            "QPIP's throughput is that of two simulated hosts with MTU 9000 and four requests of \
             64 KiB under way: the paper says neither number. What the filesystem spends is the \
             paper's \"at least 26%\", of four processors: one of them is busy. With sockets the \
             same processor runs TCP, too, and that is what makes it slower.",
        ],
    }
}

/// "Key areas for hardware support", each by itself and all together.
fn helps(card: &Card) -> Exhibit {
    let none = Helps::default();
    let all = Helps { doorbells: true, checksum: true, lookup: true, arithmetic: true };
    let rows = [
        ("none", none),
        ("doorbells", Helps { doorbells: true, ..none }),
        ("IP checksums", Helps { checksum: true, ..none }),
        ("connection de-multiplexing", Helps { lookup: true, ..none }),
        ("advanced mathematical functions", Helps { arithmetic: true, ..none }),
        ("all four", all),
    ];
    let row = |(label, helps): (&str, Helps)| {
        let card = Card { helps, ..*card };
        Row::new(label, vec![Value::alone(measured(round_trip(&card, Protocol::Tcp)))])
    };
    Exhibit {
        design: Design::Qpip,
        name: "Section 5.2",
        title: "What more hardware would give",
        columns: vec!["TCP round trip, µs"],
        rows: rows.into_iter().map(row).collect(),
        remarks: vec!["The paper names the four and gives no numbers."],
    }
}

/// What the model is made of, beside Tables 1 to 3, which it was given.
#[must_use]
pub fn constants() -> Vec<Constant> {
    let card = Card::PAPER;
    let mut all = vec![
        Constant::given(
            "processor",
            card.clock as f64 / 1e6,
            "MHz",
            "4.1: \"a 133 MHz\" processor",
        ),
        Constant::given("links", card.link as f64 / 1e9, "Gbit/s", "4.1: \"operate at 2.0 Gbs\""),
        Constant::given("bus", 264.0, "MB/s", "4.2: \"64-bit/33MHz PCI bus\""),
        Constant::given(
            "host, each message",
            host::QUEUE_PAIR * 1e6,
            "µs",
            "Table 1: QPIP, 2.5 µs",
        ),
        Constant::given(
            "host with sockets, each message or packet, both ends",
            host::SOCKET * 1e6,
            "µs",
            "Table 1: host-based IP",
        ),
        Constant::given(
            "processor of a host, of which it has four",
            host::CLOCK / 1e6,
            "MHz",
            "4.2: \"4x550MHz Pentium-III processors\"",
        ),
        Constant::given(
            "filesystem, of four processors",
            host::FILESYSTEM * 100.0,
            "%",
            "4.2.3: \"at least 26% for filesystem processing\"",
        ),
        Constant::fitted(
            "payload that the card's processor waits for",
            f64::from(card.stages.bytes_in_1024_cycles) / 1024.0 * card.clock as f64 / 1e6,
            "MB/s",
            "4.2.1: \"75.6 MB/sec\"",
        ),
        Constant::fitted(
            "checksum in firmware, each byte",
            f64::from(card.stages.sum_of_1024) / 1024.0,
            "cycles",
            "4.2.1: \"26.4 MB/sec\"",
        ),
    ];
    all.extend(assumed());
    all
}

fn assumed() -> Vec<Constant> {
    let Assumed { copy, card } = Assumed::default();
    let in_micros = |cycles: u32| f64::from(cycles) / card.clock as f64 * 1e6;
    vec![
        Constant::assumed(
            COPY,
            copy * 1e9,
            "ns",
            "the STP paper, 1: \"several hundred MB/s\", taken as 300",
        ),
        Constant::assumed(SWITCH, card.way.as_secs_f64() * 1e6, "µs", "4.1 has one, and no time"),
        Constant::assumed(FRAMING, f64::from(card.framing), "bytes", "not in the paper"),
        Constant::assumed(
            UDP,
            in_micros(card.stages.build_udp + card.stages.parse_udp),
            "µs",
            "taken to be what IP's take: Tables 2 and 3 are TCP's",
        ),
        Constant::assumed(
            LOOKUP,
            in_micros(card.stages.lookup),
            "µs",
            "taken to be two; only the adapter with help has none",
        ),
        Constant::assumed(
            "window of a connection",
            f64::from(figures::WINDOW) / 1024.0,
            "KiB",
            "the paper's has none; more than a round trip holds",
        ),
    ]
}

/// All exhibits of the paper that are modelled.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    with(&Assumed::default())
}

fn with(assumed: &Assumed) -> Vec<Exhibit> {
    let Assumed { copy, card } = assumed;
    let streams = Streams::run(card);
    vec![
        table_1(),
        figure_3(card),
        figure_4(&streams, *copy),
        figure_7(assumed),
        table_2(),
        table_3(),
        helps(card),
    ]
}

/// What the assumed constants do to the values.
#[must_use]
pub fn sensitivity() -> Vec<Effect> {
    sensitivity::of(&Assumed::default(), &Assumed::ALL, with)
}
