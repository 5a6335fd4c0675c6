//! QPIP: queue pairs with connections of each mapping, and with datagrams; beside each adapter
//! the speculative receiver of datagrams.
//!
//! | file | what it is |
//! | --- | --- |
//! | `truth` | what users began, and what must come of it |
//! | `calls` | what users do |
//! | `events` | what users are told, and whether it is so |
//! | `disk` | block devices over connections: the protocol of the network block device |
//! | `device` | a device that forgets, and what its client may find there |

mod calls;
mod device;
mod disk;
mod events;
mod truth;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use landfall_placement::{Area, Duration, PathId, Peer};
use landfall_simnet::{EngineNode, Error, Handle};
use qpip::{
    Access, Adapter, Buffer, CompletionQueueId, Config, CongestionControl, DomainId, Event,
    Interface, KeepAlive, MemoryKey, OwnAddress, QueuePairId, QueuePairSetup, ReceiveWork, Service,
};

use crate::ctx::{Ctx, Hosts, Part};
use crate::datagram::{self, Joined, Speculative};
use crate::plan::{Plan, Work};
use crate::planted::Planted;
use device::Disks;
use truth::{Connection, Datagram};

/// The longest message.
const LONGEST: u32 = 16 << 10;
/// Requests to receive that wait at a queue pair.
const POSTED: usize = 6;
/// How many completions wait at most.
const COMPLETIONS: u32 = 4_096;
/// How many requests a queue takes.
const DEPTH: u32 = 64;

type Engine = Planted<Adapter>;
type Log = Rc<RefCell<VecDeque<Event>>>;

/// Memory that an adapter has for a request.
#[derive(Clone, Copy, Debug)]
struct Given {
    area: Area,
    key: MemoryKey,
}

/// A host, as its user knows it.
struct Host {
    node: Handle<EngineNode<Engine>>,
    log: Log,
    starts: u8,
    domain: DomainId,
    queue: CompletionQueueId,
    /// The queue pair for datagrams.
    datagrams: QueuePairId,
    /// Requests that were posted and did not complete.
    given: BTreeMap<u64, Given>,
    /// What connection a queue pair is of.
    pairs: BTreeMap<QueuePairId, usize>,
    joined: Joined,
}

pub(crate) struct Qpip {
    hosts: Vec<Option<Host>>,
    connections: Vec<Connection>,
    datagrams: Vec<Datagram>,
    disks: Disks,
    /// Names of requests.
    names: u64,
}

/// How a host's adapter is named within itself.
struct Names {
    domain: DomainId,
    queue: CompletionQueueId,
    datagrams: QueuePairId,
}

fn config(plan: &Plan) -> Config {
    let mut config = Config { predicts: !plan.seed.is_multiple_of(5), ..Config::default() };
    let tcp = &mut config.tcp;
    tcp.give_up_after = Duration::from_secs(20);
    tcp.opening_retries = 4;
    // Longer than an end takes to be repeated: who forgets sooner resets who asks again.
    tcp.time_wait = Duration::from_secs(30);
    tcp.finish_within = Duration::from_secs(20);
    // A side that is shut waits for as long as it likes for a peer that was started anew.
    tcp.keep_alive = Some(KeepAlive {
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(1),
        probes: 9,
    });
    tcp.sack = !plan.seed.is_multiple_of(7);
    tcp.timestamps = !plan.seed.is_multiple_of(3);
    tcp.ecn = plan.seed.is_multiple_of(4);
    tcp.corks = plan.seed.is_multiple_of(11);
    if plan.seed.is_multiple_of(2) {
        tcp.congestion = CongestionControl::NewReno;
    }
    config
}

fn interface(plan: &Plan, host: u8) -> Interface {
    let others = (0..plan.hosts).flat_map(|other| [(other, false), (other, true)]);
    Interface {
        mac: datagram::station(host, false),
        addresses: vec![OwnAddress::new(datagram::ip(host, false), 16)],
        neighbours: others
            .filter(|known| *known != (host, false))
            .map(|(other, kind)| (datagram::ip(other, kind), datagram::station(other, kind)))
            .collect(),
        ..Interface::default()
    }
}

