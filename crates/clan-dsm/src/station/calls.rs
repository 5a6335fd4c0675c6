//! What the user asks for.

use core::ops::Range;

use landfall_placement::{Area, Instant, Span};

use super::{Leaving, Station};
use crate::access::{Access, Rights};
use crate::address::{Address, HostId, Key, Kind, WHOLE, WORD};
use crate::cookie::Cookie;
use crate::error::Error;
use crate::ids::{ApertureId, ReadId, TripwireId, WriteId};
use crate::native::State;
use crate::offload::{Action, group_key};
use crate::transfer::reads::Reader;
use crate::tripwire::{Place, Watch};
use crate::wire::{Command, ReplyTo};

impl Station {
    // ---- Memory of this host -------------------------------------------------

    /// Makes an aperture of this memory. Nobody may touch it before a cookie was given out.
    ///
    /// # Errors
    /// It is empty, too long, does not begin at a word, or there are as many as may be.
    pub fn expose(&mut self, memory: Area) -> Result<ApertureId, Error> {
        // Its end has to be told one day.
        if !self.news.has_room() {
            return Err(Error::Busy);
        }
        let id = self.memory.expose(memory)?;
        self.slot_changed(id);
        Ok(id)
    }

    /// A cookie for an aperture: whoever has it may do what the rights say.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn cookie(&mut self, id: ApertureId, rights: Rights) -> Result<Cookie, Error> {
        let cookie = self.memory.cookie(id, rights)?;
        self.slot_changed(id);
        Ok(cookie)
    }

    /// Ends all rights to an aperture. Its memory is free when
    /// [`Released`](super::Event::Released) says so.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn revoke(&mut self, now: Instant, id: ApertureId) -> Result<(), Error> {
        self.memory.revoke(id)?;
        let slot = id.index as u16;
        self.forget_wires(Place::Local(slot));
        self.slot_changed(id);
        let fence = self.mirror.as_mut().map(|mirror| {
            mirror.groups_changed();
            mirror.fence()
        });
        let placement = self.arriving.next();
        self.leaving.push_back(Leaving { aperture: id, placement, fence });
        self.settle(now);
        Ok(())
    }

    /// A cookie for memory that all members of a group will have.
    ///
    /// # Errors
    /// The length is none that an aperture can have.
    pub fn group_cookie(&mut self, group: HostId, slot: u16, len: u64) -> Result<Cookie, Error> {
        self.memory.group_cookie(group, slot, len)
    }

    /// What is sent to the group comes to lie in this aperture.
    ///
    /// # Errors
    /// The aperture does not exist or is too short, it was joined already, or there are
    /// as many as may be.
    pub fn join(&mut self, cookie: &Cookie, id: ApertureId) -> Result<(), Error> {
        self.memory.join(cookie, id, None)?;
        self.group_changed(cookie);
        Ok(())
    }

    /// Nothing more is accepted for the group.
    ///
    /// # Errors
    /// It was not joined.
    pub fn leave(&mut self, cookie: &Cookie) -> Result<(), Error> {
        self.memory.leave(cookie)?;
        self.group_changed(cookie);
        Ok(())
    }

    fn slot_changed(&mut self, id: ApertureId) {
        if let Some(mirror) = &mut self.mirror {
            mirror.slot_changed(id.index as u16);
        }
    }

    fn group_changed(&mut self, cookie: &Cookie) {
        if let Some(mirror) = &mut self.mirror {
            mirror.group_changed(group_key(cookie.host().number(), cookie.slot()));
        }
    }

    // ---- Tripwires -----------------------------------------------------------

    /// Registers a tripwire for bytes of an aperture, and arms it.
    ///
    /// # Errors
    /// There is no such memory, or no room.
    pub fn watch(
        &mut self,
        id: ApertureId,
        bytes: Range<u64>,
        access: Access,
        action: Action,
        once: bool,
    ) -> Result<TripwireId, Error> {
        let memory = self.memory.area(id).ok_or(Error::Unknown)?;
        if bytes.is_empty() || bytes.end > memory.len {
            return Err(Error::OutOfBounds);
        }
        let place = Place::Local(id.index as u16);
        let Range { start: from, end: to } = bytes;
        let tripwire = self.tripwires.watch(&Watch { place, from, to, access, action, once })?;
        self.wire_changed(tripwire);
        Ok(tripwire)
    }

    /// Arms a tripwire: of those that are armed it is now the last.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn enable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.tripwires.enable(id)?;
        self.wire_changed(id);
        Ok(())
    }

    /// Disarms a tripwire.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn disable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.tripwires.disable(id)?;
        self.wire_changed(id);
        Ok(())
    }

    /// Takes a tripwire out.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn unwatch(&mut self, id: TripwireId) -> Result<(), Error> {
        self.tripwires.remove(id)?;
        self.wire_changed(id);
        Ok(())
    }

    /// Has a tripwire fired since this was last asked?
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn take_fired(&mut self, id: TripwireId) -> Result<bool, Error> {
        self.tripwires.clear(id)
    }

    /// At how many words that were touched a tripwire has fired.
    ///
    /// # Errors
    /// It does not exist (any more).
    pub fn count(&mut self, id: TripwireId) -> Result<u64, Error> {
        self.tripwires.count(id)
    }

    /// The tripwire that fired longest ago of those whose names are queued.
    pub fn pop_identifier(&mut self) -> Option<TripwireId> {
        self.tripwires.pop_identifier()
    }

    fn wire_changed(&mut self, id: TripwireId) {
        if let Some(mirror) = &mut self.mirror {
            mirror.wire_changed(id.index);
        }
    }

    /// Takes out all tripwires of memory that is gone.
    fn forget_wires(&mut self, place: Place) {
        let Self { tripwires, mirror, .. } = self;
        tripwires.forget_all(place, &mut |id| {
            if let Some(mirror) = mirror {
                mirror.wire_changed(id.index);
            }
        });
    }

    // ---- Memory of others ----------------------------------------------------

    /// Writes bytes, which are copied at once: programmed I/O.
    ///
    /// # Errors
    /// The link is not up, the cookie does not allow it, or as much waits as may: then
    /// nothing is written.
    pub fn write(
        &mut self,
        now: Instant,
        cookie: &Cookie,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.write_as(now, Kind::Burst, cookie, offset, bytes)
    }

    fn write_as(
        &mut self,
        now: Instant,
        kind: Kind,
        cookie: &Cookie,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let len = u32::try_from(bytes.len()).map_err(|_| Error::TooLong)?;
        let base = Address { kind, ..self.target(cookie, offset, len, Rights::Write)? };
        self.outgoing.copy(base, offset, bytes)?;
        self.settle(now);
        Ok(())
    }

    /// Writes from memory, by DMA: whole words. [`Written`](super::Event::Written) says
    /// when it has left.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_from(
        &mut self,
        now: Instant,
        cookie: &Cookie,
        offset: u64,
        from: Span,
    ) -> Result<WriteId, Error> {
        let base = self.target(cookie, offset, from.len, Rights::Write)?;
        whole_words(base, offset, from.len)?;
        let write = self.outgoing.write(base, offset, from)?;
        self.settle(now);
        Ok(write)
    }

    /// Reads into memory: whole words. [`Read`](super::Event::Read) says when they are there.
    ///
    /// # Errors
    /// As for [`write`](Self::write); or the other end is a switch, behind which nobody
    /// would know where to answer to.
    pub fn read(
        &mut self,
        now: Instant,
        cookie: &Cookie,
        offset: u64,
        into: Span,
    ) -> Result<ReadId, Error> {
        let base = self.target(cookie, offset, into.len, Rights::Read)?;
        let from = whole_words(base, offset, into.len)?;
        if self.link.peer().flatten() != Some(cookie.host()) {
            return Err(Error::NoLink);
        }
        let nonce = Key::from_bits(self.random.next_u64());
        let read = self.reads.begin(0, Reader::User, into.into(), nonce).ok_or(Error::Busy)?;
        let reply = ReplyTo { slot: read.index as u16, nonce };
        let command = Command::Read { from, len: into.len, reply };
        if let Err(error) = self.outgoing.ask(&command, cookie.host()) {
            self.reads.forget(read);
            return Err(error);
        }
        self.settle(now);
        Ok(read)
    }

    /// Writes to all members of a group, as [`write`](Self::write) does to one host.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn publish(
        &mut self,
        now: Instant,
        group: &Cookie,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.write_as(now, Kind::Multicast, group, offset, bytes)
    }

    /// Whether the other end is to stop, whatever its credit (Xoff), or may go on (Xon).
    pub fn hold(&mut self, hold: bool) {
        self.link.hold(hold);
    }

    /// The address of the first word behind a cookie, if so much may be done there now.
    fn target(
        &self,
        cookie: &Cookie,
        offset: u64,
        len: u32,
        needed: Rights,
    ) -> Result<Address, Error> {
        if self.link.state() != State::Up {
            return Err(Error::NoLink);
        }
        if !cookie.rights().allow(needed) {
            return Err(Error::Forbidden);
        }
        let end = offset.checked_add(u64::from(len)).ok_or(Error::OutOfBounds)?;
        if len == 0 || end > cookie.len() {
            return Err(Error::OutOfBounds);
        }
        if !self.news.has_room() {
            return Err(Error::Busy);
        }
        Ok(cookie.address(0))
    }
}

/// The address of whole words.
fn whole_words(base: Address, offset: u64, len: u32) -> Result<Address, Error> {
    let word = u64::from(WORD);
    if !offset.is_multiple_of(word) || !len.is_multiple_of(WORD) {
        return Err(Error::Unaligned);
    }
    let number = u32::try_from(offset / word).map_err(|_| Error::OutOfBounds)?;
    let address = base.advanced(number).ok_or(Error::OutOfBounds)?;
    Ok(Address { mask: WHOLE, ..address })
}
