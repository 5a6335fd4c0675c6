//! What the model has beside the paper's Tables 2 and 3, its round trips, its throughputs and
//! its network block device (a client that reads or writes one block after another, and a
//! server that has them all in memory): two hosts with cards in a simulated network, and a firmware whose
//! cycles are counted. The costs are the caller's.

use core::time::Duration;

use landfall_inet::device::Summed;
use landfall_inet::{Envelope, Flags, Tcp, protocol};
use landfall_placement::{Ecn, Instant, PathId, Peer, RegionId, Spans};
use landfall_simnet::LinkConfig;
use qpip::offload::{Addresses, Command, Ends, HashSecret, OwnAddress, Places, Prediction, Report};
use qpip::{Mapping, Operation, QueuePairId};

use super::model::{Build, Carded, Network, Shape, World, pattern};
use super::stages::{Account, Helps, Paper, StageCosts};
use super::switch::SwitchDesign;
use super::{Lanai, LanaiSizes, LanaiTables};
use crate::firmware::{Arrival, Firmware, Meter, OutgoingFrame, Stage};
use crate::machine::{BusCosts, Coalescing, Costs, Sizes};

/// The constants of a run.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// What the stages of the firmware cost.
    pub stages: StageCosts,
    /// Which help of hardware the card has.
    pub helps: Helps,
    /// The processor of the card: cycles in a second.
    pub clock: u64,
    /// The bus to the host.
    pub bus: BusCosts,
    /// Bits in a second on the links.
    pub link: u64,
    /// Bytes that a link adds to a frame.
    pub framing: u32,
    /// What a message takes on the wire and in the switch, beside its bytes.
    pub way: Duration,
    /// What the host spends on a message, at both ends together.
    pub host: Duration,
}

impl Design {
    /// The prototype: LANai 9 at 133 MHz, 64-bit PCI at 33 MHz, links of 2.0 Gbit/s,
    /// and the host of the paper's Table 1 (2.5 µs). That the switch takes half a
    /// microsecond is ours, and so are five bytes for Myrinet's type and checksum.
    pub const PAPER: Self = Self {
        stages: StageCosts::PAPER,
        helps: Helps { doorbells: false, checksum: true, lookup: false, arithmetic: false },
        clock: StageCosts::CLOCK,
        bus: BusCosts::PCI_64_33,
        link: 2_000_000_000,
        framing: 5,
        way: Duration::from_nanos(500),
        host: Duration::from_nanos(2_500),
    };

    /// The same with the checksum in firmware.
    #[must_use]
    pub const fn with_firmware_checksum(mut self) -> Self {
        self.helps.checksum = false;
        self
    }

    pub(super) fn shape(&self, mtu: u32, memory: usize) -> Shape {
        let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
        let costs = Costs { clock: self.clock, bus: self.bus, interrupts, ..Costs::OFF };
        let frame = mtu + 14;
        // The network of the paper stops who sends too fast; here the window does, and
        // what it lets through finds slots.
        let arrivals = (SLOTS / frame).clamp(16, 1_024) as u16;
        let sizes = Sizes { arrivals, frame, ..Sizes::default() };
        let link = LinkConfig::new().rate(self.link);
        let switch = SwitchDesign { latency: self.way, ..SwitchDesign::default() };
        let mut shape = Shape {
            link: LinkConfig { overhead: self.framing, ..link.mtu(frame) },
            network: Network::Switches(1, switch),
            memory,
            captures: false,
            ..Shape::default()
        };
        shape.config.tcp.most_window = WINDOW;
        shape.card = Build {
            sizes,
            costs,
            stages: self.stages,
            helps: self.helps,
            latency: self.host,
            ..Build::default()
        };
        shape
    }
}

/// So much of the SRAM is slots for frames that came.
const SLOTS: u32 = 768 << 10;
/// So much may be under way on a connection.
pub(crate) const WINDOW: u32 = 256 << 10;

/// A stage of a table, in microseconds; nothing where the stage is not passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occupancy {
    /// The stage.
    pub stage: Paper,
    /// With data.
    pub data: f64,
    /// With an acknowledgement alone.
    pub ack: f64,
}

