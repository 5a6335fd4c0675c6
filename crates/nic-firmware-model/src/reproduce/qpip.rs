//! QPIP on the LANai 9: Figures 3, 4 and 7, Tables 1 to 3, and the helps of hardware
//! that the paper asks for.
//!
//! Two hosts in the simulator, frame by frame ([`crate::lanai::figures`]): the engine, with
//! all of TCP, runs on the card's processor, and what programs do is charged to the host's;
//! the systems that the paper compares with run the same engine on the host's. Tables 1 to 3
//! are inputs. In this paper a megabyte is 10^6 bytes.

use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Row, Value};
use super::sensitivity::{self, Effect, Variable, times};
use core::time::Duration;

use crate::lanai::figures::{
    self, Access, Blocks, Design as Card, Occupancy, Protocol, Stream, Traffic, receive_side,
    round_trip, transmit_side,
};
use crate::lanai::model::Site;
use crate::lanai::model::paced::SEND_SLOTS;
use crate::lanai::{Helps, Paper};
use crate::node::SocketCosts;

/// What no table states, and so was chosen.
#[derive(Clone, Copy)]
struct Assumed {
    /// Seconds for a byte that is read and written. The STP paper, 1: "several hundred MB/s",
    /// taken as 300.
    copy: f64,
    /// Seconds of a host for a bare acknowledgement, sent or received: half of what a packet
    /// with data takes, since it wakes no program.
    ack: f64,
    /// Requests that the client of the block device has under way.
    ahead: u64,
    /// Bytes of each.
    block: u32,
    card: Card,
}

impl Default for Assumed {
    fn default() -> Self {
        Self {
            copy: 2.0 / 300e6,
            ack: host::SOCKET / 4.0,
            ahead: 4,
            block: 64 << 10,
            card: Card::PAPER,
        }
    }
}

const COPY: &str = "copy, each byte (read and written)";
const AHEAD: &str = "requests of the block device under way";
const BLOCK: &str = "length of such a request";
const ACK: &str = "host with sockets, each bare acknowledgement";
const SWITCH: &str = "switch that cuts through";
const FRAMING: &str = "type and check sequence of Myrinet";
const UDP: &str = "headers of UDP, built and parsed";
const LOOKUP: &str = "search for the connection, of the 7 µs of a parse";

