//! [`World`]: two hosts, the network between them, and what their users do.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use landfall_placement::{Area, Duration, Engine, Instant, PathId, Random, RegionId};
use landfall_simnet::sim::Fate;
use landfall_simnet::{Frame, Handle, LinkConfig, Sim};
use qpip::{
    Access, Adapter, Buffer, Completion, CompletionQueueId, Config, DomainId, Event, Interface,
    Mapping, MemoryKey, Operation, QueuePairId, QueuePairSetup, ReceiveWork, SendWork, Service,
};

use super::host::{Build, Host, Told};
use super::network::{Network, Wires};
use super::record::Record;
use crate::lanai::switch::SwitchCounters;

/// So many of the last frames are remembered, to be forged.
const REMEMBERED: usize = 64;
/// So much can happen at one moment.
const MOST_STEPS: u32 = 200_000;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The link between the two, both ways; with switches, each of their links.
    pub link: LinkConfig,
    /// What lies between the two.
    pub network: Network,
    /// The engines' bounds.
    pub config: Config,
    /// Bytes of memory of each.
    pub memory: usize,
    /// How many requests each queue takes.
    pub depth: u32,
    /// The cards of both, where they have some.
    pub card: Build,
    /// Every frame is kept.
    pub captures: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            link: LinkConfig::ethernet(1_000_000_000).mtu(1_514).delay(Duration::from_micros(20)),
            network: Network::Link,
            config: Config::default(),
            memory: 1 << 20,
            depth: 64,
            card: Build::default(),
            captures: true,
        }
    }
}

/// A host and its user.
#[derive(Debug)]
struct Side<N> {
    node: Handle<N>,
    domain: DomainId,
    key: MemoryKey,
    region: RegionId,
    queue: CompletionQueueId,
    told: Told,
    done: Vec<Completion>,
    events: Vec<Event>,
    /// Where each posted receive lies.
    posted: BTreeMap<(QueuePairId, u64), u64>,
    free: u64,
}

/// Two hosts and the network between them.
#[derive(Debug)]
pub struct World<N: Host> {
    sim: Sim,
    sides: Vec<Side<N>>,
    wires: Wires,
    past: Rc<RefCell<VecDeque<Vec<u8>>>>,
    depth: u32,
    memory: u32,
    wrong: Vec<String>,
}

/// Bytes that tell where they come from.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(len).collect()
}

pub(super) fn ip(host: usize, is_v6: bool) -> IpAddr {
    let n = host as u16 + 1;
    if is_v6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).into()
    } else {
        Ipv4Addr::new(10, 0, 0, n as u8).into()
    }
}

/// Who a host is; the other one is known from the start.
fn interface(host: usize) -> Interface {
    let mac = |host: usize| [2, 0, 0, 0, 0, host as u8 + 1];
    let other = 1 - host;
    Interface {
        mac: mac(host),
        addresses: vec![(ip(host, false), 16), (ip(host, true), 64)],
        gateways: Vec::new(),
        neighbours: [false, true].map(|is_v6| (ip(other, is_v6), mac(other))).to_vec(),
    }
}

impl<N: Host> World<N> {
    /// A world of this shape; the seed is the network's.
    ///
    /// # Panics
    /// Where the engine does not take its own configuration.
    #[must_use]
    pub fn new(seed: u64, shape: &Shape) -> Self {
        let mut sim = Sim::from_number(seed);
        let sides: Vec<_> = (0..2).map(|host| Self::side(&mut sim, host, shape)).collect();
        let hosts = [0, 1].map(|host: usize| sides[host].node.id());
        let wires = Wires::connect(&mut sim, hosts, shape.network, shape.link).expect("two nodes");
        if !N::IS_CARDED {
            wires.route_for_hosts(&mut sim).expect("links");
        }
        // The links that there are: before, there was none.
        if shape.captures {
            sim.capture_all(wires.encapsulation());
        }
        let past = Rc::new(RefCell::new(VecDeque::new()));
        for way in wires.last_ways() {
            let past = past.clone();
            let remember = move |_: Instant, frame: &mut Frame| {
                let mut past = past.borrow_mut();
                past.truncate(REMEMBERED - 1);
                past.push_front(frame.bytes.clone());
                Fate::Pass
            };
            sim.intercept(way, remember).expect("a link");
        }
        let memory = shape.memory as u32;
        Self { sim, sides, wires, past, depth: shape.depth, memory, wrong: Vec::new() }
    }

