//! The CLAN adapter: Figures 7 to 10 and 12, Table 1, and the numbers of section 5.
//!
//! Two 530 MHz Alphas under Linux 2.2, an adapter with one DMA engine in each. What
//! is measured is made of few steps, most of which the paper times by themselves:
//! a system call, a process that is woken, an interrupt, the way through two
//! adapters and their buses.

use crate::clan::Bridge;

use super::exhibit::Constant;
use super::exhibit::{Design, Exhibit, Row, Value};
use super::sensitivity::{self, Effect, Variable};

/// Microseconds.
type Micros = f64;

const SYSTEM_CALL: Micros = 0.75;
const RESCHEDULE: Micros = 8.0;
const INTERRUPT: Micros = 3.0;
const ADAPTER: Micros = 0.5;
const BUSES: Micros = 0.9;
const PEAK: f64 = 910.0;
const STREAM: f64 = 900.0;
const SETUP: Micros = 6.0;
/// 32 bits at 33 MHz, in megabits per second.
const BUS: f64 = 1056.0;
const BUS_CLOCK: u64 = 33_000_000;
/// So long that its beginning does not count.
const LONG: u32 = 1 << 20;

/// What the paper does not say, and so was chosen.
#[derive(Clone, Copy)]
struct Assumed {
    /// Sending and receiving a small message through a host's TCP/IP.
    stack: Micros,
    /// The bridge, for what programs of the other side write.
    bridge: Bridge,
}

impl Default for Assumed {
    fn default() -> Self {
        Self { stack: 29.9, bridge: Bridge::PIO }
    }
}

const STACK: &str = "TCP/IP in a host";
const FIFO: &str = "words in the FIFO of the bridge";
const BACK_OFF: &str = "cycles that the adapter backs off when the bridge has locked";
const RECOVERS: &str = "cycles after which the bridge has recovered";
const FEED: &str = "words that the sender's bus and the link deliver in a cycle";

impl Assumed {
    const ALL: [Variable<Self>; 5] = [
        (STACK, |it, by| it.stack *= by),
        (FIFO, |it, by| it.bridge.fifo = (f64::from(it.bridge.fifo) * by) as u32),
        (BACK_OFF, |it, by| it.bridge.back_off = (f64::from(it.bridge.back_off) * by) as u32),
        (RECOVERS, |it, by| it.bridge.recovers = (f64::from(it.bridge.recovers) * by) as u32),
        (FEED, |it, by| it.bridge.feed = (f64::from(it.bridge.feed) * by) as u32),
    ];
}

/// The same bridge, for what DMA of the other side sends.
const fn for_dma(bridge: Bridge) -> Bridge {
    Bridge { burst: Bridge::DMA_BURST, locks: false, back_off: 0, ..bridge }
}

/// From a program into the memory of another host, where a program sees it.
const fn one_way() -> Micros {
    2.0 * ADAPTER + BUSES
}

/// Megabits per second with which the bridge of the receiver passes this many bytes on,
/// cycle by cycle.
fn through(bridge: &Bridge, bytes: u32) -> f64 {
    let words = bytes / 4;
    bridge.pass(words).rate(words, BUS_CLOCK) as f64 * 32.0 / 1e6
}

/// A request to a server that sleeps, and its answer.
const fn idle_server() -> Micros {
    one_way() + INTERRUPT + RESCHEDULE + SYSTEM_CALL + one_way()
}

/// The same to one that is awake.
const fn busy_server() -> Micros {
    one_way() + INTERRUPT + one_way()
}

/// Requests per second when this many are under way.
fn requests(under_way: f64) -> f64 {
    f64::min(under_way * 1e6 / busy_server(), 1e6 / INTERRUPT)
}

/// Megabits per second with messages of this many bytes, each with its set-up.
fn streaming(bytes: f64, rate: f64, setup: Micros) -> f64 {
    let bits = 8.0 * bytes;
    bits / (bits / rate + setup)
}

