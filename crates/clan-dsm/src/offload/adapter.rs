//! What a host and an adapter that takes bursts off it say to each other, and the
//! table that the adapter keeps of it.
//!
//! The adapter looks at every unit of a native link in the order in which it came.
//! A burst that belongs wholly into memory that it was told of goes to its place
//! and is reported; all else is given to the host whole. What it gives may write
//! memory, too, and later than the adapter would: from then on it *passes*
//! everything to the host, until the host has dealt with all that it was given.
//! So each link's writes take effect in their order, whoever does them.

use landfall_placement::{Area, Serial32};

use super::apertures::{Aperture, Apertures, Group};
use super::map::Map;
use crate::address::Key;
use crate::cookie::Rights;
use crate::native::Burst;

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
    Line(Line),
    /// Answer with [`Report::Fence`], and count from zero what is given to the host.
    Fence {
        /// The number of it.
        number: u32,
    },
}

/// How far a host is with what its adapter gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The last fence whose answer it has heard.
    pub fence: u32,
    /// How many units it was given since, and has dealt with.
    pub seen: u32,
    /// Which beginning of the link it is.
    pub session: u32,
    /// How many words had come by then, headers included, and up to which one may
    /// come; `None` where nothing counts that comes.
    pub window: Option<(Serial32, Serial32)>,
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
    /// The adapter has told the other end that it may send up to there.
    pub told: Option<Serial32>,
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

    /// Is this one of the slots that there are here?
    #[must_use]
    pub const fn has_slot(&self, slot: u16) -> bool {
        (slot as usize) < self.apertures.len()
    }

    /// The tables, to be asked.
    #[must_use]
    pub fn look(&self) -> Apertures<'_> {
        Apertures::among(self.apertures, self.groups.look())
    }
}
