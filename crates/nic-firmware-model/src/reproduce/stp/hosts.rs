//! What the paper's Tables 1 and 2 state, what its two machines spend, and what that makes of
//! each line.
//!
//! STP's lines are measured on two simulated hosts with Tigon-IIs, frame by frame
//! ([`crate::tigon::figures`]); what is counted there is what the processors are
//! charged for. No adapter takes anything off TCP: its lines are units that pass
//! processors, buses, the DMA engines and the wire.
//!
//! What the model is made of, each with the line that it comes from.

use core::time::Duration;

use super::super::exhibit::Constant;
use super::super::pipeline;
use super::super::pipeline::{Seconds, Stage};
use super::super::sensitivity::{Variable, times};
use crate::tigon::Cycles;
use crate::tigon::figures::{Account, Design, transfer};

const ETHERNET_HEADER: f64 = 14.0;
/// What the application writes with one call: "It is therefore necessary to use large
/// writes (128-512k on GigE)".
pub(super) const WRITE: u32 = 512 << 10;
/// This many times.
const WRITES: u32 = 16;

/// What no line of the tables states, and so was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assumed {
    /// Seconds for a byte that is read and written: "the memory speeds are in the range of
    /// several hundred MB/s", taken as 300.
    pub(super) copy: Seconds,
    /// A byte that DMA has put into memory, touched: the same memory, read and written.
    pub(super) touch: Seconds,
    /// The adapter's machine, of which cycles, interrupt and wake-up are assumed.
    pub(super) adapter: Design,
}

impl Default for Assumed {
    fn default() -> Self {
        let memory = 300.0e6;
        Self { copy: 2.0 / memory, touch: 2.0 / memory, adapter: Design::PAPER }
    }
}

impl Assumed {
    /// What each is called, and how it is varied.
    pub(super) const ALL: [Variable<Self>; 5] = [
        (COPY, |it, by| it.copy *= by),
        (TOUCH, |it, by| it.touch *= by),
        (CYCLES, |it, by| it.adapter.cycles = more(it.adapter.cycles, by)),
        (INTERRUPT, |it, by| it.adapter.interrupt = times(it.adapter.interrupt, by)),
        (WAKE, |it, by| it.adapter.wake = times(it.adapter.wake, by)),
    ];
}

/// This many times the cycles, for each step.
fn more(cycles: Cycles, by: f64) -> Cycles {
    let of = |cycles: u32| (f64::from(cycles) * by).round() as u32;
    let Cycles { command, header, lookup, dma, update, send, sum_16 } = cycles;
    Cycles {
        command: of(command),
        header: of(header),
        lookup: of(lookup),
        dma: of(dma),
        update: of(update),
        send: of(send),
        sum_16: of(sum_16),
    }
}

const COPY: &str = "copy, each byte (read and written)";
const TOUCH: &str = "touching what DMA put into memory, each byte";
const CYCLES: &str = "firmware, each packet of Data that comes";
const INTERRUPT: &str = "interrupt of a host";
const WAKE: &str = "a process that slept goes on, and calls again";

/// So much for each packet, and so much for each byte of its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerPacket {
    pub(super) packet: Seconds,
    pub(super) byte: Seconds,
}

impl PerPacket {
    /// Fitted to two lines: their payloads, and what a packet costs in each.
    fn through(a: (f64, Seconds), b: (f64, Seconds)) -> Self {
        let byte = (a.1 - b.1) / (a.0 - b.0);
        Self { packet: a.1 - byte * a.0, byte }
    }

    fn of(&self, payload: f64) -> Seconds {
        self.packet + self.byte * payload
    }
}

/// What the machines cost.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// The machine of the adapter.
    pub(super) adapter: Design,
    pub(super) copy: Seconds,
    /// A byte that DMA has put into memory: its line comes into the cache, and another
    /// goes out.
    pub(super) touch_uncached: Seconds,
    /// A byte that TCP has copied, and all that touching does to the packets between.
    pub(super) touch_of_tcp: Seconds,
    /// TCP.
    pub(super) receive: PerPacket,
    pub(super) send: PerPacket,
    /// How many processors one connection keeps busy at most.
    pub(super) most_busy: f64,
    pub(super) most_busy_touching: f64,
    /// STP: a page that is handed to the adapter, and one that it fills.
    pub(super) page_out: Seconds,
    pub(super) page_in: Seconds,
}

