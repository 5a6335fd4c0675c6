//! Runs that are decoded from bytes: the same for property tests and fuzzing.
//!
//! A run is played twice, with the same luck: once with a host behind an adapter, once with
//! one without. While both do the same, they see the same.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;

use landfall_placement::{Area, Engine, Instant, Random, RegionId};
use landfall_simnet::{Encapsulation, Memory, PortId};
use landfall_testkit::model::Choices;

use super::{Record, Runs, World};

/// Somebody who uses the hosts of a world as bytes say.
pub(crate) trait Play: Sized {
    /// Does the next thing that these bytes stand for.
    fn step(&mut self, choices: &mut Choices<'_>);
    /// Whether the run has ended early.
    fn is_over(&self) -> bool;
    /// Brings everything to its end, and gives what was seen.
    fn end(self) -> Record;

    /// Does all that is left.
    fn play(mut self, mut choices: Choices<'_>) -> Record {
        while !choices.is_over() && !self.is_over() {
            self.step(&mut choices);
        }
        self.end()
    }
}

/// The user of a side: what it was told, what memory it lent, and what else it has.
#[derive(Debug)]
pub(crate) struct User<T> {
    pub(crate) side: usize,
    /// What it was told and what became of its calls, in order, with the time.
    pub(crate) log: Vec<String>,
    /// All memory that it ever lent.
    lent: Vec<RegionId>,
    pub(crate) has: T,
}

/// A user, as both its node and the world reach it.
pub(crate) type UserHandle<T> = Rc<RefCell<User<T>>>;

/// What the user of an engine has, and what it does when it is told something.
pub(crate) trait UserState<E: Engine>: Default + 'static {
    /// Is told something, and answers.
    fn hear(user: &mut User<Self>, now: Instant, engine: &mut E, memory: &mut Memory, e: E::Event);
}

impl<T> User<T> {
    fn new(side: usize, has: T) -> UserHandle<T> {
        Rc::new(RefCell::new(Self { side, log: Vec::new(), lent: Vec::new(), has }))
    }

    /// Memory with bytes of its own, with this many more before and behind it.
    pub(crate) fn lend(
        &mut self,
        memory: &mut Memory,
        len: u32,
        (before, behind): (u32, u32),
    ) -> Option<Area> {
        let seed = (self.lent.len() as u64) << 1 | self.side as u64;
        let mut random = Random::from_number(seed);
        let bytes = (0..before + len + behind).map(|_| random.next_u32() as u8).collect();
        let region = memory.lend(bytes).ok()?;
        self.lent.push(region);
        Some(Area::new(region, before.into(), len.into()))
    }
}

/// One of those that there are, the newest for 0.
pub(crate) fn pick<T: Clone>(all: &[T], which: u8) -> Option<T> {
    let back = usize::from(which).checked_rem(all.len())?;
    all.get(all.len() - 1 - back).cloned()
}

/// Bytes that are no frame of any protocol, mostly.
pub(crate) fn junk(seed: u8, len: u8) -> Vec<u8> {
    let mut random = Random::from_number(u64::from(seed));
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// A world with a user at each side.
pub(crate) struct Used<E: Engine, H, P, T> {
    pub(crate) world: World<E, H, P>,
    pub(crate) users: [UserHandle<T>; 2],
}

/// Memory that is lent for a call: this many bytes, with this many more before and behind them.
pub(crate) type Lends = (u32, (u32, u32));
/// None is.
pub(crate) const NONE: Lends = (0, (0, 0));

impl<E: Engine + 'static, H: Runs<E>, P: Runs<E>, T: UserState<E>> Used<E, H, P, T> {
    /// Two hosts whose users hear of everything at once.
    pub(crate) fn new(seed: u64, host: H, peer: P) -> Self {
        let users = [0, 1].map(|side| User::new(side, T::default()));
        let hear = |user: &UserHandle<T>| {
            let user = user.clone();
            move |now, engine: &mut E, memory: &mut Memory, event| {
                T::hear(&mut user.borrow_mut(), now, engine, memory, event);
            }
        };
        let host = host.with_handler(hear(&users[0]));
        let peer = peer.with_handler(hear(&users[1]));
        Self { world: World::new(seed, ("host", host), ("peer", peer)), users }
    }

    /// All links are there: from now on frames are captured, and those of the peer remembered.
    pub(crate) fn begin(&mut self, encapsulation: Encapsulation) {
        let ways = self.world.links().iter().map(|link| link.back());
        let ways: Vec<_> = ways.zip((0..).map(PortId)).collect();
        self.world.remember(ways);
        self.world.sim_mut().capture_all(encapsulation);
    }

    /// Lets a user use its engine, and memory that it lends.
    pub(crate) fn call<Error: Display>(
        &mut self,
        side: usize,
        (len, around): Lends,
        call: impl FnOnce(Instant, &mut User<T>, &mut E, Area) -> Option<Result<(), Error>>,
    ) {
        let now = self.world.now();
        let mut user = self.users[side].borrow_mut();
        let area = match len {
            0 => None,
            _ => user.lend(self.world.memory_mut(side), len, around),
        };
        let engine = self.world.engine_mut(side);
        if let Some(Err(error)) = call(now, &mut user, engine, area.unwrap_or_default()) {
            user.log.push(format!("{now} side {side}: {error}"));
        }
    }

    /// What was seen: frames, what the users were told, the memory that they lent, and what
    /// was refused at the host.
    pub(crate) fn record(&self) -> Record {
        let users = self.users.each_ref().map(|user| user.borrow());
        let mut record = self.world.record([&users[0].lent, &users[1].lent]);
        record.told = users.map(|user| user.log.clone());
        record.count(0, self.world.engine(0).refusals());
        record.count(0, *self.world.host().refusals());
        record
    }
}
