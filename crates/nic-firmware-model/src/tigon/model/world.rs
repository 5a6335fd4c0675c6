//! The host under test, its peer, and the network between them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use landfall_placement::{Area, Duration, Engine, Instant, PathId, WordFunction, WordWidth};
use landfall_simnet::sim::Fate;
use landfall_simnet::{
    Encapsulation, EngineConfig, EngineNode, Frame, Handle, LinkId, Memory, PortId, Sim,
};
use stp_core::wire::Reason;
use stp_core::{Admission, Connect, ConnectionId, Endpoint, Error, Rights};

use super::Plain;
use super::forger::{forge, junk};
use super::setup::Setup;
use super::steps::{Step, Steps};
use super::user::{Shared, User, told};
use crate::node::Runs;
use crate::seen::{Record, Sent};

/// The port that both listen at.
const PORT: u16 = 7;

/// Frames in the order in which they were sent.
type Wire = Rc<RefCell<Vec<Sent>>>;

/// Two hosts and the links between them.
pub(super) struct World<N: Runs<Endpoint>> {
    sim: Sim,
    host: Handle<N>,
    peer: Handle<EngineNode<Endpoint>>,
    links: Vec<LinkId>,
    users: [Shared; 2],
    wires: [Wire; 2],
    failure: Option<String>,
}

impl<N: Runs<Endpoint>> World<N> {
    /// The world of a set-up, with a host that `make` makes of its engine.
    pub(super) fn new(
        setup: &Setup,
        adapters: u8,
        make: impl FnOnce(Endpoint, EngineConfig) -> N,
    ) -> Self {
        let mut sim = Sim::from_number(setup.seed());
        let users = [User::new(0), User::new(1)];
        let engine = |side: u8, adapters| {
            let mut endpoint = Endpoint::new(setup.engine(adapters), [side + 1; 32]);
            // Nobody listens there yet.
            let _ = endpoint.listen(PORT, Admission::Open);
            endpoint
        };
        let node = make(engine(0, adapters), EngineConfig::default());
        let host = sim.add("host", node.with_handler(told(&users[0])));
        let node = Plain::with_config(engine(1, 0), EngineConfig::default());
        let peer = sim.add("peer", node.with_handler(told(&users[1])));
        let (Ok(host), Ok(peer)) = (host, peer) else { unreachable!("a network has room for two") };
        let wires: [Wire; 2] = Default::default();
        let mut links = Vec::new();
        for nth in 0..setup.links() {
            let Ok(link) = sim.connect(host.id(), peer.id(), setup.link()) else { continue };
            for (wire, way) in wires.iter().zip([link.there(), link.back()]) {
                let wire = wire.clone();
                let _ = sim.intercept(way, move |at, frame| {
                    wire.borrow_mut().push(Sent { at, link: nth, frame: frame.clone() });
                    Fate::Pass
                });
            }
            links.push(link);
        }
        Self { sim, host, peer, links, users, wires, failure: None }
    }

    /// Does all steps, lets time pass, and says what was seen.
    pub(super) fn run(mut self, steps: &[u8]) -> Record {
        self.go(steps)
    }

    /// The same as a capture, and as lines.
    pub(super) fn trace(mut self, steps: &[u8]) -> (Vec<u8>, String) {
        self.sim.capture_all(Encapsulation::Udp { port: 8181 });
        let lines = self.go(steps).lines();
        (self.sim.captured().to_vec(), lines)
    }

    fn go(&mut self, steps: &[u8]) -> Record {
        self.wait(Duration::from_micros(10));
        for step in Steps(steps) {
            if self.failure.is_some() {
                break;
            }
            self.apply(step);
        }
        self.wait(Duration::from_millis(300));
        let Ok(host) = self.sim.node(self.host) else { unreachable!("it was added") };
        let Ok(peer) = self.sim.node(self.peer) else { unreachable!("it was added") };
        let memory = |user: &Shared, memory: &Memory| {
            let lent = user.borrow();
            let bytes = |area: &Area| {
                let bytes = memory.bytes(area.region).unwrap_or_default().to_vec();
                (area.region.index, bytes)
            };
            lent.lent.iter().map(bytes).collect::<BTreeMap<_, _>>()
        };
        let told = self.users.iter().flat_map(|user| user.borrow().log.clone()).collect();
        Record {
            told,
            frames: self.wires.each_ref().map(|wire| wire.borrow().clone()),
            memory: [memory(&self.users[0], host.memory()), memory(&self.users[1], peer.memory())],
            refusals: [*host.engine().refusals(), host.refused()],
            failure: self.failure.clone(),
        }
    }

    fn wait(&mut self, time: Duration) {
        let until = self.sim.now() + time;
        if let Err(error) = self.sim.run_until(until) {
            self.failure.get_or_insert(error.to_string());
        }
    }