    fn side(sim: &mut Sim, host: usize, shape: &Shape) -> Side<N> {
        let config = Config { delegates: N::IS_CARDED, ..shape.config.clone() };
        let mut engine = Adapter::new(config, [host as u8 + 7; 32]);
        engine.add_interface(PathId(0), interface(host)).expect("an interface");
        let domain = engine.create_domain().expect("a domain");
        let queue = engine.create_completion_queue(4_096).expect("a queue");
        let told = Told::default();
        let mut node = N::make(engine, told.clone(), host, shape);
        let region = node.memory_mut().lend(vec![0; shape.memory]).expect("memory");
        let area = Area::new(region, 0, shape.memory as u64);
        let key = node.engine_mut().register(domain, area, Access::ReadWrite).expect("a key");
        Side {
            node: sim.add(&format!("host {host}"), node).expect("a node"),
            domain,
            key,
            region,
            queue,
            told,
            done: Vec::new(),
            events: Vec::new(),
            posted: BTreeMap::new(),
            free: 0,
        }
    }

    // ---- Looking at it -------------------------------------------------------

    /// The node of a host.
    pub fn node(&mut self, host: usize) -> &mut N {
        self.sim.node_mut(self.sides[host].node).expect("a node of this simulation")
    }

    /// The engine of a host, to be used.
    pub fn engine(&mut self, host: usize) -> &mut Adapter {
        self.node(host).engine_mut()
    }

    /// The engine of a host; looking at it wakes nobody.
    #[must_use]
    pub fn look(&self, host: usize) -> &Adapter {
        self.sim.node(self.sides[host].node).expect("a node of this simulation").engine()
    }

