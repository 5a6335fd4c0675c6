//! The network of a run: for each plane a switch, for each host a bridge with a link to it, and
//! the engines of the host behind the bridge. So the four protocols share each link.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use landfall_placement::{Instant, Peer, Random};
use landfall_simnet::sim::Fate;
use landfall_simnet::switch::{Decision, Forwarding};
use landfall_simnet::{
    DirectionId, Error, Frame, Handle, LinkConfig, LinkId, NodeId, PortId, Sim, Switch,
};

use crate::plan::{Plan, Plane};
use crate::story::Story;

/// How many frames of a host are kept to come again.
const KEPT: usize = 64;
/// Of this many datagrams in fragments it is known that one fragment was damaged.
const DAMAGED: usize = 256;

type Ports = Rc<RefCell<BTreeMap<Peer, PortId>>>;
type Kept = Rc<RefCell<VecDeque<Frame>>>;

/// Forwards to where a station is known to be; what is for nobody in particular goes
/// everywhere, or to the rest of the network.
#[derive(Debug)]
struct Known {
    ports: Ports,
    /// Where the rest of the network is.
    up: Option<PortId>,
}

/// To whom a frame is.
fn destination(frame: &Frame) -> Peer {
    match (frame.to, frame.bytes.first_chunk::<6>()) {
        (Peer::Unaddressed, Some(station)) => Peer::Ethernet(*station),
        (to, _) => to,
    }
}

impl Forwarding for Known {
    fn decide(&mut self, from: PortId, frame: &Frame) -> Decision {
        let to = destination(frame);
        let is_group = matches!(to, Peer::Ethernet([first, ..]) if first & 1 == 1);
        match (self.ports.borrow().get(&to), self.up) {
            (Some(port), _) if *port == from => Decision::Discard,
            (Some(port), _) => Decision::To(*port),
            (None, _) if is_group => Decision::Flood,
            (None, Some(up)) if up != from => Decision::To(up),
            (None, _) => Decision::Discard,
        }
    }
}

/// A host's bridge in a plane.
struct Bridge {
    node: Handle<Switch>,
    ports: Ports,
    /// To the switch of the plane: `there` is away from the host.
    uplink: LinkId,
    /// Engines' links: `there` is towards the engine.
    engines: Vec<LinkId>,
    kept: Kept,
    /// Nothing is damaged any more.
    calm: Rc<Cell<bool>>,
    /// How many frames were.
    damaged: Rc<Cell<u64>>,
    /// How many callers were asked to prove their addresses.
    asked: Rc<Cell<u64>>,
    plane: usize,
    host: u8,
}

/// The network.
pub(crate) struct Net {
    bridges: Vec<Bridge>,
    planes: Vec<Plane>,
    cores: Vec<Ports>,
}

impl Net {
    /// The switches, and the bridges of the hosts that take part.
    pub(crate) fn build(sim: &mut Sim, plan: &Plan, story: &Story) -> Result<Self, Error> {
        let mut net = Self { bridges: Vec::new(), planes: plan.planes.clone(), cores: Vec::new() };
        let mut random = Random::from_number(plan.seed ^ 0xda3a6e);
        let plan_replays = plan.how.replays;
        for (plane, config) in plan.planes.iter().enumerate() {
            let stations = Ports::default();
            let core = Switch::new(Known { ports: stations.clone(), up: None });
            let core = sim.add(&format!("switch {plane}"), core)?;
            net.cores.push(stations);
            for host in (0..plan.hosts).filter(|host| plan.uses(*host)) {
                let ports = Ports::default();
                let bridge = Switch::new(Known { ports: ports.clone(), up: Some(PortId(0)) });
                let node = sim.add(&format!("bridge {host}.{plane}"), bridge)?;
                let uplink = sim.connect(node, core, config.link)?;
                let kept = Kept::default();
                let mut tamper = Tamper::new(Random::new(random.fork()), config.damage);
                let (calm, damaged) = (tamper.calm.clone(), tamper.damaged.clone());
                let keeps = kept.clone();
                let story = story.clone();
                let asked = Rc::<Cell<u64>>::default();
                let counts = asked.clone();
                sim.intercept(uplink.there(), move |now, frame| {
                    story.sent(now, host, frame);
                    if plan_replays {
                        keep(&keeps, frame);
                    }
                    if is_retry(frame) {
                        counts.set(counts.get() + 1);
                    }
                    tamper.see(frame);
                    Fate::Pass
                })?;
                let engines = Vec::new();
                net.bridges.push(Bridge {
                    node,
                    ports,
                    uplink,
                    engines,
                    kept,
                    calm,
                    damaged,
                    asked,
                    plane,
                    host,
                });
            }
        }
        Ok(net)
    }

