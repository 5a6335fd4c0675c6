//! The host under test, its peer, and the link between them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use clan_dsm::offload::Action;
use clan_dsm::{Access, Cookie, DmaRequest, Error, HostId, Nic, Rights};
use landfall_placement::{Area, Duration, Engine, Instant};
use landfall_simnet::sim::Fate;
use landfall_simnet::{Encapsulation, EngineConfig, Frame, Handle, LinkId, Memory, PortId, Sim};

use super::Plain;
use super::forger::{forge, junk};
use super::setup::Setup;
use super::steps::{Step, Steps};
use super::user::{Exposed, Shared, User, told};
use crate::node::Runs;
use crate::seen::{Record, Sent};

/// Units in the order in which they were sent.
type Wire = Rc<RefCell<Vec<Sent>>>;

/// Two hosts and the link between them.
pub(super) struct World<N: Runs<Nic>> {
    sim: Sim,
    host: Handle<N>,
    peer: Handle<Plain>,
    link: Option<LinkId>,
    users: [Shared; 2],
    wires: [Wire; 2],
    /// Cookies of groups, which everybody knows.
    groups: Vec<Cookie>,
    failure: Option<String>,
}

/// Memory that is lent for a call: so many bytes.
type Lends = u32;

impl<N: Runs<Nic>> World<N> {
    /// The world of a set-up, with a host that `make` makes of its engine.
    pub(super) fn new(
        setup: &Setup,
        adapter: bool,
        make: impl FnOnce(Nic, EngineConfig) -> N,
    ) -> Self {
        let mut sim = Sim::from_number(setup.seed());
        let users = [User::new(0), User::new(1)];
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let nic = |side: usize, adapter| {
            let mut nic = setup.nic(side, adapter);
            users[side].borrow_mut().endpoint = nic.open_endpoint(None).ok();
            nic
        };
        let node = make(nic(0, adapter), how);
        let host = sim.add("host", node.with_handler(told(&users[0])));
        let node = Plain::with_config(nic(1, false), how);
        let peer = sim.add("peer", node.with_handler(told(&users[1])));
        let (Ok(host), Ok(peer)) = (host, peer) else { unreachable!("a network has room for two") };
        let wires: [Wire; 2] = Default::default();
        let link = sim.connect(host.id(), peer.id(), setup.link()).ok();
        let ways = link.map(|link| [link.there(), link.back()]).into_iter().flatten();
        for (wire, way) in wires.iter().zip(ways) {
            let wire = wire.clone();
            let _ = sim.intercept(way, move |at, frame| {
                wire.borrow_mut().push(Sent { at, link: 0, frame: frame.clone() });
                Fate::Pass
            });
        }
        Self { sim, host, peer, link, users, wires, groups: Vec::new(), failure: None }
    }

    /// Does all steps, lets time pass, and says what was seen.
    pub(super) fn run(mut self, steps: &[u8]) -> Record {
        self.go(steps)
    }

    /// Does all steps, and says how many bursts the host heard of from an adapter.
    pub(super) fn offloaded(mut self, steps: &[u8]) -> u64 {
        self.go(steps);
        self.sim.node(self.host).map_or(0, |host| host.engine().stats().offloaded)
    }

    /// The same as a capture, and as lines.
    pub(super) fn trace(mut self, steps: &[u8]) -> (Vec<u8>, String) {
        self.sim.capture_all(Encapsulation::Udp { port: 8183 });
        let lines = self.go(steps).lines();
        (self.sim.captured().to_vec(), lines)
    }

