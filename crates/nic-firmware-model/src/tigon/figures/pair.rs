//! Two hosts behind such adapters, and the users who sit there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use landfall_placement::{Area, Duration, Instant, PathId};
use landfall_simnet::{Handle, LinkConfig, Sim};
use stp_core::{Admission, Connect, ConnectionId, Endpoint, Event};

use super::Design;
use crate::machine::{Adapter, Parts, Sram};
use crate::node::NicNode;
use crate::tigon::{Config, Tables, Tigon};

/// A host behind adapters.
pub(super) type Host = NicNode<Tigon<'static>, Endpoint>;

/// What a side was told and has not looked at.
type Told = Rc<RefCell<VecDeque<Event>>>;

/// The port of the receiver.
const PORT: u16 = 7;
/// So many Blocks have a place at most.
const BLOCKS: usize = 256;

/// A sender and a receiver, connected, with memory of the same length.
pub(super) struct Pair {
    pub(super) sim: Sim,
    /// The sender, the receiver.
    pub(super) hosts: [Handle<Host>; 2],
    /// The connection, as each names it.
    pub(super) connections: [ConnectionId; 2],
    /// The memory of each.
    pub(super) areas: [Area; 2],
    told: [Told; 2],
}

/// An adapter whose slots, rings and tables fit into its SRAM.
fn adapter(design: &Design) -> Option<Adapter<'static, Tigon<'static>>> {
    let sizes = design.sizes();
    let mut sram = Sram::new(design.sram);
    sizes.reserve(&mut sram).ok()?;
    let stus = 1u16.checked_shl(u32::from(design.block))?;
    let blocks = Tables::most(&sram, stus).min(BLOCKS);
    Tables::reserve(&mut sram, blocks, stus).ok()?;
    let config = Config { cycles: design.cycles, ..Config::default() };
    let firmware = Tigon::new(Tables::owned(blocks, stus), config);
    Some(Adapter::new(firmware, Parts::owned(&sizes), design.costs))
}

impl Pair {
    /// Two hosts that are connected over all links; nothing where that fails, or an
    /// adapter's memory does not suffice.
    pub(super) fn new(design: &Design, memory: u32) -> Option<Self> {
        let mut sim = Sim::from_number(1);
        let told = [Told::default(), Told::default()];
        let mut hosts = Vec::new();
        for (seed, (name, told)) in (1..).zip(["sender", "receiver"].into_iter().zip(&told)) {
            let mut engine = Endpoint::new(design.engine(), [seed; 32]);
            engine.listen(PORT, Admission::Open).ok()?;
            let mut adapters = Vec::new();
            for _ in 0..design.links {
                adapters.push(adapter(design)?);
            }
            let told = told.clone();
            let host = Host::new(engine, adapters)
                .interrupt_latency(design.interrupt)
                .on_event(move |_, _, _, event| told.borrow_mut().push_back(event));
            hosts.push(sim.add(name, host).ok()?);
        }
        let hosts = [hosts[0], hosts[1]];
        let frame = design.frame();
        let link = LinkConfig {
            rate: Some(design.rate),
            overhead: design.overhead,
            delay: design.delay,
            mtu: frame,
            ..LinkConfig::new()
        };
        for _ in 0..design.links {
            sim.connect(hosts[0], hosts[1], link).ok()?;
        }
        let mut areas = [Area::default(); 2];
        for (side, area) in areas.iter_mut().enumerate() {
            let bytes = (0..memory).map(|at| (at % 251) as u8 * (1 - side as u8)).collect();
            let region = sim.node_mut(hosts[side]).ok()?.memory_mut().lend(bytes).ok()?;
            *area = Area::new(region, 0, u64::from(memory));
        }
        let connections = connect(&mut sim, hosts, &told, design)?;
        Some(Self { sim, hosts, connections, areas, told })
    }

    /// The engine of a side, to be used.
    pub(super) fn engine(&mut self, side: usize) -> Option<&mut Endpoint> {
        Some(self.sim.node_mut(self.hosts[side]).ok()?.engine_mut())
    }

    /// A side.
    pub(super) fn host(&self, side: usize) -> Option<&Host> {
        self.sim.node(self.hosts[side]).ok()
    }

    /// What a side was told next, and has not looked at.
    pub(super) fn take(&mut self, side: usize) -> Option<Event> {
        self.told[side].borrow_mut().pop_front()
    }

    /// The next thing happens, but nothing behind `deadline`, which is the present
    /// then. False where the simulation cannot go on.
    pub(super) fn step(&mut self, deadline: Instant) -> bool {
        match self.sim.step(deadline) {
            Ok(true) => true,
            Ok(false) => self.sim.run_until(deadline).is_ok(),
            Err(_) => false,
        }
    }

    /// Lets time pass; what is told in it is forgotten.
    pub(super) fn run_until(&mut self, deadline: Instant) -> Option<()> {
        self.sim.run_until(deadline).ok()?;
        self.told.iter().for_each(|told| told.borrow_mut().clear());
        Some(())
    }

    /// Waits, not for ever, until a side is told something.
    pub(super) fn await_event<T>(
        &mut self,
        side: usize,
        wanted: impl Fn(Event) -> Option<T>,
    ) -> Option<T> {
        let deadline = self.sim.now() + Duration::from_secs(2);
        while self.sim.now() < deadline {
            if !self.step(deadline) {
                return None;
            }
            while let Some(event) = self.take(side) {
                if let Some(found) = wanted(event) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Does the receiver have the bytes of the sender?
    pub(super) fn is_delivered(&self, len: u32) -> bool {
        let bytes = |side: usize| {
            let span = self.areas[side].span(0, len);
            self.host(side).and_then(|host| host.memory().read(span).ok())
        };
        bytes(0).is_some() && bytes(0) == bytes(1)
    }
}

/// Connects the two over their first link, then over all others.
fn connect(
    sim: &mut Sim,
    hosts: [Handle<Host>; 2],
    told: &[Told; 2],
    design: &Design,
) -> Option<[ConnectionId; 2]> {
    let [sender, receiver] = hosts;
    let settle = |sim: &mut Sim| {
        let until = sim.now() + design.delay * 8 + Duration::from_millis(2);
        sim.run_until(until).ok()
    };
    settle(sim)?;
    let (now, connect) = (sim.now(), Connect { port: PORT, ..Connect::default() });
    let engine = sim.node_mut(sender).ok()?.engine_mut();
    let here = engine.connect(now, PathId(0), receiver.peer(), connect).ok()?;
    settle(sim)?;
    for path in 1..design.links {
        let now = sim.now();
        let engine = sim.node_mut(sender).ok()?.engine_mut();
        engine.add_link(now, here, PathId(u16::from(path)), receiver.peer()).ok()?;
    }
    settle(sim)?;
    let there = told[1].borrow().iter().find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(*connection),
        _ => None,
    })?;
    told.iter().for_each(|told| told.borrow_mut().clear());
    Some([here, there])
}
