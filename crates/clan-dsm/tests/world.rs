//! Hosts with an adapter each on a simulated network.
use std::time::Duration;

use clan_dsm::{
    ApertureId, Config, Cookie, Event, HostId, LinkId, Nic, Rights, TripwireId, WindowId,
};
use landfall_placement::{Area, Instant, PathId, Peer};
pub use landfall_simnet::check::run_until;
use landfall_simnet::{EngineConfig, EngineNode, Handle, LinkConfig, Sim, check};
pub use landfall_testkit::trials::noise;

pub type Host = EngineNode<Nic>;
pub type Log = check::Log<Event>;

/// A host whose events are kept, with what its memory held when each was told
/// left to the test.
pub fn add_host(
    sim: &mut Sim,
    number: u16,
    config: Config,
    how: EngineConfig,
) -> (Handle<Host>, Log) {
    let nic = Nic::new(config, HostId::new(number).unwrap(), [number as u8; 32]).unwrap();
    let (node, log) = check::logged(EngineNode::with_config(nic, how));
    (sim.add(&format!("host {number}"), node).unwrap(), log)
}

/// Two hosts with a link between them that side 0 opened.
pub struct Pair {
    pub sim: Sim,
    pub hosts: [Handle<Host>; 2],
    pub logs: [Log; 2],
    pub wire: landfall_simnet::LinkId,
    /// What each side calls the link.
    pub links: [LinkId; 2],
}

impl Pair {
    pub fn new(sim: Sim, config: Config, wire: LinkConfig) -> Self {
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        Self::with(sim, [config.clone(), config], how, wire)
    }

    pub fn with(mut sim: Sim, configs: [Config; 2], how: EngineConfig, wire: LinkConfig) -> Self {
        let [a, b] = configs;
        let (a, a_log) = add_host(&mut sim, 1, a, how);
        let (b, b_log) = add_host(&mut sim, 2, b, how);
        let wire = sim.connect(a.id(), b.id(), wire).unwrap();
        let (hosts, logs) = ([a, b], [a_log, b_log]);
        let links = open(&mut sim, hosts, &logs);
        Self { sim, hosts, logs, wire, links }
    }

    pub fn nic(&mut self, side: usize) -> &mut Nic {
        self.sim.node_mut(self.hosts[side]).unwrap().engine_mut()
    }

    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Memory of a side with these bytes in it, some way into its region.
    pub fn lend(&mut self, side: usize, bytes: &[u8]) -> Area {
        check::lend(&mut self.sim, self.hosts[side], [16, 0], bytes)
    }

    pub fn bytes(&self, side: usize, area: Area) -> Vec<u8> {
        check::read(&self.sim, self.hosts[side], area)
    }

    /// An aperture of a side, empty, with a cookie for it.
    pub fn expose(
        &mut self,
        side: usize,
        len: usize,
        rights: Rights,
    ) -> (Area, ApertureId, Cookie) {
        let area = self.lend(side, &vec![0; len]);
        let aperture = self.nic(side).expose(area).unwrap();
        let cookie = self.nic(side).cookie(aperture, rights).unwrap();
        (area, aperture, cookie)
    }

    /// An aperture of side 1 that side 0 has a window onto.
    pub fn window(&mut self, len: usize) -> (Area, ApertureId, WindowId) {
        let (area, aperture, cookie) = self.expose(1, len, Rights::ReadWrite);
        let window = self.nic(0).map(&cookie).unwrap();
        (area, aperture, window)
    }

    pub fn run_for(&mut self, time: Duration) {
        check::run_for(&mut self.sim, time);
    }

    /// Runs until the events of both sides say so.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&[Event], &[Event]) -> bool) {
        let [a, b] = self.logs.clone();
        let is_done = || done(&a.borrow(), &b.borrow());
        check::run_until(&mut self.sim, Duration::from_secs(600), what, is_done);
    }

    /// Until all that side 0 wrote is in place at side 1.
    pub fn flush(&mut self) {
        let (now, link) = (self.now(), self.links[0]);
        let barrier = self.nic(0).barrier(now, link).unwrap();
        self.run_until("the barrier", |a, _| {
            a.iter().any(|e| matches!(e, Event::Barrier { barrier: b, .. } if *b == barrier))
        });
    }

    pub fn clear(&mut self) {
        for log in &self.logs {
            log.borrow_mut().clear();
        }
    }
}

pub fn fired(events: &[Event], wanted: TripwireId) -> bool {
    events.iter().any(|e| matches!(e, Event::Tripwire { tripwire } if *tripwire == wanted))
}

/// Side 0 opens a link to side 1.
pub fn open(sim: &mut Sim, hosts: [Handle<Host>; 2], logs: &[Log; 2]) -> [LinkId; 2] {
    let peer = Peer::Node(hosts[1].id().0);
    let now = sim.now();
    let ours =
        sim.node_mut(hosts[0]).unwrap().engine_mut().open_link(now, PathId(0), peer).unwrap();
    let up = |log: &Log| {
        log.borrow().iter().rev().find_map(|event| match event {
            Event::LinkUp { link, .. } => Some(*link),
            _ => None,
        })
    };
    let seen = logs[1].borrow().len();
    run_until(sim, Duration::from_secs(60), "the link", || {
        up(&logs[0]) == Some(ours)
            && logs[1].borrow()[seen..].iter().any(|e| matches!(e, Event::LinkUp { .. }))
    });
    [ours, up(&logs[1]).unwrap()]
}
