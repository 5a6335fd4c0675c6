//! What lies between the two hosts: a link, or switches that routes lead through.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use landfall_placement::{Duration, Instant};
use landfall_simnet::link::Corruption;
use landfall_simnet::sim::Fate;
use landfall_simnet::{
    DirectionId, Encapsulation, EngineConfig, EngineNode, Error, Frame, Handle, LinkConfig, NodeId,
    PortId, Probability, Sim,
};
use qpip::offload::HashSecret;
use qpip::{Adapter, Event};

use super::faulty::{Fault, Faulty};
use super::paced::Site;
use super::world::{Shape, ip};
use crate::lanai::switch::{SwitchCounters, SwitchDesign, SwitchNode};
use crate::lanai::{Helps, Lanai, LanaiSizes, LanaiTables, StageCosts, hop};
use crate::machine;
use crate::machine::{Costs, Parts, Requests, Route, Sizes};
use crate::node::NicNode;
use crate::world::Runs;

/// What lies between the two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// A link.
    #[default]
    Link,
    /// This many switches in a row: one to eight.
    Switches(u8, SwitchDesign),
}

impl Network {
    /// How many switches there are, and of what kind.
    fn switches(&self) -> Option<(u8, SwitchDesign)> {
        let Self::Switches(count, design) = *self else { return None };
        Some((count.clamp(1, Route::MOST as u8), design))
    }

    /// The addresses that a host reaches, and the way to each.
    pub(super) fn routes(&self, host: usize) -> Vec<(IpAddr, Route)> {
        let Some((count, _)) = self.switches() else { return Vec::new() };
        // The hosts lie in the order of the ports of every switch.
        let towards = hop(1 - host as u8);
        let route = Route::new((0..count).map(|_| towards)).unwrap_or_default();
        [false, true].map(|is_v6| (ip(1 - host, is_v6), route)).to_vec()
    }
}

/// The links between two hosts.
#[derive(Debug)]
pub(super) struct Wires {
    network: Network,
    /// The last of the ways to each host, and who sends on it.
    into: [(DirectionId, NodeId, PortId); 2],
    /// The ways into switches.
    inner: Vec<DirectionId>,
    switches: Vec<Handle<SwitchNode>>,
}

impl Wires {
    /// Between these hosts.
    pub(super) fn connect(
        sim: &mut Sim,
        hosts: [NodeId; 2],
        network: Network,
        config: LinkConfig,
    ) -> Result<Self, Error> {
        let Some((count, design)) = network.switches() else {
            let link = sim.connect(hosts[0], hosts[1], config)?;
            let port = PortId(0);
            let into = [(link.back(), hosts[1], port), (link.there(), hosts[0], port)];
            return Ok(Self { network, into, inner: Vec::new(), switches: Vec::new() });
        };
        let mut switches = Vec::new();
        for nth in 0..count {
            switches.push(sim.add(&format!("switch {nth}"), SwitchNode::new(design))?);
        }
        let inside = quiet(config);
        let mut inner = Vec::new();
        // Port 0 of each leads towards host 0, and port 1 towards the other.
        let (first, last) = (switches[0], switches[switches.len() - 1]);
        let link = sim.connect_each(hosts[0], first, inside, config)?;
        let back = (link.back(), first.id(), PortId(0));
        inner.push(link.there());
        for pair in switches.windows(2) {
            let link = sim.connect(pair[0], pair[1], inside)?;
            inner.extend([link.there(), link.back()]);
        }
        let link = sim.connect_each(last, hosts[1], config, inside)?;
        inner.push(link.back());
        let into = [back, (link.there(), last.id(), PortId(1))];
        Ok(Self { network, into, inner, switches })
    }

    /// How what crosses is captured: nobody knows frames that begin with a route.
    pub(super) const fn encapsulation(&self) -> Encapsulation {
        match self.network {
            Network::Link => Encapsulation::Ethernet,
            Network::Switches(..) => Encapsulation::User(0),
        }
    }

    /// The ways on which frames come to a host as they are.
    pub(super) fn last_ways(&self) -> [DirectionId; 2] {
        self.into.map(|(way, ..)| way)
    }

    /// Who could send a frame to this host that is forged, and by which port.
    pub(super) const fn forger(&self, host: usize) -> (NodeId, PortId) {
        let (_, node, port) = self.into[host];
        (node, port)
    }

    /// The links are like this from now on.
    pub(super) fn configure(&self, sim: &mut Sim, link: LinkConfig) -> Result<(), Error> {
        for way in self.last_ways() {
            sim.configure(way, link)?;
        }
        self.inner.iter().try_for_each(|way| sim.configure(*way, quiet(link)))
    }

    /// Hosts without a card that knows routes have somebody who puts them in front of
    /// what they send.
    pub(super) fn route_for_hosts(&self, sim: &mut Sim) -> Result<(), Error> {
        let (Some(first), Some(last)) = (self.inner.first(), self.inner.last()) else {
            return Ok(());
        };
        for (host, way) in [*first, *last].into_iter().enumerate() {
            let routes: BTreeMap<_, _> = self.network.routes(host).into_iter().collect();
            sim.intercept(way, move |_: Instant, frame: &mut Frame| {
                let Some(route) = destination(&frame.bytes).and_then(|to| routes.get(&to)) else {
                    return Fate::Drop;
                };
                frame.bytes.splice(..0, route.bytes().iter().copied());
                Fate::Pass
            })?;
        }
        Ok(())
    }

