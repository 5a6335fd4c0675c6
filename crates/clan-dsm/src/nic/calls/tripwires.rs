//! Tripwires, tripsets, and what the event queue tells.

use core::ops::Range;

use crate::address::{ApertureId, TripsetId, TripwireId, WindowId};
use crate::cookie::Access;
use crate::error::Error;
use crate::events::Source;
use crate::nic::Nic;
use crate::offload::{Action, Place, Watch};

impl Nic {
    /// Sets a tripwire on bytes of an aperture that others touch. It fires when
    /// the bytes that were written are in place, or when those that were read
    /// have arrived at the reader. It is armed at once; `once` disarms it when it
    /// has fired.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::OutOfBounds`], [`Error::NoRoom`].
    pub fn watch(
        &mut self,
        aperture: ApertureId,
        bytes: Range<u64>,
        access: Access,
        action: Action,
        once: bool,
    ) -> Result<TripwireId, Error> {
        let len = self.memory.area(aperture).ok_or(Error::Unknown)?.len;
        self.set_tripwire(Place::Local(aperture.index as u16), len, bytes, access, action, once)
    }

    /// Sets a tripwire on bytes of a window that this host touches. It fires when
    /// a write is in place at the other side, whichever way it was made, and when all
    /// of a read has arrived here; an operation on a word is a write. It is
    /// on the memory, not on the window: it stays until it is removed.
    ///
    /// # Errors
    /// As [`watch`](Self::watch).
    pub fn watch_window(
        &mut self,
        window: WindowId,
        bytes: Range<u64>,
        access: Access,
        action: Action,
        once: bool,
    ) -> Result<TripwireId, Error> {
        let cookie = *self.windows.get(window)?.cookie();
        let place = Place::Remote(cookie.host(), cookie.slot());
        self.set_tripwire(place, cookie.len(), bytes, access, action, once)
    }

    fn set_tripwire(
        &mut self,
        place: Place,
        len: u64,
        bytes: Range<u64>,
        access: Access,
        action: Action,
        once: bool,
    ) -> Result<TripwireId, Error> {
        if bytes.is_empty() || bytes.end > len {
            return Err(Error::OutOfBounds);
        }
        let Range { start: from, end: to } = bytes;
        let tripwire = self.tripwires.watch(&Watch { place, from, to, access, action, once })?;
        if action == Action::Event {
            self.events.register(Source::Tripwire(tripwire));
        }
        self.wire_changed(tripwire);
        Ok(tripwire)
    }

    /// Arms a tripwire (again).
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn enable_tripwire(&mut self, tripwire: TripwireId) -> Result<(), Error> {
        self.tripwires.enable(tripwire)?;
        self.wire_changed(tripwire);
        Ok(())
    }

    /// Disarms a tripwire. That it has fired stays known.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn disable_tripwire(&mut self, tripwire: TripwireId) -> Result<(), Error> {
        self.tripwires.disable(tripwire)?;
        self.wire_changed(tripwire);
        Ok(())
    }

    /// Takes a tripwire away.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn remove_tripwire(&mut self, tripwire: TripwireId) -> Result<(), Error> {
        self.tripwires.remove(tripwire)?;
        self.events.unregister(Source::Tripwire(tripwire));
        self.wire_changed(tripwire);
        Ok(())
    }

    /// Is a tripwire armed?
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn is_armed(&mut self, tripwire: TripwireId) -> Result<bool, Error> {
        self.tripwires.is_armed(tripwire)
    }

    /// Has a tripwire fired since it was last cleared?
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn has_fired(&mut self, tripwire: TripwireId) -> Result<bool, Error> {
        self.tripwires.has_fired(tripwire)
    }

    /// The same, and clears it.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn take_fired(&mut self, tripwire: TripwireId) -> Result<bool, Error> {
        self.tripwires.clear(tripwire)
    }

    /// How often a tripwire fired: once for each word that was touched.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn firings(&mut self, tripwire: TripwireId) -> Result<u64, Error> {
        self.tripwires.count(tripwire)
    }

    /// The next name in the queue of [`Action::Identifier`].
    pub fn pop_identifier(&mut self) -> Option<TripwireId> {
        self.tripwires.pop_identifier()
    }

    /// How many names found no room there since this was last asked.
    pub fn take_lost_identifiers(&mut self) -> u64 {
        self.tripwires.take_lost()
    }

    /// Clears a bit that [`Action::Bit`] sets, and says whether it was set.
    pub fn take_bit(&mut self, number: u32) -> bool {
        self.tripwires.take_bit(number)
    }

    /// What [`Action::Count`] has counted.
    #[must_use]
    pub fn counter(&self, number: u32) -> u64 {
        self.tripwires.counter(number)
    }

    /// A tripset: several tripwires that are waited for together.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub fn new_tripset(&mut self) -> Result<TripsetId, Error> {
        self.tripwires.new_set()
    }

    /// Takes a tripset away; its tripwires stay.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn remove_tripset(&mut self, set: TripsetId) -> Result<(), Error> {
        self.tripwires.remove_set(set)
    }

    /// Puts a tripwire into a tripset.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Taken`].
    pub fn join_tripset(&mut self, set: TripsetId, tripwire: TripwireId) -> Result<(), Error> {
        self.tripwires.join_set(set, tripwire)
    }

    /// Takes a tripwire out of its tripset.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn leave_tripset(&mut self, tripwire: TripwireId) -> Result<(), Error> {
        self.tripwires.leave_set(tripwire)
    }

    /// Of the tripwires of a set that have fired, the one that has for longest;
    /// it is cleared.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn poll_tripset(&mut self, set: TripsetId) -> Result<Option<TripwireId>, Error> {
        self.tripwires.poll_set(set)
    }

    /// From now on events of this source are told. Those of new endpoints, and of
    /// new tripwires with [`Action::Event`], are from the start.
    pub fn register(&mut self, source: Source) {
        self.events.register(source);
    }

    /// Events of this source are not told any more, nor are those that wait.
    pub fn unregister(&mut self, source: Source) {
        self.events.unregister(source);
    }

    /// Do events wait?
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// How many events wait.
    #[must_use]
    pub fn events_waiting(&self) -> usize {
        self.events.len()
    }
}