    fn of(&mut self, host: u8) -> impl Iterator<Item = &mut Bridge> {
        self.bridges.iter_mut().filter(move |bridge| bridge.host == host)
    }

    /// Joins an engine's node to the bridges of its host, the first plane first; it is reached
    /// under this address.
    pub(crate) fn join(
        &mut self,
        sim: &mut Sim,
        host: u8,
        node: impl Into<NodeId>,
        address: Peer,
        story: &Story,
    ) -> Result<(), Error> {
        let node = node.into();
        let planes = self.planes.clone();
        let mut core_port = BTreeMap::new();
        for (n, bridge) in self.bridges.iter().enumerate() {
            let before = self.bridges[..n].iter().filter(|b| b.plane == bridge.plane).count();
            core_port.insert((bridge.plane, bridge.host), PortId(before as u16));
        }
        for bridge in self.of(host) {
            let plane = planes[bridge.plane].link;
            let mut inside = LinkConfig::new().mtu(plane.mtu);
            (inside.rate, inside.overhead) = (plane.rate, plane.overhead);
            let link = sim.connect(bridge.node, node, inside)?;
            let story = story.clone();
            sim.intercept(link.there(), move |_, frame| {
                story.arrived(host, frame);
                Fate::Pass
            })?;
            bridge.engines.push(link);
            bridge.ports.borrow_mut().insert(address, PortId(bridge.engines.len() as u16));
        }
        for (plane, stations) in self.cores.iter().enumerate() {
            if let Some(port) = core_port.get(&(plane, host)) {
                stations.borrow_mut().insert(address, *port);
            }
        }
        Ok(())
    }

    fn uplink(&self, host: u8, plane: u8) -> Option<LinkId> {
        let is_it = |b: &&Bridge| b.host == host && b.plane == usize::from(plane);
        self.bridges.iter().find(is_it).map(|bridge| bridge.uplink)
    }

    /// Nothing crosses the link of a host, or everything again; its engines are not told.
    pub(crate) fn unplug(
        &self,
        sim: &mut Sim,
        host: u8,
        plane: u8,
        is_up: bool,
    ) -> Result<(), Error> {
        self.uplink(host, plane).map_or(Ok(()), |link| sim.set_link(link, is_up))
    }

    /// The links of a host's engines go down or up, and they are told.
    pub(crate) fn set_port(
        &self,
        sim: &mut Sim,
        host: u8,
        plane: u8,
        is_up: bool,
    ) -> Result<(), Error> {
        let is_it = |b: &&Bridge| b.host == host && b.plane == usize::from(plane);
        for link in self.bridges.iter().filter(is_it).flat_map(|bridge| &bridge.engines) {
            sim.set_link(*link, is_up)?;
        }
        Ok(())
    }

    /// Frames that left a host before are sent again.
    pub(crate) fn replay(&mut self, sim: &mut Sim, host: u8, count: u8) -> Result<(), Error> {
        for bridge in self.of(host) {
            let frames: Vec<_> = bridge.kept.borrow().iter().take(count.into()).cloned().collect();
            for frame in frames {
                sim.send(bridge.node, PortId(0), frame)?;
            }
        }
        Ok(())
    }

    /// All faults end: links are perfect, and up.
    pub(crate) fn heal(&self, sim: &mut Sim) -> Result<(), Error> {
        for bridge in &self.bridges {
            let link = self.planes[bridge.plane].link;
            let calm = LinkConfig {
                loss: landfall_simnet::Loss::None,
                duplication: landfall_simnet::Probability::NEVER,
                reordering: Default::default(),
                ..link
            };
            bridge.calm.set(true);
            for direction in [bridge.uplink.there(), bridge.uplink.back()] {
                sim.configure(direction, calm)?;
            }
            for link in bridge.engines.iter().chain([&bridge.uplink]) {
                sim.set_link(*link, true)?;
            }
        }
        Ok(())
    }

