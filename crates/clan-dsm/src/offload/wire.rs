//! One tripwire, as an adapter knows it.

use super::place::{ListKey, Place};
use crate::cookie::Access;

/// What is done when a tripwire fires. That it fired is remembered in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Nothing more.
    #[default]
    State,
    /// Its name goes into the queue of names, if it does not wait there already.
    Identifier,
    /// This bit of the bitmap is set.
    Bit(u32),
    /// This event counter goes up by the number of words that were touched.
    Count(u32),
    /// The engine tells its user, if it has not since the user last looked.
    Event,
}

/// What a tripwire shall hear of, and what is then done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The memory.
    pub place: Place,
    /// The first byte of it.
    pub from: u64,
    /// The first byte that is not watched any more.
    pub to: u64,
    /// What has to happen to one of these bytes.
    pub access: Access,
    /// What is done then.
    pub action: Action,
    /// Whether the tripwire is disabled by its firing.
    pub once: bool,
}

/// A firing: of words that follow one another, of which each was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The tripwire's place in the table.
    pub index: u32,
    /// How often that place was used before.
    pub generation: u32,
    /// The first word of the memory that was touched and is watched.
    pub word: u32,
    /// How many are: a tripwire fires at each of them (one that is once-only,
    /// at the first).
    pub words: u64,
    /// It had not fired since it was last cleared.
    pub is_first: bool,
    /// The user is to be told, by an event.
    pub tells: bool,
}

/// Neighbours in a list of armed tripwires.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    pub(super) before: Handle,
    pub(super) after: Handle,
}

/// Both ends of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    pub(super) first: Handle,
    pub(super) last: Handle,
}

/// What is in a list: a tripwire itself, or a [`Knot`] of it. Zero is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle(u32);

/// What a [`Handle`] stands for.
pub(super) enum Held {
    Nothing,
    Wire(u32),
    Knot(u32),
}

const KNOT: u32 = 1 << 31;

impl Handle {
    pub(super) const NOTHING: Self = Self(0);

    pub(super) const fn wire(index: u32) -> Self {
        Self(index + 1)
    }

    pub(super) const fn knot(index: u32) -> Self {
        Self(KNOT | (index + 1))
    }

    #[inline]
    pub(super) const fn held(self) -> Held {
        match self.0 {
            0 => Held::Nothing,
            own if own & KNOT == 0 => Held::Wire(own - 1),
            other => Held::Knot((other & !KNOT) - 1),
        }
    }

    #[inline]
    pub(super) const fn is_nothing(self) -> bool {
        self.0 == 0
    }
}

/// One tripwire: a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Wire {
    pub(super) from: u64,
    pub(super) to: u64,
    /// When it was armed: a running number.
    pub(super) armed_at: u64,
    /// How many touched words it fired at.
    pub(super) count: u64,
    pub(super) action: Action,
    /// In the list of those that begin at its first word.
    pub(super) link: Link,
    /// [`Place::number`].
    pub(super) place: u32,
    /// Its knots; the next in the list of free ones, where it is free.
    pub(super) knots: Handle,
    pub(super) generation: u32,
    pub(super) access: Access,
    pub(super) state: State,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            from: 0,
            to: 0,
            armed_at: 0,
            count: 0,
            action: Action::State,
            link: Link::default(),
            place: 0,
            knots: Handle::NOTHING,
            generation: 0,
            access: Access::Both,
            state: State::default(),
        }
    }
}

/// A set of yes and no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State(u8);

impl State {
    /// The place in the table is taken.
    pub(super) const USED: Self = Self(1);
    /// It fires when it is touched.
    pub(super) const ARMED: Self = Self(2);
    /// It is disarmed when it fires.
    pub(super) const ONCE: Self = Self(4);
    /// It has fired, and was not cleared.
    pub(super) const FIRED: Self = Self(8);
    /// Its name is in the queue, or its event under way to the user.
    pub(super) const TOLD: Self = Self(16);

    #[inline]
    pub(super) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// Sets or clears; gives what it was.
    #[inline]
    pub(super) const fn put(&mut self, flag: Self, is: bool) -> bool {
        let was = self.has(flag);
        self.0 = if is { self.0 | flag.0 } else { self.0 & !flag.0 };
        was
    }
}

/// Ties a tripwire into one more list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Knot {
    pub(super) key: ListKey,
    pub(super) link: Link,
    pub(super) wire: u32,
    /// The next of the same tripwire, or the next that is free.
    pub(super) sibling: Handle,
}
