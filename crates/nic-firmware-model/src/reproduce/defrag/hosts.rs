//! Two hosts with a Hamachi each and a cable between them, frame by frame: what the
//! receiving processor has to do comes from what adapter and engine did.
//!
//! The sender is never the limit. It has a window of packets under way; the receiver's
//! processor takes one packet after another, and only then is there room for the next.

use std::collections::VecDeque;

use landfall_inet::{Envelope, Tcp, ethernet, ipv4, protocol, tcp};
use landfall_placement::{Duration, Instant, Span};
use spec_defrag::{
    Body, BufferId, Config, HeadLens, Packet, PayloadLens, Prediction, ReassemblyPath, Shape, Stats,
};

use crate::hamachi::{COSTS, DriverConfig, Ram, Room, Station, Tables, WhenOut};
use crate::machine::Costs;
use crate::runs;

/// What of a packet is a page.
pub(super) const PAGE: u32 = 4096;
/// What of it fits one frame where nobody cuts.
pub(super) const SEGMENT: u32 = 1460;
const MTU: u16 = 1500;
/// Ethernet, IPv4, TCP without options.
const HEAD: usize = ethernet::LEN + ipv4::LEN + tcp::LEN;
/// Preamble, check sequence and the gap behind each frame.
const AROUND: u64 = 8 + 4 + 12;
/// A byte on a Gigabit link.
const BYTE_TIME: u64 = 8;
/// A full frame on it.
const FRAME_TIME: Duration = Duration::from_nanos((1514 + AROUND) * BYTE_TIME);

/// What the paper does not say of the machine, and so was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The receiving adapter, with the set-up of a descriptor and the time-out.
    pub(super) costs: Costs,
    /// Bytes under way.
    pub(super) window: u32,
}

impl Default for Machine {
    /// The window of Linux 2.2.
    fn default() -> Self {
        Self { costs: COSTS, window: 32_768 }
    }
}

/// What the receiving processor spends, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processor {
    /// On a packet, for each byte in it, beside copies.
    pub(super) byte: f64,
    /// On a byte that is copied.
    pub(super) copied: f64,
    /// On a page that is handed over whole.
    pub(super) page: f64,
}

/// How the receiver is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// As always: frames are taken whole, from where they lie, and copied to the user.
    Standard,
    /// Pages are joined in place; what is in place is handed over, or copied.
    Pages {
        /// What was joined in place is the user's without a copy.
        is_handed_over: bool,
        /// The adapter reads headers, and picks descriptors by them.
        steers: bool,
    },
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Packets of the transfer.
    pub(super) packets: usize,
    /// The payload of each.
    pub(super) len: u32,
    /// Streams that take turns, frame by frame.
    pub(super) streams: usize,
    /// A short foreign frame after each this many packets, between two of a packet's
    /// frames; 0: none.
    pub(super) foreign_every: usize,
    /// This many of them, one behind the other.
    pub(super) foreign_burst: usize,
}

impl Load {
    /// One stream that nothing disturbs.
    pub(super) const fn plain(packets: usize, len: u32) -> Self {
        Self { packets, len, streams: 1, foreign_every: 0, foreign_burst: 1 }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Bytes in a microsecond: MB/s.
    pub(super) rate: f64,
    /// Packets that came, and those of them that were joined in place.
    pub(super) packets: u64,
    /// See there.
    pub(super) in_place: u64,
}

impl Outcome {
    /// The share of packets that were joined in place, in percent.
    pub(super) fn success(&self) -> f64 {
        100.0 * self.in_place as f64 / self.packets.max(1) as f64
    }
}

/// A packet that the processor works on until then.
#[derive(Debug)]
struct Work {
    until: Instant,
    buffer: Option<BufferId>,
    is_counted: bool,
}

/// Both hosts.
struct Hosts {
    receiver: Station,
    receiving: Receiving,
    processor: Processor,
    now: Instant,
    /// The processor is busy until then, and with this.
    free_at: Instant,
    works: VecDeque<Work>,
    copied: u64,
    load: Load,
    done: usize,
}

/// A host sends to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) machine: Machine,
    pub(super) receiving: Receiving,
    pub(super) processor: Processor,
    pub(super) load: Load,
}

impl Transfer {
    /// The transfer, to its end.
    pub(super) fn outcome(&self) -> Outcome {
        runs::once("hamachi transfer", self, || self.run())
    }

    fn run(&self) -> Outcome {
        let Self { machine, receiving, processor, load } = *self;
        let mut hosts = Hosts::new(machine.costs, receiving, processor, load);
        let mut sender = Sender::new(load);
        let window = (machine.window / load.len) as usize;
        let mut sent = 0;
        while sent < load.packets {
            // As many packets as there are streams, their frames in turns.
            let round = load.streams.min(load.packets - sent);
            while sent + round > hosts.done + window.max(load.streams) && hosts.step() {}
            for frame in sender.round(sent, round) {
                hosts.carry(&frame);
            }
            sent += round;
        }
        while hosts.done < load.packets && hosts.step() {}
        hosts.outcome()
    }
}

