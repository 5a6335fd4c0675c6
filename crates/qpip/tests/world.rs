//! Hosts with adapters on one simulated Ethernet, for tests.
//!
//! Each host has an adapter with addresses of both versions of IP, a region of
//! memory registered in one protection domain, and one completion queue. Bytes
//! that were reported as received are final until they are posted again: the
//! simulation notices anyone who writes into them (the first invariant).
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use landfall_placement::{Area, Instant, PathId, Random, RegionId};
use landfall_simnet::{
    Encapsulation, EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Sim, Switch, check,
};
use qpip::{
    Access, Adapter, Buffer, Completion, CompletionQueueId, Config, DomainId, Event, Interface,
    ListenerId, Mapping, MemoryKey, Operation, OwnAddress, PostError, QueuePairId, QueuePairSetup,
    ReceiveWork, SendWork, Service, Share,
};

pub type Node = EngineNode<Adapter>;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    pub hosts: usize,
    /// The link of each host to the switch, both ways.
    pub link: LinkConfig,
    /// How each host's driver works: batches, guesses, segmentation offload.
    pub engine: EngineConfig,
    pub config: Config,
    /// The share of each host in the flows of its station; all of it, if not said.
    pub shares: Vec<Share>,
    /// Hosts know each other's stations from the start.
    pub knows_neighbours: bool,
    /// The VLAN of each host.
    pub vlan: Option<u16>,
    /// Bytes of memory of each host.
    pub memory: usize,
    /// How many sends and receives each queue pair takes.
    pub depth: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            hosts: 2,
            link: LinkConfig::ethernet(1_000_000_000).delay(Duration::from_micros(20)),
            engine: EngineConfig::default(),
            config: Config::default(),
            shares: Vec::new(),
            knows_neighbours: true,
            vlan: None,
            memory: 1 << 20,
            depth: 64,
        }
    }
}

impl Shape {
    /// Packets of up to this many bytes of IP.
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.link.mtu = mtu + 14;
        self
    }

    /// Devices cut segments of up to 64 KiB.
    pub fn segmentation(mut self) -> Self {
        self.engine.segmentation = Some((65_535, 64));
        self
    }
}

/// The two versions of IP, for tests that take both.
pub const BOTH: [Version; 2] = [Version::V4, Version::V6];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V4,
    V6,
}

/// A host.
pub struct Host {
    pub node: Handle<Node>,
    pub link: LinkId,
    pub domain: DomainId,
    pub key: MemoryKey,
    pub region: RegionId,
    pub queue: CompletionQueueId,
    /// Completions and events that were not asked for yet.
    pub done: VecDeque<Completion>,
    pub events: VecDeque<Event>,
    told: check::Log<Event>,
    /// Where each posted receive lies.
    posted: BTreeMap<(QueuePairId, u64), (u64, u32)>,
    free: u64,
}

/// A network of hosts.
pub struct World<'a> {
    pub sim: &'a mut Sim,
    /// Its ports are the hosts, in their order.
    pub switch: Handle<Switch>,
    pub hosts: Vec<Host>,
    depth: u32,
}

/// The address of a host, with a port.
pub fn address(host: usize, version: Version, port: u16) -> SocketAddr {
    SocketAddr::new(ip(host, version), port)
}

pub fn ip(host: usize, version: Version) -> IpAddr {
    let n = host as u16 + 1;
    match version {
        Version::V4 => Ipv4Addr::new(10, 0, (n >> 8) as u8, n as u8).into(),
        Version::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).into(),
    }
}

/// The station of a host.
pub fn mac(host: usize) -> [u8; 6] {
    let n = host as u16 + 1;
    [2, 0, 0, 0, (n >> 8) as u8, n as u8]
}

/// Bytes that tell where they come from.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(len).collect()
}

fn interface(host: usize, shape: &Shape) -> Interface {
    let others = (0..shape.hosts).filter(|other| *other != host && shape.knows_neighbours);
    Interface {
        mac: mac(host),
        addresses: vec![
            OwnAddress::new(ip(host, Version::V4), 16),
            OwnAddress::new(ip(host, Version::V6), 64),
        ],
        neighbours: others
            .flat_map(|other| [Version::V4, Version::V6].map(|v| (ip(other, v), mac(other))))
            .collect(),
        vlan: shape.vlan,
        ..Interface::default()
    }
}

