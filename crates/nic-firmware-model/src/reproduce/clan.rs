//! The CLAN adapter: Figures 7 to 10 and 12, Table 1, and the numbers of section 5.
//!
//! Two 530 MHz Alphas under Linux 2.2, an adapter with one DMA engine in each, frame by frame
//! ([`crate::clan::figures`]): the steps that the paper times by themselves, a system call, a
//! process that is woken, an interrupt, the way through an adapter, are what hosts and
//! adapters are charged.

use core::time::Duration;

use crate::clan::figures::{
    self, ACKNOWLEDGED, Design as Machine, IpCosts, Requests, SOCKET_BUFFER,
};
use crate::clan::{Cycles, DMA_BURST, LOCK, PIO_BURST, STALL, cycles};
use crate::machine::Lock;
use crate::node::SocketCosts;

use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Row, Value};
use super::sensitivity::{self, Effect, Variable, times};

const PEAK: f64 = 910.0;
/// 32 bits at 33 MHz, in megabits per second.
const BUS: f64 = 1056.0;
const BUS_CLOCK: u64 = 33_000_000;
/// So long that its beginning does not count.
const LONG: u32 = 128 << 10;
/// Headers of IPv4, and of TCP with time stamps.
const HEADERS: u32 = 52;

/// What the paper does not say, and so was chosen.
#[derive(Clone, Copy)]
struct Assumed {
    /// Sending and receiving a small message through a host's TCP/IP.
    stack: Duration,
    /// Sending or receiving an acknowledgement alone.
    ack: Duration,
    /// Copying a mebibyte to or from a program.
    copy: Duration,
    /// The hosts and their adapters.
    design: Machine,
    /// How their bridges lock where programs write much.
    lock: Lock,
}

impl Default for Assumed {
    fn default() -> Self {
        let stack = Duration::from_nanos(29_900);
        let copy = Duration::from_secs_f64(f64::from(1 << 20) * 2.0 / 300e6);
        Self { stack, ack: stack / 4, copy, design: Machine::PAPER, lock: LOCK }
    }
}

const STACK: &str = "TCP/IP in a host";
const ACK: &str = "TCP/IP in a host, each bare acknowledgement";
const COPY: &str = "copy, each byte (read and written)";
const TAKEN: &str = "the processor's share of an interrupt";
const LOGIC: &str = "the adapter's logic: a command, and comparing with tripwires";
const CABLE: &str = "length of the link";
const FIFO: &str = "bytes in the FIFO of the bridge";
const BACK_OFF: &str = "cycles that the adapter backs off when the bridge has locked";
const RECOVERS: &str = "cycles after which the bridge has recovered";

impl Assumed {
    const ALL: [Variable<Self>; 9] = [
        (STACK, |it, by| it.stack = times(it.stack, by)),
        (ACK, |it, by| it.ack = times(it.ack, by)),
        (COPY, |it, by| it.copy = times(it.copy, by)),
        (TAKEN, |it, by| it.design.interrupt_busy = times(it.design.interrupt_busy, by)),
        (LOGIC, |it, by| {
            for cycles in [&mut it.design.cycles.command, &mut it.design.cycles.update] {
                *cycles = (f64::from(*cycles) * by) as u32;
            }
        }),
        (CABLE, |it, by| it.design.delay = times(it.design.delay, by)),
        (FIFO, |it, by| it.lock.fifo = (f64::from(it.lock.fifo) * by) as u32),
        (BACK_OFF, |it, by| it.lock.back_off = times(it.lock.back_off, by)),
        (RECOVERS, |it, by| it.lock.recovers = times(it.lock.recovers, by)),
    ];

    fn ip(&self) -> IpCosts {
        let &Self { stack, ack, copy, .. } = self;
        let host = SocketCosts { packet: stack / 2, ack, copy };
        IpCosts { host, headers: HEADERS }
    }
}