/// Two hosts send pages to a third through a switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crossing {
    pub(super) machine: Machine,
    pub(super) processor: Processor,
    /// Packets of each host.
    pub(super) packets: usize,
    /// From one packet of a host to its next.
    pub(super) periods: [Duration; 2],
    /// By how much the second begins after the first.
    pub(super) later: Duration,
}

impl Crossing {
    /// What came of it at the receiver. A frame waits for the one before it.
    pub(super) fn outcome(&self) -> Outcome {
        runs::once("hamachi crossing", self, || self.run())
    }

    fn run(&self) -> Outcome {
        let Self { machine, processor, packets, .. } = *self;
        let load = Load::plain(2 * packets, PAGE);
        let receiving = Receiving::Pages { is_handed_over: true, steers: false };
        let mut hosts = Hosts::new(machine.costs, receiving, processor, load);
        for (nth, (at, _, frame)) in self.frames(load).iter().enumerate() {
            // The switch holds back what the receiver has no room for.
            while nth / 3 > hosts.done + 64 && hosts.step() {}
            while hosts.due().is_some_and(|due| due <= *at) && hosts.step() {}
            hosts.now = hosts.now.max(*at);
            hosts.carry(frame);
        }
        while hosts.done < load.packets && hosts.step() {}
        hosts.outcome()
    }

    /// When each leaves the switch, of which host it is, and its bytes.
    fn frames(&self, load: Load) -> Vec<(Instant, u8, Vec<u8>)> {
        let mut sender = Sender::new(load);
        let mut frames = Vec::new();
        let starts = [Instant::ZERO, Instant::ZERO + self.later];
        for (stream, (period, first)) in (0..).zip(self.periods.into_iter().zip(starts)) {
            for nth in 0..self.packets {
                let start = first + period.saturating_mul(nth as u32);
                for (at, frame) in (0..).zip(sender.frames(stream, nth as u16, PAGE)) {
                    frames.push((start + FRAME_TIME.saturating_mul(at), stream, frame));
                }
            }
        }
        frames.sort_by_key(|(at, stream, _)| (*at, *stream));
        frames
    }
}

impl Hosts {
    fn outcome(&self) -> Outcome {
        let (hosts, load) = (self, self.load);
        let Stats { speculated, conventional, whole, .. } = *hosts.receiver.receiver().stats();
        let bytes = hosts.done as f64 * f64::from(load.len);
        let micros = hosts.free_at.since(Instant::ZERO).as_nanos() as f64 / 1e3;
        let packets = if load.len == PAGE { speculated + conventional } else { whole };
        Outcome { rate: bytes / micros, packets, in_place: speculated }
    }

    fn new(costs: Costs, receiving: Receiving, processor: Processor, load: Load) -> Self {
        let shape = Shape::new(
            3,
            HeadLens { first: 54, rest: 34 },
            PayloadLens { first: 1460, middle: 1480, last: 1156 },
        );
        let steers = matches!(receiving, Receiving::Pages { steers: true, .. });
        let prediction = match receiving {
            Receiving::Standard => Prediction::Off,
            Receiving::Pages { .. } => shape.map_or(Prediction::Off, Prediction::Single),
        };
        // "After all the fragments are received": a list is for one packet, or for one of
        // each stream where the adapter picks what fits.
        let burst = if steers { 3 * load.streams as u16 } else { 3 };
        let config = Config { burst, frame_max: 1518, prediction, ..Config::default() };
        let room = Room { pages: 256, large: 8, frames: 32 };
        let entries = if receiving == Receiving::Standard { 0 } else { usize::from(burst) };
        let tables = Tables { entries, opens: if steers { 64 } else { 0 } };
        let driver = DriverConfig { steers, ..DriverConfig::default() };
        let ram = Ram::new(&config, &room).expect("a few regions have room");
        let chip = tables.chip(WhenOut::Whole);
        let receiver = Station::new(chip, ram, &config, driver, costs, [7; 32]);
        Self {
            receiver: receiver.expect("the configuration is a good one"),
            receiving,
            processor,
            now: Instant::ZERO,
            free_at: Instant::ZERO,
            works: VecDeque::new(),
            copied: 0,
            load,
            done: 0,
        }
    }

    /// A frame is on the cable, and arrives when its last byte does.
    fn carry(&mut self, frame: &[u8]) {
        let time = Duration::from_nanos((frame.len() as u64 + AROUND) * BYTE_TIME);
        let arrives = self.now + time;
        while self.due().is_some_and(|due| due <= arrives) && self.step() {}
        self.now = self.now.max(arrives);
        self.receiver.arrive(self.now, frame);
        self.hear();
    }

    fn due(&self) -> Option<Instant> {
        let work = self.works.front().map(|work| work.until);
        [self.receiver.poll_timeout(), work].into_iter().flatten().min()
    }