/// Processor time for a packet, from a share in per cent of both processors.
fn spent(line: &TableRow, per_cent: f64) -> (f64, Seconds) {
    (line.payload(), per_cent / 100.0 * PROCESSORS / line.packets_per_second())
}

impl Costs {
    /// Fitted to the lines that may be fitted to.
    pub(super) fn fitted(assumed: &Assumed) -> Self {
        let (large, small, stp) = (&TABLE_1[0], &TABLE_1[5], &TABLE_1[4]);
        let touched = &TABLE_2[0];
        let receive =
            PerPacket::through(spent(large, large.receiver), spent(small, small.receiver));
        let send = PerPacket::through(spent(large, large.sender), spent(small, small.sender));
        let (payload, with_touch) = spent(touched, touched.receiver);
        let mut costs = Self {
            adapter: assumed.adapter,
            copy: assumed.copy,
            touch_uncached: assumed.touch,
            touch_of_tcp: (with_touch - receive.of(payload)) / payload,
            receive,
            send,
            most_busy: large.receiver / 100.0 * PROCESSORS,
            most_busy_touching: touched.receiver / 100.0 * PROCESSORS,
            page_out: 0.0,
            page_in: 0.0,
        };
        // What is left of the shares when all that was counted is paid for.
        if let Some(account) = costs.measure(stp, 1, false) {
            let pages = account.bytes as f64 / PAGE;
            let rest = |share: f64, (receiver, _): (Seconds, Seconds)| {
                (share / 100.0 * PROCESSORS * account.seconds - receiver) / pages
            };
            let (receiver, sender) = costs.charged(&account);
            costs.page_in = rest(stp.receiver, (receiver, 0.0));
            costs.page_out = rest(stp.sender, (sender, 0.0));
        }
        costs
    }

    /// A line of STP, frame by frame over this many adapters at each end.
    pub(super) fn measure(&self, line: &TableRow, links: u8, touches: bool) -> Option<Account> {
        let design = self.adapter.with_stu(line.stu()).striped(links);
        let touching = if touches { self.touch_uncached * f64::from(WRITE) } else { 0.0 };
        transfer(&design, WRITES, WRITE, Duration::from_secs_f64(touching))
    }

    /// Processor time of the receiver and the sender for what was counted of them.
    ///
    /// A control operation is a packet like one of TCP. The receiver is interrupted for
    /// each Block, the sender for each packet that has left ("Interrupts are typically
    /// generated for each packet received or transmitted"). A process is woken once
    /// for each call. Then there are the pages.
    fn charged(&self, account: &Account) -> (Seconds, Seconds) {
        let (interrupt, wake) =
            (self.adapter.interrupt.as_secs_f64(), self.adapter.wake.as_secs_f64());
        let pages = account.bytes as f64 / PAGE;
        let calls = f64::from(account.writes) * wake;
        let control = |heard: u64, said: u64, each: Seconds| (heard + said) as f64 * each;
        let Account { sender, receiver, .. } = account;
        let receiving = control(receiver.heard, receiver.said, self.receive.packet)
            + account.blocks as f64 * interrupt
            + pages * self.page_in;
        let sending = control(sender.heard, sender.said, self.send.packet)
            + sender.stus_sent as f64 * interrupt
            + pages * self.page_out;
        (receiving + calls, sending + calls)
    }

    /// What the model says to a line of STP: megabytes per second, receiver, sender.
    pub(super) fn stp(&self, line: &TableRow, links: u8, touches: bool) -> (f64, f64, f64) {
        let Some(account) = self.measure(line, links, touches) else {
            return (f64::NAN, f64::NAN, f64::NAN);
        };
        let (mut receiving, sending) = self.charged(&account);
        if touches {
            receiving += self.touch_uncached * account.bytes as f64;
        }
        let share = |cost: Seconds| cost / account.seconds / PROCESSORS * 100.0;
        (account.rate() / MEGABYTE, share(receiving), share(sending))
    }

