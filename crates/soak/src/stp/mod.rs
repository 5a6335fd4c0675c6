//! STP, plain or sealed: connections between hosts, Transfers, reads, and a region on each
//! connection that the side that asked for it writes to.
//!
//! | file | what it is |
//! | --- | --- |
//! | `truth` | what users began, and what must come of it |
//! | `calls` | what users do |
//! | `wishes` | deadlines, priorities and weights, memory that is taken back, and who only knocks |
//! | `events` | what users are told, and whether it is so |

mod calls;
mod events;
mod truth;
mod wishes;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use landfall_placement::{Area, Duration, Peer};
use landfall_seal::{Proof, SealConfig, Sealed, Secret, StaticKey, TrustAnybody};
use landfall_simnet::{EngineConfig, EngineNode, Error, Handle, Memory};
use stp_core::{Admission, Config, ConnectionId, Endpoint, Event, Policy, SendId};

use crate::ctx::{Ctx, Hosts, Part};
use crate::plan::{Plan, Work};
use crate::planted::Planted;
pub(crate) use calls::{changed, function};
use truth::{Link, Reading, Transfer};
use wishes::Deadline;

/// The port that everybody listens at.
const PORT: u16 = 7;
/// The longest Transfer, and memory that is posted for one.
const LONGEST: u32 = 256 << 10;
/// A region.
const REGION: u64 = 16 << 10;

type Engine = Planted<Sealed<Endpoint>>;
type Log = Rc<RefCell<VecDeque<Event>>>;

/// A host, as its user knows it.
struct Host {
    node: Handle<EngineNode<Engine>>,
    log: Log,
    /// How often it was started.
    starts: u8,
    /// The links whose connections these are.
    connections: BTreeMap<ConnectionId, usize>,
    sends: BTreeMap<SendId, usize>,
    /// Questions that wait for an answer.
    later: Vec<Event>,
    /// Memory that was posted, with the link whose connection has it.
    posts: Vec<(usize, Area)>,
}

pub(crate) struct Stp {
    hosts: Vec<Option<Host>>,
    links: Vec<Link>,
    transfers: Vec<Transfer>,
    reads: Vec<Reading>,
    deadlines: Vec<Deadline>,
}

/// This many sealed handshakes may wait for their ends where it is crowded: with half as many,
/// callers have to prove their addresses.
const CROWDED: usize = 40;

fn config(plan: &Plan, host: u8) -> Config {
    let mut config = if plan.how.is_shared { Config::shared_network() } else { Config::default() };
    if plan.planes.iter().any(|plane| plane.damage > 0) {
        config = config.with_checksum();
    }
    let usual = if plan.how.is_shared { 64 << 20 } else { 512 << 10 };
    config.window = plan.how.window.map_or(usual, u64::from);
    config.eager = plan.how.eager_of(host);
    if plan.how.is_shortest_first {
        config.policy = Policy::ShortestFirst;
    }
    config.progress = plan.seed.is_multiple_of(2);
    if plan.how.is_tight {
        config.blocks_ahead = 1;
        config.slots = 2;
        config.operations = 4;
        config.blocks = 16;
        config.sends = 8;
        config.receives = 8;
        config.block_stus = 3;
        config.queue = 64;
    }
    config
}

fn engine(plan: &Plan, host: u8, start: u8) -> Engine {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
    (seed[8], seed[9]) = (host + 1, start);
    let mut config = config(plan, host);
    if plan.how.is_sealed {
        config.tail = landfall_seal::OVERHEAD as u8;
    }
    let mut endpoint = Endpoint::new(config, seed).unwrap();
    let admission = if plan.how.asks { Admission::Ask } else { Admission::Open };
    let _ = endpoint.listen(PORT, admission);
    let sealed = if plan.how.is_sealed {
        let proof = match plan.how.has_key_pairs {
            true => Proof::KeyPair(StaticKey::new(Secret::new([host + 1; 32]))),
            false => Proof::PresharedKey(Secret::new([7; 32])),
        };
        let mut config = SealConfig::new(proof);
        if plan.how.is_crowded {
            config.half_open = CROWDED;
        }
        Sealed::new(endpoint, config, Box::new(TrustAnybody), seed)
    } else {
        Sealed::plain(endpoint)
    };
    Planted::new(sealed, plan.fault)
}

impl Stp {
    pub(crate) fn build(ctx: &mut Ctx) -> Result<Self, Error> {
        let plan = ctx.plan.clone();
        let mut hosts = Vec::new();
        for host in 0..plan.hosts {
            hosts.push(if plan.uses(host) { Some(Self::host(ctx, &plan, host)?) } else { None });
        }
        let (links, transfers) = (Vec::new(), Vec::new());
        Ok(Self { hosts, links, transfers, reads: Vec::new(), deadlines: Vec::new() })
    }

