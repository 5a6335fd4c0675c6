//! Several hosts around one switch, each with an adapter.
use std::ops::ControlFlow;
use std::time::Duration;

use clan_dsm::{
    ApertureId, Body, Config, Cookie, EndpointId, Event, HostId, LinkId, Nic, Notice, Port,
    PortAddress, Rights, WindowId,
};
use landfall_placement::{Area, Engine, Instant, PathId, Peer};
use landfall_simnet::{
    EngineConfig, EngineNode, Frame, Handle, LinkConfig, Loss, Memory, PortId, Probability, Sim,
    Switch, check,
};
use landfall_testkit::trials;
pub use landfall_testkit::trials::noise;
use proptest::prelude::ProptestConfig;

pub type Host = EngineNode<Nic>;
pub type Log = check::Log<Event>;

/// The one path of each host.
pub const PATH: PathId = PathId(0);

/// How long anything may take, in virtual time.
const PATIENCE: Duration = Duration::from_secs(600);

pub fn cases(few: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(trials::cases(few)) }
}

pub fn ethernet() -> LinkConfig {
    LinkConfig::ethernet(1_000_000_000)
}

/// All faults at once. Damage is found by a checksum over every payload.
pub fn faulty() -> LinkConfig {
    ethernet()
        .loss(Loss::Uniform(Probability::percent(4)))
        .duplication(Probability::percent(4))
        .reordering(Probability::percent(10), Duration::from_micros(300))
        .corruption(Probability::percent(2))
}

pub fn config() -> Config {
    Config::default().with_checksum()
}

pub fn sim(seed: u64) -> Sim {
    Sim::from_number(seed)
}

/// A body that begins with these bytes.
pub fn body(bytes: &[u8]) -> Body {
    let mut body = [0; 40];
    body[..bytes.len()].copy_from_slice(bytes);
    body
}

/// The cookie that a body begins with.
pub fn cookie_in(body: &Body) -> Cookie {
    Cookie::from_bytes(body[..Cookie::LEN].try_into().unwrap()).unwrap()
}

pub fn host_id(host: usize) -> HostId {
    HostId::new(host as u16 + 1).unwrap()
}

/// An aperture, as its owner knows it.
#[derive(Clone, Copy)]
pub struct Exposed {
    pub area: Area,
    pub aperture: ApertureId,
    pub cookie: Cookie,
}

pub struct Net {
    pub sim: Sim,
    pub hosts: Vec<Handle<Host>>,
    pub logs: Vec<Log>,
    pub wires: Vec<landfall_simnet::LinkId>,
    config: Config,
    starts: u8,
}

impl Net {
    /// This many hosts, without links between them.
    pub fn new(sim: Sim, hosts: usize, config: &Config, wire: LinkConfig) -> Self {
        Self::with(sim, &vec![config.clone(); hosts], EngineConfig::default(), wire)
    }

    pub fn with(sim: Sim, configs: &[Config], how: EngineConfig, wire: LinkConfig) -> Self {
        Self::build(sim, configs, how, wire, true)
    }

    /// Hosts whose events stay in their adapters.
    pub fn quiet(sim: Sim, configs: &[Config], wire: LinkConfig) -> Self {
        let how = EngineConfig { events: 0, ..EngineConfig::default() };
        Self::build(sim, configs, how, wire, false)
    }

    fn build(
        mut sim: Sim,
        configs: &[Config],
        how: EngineConfig,
        wire: LinkConfig,
        is_heard: bool,
    ) -> Self {
        let switch = sim.add("switch", Switch::learning()).unwrap();
        let mut net = Self {
            sim,
            hosts: Vec::new(),
            logs: Vec::new(),
            wires: Vec::new(),
            config: configs[0].clone(),
            starts: configs.len() as u8,
        };
        for (number, config) in configs.iter().enumerate() {
            let seed = [number as u8 + 1; 32];
            let nic = Nic::new(config.clone(), host_id(number), seed).unwrap();
            let node = EngineNode::with_config(nic, EngineConfig { shared: true, ..how });
            let (node, log) = if is_heard { check::logged(node) } else { (node, Log::default()) };
            let host = net.sim.add(&format!("host {}", number + 1), node).unwrap();
            // One flipped bit is found by every sum, two need not be: a frame is
            // damaged on one of its two ways at most.
            let back = wire.corruption(Probability::NEVER);
            net.wires.push(net.sim.connect_each(host.id(), switch.id(), wire, back).unwrap());
            net.hosts.push(host);
            net.logs.push(log);
        }
        net
    }