    /// Processor time of TCP's receiver for a packet, but for the touching.
    fn receiving(&self, line: &TableRow) -> Seconds {
        let payload = line.payload();
        let copy = if line.is_truncated { self.copy * payload } else { 0.0 };
        self.receive.of(payload) - copy
    }

    /// Processor time of TCP's sender for a packet. What is sent without a copy costs
    /// TCP's work on a packet, and its share of pages that are handed to the adapter,
    /// as those of STP are.
    fn sending(&self, line: &TableRow) -> Seconds {
        match line.method {
            SendMethod::TcpSendfile => self.send.packet + self.page_out * line.payload() / PAGE,
            _ => self.send.of(line.payload()),
        }
    }

    /// What the model says to a line of TCP: megabytes per second, receiver, sender.
    pub(super) fn tcp(&self, line: &TableRow, touches: bool) -> (f64, f64, f64) {
        const PACKETS: usize = 20_000;
        let payload = line.payload();
        let touching = if touches { self.touch_of_tcp * payload } else { 0.0 };
        let (receiving, sending) = (self.receiving(line) + touching, self.sending(line));
        let Design { costs, rate, overhead, .. } = self.adapter;
        let on_the_bus = (line.packet + ETHERNET_HEADER) / costs.bus.rate as f64;
        let (setup, gap) = (costs.dma.setup.as_secs_f64(), costs.dma.gap.as_secs_f64());
        let most = if touches { self.most_busy_touching } else { self.most_busy };
        let stages = [
            Stage::new(0, sending / PROCESSORS),
            Stage::new(1, f64::max(on_the_bus + line.pieces() * setup, gap)),
            Stage::new(2, (line.packet + f64::from(overhead)) * 8.0 / rate as f64),
            Stage::new(3, f64::max(on_the_bus + setup, gap)),
            Stage::new(4, receiving / most),
        ];
        let each = pipeline::run(&stages, PACKETS, usize::MAX).end / PACKETS as f64;
        let share = |cost: Seconds| cost / each / PROCESSORS * 100.0;
        (payload / each / MEGABYTE, share(receiving), share(sending))
    }

    /// What the model says to a line.
    pub(super) fn model(&self, line: &TableRow, touches: bool) -> (f64, f64, f64) {
        match line.method {
            SendMethod::Stp => self.stp(line, 1, touches),
            _ => self.tcp(line, touches),
        }
    }
}

/// In this paper a megabyte is 2^20 bytes.
pub(super) const MEGABYTE: f64 = 1_048_576.0;
/// 100 % are both processors of a machine.
pub(super) const PROCESSORS: f64 = 2.0;
/// A segment of TCP with time stamps has so much less than its packet.
const TCP_HEADERS: f64 = 52.0;
const STP_HEADER: f64 = 40.0;
pub(super) const PAGE: f64 = 4096.0;

/// How the sender hands its data over, and the receiver takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendMethod {
    TcpWrite,
    TcpSendfile,
    Stp,
}

/// A line of the paper's tables: megabytes per second, and the shares of the two
/// machines' processors.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableRow {
    pub(super) label: &'static str,
    pub(super) method: SendMethod,
    pub(super) packet: f64,
    /// The copy to the user is left out.
    pub(super) is_truncated: bool,
    pub(super) rate: f64,
    pub(super) receiver: f64,
    pub(super) sender: f64,
}

const fn line(
    label: &'static str,
    method: SendMethod,
    packet: f64,
    is_truncated: bool,
    measured: (f64, f64, f64),
) -> TableRow {
    let (rate, receiver, sender) = measured;
    TableRow { label, method, packet, is_truncated, rate, receiver, sender }
}

