//! What the model has beside the paper's round trips, its throughputs and its network block
//! device (a client that reads or writes one block after another, and a server that has them
//! all in memory): two hosts in a simulated network, frame by frame, whose TCP runs on the
//! card's processor or on the host's ([`Paced`]). Tables 2 and 3 are what a frame costs the
//! card, Table 1 what a message or a packet costs the host. The costs are the caller's.

use core::time::Duration;

use landfall_placement::Instant;
use landfall_simnet::LinkConfig;
use qpip::{Mapping, Operation, QueuePairId};

use super::model::{Build, Network, Paced, Shape, Site, World, pattern};
use super::stages::{Account, Helps, Load, Paper, StageCosts};
use super::switch::SwitchDesign;
use crate::firmware::{Meter, Stage};
use crate::machine::{BusCosts, Costs, Sizes};
use crate::runs;

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
    /// What the programs spend on a message, at both ends together: half of it each.
    pub host: Duration,
    /// Where TCP runs.
    pub site: Site,
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
        site: Site::Card,
    };

    /// The same with the checksum in firmware.
    #[must_use]
    pub const fn with_firmware_checksum(mut self) -> Self {
        self.helps.checksum = false;
        self
    }

    /// What a program spends at its end of a message.
    fn message(&self) -> Duration {
        self.host / 2
    }

    fn shape(&self, mtu: u32, memory: usize) -> Shape {
        let costs = Costs { clock: self.clock, bus: self.bus, ..Costs::OFF };
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
            site: self.site,
            ..Build::default()
        };
        shape
    }
}

/// So much of the SRAM is slots for frames that came.
pub(crate) const SLOTS: u32 = 768 << 10;
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

fn rows(clock: u64, stages: &[Paper], spent: impl Fn(Load) -> Account) -> Vec<Occupancy> {
    let [data, ack] = [Load::Segment { payload: 1, is_news: false }, Load::Bare].map(spent);
    let micros = |account: &Account, stage| account.cycles(stage) as f64 * 1e6 / clock as f64;
    let row = |stage: &Paper| Occupancy {
        stage: *stage,
        data: micros(&data, *stage),
        ack: micros(&ack, *stage),
    };
    stages.iter().map(row).collect()
}

/// Table 2: what the transmit side is charged for a frame with a byte of data, and for an
/// acknowledgement.
#[must_use]
pub fn transmit_side(design: &Design) -> Vec<Occupancy> {
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
    rows(design.clock, &stages, |load| {
        let mut account = Account::default();
        design.stages.send(&design.helps, load, &mut account, &mut Free);
        account
    })
}