    /// This many hosts, each with a link to each.
    pub fn linked(sim: Sim, hosts: usize, config: &Config, wire: LinkConfig) -> Self {
        let mut net = Self::new(sim, hosts, config, wire);
        net.link_all();
        net
    }

    pub fn link_all(&mut self) {
        for a in 0..self.hosts.len() {
            for b in a + 1..self.hosts.len() {
                self.link(a, b);
            }
        }
    }

    /// A link between two hosts, that the first one opens.
    pub fn link(&mut self, from: usize, to: usize) -> LinkId {
        let now = self.now();
        let peer = self.peer(to);
        let link = self.nic(from).open_link(now, PATH, peer).unwrap();
        self.run_until("the link", |net| {
            net.node(from).engine().link_to(host_id(to)).is_some()
                && net.node(to).engine().link_to(host_id(from)).is_some()
        });
        link
    }

    pub fn peer(&self, host: usize) -> Peer {
        Peer::Node(self.hosts[host].id().0)
    }

    pub fn node(&self, host: usize) -> &Host {
        self.sim.node(self.hosts[host]).unwrap()
    }

    pub fn nic(&mut self, host: usize) -> &mut Nic {
        self.sim.node_mut(self.hosts[host]).unwrap().engine_mut()
    }

    pub fn memory(&mut self, host: usize) -> &mut Memory {
        self.sim.node_mut(self.hosts[host]).unwrap().memory_mut()
    }

    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    pub fn log(&self, host: usize) -> Vec<Event> {
        self.logs[host].borrow().clone()
    }

    pub fn clear(&mut self) {
        for log in &self.logs {
            log.borrow_mut().clear();
        }
    }

    /// Memory of a host with these bytes in it, some way into its region.
    pub fn lend(&mut self, host: usize, bytes: &[u8]) -> Area {
        check::lend(&mut self.sim, self.hosts[host], [24, 24], bytes)
    }

    pub fn bytes(&self, host: usize, area: Area) -> Vec<u8> {
        check::read(&self.sim, self.hosts[host], area)
    }

    /// Are the bytes around an area as they were lent?
    pub fn is_intact_around(&self, host: usize, area: Area) -> bool {
        let all = self.node(host).memory().bytes(area.region).unwrap();
        let end = (area.offset + area.len) as usize;
        all[..area.offset as usize].iter().chain(&all[end..]).all(|byte| *byte == check::AROUND)
    }

    /// An aperture of a host, full of zeros.
    pub fn expose(&mut self, host: usize, len: usize, rights: Rights) -> Exposed {
        let area = self.lend(host, &vec![0; len]);
        let aperture = self.nic(host).expose(area).unwrap();
        let cookie = self.nic(host).cookie(aperture, rights).unwrap();
        Exposed { area, aperture, cookie }
    }

    /// An aperture of `to` with a window of `from` onto it.
    pub fn window(&mut self, from: usize, to: usize, len: usize) -> (Exposed, WindowId) {
        let exposed = self.expose(to, len, Rights::ReadWrite);
        (exposed, self.nic(from).map(&exposed.cookie).unwrap())
    }

    pub fn run_for(&mut self, time: Duration) {
        check::run_for(&mut self.sim, time);
    }

