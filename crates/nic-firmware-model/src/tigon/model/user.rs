//! What the users at both ends do by themselves, and what they remember.

use std::cell::RefCell;
use std::rc::Rc;

use landfall_placement::{Area, Instant, Random};
use landfall_simnet::Memory;
use stp_core::wire::Reason;
use stp_core::{ConnectionId, Endpoint, Event, ExposedId, ReceiveId, RemoteRegion, Rights, SendId};

/// One user.
#[derive(Debug)]
pub(super) struct User {
    /// Which side it is.
    side: usize,
    /// What it was told, in order, with the time.
    pub(super) log: Vec<String>,
    pub(super) connections: Vec<ConnectionId>,
    pub(super) sends: Vec<SendId>,
    pub(super) receives: Vec<ReceiveId>,
    pub(super) regions: Vec<(ConnectionId, RemoteRegion)>,
    pub(super) exposed: Vec<ExposedId>,
    /// All memory that it ever lent.
    pub(super) lent: Vec<Area>,
}

/// A user, as both its node and the world reach it.
pub(super) type Shared = Rc<RefCell<User>>;

/// What hands events to this user.
pub(super) fn told(
    user: &Shared,
) -> impl FnMut(Instant, &mut Endpoint, &mut Memory, Event) + use<> + 'static {
    let user = user.clone();
    move |now, engine, memory, event| user.borrow_mut().handle(now, engine, memory, event)
}

impl User {
    pub(super) fn new(side: usize) -> Shared {
        Rc::new(RefCell::new(Self {
            side,
            log: Vec::new(),
            connections: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            regions: Vec::new(),
            exposed: Vec::new(),
            lent: Vec::new(),
        }))
    }

    /// Memory with bytes of its own, that begins `lead` bytes into its region.
    pub(super) fn lend(&mut self, memory: &mut Memory, len: u32, lead: u8) -> Option<Area> {
        let seed = (self.lent.len() as u64) << 1 | self.side as u64;
        let mut random = Random::from_number(seed);
        let count = usize::from(lead) + len as usize + 16;
        let bytes = (0..count).map(|_| random.next_u32() as u8).collect();
        let region = memory.lend(bytes).ok()?;
        self.lent.push(Area::new(region, 0, count as u64));
        Some(Area::new(region, u64::from(lead), u64::from(len)))
    }

    /// Is told something, and answers.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        engine: &mut Endpoint,
        memory: &mut Memory,
        event: Event,
    ) {
        self.log.push(format!("{now} side {}: {event:?}", self.side));
        // Sometimes it does not want what it is offered.
        let wants = self.log.len() % 7 != 6;
        let answer = match event {
            Event::Connected { connection, .. } | Event::Accepted { connection, .. } => {
                self.connections.push(connection);
                Ok(())
            }
            Event::Offered { receive, len, .. } => {
                self.receives.push(receive);
                let lead = (self.log.len() % 3 * 40) as u8;
                match self.lend(memory, len.min(1 << 16) as u32, lead).filter(|_| wants) {
                    Some(area) => engine.accept(now, receive, area, true),
                    None => engine.refuse(receive, Reason::Refused),
                }
            }
            Event::ReadAsked { read, len, .. } => {
                match self.lend(memory, len.min(1 << 16) as u32, 8).filter(|_| wants) {
                    Some(area) => engine.answer_read(now, read, area, 5).map(|send| {
                        self.sends.push(send);
                    }),
                    None => engine.refuse_read(now, read, Reason::Refused),
                }
            }
            Event::RegionAsked { ask, len, .. } => {
                match self.lend(memory, len.min(1 << 16) as u32, 0).filter(|_| wants) {
                    Some(area) => engine.expose(ask, area, Rights::ALL).map(|exposed| {
                        self.exposed.push(exposed);
                    }),
                    None => engine.refuse_region(ask, Reason::Refused),
                }
            }
            Event::RegionAvailable { connection, region, .. } => {
                self.regions.push((connection, region));
                Ok(())
            }
            // Whoever writes there again ends the run (invariant 1).
            Event::Received { receive, memory: area, len, .. } => {
                self.receives.push(receive);
                let _ = memory.freeze(area.span(0, len as u32));
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = answer {
            self.log.push(format!("{now} side {}: {error}", self.side));
        }
    }

    /// One of those that there are, the newest for 0.
    pub(super) fn pick<T: Clone>(all: &[T], which: u8) -> Option<T> {
        let back = usize::from(which).checked_rem(all.len())?;
        all.get(all.len() - 1 - back).cloned()
    }
}