fn section_5_2(bridge: Bridge) -> Exhibit {
    Exhibit {
        design: Design::Clan,
        name: "Section 5.2",
        title: "Shared memory, spinning",
        columns: vec!["value"],
        rows: vec![
            Row::new("a word, one way, µs", vec![Value::given(1.9, one_way())]),
            Row::new("a word there and back, µs", vec![Value::restated(3.7, 2.0 * one_way())]),
            Row::new(
                "peak with DMA, bursts of 256 words, Mbit/s",
                vec![Value::fitted(PEAK, through(&for_dma(bridge), LONG))],
            ),
            Row::new(
                "the same if a burst stalled for one cycle, as the paper says it does, Mbit/s",
                vec![Value::alone(through(&Bridge { stall: 1, ..for_dma(bridge) }, LONG))],
            ),
            Row::new(
                "programmed I/O, bursts of 16 words, a bridge that never locks, Mbit/s",
                vec![Value::alone(through(&Bridge { locks: false, ..bridge }, LONG))],
            ),
            Row::new(
                "programmed I/O, its bursts joined by the receiver, Mbit/s",
                vec![Value::alone(through(&bridge.joined(), LONG))],
            ),
        ],
        remarks: vec![
            "The paper expects programmed I/O to be \"very similar to that of DMA\" once bursts \
             are joined, and states no other value of Figure 7.",
        ],
    }
}

fn figure_7(bridge: Bridge) -> Exhibit {
    let rows = [256, 512, 1024, 2048, 4096, 16_384, 65_536].map(|bytes| {
        let bridges = [for_dma(bridge), bridge, Bridge { back_off: 0, ..bridge }, bridge.joined()];
        let values = bridges.map(|bridge| Value::alone(through(&bridge, bytes)));
        Row::new(format!("{bytes} bytes"), values.to_vec())
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
            "Word by word through the receiving bridge: a stall before each burst, and a FIFO \
             that locks when programmed writes find it full; then words leave singly until the \
             adapter, which backs off, has let it recover. The longer a message, the more of it \
             meets a full FIFO: \"This effect causes the negative gradient\".",
            "When exactly the bridge locks, the size of its FIFO (80 words) and the time that the \
             adapter backs off (384 cycles, of which 128 until it has recovered) are assumed: the \
             paper says that the slope is negative, and not how steep.",
            "What feeds the bridge is assumed to be no limit: a word in each cycle of the sender's \
             bus, over a link of 1.5 Gbit/s that is faster. The paper names no limit but the \
             receiving bridge; what the bridge and the write buffers of the sender do it does not \
             say.",
            "Small messages are shown without what blocks at their ends, which the paper could \
             not measure below 256 bytes: one burst has no stall within it.",
        ],
    }
}

fn the_next_adapter(bridge: Bridge) -> Exhibit {
    let peak = through(&bridge, LONG);
    let half = |setup: Micros| STREAM * setup / 8.0;
    let row = |label: &str, [idle, busy, half, peak]: [f64; 4]| {
        Row::new(label, [idle, busy, half, peak].map(Value::alone).to_vec())
    };
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
            row("the adapter of the paper", [idle_server(), busy_server(), half(SETUP), peak]),
            row(
                "tripwires at user level",
                [idle_server() - SYSTEM_CALL, busy_server(), half(SETUP), peak],
            ),
            row(
                "the adapter chains DMA requests",
                [idle_server(), busy_server(), half(SETUP - INTERRUPT), peak],
            ),
            row(
                "notifications and out-of-band messages by hardware",
                [idle_server(), 2.0 * one_way(), half(SETUP), peak],
            ),
            row(
                "bursts joined on the receiver",
                [idle_server(), busy_server(), half(SETUP), through(&bridge.joined(), LONG)],
            ),
        ],
        remarks: vec![
            "A server that sleeps is interrupted in any case (\"Only when the application blocks \
             ... need the driver request\" it): what it saves is the call to set the tripwire \
             again. One that is awake finds its notification in memory.",
        ],
    }
}

