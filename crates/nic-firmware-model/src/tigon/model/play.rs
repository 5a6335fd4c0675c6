//! What the users at both ends do: by themselves, and as bytes say.
//!
//! What may happen, decoded from any bytes: the same for property tests and fuzzing; and
//! frames that nobody sent so: what once came to the host, altered.

use landfall_placement::{Area, Duration, Instant, InternetSum, PathId, WordFunction, WordWidth};
use landfall_simnet::link::{Corruption, Reordering};
use landfall_simnet::{
    Encapsulation, EngineConfig, Frame, LinkConfig, Loss, Memory, PortId, Probability, TailDrop,
};
use landfall_testkit::model::Choices;
use stp_core::wire::Reason;
use stp_core::{
    Admission, Config, Connect, ConnectionId, Endpoint, Error, Event, Policy, PutOptions,
    ReceiveId, RemoteRegion, Rights, SendId,
};

use super::super::{Config as Firmware, Cycles, Reports, Tables, Tigon};
use super::Plain;
use crate::machine::Sizes;
use crate::world::play::{Lends, NONE, Play, Used, User, UserState, junk, pick};
use crate::world::{Record, Runs};

/// The port that both listen at.
const PORT: u16 = 7;

/// What a user has.
#[derive(Debug, Default)]
pub(super) struct Known {
    connections: Vec<ConnectionId>,
    sends: Vec<SendId>,
    receives: Vec<ReceiveId>,
    regions: Vec<(ConnectionId, RemoteRegion)>,
}

