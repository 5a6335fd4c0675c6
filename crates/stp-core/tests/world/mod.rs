//! Two hosts, or more, that speak STP over a simulated network.
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use landfall_placement::{Area, Instant, PathId, Peer, RegionId};
use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Memory, Sim};
pub(crate) use landfall_testkit::trials::noise;
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event};

pub(crate) type Host = EngineNode<Endpoint>;
pub(crate) type Log = Rc<RefCell<Vec<Event>>>;

/// The port that servers listen at.
pub(crate) const PORT: u16 = 7;

/// A host whose events are kept, and whose received memory is frozen at once:
/// anyone who writes there again ends the run (invariant 1).
pub(crate) fn add_host(
    sim: &mut Sim,
    name: &str,
    config: Config,
    how: EngineConfig,
) -> (Handle<Host>, Log) {
    let log: Log = Rc::default();
    let events = log.clone();
    let mut seed = [0; 32];
    for (place, byte) in seed.iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    let mut endpoint = Endpoint::new(config, seed).unwrap();
    endpoint.listen(PORT, Admission::Open).unwrap();
    let node = EngineNode::with_config(endpoint, how).on_event(
        move |_, _: &mut Endpoint, memory: &mut Memory, event| {
            if let Event::Received { memory: area, len, .. } = event {
                freeze(memory, Area { len, ..area });
            }
            events.borrow_mut().push(event);
        },
    );
    let host = sim.add(name, node).unwrap();
    if how.sure < how.most_unit {
        // What is not sure is tried out, with packets that are filled up.
        let padding = place(sim, host, 0, &[0; 1 << 16]);
        sim.node_mut(host).unwrap().engine_mut().set_padding(padding).unwrap();
    }
    (host, log)
}

/// In pieces that a span can name.
pub(crate) fn freeze(memory: &mut Memory, area: Area) {
    let mut at = 0;
    while at < area.len {
        let len = (area.len - at).min(1 << 30);
        memory.freeze(area.span(at, len as u32)).unwrap();
        at += len;
    }
}

pub(crate) fn lend(sim: &mut Sim, host: Handle<Host>, bytes: Vec<u8>) -> RegionId {
    sim.node_mut(host).unwrap().memory_mut().lend(bytes).unwrap()
}

/// Memory of a host with these bytes in it, `before` bytes into its region.
pub(crate) fn place(sim: &mut Sim, host: Handle<Host>, before: usize, bytes: &[u8]) -> Area {
    let mut all = vec![0; before];
    all.extend_from_slice(bytes);
    let region = lend(sim, host, all);
    Area::new(region, before as u64, bytes.len() as u64)
}

pub(crate) fn read(sim: &Sim, host: Handle<Host>, area: Area) -> Vec<u8> {
    let span = area.span(0, area.len as u32);
    sim.node(host).unwrap().memory().read(span).unwrap().to_vec()
}

pub(crate) fn run_for(sim: &mut Sim, time: Duration) {
    let end = sim.now() + time;
    sim.run_until(end).unwrap();
}