/// Table 3: what the receive side is charged for a segment with a byte of data, and for an
/// acknowledgement.
#[must_use]
pub fn receive_side(design: &Design) -> Vec<Occupancy> {
    let stages = [
        Paper::Doorbell,
        Paper::MediaReceive,
        Paper::ParseIp,
        Paper::ParseTransport,
        Paper::GetRequest,
        Paper::PutData,
        Paper::UpdateReceived,
    ];
    rows(design.clock, &stages, |load| {
        let mut account = Account::default();
        let len = StageCosts::BARE + 1;
        design.stages.receive_all(&design.helps, (load, len), &mut account, &mut Free);
        account
    })
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
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(10);
/// How long connections take to be there.
const SETTLING: Duration = Duration::from_millis(5);

/// Two hosts, and the programs on them.
struct Pair {
    world: World<Paced>,
    pairs: [QueuePairId; 2],
    deadline: Instant,
}

impl Pair {
    /// With a connection, on links of this MTU, and memory and room for its requests.
    fn connected(
        design: &Design,
        mtu: u32,
        mapping: Mapping,
        (bytes, depth): (usize, u64),
    ) -> Self {
        let mut shape = design.shape(mtu, bytes + (1 << 20));
        shape.depth = (depth as u32).max(1);
        shape.config.queue_depth = shape.depth;
        let mut world = World::new(1, &shape);
        let pairs = world.pair_up(true, 10_809, mapping);
        Self { world, pairs, deadline: Instant::ZERO }
    }

    /// All is set up; nothing may take longer than the [`LIMIT`] from now on.
    fn begin(&mut self) -> Began {
        self.world.run_for(SETTLING);
        self.deadline = self.world.now() + LIMIT;
        let busy = [0, 1].map(|host| self.world.node(host).busy());
        Began { at: self.world.now(), busy }
    }

    /// Since then: how long it is, and which share of it each host's processor was busy.
    fn since(&mut self, began: &Began) -> (Duration, [f64; 2]) {
        let took = self.world.now().since(began.at).max(Duration::from_nanos(1));
        let busy = [0, 1].map(|host| {
            let busy = self.world.node(host).busy() - began.busy[host];
            busy.as_secs_f64() / took.as_secs_f64()
        });
        (took, busy)
    }

    /// The next thing happens; nothing where there is none.
    fn step(&mut self) -> Option<()> {
        self.world.step(self.deadline).then_some(())
    }

    /// This many whole messages have come.
    fn received(&self, host: usize) -> u64 {
        let is_whole = |done: &&qpip::Completion| {
            done.queue_pair == self.pairs[host]
                && done.operation == Operation::Receive
                && done.ends_request
        };
        self.world.done(host).iter().filter(is_whole).count() as u64
    }

    /// A program works for so long, and waits until that is over.
    fn work(&mut self, host: usize, time: Duration) -> Option<()> {
        self.world.node(host).ask(0, time);
        while self.world.node(host).poll_done().is_none() {
            self.step()?;
        }
        Some(())
    }

    /// No frame was lost: the network of the paper does not lose, and nor do its cards.
    fn is_whole(&mut self) -> bool {
        (0..2).all(|host| self.world.node(host).lost() == 0)
    }
}

/// When something began, and how busy each host's processor had been until then.
struct Began {
    at: Instant,
    busy: [Duration; 2],
}

/// How long a message of one byte takes from one program to another and back, in
/// microseconds; nothing where it did not come back.
#[must_use]
pub fn round_trip(design: &Design, protocol: Protocol) -> Option<f64> {
    runs::once("lanai round_trip", &(design, protocol), || run_round_trip(design, protocol))
}

fn run_round_trip(design: &Design, protocol: Protocol) -> Option<f64> {
    let mut pair = Pair::connected(design, 16_384 + 100, Mapping::Segment, (0, 64));
    let mut to = None;
    if protocol == Protocol::Udp {
        pair.pairs = [0, 1].map(|host| pair.world.bound(host, true, 9, false));
        to = Some((true, 9));
    }
    let mut began = pair.begin();
    for round in 0..ROUNDS + 2 {
        // The first two warm what the engine knows of round trips.
        if round == 2 {
            began.at = pair.world.now();
        }
        for host in [0, 1] {
            let other = 1 - host;
            pair.world.post_receive(other, pair.pairs[other], round, &[64]);
            pair.work(host, design.message())?;
            let message = [round as u8];
            pair.world.send(host, pair.pairs[host], round, &message, to).then_some(())?;
            while pair.received(other) <= round {
                pair.step()?;
            }
            pair.work(other, design.message())?;
        }
    }
    Some(pair.since(&began).0.as_nanos() as f64 / 1e3 / ROUNDS as f64)
}

/// The chunks of the benchmark.
pub const CHUNK: u32 = 16 << 10;
/// This many of them are the 10 MB of the benchmark.
pub const CHUNKS: u64 = 640;

/// What came of sending a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Millions of bytes in a second, over the whole run: from the moment at which all of
    /// it was asked for until the last byte was there.
    pub rate: f64,
    /// Which share of the run the processor of each host was busy: the sender's, the
    /// receiver's.
    pub busy: [f64; 2],
    /// The longest that nothing came.
    pub pause: Duration,
}