/// A fresh adapter, with all that its user needs.
fn engine(plan: &Plan, host: u8, start: u8) -> Result<(Engine, Names), qpip::Error> {
    let mut seed = [1; 32];
    seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
    (seed[8], seed[9]) = (host + 1, start);
    let mut adapter = Adapter::new(config(plan), seed).unwrap();
    adapter.add_interface(PathId(0), interface(plan, host))?;
    let domain = adapter.create_domain()?;
    let queue = adapter.create_completion_queue(COMPLETIONS)?;
    let datagrams = adapter.create_queue_pair(&setup(domain, queue, Service::Udp))?;
    let local = SocketAddr::new(datagram::ip(host, false), datagram::PORT);
    adapter.bind(datagrams, local)?;
    Ok((Planted::new(adapter, plan.fault), Names { domain, queue, datagrams }))
}

const fn setup(domain: DomainId, queue: CompletionQueueId, service: Service) -> QueuePairSetup {
    QueuePairSetup {
        domain,
        send_completions: queue,
        receive_completions: queue,
        service,
        send_depth: DEPTH,
        receive_depth: DEPTH,
        shared_receives: None,
    }
}

impl Qpip {
    pub(crate) fn build(ctx: &mut Ctx) -> Result<Self, Error> {
        let plan = ctx.plan.clone();
        let mut hosts = Vec::new();
        for host in 0..plan.hosts {
            hosts.push(if plan.uses(host) { Some(Self::host(ctx, &plan, host)?) } else { None });
        }
        let (connections, datagrams) = (Vec::new(), Vec::new());
        let mut qpip = Self { hosts, connections, datagrams, disks: Disks::new(), names: 0 };
        for host in qpip.names() {
            let pair = qpip.known(host).datagrams;
            qpip.feed(ctx, host, pair, POSTED);
        }
        Ok(qpip)
    }

    fn host(ctx: &mut Ctx, plan: &Plan, host: u8) -> Result<Host, Error> {
        let log = Log::default();
        let events = log.clone();
        let (engine, names) = engine(plan, host, 0).expect("an adapter is made of good parts");
        let node = EngineNode::with_config(engine, plan.how.engine)
            .on_event(move |_, _: &mut Engine, _, event| events.borrow_mut().push_back(event));
        let node = ctx.sim.add(&format!("qpip {host}"), node)?;
        let station = Peer::Ethernet(datagram::station(host, false));
        ctx.net.join(&mut ctx.sim, host, node, station, &ctx.story)?;
        let (speculative, joined) = Speculative::new(host, plan.seed.is_multiple_of(3));
        let beside = ctx.sim.add(&format!("defrag {host}"), speculative)?;
        let station = Peer::Ethernet(datagram::station(host, true));
        ctx.net.join(&mut ctx.sim, host, beside, station, &ctx.story)?;
        let Names { domain, queue, datagrams } = names;
        let (given, pairs) = (BTreeMap::new(), BTreeMap::new());
        Ok(Host { node, log, starts: 0, domain, queue, datagrams, given, pairs, joined })
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

    /// Registered memory with these bytes in it, and the name of a request for it.
    fn give(
        &mut self,
        ctx: &mut Ctx,
        host: u8,
        bytes: &[u8],
        access: Access,
    ) -> Option<(u64, Buffer)> {
        let Host { node, domain, .. } = *self.known(host);
        let area = ctx.lend(node, bytes)?;
        let key = self.engine(ctx, host).register(domain, area, access).ok()?;
        self.names += 1;
        let name = self.names;
        self.known_mut(host).given.insert(name, Given { area, key });
        Some((name, Buffer::new(key, 0, bytes.len() as u32)))
    }

    /// Memory that a request had is the user's again.
    fn regain(&mut self, ctx: &mut Ctx, host: u8, name: u64, keeps_bytes: bool) {
        let Some(Given { area, key }) = self.known_mut(host).given.remove(&name) else {
            return ctx.fail(host, &format!("request {name} completed twice"));
        };
        let node = self.known(host).node;
        if let Err(error) = self.engine(ctx, host).deregister(key) {
            ctx.fail(host, &format!("memory of request {name} is not the user's: {error}"));
        }
        if !keeps_bytes {
            ctx.take_back(host, node, area);
        } else if !ctx.is_guarded(node, area) {
            ctx.fail(host, &format!("something was written around {area}"));
        }
    }

    /// Posts requests to receive until this many wait.
    fn feed(&mut self, ctx: &mut Ctx, host: u8, pair: QueuePairId, count: usize) {
        let now = ctx.now();
        for _ in 0..count {
            let fresh = vec![0xc5; LONGEST as usize];
            let Some((id, buffer)) = self.give(ctx, host, &fresh, Access::ReadWrite) else {
                return;
            };
            let into = [buffer];
            let work = ReceiveWork { id, into: &into };
            if let Err(error) = self.engine(ctx, host).post_receive(now, pair, &work) {
                self.regain(ctx, host, id, false);
                if !matches!(error, qpip::PostError::Ended | qpip::PostError::UnknownQueuePair) {
                    ctx.fail(host, &format!("post_receive says: {error}"));
                }
                return;
            }
        }
    }
}

impl Part for Qpip {
    fn apply(&mut self, ctx: &mut Ctx, from: u8, to: u8, work: Work) {
        match work {
            Work::Message { kind, len } => self.send(ctx, from, to, kind, len),
            Work::Shutdown { kind, at_once } => self.shut(ctx, from, to, kind, at_once),
            Work::Datagram { speculates, len } => {
                self.send_datagram(ctx, from, to, speculates, len);
            }
            Work::Disk { .. } => self.use_disk(ctx, from, to, work),
            _ => {}
        }
    }

