//! What the users at both ends do: by themselves, and as bytes say.

use landfall_placement::{Area, Duration, Instant, PathId, WordFunction, WordWidth};
use landfall_simnet::{Encapsulation, EngineConfig, Frame, Memory, PortId};
use landfall_testkit::model::Choices;
use stp_core::wire::Reason;
use stp_core::{
    Admission, Connect, ConnectionId, Endpoint, Error, Event, ReceiveId, RemoteRegion, Rights,
    SendId,
};

use super::Plain;
use super::steps::{Setup, Step, forge};
use crate::world::play::{Has, Lends, NONE, Play, Used, User, junk, pick};
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

impl Has<Endpoint> for Known {
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
            Event::ReadAsked { read, len, .. } => {
                match user.lend(memory, len.min(1 << 16) as u32, around(8)).filter(|_| wants) {
                    Some(area) => engine.answer_read(now, read, area, 5).map(|send| {
                        user.has.sends.push(send);
                    }),
                    None => engine.refuse_read(now, read, Reason::Refused),
                }
            }
            Event::RegionAsked { ask, len, .. } => {
                match user.lend(memory, len.min(1 << 16) as u32, around(0)).filter(|_| wants) {
                    Some(area) => engine.expose(ask, area, Rights::ALL).map(drop),
                    None => engine.refuse_region(ask, Reason::Refused),
                }
            }
            Event::RegionAvailable { connection, region, .. } => {
                user.has.regions.push((connection, region));
                Ok(())
            }
            // Whoever writes there again ends the run (invariant 1).
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
            let mut endpoint = Endpoint::new(setup.engine(adapters), [side + 1; 32]);
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
                0 => engine.put(now, id, &region, at, area, true).map(|_| ()),
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
