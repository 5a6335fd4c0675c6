//! What the users at both ends do as bytes say, and what they are told.
//!
//! What may happen, decoded from any bytes: the same for property tests and fuzzing; and
//! frames that nobody sent so: what once came to the host, altered.

use clan_dsm::offload::{Action, Secret};
use clan_dsm::{
    Access, Address, ApertureId, Cookie, DmaRequest, EndpointId, Error, Event, HostId,
    NativeConfig, Nic, Rights, TripwireId, WORD,
};
use landfall_placement::{Duration, Instant, Random};
use landfall_simnet::link::Reordering;
use landfall_simnet::{
    Encapsulation, EngineConfig, Frame, LinkConfig, Loss, Memory, PortId, Probability, TailDrop,
};
use landfall_testkit::model::Choices;

use super::super::{Clan, Config, Entries, Tables};
use super::Plain;
use crate::machine::Sizes;
use crate::world::play::{Lends, NONE, Play, Used, User, UserState, junk, pick};
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

impl UserState<Nic> for Known {
    fn hear(user: &mut User<Self>, now: Instant, engine: &mut Nic, _: &mut Memory, event: Event) {
        let mut line = format!("{now} side {}: {event:?}", user.side);
        if let Event::Tripwire { tripwire } = event {
            line.push_str(&format!(", at {:?} words so far", engine.firings(tripwire)));
        }
        user.log.push(line);
    }
}

