//! QPIP at work: a connection between two queue pairs, messages that are posted,
//! sent, received in place and reaped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, bail, ensure};
use landfall_placement::{Area, Duration, Engine, Instant, PathState, RegionId, Seed};
use landfall_testbed::VethPair;
use landfall_transport::memory::{Memory, Regions};
use qpip::{
    Access, Adapter, Buffer, Completion, CompletionQueueId, Config, DomainId, Event, Interface,
    Mapping, MemoryKey, Operation, QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service,
    Status, TcpConfig,
};

use super::bulk::Shape;
use super::transport::{Role, station};
use super::{HasEngine, Pattern, Route, Sink, SlotLayout, Source, TalkMemory, Talker, Workload};

/// Both sides use this port, by which a packet filter knows their frames.
const PORT: u16 = 7000;
/// All stations of this program share a link.
const PREFIX: u8 = 24;

/// Who a side is: a station with one address.
#[derive(Clone, Copy, Debug)]
pub struct Station {
    pub(crate) mac: [u8; 6],
    pub(crate) ip: Ipv4Addr,
}

/// Makes the two ends of a connection, with work.
#[derive(Clone, Copy, Debug)]
pub struct QpipWork {
    /// The sender or who asks, and the other.
    pub stations: [Station; 2],
    pub(crate) mapping: Mapping,
    pub(crate) seed: Seed,
}

impl QpipWork {
    /// Messages between two stations of their own at the ends of a cable.
    pub fn over(pair: &VethPair) -> Self {
        let stations = [&pair.a, &pair.b].map(|end| {
            let found = station(end);
            Station { mac: found.mac, ip: found.ip }
        });
        Self { stations, mapping: Mapping::Message, seed: [5; 32] }
    }

    /// The same on a link of which nobody else is part.
    pub const fn alone() -> Self {
        const fn nth(n: u8) -> Station {
            Station { mac: [2, b'l', b'f', 0, 0, n], ip: Ipv4Addr::new(10, 79, 0, n) }
        }
        Self { stations: [nth(1), nth(2)], mapping: Mapping::Message, seed: [5; 32] }
    }

    /// Messages of this length through memory that a cache of the second or
    /// third level holds, as a socket's buffer and a loop's would.
    pub const fn shape(message: usize) -> Shape {
        const ROOM: usize = 4 << 20;
        /// As deep as a queue is allowed to be, with room for both directions.
        const MOST: usize = 256;
        let slots = if ROOM / message < MOST { ROOM / message } else { MOST };
        Shape { message, send_slots: slots, receive_slots: slots - 1 }
    }

    /// The other side, as this one knows it.
    fn other(&self, role: Role) -> SocketAddr {
        SocketAddr::new(self.stations[1 - role as usize].ip.into(), PORT)
    }

    /// An adapter with one queue pair, whose queues are so deep.
    pub fn host(&self, route: Route, role: Role, depth: u64) -> Result<Host> {
        let (own, other) = (self.stations[role as usize], self.stations[1 - role as usize]);
        let mut seed = self.seed;
        seed[31] ^= role as u8;
        let tcp = TcpConfig { least_timeout: Duration::from_millis(200), ..TcpConfig::default() };
        let mut adapter = Adapter::new(Config { tcp, ..Config::default() }, seed);
        let interface = Interface {
            mac: own.mac,
            addresses: vec![(own.ip.into(), PREFIX)],
            gateways: Vec::new(),
            neighbours: vec![(other.ip.into(), other.mac)],
        };
        adapter.add_interface(route.path, interface)?;
        adapter.handle_path(Instant::ZERO, route.path, PathState::Up(route.limits));
        let domain = adapter.create_domain()?;
        let depth = u32::try_from(depth)?;
        let completions = adapter.create_completion_queue(2 * depth)?;
        let pair = adapter.create_queue_pair(&QueuePairSetup {
            domain,
            send_completions: completions,
            receive_completions: completions,
            service: Service::Tcp(self.mapping),
            send_depth: depth,
            receive_depth: depth,
        })?;
        Ok(Host { adapter, domain, completions, pair, own: own.ip.into(), has_ended: false })
    }
}