    fn host(ctx: &mut Ctx, plan: &Plan, host: u8) -> Result<Host, Error> {
        let log = Log::default();
        let events = log.clone();
        let how = EngineConfig { shared: true, ..plan.how.engine };
        let node = EngineNode::with_config(engine(plan, host, 0), how).on_event(
            move |_, _: &mut Engine, memory: &mut Memory, event| {
                if let Event::Received { memory: area, len, .. } = event {
                    // Anyone who writes there again ends the run (invariant 1).
                    let _ = memory.freeze(area.span(0, len as u32));
                }
                events.borrow_mut().push_back(event);
            },
        );
        let node = ctx.sim.add(&format!("stp {host}"), node)?;
        let peer = Peer::Node(node.id().0);
        ctx.net.join(&mut ctx.sim, host, node, peer, &ctx.story)?;
        Ok(Host {
            node,
            log,
            starts: 0,
            connections: BTreeMap::new(),
            sends: BTreeMap::new(),
            later: Vec::new(),
            posts: Vec::new(),
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

impl Part for Stp {
    fn apply(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work) {
        let is_mine = matches!(
            work,
            Work::Send { .. }
                | Work::Post
                | Work::Read { .. }
                | Work::Put { .. }
                | Work::Get { .. }
                | Work::Fetch { .. }
                | Work::Cancel
                | Work::AddLink { .. }
                | Work::Close { .. }
                | Work::SendWithin { .. }
                | Work::ReadWithin { .. }
                | Work::Withdraw
                | Work::Prefer { .. }
        );
        match work {
            Work::Knock { count } => self.knock(ctx, from, to, count),
            _ if is_mine => self.begin(ctx, from, to, work),
            _ => {}
        }
    }

    fn hear(&mut self, ctx: &mut Ctx) {
        self.end_late(ctx);
        for host in self.names() {
            while let Some(event) = self.pop(host) {
                ctx.note(host, || format!("{event:?}"));
                self.take(ctx, host, event);
            }
        }
    }

    fn restart(&mut self, ctx: &mut Ctx, host: u8) {
        if self.hosts[usize::from(host)].is_none() {
            return;
        }
        let known = self.known_mut(host);
        known.starts += 1;
        known.log.borrow_mut().clear();
        known.connections.clear();
        known.sends.clear();
        known.later.clear();
        known.posts.clear();
        let (node, start, now) = (known.node, known.starts, ctx.now());
        let fresh = engine(&ctx.plan, host, start);
        if let Ok(node) = ctx.sim.node_mut(node) {
            node.restart(now, fresh);
        }
        for link in self.links.iter_mut().filter(|link| link.joins(host)) {
            link.is_gone = true;
            link.forget(host);
        }
        for transfer in &mut self.transfers {
            transfer.is_over |= transfer.from == host;
            if transfer.to == host {
                transfer.into = None;
                transfer.has_receiver = false;
            }
        }
        for read in &mut self.reads {
            read.is_over |= read.by == host;
        }
    }

    fn freeze(&mut self, ctx: &mut Ctx, host: u8, is_frozen: bool) {
        let Some(known) = &self.hosts[usize::from(host)] else { return };
        if let Ok(node) = ctx.sim.node_mut(known.node) {
            node.freeze_user(is_frozen);
        }
    }

    fn settle(&mut self, ctx: &mut Ctx) {
        self.end_late(ctx);
        for host in self.names() {
            for question in std::mem::take(&mut self.known_mut(host).later) {
                self.answer(ctx, host, question, true);
            }
        }
        self.retry(ctx);
    }

    fn close(&mut self, ctx: &mut Ctx) {
        self.tally(ctx);
        for link in 0..self.links.len() {
            for host in [self.links[link].from, self.links[link].to] {
                self.close_link(ctx, link, host, false);
            }
        }
    }

    fn left(&self, _ctx: &Ctx) -> Vec<String> {
        let transfers = self.transfers.iter().enumerate().filter(|(_, t)| !t.is_over);
        let transfers = transfers.map(|(n, t)| format!("transfer {n} did not end: {t:?}"));
        let reads = self.reads.iter().enumerate().filter(|(_, r)| !r.is_over);
        let reads = reads.map(|(n, r)| format!("read {n} did not end: {r:?}"));
        let links = self.links.iter().enumerate().filter_map(|(n, link)| {
            let what = link.left()?;
            Some(format!("connection {n} from {} to {}: {what}", link.from, link.to))
        });
        transfers.chain(reads).chain(links).collect()
    }

    fn open(&self, ctx: &Ctx) -> Vec<String> {
        let mut open = Vec::new();
        for host in self.names() {
            let Ok(node) = ctx.sim.node(self.known(host).node) else { continue };
            let count = node.engine().connections();
            if count > 0 {
                open.push(format!("stp of host {host} has {count} connections"));
            }
            if node.engine().granted_bytes() > 0 && count == 0 {
                open.push(format!("stp of host {host} has granted bytes to nobody"));
            }
        }
        open
    }

    fn check(&mut self, ctx: &mut Ctx) {
        for host in self.names() {
            let node = self.known(host).node;
            ctx.check_driver(host, node);
            let Ok(known) = ctx.sim.node(node) else { continue };
            let engine = known.engine();
            // One STU always may be granted where nothing is.
            let window = engine.config().window.max(1 << engine.config().max_stu);
            let granted = engine.granted_bytes();
            let is_wrong = engine.connections() > engine.config().connections;
            if granted > window {
                ctx.fail(host, &format!("{granted} bytes are granted, beyond {window}"));
            } else if is_wrong {
                ctx.fail(host, "there are more connections than may be");
            }
        }
    }
}

/// How long users think before they answer what they do not answer at once.
const THINKS: Duration = Duration::from_millis(300);