/// This many bytes, and nothing around them.
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
                    // Some are for the other side alone: the adapter has no key to them.
                    let peer = Setup::host(1 - side);
                    let is_for_peer = len % 8 == 1;
                    Some(engine.expose(area).and_then(|id| {
                        let cookie = match is_for_peer {
                            true => engine.cookie_for(id, Rights::ReadWrite, peer)?,
                            false => engine.cookie(id, Rights::ReadWrite)?,
                        };
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

/// One thing that happens. `side` is the end that it happens to: 0 is the host under
/// test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user exposes memory of this many bytes.
    Expose { side: usize, len: u16 },
    /// The user ends the rights to an aperture.
    Revoke { side: usize, which: u8 },
    /// The user watches bytes of an aperture.
    Watch { side: usize, which: u8, at: u16, len: u16, how: u8 },
    /// The user arms, disarms, asks or removes a tripwire.
    Change { side: usize, which: u8, how: u8 },
    /// The user writes bytes to an aperture of the other side.
    Write { side: usize, which: u8, at: u16, len: u16, how: u8 },
    /// The user writes words from memory.
    Move { side: usize, which: u8, at: u16, len: u16 },
    /// The user reads words.
    Read { side: usize, which: u8, at: u16, len: u16 },
    /// The user founds a group, joins one or leaves it.
    Group { side: usize, which: u8, how: u8 },
    /// The user writes to a group.
    Publish { side: usize, which: u8, at: u16, len: u16 },
    /// The link goes down, or comes up again.
    Link { is_up: bool },
    /// A unit that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: this many microseconds.
    Wait { micros: u8 },
    /// Much time passes.
    Settle,
}

impl Step {
    /// The next one that bytes stand for.
    pub(super) fn next(choices: &mut Choices<'_>) -> Self {
        let code = choices.byte();
        // Most happens to the host under test by way of its peer.
        let side = usize::from(code >> 7);
        let other = 1 - side.min(usize::from(code >> 6 & 1));
        let which = choices.byte();
        match code & 63 {
            0..=4 => Self::Expose { side: 1 - other, len: len(choices) },
            5..=6 => Self::Revoke { side: 1 - other, which },
            7..=13 => Self::Watch {
                side: 1 - other,
                which,
                at: at(choices),
                len: len(choices),
                how: choices.byte(),
            },
            14..=16 => Self::Change { side: 1 - other, which, how: choices.byte() },
            17..=31 => Self::Write {
                side: other,
                which,
                at: at(choices),
                len: len(choices),
                how: choices.byte(),
            },
            32..=38 => Self::Move { side: other, which, at: at(choices), len: len(choices) },
            39..=41 => Self::Read { side, which, at: at(choices), len: len(choices) },
            42..=44 => Self::Group { side: 1 - other, which, how: choices.byte() },
            45..=47 => Self::Publish { side: other, which, at: at(choices), len: len(choices) },
            48 => Self::Link { is_up: code & 64 != 0 },
            49..=54 => Self::Forge { which, how: choices.byte(), by: choices.byte() },
            55 => Self::Junk { seed: which, len: choices.byte() },
            56..=61 => Self::Wait { micros: which },
            _ => Self::Settle,
        }
    }
}

/// Mostly short, and up to 1 KiB.
fn len(choices: &mut Choices<'_>) -> u16 {
    let (shape, fine) = (u16::from(choices.byte()), u16::from(choices.byte()));
    match shape >> 6 {
        0 => fine % 9 + 1,
        1 => fine % 70 + 1,
        _ => ((shape & 3) << 8 | fine) + 1,
    }
}

/// A place, often at the beginning of a word.
fn at(choices: &mut Choices<'_>) -> u16 {
    let at = u16::from(choices.byte());
    if at & 1 == 0 { at * 4 } else { at }
}

/// Alters a unit. The lowest bits of `how` say in which way.
pub(super) fn forge(frame: &mut Frame, how: u8, by: u8) {
    let bytes = &mut frame.bytes;
    let word = WORD as usize;
    match how & 15 {
        // As it was.
        0..=2 => {}
        // Other words.
        3..=4 => bytes.iter_mut().skip(Address::LEN).for_each(|byte| *byte ^= by | 1),
        // A word less or more.
        5 => bytes.truncate(bytes.len().saturating_sub(word)),
        6 => bytes.extend(std::iter::repeat_n(by, word)),
        7 => bytes.truncate(bytes.len().saturating_sub(usize::from(by % 9) + 1)),
        // Another word, slot, host or kind.
        8..=9 => add(bytes, 7, by & 15),
        10 => add(bytes, 3, by & 3),
        11 => add(bytes, 1, by & 1),
        12 => add(bytes, 0, (by & 3) << 4),
        // Another mask, another key.
        13 => add(bytes, 8, by),
        _ => add(bytes, 15, by | 1),
    }
}

fn add(bytes: &mut [u8], at: usize, by: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = byte.wrapping_add(by);
    }
}

// The configurations that are tried.

/// How many bytes say how a run is set up.
const BYTES: usize = 5;

/// How a run is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup([u8; BYTES]);

impl Setup {
    /// The set-up that the first bytes stand for.
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        Self(choices.array())
    }

    const fn bit(self, nth: usize) -> bool {
        self.0[nth / 8] >> (nth % 8) & 1 == 1
    }

    /// The luck of the network.
    pub(super) fn seed(self) -> u64 {
        u64::from(self.0[0])
    }

    /// The host at an end.
    pub(super) fn host(side: usize) -> HostId {
        HostId::new(side as u16 + 1).unwrap_or_default()
    }

    /// The native link of a host.
    fn native(self, adapter: bool) -> NativeConfig {
        NativeConfig {
            room: if self.bit(8) { 1024 } else { 40 },
            patience: Duration::from_millis(5),
            pio_burst: if self.bit(9) { 8 } else { 3 },
            dma_burst: if self.bit(10) { 128 } else { 9 },
            adapter,
            ..NativeConfig::default()
        }
    }

    /// The host at an end.
    pub(super) fn nic(self, side: usize, adapter: bool) -> Nic {
        let config = clan_dsm::Config {
            apertures: 12,
            groups: 6,
            tripwires: 24,
            reads: 4,
            dma_requests: 6,
            write_buffer: 9_600,
            events: 200,
            native: Some(self.native(adapter)),
            ..clan_dsm::Config::default()
        };
        Nic::new(config, Self::host(side), [side as u8 + 1; 32]).unwrap()
    }

    /// What the link does to units: native links lose nothing, unless they are damaged.
    pub(super) fn link(self) -> LinkConfig {
        let percent = |byte: u8, most: u32| Probability::percent(u32::from(byte) * most / 255);
        let faults = self.0[4];
        LinkConfig {
            rate: Some(if self.bit(11) { 1_500_000_000 } else { 50_000_000 }),
            overhead: 4,
            delay: Duration::from_micros(2),
            mtu: if self.bit(12) { 1_500 } else { 152 },
            queue: TailDrop::default(),
            loss: if faults & 1 == 1 { Loss::Uniform(percent(self.0[3], 4)) } else { Loss::None },
            duplication: if faults & 2 == 2 { Probability::percent(2) } else { Probability::NEVER },
            reordering: Reordering {
                probability: percent(faults & 4, 300),
                extra_delay: Duration::from_micros(20),
            },
            ..LinkConfig::ethernet(1)
        }
    }

    /// The firmware of the adapter: its tables may be smaller than the host's.
    pub(super) fn firmware(self) -> Clan<'static> {
        let entries = Entries {
            apertures: if self.bit(13) { 12 } else { 3 },
            groups: if self.bit(14) { 8 } else { 2 },
            tripwires: if self.bit(15) { 24 } else { 8 },
            cam: if self.bit(16) { 64 } else { 6 },
        };
        let config = Config::new(Self::host(0), self.native(true).room);
        let secret = Secret::new(&mut Random::from_number(self.seed()));
        Clan::new(Tables::owned(&entries, secret), config)
    }

    /// The adapter's slots and rings.
    pub(super) fn sizes(self) -> Sizes {
        Sizes {
            arrivals: 8,
            departures: 8,
            frame: 2_048,
            orders: if self.bit(17) { 4 } else { 64 },
            reports: 64,
            buffers: 8,
        }
    }
}
