//! The ranks of a program around one switch: what collectives make of the network, for more ranks
//! than machines here have cores. The example `ranks` runs it for a thousand.

mod allreduce;
mod incast;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use landfall_placement::{Area, Instant, PathId, Peer};
use landfall_simnet::switch::Routes;
use landfall_simnet::{EngineNode, Handle, LinkConfig, LinkId, Memory, PortId, Sim, Switch};
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event};

pub(crate) use allreduce::allreduce;
pub(crate) use incast::incast;

/// The network: each rank has a link of this rate to the switch, and the switch a queue of this
/// many bytes behind each of its ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) rate: u64,
    pub(crate) mtu: u32,
    pub(crate) queue: u64,
}

impl Network {
    /// Ethernet of 10 Gbit/s with frames of 1500 bytes.
    pub(crate) const ETHERNET: Self = Self { rate: 10_000_000_000, mtu: 1_514, queue: 256 << 10 };

    /// From the switch to a rank; and back, where a rank waits for its own link.
    fn links(&self) -> (LinkConfig, LinkConfig) {
        let link = LinkConfig::ethernet(self.rate).mtu(self.mtu);
        (link.queue_bytes(self.queue), link)
    }
}

/// So much is on its way to a rank at a time: it fills the link, and the switch has room for it.
const WINDOW: u64 = 96 << 10;

/// The network is the program's alone.
pub(crate) fn alone() -> Config {
    let room = wide();
    Config {
        window: WINDOW,
        max_stu: 10,
        block_stus: 3,
        blocks_ahead: 64,
        half_open: room.half_open,
        receives: room.receives,
        ..Config::default()
    }
}

/// Others use the network, too: as endpoints of libfabric are, with `FI_LANDFALL_WINDOW=96`.
pub(crate) fn shared() -> Config {
    Config { window: WINDOW, ..wide() }
}

/// The same as they are without it, with room for a connection to each of a thousand ranks.
pub(crate) fn wide() -> Config {
    Config { half_open: 1 << 10, receives: 1 << 11, ..Config::shared_network() }
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// From the first send until the last rank has all it waits for.
    pub(crate) took: Duration,
    /// Frames that the switch, or a link, has dropped since the ranks began to connect.
    pub(crate) dropped: u64,
    /// The longest queue of the switch, in bytes.
    pub(crate) queued: u64,
    /// Frames that went from the switch to ranks.
    pub(crate) frames: u64,
    /// How much of the time the links were busy that had to carry everything, in per mille.
    pub(crate) busy: u64,
    /// The same for what is the program's own: without headers, grants and acknowledgements.
    pub(crate) payload: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { took, dropped, queued, frames, busy, payload } = self;
        let part = |per_mille: &u64| *per_mille as f64 / 1_000.0;
        write!(
            f,
            "{took:.2?}, link use {:.3} ({:.3} by payload), {dropped} dropped of {frames} frames, \
             longest queue {queued} bytes",
            part(busy),
            part(payload),
        )
    }
}

/// What a rank makes of what its engine tells.
type React = Box<dyn FnMut(Instant, &mut Endpoint, &mut Memory, &Arrived) -> bool>;

/// A message is in the memory that was posted for it.
pub(crate) struct Arrived {
    pub(crate) memory: Area,
}

/// What all can see of a rank.
#[derive(Default)]
struct RankState {
    /// Its connections, by the rank at the other end.
    connections: BTreeMap<usize, ConnectionId>,
    react: Option<React>,
    done: Option<Instant>,
    sent: usize,
}

struct Rank {
    host: Handle<EngineNode<Endpoint>>,
    /// From the switch to it, and back.
    link: LinkId,
    state: Rc<RefCell<RankState>>,
}

/// All ranks, and what is between them.
struct World {
    sim: Sim,
    network: Network,
    ranks: Vec<Rank>,
}

const PORT: u16 = 7;
/// No run takes longer, in the time of the simulator.
const LIMIT: Duration = Duration::from_secs(60);

impl World {
    fn new(ranks: usize, network: Network, config: &Config) -> Self {
        let mut sim = Sim::from_number(ranks as u64);
        let mut add = |number: usize| {
            let state: Rc<RefCell<RankState>> = Rc::default();
            let mut seed = [7; 32];
            seed[..8].copy_from_slice(&(number as u64).to_le_bytes());
            let mut endpoint = Endpoint::new(config.clone(), seed).unwrap();
            endpoint.listen(PORT, Admission::Open).unwrap();
            let told = Rc::clone(&state);
            let node = EngineNode::new(endpoint).on_event(move |now, endpoint, memory, event| {
                told.borrow_mut().hear(now, endpoint, memory, event);
            });
            (sim.add(&format!("rank {number}"), node).unwrap(), state)
        };
        let hosts: Vec<_> = (0..ranks).map(&mut add).collect();
        // It knows where each of them is: nothing is flooded.
        let routes = hosts.iter().zip(0..).fold(Routes::new(), |routes, ((host, _), port)| {
            routes.with(Peer::Node(host.id().0), PortId(port))
        });
        let switch = sim.add("switch", Switch::new(routes)).unwrap();
        let mut join = |(host, state): (Handle<EngineNode<Endpoint>>, _)| {
            let (there, back) = network.links();
            let link = sim.connect_each(switch, host, there, back).unwrap();
            Rank { host, link, state }
        };
        let ranks = hosts.into_iter().map(&mut join).collect();
        sim.run_until(Instant::from_millis(1)).unwrap();
        Self { sim, network, ranks }
    }