/// Who spends cycles for nobody's account.
struct Free;

impl Meter for Free {
    fn spend(&mut self, _: Stage, _: u32) {}
}

fn rows(clock: u64, stages: &[Paper], [data, ack]: [Account; 2]) -> Vec<Occupancy> {
    let micros = |account: &Account, stage| account.cycles(stage) as f64 * 1e6 / clock as f64;
    let row = |stage: &Paper| Occupancy {
        stage: *stage,
        data: micros(&data, *stage),
        ack: micros(&ack, *stage),
    };
    stages.iter().map(row).collect()
}

/// Table 2: what the transmit side spends on a frame with a byte of data, and on an
/// acknowledgement.
#[must_use]
pub fn transmit_side(design: &Design) -> Vec<Occupancy> {
    let spent = |len| {
        let mut firmware = firmware(design);
        let _ = firmware.send(&OutgoingFrame { head: &[], len }, &mut Free);
        *firmware.account()
    };
    let stages = [
        Paper::Doorbell,
        Paper::Schedule,
        Paper::GetRequest,
        Paper::GetData,
        Paper::BuildTransport,
        Paper::BuildIp,
        Paper::Send,
        Paper::UpdateSent,
    ];
    rows(design.clock, &stages, [spent(StageCosts::BARE + 1), spent(StageCosts::BARE)])
}

/// Table 3: what the receive side spends on a segment with a byte of data, and on an
/// acknowledgement; the doorbell is that of the request, or of the host's answer.
#[must_use]
pub fn receive_side(design: &Design) -> Vec<Occupancy> {
    let spent = |payload: &[u8]| {
        let mut firmware = firmware(design);
        expect(&mut firmware);
        let bytes = segment(payload);
        let arrival = Arrival {
            bytes: &bytes,
            path: PathId(0),
            from: Peer::Unaddressed,
            ecn: Ecn::NotCapable,
        };
        let verdict = firmware.receive(&arrival, &mut Spans::new(), &mut Free);
        if let crate::firmware::Verdict::Place { token, .. } = verdict {
            firmware.landed(token, true, &mut Free);
        }
        *firmware.account()
    };
    let stages = [
        Paper::Doorbell,
        Paper::MediaReceive,
        Paper::ParseIp,
        Paper::ParseTransport,
        Paper::GetRequest,
        Paper::PutData,
        Paper::UpdateReceived,
    ];
    rows(design.clock, &stages, [spent(&[7]), spent(&[])])
}

fn firmware(design: &Design) -> Lanai<'static> {
    let tables = LanaiTables::owned(
        LanaiSizes { entries: 4, pointers: 8, mappings: 4, routes: 2 },
        HashSecret::new(1, 2),
    );
    Lanai::new(tables, design.stages, design.helps)
}

const LOCAL: [u8; 4] = [10, 0, 0, 1];
const REMOTE: [u8; 4] = [10, 0, 0, 2];

/// A connection whose next byte is number 1000.
fn expect(firmware: &mut Lanai<'_>) {
    let (slot, path, station) = (0, PathId(0), [2; 6]);
    let addresses = Addresses::of(&[OwnAddress::new(LOCAL.into(), 24)]).unwrap_or_default();
    firmware.handle_command(&Command::Station { path, station, addresses }, &mut Free);
    let ends = Ends::new((LOCAL, 80).into(), (REMOTE, 1024).into());
    let answer = firmware.handle_command(&Command::Open { slot, mark: 1, ends, path }, &mut Free);
    let Some(Report::Quiet { heard, .. }) = answer else { return };
    let mut places = Places::new();
    places.push(RegionId::new(0, 0).span(0, 100), true);
    let next = Prediction {
        expected: 1_000,
        edge: 2_000,
        acknowledged: 500,
        sent: 600,
        recent: None,
        has_messages: true,
        course: 0,
        places,
    };
    firmware.handle_command(&Command::Arm { slot, mark: 2, heard, next }, &mut Free);
}

