//! Adapters alone, in simulated time and with the costs of the papers: frames come at the
//! rate of the wire, or as fast as the adapter takes them; its host only listens.

use clan_dsm::native::ReceiveWindow;
use clan_dsm::offload::{self as shared, HostProgress, Secret};
use clan_dsm::{Address, HostId, Kind, NativeConfig, Nic, Rights, WHOLE, WORD};
use landfall_placement::{
    Area, Duration, Ecn, Instant, InternetSum, PathId, Peer, Random, RegionId, Serial32, Span,
    checksum,
};
use nic_firmware_model::clan::{self, Clan};
use nic_firmware_model::firmware::{Arrival, Firmware, HostMemory};
use nic_firmware_model::hamachi::{self, Entry, Hamachi, WhenOut};
use nic_firmware_model::lanai::{Helps, Lanai, LanaiSizes, LanaiTables, StageCosts};
use nic_firmware_model::machine::{
    Adapter, BusCosts, Coalescing, Costs, DmaCosts, Parts, Sizes, Store, Upcall,
};
use nic_firmware_model::tigon::{self, Cycles, Reports, Tables, Tigon};
use qpip::offload::{
    Addresses, Command as Order, Ends, HashSecret, OwnAddress, Places, Prediction, Report,
};
use spec_defrag::offload::Guess;
use stp_core::offload::{Block, Blocks, Command, Expected, bits_needed};
use stp_core::wire::{HEADER_LEN, Header, Op};
use zerocopy::IntoBytes;

const REGION: RegionId = RegionId::new(0, 1);
const MEMORY: usize = 1 << 20;
/// Bytes of payload in a frame.
const PAYLOAD: u32 = 1024;
const SIZES: Sizes =
    Sizes { arrivals: 32, departures: 4, frame: 1_514, orders: 128, reports: 256, buffers: 32 };

/// What is loaded into a firmware before this many frames come, again and again.
pub trait Load {
    /// It.
    type Firmware: Firmware;

    /// The next command before the frames; nothing once all is loaded. The last report
    /// that the host heard is shown.
    fn command(
        &mut self,
        heard: Option<&<Self::Firmware as Firmware>::Report>,
    ) -> Option<<Self::Firmware as Firmware>::Command>;

    /// The frames that come then.
    fn frames(&self) -> &[Vec<u8>];

    /// From whom.
    fn from(&self) -> Peer;
}

/// An adapter, what is loaded into it, and memory.
#[derive(Debug)]
pub struct AdapterPair<L: Load> {
    card: Adapter<'static, L::Firmware>,
    load: L,
    memory: Flat,
    heard: Option<<L::Firmware as Firmware>::Report>,
    /// From the beginning of a frame to that of the next.
    interval: Duration,
    now: Instant,
}

#[derive(Debug)]
struct Flat(Vec<u8>);

impl Flat {
    fn range(&self, span: Span) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(span.offset).ok()?;
        let end = start.checked_add(span.len as usize)?;
        (span.region == REGION && end <= self.0.len()).then_some(start..end)
    }
}

impl HostMemory for Flat {
    fn is_writable(&self, span: Span) -> bool {
        self.range(span).is_some()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        let Some(range) = self.range(span) else { return false };
        self.0[range].copy_from_slice(bytes);
        true
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        let Some(range) = self.range(span) else { return false };
        into.copy_from_slice(&self.0[range]);
        true
    }
}

impl<L: Load> AdapterPair<L> {
    fn new(firmware: L::Firmware, costs: Costs, load: L, interval: Duration) -> Self {
        let card = Adapter::new(firmware, Parts::owned(&SIZES), costs);
        let memory = Flat(vec![0; MEMORY]);
        Self { card, load, memory, heard: None, interval, now: Instant::from_millis(1) }
    }

    /// Loads the firmware, lets all frames come, and waits until the last is reported.
    /// Gives how many payloads were put in their place.
    pub fn round(&mut self) -> u64 {
        let before = self.card.counters().placed;
        while let Some(command) = self.load.command(self.heard.as_ref()) {
            while self.card.command(command).is_err() {
                self.wait();
            }
            self.settle();
        }
        for nth in 0..self.load.frames().len() {
            self.now += self.interval;
            loop {
                self.step();
                let (path, from, ecn) = (PathId(0), self.load.from(), Ecn::NotCapable);
                let bytes = &self.load.frames()[nth];
                let frame = Arrival { bytes, path, from, ecn };
                if self.card.arrive(self.now, &frame).is_ok() {
                    break;
                }
                self.wait();
            }
        }
        self.settle();
        self.card.counters().placed - before
    }

