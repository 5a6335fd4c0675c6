//! What the users at both ends do as bytes say, and what they are told.

use clan_dsm::offload::Action;
use clan_dsm::{
    Access, ApertureId, Cookie, DmaRequest, EndpointId, Error, Event, HostId, Nic, Rights,
    TripwireId,
};
use landfall_placement::{Duration, Instant};
use landfall_simnet::{Encapsulation, EngineConfig, Frame, Memory, PortId};
use landfall_testkit::model::Choices;

use super::Plain;
use super::steps::{Setup, Step, forge};
use crate::world::play::{Has, Lends, NONE, Play, Used, User, junk, pick};
use crate::world::{Record, Runs};

/// An aperture of a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exposed {
    pub(super) id: ApertureId,
    pub(super) len: u64,
    /// For all that may be done there.
    pub(super) cookie: Cookie,
}

/// What a user has.
#[derive(Debug, Default)]
pub(super) struct Known {
    apertures: Vec<Exposed>,
    wires: Vec<TripwireId>,
    /// What moves its memory.
    endpoint: Option<EndpointId>,
}

impl Has<Nic> for Known {
    fn hear(user: &mut User<Self>, now: Instant, engine: &mut Nic, _: &mut Memory, event: Event) {
        let mut line = format!("{now} side {}: {event:?}", user.side);
        if let Event::Tripwire { tripwire } = event {
            line.push_str(&format!(", at {:?} words so far", engine.firings(tripwire)));
        }
        user.log.push(line);
    }
}

/// So many bytes, and nothing around them.
fn exactly(len: u16) -> Lends {
    (len.into(), (0, 0))
}

/// Two hosts and the link between them, and their users.
pub(super) struct Players<N: Runs<Nic>> {
    used: Used<Nic, N, Plain, Known>,
    /// Cookies of groups, which everybody knows.
    groups: Vec<Cookie>,
}