    /// Frames that reached engines, and what became of all that were sent between hosts.
    pub(crate) fn stats(&self, sim: &Sim) -> NetStats {
        let mut stats = NetStats::default();
        let of = |direction: DirectionId| sim.stats(direction);
        for bridge in &self.bridges {
            for link in &bridge.engines {
                stats.frames += of(link.there()).delivered;
            }
            for direction in [bridge.uplink.there(), bridge.uplink.back()] {
                let one = of(direction);
                stats.lost += one.dropped_total();
                stats.doubled += one.duplicated;
                stats.reordered += one.reordered;
            }
            stats.damaged += bridge.damaged.get();
            stats.asked += bridge.asked.get();
        }
        stats
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetStats {
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) reordered: u64,
    pub(crate) damaged: u64,
    /// Retries of sealed handshakes.
    pub(crate) asked: u64,
}

/// Is a caller asked to prove its address?
fn is_retry(frame: &Frame) -> bool {
    frame.to != Peer::Unaddressed
        && (frame.bytes.first().copied(), frame.len()) == (Some(RETRY.0), RETRY.1)
}

/// Keeps some of the frames that leave, the newest last.
fn keep(kept: &Kept, frame: &Frame) {
    let mut kept = kept.borrow_mut();
    if kept.len() >= KEPT {
        kept.pop_front();
    }
    kept.push_back(frame.clone());
}

/// Flips one bit of some frames. Two in what one sum covers may cancel each other out, so of a
/// datagram in fragments one fragment is damaged at most.
struct Tamper {
    random: Random,
    /// Of a million.
    share: u32,
    calm: Rc<Cell<bool>>,
    damaged: Rc<Cell<u64>>,
    /// Datagrams in fragments of which one is damaged, the oldest first.
    known: BTreeSet<[u8; 6]>,
    order: VecDeque<[u8; 6]>,
}

/// An IPv4 packet in an Ethernet frame.
const IP4: [u8; 2] = [8, 0];
/// The first bytes of handshakes' messages: one that is changed ends its handshake, as
/// `docs/spec/seal.md` says.
const HANDSHAKE: std::ops::RangeInclusive<u8> = 0xe1..=0xe3;
/// The first byte of what asks a caller to prove its address, and how long that is.
const RETRY: (u8, usize) = (0xe4, 28);
/// What asks for stations has no sum at all: a real network's frames have their own.
const ARP: [u8; 2] = [8, 6];

impl Tamper {
    fn new(random: Random, share: u32) -> Self {
        let (calm, damaged) = (Rc::default(), Rc::default());
        let (known, order) = (BTreeSet::new(), VecDeque::new());
        Self { random, share, calm, damaged, known, order }
    }

    fn see(&mut self, frame: &mut Frame) {
        if !self.random.chance(self.share) || self.calm.get() || frame.is_empty() {
            return;
        }
        let bytes = &frame.bytes;
        let ethertype = (frame.to == Peer::Unaddressed).then(|| bytes.get(12..14)).flatten();
        if ethertype == Some(&ARP) || ethertype == Some(&IP4) && !self.may_damage(bytes) {
            return;
        }
        if ethertype.is_none() && bytes.first().is_some_and(|first| HANDSHAKE.contains(first)) {
            return;
        }
        let bit = self.random.below(frame.len() as u64 * 8) as usize;
        frame.bytes[bit / 8] ^= 1 << (bit % 8);
        self.damaged.set(self.damaged.get() + 1);
    }

    fn may_damage(&mut self, bytes: &[u8]) -> bool {
        let Some(ip) = bytes.get(14..34) else { return true };
        let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
        if !is_fragment {
            return true;
        }
        let name = [ip[4], ip[5], ip[12], ip[13], ip[14], ip[15]];
        if !self.known.insert(name) {
            return false;
        }
        self.order.push_back(name);
        if self.order.len() > DAMAGED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// The present moment, for people.
pub(crate) fn at(now: Instant) -> String {
    format!("{:.6} s", now.since(Instant::ZERO).as_secs_f64())
}