    /// Lets a user use its engine, and memory that it lends: so many bytes, so far
    /// into their region.
    fn call(
        &mut self,
        side: usize,
        (len, lead): (u32, u8),
        call: impl FnOnce(Instant, &mut User, &mut Endpoint, Area) -> Option<Result<(), Error>>,
    ) {
        let now = self.sim.now();
        let mut user = self.users[side].borrow_mut();
        macro_rules! with {
            ($node:expr) => {{
                let Ok(node) = $node else { return };
                let area = if len == 0 { None } else { user.lend(node.memory_mut(), len, lead) };
                call(now, &mut user, node.engine_mut(), area.unwrap_or_default())
            }};
        }
        let result = if side == 0 {
            with!(self.sim.node_mut(self.host))
        } else {
            with!(self.sim.node_mut(self.peer))
        };
        if let Some(Err(error)) = result {
            user.log.push(format!("{now} side {side}: {error}"));
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Wait { units } => self.wait(Duration::from_micros(50) * u32::from(units)),
            Step::Settle => self.wait(Duration::from_millis(60)),
            Step::Link { which, is_up } => {
                if let Some(link) = User::pick(&self.links, which) {
                    let _ = self.sim.set_link(link, is_up);
                }
            }
            Step::Forge { which, how, by } => {
                let known = self.wires[1].borrow();
                let frame = User::pick(&known, which % 64);
                let Some(Sent { link, mut frame, .. }) = frame else { return };
                drop(known);
                forge(&mut frame, how, by);
                let _ = self.sim.send(self.peer, PortId(link as u16), frame);
            }
            Step::Junk { seed, len } => {
                let from = self.peer.peer();
                let frame = Frame::addressed(from, self.host.peer(), junk(seed, len));
                let _ = self.sim.send(self.peer, PortId(0), frame);
            }
            step => self.apply_to_user(step),
        }
        // Calls take effect before the next.
        self.wait(Duration::from_micros(1));
    }

    fn apply_to_user(&mut self, step: Step) {
        let peers = [self.peer.peer(), self.host.peer()];
        let area = |len, lead: u8| (len, lead % 96);
        match step {
            Step::Connect { side } => self.call(side, (0, 0), |now, _, engine, _| {
                let connect = Connect { port: PORT, local_port: None, hello: 1 };
                Some(engine.connect(now, PathId(0), peers[side], connect).map(|_| ()))
            }),
            Step::Send { side, which, len } => {
                self.on_connection(side, which, area(len, which), |now, user, engine, id, area| {
                    engine.send(now, id, area, 9).map(|send| user.sends.push(send))
                });
            }
            Step::Post { side, which, len, lead } => {
                self.on_connection(side, which, area(len, lead), |now, _, engine, id, area| {
                    engine.post(now, id, area, lead & 1 == 1)
                });
            }
            Step::Read { side, which, len } => {
                self.on_connection(side, which, area(len, which), |now, user, engine, id, area| {
                    engine.read(now, id, area, 3).map(|receive| user.receives.push(receive))
                });
            }
            Step::Ask { side, which } => {
                self.on_connection(side, which, (0, 0), |now, _, engine, id, _| {
                    let len = u64::from(which) * 32 + 64;
                    engine.request_region(now, id, u32::from(which), len, Rights::ALL).map(|_| ())
                });
            }
            Step::Remote { side, which, how, len } => self.use_region(side, which, how, len),
            Step::Cancel { side, which, is_send } => {
                self.call(side, (0, 0), |now, user, engine, _| {
                    if is_send {
                        User::pick(&user.sends, which).map(|send| engine.cancel_send(now, send))
                    } else {
                        let receive = User::pick(&user.receives, which);
                        receive.map(|receive| engine.cancel_receive(now, receive))
                    }
                });
            }
            Step::Close { side, which, at_once } => {
                self.on_connection(side, which, (0, 0), |now, _, engine, id, _| {
                    if at_once {
                        engine.abort(now, id, Reason::Cancelled)
                    } else {
                        engine.close(now, id)
                    }
                });
            }
            Step::AddLink { side, which } => {
                self.on_connection(side, which, (0, 0), |now, _, engine, id, _| {
                    engine.add_link(now, id, PathId(1), peers[side])
                });
            }
            _ => {}
        }
    }

    fn on_connection(
        &mut self,
        side: usize,
        which: u8,
        lends: (u32, u8),
        act: impl FnOnce(Instant, &mut User, &mut Endpoint, ConnectionId, Area) -> Result<(), Error>,
    ) {
        self.call(side, lends, |now, user, engine, area| {
            let id = User::pick(&user.connections, which % 4)?;
            Some(act(now, user, engine, id, area))
        });
    }

    /// Reads from a region of the other side, writes to it, or modifies a word.
    fn use_region(&mut self, side: usize, which: u8, how: u8, len: u32) {
        let len = len.min(600);
        self.call(side, (len.max(1), 16), |now, user, engine, area| {
            let (id, region) = User::pick(&user.regions, which % 4)?;
            let at = u64::from(how >> 2) * 8;
            let result = match how & 3 {
                0 => engine.put(now, id, &region, at, area, true).map(|_| ()),
                1 => {
                    let function = WordFunction::Add(u64::from(which));
                    engine.fetch_op(now, id, &region, at, WordWidth::Eight, function).map(|_| ())
                }
                _ => engine
                    .get(now, id, &region, at, area)
                    .map(|receive| user.receives.push(receive)),
            };
            Some(result)
        });
    }
}
