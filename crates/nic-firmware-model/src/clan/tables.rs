//! The tables of the firmware, and how much SRAM they take.

use clan_dsm::offload::{Aperture, Cell, Exposed, Group, Map, Secret};

use super::watch::{Key, Watched, Words};
use crate::machine::{Cam, Exhausted, Sram, Store};

/// How many entries each table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Apertures, from slot 0 on.
    pub apertures: u16,
    /// Cells of the table of groups, a power of two; one in eight stays free.
    pub groups: u16,
    /// Tripwires, from number 0 on.
    pub tripwires: u16,
    /// Words, or blocks of them, that are compared.
    pub cam: u16,
}

impl Default for Entries {
    fn default() -> Self {
        let tripwires = Cam::<Key, u16>::CLAN as u16;
        Self { apertures: 1024, groups: 64, tripwires, cam: tripwires }
    }
}

impl Entries {
    /// Reserves the memory for them.
    ///
    /// # Errors
    /// [`Exhausted`]: what did not fit; what came before it is reserved.
    pub fn reserve(&self, sram: &mut Sram) -> Result<(), Exhausted> {
        let apertures = usize::from(self.apertures);
        sram.reserve("apertures", apertures, size_of::<Aperture>() + size_of::<u32>())?;
        sram.reserve("groups", usize::from(self.groups), size_of::<Cell<Group>>())?;
        sram.reserve("tripwires", usize::from(self.tripwires), size_of::<Option<Words>>())?;
        sram.reserve("CAM", usize::from(self.cam), size_of::<Option<(Key, u16)>>())
    }
}

/// What the host has told the adapter.
#[derive(Debug)]
pub struct Tables<'s> {
    apertures: Store<'s, Aperture>,
    generations: Store<'s, u32>,
    groups: Store<'s, Cell<Group>>,
    groups_used: u32,
    secret: Secret,
    /// The tripwires.
    pub(super) watched: Watched<'s>,
}

impl<'s> Tables<'s> {
    /// Tables in this storage; there are as many generations as apertures. Where groups
    /// lie depends on the secret.
    #[must_use]
    pub fn new(
        apertures: impl Into<Store<'s, Aperture>>,
        generations: impl Into<Store<'s, u32>>,
        groups: impl Into<Store<'s, Cell<Group>>>,
        secret: Secret,
        watched: Watched<'s>,
    ) -> Self {
        Self {
            apertures: apertures.into(),
            generations: generations.into(),
            groups: groups.into(),
            groups_used: 0,
            secret,
            watched,
        }
    }

    /// Tables in memory of their own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(entries: &Entries, secret: Secret) -> Tables<'static> {
        let apertures = usize::from(entries.apertures);
        Tables::new(
            Store::filled_with(apertures, Aperture::default),
            Store::filled_with(apertures, || 0),
            Store::filled_with(usize::from(entries.groups), Cell::default),
            secret,
            Watched::new(
                Cam::owned(usize::from(entries.cam)),
                Store::filled_with(usize::from(entries.tripwires), || None),
            ),
        )
    }

    /// The apertures and groups, to be changed and asked.
    pub(super) fn exposed(&mut self) -> Exposed<'_> {
        let Self { apertures, generations, groups, groups_used, secret, .. } = self;
        Exposed { apertures, generations, groups: Map::new(groups, groups_used, *secret) }
    }

    /// What is in a slot.
    #[must_use]
    pub fn aperture(&self, slot: u16) -> Option<&Aperture> {
        self.apertures.get(usize::from(slot))
    }

    /// The tripwires.
    #[must_use]
    pub const fn watched(&self) -> &Watched<'s> {
        &self.watched
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.apertures.fill(Aperture::default());
        self.generations.fill(0);
        self.groups.fill(Cell::default());
        self.groups_used = 0;
        self.watched.clear();
    }
}