impl<'a> World<'a> {
    pub fn new(sim: &'a mut Sim, shape: &Shape) -> Self {
        // Named captures of a failing run: set LANDFALL_CAPTURE to a file.
        if std::env::var_os("LANDFALL_CAPTURE").is_some() {
            sim.capture_all(Encapsulation::Ethernet);
        }
        let switch = sim.add("switch", Switch::ethernet()).unwrap();
        let hosts = (0..shape.hosts)
            .map(|n| {
                let mut seed = [7; 32];
                seed[..8].copy_from_slice(&(n as u64).to_le_bytes());
                let share = shape.shares.get(n).copied().unwrap_or_default();
                let config = Config { share, ..shape.config.clone() };
                let mut adapter = Adapter::new(config, seed).unwrap();
                adapter.add_interface(PathId(0), interface(n, shape)).unwrap();
                let domain = adapter.create_domain().unwrap();
                let queue = adapter.create_completion_queue(4_096).unwrap();
                // Events are handed over as they come: asking for them would wake
                // the node, and time would stand still.
                let (mut node, told) =
                    check::logged(EngineNode::with_config(adapter, shape.engine));
                let region = node.memory_mut().lend(vec![0; shape.memory]).unwrap();
                let area = Area::new(region, 0, shape.memory as u64);
                let key = node.engine_mut().register(domain, area, Access::ReadWrite).unwrap();
                let node = sim.add(&format!("host {n}"), node).unwrap();
                let link = sim.connect(node, switch, shape.link).unwrap();
                Host {
                    node,
                    link,
                    domain,
                    key,
                    region,
                    queue,
                    done: VecDeque::new(),
                    events: VecDeque::new(),
                    told,
                    posted: BTreeMap::new(),
                    free: 0,
                }
            })
            .collect();
        Self { sim, switch, hosts, depth: shape.depth }
    }

    pub fn node(&mut self, host: usize) -> &mut Node {
        self.sim.node_mut(self.hosts[host].node).unwrap()
    }

    pub fn adapter(&mut self, host: usize) -> &mut Adapter {
        self.node(host).engine_mut()
    }

    /// To look at: using it wakes nobody.
    pub fn engine(&self, host: usize) -> &Adapter {
        self.sim.node(self.hosts[host].node).unwrap().engine()
    }

    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// This many bytes of a host's memory that nobody else was given.
    pub fn allocate(&mut self, host: usize, len: u32) -> u64 {
        let at = self.hosts[host].free;
        self.hosts[host].free += u64::from(len);
        at
    }

    /// Puts bytes into memory of their own, and says where.
    pub fn store(&mut self, host: usize, bytes: &[u8]) -> (u64, u32) {
        let len = bytes.len() as u32;
        let at = self.allocate(host, len);
        let span = self.hosts[host].region.span(at, len);
        let now = self.now();
        let memory = self.node(host).memory_mut();
        memory.write(now, landfall_simnet::memory::Writer::User, span, bytes).unwrap();
        (at, len)
    }

    pub fn read(&mut self, host: usize, at: u64, len: u32) -> Vec<u8> {
        let Host { node, region, .. } = self.hosts[host];
        check::read(self.sim, node, Area::new(region, at, len.into()))
    }

    pub fn buffer(&self, host: usize, at: u64, len: u32) -> Buffer {
        Buffer::new(self.hosts[host].key, at, len)
    }

    pub fn queue_pair(&mut self, host: usize, service: Service) -> QueuePairId {
        let Host { domain, queue, .. } = self.hosts[host];
        let setup = QueuePairSetup {
            domain,
            send_completions: queue,
            receive_completions: queue,
            service,
            send_depth: self.depth,
            receive_depth: self.depth,
            shared_receives: None,
        };
        self.adapter(host).create_queue_pair(&setup).unwrap()
    }

    /// A queue pair for datagrams, bound to the host's address of this version.
    pub fn udp(&mut self, host: usize, version: Version, port: u16) -> QueuePairId {
        let pair = self.queue_pair(host, Service::Udp);
        self.adapter(host).bind(pair, address(host, version, port)).unwrap();
        pair
    }

    pub fn post_send(
        &mut self,
        host: usize,
        pair: QueuePairId,
        id: u64,
        (at, len): (u64, u32),
        to: Option<SocketAddr>,
    ) -> Result<(), PostError> {
        let from = [self.buffer(host, at, len)];
        let now = self.now();
        self.adapter(host).post_send(
            now,
            pair,
            &SendWork { id, from: &from, to, is_signaled: true, immediate: None },
        )
    }

    pub fn post_receive(
        &mut self,
        host: usize,
        pair: QueuePairId,
        id: u64,
        (at, len): (u64, u32),
    ) -> Result<(), PostError> {
        let into = [self.buffer(host, at, len)];
        let span = self.hosts[host].region.span(at, len);
        self.node(host).memory_mut().thaw(span).unwrap();
        let now = self.now();
        self.adapter(host).post_receive(now, pair, &ReceiveWork { id, into: &into })?;
        self.hosts[host].posted.insert((pair, id), (at, len));
        Ok(())
    }