    /// Runs until it is so; panics where it is not so in time.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.now() + PATIENCE;
        while !done(self) {
            let events: usize = self.events();
            // What is asked for changes only with what is told, or with time.
            let logs = self.logs.clone();
            let told = || logs.iter().map(|log| log.borrow().len()).sum::<usize>();
            let next = (self.now() + Duration::from_millis(1)).min(end);
            self.sim
                .run_until_with(next, |_| match told() > events {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
                .unwrap();
            let now = self.now();
            assert!(done(self) || now < end, "{what} did not happen by {now}: {:?}", self.logs);
        }
    }

    fn events(&self) -> usize {
        self.logs.iter().map(|log| log.borrow().len()).sum()
    }

    /// Runs until a host has been told of something, and gives it.
    pub fn wait_for<T>(
        &mut self,
        host: usize,
        what: &str,
        is_it: impl Fn(&Event) -> Option<T>,
    ) -> T {
        self.run_until(what, |net| net.logs[host].borrow().iter().any(|e| is_it(e).is_some()));
        let log = self.logs[host].borrow();
        log.iter().find_map(is_it).unwrap()
    }

    /// Until all that `from` wrote to `to` is in place.
    pub fn flush(&mut self, from: usize, to: usize) {
        let now = self.now();
        let link = self.nic(from).link_to(host_id(to)).unwrap();
        let barrier = self.nic(from).barrier(now, link).unwrap();
        let result = self.wait_for(from, "the barrier", |event| match event {
            Event::Barrier { barrier: b, result } if *b == barrier => Some(*result),
            _ => None,
        });
        assert_eq!(result, Ok(()));
    }

    /// The next notice of an endpoint, once there is one.
    pub fn notice(&mut self, host: usize, endpoint: EndpointId) -> Notice {
        let end = self.now() + PATIENCE;
        loop {
            if let Some(notice) = self.nic(host).poll_notice(endpoint) {
                return notice;
            }
            assert!(self.now() < end, "nothing was heard by {}: {:?}", self.now(), self.logs);
            self.run_for(Duration::from_micros(100));
        }
    }

    /// A connection between two hosts, with bodies that cross while it is made.
    pub fn connect(
        &mut self,
        from: usize,
        to: usize,
        bodies: [Body; 2],
    ) -> ([EndpointId; 2], [Body; 2]) {
        let listener = self.nic(to).open_endpoint(None).unwrap();
        self.nic(to).listen(listener).unwrap();
        let port = self.nic(to).port(listener).unwrap();
        let caller = self.nic(from).open_endpoint(None).unwrap();
        self.nic(from).connect(caller, address(to, port), bodies[0]).unwrap();
        let Notice::Request(request) = self.notice(to, listener) else { panic!("no request") };
        let callee = self.nic(to).open_endpoint(None).unwrap();
        self.nic(to).accept(callee, &request, bodies[1]).unwrap();
        let Notice::Accepted { body, .. } = self.notice(from, caller) else { panic!("refused") };
        let now = self.now();
        self.nic(to).close_endpoint(now, listener).unwrap();
        ([caller, callee], [request.body, body])
    }

    /// A host is killed and started again: it knows nothing, its memory is gone,
    /// and whatever was on its wire is lost.
    pub fn restart(&mut self, host: usize) {
        self.starts += 1;
        let nic = Nic::new(self.config.clone(), host_id(host), [self.starts + 100; 32]).unwrap();
        *self.nic(host) = nic;
        *self.memory(host) = Memory::default();
        let wire = self.wires[host];
        self.sim.set_link(wire, false).unwrap();
        self.sim.set_link(wire, true).unwrap();
        self.run_for(Duration::from_micros(1));
    }

    /// Bytes that reach a host as if another had sent them.
    pub fn inject(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let frame = Frame::addressed(self.peer(from), self.peer(to), bytes);
        self.sim.send(self.hosts[from].id(), PortId(0), frame).unwrap();
    }

    pub fn refusals(&self, host: usize) -> landfall_placement::Refusals {
        *self.node(host).engine().refusals()
    }
}

pub fn address(host: usize, port: Port) -> PortAddress {
    PortAddress { host: host_id(host), port }
}