    /// Connects the first of each pair with the second.
    fn connect(&mut self, pairs: &[(usize, usize)]) {
        let now = self.sim.now();
        for &(from, to) in pairs {
            let peer = Peer::Node(self.ranks[to].host.id().0);
            let connect = Connect { port: PORT, hello: from as u64, ..Connect::default() };
            let engine = self.sim.node_mut(self.ranks[from].host).unwrap().engine_mut();
            let connection = engine.connect(now, PathId(0), peer, connect).unwrap();
            self.ranks[from].state.borrow_mut().connections.insert(to, connection);
        }
        self.sim.run_until(now + Duration::from_millis(500)).unwrap();
        for &(from, to) in pairs {
            let connection = self.ranks[from].state.borrow().connections[&to];
            let engine = self.sim.node(self.ranks[from].host).unwrap().engine();
            assert!(engine.is_open(connection), "{from} has a connection to {to}");
            assert!(self.ranks[to].state.borrow().connections.contains_key(&from));
        }
    }

    fn lend(&mut self, rank: usize, bytes: Vec<u8>) -> Area {
        let len = bytes.len() as u64;
        let host = self.sim.node_mut(self.ranks[rank].host).unwrap();
        Area::new(host.memory_mut().lend(bytes).unwrap(), 0, len)
    }

    fn connection(&self, rank: usize, peer: usize) -> ConnectionId {
        self.ranks[rank].state.borrow().connections[&peer]
    }

    /// Where a rank gets the next message of another.
    fn post(&mut self, rank: usize, from: usize, memory: Area) {
        let (now, connection) = (self.sim.now(), self.connection(rank, from));
        let engine = self.sim.node_mut(self.ranks[rank].host).unwrap().engine_mut();
        engine.post(now, connection, memory, false).unwrap();
    }

    fn send(&mut self, rank: usize, to: usize, memory: Area) {
        let (now, connection) = (self.sim.now(), self.connection(rank, to));
        let engine = self.sim.node_mut(self.ranks[rank].host).unwrap().engine_mut();
        engine.send(now, connection, memory, 0).unwrap();
    }

    /// Calls this with what arrives at a rank, until it says that this was all.
    fn react(
        &mut self,
        rank: usize,
        react: impl FnMut(Instant, &mut Endpoint, &mut Memory, &Arrived) -> bool + 'static,
    ) {
        self.ranks[rank].state.borrow_mut().react = Some(Box::new(react));
    }

    /// Runs from what `begin` sends until these ranks are done, each of which gets `bytes`.
    fn measure(&mut self, done: &[usize], bytes: u64, begin: impl FnOnce(&mut Self)) -> Outcome {
        let began = self.sim.now();
        let delivered = |world: &Self| -> u64 {
            let link = |rank: &usize| world.sim.stats(world.ranks[*rank].link.there());
            // With what goes before and behind each frame on the medium.
            done.iter().map(link).map(|of| of.delivered_bytes + of.delivered * 24).sum()
        };
        let before = delivered(self);
        begin(self);
        let waits =
            |world: &Self| done.iter().any(|rank| world.ranks[*rank].state.borrow().done.is_none());
        while waits(self) {
            assert!(self.sim.now() < began + LIMIT, "not done by {}", self.sim.now());
            self.sim.run_until(self.sim.now() + Duration::from_millis(1)).unwrap();
        }
        let ends = done.iter().filter_map(|rank| self.ranks[*rank].state.borrow().done);
        let took = ends.max().unwrap().since(began);
        let capacity = u128::from(self.network.rate) * took.as_nanos() / 8 / 1_000_000_000;
        let part =
            |bytes: u64| (u128::from(bytes) * 1_000 / (capacity * done.len() as u128)) as u64;
        let (busy, payload) = (part(delivered(self) - before), part(bytes * done.len() as u64));
        // What was not acknowledged yet, or repeated for nothing, counts as well.
        self.sim.run_until(self.sim.now() + Duration::from_millis(500)).unwrap();
        let (mut dropped, mut queued, mut frames) = (0, 0, 0);
        for rank in &self.ranks {
            let (there, back) = (rank.link.there(), rank.link.back());
            let (there, back) = (self.sim.stats(there), self.sim.stats(back));
            dropped += there.dropped_total() + back.dropped_total();
            queued = queued.max(there.queue_high_bytes);
            frames += there.delivered;
        }
        Outcome { took, dropped, queued, frames, busy, payload }
    }
}

impl RankState {
    fn hear(&mut self, now: Instant, endpoint: &mut Endpoint, memory: &mut Memory, event: Event) {
        match event {
            Event::Accepted { connection, hello, .. } => {
                self.connections.insert(hello as usize, connection);
            }
            Event::Connected { .. } => {}
            Event::Sent { .. } => self.sent += 1,
            Event::Received { memory: area, len, offered, .. } => {
                assert_eq!((len, offered), (area.len, area.len));
                let react = self.react.as_mut().expect("nothing comes before it is waited for");
                if react(now, endpoint, memory, &Arrived { memory: area }) {
                    self.done = Some(now);
                }
            }
            other => panic!("a rank was told {other:?}"),
        }
    }
}
