//! Tripwires, as the engine and its user know them: registered, enabled,
//! disabled, asked, waited for.
//!
//! What lives here: the memory of the tables, names that mean nothing when they
//! are old, and tripsets. The match itself, and what a firing leaves behind, is
//! in [`crate::offload`], which an adapter runs by itself.

mod sets;
mod storage;

use alloc::collections::BTreeMap;

use core::ops::Range;

use landfall_placement::{Random, assumed};

pub use crate::offload::{Action, Place, Touched, Watch};

use crate::address::{TripsetId, TripwireId};
use crate::config::Config;
use crate::cookie::Access;
use crate::error::Error;
use crate::offload::Tables;
use sets::{Chain, Chains, Ends, Sets};
use storage::Storage;

pub(crate) use storage::MOST as MOST_TRIPWIRES;

/// A firing: of words that follow one another, of which each was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Which tripwire.
    pub tripwire: TripwireId,
    /// The first word of the memory that was touched and is watched.
    pub word: u32,
    /// How many are: a tripwire fires at each of them (one that is once-only, at
    /// the first).
    pub words: u64,
    /// The user is to be told, by an event.
    pub tells: bool,
}

/// The tripwires of one host.
#[derive(Debug)]
pub struct Tripwires {
    storage: Storage,
    chains: Chains,
    sets: Sets,
    /// All tripwires of each memory that has any.
    places: BTreeMap<u32, Ends>,
}

impl Tripwires {
    /// None yet. The order of the tables comes from `random`; the configuration is one that
    /// [`Config::validate`] lets pass.
    #[must_use]
    pub fn new(config: &Config, random: &mut Random) -> Self {
        Self {
            storage: Storage::new(config.tripwires, random),
            chains: Chains::default(),
            sets: Sets::new(config.tripsets),
            places: BTreeMap::new(),
        }
    }

    /// Registers a tripwire and arms it.
    ///
    /// # Errors
    /// There is no such memory, or no room.
    pub fn watch(&mut self, watch: &Watch) -> Result<TripwireId, Error> {
        if !watch.is_valid() {
            return Err(Error::BadMemory);
        }
        let needs = watch.needs();
        let most = self.storage.most();
        let has_room = match watch.action {
            Action::State | Action::Event => true,
            Action::Identifier => {
                self.storage.make_room_for_names(most);
                true
            }
            Action::Bit(number) => self.storage.make_room_for_bit(number),
            Action::Count(counter) => self.storage.make_room_for_counter(counter),
        };
        if !has_room || !self.storage.make_room(&needs) {
            return Err(Error::NoRoom);
        }
        self.storage.make_room_to_arm(&needs);
        let mut tables = self.storage.lend();
        let id = tables.add(watch).ok_or(Error::NoRoom)?;
        if !tables.arm(id.index) {
            tables.remove(id.index);
            return Err(Error::NoRoom);
        }
        let ends = self.places.entry(watch.place.number()).or_default();
        self.chains.push(Chain::Place, ends, id.index);
        Ok(id)
    }