/// Microseconds of something that was run; what did not come back has no value.
fn micros(time: Option<Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Megabits per second, the same.
fn megabits(rate: Option<f64>) -> f64 {
    rate.map_or(f64::NAN, |rate| rate / 1e6)
}

/// Of one message, the same.
fn raw(design: &Machine, len: u32, is_dma: bool) -> f64 {
    megabits(figures::raw(design, len, is_dma).map(|it| it.rate))
}

fn section_5_2(Assumed { design, .. }: &Assumed) -> Exhibit {
    // The transaction is among its cycles.
    let mut one_cycle = *design;
    one_cycle.costs.bus.transaction = cycles(1);
    let one_cycle = one_cycle.with_stall(1);
    Exhibit {
        design: Design::Clan,
        name: "Section 5.2",
        title: "Shared memory, spinning",
        columns: vec!["value"],
        rows: vec![
            Row::new(
                "a word, one way, µs",
                vec![Value::fitted(1.9, micros(figures::word(design, false)))],
            ),
            Row::new(
                "a word there and back, µs",
                vec![Value::restated(3.7, micros(figures::word(design, true)))],
            ),
            Row::new(
                "peak with DMA, bursts of 256 words, Mbit/s",
                vec![Value::fitted(PEAK, raw(design, LONG, true))],
            ),
            Row::new(
                "the same if a burst stalled for one cycle, as the paper says it does, Mbit/s",
                vec![Value::alone(raw(&one_cycle, LONG, true))],
            ),
            Row::new(
                "programmed I/O, bursts of 16 words, a bridge that never locks, Mbit/s",
                vec![Value::alone(raw(design, LONG, false))],
            ),
            Row::new(
                "programmed I/O, its bursts joined by the receiver, Mbit/s",
                vec![Value::alone(raw(&design.joining(), LONG, false))],
            ),
        ],
        remarks: vec![
            "\"Peak bandwidth is 910 Mbit/s, and is limited by a stall for one cycle on the \
             receiving V3 PCI bridge at the start of each burst\": with bursts of 256 words and \
             one cycle it would be that of the bus, but for what the adapter does between bursts. The \
             model needs 41 cycles for the paper's 910, and does not know what the other 40 are.",
            "The paper expects programmed I/O to be \"very similar to that of DMA\" once bursts \
             are joined, and states no other value of Figure 7.",
        ],
    }
}

fn figure_7(Assumed { design, lock, .. }: &Assumed) -> Exhibit {
    let unnoticed = Lock { back_off: Duration::ZERO, ..*lock };
    let stores = [design.with_lock(*lock), design.with_lock(unnoticed), design.joining()];
    let rows = [256, 512, 1024, 2048, 4096, 16_384, 65_536].map(|bytes| {
        let stored = stores.map(|design| Value::alone(raw(&design, bytes, false)));
        let values = [vec![Value::alone(raw(design, bytes, true))], stored.to_vec()].concat();
        Row::new(format!("{bytes} bytes"), values)
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 7",
        title: "Raw bandwidth against size, from the first word to the last, Mbit/s",
        columns: vec![
            "DMA",
            "programmed I/O",
            "without the workaround",
            "bursts joined by the receiver",
        ],
        rows: rows.to_vec(),
        remarks: vec![
            "Frame by frame, from one host's memory to the other's, where a program looks all the \
             time. The receiver's bridge stalls before each burst, and locks when programmed writes \
             find its FIFO full; then words leave singly until the adapter, which backs off, has \
             let it recover. The longer a message, the more of it meets a full FIFO: \"This effect \
             causes the negative gradient\".",
            "A FIFO that is full takes more than 80 words at once, which no other figure has: there the \
             bridge never locks.",
            "When exactly the bridge locks, the size of its FIFO (320 bytes) and the time that the \
             adapter backs off (384 cycles, of which 128 until it has recovered) are assumed: the \
             paper says that the slope is negative, and not how steep.",
            "What the bridge and the write buffers of the sender do the paper does not say; the \
             model's sender stores a word in each cycle of its bus, for as long as its adapter takes \
             them.",
            "Small messages are shown without what blocks at their ends, which the paper could \
             not measure below 256 bytes: one burst has no stall within it.",
        ],
    }
}

/// Of messages that long, half of the bandwidth of long ones is left: to eight bytes.
fn half(design: &Machine, chains: bool) -> f64 {
    let rate = |words: u32| figures::stream(design, words * 8, chains).unwrap_or(f64::NAN);
    let most = rate(1 << 13);
    let (mut least, mut enough) = (1, 1 << 10);
    while enough - least > 1 {
        let middle = u32::midpoint(least, enough);
        if rate(middle) * 2.0 < most { least = middle } else { enough = middle }
    }
    f64::from(enough * 8)
}

fn the_next_adapter(assumed: &Assumed, halves: [f64; 2]) -> Exhibit {
    let Assumed { design, lock, .. } = assumed;
    let [joined, peak] =
        [design.joining(), design.with_lock(*lock)].map(|it| raw(&it, LONG, false));
    let [now, chained] = halves;
    let server = |design: &Machine, sleeps| micros(figures::round_trip(design, 1, sleeps));
    let [idle, busy] = [true, false].map(|sleeps| server(design, sleeps));
    let no_call = Machine { call: Duration::ZERO, ..*design };
    let zero = Duration::ZERO;
    let unheard = Machine { interrupt: zero, interrupt_busy: zero, ..*design };
    let row = |label: &str, values: [f64; 4]| Row::new(label, values.map(Value::alone).to_vec());
    Exhibit {
        design: Design::Clan,
        name: "The next adapter",
        title: "What the paper promises of it, each switched on singly",
        columns: vec![
            "round trip, server asleep, µs",
            "round trip, server awake, µs",
            "half of the bandwidth at this many bytes",
            "programmed I/O, Mbit/s",
        ],
        rows: vec![
            row("the adapter of the paper", [idle, busy, now, peak]),
            row("tripwires at user level", [server(&no_call, true), busy, now, peak]),
            row("the adapter chains DMA requests", [idle, busy, chained, peak]),
            row(
                "notifications and out-of-band messages by hardware",
                [idle, server(&unheard, false), now, peak],
            ),
            row("bursts joined on the receiver", [idle, busy, now, joined]),
        ],
        remarks: vec![
            "A server that sleeps is interrupted in any case (\"Only when the application blocks \
             ... need the driver request\" it): what it saves is the call to set the tripwire \
             again. One that is awake finds its notification in memory.",
        ],
    }
}

/// This many endpoints at once are more than the server can serve.
const MANY: usize = 50;

fn section_5_3(Assumed { design, .. }: &Assumed) -> Exhibit {
    let server = |sleeps| micros(figures::round_trip(design, 1, sleeps));
    let rate = requests(design, MANY).rate;
    Exhibit {
        design: Design::Clan,
        name: "Section 5.3.1",
        title: "An event-based server",
        columns: vec!["value"],
        rows: vec![
            Row::new(
                "round trip, the server sleeps between requests, µs",
                vec![Value::predicted(16.8, server(true))],
            ),
            Row::new(
                "round trip, the server is kept awake, µs",
                vec![Value::fitted(7.9, server(false))],
            ),
            Row::new(
                "requests per second that the curve tends to, thousands",
                vec![Value::predicted(340.0, rate / 1e3)],
            ),
            Row::new("overhead of a message, µs", vec![Value::restated(2.9, 1e6 / rate)]),
        ],
        remarks: vec![
            "Frame by frame: a client stores a request into the server's memory, a tripwire fires, \
             the adapter interrupts, the server's process handles the event and stores the answer. \
             It asks for 15 µs before it sleeps. What it spends on a message is fitted to the \
             round trip of a server that is awake; the other values follow.",
            "An interrupt takes the processor from the server; a tripwire that fires while the \
             handler runs is heard of by the same. How many meet in one hangs on tens of \
             nanoseconds, in a run in which nothing varies by chance: see what the assumed \
             constants do to Figure 9.",
        ],
    }
}

fn requests(design: &Machine, endpoints: usize) -> Requests {
    let nothing = Requests { rate: f64::NAN, interrupts: f64::NAN, placed: f64::NAN };
    figures::requests(design, endpoints).unwrap_or(nothing)
}

fn figure_8(Assumed { design, .. }: &Assumed) -> Exhibit {
    let rows = [1, 10, 100, 1000].map(|endpoints| {
        let server = |sleeps| micros(figures::round_trip(design, endpoints, sleeps));
        let values = vec![Value::alone(server(true)), Value::alone(server(false))];
        Row::new(format!("{endpoints} endpoints"), values)
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 8",
        title: "Round-trip time against the number of endpoints",
        columns: vec!["server idle, µs", "server busy, µs"],
        rows: rows.to_vec(),
        remarks: vec![
            "\"The client chooses a connection at random for each request\", and each has an \
             aperture and a tripwire in the adapter's tables. \"The response time is independent \
             of the number of connections\": the tables are found in one step, and an event costs \
             the same for each.",
        ],
    }
}

fn figure_9(Assumed { design, .. }: &Assumed) -> Exhibit {
    let rows = [1, 2, 3, 5, 10, 20, MANY].map(|endpoints| {
        let Requests { rate, interrupts, .. } = requests(design, endpoints);
        let values = vec![Value::alone(rate / 1e3), Value::alone(interrupts)];
        Row::new(format!("{endpoints} endpoints"), values)
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 9",
        title: "Requests per second against the number of endpoints that ask at once",
        columns: vec!["thousands", "interrupts for a request"],
        rows: rows.to_vec(),
        remarks: vec!["Beyond its capacity the server does as much as at it, and no less."],
    }
}

fn figure_10(Assumed { design, .. }: &Assumed, halves: [f64; 2]) -> Exhibit {
    const SIZES: [u32; 5] = [256, 1024, 4096, 16_384, 65_536];
    let mut rows = vec![Row::new(
        "(b) half of the bandwidth, at messages of this many bytes",
        vec![Value::restated(750.0, halves[0]), Value::alone(halves[1])],
    )];
    rows.extend(SIZES.map(|bytes| {
        let rates = [false, true].map(|chains| figures::stream(design, bytes, chains));
        let values = rates.map(|rate| Value::alone(megabits(rate))).to_vec();
        Row::new(format!("(b) streaming, {bytes} bytes, Mbit/s"), values)
    }));
    rows.extend(SIZES.map(|bytes| {
        // Nothing is chained behind a message that is waited for.
        let rate = Value::alone(megabits(figures::acknowledged(design, bytes)));
        Row::new(format!("(a) one at a time, {bytes} bytes, Mbit/s"), vec![rate, rate])
    }));
    Exhibit {
        design: Design::Clan,
        name: "Figure 10",
        title: "Bandwidth of messages, one way",
        columns: vec!["the adapter of the paper", "the next one, with chains"],
        rows,
        remarks: vec![
            "Frame by frame: the next transfer is set up when the interrupt of the one before is \
             over. The next adapter chains transfers by itself: \"the interrupt overhead will be \
             eliminated\", 3 of the 6 µs.",
            "(a) Each message ends in a tripwire of the server of section 5.3, which stores an \
             acknowledgement. Between short messages it stays awake; long ones find it asleep.",
        ],
    }
}

fn table_1(assumed: &Assumed) -> Exhibit {
    let Assumed { design, .. } = assumed;
    let costs = assumed.ip();
    let values = vec![
        Value::predicted(100.0, micros(figures::ip_round_trip(design, costs, 1))),
        Value::predicted(225.0, megabits(figures::ip_stream(design, costs, 1024))),
    ];
    Exhibit {
        design: Design::Clan,
        name: "Table 1",
        title: "TCP/IP over CLAN",
        columns: vec!["round trip, µs", "at 1 KByte, Mbit/s"],
        rows: vec![Row::new("CLAN IP", values)],
        remarks: vec![
            "Frame by frame, as section 6.1 has it: a packet is moved into a buffer of the other \
             host, a word behind it fires a tripwire, TCP/IP takes the packet out and gives the \
             buffer's cookie back; \"only a single packet in flight at any one time\". The host's \
             processor does TCP/IP, interrupts, set-up, copies and acknowledgements.",
            "What TCP/IP costs a host this paper does not say. The value is that of the QPIP \
             paper's Table 1, 29.9 µs on a 550 MHz Pentium III for a message sent and received.",
            "The two Ethernet adapters of the table are not modelled.",
        ],
    }
}

fn figure_12(assumed: &Assumed) -> Exhibit {
    let rows = [64, 256, 1024, 4096, 16_384].map(|bytes| {
        let rate = figures::ip_stream(&assumed.design, assumed.ip(), bytes);
        Row::new(format!("{bytes} bytes"), vec![Value::alone(megabits(rate))])
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 12",
        title: "TCP/IP over CLAN against the size of messages",
        columns: vec!["Mbit/s"],
        rows: rows.to_vec(),
        remarks: vec![
            "\"For the same test\" as Table 1: so is the run, a message in a packet. The paper's \
             curve ends at 250 Mbit/s, by a bug of the adapter that locked up; the model's \
             adapter has no such bug.",
        ],
    }
}

/// What the model is made of.
#[must_use]
pub fn constants() -> Vec<Constant> {
    let mut all = of_the_hosts();
    all.extend(of_tcp());
    all.extend(of_the_bridge());
    all
}

fn of_the_hosts() -> Vec<Constant> {
    let Machine {
        cycles,
        costs,
        link,
        delay,
        interrupt,
        interrupt_busy,
        wake,
        call,
        patience,
        handling,
        setup,
    } = Machine::PAPER;
    let Cycles { command, header, lookup, dma, update, send } = cycles;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let in_micros = |cycles: u32| f64::from(cycles) / costs.clock as f64 * 1e6;
    vec![
        Constant::given("system call", micros(call), "µs", "5.1: \"about .75 µs\""),
        Constant::given("waking a process", micros(wake), "µs", "5.1: \"8 µs\""),
        Constant::given(
            "interrupt",
            micros(interrupt),
            "µs",
            "5.1: \"The interrupt latency is 3 µs\"",
        ),
        Constant::assumed(
            TAKEN,
            micros(interrupt_busy),
            "µs",
            "all of its latency; the paper says what comes of it, not what it takes",
        ),
        Constant::given(
            "a server asks for so long before it sleeps",
            micros(patience),
            "µs",
            "5.3: \"polled for up to 15 µs\"",
        ),
        Constant::fitted("server, each request", micros(handling), "µs", "5.3.1: \"just 7.9 µs\""),
        Constant::given(
            "set-up of a message, beside the interrupt of the one before",
            micros(setup),
            "µs",
            "5.3.2: \"a setup time of 6 µs\", of which 3 are the interrupt",
        ),
        Constant::given(
            "through both adapters, a word: sent, taken up, looked up, moved",
            in_micros(header + lookup + dma + send),
            "µs",
            "5.2: \"about .5 µs\" each, less the bits on the link; how the steps share it is ours",
        ),
        Constant::assumed(LOGIC, in_micros(command + update), "µs", "two cycles of 33 MHz each"),
        Constant::given("link", link as f64 / 1e9, "Gbit/s", "2: \"at 1.5 Gbit/s\""),
        Constant::assumed(CABLE, delay.as_nanos() as f64, "ns", "ten metres"),
        Constant::fitted(
            "a transaction of the bus, beside its bytes",
            micros(costs.bus.transaction),
            "µs",
            "5.2: \"one-way latency of 1.9 µs\"; twice is \".9 µs ... traversing buses and bridges\"",
        ),
        Constant::given("bus", BUS, "Mbit/s", "5.2: PCI, 32 bits at 33 MHz"),
        Constant::given("bus clock", BUS_CLOCK as f64 / 1e6, "MHz", "5.2: PCI, 32 bits at 33 MHz"),
    ]
}

fn of_tcp() -> Vec<Constant> {
    let Assumed { stack, ack, copy, .. } = Assumed::default();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    vec![
        Constant::assumed(
            STACK,
            micros(stack),
            "µs",
            "the QPIP paper, Table 1: host-based IP, transmit and receive, on other hosts",
        ),
        Constant::assumed(
            ACK,
            micros(ack),
            "µs",
            "half of a packet's share of that: it wakes no program",
        ),
        Constant::assumed(
            COPY,
            micros(copy) * 1e3 / f64::from(1 << 20),
            "ns",
            "the STP paper, 1: \"several hundred MB/s\", taken as 300",
        ),
        Constant::given("headers of a packet", f64::from(HEADERS), "bytes", "their standards"),
        Constant::given(
            "segments for an acknowledgement",
            f64::from(ACKNOWLEDGED),
            "",
            "RFC 1122: at least one for every second",
        ),
        Constant::given(
            "buffer of a socket",
            f64::from(SOCKET_BUFFER) / 1024.0,
            "KiB",
            "6.1: \"just 32 kilobytes per socket buffer\"",
        ),
    ]
}

fn of_the_bridge() -> Vec<Constant> {
    let Lock { fifo, word, longest: _, back_off, recovers } = LOCK;
    let in_cycles = |time: Duration| (time.as_secs_f64() * BUS_CLOCK as f64).round();
    vec![
        Constant::given(
            "words of a burst with DMA",
            f64::from(DMA_BURST / word),
            "",
            "5.2: \"256 DWORDS for DMA traffic\"",
        ),
        Constant::given(
            "words of a burst with programmed I/O",
            f64::from(PIO_BURST / word),
            "",
            "5.2: \"16 DWORD bursts on the PCI bus for PIO traffic\"",
        ),
        Constant::given("peak", PEAK, "Mbit/s", "5.2: \"Peak bandwidth is 910 Mbit/s\""),
        Constant::assumed(FIFO, f64::from(fifo), "", "half of 640, for both directions"),
        Constant::assumed(
            BACK_OFF,
            in_cycles(back_off),
            "",
            "5.2 says that it does, and not how long",
        ),
        Constant::assumed(RECOVERS, in_cycles(recovers), "", "the same"),
        Constant::fitted(
            "bus cycles beside the words, each burst",
            f64::from(STALL),
            "",
            "5.2: \"Peak bandwidth is 910 Mbit/s\". The paper says that a burst stalls for one cycle: \
             what that gives stands in section 5.2's table",
        ),
    ]
}

/// All exhibits of the paper.
#[must_use]
pub fn exhibits() -> Vec<Exhibit> {
    with(&Assumed::default())
}

fn with(assumed: &Assumed) -> Vec<Exhibit> {
    let halves = [false, true].map(|chains| half(&assumed.design, chains));
    vec![
        section_5_2(assumed),
        figure_7(assumed),
        section_5_3(assumed),
        figure_8(assumed),
        figure_9(assumed),
        figure_10(assumed, halves),
        table_1(assumed),
        figure_12(assumed),
        the_next_adapter(assumed, halves),
    ]
}

/// What the assumed constants do to the values.
#[must_use]
pub fn sensitivity() -> Vec<Effect> {
    sensitivity::of(&Assumed::default(), &Assumed::ALL, with)
}