impl<N: Runs<Nic>> Players<N> {
    /// The world of a set-up, with a host that `make` makes of its engine.
    pub(super) fn new(
        setup: &Setup,
        adapter: bool,
        make: impl FnOnce(Nic, EngineConfig) -> N,
    ) -> Self {
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let host = make(setup.nic(0, adapter), how);
        let peer = Plain::with_config(setup.nic(1, false), how);
        let mut used = Used::<_, _, _, Known>::new(setup.seed(), host, peer);
        for side in 0..2 {
            let endpoint = used.world.engine_mut(side).open_endpoint(None);
            used.users[side].borrow_mut().has.endpoint = endpoint.ok();
        }
        used.world.connect(setup.link());
        used.begin(Encapsulation::Udp { port: 8183 });
        used.world.wait(Duration::from_micros(100));
        Self { used, groups: Vec::new() }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Expose { side, len } => {
                self.used.call(side, exactly(len), |_, user, engine, area| {
                    Some(engine.expose(area).and_then(|id| {
                        let cookie = engine.cookie(id, Rights::ReadWrite)?;
                        user.has.apertures.push(Exposed { id, len: area.len, cookie });
                        Ok(())
                    }))
                });
            }
            Step::Revoke { side, which } => self.used.call(side, NONE, |_, user, engine, _| {
                let Exposed { id, .. } = pick(&user.has.apertures, which)?;
                Some(engine.revoke(id).map(drop))
            }),
            Step::Watch { side, which, at, len, how } => {
                self.used.call(side, NONE, |_, user, engine, _| {
                    watch(user, engine, which, (at, len), how)
                });
            }
            Step::Change { side, which, how } => {
                self.used.call(side, NONE, |_, user, engine, _| {
                    let wire = pick(&user.has.wires, which)?;
                    Some(match how % 5 {
                        0 | 1 => engine.enable_tripwire(wire),
                        2 => engine.disable_tripwire(wire),
                        3 => engine.take_fired(wire).map(drop),
                        _ => engine.remove_tripwire(wire),
                    })
                });
            }
            Step::Group { side, which, how } => self.group(side, which, how),
            step => self.apply_remote(step),
        }
    }

    /// What a user does with memory of the other side.
    fn apply_remote(&mut self, step: Step) {
        match step {
            Step::Write { side, which, at, len, how } => {
                let Some(cookie) = self.target(side, which, at, len, how) else { return };
                self.used.call(side, NONE, |now, user, engine, _| {
                    let byte = user.log.len() as u8 ^ how;
                    let bytes: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_add(byte)).collect();
                    let window = engine.map(&cookie);
                    Some(window.and_then(|window| engine.write(now, window, at.into(), &bytes)))
                });
            }
            Step::Move { side, which, at, len } => {
                let (at, len) = (at & !7, len.next_multiple_of(8));
                let Some(cookie) = self.target(side, which, at, len, 0) else { return };
                self.used.call(side, exactly(len), |now, user, engine, from| {
                    let (endpoint, offset) = (user.has.endpoint?, at.into());
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
                self.used.call(side, exactly(len), |now, _, engine, into| {
                    let window = engine.map(&cookie);
                    Some(
                        window
                            .and_then(|window| engine.read(now, window, at.into(), into).map(drop)),
                    )
                });
            }
            Step::Publish { side, which, at, len } => {
                let Some(cookie) = pick(&self.groups, which) else { return };
                self.used.call(side, NONE, |now, _, engine, _| {
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
        let other = self.used.users[1 - side].borrow();
        let Exposed { cookie, .. } = pick(&other.has.apertures, which % 8)?;
        let end = u64::from(at) + u64::from(len);
        if how & 3 != 3 || end <= cookie.len() {
            return Some(cookie);
        }
        Some(Cookie::new(cookie.host(), cookie.slot(), cookie.rights(), cookie.key(), end))
    }

    fn group(&mut self, side: usize, which: u8, how: u8) {
        let (known, mut founded) = (pick(&self.groups, which), None);
        self.used.call(side, NONE, |_, user, engine, _| match how & 3 {
            0 => {
                let group = HostId::new(0x100 + u16::from(how >> 6))?;
                let len = u64::from(which) * 4 + 8;
                Some(engine.found_group(group, u16::from(how >> 2 & 3), len).map(|cookie| {
                    founded = Some(cookie);
                }))
            }
            1 => Some(engine.leave_group(&known?)),
            _ => {
                let Exposed { id, .. } = pick(&user.has.apertures, how >> 2)?;
                Some(engine.join_group(&known?, id))
            }
        });
        self.groups.extend(founded);
    }
}

impl<N: Runs<Nic>> Play for Players<N> {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let world = &mut self.used.world;
        match Step::next(choices) {
            Step::Wait { micros } => world.wait(Duration::from_micros(micros.into())),
            Step::Settle => world.wait(Duration::from_millis(12)),
            Step::Link { is_up } => {
                let link = world.links().first().copied();
                link.map(|link| world.sim_mut().set_link(link, is_up));
            }
            Step::Forge { which, how, by } => {
                let past = world.past(usize::from(which % 64));
                let Some((port, mut frame)) = past else { return };
                forge(&mut frame, how, by);
                world.send(world.id(1), port, frame);
            }
            Step::Junk { seed, len } => {
                world.send(world.id(1), PortId(0), Frame::raw(junk(seed, len % 64)));
            }
            step => self.apply(step),
        }
        // Calls take effect before the next.
        self.used.world.wait(Duration::from_nanos(100));
    }

    fn is_over(&self) -> bool {
        !self.used.world.wrong().is_empty()
    }

    fn end(mut self) -> Record {
        self.used.world.wait(Duration::from_millis(100));
        for side in 0..2 {
            self.used.call(side, NONE, |_, user, engine, _| {
                ask(user, engine);
                None::<Result<(), Error>>
            });
        }
        let stats = self.used.world.engine(0).stats();
        Record { placed: (stats.offloaded, stats.bursts), ..self.used.record() }
    }
}

/// The state of all tripwires of a user, in the end.
fn ask(user: &mut User<Known>, engine: &mut Nic) {
    for wire in &user.has.wires {
        let (count, fired) = (engine.firings(*wire), engine.take_fired(*wire));
        user.log.push(format!("side {}: {wire}: {count:?} {fired:?}", user.side));
    }
    while let Some(wire) = engine.pop_identifier() {
        user.log.push(format!("side {}: {wire} is queued", user.side));
    }
    user.log.push(format!("side {}: {} bursts", user.side, engine.stats().bursts));
}

/// Watches some bytes of an aperture, as far as it has them.
fn watch(
    user: &mut User<Known>,
    engine: &mut Nic,
    which: u8,
    (at, len): (u16, u16),
    how: u8,
) -> Option<Result<(), Error>> {
    let Exposed { id, len: most, .. } = pick(&user.has.apertures, which)?;
    let from = u64::from(at) % most;
    let to = (from + u64::from(len)).min(most);
    let access = [Access::Write, Access::Both, Access::Write, Access::Read][usize::from(how & 3)];
    let action = [Action::Event, Action::Identifier, Action::State][usize::from(how >> 2 & 3) % 3];
    let wire = engine.watch(id, from..to, access, action, how & 16 != 0);
    Some(wire.map(|wire| user.has.wires.push(wire)))
}