/// An adapter with one queue pair.
#[derive(Debug)]
pub struct Host {
    pub(crate) adapter: Adapter,
    domain: DomainId,
    completions: CompletionQueueId,
    pub(crate) pair: QueuePairId,
    own: IpAddr,
    /// The other side sends no more.
    pub has_ended: bool,
}

impl Host {
    /// Where it connects from, or listens.
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(self.own, PORT)
    }

    fn register(&mut self, region: RegionId, len: u64) -> Result<MemoryKey> {
        let area = Area::new(region, 0, len);
        Ok(self.adapter.register(self.domain, area, Access::ReadWrite)?)
    }

    pub(crate) fn connect(&mut self, to: SocketAddr) -> Result<()> {
        Ok(self.adapter.connect(Instant::ZERO, self.pair, Some(self.address()), to)?)
    }

    pub(crate) fn listen(&mut self) -> Result<()> {
        let listener = self.adapter.listen(self.address())?;
        Ok(self.adapter.offer(listener, self.pair)?)
    }

    fn post_receive(&mut self, id: u64, into: Buffer) -> Result<()> {
        let work = ReceiveWork { id, into: &[into] };
        Ok(self.adapter.post_receive(Instant::ZERO, self.pair, &work)?)
    }

    fn post_send(&mut self, now: Instant, id: u64, from: Buffer) -> Result<()> {
        let work = SendWork { id, from: &[from], to: None };
        Ok(self.adapter.post_send(now, self.pair, &work)?)
    }

    /// The next request that is done, and done well. Those that are left over
    /// when the other side has ended are not counted.
    #[inline]
    fn reap(&mut self) -> Result<Option<Completion>> {
        while let Some(done) = self.adapter.poll(self.completions) {
            if done.status == Status::Flushed && self.has_ended {
                continue;
            }
            ensure!(done.status.is_success(), "request {}: {}", done.id, done.status);
            return Ok(Some(done));
        }
        Ok(None)
    }

    fn sort_events(&mut self) -> Result<()> {
        while let Some(event) = self.adapter.poll_event() {
            match event {
                Event::Connected { .. } | Event::Accepted { .. } => {}
                Event::PeerFinished { .. } => self.has_ended = true,
                other => bail!("a host was told {other:?}"),
            }
        }
        Ok(())
    }
}

impl Workload for QpipWork {
    type Source = QpipSource;
    type Sink = QpipSink;
    type Talker = QpipTalker;

    fn source(&self, route: Route, layout: SlotLayout) -> Result<QpipSource> {
        QpipSource::new(self, route, layout, self.other(Role::Send))
    }

    fn sink(&self, route: Route, layout: SlotLayout) -> Result<QpipSink> {
        QpipSink::new(self, route, layout)
    }

    fn talker(&self, route: Route, regions: &Regions, memory: TalkMemory) -> Result<QpipTalker> {
        let mut host = self.host(route, memory.role, TalkMemory::SLOTS)?;
        let key = host.register(memory.region, TalkMemory::ROOM as u64)?;
        for nth in 0..TalkMemory::SLOTS {
            host.post_receive(nth, buffer(key, memory.inward(nth)))?;
        }
        match memory.role {
            Role::Send => host.connect(self.other(Role::Send))?,
            Role::Receive => host.listen()?,
        }
        let regions = regions.clone();
        Ok(QpipTalker { host, key, regions, memory, said: 0, done: 0, waiting: None })
    }
}

fn buffer(key: MemoryKey, area: Area) -> Buffer {
    Buffer::new(key, area.offset, area.len as u32)
}

/// Sends slot after slot.
#[derive(Debug)]
pub struct QpipSource {
    pub(crate) host: Host,
    key: MemoryKey,
    layout: SlotLayout,
    offered: u64,
    done: u64,
}