/// The segment that is expected.
fn segment(payload: &[u8]) -> Vec<u8> {
    let envelope = Envelope {
        dont_fragment: false,
        ..Envelope::new(([4; 6], REMOTE.into()), ([2; 6], LOCAL.into()), protocol::TCP)
    };
    let header = Tcp {
        source: 1024,
        destination: 80,
        seq: 1_000,
        ack: 500,
        flags: Flags::ACK | Flags::PSH,
        window: 0x1000,
        ..Tcp::default()
    };
    let at = envelope.header_len();
    let len = (header.header_len() + payload.len()) as u32;
    let mut bytes = vec![0; at + header.header_len()];
    envelope.write(&mut bytes, len).expect("it is a short one");
    header.write(&mut bytes[at..], 0).expect("there is room");
    bytes.extend(payload);
    Summed::find(&bytes).expect("it is a segment").complete(&mut bytes);
    bytes
}

/// What a message goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A connection, each message a segment.
    Tcp,
    /// Datagrams.
    Udp,
}

/// This many messages there and back are timed.
const ROUNDS: u64 = 20;

/// How long a message of one byte takes from one program to another and back, in
/// microseconds; nothing where it did not come back.
#[must_use]
pub fn round_trip(design: &Design, protocol: Protocol) -> Option<f64> {
    let mut design = *design;
    if protocol == Protocol::Udp {
        // Every frame of it carries data, and other headers are built.
        design.stages.bare = 0;
        design.stages.build_tcp = design.stages.build_udp;
    }
    let mut world = World::<Carded>::new(1, &design.shape(16_384 + 100, 1 << 20));
    let (pairs, to) = match protocol {
        Protocol::Tcp => (world.pair_up(true, 80, Mapping::Segment), None),
        Protocol::Udp => {
            let pairs = [0, 1].map(|host| world.bound(host, true, 9, false));
            (pairs, Some((true, 9)))
        }
    };
    world.run_for(Duration::from_millis(5));
    let mut started = Instant::ZERO;
    for round in 0..ROUNDS + 2 {
        // The first two warm the caches of the connection: its prediction and its clock.
        if round == 2 {
            started = world.now();
        }
        for host in [0, 1] {
            world.post_receive(1 - host, pairs[1 - host], round, &[64]);
            let sent = world.send(host, pairs[host], round, &[round as u8], to);
            sent.then_some(())?;
            await_receives(&mut world, 1 - host, round + 1)?;
        }
    }
    Some(world.now().since(started).as_nanos() as f64 / 1e3 / ROUNDS as f64)
}

/// Runs until a host has received this many messages.
fn await_receives(world: &mut World<Carded>, host: usize, count: u64) -> Option<()> {
    let deadline = world.now() + Duration::from_secs(10);
    let received = |world: &World<Carded>| {
        let is_whole = |done: &&qpip::Completion| {
            done.operation == qpip::Operation::Receive && done.ends_request
        };
        world.done(host).iter().filter(is_whole).count() as u64
    };
    while received(world) < count {
        if !world.step(deadline) {
            return None;
        }
    }
    Some(())
}

/// The chunks of the benchmark.
pub const CHUNK: u32 = 16 << 10;
/// This many of them are the 10 MB of the benchmark.
pub const CHUNKS: u64 = 640;

/// What came of sending a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Millions of bytes in a second, over the whole run: from the moment at which all of
    /// it was posted until the last byte was there.
    pub rate: f64,
    /// Which share of the segments the receiver's card placed; the host did the others.
    pub placed: f64,
    /// The longest that nothing came.
    pub pause: Duration,
}