    /// Nothing moves before the next thing that is due.
    fn wait(&mut self) {
        let due = self.card.poll_timeout();
        self.now = self.now.max(due.unwrap_or(self.now + self.interval));
        self.step();
    }

    /// Until nothing is due any more.
    fn settle(&mut self) {
        self.step();
        while self.card.poll_timeout().is_some() {
            self.wait();
        }
    }

    fn step(&mut self) {
        self.card.run(self.now, &mut self.memory);
        let _ = self.card.poll_interrupt(self.now);
        while self.card.departure().is_some() {
            self.card.departed();
        }
        while let Some(upcall) = self.card.poll_upcall() {
            match upcall {
                Upcall::Report(report) => self.heard = Some(report),
                Upcall::Frame(buffer) => self.card.give_back(buffer),
            }
        }
    }
}

// ---- STP ----------------------------------------------------------------------

/// STUs of one Block, which is closed and opened again for each round.
#[derive(Debug)]
pub struct TigonLoad {
    blocks: [Block; 1],
    bits: Vec<u64>,
    frames: Vec<Vec<u8>>,
    stage: u8,
}

const STUS: u16 = 256;
const KEY: u32 = 7;

impl AdapterPair<TigonLoad> {
    /// A Tigon-II that places STUs of 1024 bytes.
    #[must_use]
    pub fn tigon() -> Self {
        let habits =
            tigon::Config { checksum: false, reports: Reports::Gathered, cycles: Cycles::TIGON };
        let firmware = Tigon::new(Tables::owned(4, STUS), habits);
        let bits = vec![0; bits_needed(1, STUS)];
        let load = TigonLoad { blocks: [Block::default()], bits, frames: Vec::new(), stage: 0 };
        Self::new(firmware, tigon::COSTS, load, on_wire(1, PAYLOAD + HEADER_LEN as u32 + 14))
    }
}

impl TigonLoad {
    /// A Block that is the next one in the same place, and its STUs.
    fn renew(&mut self) {
        let mut blocks = Blocks::new(&mut self.blocks, &mut self.bits, STUS);
        blocks.close(0);
        let expected = Expected { key: KEY, peer: Peer::Node(1), ..Expected::default() };
        let memory = REGION.span(0, u32::from(STUS) * PAYLOAD);
        assert!(blocks.open(0, expected, 0, memory, PAYLOAD as u16), "its place is free");
        blocks.grant(0, STUS);
        let bufx = blocks.block(0).map_or(0, |block| block.bufx(0));
        self.frames.resize_with(usize::from(STUS), || vec![0; HEADER_LEN + PAYLOAD as usize]);
        for (stu, frame) in (0u32..).zip(&mut self.frames) {
            let header = Header {
                op: Op::Data as u8,
                d_key: KEY.into(),
                bufx: bufx.into(),
                offset: (stu * PAYLOAD).into(),
                ..Header::default()
            };
            frame[..HEADER_LEN].copy_from_slice(header.as_bytes());
        }
    }
}

impl Load for TigonLoad {
    type Firmware = Tigon<'static>;

    fn command(&mut self, _heard: Option<&stp_core::offload::Report>) -> Option<Command> {
        let generation = self.blocks[0].generation();
        self.stage = (self.stage + 1) % 3;
        match self.stage {
            1 => Some(Command::Close { index: 0, generation }),
            2 => {
                self.renew();
                Some(Command::Open { index: 0, block: self.blocks[0] })
            }
            _ => None,
        }
    }

    fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }

    fn from(&self) -> Peer {
        Peer::Node(1)
    }
}

// ---- QPIP ---------------------------------------------------------------------

/// Segments of a connection, which is entered again for each round.
#[derive(Debug)]
pub struct LanaiLoad {
    frames: Vec<Vec<u8>>,
    stage: u8,
}

const LOCAL: [u8; 4] = [10, 0, 0, 1];
const REMOTE: [u8; 4] = [10, 0, 0, 2];
const FIRST: u32 = 1_000;
const SEGMENTS: u32 = 64;