impl UserState<Endpoint> for Known {
    fn hear(
        user: &mut User<Self>,
        now: Instant,
        engine: &mut Endpoint,
        memory: &mut Memory,
        event: Event,
    ) {
        user.log.push(format!("{now} side {}: {event:?}", user.side));
        // Sometimes it does not want what it is offered.
        let wants = user.log.len() % 7 != 6;
        let answer = match event {
            Event::Connected { connection, .. } | Event::Accepted { connection, .. } => {
                user.has.connections.push(connection);
                Ok(())
            }
            Event::Offered { receive, len, .. } => {
                user.has.receives.push(receive);
                let lead = (user.log.len() % 3 * 40) as u8;
                match user.lend(memory, len.min(1 << 16) as u32, around(lead)).filter(|_| wants) {
                    Some(area) => engine.accept(now, receive, area, true),
                    None => engine.refuse(receive, Reason::Refused),
                }
            }
            Event::ReadRequested { read, len, .. } => {
                match user.lend(memory, len.min(1 << 16) as u32, around(8)).filter(|_| wants) {
                    Some(area) => engine.answer_read(now, read, area, 5).map(|send| {
                        user.has.sends.push(send);
                    }),
                    None => engine.refuse_read(now, read, Reason::Refused),
                }
            }
            Event::RegionRequested { request, len, .. } => {
                match user.lend(memory, len.min(1 << 16) as u32, around(0)).filter(|_| wants) {
                    Some(area) => engine.expose(request, area, Rights::ALL).map(drop),
                    None => engine.refuse_region(request, Reason::Refused),
                }
            }
            Event::RegionAvailable { connection, region, .. } => {
                user.has.regions.push((connection, region));
                Ok(())
            }
            // Anyone who writes there again ends the run (invariant 1).
            Event::Received { receive, memory: area, len, .. } => {
                user.has.receives.push(receive);
                let _ = memory.freeze(area.span(0, len as u32));
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = answer {
            user.log.push(format!("{now} side {}: {error}", user.side));
        }
    }
}

/// So far into its region, and some more behind.
fn around(lead: u8) -> (u32, u32) {
    (lead.into(), 16)
}

/// Two hosts and the links between them, and their users.
pub(super) struct Players<N: Runs<Endpoint>>(Used<Endpoint, N, Plain, Known>);

impl<N: Runs<Endpoint>> Players<N> {
    /// The world of a set-up, with a host that `make` makes of its engine.
    pub(super) fn new(
        setup: &Setup,
        adapters: u8,
        make: impl FnOnce(Endpoint, EngineConfig) -> N,
    ) -> Self {
        let engine = |side: u8, adapters| {
            let mut endpoint = Endpoint::new(setup.engine(adapters), [side + 1; 32]).unwrap();
            // Nobody listens there yet.
            let _ = endpoint.listen(PORT, Admission::Open);
            endpoint
        };
        let host = make(engine(0, adapters), EngineConfig::default());
        let peer = Plain::with_config(engine(1, 0), EngineConfig::default());
        let mut used = Used::new(setup.seed(), host, peer);
        for _ in 0..setup.links() {
            used.world.connect(setup.link());
        }
        used.begin(Encapsulation::Udp { port: 8181 });
        used.world.wait(Duration::from_micros(10));
        Self(used)
    }

    fn apply(&mut self, step: Step) {
        let peers = [1, 0].map(|side| self.0.world.id(side).peer());
        let area = |len, lead: u8| (len, around(lead % 96));
        match step {
            Step::Connect { side } => self.0.call(side, NONE, |now, _, engine, _| {
                let connect = Connect { port: PORT, local_port: None, hello: 1 };
                Some(engine.connect(now, PathId(0), peers[side], connect).map(|_| ()))
            }),
            Step::Send { side, which, len } => {
                self.on_connection(side, which, area(len, which), |now, user, engine, id, area| {
                    engine.send(now, id, area, 9).map(|send| user.has.sends.push(send))
                });
            }
            Step::Post { side, which, len, lead } => {
                self.on_connection(side, which, area(len, lead), |now, _, engine, id, area| {
                    engine.post(now, id, area, lead & 1 == 1)
                });
            }
            Step::Read { side, which, len } => {
                self.on_connection(side, which, area(len, which), |now, user, engine, id, area| {
                    engine.read(now, id, area, 3).map(|receive| user.has.receives.push(receive))
                });
            }
            Step::Ask { side, which } => {
                self.on_connection(side, which, NONE, |now, _, engine, id, _| {
                    let len = u64::from(which) * 32 + 64;
                    engine.request_region(now, id, u32::from(which), len, Rights::ALL).map(|_| ())
                });
            }
            Step::Remote { side, which, how, len } => self.use_region(side, which, how, len),
            Step::Cancel { side, which, is_send } => {
                self.0.call(side, NONE, |now, user, engine, _| {
                    if is_send {
                        pick(&user.has.sends, which).map(|send| engine.cancel_send(now, send))
                    } else {
                        let receive = pick(&user.has.receives, which);
                        receive.map(|receive| engine.cancel_receive(now, receive))
                    }
                });
            }
            Step::Close { side, which, at_once } => {
                self.on_connection(side, which, NONE, |now, _, engine, id, _| {
                    if at_once {
                        engine.abort(now, id, Reason::Cancelled)
                    } else {
                        engine.close(now, id)
                    }
                });
            }
            Step::AddLink { side, which } => {
                self.on_connection(side, which, NONE, |now, _, engine, id, _| {
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
        lends: Lends,
        act: impl FnOnce(
            Instant,
            &mut User<Known>,
            &mut Endpoint,
            ConnectionId,
            Area,
        ) -> Result<(), Error>,
    ) {
        self.0.call(side, lends, |now, user, engine, area| {
            let id = pick(&user.has.connections, which % 4)?;
            Some(act(now, user, engine, id, area))
        });
    }

    /// Reads from a region of the other side, writes to it, or modifies a word.
    fn use_region(&mut self, side: usize, which: u8, how: u8, len: u32) {
        let len = len.min(600);
        self.0.call(side, (len.max(1), around(16)), |now, user, engine, area| {
            let (id, region) = pick(&user.has.regions, which % 4)?;
            let at = u64::from(how >> 2) * 8;
            let result = match how & 3 {
                0 => engine.put(now, id, &region, at, area, PutOptions::WITH_NOTICE).map(|_| ()),
                1 => {
                    let function = WordFunction::Add(u64::from(which));
                    engine.fetch_op(now, id, &region, at, WordWidth::Eight, function).map(|_| ())
                }
                _ => engine
                    .get(now, id, &region, at, area)
                    .map(|receive| user.has.receives.push(receive)),
            };
            Some(result)
        });
    }
}

impl<N: Runs<Endpoint>> Play for Players<N> {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let world = &mut self.0.world;
        match Step::next(choices) {
            Step::Wait { units } => world.wait(Duration::from_micros(50) * u32::from(units)),
            Step::Settle => world.wait(Duration::from_millis(60)),
            Step::Link { which, is_up } => {
                let link = pick(world.links(), which);
                link.map(|link| world.sim_mut().set_link(link, is_up));
            }
            Step::Forge { which, how, by } => {
                let past = world.past(usize::from(which % 64));
                let Some((port, mut frame)) = past else { return };
                forge(&mut frame, how, by);
                world.send(world.id(1), port, frame);
            }
            Step::Junk { seed, len } => {
                let [host, peer] = [0, 1].map(|side| world.id(side));
                let frame = Frame::addressed(peer.peer(), host.peer(), junk(seed, len));
                world.send(peer, PortId(0), frame);
            }
            step => self.apply(step),
        }
        // Calls take effect before the next.
        self.0.world.wait(Duration::from_micros(1));
    }

    fn is_over(&self) -> bool {
        !self.0.world.wrong().is_empty()
    }

    fn end(mut self) -> Record {
        self.0.world.wait(Duration::from_millis(300));
        self.0.record()
    }
}

/// One thing that happens. `side` is the end that it happens to: 0 is the host
/// under test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user asks for a connection.
    Connect { side: usize },
    /// The user sends this many bytes.
    Send { side: usize, which: u8, len: u32 },
    /// The user posts memory, that begins so far into its region.
    Post { side: usize, which: u8, len: u32, lead: u8 },
    /// The user asks for a Transfer.
    Read { side: usize, which: u8, len: u32 },
    /// The user asks for a region.
    Ask { side: usize, which: u8 },
    /// The user reads from a region of the other side, writes to it, or
    /// modifies a word of it.
    Remote { side: usize, which: u8, how: u8, len: u32 },
    /// The user ends what it sends or receives.
    Cancel { side: usize, which: u8, is_send: bool },
    /// The user closes a connection, gracefully or at once.
    Close { side: usize, which: u8, at_once: bool },
    /// The user adds the other path to a connection.
    AddLink { side: usize, which: u8 },
    /// A link goes down, or comes up again.
    Link { which: u8, is_up: bool },
    /// A frame that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: this many units of 50 µs.
    Wait { units: u8 },
    /// Much time passes.
    Settle,
}

impl Step {
    /// The next one that bytes stand for.
    pub(super) fn next(choices: &mut Choices<'_>) -> Self {
        let code = choices.byte();
        let side = usize::from(code >> 7);
        let which = choices.byte();
        match code & 63 {
            0 | 1 => Self::Connect { side },
            2..=9 => Self::Send { side: 1, which, len: len(choices) },
            10 => Self::Send { side: 0, which, len: len(choices) },
            11..=18 => Self::Post { side: 0, which, len: len(choices), lead: choices.byte() },
            19 => Self::Post { side: 1, which, len: len(choices), lead: choices.byte() },
            20..=22 => Self::Read { side, which, len: len(choices) },
            23..=24 => Self::Ask { side, which },
            25..=28 => Self::Remote { side, which, how: choices.byte(), len: len(choices) },
            29..=31 => Self::Cancel { side, which, is_send: code & 64 != 0 },
            32 => Self::Close { side, which, at_once: code & 64 != 0 },
            33..=34 => Self::AddLink { side, which },
            35..=36 => Self::Link { which, is_up: code & 64 != 0 },
            37..=47 => Self::Forge { which, how: choices.byte(), by: choices.byte() },
            48 => Self::Junk { seed: which, len: choices.byte() },
            49..=61 => Self::Wait { units: which },
            _ => Self::Settle,
        }
    }
}

/// Short ones sometimes, and up to 8 KiB.
fn len(choices: &mut Choices<'_>) -> u32 {
    let (shape, fine) = (u32::from(choices.byte()), u32::from(choices.byte()));
    match shape >> 6 {
        0 => fine % 80,
        1 => fine + 1,
        _ => ((shape & 31) << 8 | fine) + 1,
    }
}

/// Where the fields of the Schedule Header are that are worth altering.
const FIELDS: [(usize, usize); 14] = [
    (0, 1),  // Op
    (1, 1),  // Flags
    (2, 2),  // Param
    (4, 2),  // D_Port
    (6, 2),  // S_Port
    (8, 4),  // D_Key
    (12, 2), // Cksum
    (14, 2), // Sync
    (16, 4), // B_num
    (20, 4), // Bufx
    (24, 4), // Offset
    (28, 8), // T_len
    (36, 2), // D_id
    (38, 2), // S_id
];

/// Alters a frame. The lowest bits of `how` say in which way, the highest whether
/// the checksum is made right again.
pub(super) fn forge(frame: &mut Frame, how: u8, by: u8) {
    let bytes = &mut frame.bytes;
    let had = bytes.len();
    match how & 31 {
        // As it was.
        0..=3 => {}
        // Other payload.
        4..=6 => {
            for byte in bytes.iter_mut().skip(40) {
                *byte ^= by | 1;
            }
        }
        7 => bytes.truncate(had.saturating_sub(usize::from(by % 64) + 1)),
        8 => bytes.extend(std::iter::repeat_n(by, usize::from(by % 64) + 1)),
        // To one of the next STUs, perhaps with another key.
        9..=12 => {
            add(bytes, 24, 4, 64 * u64::from(by & 31));
            add(bytes, 8, 4, u64::from(how >> 6 & 1));
        }
        13 => add(bytes, 24, 4, u64::from(by)),
        14 => add(bytes, 16, 4, 1),
        15 => add(bytes, 20, 4, u64::from(by & 7)),
        // An earlier generation of the same place.
        16 => add(bytes, 20, 4, 0xffff_0000),
        code => {
            let (at, len) = FIELDS[usize::from(code) % FIELDS.len()];
            add(bytes, at, len, u64::from(by) + 1);
        }
    }
    if how & 128 == 0 {
        seal(bytes);
    }
}

/// Adds to a number in the header.
fn add(bytes: &mut [u8], at: usize, len: usize, by: u64) {
    let Some(field) = bytes.get_mut(at..at + len) else { return };
    let mut number = 0u64;
    for byte in field.iter() {
        number = number << 8 | u64::from(*byte);
    }
    number = number.wrapping_add(by);
    for byte in field.iter_mut().rev() {
        *byte = number as u8;
        number >>= 8;
    }
}

/// Makes the checksum right, where there is one.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < 40 || bytes[1] & stp_core::wire::Flags::SUM.0 == 0 {
        return;
    }
    bytes[12..14].fill(0);
    let mut sum = InternetSum::new();
    sum.add(bytes);
    let sum = !sum.sum();
    bytes[12..14].copy_from_slice(&sum.to_be_bytes());
}

// The configurations that are tried.

/// How many bytes say how a run is set up.
const BYTES: usize = 6;

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
        u64::from(self.0[0]) << 8 | u64::from(self.0[1])
    }