    /// Posts this many receives of `len` bytes each, named from `first` on. Gives
    /// where the first lies; the others follow.
    pub fn post_receives(
        &mut self,
        host: usize,
        pair: QueuePairId,
        first: u64,
        count: u32,
        len: u32,
    ) -> u64 {
        let at = self.allocate(host, count * len);
        for n in 0..count {
            let place = (at + u64::from(n * len), len);
            self.post_receive(host, pair, first + u64::from(n), place).unwrap();
        }
        at
    }

    /// Polls and freezes what is done, and takes the events.
    fn collect(&mut self, host: usize) {
        let queue = self.hosts[host].queue;
        let known = &mut self.hosts[host];
        known.events.extend(known.told.take());
        // Only who has something to poll is woken.
        if self.sim.node(known.node).unwrap().engine().completions(queue) == 0 {
            return;
        }
        let node: &mut Node = self.sim.node_mut(known.node).unwrap();
        while let Some(done) = node.engine_mut().poll(queue) {
            if done.operation == Operation::Receive && done.status.is_success() {
                let at = known.posted.get(&(done.queue_pair, done.id)).copied();
                if let Some((at, _)) = at {
                    let span = known.region.span(at + u64::from(done.offset), done.len);
                    node.memory_mut().freeze(span).unwrap();
                }
            }
            known.done.push_back(done);
        }
    }

    /// Runs until something is so, and fails after ten virtual minutes.
    pub fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = self.now() + Duration::from_secs(600);
        loop {
            for host in 0..self.hosts.len() {
                self.collect(host);
            }
            if is_so(self) {
                return;
            }
            let goes_on = self.sim.step(deadline).unwrap();
            assert!(goes_on, "nothing happens any more, and not: {what}");
        }
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Duration) {
        let deadline = self.now() + time;
        loop {
            for host in 0..self.hosts.len() {
                self.collect(host);
            }
            if !self.sim.step(deadline).unwrap() {
                break;
            }
        }
        self.sim.run_until(deadline).unwrap();
        for host in 0..self.hosts.len() {
            self.collect(host);
        }
    }

    /// The next this many completions of a host.
    pub fn await_completions(&mut self, host: usize, count: usize) -> Vec<Completion> {
        let what = format!("{count} completions at host {host}");
        self.run_until(&what, |world| world.hosts[host].done.len() >= count);
        self.hosts[host].done.drain(..count).collect()
    }

    /// The next event of a host.
    pub fn await_event(&mut self, host: usize) -> Event {
        let what = format!("an event at host {host}");
        self.run_until(&what, |world| !world.hosts[host].events.is_empty());
        self.hosts[host].events.pop_front().unwrap()
    }

    /// Host `server` listens at a port and offers a new queue pair there.
    pub fn serve(
        &mut self,
        server: usize,
        local: SocketAddr,
        mapping: Mapping,
    ) -> (ListenerId, QueuePairId) {
        let listener = self.adapter(server).listen(local).unwrap();
        let pair = self.queue_pair(server, Service::Tcp(mapping));
        self.adapter(server).offer(listener, pair).unwrap();
        (listener, pair)
    }

    /// Asks for a connection from a new queue pair.
    pub fn connect(&mut self, client: usize, to: SocketAddr, mapping: Mapping) -> QueuePairId {
        let pair = self.queue_pair(client, Service::Tcp(mapping));
        let now = self.now();
        self.adapter(client).connect(now, pair, None, to).unwrap();
        pair
    }

    /// An open connection between two hosts: first the side that asked.
    pub fn pair_up(
        &mut self,
        (client, server): (usize, usize),
        version: Version,
        port: u16,
        mapping: Mapping,
    ) -> (QueuePairId, QueuePairId) {
        let local = address(server, version, port);
        let (listener, there) = self.serve(server, local, mapping);
        let here = self.connect(client, local, mapping);
        let connected = self.await_event(client);
        assert!(matches!(connected, Event::Connected { queue_pair, .. } if queue_pair == here));
        let accepted = self.await_event(server);
        assert!(matches!(accepted, Event::Accepted { queue_pair, .. } if queue_pair == there));
        self.adapter(server).stop_listening(listener).unwrap();
        (here, there)
    }

    /// Writes the capture of this run to the file that LANDFALL_CAPTURE names.
    pub fn save_capture(&self) {
        if let Some(file) = std::env::var_os("LANDFALL_CAPTURE") {
            self.sim.save_capture(file).unwrap();
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.save_capture();
    }
}
