//! What the users at both ends have, and what they were told.

use std::cell::RefCell;
use std::rc::Rc;

use clan_dsm::{ApertureId, Cookie, EndpointId, Event, Nic, TripwireId};
use landfall_placement::{Area, Instant, Random};
use landfall_simnet::Memory;

/// An aperture of a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exposed {
    pub(super) id: ApertureId,
    pub(super) len: u64,
    /// For all that may be done there.
    pub(super) cookie: Cookie,
}

/// One user.
#[derive(Debug)]
pub(super) struct User {
    side: usize,
    /// What it was told, in order, with the time.
    pub(super) log: Vec<String>,
    pub(super) apertures: Vec<Exposed>,
    pub(super) wires: Vec<TripwireId>,
    /// What moves its memory.
    pub(super) endpoint: Option<EndpointId>,
    /// All memory that it ever lent.
    pub(super) lent: Vec<Area>,
}

/// A user, as both its node and the world reach it.
pub(super) type Shared = Rc<RefCell<User>>;

/// What hands events to this user.
pub(super) fn told(
    user: &Shared,
) -> impl FnMut(Instant, &mut Nic, &mut Memory, Event) + use<> + 'static {
    let user = user.clone();
    move |now, engine, memory, event| user.borrow_mut().handle(now, engine, memory, event)
}

impl User {
    pub(super) fn new(side: usize) -> Shared {
        Rc::new(RefCell::new(Self {
            side,
            log: Vec::new(),
            apertures: Vec::new(),
            wires: Vec::new(),
            endpoint: None,
            lent: Vec::new(),
        }))
    }

    /// Memory with bytes of its own.
    pub(super) fn lend(&mut self, memory: &mut Memory, len: u32) -> Option<Area> {
        let seed = (self.lent.len() as u64) << 1 | self.side as u64;
        let mut random = Random::from_number(seed);
        let bytes = (0..len).map(|_| random.next_u32() as u8).collect();
        let area = Area::new(memory.lend(bytes).ok()?, 0, u64::from(len));
        self.lent.push(area);
        Some(area)
    }

    /// Is told something.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        engine: &mut Nic,
        memory: &mut Memory,
        event: Event,
    ) {
        let mut line = format!("{now} side {}: {event:?}", self.side);
        if let Event::Tripwire { tripwire } = event {
            line.push_str(&format!(", at {:?} words so far", engine.firings(tripwire)));
        }
        self.log.push(line);
        let _ = memory;
    }

    /// The state of all tripwires, in the end.
    pub(super) fn ask(&mut self, engine: &mut Nic) {
        for wire in &self.wires {
            let (count, fired) = (engine.firings(*wire), engine.take_fired(*wire));
            self.log.push(format!("side {}: {wire}: {count:?} {fired:?}", self.side));
        }
        while let Some(wire) = engine.pop_identifier() {
            self.log.push(format!("side {}: {wire} is queued", self.side));
        }
        self.log.push(format!("side {}: {} bursts", self.side, engine.stats().bursts));
    }

    /// One of those that there are, the newest for 0.
    pub(super) fn pick<T: Copy>(all: &[T], which: u8) -> Option<T> {
        let back = usize::from(which).checked_rem(all.len())?;
        all.get(all.len() - 1 - back).copied()
    }
}