    /// Arms a tripwire. Of those that are armed it is now the last, so it fires
    /// after all others at one word. One that is armed stays as it is.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn enable(&mut self, id: TripwireId) -> Result<(), Error> {
        let needs = self.named(id)?.needs_of(id.index);
        self.storage.make_room_to_arm(&needs);
        if self.storage.lend().arm(id.index) { Ok(()) } else { Err(Error::NoRoom) }
    }

    /// Disarms a tripwire. That it has fired stays known.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn disable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.named(id)?.disarm(id.index);
        Ok(())
    }

    /// Takes a tripwire out, also of its tripset.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn remove(&mut self, id: TripwireId) -> Result<(), Error> {
        let place = self.named(id)?.place_of(id.index);
        let _ = self.leave_set(id);
        self.storage.lend().remove(id.index);
        if let Some(ends) = self.places.get_mut(&place) {
            self.chains.take_out(Chain::Place, ends, id.index);
            if ends.first().is_none() {
                self.places.remove(&place);
            }
        }
        Ok(())
    }

    /// Takes out all tripwires of a memory, which is gone.
    pub fn forget(&mut self, place: Place) {
        self.forget_all(place, &mut |_| {});
    }

    /// The same, and says which they were.
    pub(crate) fn forget_all(&mut self, place: Place, gone: &mut impl FnMut(TripwireId)) {
        while let Some(index) = self.places.get(&place.number()).and_then(Ends::first) {
            let Some(generation) = assumed(
                self.storage.lend().generation(index),
                "what watches a memory is in the tables",
            ) else {
                return;
            };
            let id = TripwireId { index, generation };
            if self.remove(id).is_err() {
                return;
            }
            gone(id);
        }
    }

    /// These bytes were touched: fires what watches them, by word, and of several
    /// at one word first what was armed first.
    #[inline]
    pub fn touch(
        &mut self,
        place: Place,
        bytes: Range<u64>,
        access: Access,
        sink: &mut impl FnMut(Firing),
    ) {
        if let Some(touched) = Touched::new(place, bytes.start, bytes.end, access)
            && let Some(word) = self.storage.filter().first(touched)
        {
            let Self { storage, chains, sets, .. } = self;
            storage
                .lend()
                .fire_from(touched, word, &mut |firing| hand_on(firing, chains, sets, sink));
        }
    }

    /// The same for all of these, which were touched in this order: cheaper than one
    /// by one where many tripwires are armed.
    pub fn touch_all(&mut self, all: &[Touched], sink: &mut impl FnMut(Firing)) {
        let Self { storage, chains, sets, .. } = self;
        storage.lend().touch_all(all, &mut |firing| hand_on(firing, chains, sets, sink));
    }

    /// The aperture and the words of it whose writing fires this tripwire, if any does now.
    pub(crate) fn watched_words(&mut self, index: u32) -> Option<(u16, u32, u32)> {
        self.storage.lend().watched_words(index)
    }

    // ---- What a tripwire has to say ------------------------------------------

    /// Does it fire when it is touched?
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn is_armed(&mut self, id: TripwireId) -> Result<bool, Error> {
        Ok(self.named(id)?.is_armed(id.index))
    }

    /// Has it fired since it was cleared? Changes nothing.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn has_fired(&mut self, id: TripwireId) -> Result<bool, Error> {
        Ok(self.named(id)?.has_fired(id.index))
    }

    /// Forgets that it has fired, and says whether it had.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn clear(&mut self, id: TripwireId) -> Result<bool, Error> {
        let had = self.named(id)?.clear(id.index);
        if had {
            self.sets.cleared(&mut self.chains, id.index);
        }
        Ok(had)
    }

    /// At how many touched words it has fired since it was registered.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn count(&mut self, id: TripwireId) -> Result<u64, Error> {
        Ok(self.named(id)?.count(id.index))
    }

    /// The user has read the event of this tripwire, or it found no room: the next
    /// firing is told again.
    pub fn event_taken(&mut self, id: TripwireId) {
        if let Ok(mut tables) = self.named(id) {
            tables.event_taken(id.index);
        }
    }

    // ---- What firings leave behind -------------------------------------------

    /// The tripwire that fired longest ago of those whose names are queued.
    pub fn pop_identifier(&mut self) -> Option<TripwireId> {
        self.storage.lend().pop_name()
    }

    /// How many names found no room in the queue since this was last asked. The
    /// tripwires themselves remember that they fired.
    pub fn take_lost(&mut self) -> u64 {
        self.storage.lend().actions.take_lost()
    }

    /// A bit of the bitmap.
    #[must_use]
    pub fn bit(&mut self, number: u32) -> bool {
        let bits = self.storage.bits().get(number as usize / 64);
        bits.is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }

    /// Clears a bit of the bitmap, and says whether it was set.
    pub fn take_bit(&mut self, number: u32) -> bool {
        let was = self.bit(number);
        if let Some(bits) = self.storage.bits().get_mut(number as usize / 64) {
            *bits &= !(1 << (number % 64));
        }
        was
    }

    /// An event counter.
    #[must_use]
    pub fn counter(&self, number: u32) -> u64 {
        self.storage.counters().get(number as usize).copied().unwrap_or(0)
    }

    // ---- Tripsets ------------------------------------------------------------

    /// A new, empty tripset.
    ///
    /// # Errors
    /// There are as many as may be.
    pub fn new_set(&mut self) -> Result<TripsetId, Error> {
        self.sets.open()
    }

    /// Takes a tripset away; its tripwires stay.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn remove_set(&mut self, set: TripsetId) -> Result<(), Error> {
        self.sets.close(&mut self.chains, set)
    }

    /// Puts a tripwire into a tripset.
    ///
    /// # Errors
    /// One of them does not exist any more, or the tripwire is in a tripset.
    pub fn join_set(&mut self, set: TripsetId, id: TripwireId) -> Result<(), Error> {
        let has_fired = self.named(id)?.has_fired(id.index);
        self.sets.join(&mut self.chains, set, id.index, has_fired)
    }

    /// Takes a tripwire out of its tripset.
    ///
    /// # Errors
    /// It does not exist any more, or is in none.
    pub fn leave_set(&mut self, id: TripwireId) -> Result<(), Error> {
        self.named(id)?;
        self.sets.leave(&mut self.chains, id.index)
    }

    /// Has any tripwire of the set fired? Changes nothing.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn has_fired_set(&self, set: TripsetId) -> Result<bool, Error> {
        Ok(self.sets.first_fired(set)?.is_some())
    }

    /// Of the tripwires of a set that have fired, the one that has for longest;
    /// it is cleared.
    ///
    /// # Errors
    /// It does not exist any more.
    pub fn poll_set(&mut self, set: TripsetId) -> Result<Option<TripwireId>, Error> {
        // None of them has fired.
        let Some(index) = self.sets.first_fired(set)? else { return Ok(None) };
        let mut tables = self.storage.lend();
        tables.clear(index);
        let generation = tables.generation(index);
        self.sets.cleared(&mut self.chains, index);
        Ok(generation.map(|generation| TripwireId { index, generation }))
    }

    /// The tables, if this name means something.
    fn named(&mut self, id: TripwireId) -> Result<Tables<'_>, Error> {
        let tables = self.storage.lend();
        if tables.generation(id.index) == Some(id.generation) {
            Ok(tables)
        } else {
            Err(Error::Unknown)
        }
    }
}

/// Hands a firing on, beside what tripsets make of it.
#[inline]
fn hand_on(
    firing: crate::offload::Firing,
    chains: &mut Chains,
    sets: &mut Sets,
    sink: &mut impl FnMut(Firing),
) {
    if firing.is_first {
        sets.fired(chains, firing.index);
    }
    let tripwire = TripwireId { index: firing.index, generation: firing.generation };
    let crate::offload::Firing { word, words, tells, .. } = firing;
    sink(Firing { tripwire, word, words, tells });
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