    /// The next thing happens; false if nothing is to.
    fn step(&mut self) -> bool {
        let Some(due) = self.due() else { return false };
        self.now = self.now.max(due);
        while self.works.front().is_some_and(|work| work.until <= self.now) {
            let Some(work) = self.works.pop_front() else { break };
            self.done += usize::from(work.is_counted);
            if let Some(buffer) = work.buffer {
                self.receiver.release(self.now, buffer);
            }
        }
        if self.receiver.poll_timeout().is_some_and(|at| at <= self.now) {
            self.receiver.handle_timeout(self.now);
        }
        self.hear();
        true
    }

    /// What came out is the processor's next work.
    fn hear(&mut self) {
        while let Some(packet) = self.receiver.poll_packet() {
            let cost = self.cost(&packet);
            self.free_at = self.free_at.max(self.now) + Duration::from_nanos(cost as u64);
            let buffer = match packet.body {
                Body::Buffer(buffer, _) => Some(buffer),
                Body::Lent(_) => None,
            };
            let is_counted = packet.head.len() + packet.body_len as usize > HEAD + SHORT as usize;
            self.works.push_back(Work { until: self.free_at, buffer, is_counted });
        }
    }

    /// What this packet costs, and the copies that the engine made since the last one.
    fn cost(&mut self, packet: &Packet) -> f64 {
        let whole = packet.head.len() + packet.body_len as usize;
        let len = whole.saturating_sub(HEAD) as f64;
        let copied = self.receiver.receiver().stats().bytes_copied;
        let moved = (copied - std::mem::replace(&mut self.copied, copied)) as f64;
        let Processor { byte, copied, page } = self.processor;
        // A frame is as much work as a full one, however short.
        let handled = byte * len.max(f64::from(SEGMENT));
        let (driver, user) = match self.receiving {
            Receiving::Standard => (0.0, len * copied),
            Receiving::Pages { is_handed_over: true, .. }
                if packet.path == ReassemblyPath::Speculated =>
            {
                (moved * copied, page)
            }
            Receiving::Pages { .. } => (moved * copied, len * copied),
        };
        handled + driver + user
    }
}

/// A foreign frame's payload.
const SHORT: u32 = 64;

/// The sending host: its adapter gathers frames from headers and pages.
struct Sender {
    station: Station,
    page: Span,
    load: Load,
}

impl Sender {
    fn new(load: Load) -> Self {
        let config = Config { burst: 1, frame_max: 1518, ..Config::default() };
        let room = Room { pages: 8, large: 8, frames: 4 };
        let mut ram = Ram::new(&config, &room).expect("a few regions have room");
        let page = ram.lend(vec![0x5a; PAGE as usize]).expect("one more has room");
        let chip = Tables { entries: 1, opens: 0 }.chip(WhenOut::Lose);
        let driver = DriverConfig::default();
        let station = Station::new(chip, ram, &config, driver, Costs::OFF, [8; 32]);
        let station = station.expect("the configuration is a good one");
        Self { station, page: page.span(0, PAGE), load }
    }

    /// The frames of one packet of each of these streams, in turns, and what disturbs.
    fn round(&mut self, sent: usize, streams: usize) -> Vec<Vec<u8>> {
        let wires: Vec<Vec<Vec<u8>>> = (0..streams)
            .map(|stream| self.frames(stream as u8, sent as u16, self.load.len))
            .collect();
        let longest = wires.iter().map(Vec::len).max().unwrap_or(0);
        let mut frames: Vec<Vec<u8>> = (0..longest)
            .flat_map(|nth| wires.iter().filter_map(move |w| w.get(nth)))
            .cloned()
            .collect();
        let every = self.load.foreign_every;
        if every > 0 && sent % every == every / 2 {
            // Behind any of the frames of this packet.
            let at = (sent / every) % frames.len() + 1;
            let foreign: Vec<_> = (0..self.load.foreign_burst)
                .flat_map(|nth| self.frames(200, (sent + nth) as u16, SHORT))
                .collect();
            frames.splice(at..at, foreign);
        }
        frames
    }

    fn frames(&mut self, stream: u8, id: u16, len: u32) -> Vec<Vec<u8>> {
        let head = head(stream, id, len);
        let body = self.page.split_at(len).0;
        let now = Instant::ZERO;
        let sent = self.station.send(now, &head, body, MTU);
        sent.expect("the packet is a good one");
        let mut frames = Vec::new();
        while let Some(departure) = self.station.departure() {
            frames.push(departure.bytes.to_vec());
            self.station.departed();
        }
        frames
    }
}

/// Ethernet, IPv4 and TCP of a packet with so much payload.
fn head(stream: u8, id: u16, len: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let envelope = Envelope {
        id,
        dont_fragment: false,
        ..Envelope::new(
            ([2, 0, 0, 0, 1, stream], [10, 0, 0, stream].into()),
            ([2, 0, 0, 0, 0, 1], [10, 0, 1, 1].into()),
            protocol::TCP,
        )
    };
    let at = envelope.write(&mut head, tcp::LEN as u32 + len);
    let at = at.expect("a page and its headers fit a packet");
    Tcp::default().write(&mut head[at..], 0).expect("there is room");
    head
}