impl AdapterPair<LanaiLoad> {
    /// A LANai 9 that places segments of 1024 bytes.
    #[must_use]
    pub fn lanai() -> Self {
        let tables = LanaiTables::owned(
            LanaiSizes { entries: 16, pointers: 32, mappings: 16, routes: 16 },
            HashSecret::new(1, 2),
        );
        let helps = Helps { checksum: true, ..Helps::default() };
        let firmware = Lanai::new(tables, StageCosts::PAPER, helps);
        let interrupts = Coalescing::After { time: Duration::ZERO, reports: 1 };
        let (clock, bus) = (StageCosts::CLOCK, BusCosts::PCI_64_33);
        let costs = Costs { clock, bus, interrupts, ..Costs::OFF };
        let frames = (0..SEGMENTS).map(|nth| segment(FIRST + nth * PAYLOAD)).collect();
        let load = LanaiLoad { frames, stage: 0 };
        Self::new(firmware, costs, load, on_wire(2, PAYLOAD + 54))
    }
}

impl Load for LanaiLoad {
    type Firmware = Lanai<'static>;

    fn command(&mut self, heard: Option<&Report>) -> Option<Order> {
        let (slot, path) = (0, PathId(0));
        self.stage = (self.stage + 1) % 5;
        match self.stage {
            1 => {
                let addresses =
                    Addresses::of(&[OwnAddress::new(LOCAL.into(), 24)]).unwrap_or_default();
                Some(Order::Station { path, station: [2; 6], addresses })
            }
            2 => Some(Order::Close { slot, mark: 1 }),
            3 => {
                let ends = Ends::new((LOCAL, 80).into(), (REMOTE, 1024).into());
                Some(Order::Open { slot, mark: 2, ends, path })
            }
            4 => {
                let Some(Report::Quiet { heard, .. }) = heard else { return None };
                let mut places = Places::new();
                places.push(REGION.span(0, SEGMENTS * PAYLOAD), true);
                let next = Prediction {
                    expected: FIRST,
                    edge: FIRST + 2 * SEGMENTS * PAYLOAD,
                    acknowledged: 500,
                    sent: 600,
                    recent: None,
                    has_messages: false,
                    course: 0,
                    places,
                };
                Some(Order::Arm { slot, mark: 3, heard: *heard, next })
            }
            _ => None,
        }
    }

    fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }

    fn from(&self) -> Peer {
        Peer::Unaddressed
    }
}