fn section_5_3() -> Exhibit {
    Exhibit {
        design: Design::Clan,
        name: "Section 5.3.1",
        title: "An event-based server",
        columns: vec!["value"],
        rows: vec![
            Row::new(
                "round trip, the server sleeps between requests, µs",
                vec![Value::predicted(16.8, idle_server())],
            ),
            Row::new(
                "round trip, the server is kept awake, µs",
                vec![Value::predicted(7.9, busy_server())],
            ),
            Row::new(
                "requests per second that the curve tends to, thousands",
                vec![Value::restated(340.0, requests(f64::INFINITY) / 1e3)],
            ),
            Row::new("overhead of a message, µs", vec![Value::restated(2.9, INTERRUPT)]),
        ],
        remarks: vec![
            "A sleeping server costs an interrupt, a process that is woken, and the end of the \
             call that it slept in; one that is awake costs the interrupt alone. The \
             server's own work on a message is in no constant, so both are a little short.",
        ],
    }
}

fn figure_8() -> Exhibit {
    let rows = [1, 10, 100, 1000].map(|endpoints| {
        let values = vec![Value::alone(idle_server()), Value::alone(busy_server())];
        Row::new(format!("{endpoints} endpoints"), values)
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 8",
        title: "Round-trip time against the number of endpoints",
        columns: vec!["server idle, µs", "server busy, µs"],
        rows: rows.to_vec(),
        remarks: vec![
            "\"The response time is independent of the number of connections\": an event costs the \
             same for each.",
        ],
    }
}

fn figure_9() -> Exhibit {
    let rows = [1.0, 2.0, 3.0, 5.0, 10.0, 20.0].map(|under_way| {
        let values = vec![Value::alone(requests(under_way) / 1e3)];
        Row::new(format!("{under_way} endpoints"), values)
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 9",
        title: "Requests per second against the number of endpoints that ask at once",
        columns: vec!["thousands"],
        rows: rows.to_vec(),
        remarks: vec!["Beyond its capacity the server does as much as at it, and no less."],
    }
}

fn figure_10() -> Exhibit {
    let half = STREAM * SETUP / 8.0;
    let mut rows = vec![Row::new(
        "(b) half of the bandwidth, at messages of this many bytes",
        vec![Value::restated(750.0, half), Value::alone(half / SETUP * (SETUP - INTERRUPT))],
    )];
    rows.extend([256.0, 1024.0, 4096.0, 16_384.0, 65_536.0].map(|bytes| {
        let now = streaming(bytes, STREAM, SETUP);
        let next = streaming(bytes, STREAM, SETUP - INTERRUPT);
        Row::new(
            format!("(b) streaming, {bytes} bytes, Mbit/s"),
            vec![Value::alone(now), Value::alone(next)],
        )
    }));
    rows.extend([256.0, 1024.0, 4096.0, 16_384.0, 65_536.0].map(|bytes| {
        let alone = streaming(bytes, STREAM, SETUP + busy_server());
        let next = streaming(bytes, STREAM, SETUP - INTERRUPT + busy_server());
        Row::new(
            format!("(a) one at a time, {bytes} bytes, Mbit/s"),
            vec![Value::alone(alone), Value::alone(next)],
        )
    }));
    Exhibit {
        design: Design::Clan,
        name: "Figure 10",
        title: "Bandwidth of messages, one way",
        columns: vec!["the adapter of the paper", "the next one, with chains"],
        rows,
        remarks: vec![
            "The next adapter chains transfers by itself: \"the interrupt overhead will be \
             eliminated\", 3 of the 6 µs.",
        ],
    }
}

fn table_1(stack: Micros) -> Exhibit {
    let there_and_back = 2.0 * (stack + SETUP + one_way() + INTERRUPT + RESCHEDULE);
    let message = stack + SETUP;
    let values = vec![
        Value::predicted(100.0, there_and_back),
        Value::predicted(225.0, 8.0 * 1024.0 / message),
    ];
    Exhibit {
        design: Design::Clan,
        name: "Table 1",
        title: "TCP/IP over CLAN",
        columns: vec!["round trip, µs", "at 1 KByte, Mbit/s"],
        rows: vec![Row::new("CLAN IP", values)],
        remarks: vec![
            "What TCP/IP costs a host this paper does not say. The value is that of the QPIP \
             paper's Table 1, 29.9 µs on a 550 MHz Pentium III.",
            "The two Ethernet adapters of the table are not modelled.",
        ],
    }
}

fn figure_12(stack: Micros) -> Exhibit {
    let rows = [64.0, 256.0, 1024.0, 4096.0, 16_384.0].map(|bytes: f64| {
        let values = vec![Value::alone(streaming(bytes, PEAK, stack + SETUP))];
        Row::new(format!("{bytes} bytes"), values)
    });
    Exhibit {
        design: Design::Clan,
        name: "Figure 12",
        title: "TCP/IP over CLAN against the size of messages",
        columns: vec!["Mbit/s"],
        rows: rows.to_vec(),
        remarks: vec![
            "The paper's curve ends at 250 Mbit/s, by a bug of the adapter that locked up; the \
             model's adapter has no such bug.",
        ],
    }
}

/// What the model is made of.
#[must_use]
pub fn constants() -> Vec<Constant> {
    let Assumed { stack, bridge } = Assumed::default();
    let Bridge { fifo, burst, stall, feed, locks: _, back_off, recovers, joins: _ } = bridge;
    vec![
        Constant::given("system call", SYSTEM_CALL, "µs", "5.1: \"about .75 µs\""),
        Constant::given("waking a process", RESCHEDULE, "µs", "5.1: \"8 µs\""),
        Constant::given("interrupt", INTERRUPT, "µs", "5.1: \"The interrupt latency is 3 µs\""),
        Constant::given("through an adapter", ADAPTER, "µs", "5.2: \"about .5 µs\""),
        Constant::given(
            "buses, bridges and cache",
            BUSES,
            "µs",
            "5.2: \"so .9 µs are spent traversing buses and bridges\"",
        ),
        Constant::given("bus", BUS, "Mbit/s", "5.2: PCI, 32 bits at 33 MHz"),
        Constant::given(
            "words of a burst with DMA",
            f64::from(Bridge::DMA_BURST),
            "",
            "5.2: \"256 DWORDS for DMA traffic\"",
        ),
        Constant::given(
            "words of a burst with programmed I/O",
            f64::from(burst),
            "",
            "5.2: \"16 DWORD bursts on the PCI bus for PIO traffic\"",
        ),
        Constant::given("stream", STREAM, "Mbit/s", "5.3.2: \"a bandwidth of 900 Mbps\""),
        Constant::given("set-up of a message", SETUP, "µs", "5.3.2: \"a setup time of 6 µs\""),
        Constant::given("peak", PEAK, "Mbit/s", "5.2: \"Peak bandwidth is 910 Mbit/s\""),
        Constant::given("bus clock", BUS_CLOCK as f64 / 1e6, "MHz", "5.2: PCI, 32 bits at 33 MHz"),
        Constant::assumed(
            STACK,
            stack,
            "µs",
            "the QPIP paper, Table 1: host-based IP, transmit and receive, on other hosts",
        ),
        Constant::assumed(FIFO, f64::from(fifo), "", "640 bytes, for both directions"),
        Constant::assumed(
            BACK_OFF,
            f64::from(back_off),
            "",
            "5.2 says that it does, and not how long",
        ),
        Constant::assumed(RECOVERS, f64::from(recovers), "", "the same"),
        Constant::assumed(
            FEED,
            f64::from(feed) / 1e3,
            "",
            "one: no limit but the receiving bridge",
        ),
        Constant::fitted(
            "bus cycles beside the words, each burst",
            f64::from(stall),
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

fn with(&Assumed { stack, bridge }: &Assumed) -> Vec<Exhibit> {
    vec![
        section_5_2(bridge),
        figure_7(bridge),
        section_5_3(),
        figure_8(),
        figure_9(),
        figure_10(),
        table_1(stack),
        figure_12(stack),
        the_next_adapter(bridge),
    ]
}

/// What the assumed constants do to the values.
#[must_use]
pub fn sensitivity() -> Vec<Effect> {
    sensitivity::of(&Assumed::default(), &Assumed::ALL, with)
}