    fn go(&mut self, steps: &[u8]) -> Record {
        self.wait(Duration::from_micros(100));
        for step in Steps(steps) {
            if self.failure.is_some() {
                break;
            }
            self.apply(step);
        }
        self.wait(Duration::from_millis(100));
        for side in 0..2 {
            self.call(side, 0, |_, user, engine, _| {
                user.ask(engine);
                None
            });
        }
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

    /// Lets a user use its engine, and memory that it lends.
    fn call(
        &mut self,
        side: usize,
        lends: Lends,
        call: impl FnOnce(Instant, &mut User, &mut Nic, Area) -> Option<Result<(), Error>>,
    ) {
        let now = self.sim.now();
        let mut user = self.users[side].borrow_mut();
        macro_rules! with {
            ($node:expr) => {{
                let Ok(node) = $node else { return };
                let area = if lends == 0 { None } else { user.lend(Runs::memory_mut(node), lends) };
                call(now, &mut user, Runs::engine_mut(node), area.unwrap_or_default())
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
            Step::Wait { micros } => self.wait(Duration::from_micros(micros.into())),
            Step::Settle => self.wait(Duration::from_millis(12)),
            Step::Link { is_up } => {
                if let Some(link) = self.link {
                    let _ = self.sim.set_link(link, is_up);
                }
            }
            Step::Forge { which, how, by } => {
                let known = self.wires[1].borrow();
                let Some(nth) = usize::from(which % 64).checked_rem(known.len()) else { return };
                let Some(Sent { mut frame, .. }) = known.get(known.len() - 1 - nth).cloned() else {
                    return;
                };
                drop(known);
                forge(&mut frame, how, by);
                let _ = self.sim.send(self.peer, PortId(0), frame);
            }
            Step::Junk { seed, len } => {
                let bytes = junk(seed, len);
                let _ = self.sim.send(self.peer, PortId(0), Frame::raw(bytes));
            }
            step => self.apply_to_user(step),
        }
        // Calls take effect before the next.
        self.wait(Duration::from_nanos(100));
    }

    fn apply_to_user(&mut self, step: Step) {
        match step {
            Step::Expose { side, len } => self.call(side, len.into(), |_, user, engine, area| {
                Some(engine.expose(area).and_then(|id| {
                    let cookie = engine.cookie(id, Rights::ReadWrite)?;
                    user.apertures.push(Exposed { id, len: area.len, cookie });
                    Ok(())
                }))
            }),
            Step::Revoke { side, which } => self.call(side, 0, |_, user, engine, _| {
                let Exposed { id, .. } = User::pick(&user.apertures, which)?;
                Some(engine.revoke(id).map(drop))
            }),
            Step::Watch { side, which, at, len, how } => {
                self.call(side, 0, |_, user, engine, _| watch(user, engine, which, (at, len), how));
            }
            Step::Change { side, which, how } => self.call(side, 0, |_, user, engine, _| {
                let wire = User::pick(&user.wires, which)?;
                Some(match how % 5 {
                    0 | 1 => engine.enable_tripwire(wire),
                    2 => engine.disable_tripwire(wire),
                    3 => engine.take_fired(wire).map(drop),
                    _ => engine.remove_tripwire(wire),
                })
            }),
            Step::Group { side, which, how } => self.group(side, which, how),
            step => self.apply_remote(step),
        }
    }

    /// What a user does with memory of the other side.
    fn apply_remote(&mut self, step: Step) {
        match step {
            Step::Write { side, which, at, len, how } => {
                let Some(cookie) = self.target(side, which, at, len, how) else { return };
                self.call(side, 0, |now, user, engine, _| {
                    let byte = user.log.len() as u8 ^ how;
                    let bytes: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_add(byte)).collect();
                    let window = engine.map(&cookie);
                    Some(window.and_then(|window| engine.write(now, window, at.into(), &bytes)))
                });
            }
            Step::Move { side, which, at, len } => {
                let (at, len) = (at & !7, len.next_multiple_of(8));
                let Some(cookie) = self.target(side, which, at, len, 0) else { return };
                self.call(side, len.into(), |now, user, engine, from| {
                    let (endpoint, offset) = (user.endpoint?, at.into());
                    let window = engine.map(&cookie);
                    Some(window.and_then(|window| {
                        let chain = [DmaRequest::Write { from, window, offset }];
                        engine.dma(now, endpoint, &chain).map(drop)
                    }))
                });
            }
            Step::Read { side, which, at, len } => {
                let (at, len) = (at & !7, len.next_multiple_of(8));
                let Some(cookie) = self.target(side, which, at, len, 0) else { return };
                self.call(side, len.into(), |now, _, engine, into| {
                    let window = engine.map(&cookie);
                    Some(
                        window
                            .and_then(|window| engine.read(now, window, at.into(), into).map(drop)),
                    )
                });
            }
            Step::Publish { side, which, at, len } => {
                let Some(cookie) = User::pick(&self.groups, which) else { return };
                self.call(side, 0, |now, _, engine, _| {
                    let bytes: Vec<u8> = (0..len).map(|n| (n as u8) ^ which).collect();
                    let window = engine.map_group(&cookie, &[]);
                    Some(window.and_then(|window| engine.write(now, window, at.into(), &bytes)))
                });
            }
            _ => {}
        }
    }

    /// A cookie of the other side, sometimes one that promises more than there is.
    fn target(&self, side: usize, which: u8, at: u16, len: u16, how: u8) -> Option<Cookie> {
        let other = self.users[1 - side].borrow();
        let Exposed { cookie, .. } = User::pick(&other.apertures, which % 8)?;
        let end = u64::from(at) + u64::from(len);
        if how & 3 != 3 || end <= cookie.len() {
            return Some(cookie);
        }
        Some(Cookie::new(cookie.host(), cookie.slot(), cookie.rights(), cookie.key(), end))
    }

    fn group(&mut self, side: usize, which: u8, how: u8) {
        let (known, mut founded) = (User::pick(&self.groups, which), None);
        self.call(side, 0, |_, user, engine, _| match how & 3 {
            0 => {
                let group = HostId::new(0x100 + u16::from(how >> 6))?;
                let len = u64::from(which) * 4 + 8;
                Some(engine.found_group(group, u16::from(how >> 2 & 3), len).map(|cookie| {
                    founded = Some(cookie);
                }))
            }
            1 => Some(engine.leave_group(&known?)),
            _ => {
                let Exposed { id, .. } = User::pick(&user.apertures, how >> 2)?;
                Some(engine.join_group(&known?, id))
            }
        });
        self.groups.extend(founded);
    }
}

/// Watches some bytes of an aperture, as far as it has them.
fn watch(
    user: &mut User,
    engine: &mut Nic,
    which: u8,
    (at, len): (u16, u16),
    how: u8,
) -> Option<Result<(), Error>> {
    let Exposed { id, len: most, .. } = User::pick(&user.apertures, which)?;
    let from = u64::from(at) % most;
    let to = (from + u64::from(len)).min(most);
    let access = [Access::Write, Access::Both, Access::Write, Access::Read][usize::from(how & 3)];
    let action = [Action::Event, Action::Identifier, Action::State][usize::from(how >> 2 & 3) % 3];
    let wire = engine.watch(id, from..to, access, action, how & 16 != 0);
    Some(wire.map(|wire| user.wires.push(wire)))
}