    fn hear(&mut self, ctx: &mut Ctx) {
        for host in self.names() {
            self.hear_joined(ctx, host);
            if ctx.frozen[usize::from(host)] {
                continue;
            }
            self.collect(ctx, host);
            loop {
                let Some(event) = self.known(host).log.borrow_mut().pop_front() else { break };
                ctx.note(host, || format!("{event:?}"));
                self.take(ctx, host, event);
            }
        }
    }

    fn restart(&mut self, ctx: &mut Ctx, host: u8) {
        if self.hosts[usize::from(host)].is_none() {
            return;
        }
        self.forget_disks(ctx, host);
        let start = self.known(host).starts + 1;
        let fresh = engine(&ctx.plan, host, start);
        let (fresh, names) = fresh.expect("an adapter is made of good parts");
        let known = self.known_mut(host);
        known.starts = start;
        known.log.borrow_mut().clear();
        known.given.clear();
        known.pairs.clear();
        (known.domain, known.queue, known.datagrams) = (names.domain, names.queue, names.datagrams);
        let (node, pair, now) = (known.node, names.datagrams, ctx.now());
        if let Ok(node) = ctx.sim.node_mut(node) {
            node.restart(now, fresh);
        }
        for name in 0..self.connections.len() {
            if !self.connections[name].joins(host) {
                continue;
            }
            self.connections[name].forget(host);
            if self.connections[name].from == host {
                self.withdraw(ctx, name);
            }
        }
        self.feed(ctx, host, pair, POSTED);
    }

    fn freeze(&mut self, ctx: &mut Ctx, host: u8, is_frozen: bool) {
        let Some(known) = &self.hosts[usize::from(host)] else { return };
        if let Ok(node) = ctx.sim.node_mut(known.node) {
            node.freeze_user(is_frozen);
        }
    }

    fn settle(&mut self, ctx: &mut Ctx) {
        self.settle_disks(ctx);
    }

    fn close(&mut self, ctx: &mut Ctx) {
        for name in 0..self.connections.len() {
            for side in 0..2 {
                self.shut_side(ctx, name, side, false);
            }
        }
    }

    fn left(&self, _ctx: &Ctx) -> Vec<String> {
        let left = |(n, known): (usize, &Connection)| {
            let what = known.left()?;
            Some(format!("queue pairs {n} from {} to {}: {what}", known.from, known.to))
        };
        self.connections.iter().enumerate().filter_map(left).collect()
    }

    fn open(&self, _ctx: &Ctx) -> Vec<String> {
        let is_open = |known: &&Connection| (0..2).any(|side| known.is_there(side));
        let count = self.connections.iter().filter(is_open).count();
        if count == 0 {
            Vec::new()
        } else {
            vec![format!("{count} connections of queue pairs are open")]
        }
    }

    fn check(&mut self, ctx: &mut Ctx) {
        for host in self.names() {
            let node = self.known(host).node;
            ctx.check_driver(host, node);
            let Ok(known) = ctx.sim.node(node) else { continue };
            if known.engine().completions(self.known(host).queue) > COMPLETIONS as usize {
                ctx.fail(host, "there are more completions than may be");
            }
        }
    }
}
