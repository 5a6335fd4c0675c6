//! What a host and an adapter that takes bursts off it say to each other, and the
//! table that the adapter keeps of it.
//!
//! The adapter looks at every unit of a native link in the order in which it came.
//! A burst that belongs wholly into memory that it was told of goes to its place
//! and is reported; all else is given to the host whole. What it gives may write
//! memory, too, and later than the adapter would: from then on it *passes*
//! everything to the host, until the host has dealt with all that it was given.
//! So each link's writes take effect in their order, no matter who does them.
//!
//! One tripwire, as an adapter knows it.

use landfall_placement::{Area, Serial32};

use super::filter::{ListKey, Place};
use super::map::{Aperture, Apertures, Group, Map};
use crate::address::Key;
use crate::cookie::{Access, Rights};
use crate::native::{Burst, ReceiveWindow};

/// What the host tells its adapter. Each is in force before anything that is sent
/// behind it.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// A slot holds this aperture now, in its so-manieth life; without memory, none.
    Expose {
        /// The slot.
        slot: u16,
        /// How often it was revoked before.
        generation: u32,
        /// Its memory and keys.
        aperture: Aperture,
    },
    /// The memory of a group lies in an aperture now; `None`: in none.
    Join {
        /// What the group's memory is found by.
        name: u64,
        /// The memory.
        group: Option<Group>,
    },
    /// Say when these words of an aperture are written.
    Watch {
        /// The tripwire's place in the table.
        number: u32,
        /// The aperture.
        slot: u16,
        /// The first word.
        first: u32,
        /// The last word.
        last: u32,
    },
    /// Not any more.
    Forget {
        /// The tripwire's place in the table.
        number: u32,
    },
    /// How far the host is.
    HostProgress(HostProgress),
    /// Answer with [`Report::Fence`], and count from zero what is given to the host.
    Fence {
        /// The number of it.
        number: u32,
    },
}

/// How far a host is with what its adapter gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostProgress {
    /// The last fence whose answer it has heard.
    pub fence: u32,
    /// How many units it was given since, and has dealt with.
    pub seen: u32,
    /// Which beginning of the link it is.
    pub session: u32,
    /// How many words had come by then, headers included, and up to which one may
    /// come; `None` where nothing counts that comes.
    pub window: Option<ReceiveWindow>,
    /// How many [`Report::Unwatched`] it has heard.
    pub unwatched: u32,
    /// It has to look by itself for some tripwire, and must hear at once of all that is
    /// written.
    pub looks: bool,
}

/// A burst that an adapter put into its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Its header, and how many words followed.
    pub burst: Burst,
    /// The beginning of the link that it came in.
    pub session: u32,
    /// The slot of the aperture.
    pub slot: u16,
    /// How often that was revoked before.
    pub generation: u32,
    /// Where in the aperture, in bytes.
    pub at: u64,
    /// How many bytes.
    pub len: u32,
    /// They are there; else the memory could not be written.
    pub is_there: bool,
    /// A word was written that somebody watches.
    pub is_hit: bool,
    /// The adapter advertised this edge of the window to the other end.
    pub advertised: Option<Serial32>,
}

/// What the adapter tells its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A burst is in its place, or could not be put there.
    Landed(Landed),
    /// There is no room to watch for a tripwire: the host has to look by itself.
    Unwatched {
        /// The tripwire's place in the table.
        number: u32,
    },
    /// All that came before is in place and reported, and every earlier command
    /// was in force for all that comes.
    Fence {
        /// The number of it.
        number: u32,
    },
}

impl Aperture {
    /// The memory; empty where the slot is free.
    #[must_use]
    pub const fn memory(&self) -> Area {
        self.memory
    }

    /// The key of a cookie with these rights, if one was given out.
    #[must_use]
    pub fn key(&self, rights: Rights) -> Option<Key> {
        let known = Rights::ALL.into_iter().zip(self.keys).find(|(other, _)| *other == rights);
        known.filter(|_| self.issued >> rights as u8 & 1 == 1).map(|(_, key)| key)
    }

    /// The same keys for other memory.
    #[must_use]
    pub const fn with_memory(self, memory: Area) -> Self {
        Self { memory, ..self }
    }
}

/// The apertures and groups that an adapter was told of, in storage that somebody
/// else owns.
#[derive(Debug)]
pub struct Exposed<'t> {
    /// One for each slot.
    pub apertures: &'t mut [Aperture],
    /// How often each slot was revoked before; of the same length.
    pub generations: &'t mut [u32],
    /// The groups.
    pub groups: Map<'t, Group>,
}

impl Exposed<'_> {
    /// A slot holds this aperture now. False where there is no such slot here.
    pub fn expose(&mut self, slot: u16, generation: u32, aperture: Aperture) -> bool {
        let slot = usize::from(slot);
        match (self.apertures.get_mut(slot), self.generations.get_mut(slot)) {
            (Some(place), Some(known)) => {
                (*place, *known) = (aperture, generation);
                true
            }
            _ => false,
        }
    }

    /// The memory of a group lies here now, or nowhere. False where there is no room
    /// for one more.
    pub fn join(&mut self, name: u64, group: Option<Group>) -> bool {
        match group {
            None => self.groups.remove(name),
            // Some cells stay free, so that a search ends soon.
            Some(_) if self.groups.get_mut(name).is_none() && !self.groups.has_room_for(1) => {
                return false;
            }
            Some(group) => match self.groups.entry(name) {
                Some(place) => *place = group,
                None => return false,
            },
        }
        true
    }

    /// How often a slot was revoked before.
    #[must_use]
    pub fn generation(&self, slot: u16) -> u32 {
        self.generations.get(usize::from(slot)).copied().unwrap_or(0)
    }

    /// Is this one of the slots that there are here, and has the host no further keys to it? Then
    /// nobody writes there what is refused here.
    #[must_use]
    pub fn knows_keys_of(&self, slot: u16) -> bool {
        self.apertures.get(usize::from(slot)).is_some_and(|aperture| !aperture.has_host_keys())
    }

    /// The tables, to be asked.
    #[must_use]
    pub fn look(&self) -> Apertures<'_> {
        Apertures::among(self.apertures, self.groups.look())
    }
}

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

/// What is in a list: a tripwire itself, or a [`ListNode`] of it. Zero is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle(u32);

/// What a [`Handle`] stands for.
pub(super) enum HandleTarget {
    Nothing,
    Wire(u32),
    ListNode(u32),
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
    pub(super) const fn held(self) -> HandleTarget {
        match self.0 {
            0 => HandleTarget::Nothing,
            own if own & KNOT == 0 => HandleTarget::Wire(own - 1),
            other => HandleTarget::ListNode((other & !KNOT) - 1),
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
    pub(super) const REPORTED: Self = Self(16);

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
pub struct ListNode {
    pub(super) key: ListKey,
    pub(super) link: Link,
    pub(super) wire: u32,
    /// The next of the same tripwire, or the next that is free.
    pub(super) sibling: Handle,
}