/// The paper's Table 1.
pub(super) const TABLE_1: [TableRow; 10] = [
    line("TCP write()", SendMethod::TcpWrite, 9000.0, false, (75.0, 55.0, 48.0)),
    line("MSG_TRUNC", SendMethod::TcpWrite, 9000.0, true, (99.0, 35.0, 55.0)),
    line("TCP sendfile()", SendMethod::TcpSendfile, 9000.0, false, (74.0, 55.0, 12.0)),
    line("MSG_TRUNC, sendfile()", SendMethod::TcpSendfile, 9000.0, true, (99.0, 31.0, 19.0)),
    line("STP write()", SendMethod::Stp, 4136.0, false, (98.0, 8.0, 17.0)),
    line("TCP write()", SendMethod::TcpWrite, 1500.0, false, (52.0, 55.0, 50.0)),
    line("MSG_TRUNC", SendMethod::TcpWrite, 1500.0, true, (70.0, 52.0, 70.0)),
    line("TCP sendfile()", SendMethod::TcpSendfile, 1500.0, false, (45.0, 50.0, 12.0)),
    line("MSG_TRUNC, sendfile()", SendMethod::TcpSendfile, 1500.0, true, (70.0, 52.0, 39.0)),
    line("STP write()", SendMethod::Stp, 1064.0, false, (53.0, 8.0, 17.0)),
];

/// The paper's Table 2: the receiver touches the data.
pub(super) const TABLE_2: [TableRow; 4] = [
    line("TCP", SendMethod::TcpWrite, 9000.0, false, (49.0, 62.0, 22.0)),
    line("STP", SendMethod::Stp, 4136.0, false, (53.0, 23.0, 9.0)),
    line("TCP", SendMethod::TcpWrite, 1500.0, false, (14.0, 53.0, 11.0)),
    line("STP", SendMethod::Stp, 1064.0, false, (34.0, 16.0, 11.0)),
];

impl TableRow {
    pub(super) const fn payload(&self) -> f64 {
        self.packet - if matches!(self.method, SendMethod::Stp) { STP_HEADER } else { TCP_HEADERS }
    }

    pub(super) fn packets_per_second(&self) -> f64 {
        self.rate * MEGABYTE / self.payload()
    }

    /// Of pages, and the header before them.
    pub(super) fn pieces(&self) -> f64 {
        (self.payload() / PAGE).ceil() + 1.0
    }

    /// The payload of a packet of STP, as a power of two.
    pub(super) const fn stu(&self) -> u8 {
        (self.payload() as u32).ilog2() as u8
    }
}

fn micro(seconds: Seconds) -> f64 {
    seconds * 1e6
}

fn nano(seconds: Seconds) -> f64 {
    seconds * 1e9
}

/// What the model is made of.
#[must_use]
pub fn constants() -> Vec<Constant> {
    let costs = Costs::fitted(&Assumed::default());
    // All of both, by name: anyone who adds a field is made to say where it comes from.
    let Costs {
        adapter,
        copy,
        touch_uncached,
        touch_of_tcp,
        receive,
        send,
        most_busy,
        most_busy_touching,
        page_out,
        page_in,
    } = costs;
    let busy = [most_busy, most_busy_touching, touch_of_tcp];
    let all = [
        given(&adapter),
        assumed(&adapter, copy, touch_uncached),
        fitted(receive, send, busy),
        fitted_to_stp(&adapter, page_out, page_in),
    ];
    all.concat()
}

fn given(adapter: &Design) -> Vec<Constant> {
    let Design { costs: machine, rate, overhead, sram, stu, block, .. } = *adapter;
    vec![
        Constant::given(
            "bus",
            machine.bus.rate as f64 / 1e6,
            "MB/s",
            "2.3: \"the 32-bit PCI bus\", at 33 MHz",
        ),
        Constant::given("wire", rate as f64 / 8e6, "MB/s", "1: \"GigE is 125MB/s\""),
        Constant::given(
            "what Ethernet adds to each packet",
            f64::from(overhead),
            "bytes",
            "header, check sequence, preamble and gap, by its standard",
        ),
        Constant::given(
            "DMA engine, each packet",
            micro(machine.dma.gap.as_secs_f64()),
            "µs",
            "2.3: \"about 50000 packets/s\"",
        ),
        Constant::given(
            "memory of the adapter",
            f64::from(sram) / 1024.0,
            "KiB",
            "2.3: \"1MB DEC Gigabit Ethernet Adapters\"",
        ),
        Constant::given(
            "payload of a packet of 4136 bytes",
            f64::from(1u32 << stu),
            "bytes",
            "Table 1: 4136, less the header of 40",
        ),
        Constant::given(
            "STUs of a Block",
            f64::from(1u32 << block),
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
            "headers of a packet of TCP",
            TCP_HEADERS,
            "bytes",
            "their standards; TCP's with time stamps",
        ),
        Constant::given("header of a packet of STP", STP_HEADER, "bytes", "its standard"),
        Constant::given("header of Ethernet on the bus", ETHERNET_HEADER, "bytes", "its standard"),
        Constant::given("link of GSN", super::LINK as f64 / 1e9, "Gbit/s", "2: 6.4 Gbit/s"),
        Constant::given(
            "processor of the adapter",
            machine.clock as f64 / 1e6,
            "MHz",
            "not in the paper: the Tigon-II's two processors run at 88 MHz; the firmware uses one",
        ),
    ]
}

