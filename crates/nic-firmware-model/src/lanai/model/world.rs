//! [`World`]: two hosts, the network between them, and what their users do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::{Duration, Engine, Instant, PathId, Random, RegionId};
use landfall_simnet::{Frame, LinkConfig, PortId};
use qpip::{
    Access, Adapter, Buffer, Completion, CompletionQueueId, Config, DomainId, Event, Interface,
    Mapping, MemoryKey, Operation, OwnAddress, QueuePairId, QueuePairSetup, ReceiveWork, SendWork,
    Service,
};

use super::network::{Build, EventQueue, Host, Network, Wires};
use crate::lanai::switch::SwitchCounters;
use crate::world::{self, Record};

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

/// The user of a host.
#[derive(Debug)]
struct User {
    domain: DomainId,
    key: MemoryKey,
    region: RegionId,
    queue: CompletionQueueId,
    told: EventQueue,
    done: Vec<Completion>,
    events: Vec<Event>,
    /// Where each posted receive lies.
    posted: BTreeMap<(QueuePairId, u64), u64>,
    free: u64,
}

/// Two hosts, the network between them, and the users of both.
#[derive(Debug)]
pub struct World<N: Host> {
    world: world::World<Adapter, N>,
    users: [User; 2],
    wires: Wires,
    depth: u32,
    memory: u32,
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
        addresses: vec![OwnAddress::new(ip(host, false), 16), OwnAddress::new(ip(host, true), 64)],
        neighbours: [false, true].map(|is_v6| (ip(other, is_v6), mac(other))).to_vec(),
        ..Interface::default()
    }
}

impl<N: Host> World<N> {
    /// A world of this shape; the seed is the network's.
    ///
    /// # Panics
    /// Where the engine does not take its own configuration.
    #[must_use]
    pub fn new(seed: u64, shape: &Shape) -> Self {
        let told = [EventQueue::default(), EventQueue::default()];
        let [host, peer] = [0, 1].map(|host: usize| {
            let config = Config { delegates: N::IS_CARDED, ..shape.config.clone() };
            let mut engine = Adapter::new(config, [host as u8 + 7; 32]).unwrap();
            engine.add_interface(PathId(0), interface(host)).expect("an interface");
            N::make(engine, told[host].clone(), host, shape)
        });
        let mut world = world::World::new(seed, ("host 0", host), ("host 1", peer));
        let [first, second] = told;
        let users =
            [(0, first), (1, second)].map(|(host, told)| User::new(&mut world, host, told, shape));
        let hosts = [0, 1].map(|host| world.id(host));
        let sim = world.sim_mut();
        let wires = Wires::connect(sim, hosts, shape.network, shape.link).expect("two nodes");
        if !N::IS_CARDED {
            wires.route_for_hosts(sim).expect("links");
        }
        // The links that there are: before, there was none.
        if shape.captures {
            sim.capture_all(wires.encapsulation());
        }
        world.remember(wires.last_ways().map(|way| (way, PortId(0))));
        Self { world, users, wires, depth: shape.depth, memory: shape.memory as u32 }
    }

    // ---- Looking at it -------------------------------------------------------

    /// The node of a host.
    pub fn node(&mut self, host: usize) -> &mut N {
        self.world.node_mut(host)
    }

    /// The engine of a host, to be used.
    pub fn engine(&mut self, host: usize) -> &mut Adapter {
        self.world.engine_mut(host)
    }

    /// The engine of a host; looking at it wakes nobody.
    #[must_use]
    pub fn look(&self, host: usize) -> &Adapter {
        self.world.engine(host)
    }

    /// The memory of a host that all requests lie in.
    #[must_use]
    pub fn region(&self, host: usize) -> RegionId {
        self.users[host].region
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.world.now()
    }

    /// What a host was told in its completion queue.
    #[must_use]
    pub fn done(&self, host: usize) -> &[Completion] {
        &self.users[host].done
    }

    /// Where a posted receive lies.
    #[must_use]
    pub fn place_of(&self, host: usize, pair: QueuePairId, id: u64) -> Option<u64> {
        self.users[host].posted.get(&(pair, id)).copied()
    }

    /// Bytes of a host's memory.
    #[must_use]
    pub fn read(&self, host: usize, at: u64, len: u32) -> Vec<u8> {
        let span = self.users[host].region.span(at, len);
        self.world.memory(host).read(span).expect("its own memory").to_vec()
    }

    // ---- What users do -------------------------------------------------------

    /// This many bytes of memory that nobody else was given, as long as there are.
    pub fn allocate(&mut self, host: usize, len: u32) -> Option<u64> {
        let user = &mut self.users[host];
        let at = user.free;
        (at + u64::from(len) <= u64::from(self.memory)).then(|| {
            user.free += u64::from(len);
            at
        })
    }