/// A segment of TCP over IPv4 in an Ethernet frame.
fn segment(sequence: u32) -> Vec<u8> {
    let mut bytes = vec![2; 6];
    bytes.extend([4; 6]);
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((40 + PAYLOAD as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    bytes.extend(REMOTE);
    bytes.extend(LOCAL);
    let sum = checksum::checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(1024u16.to_be_bytes());
    bytes.extend(80u16.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(500u32.to_be_bytes());
    bytes.extend([0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + PAYLOAD as usize, 7);
    let mut sum = InternetSum::new();
    sum.add(&bytes[26..]);
    sum.add_word(6);
    sum.add_word(20 + PAYLOAD as u16);
    bytes[50..52].copy_from_slice(&sum.checksum().to_be_bytes());
    bytes
}

// ---- Speculative defragmentation ----------------------------------------------

/// A list of descriptors for each round.
#[derive(Debug)]
pub struct HamachiLoad {
    frames: Vec<Vec<u8>>,
    list: u32,
    loaded: Option<u16>,
}

const DESCRIPTORS: u16 = 96;

impl AdapterPair<HamachiLoad> {
    /// A Hamachi that puts frames behind descriptors.
    #[must_use]
    pub fn hamachi() -> Self {
        let entries = Store::filled_with(usize::from(DESCRIPTORS), Entry::new);
        let costs = Costs {
            dma: DmaCosts { setup: Duration::from_micros(1), rate: 0, gap: Duration::ZERO },
            bus: BusCosts::PCI_64_33,
            interrupts: Coalescing::After { time: Duration::from_micros(100), reports: 256 },
            ..Costs::OFF
        };
        let frames = vec![vec![7; PAYLOAD as usize + 34]; usize::from(DESCRIPTORS)];
        let load = HamachiLoad { frames, list: 0, loaded: None };
        Self::new(Hamachi::new(entries, WhenOut::Whole), costs, load, on_wire(1, PAYLOAD + 34))
    }
}

impl Load for HamachiLoad {
    type Firmware = Hamachi<'static>;

    fn command(&mut self, _heard: Option<&hamachi::Report>) -> Option<hamachi::Command> {
        let Some(nth) = self.loaded else {
            self.list += 1;
            self.loaded = Some(0);
            let (len, interrupt_after) = (DESCRIPTORS, DESCRIPTORS);
            return Some(hamachi::Command::Begin { list: self.list, len, interrupt_after });
        };
        if nth == DESCRIPTORS {
            self.loaded = None;
            return None;
        }
        self.loaded = Some(nth + 1);
        let at = u64::from(nth) * 2_048;
        let buffers = [
            REGION.span(at, 34),
            REGION.span(at + 64, PAYLOAD),
            REGION.span(at + 64 + u64::from(PAYLOAD), 512),
        ];
        Some(hamachi::Command::Load { list: self.list, buffers, guess: Guess::None })
    }

    fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }

    fn from(&self) -> Peer {
        Peer::Unaddressed
    }
}

// ---- CLAN ---------------------------------------------------------------------

/// Bursts into an aperture whose last word is watched, of a link that begins anew for each
/// round.
#[derive(Debug)]
pub struct ClanLoad {
    expose: shared::Command,
    frames: Vec<Vec<u8>>,
    session: u32,
    stage: u8,
}

const BURSTS: u32 = 64;
/// Words that the host has room for: more than the bursts of a round.
const ROOM: u32 = 16_384;

impl AdapterPair<ClanLoad> {
    /// A CLAN adapter that puts bursts of 128 words into an aperture, and says after every
    /// 4,096 how far the other end may send.
    ///
    /// # Panics
    /// Where a host of CLAN exposes no memory.
    #[must_use]
    pub fn clan() -> Self {
        let host = HostId::new(1).expect("a number of a host");
        let native = NativeConfig { adapter: true, ..NativeConfig::default() };
        let config = clan_dsm::Config { native: Some(native), ..clan_dsm::Config::default() };
        let mut nic = Nic::new(config, host, [1; 32]).unwrap();
        let area = Area::new(REGION, 0, u64::from(BURSTS * PAYLOAD));
        let id = nic.expose(area).expect("room for an aperture");
        let cookie = nic.cookie(id, Rights::Write).expect("its cookie");
        let is_exposed = |command: &shared::Command| matches!(command, shared::Command::Expose { slot, .. } if *slot == cookie.slot());
        let mut commands = core::iter::from_fn(|| nic.poll_command());
        let expose = commands.find(is_exposed).expect("the adapter is told of it");
        let frames = (0..BURSTS).map(|nth| {
            let address = Address {
                kind: Kind::Burst,
                host,
                slot: cookie.slot(),
                word: nth * PAYLOAD / WORD,
                mask: WHOLE,
                key: cookie.key(),
            };
            let mut bytes = address.to_bytes().to_vec();
            bytes.resize(bytes.len() + PAYLOAD as usize, 7);
            bytes
        });
        let load = ClanLoad { expose, frames: frames.collect(), session: 0, stage: 0 };
        let mut random = Random::from_number(1);
        let tables = clan::Tables::owned(&clan::Entries::default(), Secret::new(&mut random));
        let habits = clan::Config { cycles: clan::Cycles::CLAN, ..clan::Config::new(host, ROOM) };
        Self::new(Clan::new(tables, habits), clan::COSTS, load, on_wire(1, PAYLOAD + 16))
    }
}

impl Load for ClanLoad {
    type Firmware = Clan<'static>;

    fn command(&mut self, _heard: Option<&shared::Report>) -> Option<shared::Command> {
        self.stage = (self.stage + 1) % 4;
        match self.stage {
            1 => Some(self.expose),
            2 => {
                let shared::Command::Expose { slot, .. } = self.expose else { return None };
                let last = BURSTS * PAYLOAD / WORD - 1;
                Some(shared::Command::Watch { number: 0, slot, first: last, last })
            }
            3 => {
                self.session += 1;
                let window = Some(ReceiveWindow { arrived: Serial32(0), edge: Serial32(ROOM) });
                let line =
                    HostProgress { session: self.session, window, ..HostProgress::default() };
                Some(shared::Command::HostProgress(line))
            }
            _ => None,
        }
    }

    fn frames(&self) -> &[Vec<u8>] {
        &self.frames
    }

    fn from(&self) -> Peer {
        Peer::Unaddressed
    }
}

/// How long a frame of this many bytes takes at this many gigabits in a second, with what is
/// around it on an Ethernet.
fn on_wire(gigabits: u64, bytes: u32) -> Duration {
    Duration::from_nanos(u64::from(bytes + 24) * 8 / gigabits)
}