/// Runs until the condition holds; panics where it does not within `time`.
pub(crate) fn run_until(sim: &mut Sim, time: Duration, what: &str, done: impl Fn() -> bool) {
    let end = sim.now() + time;
    sim.run_until_with(end, |_| match done() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .unwrap();
    assert!(done(), "{what} did not happen by {}", sim.now());
}

/// Two hosts joined by links, with a connection between them.
pub(crate) struct Pair {
    pub(crate) sim: Sim,
    pub(crate) links: Vec<LinkId>,
    pub(crate) a: Handle<Host>,
    pub(crate) b: Handle<Host>,
    pub(crate) a_log: Log,
    pub(crate) b_log: Log,
    /// The connection, as each side names it.
    pub(crate) from_a: ConnectionId,
    pub(crate) from_b: ConnectionId,
}

impl Pair {
    pub(crate) fn new(sim: Sim, config: Config, links: &[LinkConfig]) -> Self {
        Self::with(sim, config.clone(), config, EngineConfig::default(), links)
    }

    pub(crate) fn with(
        mut sim: Sim,
        a_config: Config,
        b_config: Config,
        how: EngineConfig,
        links: &[LinkConfig],
    ) -> Self {
        let a = add_host(&mut sim, "alice", a_config, how);
        let b = add_host(&mut sim, "bob", b_config, how);
        let join = |link: &LinkConfig| sim.connect(a.0.id(), b.0.id(), *link).unwrap();
        let links = links.iter().map(join).collect();
        Self::between(sim, a, b, links)
    }

    /// Two hosts that are joined by these links.
    pub(crate) fn between(
        mut sim: Sim,
        (a, a_log): (Handle<Host>, Log),
        (b, b_log): (Handle<Host>, Log),
        links: Vec<LinkId>,
    ) -> Self {
        let from_a = connect(&mut sim, a, PathId(0), Peer::Node(b.id().0));
        run_until(&mut sim, Duration::from_secs(60), "the connection", || {
            let connected = |log: &Log, f: fn(&Event) -> bool| log.borrow().iter().any(f);
            connected(&a_log, |e| matches!(e, Event::Connected { .. }))
                && connected(&b_log, |e| matches!(e, Event::Accepted { .. }))
        });
        let from_b = b_log
            .borrow()
            .iter()
            .find_map(|event| match event {
                Event::Accepted { connection, .. } => Some(*connection),
                _ => None,
            })
            .unwrap();
        Self { sim, links, a, b, a_log, b_log, from_a, from_b }
    }

    pub(crate) fn alice(&mut self) -> &mut Endpoint {
        self.sim.node_mut(self.a).unwrap().engine_mut()
    }

    pub(crate) fn bob(&mut self) -> &mut Endpoint {
        self.sim.node_mut(self.b).unwrap().engine_mut()
    }

    pub(crate) fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Alice sends bytes from memory that begins `before` bytes into its region.
    pub(crate) fn send(&mut self, before: usize, bytes: &[u8]) {
        let area = place(&mut self.sim, self.a, before, bytes);
        let (now, id) = (self.now(), self.from_a);
        self.alice().send(now, id, area, 0).unwrap();
    }

    /// Bob posts memory that begins `before` bytes into its region.
    pub(crate) fn post(&mut self, before: usize, len: usize) -> Area {
        let area = place(&mut self.sim, self.b, before, &vec![0; len]);
        let (now, id) = (self.now(), self.from_b);
        self.bob().post(now, id, area, false).unwrap();
        area
    }

    pub(crate) fn run_until(&mut self, what: &str, done: impl Fn(&[Event], &[Event]) -> bool) {
        let (a, b) = (self.a_log.clone(), self.b_log.clone());
        let end = self.now() + Duration::from_secs(600);
        let is_done = || done(&a.borrow(), &b.borrow());
        self.sim
            .run_until_with(end, |_| match is_done() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
            .unwrap();
        if is_done() {
            return;
        }
        let (now, log) = (self.now(), (a.borrow(), b.borrow()));
        let engines = [self.a, self.b].map(|host| self.sim.node(host).unwrap().engine());
        panic!(
            "{what} did not happen by {now}
they were told {log:#?}
and are {engines:#?}"
        );
    }

    pub(crate) fn count_a(&self, is_it: fn(&Event) -> bool) -> usize {
        self.a_log.borrow().iter().filter(|event| is_it(event)).count()
    }

    pub(crate) fn count_b(&self, is_it: fn(&Event) -> bool) -> usize {
        self.b_log.borrow().iter().filter(|event| is_it(event)).count()
    }
}

pub(crate) fn connect(sim: &mut Sim, from: Handle<Host>, path: PathId, to: Peer) -> ConnectionId {
    let now = sim.now();
    let connect = Connect { port: PORT, local_port: None, hello: 42 };
    sim.node_mut(from).unwrap().engine_mut().connect(now, path, to, connect).unwrap()
}

pub(crate) fn is_sent(event: &Event) -> bool {
    matches!(event, Event::Sent { .. })
}

pub(crate) fn is_received(event: &Event) -> bool {
    matches!(event, Event::Received { .. })
}