/// A program sends chunks of 16 KiB to another, over a connection on links of this MTU;
/// nothing where they did not come.
#[must_use]
pub fn stream(design: &Design, mtu: u32, chunks: u64) -> Option<Stream> {
    runs::once("lanai stream", &(design, mtu, chunks), || run_stream(design, mtu, chunks))
}

fn run_stream(design: &Design, mtu: u32, chunks: u64) -> Option<Stream> {
    let bytes = chunks as usize * CHUNK as usize;
    let mut pair = Pair::connected(design, mtu, Mapping::Message, (bytes, chunks));
    for chunk in 0..chunks {
        pair.world.post_receive(1, pair.pairs[1], chunk, &[CHUNK]);
    }
    let began = pair.begin();
    let bytes = pattern(1, CHUNK as usize);
    for chunk in 0..chunks {
        pair.world.node(0).ask(chunk, design.message());
    }
    let (mut before, mut pause, mut came) = (began.at, Duration::ZERO, 0);
    while came < chunks {
        while let Some(chunk) = pair.world.node(0).poll_done() {
            pair.world.send(0, pair.pairs[0], chunk, &bytes, None).then_some(())?;
        }
        while came < pair.received(1) {
            came += 1;
            pair.world.node(1).ask(came, design.message());
            let now = pair.world.now();
            pause = pause.max(now.since(before));
            before = now;
        }
        if came < chunks {
            pair.step()?;
        }
    }
    let (took, busy) = pair.since(&began);
    let rate = chunks as f64 * f64::from(CHUNK) * 1e3 / took.as_nanos() as f64;
    pair.is_whole().then_some(Stream { rate, busy, pause })
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
    /// What the filesystem above spends on a block, on the client's processor.
    pub filesystem: Duration,
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

/// What a client got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocks {
    /// Millions of bytes of blocks in a second.
    pub rate: f64,
    /// Which share of the run the client's processor was busy.
    pub busy: f64,
}

impl Blocks {
    /// Millions of bytes for a second of the client's processor.
    #[must_use]
    pub fn effect(&self) -> f64 {
        self.rate / self.busy
    }
}

/// A client of a network block device and its server; nothing where the blocks did not all
/// come.
#[must_use]
pub fn blocks(design: &Design, mtu: u32, traffic: &Traffic) -> Option<Blocks> {
    runs::once("lanai blocks", &(design, mtu, traffic), || run_blocks(design, mtu, traffic))
}

fn run_blocks(design: &Design, mtu: u32, traffic: &Traffic) -> Option<Blocks> {
    let [there, back] = traffic.lengths();
    let all = traffic.count as usize * (there + back) as usize;
    let mut pair = Pair::connected(design, mtu, Mapping::Message, (all, traffic.count));
    let pairs = pair.pairs;
    for id in 0..traffic.count {
        pair.world.post_receive(0, pairs[0], id, &[back]);
        pair.world.post_receive(1, pairs[1], id, &[there]);
    }
    let began = pair.begin();
    let messages = [there, back].map(|len| pattern(1, len as usize));
    let (mut asked, mut heard, mut answered) = (0, 0, 0);
    // A client's request and its answer are two messages of its program.
    let request = design.message() * 2 + traffic.filesystem;
    while heard < traffic.count {
        heard = pair.received(0);
        while asked < traffic.count.min(heard + traffic.ahead) {
            pair.world.node(0).ask(asked, request);
            asked += 1;
        }
        while answered < pair.received(1) {
            pair.world.node(1).ask(answered, design.message() * 2);
            answered += 1;
        }
        for host in [0, 1] {
            while let Some(id) = pair.world.node(host).poll_done() {
                pair.world.send(host, pairs[host], id, &messages[host], None).then_some(())?;
            }
        }
        if heard < traffic.count {
            pair.step()?;
        }
    }
    let (took, busy) = pair.since(&began);
    let bytes = traffic.count as f64 * f64::from(traffic.block);
    let rate = bytes * 1e3 / took.as_nanos() as f64;
    pair.is_whole().then_some(Blocks { rate, busy: busy[0] })
}