impl QpipSource {
    /// It will send to there.
    pub fn new(work: &QpipWork, route: Route, layout: SlotLayout, to: SocketAddr) -> Result<Self> {
        let mut host = work.host(route, Role::Send, layout.slots)?;
        let key = host.register(layout.region, layout.slots * layout.message)?;
        host.connect(to)?;
        Ok(Self { host, key, layout, offered: 0, done: 0 })
    }
}

impl HasEngine for QpipSource {
    type Engine = Adapter;

    fn engine(&mut self) -> &mut Adapter {
        &mut self.host.adapter
    }
}

impl Source for QpipSource {
    fn step(&mut self, now: Instant, until: u64) -> Result<()> {
        self.host.sort_events()?;
        while let Some(done) = self.host.reap()? {
            let in_turn = done.operation == Operation::Send && done.id == self.done;
            ensure!(in_turn, "the sender reaped {done:?} after {} messages", self.done);
            self.done += 1;
        }
        while self.offered < until && self.offered - self.done < self.layout.slots {
            let from = buffer(self.key, self.layout.area(self.offered));
            self.host.post_send(now, self.offered, from)?;
            self.offered += 1;
        }
        Ok(())
    }

    fn offered(&self) -> u64 {
        self.offered
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn retransmitted(&self) -> u64 {
        let stats = self.host.adapter.connection_stats(self.host.pair);
        stats.map_or(0, |stats| stats.segments_again)
    }
}

/// Receives into slot after slot, each of which takes one message; of a byte
/// stream, as much as it has room for.
#[derive(Debug)]
pub struct QpipSink {
    pub(crate) host: Host,
    key: MemoryKey,
    layout: SlotLayout,
    received: u64,
    bytes: u64,
    /// The message that each slot holds, unless it was posted again: then a
    /// guess may write anything there.
    holds: Vec<Option<u64>>,
    comparing: Option<Comparing>,
    compared: u64,
}

/// Slots are compared before they are posted again.
#[derive(Debug)]
struct Comparing {
    regions: Regions,
    /// How long the sender's messages are, and how many slots it has. Of a byte
    /// stream several of them may lie in one slot here.
    sent: (usize, u64),
    bytes: Vec<u8>,
}

impl QpipSink {
    /// Who connects will send.
    pub fn new(work: &QpipWork, route: Route, layout: SlotLayout) -> Result<Self> {
        let mut host = work.host(route, Role::Receive, layout.slots)?;
        let key = host.register(layout.region, layout.slots * layout.message)?;
        let holds = vec![None; layout.slots as usize];
        let mut sink =
            Self { host, key, layout, received: 0, bytes: 0, compared: 0, holds, comparing: None };
        for slot in 0..layout.slots {
            sink.post(slot)?;
        }
        sink.host.listen()?;
        Ok(sink)
    }

    /// From now on each message is compared with what was sent, at once: where a
    /// sender does not wait, there is no end at which all slots could stay as
    /// they are.
    pub fn compare(&mut self, regions: &Regions, sent: (usize, u64)) {
        if self.comparing.is_none() {
            let bytes = vec![0; self.layout.message as usize];
            self.comparing = Some(Comparing { regions: regions.clone(), sent, bytes });
        }
    }

    /// Has a message been compared?
    pub const fn has_compared(&self) -> bool {
        self.compared > 0
    }

    fn look_at(&mut self, slot: u64, message: u64) -> Result<()> {
        let Some(Comparing { regions, sent, bytes }) = &mut self.comparing else { return Ok(()) };
        let area = self.layout.area(slot);
        regions.read(&area.span(0, area.len as u32), bytes)?;
        self.compared += 1;
        let (piece, slots) = *sent;
        let first = message * (bytes.len() / piece) as u64;
        let mut pieces = (first..).zip(bytes.chunks(piece));
        pieces.try_for_each(|(nth, piece)| check_message(nth, slots, piece))
    }