    /// A queue pair.
    pub fn queue_pair(&mut self, host: usize, service: Service) -> QueuePairId {
        let User { domain, queue, .. } = self.users[host];
        let setup = QueuePairSetup {
            domain,
            send_completions: queue,
            receive_completions: queue,
            service,
            send_depth: self.depth,
            receive_depth: self.depth,
            shared_receives: None,
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

    /// Posts room of this many bytes, in pieces; what is refused is refused.
    pub fn post_receive(&mut self, host: usize, pair: QueuePairId, id: u64, pieces: &[u32]) {
        let all = pieces.iter().sum();
        let Some(start) = self.allocate(host, all) else { return };
        let (key, now) = (self.users[host].key, self.now());
        let mut at = start;
        let mut into = Vec::new();
        for len in pieces {
            into.push(Buffer::new(key, at, *len));
            at += u64::from(*len);
        }
        let work = ReceiveWork { id, into: &into };
        if self.engine(host).post_receive(now, pair, &work).is_ok() {
            self.users[host].posted.insert((pair, id), start);
        }
    }

    /// Posts a message of these bytes; to a port of the other host for datagrams.
    /// Returns whether it was taken.
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
        let (key, now) = (self.users[host].key, self.now());
        let span = self.users[host].region.span(at, len);
        let memory = self.world.memory_mut(host);
        let written = memory.write(now, landfall_simnet::memory::Writer::User, span, bytes);
        let to = to.map(|(is_v6, port)| SocketAddr::new(ip(1 - host, is_v6), port));
        let work = SendWork {
            id,
            from: &[Buffer::new(key, at, len)],
            to,
            is_signaled: true,
            immediate: None,
        };
        written.is_ok() && self.engine(host).post_send(now, pair, &work).is_ok()
    }

    /// The station stays what it is; but the engine does not know that.
    pub fn change_interface(&mut self, host: usize) {
        self.engine(host).add_interface(PathId(0), interface(host)).expect("an interface");
    }

    /// A frame of the recent past, changed, comes to a host once more.
    pub fn forge(&mut self, host: usize, which: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let Some((_, Frame { mut bytes, .. })) = self.world.past(which) else { return };
        change(&mut bytes);
        let (node, port) = self.wires.forger(host);
        self.world.send(node, port, Frame::raw(bytes));
    }

    /// Changes the link.
    pub fn configure(&mut self, link: LinkConfig) {
        let changed = self.wires.configure(self.world.sim_mut(), link);
        self.world.note(changed);
    }

    // ---- Time ----------------------------------------------------------------

    /// Polls what is done; what was received may not change any more.
    fn collect(&mut self) {
        for (host, user) in self.users.iter_mut().enumerate() {
            user.events.extend(user.told.borrow_mut().drain(..));
            if self.world.engine(host).completions(user.queue) == 0 {
                continue;
            }
            while let Some(done) = self.world.engine_mut(host).poll(user.queue) {
                let at = user.posted.get(&(done.queue_pair, done.id));
                if let Some(at) = at.filter(|_| done.operation == Operation::Receive)
                    && done.status.is_success()
                {
                    let span = user.region.span(at + u64::from(done.offset), done.len);
                    self.world.memory_mut(host).freeze(span).expect("its own memory");
                }
                user.done.push(done);
            }
        }
    }

    /// The simulation does its next step, before some time. Returns whether there was one.
    pub fn step(&mut self, deadline: Instant) -> bool {
        let goes_on = self.world.step(deadline);
        self.collect();
        goes_on
    }

    /// What a switch counted.
    #[must_use]
    pub fn switch(&self, nth: usize) -> Option<&SwitchCounters> {
        self.wires.switch(self.world.sim(), nth)
    }

    /// What went wrong so far.
    #[must_use]
    pub fn wrong(&self) -> &[String] {
        self.world.wrong()
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Duration) {
        let deadline = self.now() + time;
        self.collect();
        for _ in 0..MOST_STEPS {
            if !self.wrong().is_empty() {
                return;
            }
            if !self.step(deadline) {
                break;
            }
        }
        if self.wrong().is_empty() {
            self.world.run_until(deadline);
            self.collect();
        }
    }

    /// All that can be seen of this run: what the seam took counts apart.
    #[must_use]
    pub fn record(&self) -> Record {
        let [first, second] = self.users.each_ref().map(|user| user.region);
        let mut record = self.world.record([&[first], &[second]]);
        for (host, user) in self.users.iter().enumerate() {
            let engine = self.look(host);
            let mut stats = *engine.stats();
            record.placed.0 += std::mem::take(&mut stats.segments_predicted);
            record.placed.0 += std::mem::take(&mut stats.datagrams_predicted);
            record.placed.1 += stats.segments_received + stats.datagrams_received;
            record.count(host, format_args!("{:?}", engine.refusals()));
            record.count(host, format_args!("{stats:?}"));
            let done = user.done.iter().map(|done| format!("{done:?}"));
            let events = user.events.iter().map(|event| format!("{event:?}"));
            record.told[host] = done.chain(events).collect();
        }
        record
    }
}

impl User {
    /// Lends memory, and lets all requests lie in it.
    fn new<N: Host>(
        world: &mut world::World<Adapter, N>,
        host: usize,
        told: EventQueue,
        shape: &Shape,
    ) -> Self {
        let area = world.lend(host, vec![0; shape.memory]);
        let engine = world.engine_mut(host);
        let domain = engine.create_domain().expect("a domain");
        let queue = engine.create_completion_queue(4_096).expect("a queue");
        let key = engine.register(domain, area, Access::ReadWrite).expect("a key");
        let (done, events, posted) = Default::default();
        let region = area.region;
        Self { domain, key, region, queue, told, done, events, posted, free: 0 }
    }
}