/// What this paper does not say.
fn assumed(adapter: &Design, copy: Seconds, touch: Seconds) -> Vec<Constant> {
    let Design { cycles, interrupt, wake, delay, .. } = *adapter;
    let received = cycles.header + cycles.lookup + cycles.dma + cycles.update;
    vec![
        Constant::assumed(
            COPY,
            nano(copy),
            "ns",
            "1: \"the memory speeds are in the range of several hundred MB/s\", taken as 300",
        ),
        Constant::assumed(
            TOUCH,
            nano(touch),
            "ns",
            "the same memory, read and written; that touching also writes is ours",
        ),
        Constant::assumed(
            CYCLES,
            f64::from(received),
            "cycles",
            "a few dozen instructions for each of its steps",
        ),
        Constant::assumed(
            INTERRUPT,
            micro(interrupt.as_secs_f64()),
            "µs",
            "that of the CLAN paper's hosts, 5.1: \"The interrupt latency is 3 µs\"",
        ),
        Constant::assumed(
            WAKE,
            micro(wake.as_secs_f64()),
            "µs",
            "those of the CLAN paper's hosts, 5.1: \"8 µs\", and a system call of \"about .75 µs\"",
        ),
        Constant::assumed(
            "length of the cable, with what is at its ends",
            micro(delay.as_secs_f64()),
            "µs",
            "no rate depends on it",
        ),
    ]
}

fn fitted(receive: PerPacket, send: PerPacket, busy: [f64; 3]) -> Vec<Constant> {
    let [most_busy, most_busy_touching, touch_of_tcp] = busy;
    vec![
        Constant::fitted(
            "TCP receiver, each packet",
            micro(receive.packet),
            "µs",
            "Table 1, TCP write() 9000 and 1500: 75 and 52 MB/s at 55 %",
        ),
        Constant::fitted("TCP receiver, each byte", nano(receive.byte), "ns", "the same"),
        Constant::fitted(
            "TCP sender, each packet",
            micro(send.packet),
            "µs",
            "Table 1, TCP write() 9000 and 1500: 48 and 50 %",
        ),
        Constant::fitted("TCP sender, each byte", nano(send.byte), "ns", "the same"),
        Constant::fitted(
            "processors that one connection keeps busy at the receiver",
            most_busy,
            "",
            "Table 1, TCP write(): 55 % of two",
        ),
        Constant::fitted(
            "the same where it touches what it receives",
            most_busy_touching,
            "",
            "Table 2, TCP 9000: 62 % of two",
        ),
        Constant::fitted(
            "touching what TCP copied, each byte",
            nano(touch_of_tcp),
            "ns",
            "Table 2, TCP 9000: 49 MB/s at 62 %",
        ),
    ]
}

fn fitted_to_stp(adapter: &Design, page_out: Seconds, page_in: Seconds) -> Vec<Constant> {
    vec![
        Constant::fitted(
            "DMA set-up, each piece of a packet",
            micro(adapter.costs.dma.setup.as_secs_f64()),
            "µs",
            "Table 1, STP write() 4136: 98 MB/s",
        ),
        Constant::fitted(
            "STP sender, each page, beside an interrupt for each packet",
            micro(page_out),
            "µs",
            "Table 1, STP write() 4136: 17 %",
        ),
        Constant::fitted(
            "STP receiver, each page, beside an interrupt for each Block",
            micro(page_in),
            "µs",
            "Table 1, STP write() 4136: 8 %",
        ),
    ]
}