impl Assumed {
    const ALL: [Variable<Self>; 8] = [
        (COPY, |it, by| it.copy *= by),
        (ACK, |it, by| it.ack *= by),
        (AHEAD, |it, by| it.ahead = (it.ahead as f64 * by) as u64),
        (BLOCK, |it, by| it.block = (f64::from(it.block) * by) as u32),
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
        remarks: vec!["An input: what each frame is charged on the card's processor."],
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

fn figure_3(assumed: &Assumed) -> Exhibit {
    let card = &assumed.card;
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

fn figure_3_sockets(assumed: &Assumed) -> Exhibit {
    let row = |label, network: Network| {
        let time = round_trip(&assumed.sockets(network), Protocol::Tcp);
        Row::new(label, vec![Value::alone(measured(time))])
    };
    Exhibit {
        design: Design::Qpip,
        name: "Section 4.2.1, Figure 3, sockets",
        title: "The same with TCP in the host",
        columns: vec!["TCP, µs"],
        rows: vec![
            row("Gigabit Ethernet", Network::ETHERNET),
            row("IP over Myrinet", Network::MYRINET),
        ],
        remarks: vec![
            "The figure draws both, and no text states them. Table 1's cost of a host is a lower \
             bound, \"because they do not include instructions executed by a particular interface \
             driver\": so are these.",
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
}

/// A network that sockets are compared over.
#[derive(Clone, Copy)]
struct Network {
    /// Bits in a second.
    link: u64,
    /// Bytes that it adds to a frame; nothing where they are the card's.
    framing: Option<u32>,
    mtu: u32,
}

impl Network {
    /// Check sequence, preamble and gap, by its standard.
    const ETHERNET: Self = Self { link: 1_000_000_000, framing: Some(24), mtu: 1_500 };
    const MYRINET: Self = Self { link: Card::PAPER.link, framing: None, mtu: 9_000 };
}

impl Assumed {
    /// A host whose own processor runs TCP over this network: half of Table 1's message for
    /// each packet, and a copy.
    fn sockets(&self, network: Network) -> Card {
        let costs = SocketCosts {
            packet: Duration::from_secs_f64(host::SOCKET / 2.0),
            ack: Duration::from_secs_f64(self.ack),
            copy: Duration::from_secs_f64(self.copy * f64::from(1 << 20)),
        };
        let framing = network.framing.unwrap_or(self.card.framing);
        let (site, host) = (Site::Host(costs), Duration::ZERO);
        Card { site, host, link: network.link, framing, ..self.card }
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

/// Chunks of 16 KiB on links of this MTU.
fn stream(design: &Card, mtu: u32) -> Stream {
    let nothing = Stream { rate: f64::NAN, busy: [f64::NAN; 2], pause: Duration::ZERO };
    figures::stream(design, mtu, figures::CHUNKS).unwrap_or(nothing)
}

fn figure_4(assumed: &Assumed) -> Exhibit {
    const NATIVE: u32 = figures::CHUNK + 72;
    let (card, without) = (&assumed.card, assumed.card.with_firmware_checksum());
    let row = |label, Stream { rate, busy, .. }: Stream, value: fn(f64) -> Value| {
        // "CPU utilization in the QPIP prototype is <1%": Table 1's cost at this rate.
        let busy = busy.map(|share| Value::restated(1.0, share * 100.0).down_to(0.0));
        Row::new(label, vec![value(rate), busy[0], busy[1]])
    };
    let sockets = |label, network: Network, value: fn(f64) -> Value| {
        let Stream { rate, busy, .. } = stream(&assumed.sockets(network), network.mtu);
        // "the other inter-network implementations consume half to ¾ of a host processor".
        let sender = Value::predicted(75.0, busy[0] * 100.0).down_to(50.0).held_to(100.0);
        Row::new(label, vec![value(rate), sender, Value::alone(busy[1] * 100.0)]).off_because(
            "Where TCP runs on the host, nothing but its processor bounds the model: it is busy \
             all the time at both ends, and over Myrinet, whose packets are long and few, it is \
             faster than the paper's. In the paper a quarter of the processor and more is idle, \
             so something else bounds both, and it names nothing: the adapters' firmware and \
             drivers (GM's works on each packet, too), their interrupts, the socket's buffers. No \
             line tells how long any of that takes, so none is put in.",
        )
    };
    // "22% less than the gigabit Ethernet", of which no other number is stated.
    let ethernet = |rate| Value::predicted(35.4 / (1.0 - 0.22), rate);
    // "For the 9000 Byte MTU, QPIP outperforms the IP over Myrinet case at 70.1 MB/sec".
    let myrinet = |rate| Value::predicted(70.1, rate).down_to(0.0).held_to(111.0);
    Exhibit {
        design: Design::Qpip,
        name: "Section 4.2.1, Figure 4",
        title: "Throughput of 10 MB in chunks of 16 KiB over TCP",
        columns: vec![
            "MB/s (10^6)",
            "processor of the sender's host, %",
            "of the receiver's host, %",
        ],
        rows: vec![
            row("native MTU", stream(card, NATIVE), |rate| Value::fitted(75.6, rate)),
            row("native MTU, checksum in firmware", stream(&without, NATIVE), |rate| {
                Value::fitted(26.4, rate)
            }),
            row("MTU 9000", stream(card, 9_000), |rate| Value::predicted(70.1, rate)),
            row("MTU 1500", stream(card, 1_500), |rate| Value::predicted(35.4, rate)),
            sockets("Gigabit Ethernet, MTU 1500", Network::ETHERNET, ethernet),
            sockets("IP over Myrinet, MTU 9000", Network::MYRINET, myrinet),
        ],
        remarks: vec![
            "Over the whole run, from the first chunk that is asked for to the last byte that is \
             in its place.",
            "The paper has \"<1 %\" of a processor for QPIP, and \"half to ¾ of a host processor\" \
             for the others; at which end it does not say, so the sender's is compared.",
            "Of Gigabit Ethernet the paper says that QPIP at MTU 1500 is 22 % below it, and of IP \
             over Myrinet that QPIP at MTU 9000 \"outperforms\" it.",
        ],
    }
}

impl Assumed {
    /// A client of a network block device, with reads and with writes.
    fn blocks(&self, design: &Card, mtu: u32, filesystem: f64) -> Blocks {
        let &Self { ahead, block, .. } = self;
        let filesystem = Duration::from_secs_f64(filesystem * f64::from(block));
        let nothing = Blocks { rate: f64::NAN, busy: f64::NAN };
        let [reads, writes] = [Access::Read, Access::Write].map(|access| {
            let traffic = Traffic { access, block, ahead, count: 40, filesystem };
            figures::blocks(design, mtu, &traffic).unwrap_or(nothing)
        });
        let mean = |of: fn(&Blocks) -> f64| f64::midpoint(of(&reads), of(&writes));
        Blocks { rate: mean(|it| it.rate), busy: mean(|it| it.busy) }
    }
}

/// The client's processor does the filesystem's work for all three, and TCP's for two.
fn figure_7(assumed: &Assumed) -> Exhibit {
    let card = &assumed.card;
    // What the filesystem spends on a byte, where QPIP keeps its card busy.
    let free = assumed.blocks(card, 9_000, 0.0).rate * 1e6;
    let filesystem = host::FILESYSTEM * host::PROCESSORS / free;
    let ours = assumed.blocks(card, 9_000, filesystem);
    let row = |label, network: Network, rate: fn(f64) -> Value, effect: fn(f64) -> Value| {
        let theirs = assumed.blocks(&assumed.sockets(network), network.mtu, filesystem);
        Row::new(
            label,
            vec![
                Value::alone(ours.rate),
                Value::alone(theirs.rate),
                rate(ours.rate / theirs.rate),
                effect(ours.effect() / theirs.effect()),
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
            row(
                "Gigabit Ethernet, MTU 1500",
                Network::ETHERNET,
                |rate| Value::predicted(2.37, rate),
                |effect| Value::predicted(2.33, effect),
            ),
            row(
                "IP over Myrinet, MTU 9000",
                Network::MYRINET,
                |rate| Value::predicted(1.40, rate),
                Value::alone,
            ),
        ],
        remarks: vec![
            "The paper states the range over reads, writes and both networks: 40 % to 137 % more \
             throughput \"at up to 133% better CPU effectiveness\". The highest is taken to be that \
             against Gigabit Ethernet, the lowest that against IP over Myrinet.",
            "Client and server frame by frame, with MTU 9000 for QPIP and four requests of 64 KiB \
             under way: the paper says neither number. What the filesystem spends on a block is \
             the paper's \"at least 26%\", of four processors, at the rate that QPIP has without \
             it; the client's one processor does it for all three, and TCP's work for two.",
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
        Constant::given(
            "Gigabit Ethernet",
            Network::ETHERNET.link as f64 / 1e9,
            "Gbit/s",
            "4.2: \"Intel Pro1000 Gigabit Server Adapter\"",
        ),
        Constant::given(
            "what Ethernet adds to each frame, behind its header",
            24.0,
            "bytes",
            "check sequence, preamble and gap, by its standard",
        ),
        Constant::given("bus", 264.0, "MB/s", "4.2: \"64-bit/33MHz PCI bus\""),
        Constant::given(
            "host, each message",
            host::QUEUE_PAIR * 1e6,
            "µs",
            "Table 1: QPIP, 2.5 µs; half of it at each end",
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
    let Assumed { copy, ack, ahead, block, card } = Assumed::default();
    let in_micros = |cycles: u32| f64::from(cycles) / card.clock as f64 * 1e6;
    vec![
        Constant::assumed(
            COPY,
            copy * 1e9,
            "ns",
            "the STP paper, 1: \"several hundred MB/s\", taken as 300",
        ),
        Constant::assumed(
            ACK,
            ack * 1e6,
            "µs",
            "half of a packet's share of Table 1: it wakes no program",
        ),
        Constant::assumed(AHEAD, ahead as f64, "", "4.2.3 has no number"),
        Constant::assumed(BLOCK, f64::from(block) / 1024.0, "KiB", "the same"),
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
        Constant::assumed(
            "frames to be sent that a card holds",
            SEND_SLOTS as f64,
            "",
            "of 2 MiB of SRAM; no rate depends on it",
        ),
        Constant::assumed(
            "slots of a card for frames that came",
            f64::from(figures::SLOTS) / 1024.0,
            "KiB",
            "the same; none was lost",
        ),
    ]
}

/// All exhibits of the paper that are modelled.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    with(&Assumed::default())
}

fn with(assumed: &Assumed) -> Vec<Exhibit> {
    vec![
        table_1(),
        figure_3(assumed),
        figure_3_sockets(assumed),
        figure_4(assumed),
        figure_7(assumed),
        table_2(),
        table_3(),
        helps(&assumed.card),
    ]
}

/// What the assumed constants do to the values.
#[must_use]
pub fn sensitivity() -> Vec<Effect> {
    sensitivity::of(&Assumed::default(), &Assumed::ALL, with)
}
