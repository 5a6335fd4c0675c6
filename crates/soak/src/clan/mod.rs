//! CLAN: apertures of each host that others write to, read from and change words of, with a
//! tripwire at the doorbell behind what is written.
//!
//! | file | what it is |
//! | --- | --- |
//! | `truth` | what users began, and what must come of it |
//! | `calls` | what users do |
//! | `events` | what users are told, and whether it is so |

mod calls;
mod events;
mod truth;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use clan_dsm::{Config, Event, HostId, LinkId, Nic};
use landfall_placement::Peer;
use landfall_simnet::{EngineConfig, EngineNode, Error, Handle};

use crate::ctx::{Ctx, Hosts, Part};
use crate::plan::{Plan, Work};
use crate::planted::Planted;
use truth::Window;

type Engine = Planted<Nic>;
type Log = Rc<RefCell<VecDeque<Event>>>;

/// A host, as its user knows it.
struct Host {
    node: Handle<EngineNode<Engine>>,
    log: Log,
    starts: u8,
    /// The links that were last told to be up, by who is there.
    up: BTreeMap<u8, LinkId>,
    /// All links, with who is there: both may ask for one.
    all: BTreeMap<LinkId, u8>,
    /// Those that were asked for.
    asked: BTreeMap<u8, LinkId>,
}

pub(crate) struct Clan {
    hosts: Vec<Option<Host>>,
    windows: Vec<Window>,
    /// What waits until a link is up.
    queue: VecDeque<(u8, u8, Work)>,
}

fn config(plan: &Plan) -> Config {
    let mut config = if plan.how.is_shared { Config::shared_network() } else { Config::default() };
    if plan.planes.iter().any(|plane| plane.damage > 0) {
        config = config.with_checksum();
    }
    config
}

/// The name of a host among adapters.
fn host_id(host: u8) -> HostId {
    HostId::new(u16::from(host) + 1).expect("host numbers are small, and not zero")
}

fn engine(plan: &Plan, host: u8, start: u8) -> Engine {
    let mut seed = [2; 32];
    seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
    (seed[8], seed[9]) = (host + 1, start);
    Planted::new(Nic::new(config(plan), host_id(host), seed).unwrap(), plan.fault)
}

impl Clan {
    pub(crate) fn build(ctx: &mut Ctx) -> Result<Self, Error> {
        let plan = ctx.plan.clone();
        let mut hosts = Vec::new();
        for host in 0..plan.hosts {
            hosts.push(if plan.uses(host) { Some(Self::host(ctx, &plan, host)?) } else { None });
        }
        Ok(Self { hosts, windows: Vec::new(), queue: VecDeque::new() })
    }

    fn host(ctx: &mut Ctx, plan: &Plan, host: u8) -> Result<Host, Error> {
        let log = Log::default();
        let events = log.clone();
        let how = EngineConfig { shared: true, ..plan.how.engine };
        let node = EngineNode::with_config(engine(plan, host, 0), how)
            .on_event(move |_, _: &mut Engine, _, event| events.borrow_mut().push_back(event));
        let node = ctx.sim.add(&format!("clan {host}"), node)?;
        let peer = Peer::Node(node.id().0);
        ctx.net.join(&mut ctx.sim, host, node, peer, &ctx.story)?;
        Ok(Host {
            node,
            log,
            starts: 0,
            up: BTreeMap::new(),
            all: BTreeMap::new(),
            asked: BTreeMap::new(),
        })
    }

    fn known(&self, host: u8) -> &Host {
        self.hosts[usize::from(host)].as_ref().expect("hosts that steps name were built")
    }

    fn known_mut(&mut self, host: u8) -> &mut Host {
        self.hosts[usize::from(host)].as_mut().expect("hosts that steps name were built")
    }

    fn engine<'a>(&self, ctx: &'a mut Ctx, host: u8) -> &'a mut Engine {
        let node = self.known(host).node;
        ctx.sim.node_mut(node).expect("the node was added").engine_mut()
    }

    fn names(&self) -> Hosts {
        Hosts::new(self.hosts.iter().map(Option::is_some))
    }
}

impl Part for Clan {
    fn apply(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work) {
        let is_mine = matches!(
            work,
            Work::Write { .. }
                | Work::WriteFrom { .. }
                | Work::Dma { .. }
                | Work::ReadOut { .. }
                | Work::Change { .. }
                | Work::Barrier
        );
        if is_mine {
            self.begin(ctx, from, to, work);
        }
    }

    fn hear(&mut self, ctx: &mut Ctx) {
        for host in self.names() {
            loop {
                let Some(event) = self.known(host).log.borrow_mut().pop_front() else { break };
                ctx.note(host, || format!("{event:?}"));
                ctx.count("clan events");
                self.take(ctx, host, event);
            }
        }
    }

    fn restart(&mut self, ctx: &mut Ctx, host: u8) {
        if self.hosts[usize::from(host)].is_none() {
            return;
        }
        let start = self.known(host).starts + 1;
        let known = self.known_mut(host);
        known.starts = start;
        known.log.borrow_mut().clear();
        known.up.clear();
        known.all.clear();
        known.asked.clear();
        let (node, now) = (known.node, ctx.now());
        let fresh = engine(&ctx.plan, host, start);
        if let Ok(node) = ctx.sim.node_mut(node) {
            node.restart(now, fresh);
        }
        self.queue.retain(|(from, ..)| *from != host);
        for window in self.windows.iter_mut().filter(|window| window.joins(host)) {
            window.is_dead = true;
            if window.from == host {
                window.forget();
            }
        }
    }

    fn freeze(&mut self, ctx: &mut Ctx, host: u8, is_frozen: bool) {
        let Some(known) = &self.hosts[usize::from(host)] else { return };
        if let Ok(node) = ctx.sim.node_mut(known.node) {
            node.freeze_user(is_frozen);
        }
    }

    fn settle(&mut self, ctx: &mut Ctx) {
        for (from, to, work) in std::mem::take(&mut self.queue) {
            self.begin(ctx, from, to, work);
        }
        for window in 0..self.windows.len() {
            if !self.windows[window].is_flushed() {
                self.barrier(ctx, window);
            }
        }
    }

    fn close(&mut self, ctx: &mut Ctx) {
        self.check_all(ctx);
        let now = ctx.now();
        for host in self.names() {
            for (link, _) in self.known(host).all.clone() {
                let _ = self.engine(ctx, host).close_link(now, link);
            }
        }
    }

    fn left(&self, _ctx: &Ctx) -> Vec<String> {
        let windows = self.windows.iter().enumerate().filter_map(|(n, window)| {
            let count = window.under_way() + usize::from(!window.is_flushed());
            let what = format!("{count} operations through window {n} did not end");
            (count > 0).then_some(what)
        });
        let queue = self.queue.len();
        let waits = (queue > 0).then(|| format!("{queue} operations of clan wait for a link"));
        windows.chain(waits).collect()
    }

    fn open(&self, ctx: &Ctx) -> Vec<String> {
        let mut open = Vec::new();
        for host in self.names() {
            let Ok(node) = ctx.sim.node(self.known(host).node) else { continue };
            let count = node.engine().links().count();
            if count > 0 {
                open.push(format!("clan of host {host} has {count} links"));
            }
        }
        open
    }

    fn check(&mut self, ctx: &mut Ctx) {
        for host in self.names() {
            let node = self.known(host).node;
            ctx.check_driver(host, node);
        }
    }
}