/// A program sends chunks of 16 KiB to another, over a connection on links of this MTU;
/// nothing where they did not come.
#[must_use]
pub fn stream(design: &Design, mtu: u32, chunks: u64) -> Option<Stream> {
    let memory = chunks as usize * CHUNK as usize + (1 << 20);
    let mut shape = design.shape(mtu, memory);
    shape.depth = u32::try_from(chunks).ok()?.max(1);
    shape.config.queue_depth = shape.depth;
    let mut world = World::<Carded>::new(1, &shape);
    let [here, there] = world.pair_up(true, 80, Mapping::Message);
    for chunk in 0..chunks {
        world.post_receive(1, there, chunk, &[CHUNK]);
    }
    world.run_for(Duration::from_millis(5));
    let bytes = pattern(1, CHUNK as usize);
    for chunk in 0..chunks {
        world.send(0, here, chunk, &bytes, None).then_some(())?;
    }
    let started = world.now();
    let (mut before, mut pause) = (started, Duration::ZERO);
    for chunk in 1..=chunks {
        await_receives(&mut world, 1, chunk)?;
        pause = pause.max(world.now().since(before));
        before = world.now();
    }
    let took = before.since(started).as_nanos().max(1);
    let stats = world.look(1).stats();
    Some(Stream {
        rate: chunks as f64 * f64::from(CHUNK) * 1e3 / took as f64,
        placed: stats.segments_predicted as f64 / stats.segments_received.max(1) as f64,
        pause,
    })
}

/// The [`rate`](Stream::rate) of such a [`stream`] by itself.
#[must_use]
pub fn throughput(design: &Design, mtu: u32, chunks: u64) -> Option<f64> {
    stream(design, mtu, chunks).map(|stream| stream.rate)
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A request goes there, the block comes back.
    Read,
    /// The block goes there, and a word comes back.
    Write,
}

/// The protocol's request and reply, without the block.
const REQUEST: u32 = 28;
const REPLY: u32 = 16;

/// The traffic of a client.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// What it asks for.
    pub access: Access,
    /// Bytes of a block.
    pub block: u32,
    /// This many requests are on their way at a time.
    pub ahead: u64,
    /// This many are made.
    pub count: u64,
}

impl Traffic {
    /// Bytes of the messages to the server, and back.
    const fn lengths(&self) -> [u32; 2] {
        match self.access {
            Access::Read => [REQUEST, REPLY + self.block],
            Access::Write => [REQUEST + self.block, REPLY],
        }
    }
}

/// Millions of bytes of blocks in a second; nothing where they did not all come.
#[must_use]
pub fn block_throughput(design: &Design, mtu: u32, traffic: &Traffic) -> Option<f64> {
    let [there, back] = traffic.lengths();
    let all = traffic.count as usize * (there + back) as usize + (1 << 20);
    let mut shape = design.shape(mtu, all);
    shape.depth = u32::try_from(traffic.count).ok()?.max(1);
    shape.config.queue_depth = shape.depth;
    let mut world = World::<Carded>::new(1, &shape);
    let pairs = world.pair_up(true, 10_809, Mapping::Message);
    for id in 0..traffic.count {
        world.post_receive(0, pairs[0], id, &[back]);
        world.post_receive(1, pairs[1], id, &[there]);
    }
    world.run_for(Duration::from_millis(5));
    let started = world.now();
    let deadline = started + Duration::from_secs(10);
    let messages = [there, back].map(|len| pattern(1, len as usize));
    let (mut asked, mut answered) = (0, 0);
    loop {
        let done = received(&world, 0, pairs[0]);
        while asked < traffic.count.min(done + traffic.ahead) {
            world.send(0, pairs[0], asked, &messages[0], None).then_some(())?;
            asked += 1;
        }
        while answered < received(&world, 1, pairs[1]) {
            world.send(1, pairs[1], answered, &messages[1], None).then_some(())?;
            answered += 1;
        }
        if done == traffic.count {
            let took = world.now().since(started).as_nanos().max(1);
            return Some(traffic.count as f64 * f64::from(traffic.block) * 1e3 / took as f64);
        }
        world.step(deadline).then_some(())?;
    }
}

/// This many whole messages have come.
fn received(world: &World<Carded>, host: usize, pair: QueuePairId) -> u64 {
    let is_whole = |done: &&qpip::Completion| {
        done.queue_pair == pair && done.operation == Operation::Receive && done.ends_request
    };
    world.done(host).iter().filter(is_whole).count() as u64
}