    /// How many links there are.
    pub(super) const fn links(self) -> usize {
        if self.bit(16) { 2 } else { 1 }
    }

    /// How many Blocks the engine has; the adapter may have fewer.
    const fn blocks(self) -> usize {
        if self.bit(17) { 64 } else { 6 }
    }

    /// The engine of the host under test, and that of its peer.
    pub(super) fn engine(self, adapters: u8) -> Config {
        let stus = if self.bit(19) { 2 } else { 5 };
        Config {
            max_stu: 6 + (self.0[3] & 3),
            block_stus: stus,
            buffer: 12,
            blocks_ahead: if self.bit(20) { 1 } else { 4 },
            window: if self.bit(21) { 700 } else { 1 << 20 },
            policy: if self.bit(22) { Policy::ShortestFirst } else { Policy::Fair },
            congestion: Config::shared_network().congestion.filter(|_| self.bit(23)),
            checksum: self.bit(26),
            progress: self.bit(27),
            retry_after: Duration::from_millis(2),
            retry_floor: Duration::from_micros(100),
            give_up_after: 4,
            keep_alive: self.bit(28).then_some(Duration::from_millis(40)),
            blocks: self.blocks(),
            adapters,
            ..Config::default()
        }
    }

    /// What the links do to frames.
    pub(super) fn link(self) -> LinkConfig {
        let percent = |byte: u8, most: u32| Probability::percent(u32::from(byte) * most / 255);
        let faults = self.0[4];
        LinkConfig {
            rate: Some(if self.bit(29) { 1_000_000_000 } else { 20_000_000 }),
            overhead: 24,
            delay: Duration::from_micros(30),
            mtu: 1_500,
            queue: TailDrop::default(),
            loss: if faults & 1 == 1 { Loss::Uniform(percent(self.0[5], 20)) } else { Loss::None },
            duplication: if faults & 2 == 2 {
                Probability::percent(10)
            } else {
                Probability::NEVER
            },
            reordering: Reordering {
                probability: percent(faults & 4, 2000),
                extra_delay: Duration::from_micros(200),
            },
            corruption: Corruption { probability: percent(faults & 8, 320), most_bits: 1 },
            heads_first: false,
        }
    }

    /// The firmware of the adapter.
    pub(super) fn firmware(self) -> Tigon<'static> {
        let blocks = if self.bit(18) { self.blocks() / 2 } else { self.blocks() };
        let stus = if self.bit(30) { 64 } else { 16 };
        let config =
            Firmware { checksum: self.bit(26), reports: Reports::Each, cycles: Cycles::TIGON };
        Tigon::new(Tables::owned(blocks, stus), config)
    }

    /// The adapter's slots and rings.
    pub(super) fn sizes(self) -> Sizes {
        Sizes {
            arrivals: 8,
            departures: 8,
            frame: 2_048,
            orders: if self.bit(31) { 4 } else { 64 },
            reports: 64,
            buffers: 8,
        }
    }
}