    /// What a switch counted.
    pub(super) fn switch<'s>(&self, sim: &'s Sim, nth: usize) -> Option<&'s SwitchCounters> {
        let node = sim.node(*self.switches.get(nth)?).ok()?;
        Some(node.counters())
    }
}

/// A link into a switch: what goes wrong does on the last one, but for damage, which
/// may strike a route.
fn quiet(link: LinkConfig) -> LinkConfig {
    let Corruption { probability, .. } = link.corruption;
    let clean = LinkConfig {
        loss: landfall_simnet::Loss::None,
        duplication: Probability::NEVER,
        reordering: landfall_simnet::link::Reordering::default(),
        ..link
    };
    SwitchDesign::link_in(clean.corruption(probability))
}

/// Where a frame goes, as somebody reads it who has all of it.
fn destination(frame: &[u8]) -> Option<IpAddr> {
    let bytes = |at: usize, len: usize| frame.get(at..at + len);
    match u16::from_be_bytes(bytes(12, 2)?.try_into().ok()?) {
        0x0800 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes(30, 4)?).ok()?)),
        0x86dd => Some(IpAddr::from(<[u8; 16]>::try_from(bytes(38, 16)?).ok()?)),
        _ => None,
    }
}

// `Host`: a node that runs the engine.

/// A card of a host of ours.
pub type Card = machine::Adapter<'static, Faulty<Lanai<'static>>>;
/// A host with a card.
pub type Carded = NicNode<Faulty<Lanai<'static>>, Adapter>;
/// A host without one: every payload is copied by a naive driver.
pub type Plain = EngineNode<Adapter>;

/// Where the events of a host go.
pub type EventQueue = Rc<RefCell<VecDeque<Event>>>;

/// A node that runs the engine.
pub trait Host: Runs<Adapter> {
    /// Does a card run the seam?
    const IS_CARDED: bool;
    /// A node for this engine, whose events go there: this host of a world.
    fn make(engine: Adapter, told: EventQueue, host: usize, shape: &Shape) -> Self;
    /// The firmware is loaded anew, where there is one.
    fn restart(&mut self, now: Instant);
}

/// What a card is made of.
#[derive(Clone, Debug)]
pub struct Build {
    /// Its tables.
    pub tables: LanaiSizes,
    /// Its slots and rings.
    pub sizes: Sizes,
    /// Work requests in their ring, and doorbells.
    pub requests: (usize, usize),
    /// What the machine costs.
    pub costs: Costs,
    /// What the firmware costs.
    pub stages: StageCosts,
    /// Which help of hardware it has.
    pub helps: Helps,
    /// From the moment at which the host could hear of something until it does.
    pub latency: Duration,
    /// What is wrong with the firmware.
    pub fault: Option<Fault>,
    /// Where TCP runs, in a host that is [`Paced`](super::Paced).
    pub site: Site,
}

/// Few entries, and everything at the same instant.
impl Default for Build {
    fn default() -> Self {
        Self {
            tables: LanaiSizes { entries: 16, pointers: 32, mappings: 4, routes: 4 },
            sizes: Sizes::default(),
            requests: (64, 64),
            costs: Costs::OFF,
            stages: StageCosts::default(),
            helps: Helps::default(),
            latency: Duration::ZERO,
            fault: None,
            site: Site::Card,
        }
    }
}

impl Build {
    /// The card.
    #[must_use]
    pub fn card(&self) -> Card {
        let tables = LanaiTables::owned(self.tables, HashSecret::new(0x5eed, 0x0bad));
        let firmware = Faulty::new(Lanai::new(tables, self.stages, self.helps), self.fault);
        let requests = Requests::owned(self.requests.0, self.requests.1);
        Card::new(firmware, Parts { requests, ..Parts::owned(&self.sizes) }, self.costs)
    }
}

/// Links into switches carry routes beside what the last one carries.
pub(super) fn engine_config(shape: &Shape) -> EngineConfig {
    let usual = EngineConfig::default();
    EngineConfig { most_unit: usual.most_unit.min(shape.link.mtu), ..usual }
}

impl Host for Carded {
    const IS_CARDED: bool = true;

    fn make(engine: Adapter, told: EventQueue, host: usize, shape: &Shape) -> Self {
        let mut card = shape.card.card();
        for (to, route) in shape.network.routes(host) {
            // What finds no room has no way.
            let _ = card.firmware_mut().inner_mut().set_route(to, route);
        }
        Self::with_config(engine, vec![card], engine_config(shape))
            .interrupt_latency(shape.card.latency)
            .on_event(move |_, _, _, event| told.borrow_mut().push_back(event))
    }

    fn restart(&mut self, now: Instant) {
        Self::restart(self, now, 0);
    }
}

impl Host for Plain {
    const IS_CARDED: bool = false;

    fn make(engine: Adapter, told: EventQueue, _: usize, shape: &Shape) -> Self {
        Self::with_config(engine, engine_config(shape))
            .on_event(move |_, _, _, event| told.borrow_mut().push_back(event))
    }

    fn restart(&mut self, _: Instant) {}
}