    /// The memory of a host that all requests lie in.
    #[must_use]
    pub fn region(&self, host: usize) -> RegionId {
        self.sides[host].region
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// What a host was told in its completion queue.
    #[must_use]
    pub fn done(&self, host: usize) -> &[Completion] {
        &self.sides[host].done
    }

    /// Where a posted receive lies.
    #[must_use]
    pub fn place_of(&self, host: usize, pair: QueuePairId, id: u64) -> Option<u64> {
        self.sides[host].posted.get(&(pair, id)).copied()
    }

    /// Bytes of a host's memory.
    #[must_use]
    pub fn read(&self, host: usize, at: u64, len: u32) -> Vec<u8> {
        let side = &self.sides[host];
        let memory = self.sim.node(side.node).expect("a node of this simulation").memory();
        memory.read(side.region.span(at, len)).expect("its own memory").to_vec()
    }

    // ---- What users do -------------------------------------------------------

    /// So many bytes of memory that nobody else was given, as long as there are.
    pub fn allocate(&mut self, host: usize, len: u32) -> Option<u64> {
        let side = &mut self.sides[host];
        let at = side.free;
        (at + u64::from(len) <= u64::from(self.memory)).then(|| {
            side.free += u64::from(len);
            at
        })
    }

    /// A queue pair.
    pub fn queue_pair(&mut self, host: usize, service: Service) -> QueuePairId {
        let Side { domain, queue, .. } = self.sides[host];
        let setup = QueuePairSetup {
            domain,
            send_completions: queue,
            receive_completions: queue,
            service,
            send_depth: self.depth,
            receive_depth: self.depth,
        };
        self.engine(host).create_queue_pair(&setup).expect("a queue pair")
    }

    /// A connection: first the side that asked.
    pub fn pair_up(&mut self, is_v6: bool, port: u16, mapping: Mapping) -> [QueuePairId; 2] {
        let local = SocketAddr::new(ip(1, is_v6), port);
        let listener = self.engine(1).listen(local).expect("a port");
        let there = self.queue_pair(1, Service::Tcp(mapping));
        self.engine(1).offer(listener, there).expect("an offer");
        let here = self.queue_pair(0, Service::Tcp(mapping));
        let now = self.now();
        self.engine(0).connect(now, here, None, local).expect("a way");
        [here, there]
    }

    /// A queue pair for datagrams.
    pub fn bound(&mut self, host: usize, is_v6: bool, port: u16, is_any: bool) -> QueuePairId {
        let pair = self.queue_pair(host, Service::Udp);
        let any: IpAddr =
            if is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = if is_any { any } else { ip(host, is_v6) };
        self.engine(host).bind(pair, SocketAddr::new(address, port)).expect("a port");
        pair
    }

    /// Posts room of so many bytes, in pieces; what is refused is refused.
    pub fn post_receive(&mut self, host: usize, pair: QueuePairId, id: u64, pieces: &[u32]) {
        let all = pieces.iter().sum();
        let Some(start) = self.allocate(host, all) else { return };
        let (key, now) = (self.sides[host].key, self.now());
        let mut at = start;
        let mut into = Vec::new();
        for len in pieces {
            into.push(Buffer::new(key, at, *len));
            at += u64::from(*len);
        }
        let work = ReceiveWork { id, into: &into };
        if self.engine(host).post_receive(now, pair, &work).is_ok() {
            self.sides[host].posted.insert((pair, id), start);
        }
    }

    /// Posts a message of these bytes; to a port of the other host for datagrams.
    /// Says whether it was taken.
    pub fn send(
        &mut self,
        host: usize,
        pair: QueuePairId,
        id: u64,
        bytes: &[u8],
        to: Option<(bool, u16)>,
    ) -> bool {
        let len = bytes.len() as u32;
        let Some(at) = self.allocate(host, len) else { return false };
        let (key, now) = (self.sides[host].key, self.now());
        let span = self.sides[host].region.span(at, len);
        let memory = self.node(host).memory_mut();
        let written = memory.write(now, landfall_simnet::memory::Writer::User, span, bytes);
        let to = to.map(|(is_v6, port)| SocketAddr::new(ip(1 - host, is_v6), port));
        let work = SendWork { id, from: &[Buffer::new(key, at, len)], to };
        written.is_ok() && self.engine(host).post_send(now, pair, &work).is_ok()
    }

    /// The station stays what it is; but the engine does not know that.
    pub fn change_interface(&mut self, host: usize) {
        self.engine(host).add_interface(PathId(0), interface(host)).expect("an interface");
    }

    /// A frame of the recent past, changed, comes to a host once more.
    pub fn forge(&mut self, host: usize, which: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let past = self.past.borrow();
        let Some(mut bytes) = past.get(which % past.len().max(1)).cloned() else { return };
        drop(past);
        change(&mut bytes);
        let (node, port) = self.wires.forger(host);
        let sent = self.sim.send(node, port, Frame::raw(bytes));
        self.note(sent.map_err(|error| error.to_string()));
    }

    /// Changes the link.
    pub fn configure(&mut self, link: LinkConfig) {
        let changed = self.wires.configure(&mut self.sim, link);
        self.note(changed.map_err(|error| error.to_string()));
    }

    // ---- Time ----------------------------------------------------------------

    fn note<T>(&mut self, result: Result<T, String>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.wrong.push(wrong);
                None
            }
        }
    }

    /// Polls what is done; what was received may not change any more.
    fn collect(&mut self, host: usize) {
        let side = &mut self.sides[host];
        side.events.extend(side.told.borrow_mut().drain(..));
        let node = self.sim.node(side.node).expect("a node of this simulation");
        if node.engine().completions(side.queue) == 0 {
            return;
        }
        let node = self.sim.node_mut(side.node).expect("a node of this simulation");
        while let Some(done) = node.engine_mut().poll(side.queue) {
            let at = side.posted.get(&(done.queue_pair, done.id));
            if let Some(at) = at.filter(|_| done.operation == Operation::Receive)
                && done.status.is_success()
            {
                let span = side.region.span(at + u64::from(done.offset), done.len);
                node.memory_mut().freeze(span).expect("its own memory");
            }
            side.done.push(done);
        }
    }

    /// The simulation does its next step, before some time. Says whether there was one.
    pub fn step(&mut self, deadline: Instant) -> bool {
        let step = self.sim.step(deadline).map_err(|error| error.to_string());
        let goes_on = self.note(step).unwrap_or(false);
        self.collect(0);
        self.collect(1);
        goes_on
    }

    /// What a switch counted.
    #[must_use]
    pub fn switch(&self, nth: usize) -> Option<&SwitchCounters> {
        self.wires.switch(&self.sim, nth)
    }

    /// What went wrong so far.
    #[must_use]
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Duration) {
        let deadline = self.now() + time;
        for _ in 0..MOST_STEPS {
            self.collect(0);
            self.collect(1);
            if !self.wrong.is_empty() {
                return;
            }
            let step = self.sim.step(deadline).map_err(|error| error.to_string());
            match self.note(step) {
                Some(true) => {}
                Some(false) => break,
                None => return,
            }
        }
        let end = self.sim.run_until(deadline).map_err(|error| error.to_string());
        self.note(end);
        self.collect(0);
        self.collect(1);
    }

    /// All that can be seen of this run.
    #[must_use]
    pub fn record(mut self) -> Record {
        let mut record = Record { frames: self.sim.captured().to_vec(), ..Record::default() };
        for host in 0..2 {
            let engine = self.look(host);
            let mut stats = *engine.stats();
            record.placed.0 += std::mem::take(&mut stats.segments_predicted);
            record.placed.0 += std::mem::take(&mut stats.datagrams_predicted);
            record.placed.1 += stats.segments_received + stats.datagrams_received;
            record.refusals.push(format!("{:?}", engine.refusals()));
            record.stats.push(stats);
            record.memory.push(self.read(host, 0, self.memory));
            record.done.push(std::mem::take(&mut self.sides[host].done));
            record.events.push(std::mem::take(&mut self.sides[host].events));
        }
        record.wrong = std::mem::take(&mut self.wrong);
        record
    }
}
