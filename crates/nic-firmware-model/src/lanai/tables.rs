//! [`LanaiTables`]: what the card keeps in its SRAM.

use landfall_placement::PathId;
use qpip::offload::{Addresses, Entry, HashSecret, Pointer, Tables};

use super::requests::{Mapped, Mapping};
use super::routes::{Known, Routes};
use crate::machine::{Batch, Bell, Exhausted, Request, Sram, Store};

/// How many entries and places of the index there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanaiSizes {
    /// Queue pairs whose units are placed.
    pub entries: u16,
    /// Places of the index; twice as many as entries make for short searches.
    pub pointers: u16,
    /// Mappings of posted memory; what finds none is the host's.
    pub mappings: u16,
    /// Addresses whose way through the network is known; 0: there are no switches.
    pub routes: u16,
}

impl Default for LanaiSizes {
    fn default() -> Self {
        Self { entries: 1_024, pointers: 2_048, mappings: 256, routes: 128 }
    }
}

impl LanaiSizes {
    /// Doorbells that wait.
    const BELLS: usize = 256;

    /// Reserves the SRAM for it.
    ///
    /// # Errors
    /// [`Exhausted`]: what did not fit; what came before it is reserved.
    pub fn reserve(&self, sram: &mut Sram) -> Result<(), Exhausted> {
        let entries = usize::from(self.entries);
        sram.reserve("queue pairs", entries, size_of::<Entry>())?;
        sram.reserve("counts of queue pairs", entries, size_of::<Watch>())?;
        sram.reserve("index of queue pairs", usize::from(self.pointers), size_of::<Pointer>())?;
        sram.reserve("translations", usize::from(self.mappings), size_of::<Mapping>())?;
        sram.reserve("routes", usize::from(self.routes), size_of::<Option<Known>>())?;
        sram.reserve("work requests", Batch::MOST, size_of::<Request>())?;
        sram.reserve("doorbells", Self::BELLS, size_of::<Bell>())?;
        sram.reserve("stations", Stations::MOST, size_of::<Station>())
    }
}

/// What is remembered of an entry beside what is expected of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The count when a unit passed it by, or it was disarmed.
    pub(super) stirred: u64,
    /// The name of the prediction.
    pub(super) mark: u16,
}

/// A station of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Station {
    pub(super) path: PathId,
    pub(super) mac: [u8; 6],
    pub(super) addresses: Addresses,
}

/// The stations of ours, one for each path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stations([Option<Station>; Self::MOST]);

impl Stations {
    pub(super) const MOST: usize = 4;

    pub(super) fn on(&self, path: PathId) -> Option<&Station> {
        self.0.iter().flatten().find(|station| station.path == path)
    }

    /// Replaces the station of a path. What finds no room is not known: all that
    /// comes there goes to the host.
    pub(super) fn set(&mut self, station: Station) {
        let is_known = |place: &Option<Station>| place.is_some_and(|s| s.path == station.path);
        let known = self.0.iter().position(is_known);
        let place = known.or_else(|| self.0.iter().position(Option::is_none));
        if let Some(place) = place.and_then(|place| self.0.get_mut(place)) {
            *place = Some(station);
        }
    }
}

/// The tables of the card.
#[derive(Debug)]
pub struct LanaiTables<'s> {
    pub(super) entries: Store<'s, Entry>,
    pub(super) pointers: Store<'s, Pointer>,
    pub(super) watches: Store<'s, Watch>,
    pub(super) mappings: Store<'s, Mapping>,
    /// In the host's memory: what its driver has mapped.
    pub(super) mapped: Mapped<'s>,
    pub(super) stations: Stations,
    pub(super) routes: Routes<'s>,
    /// Peers choose what entries are found by.
    pub(super) secret: HashSecret,
}

impl<'s> LanaiTables<'s> {
    /// Empty ones in this storage; as many `watches` as `entries`, and of mappings as
    /// many for the card as for its driver. Strangers must not know the secret.
    #[must_use]
    pub fn new(
        entries: impl Into<Store<'s, Entry>>,
        pointers: impl Into<Store<'s, Pointer>>,
        watches: impl Into<Store<'s, Watch>>,
        [mappings, mapped]: [Store<'s, Mapping>; 2],
        routes: impl Into<Store<'s, Option<Known>>>,
        secret: HashSecret,
    ) -> Self {
        let stations = Stations::default();
        let mut tables = Self {
            entries: entries.into(),
            pointers: pointers.into(),
            watches: watches.into(),
            mappings,
            mapped: Mapped::new(mapped),
            stations,
            routes: Routes::new(routes.into()),
            secret,
        };
        tables.clear();
        tables
    }

    /// In memory of its own.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn owned(sizes: LanaiSizes, secret: HashSecret) -> Self {
        let entries = usize::from(sizes.entries);
        Self::new(
            Store::filled_with(entries, Entry::default),
            Store::filled_with(usize::from(sizes.pointers), Pointer::default),
            Store::filled_with(entries, Watch::default),
            [(); 2].map(|()| Store::filled_with(usize::from(sizes.mappings), Mapping::default)),
            Store::filled_with(usize::from(sizes.routes), || None),
            secret,
        )
    }

    /// Nothing is known any more but the routes, which come with the firmware.
    pub(super) fn clear(&mut self) {
        self.entries.fill(Entry::default());
        self.pointers.fill(Pointer::default());
        self.watches.fill(Watch::default());
        self.mappings.fill(Mapping::default());
        self.mapped.clear();
        self.stations = Stations::default();
    }

    #[inline]
    pub(super) fn seam(&mut self) -> Tables<'_> {
        Tables::new(&mut self.entries, &mut self.pointers, self.secret)
    }

    #[inline]
    pub(super) fn watch(&mut self, slot: u32) -> Option<&mut Watch> {
        self.watches.get_mut(slot as usize)
    }

    #[inline]
    pub(super) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize).filter(|entry| !entry.is_free())
    }
}