    fn post(&mut self, slot: u64) -> Result<()> {
        self.holds[slot as usize] = None;
        let area = self.layout.area(slot);
        self.host.post_receive(slot, buffer(self.key, area))
    }
}

impl HasEngine for QpipSink {
    type Engine = Adapter;

    fn engine(&mut self) -> &mut Adapter {
        &mut self.host.adapter
    }
}

impl Sink for QpipSink {
    fn step(&mut self, repost: bool) -> Result<u64> {
        self.host.sort_events()?;
        let before = self.bytes;
        while let Some(done) = self.host.reap()? {
            self.bytes += u64::from(done.len);
            if !done.ends_request {
                continue;
            }
            let slot = self.received % self.layout.slots;
            let is_full = self.bytes == (self.received + 1) * self.layout.message;
            if self.host.has_ended && !is_full {
                // A byte stream ends anywhere.
                continue;
            }
            ensure!(done.id == slot && is_full, "{done:?} after {} messages", self.received);
            self.look_at(slot, self.received)?;
            self.holds[slot as usize] = Some(self.received);
            self.received += 1;
            if repost && !self.host.has_ended {
                self.post(slot)?;
            }
        }
        Ok(self.bytes - before)
    }

    fn delivered(&self) -> u64 {
        self.received
    }

    fn check(&self, memory: &Memory, sent: SlotLayout) -> Result<u64> {
        let mut compared = 0;
        for (slot, bytes) in memory.chunks(self.layout.message as usize).enumerate() {
            let Some(message) = self.holds[slot] else { continue };
            check_message(message, sent.slots, bytes)?;
            compared += bytes.len() as u64;
        }
        ensure!(compared > 0, "no message was there to be compared");
        Ok(compared)
    }
}

/// Is it what a sender with so many slots sends?
fn check_message(message: u64, slots: u64, bytes: &[u8]) -> Result<()> {
    match Pattern(message % slots).first_difference(bytes) {
        Some(at) => bail!("message {message} is wrong from its byte {at} on"),
        None => Ok(()),
    }
}

/// Talks in short messages.
#[derive(Debug)]
pub struct QpipTalker {
    host: Host,
    key: MemoryKey,
    regions: Regions,
    memory: TalkMemory,
    said: u64,
    done: u64,
    /// The request that a message came to, which was not heard yet.
    waiting: Option<u64>,
}

impl HasEngine for QpipTalker {
    type Engine = Adapter;

    fn engine(&mut self) -> &mut Adapter {
        &mut self.host.adapter
    }
}

impl QpipTalker {
    /// Reaps until a message came.
    fn listen(&mut self) -> Result<()> {
        self.host.sort_events()?;
        while self.waiting.is_none()
            && let Some(done) = self.host.reap()?
        {
            match done.operation {
                Operation::Send => self.done += 1,
                Operation::Receive => {
                    let len = u64::from(done.len);
                    ensure!(done.ends_message && len == self.memory.message, "{done:?}");
                    self.waiting = Some(done.id);
                }
            }
        }
        Ok(())
    }
}

impl Talker for QpipTalker {
    fn send(&mut self, now: Instant, message: &[u8]) -> Result<bool> {
        self.listen()?;
        if self.said - self.done >= TalkMemory::SLOTS {
            return Ok(false);
        }
        let area = self.memory.out(self.said);
        self.regions.write(&area.span(0, message.len() as u32), message)?;
        self.host.post_send(now, self.said, buffer(self.key, area))?;
        self.said += 1;
        Ok(true)
    }

    fn receive(&mut self, message: &mut [u8]) -> Result<bool> {
        self.listen()?;
        let Some(request) = self.waiting.take() else { return Ok(false) };
        let area = self.memory.inward(request);
        self.regions.read(&area.span(0, area.len as u32), message)?;
        self.host.post_receive(request, buffer(self.key, area))?;
        Ok(true)
    }
}
