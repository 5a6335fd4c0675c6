//! Memory of this host that others may touch, and the keys to it.
//!
//! What lives here: which aperture is in which slot, what keys were given out
//! for it, and which groups its memory belongs to. The check of headers against
//! these tables is in [`crate::offload`]; tripwires are in [`crate::tripwire`].

use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;

use landfall_placement::{Area, Random, Refusal};
use siphasher::sip::SipHasher24;

use crate::address::{Address, HostId, Key, WORD};
use crate::config::Config;
use crate::cookie::{Cookie, Rights};
use crate::error::Error;
use crate::ids::ApertureId;
use crate::offload::{Aperture, Apertures, Cell, Group, Map, Secret, Spot, group_key};

/// The longest aperture: words are counted by 32 bits.
pub(crate) const LONGEST: u64 = (u32::MAX as u64 + 1) * WORD as u64;

/// The apertures of one host.
#[derive(Debug)]
pub(crate) struct Memory {
    host: HostId,
    keys: Keys,
    slots: Vec<Aperture>,
    /// How often each slot was revoked.
    generations: Vec<u32>,
    free: Vec<u16>,
    most: usize,
    groups: Vec<Cell<Group>>,
    groups_used: u32,
    most_groups: usize,
    secret: Secret,
}

impl Memory {
    /// No apertures yet. Keys and the order of tables come from `random`.
    pub(crate) fn new(host: HostId, config: &Config, random: &mut Random) -> Self {
        let most_groups = config.groups.min(1 << 16);
        Self {
            host,
            keys: Keys::new(random),
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            most: config.apertures.clamp(1, usize::from(u16::MAX)),
            groups: vec![Cell::default(); (most_groups * 2).next_power_of_two()],
            groups_used: 0,
            most_groups,
            secret: Secret::new(random),
        }
    }

    /// Makes an aperture of this memory. Nobody may touch it before a cookie was
    /// given out.
    pub(crate) fn expose(&mut self, memory: Area) -> Result<ApertureId, Error> {
        if !memory.is_valid() || memory.len > LONGEST {
            return Err(Error::BadMemory);
        }
        if !memory.offset.is_multiple_of(u64::from(WORD)) {
            return Err(Error::Unaligned);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.most => {
                self.slots.push(Aperture::default());
                self.generations.push(0);
                (self.slots.len() - 1) as u16
            }
            None => return Err(Error::NoRoom),
        };
        self.slots[usize::from(slot)] = Aperture { memory, ..Aperture::default() };
        Ok(self.name(slot))
    }

    /// A cookie for the aperture: whoever has it may do what the rights say. Each
    /// call with the same rights gives the same one.
    pub(crate) fn cookie(&mut self, id: ApertureId, rights: Rights) -> Result<Cookie, Error> {
        let slot = self.slot_of(id)?;
        let key = self.keys.of_aperture(slot, id.generation, rights);
        let aperture = &mut self.slots[usize::from(slot)];
        aperture.issued |= 1 << rights as u8;
        for (other, place) in Rights::ALL.into_iter().zip(&mut aperture.keys) {
            if other == rights {
                *place = key;
            }
        }
        Ok(Cookie::new(self.host, slot, rights, key, aperture.memory.len))
    }

    /// Ends all rights to the aperture: from now on its cookies, copies of them
    /// and headers under way are keys to nothing. Gives back the memory.
    pub(crate) fn revoke(&mut self, id: ApertureId) -> Result<Area, Error> {
        let slot = self.slot_of(id)?;
        let aperture = core::mem::take(&mut self.slots[usize::from(slot)]);
        self.leave_all(slot);
        let generation = &mut self.generations[usize::from(slot)];
        *generation = generation.wrapping_add(1);
        // Where generations would come again, so would keys: such a slot has
        // seen its last aperture.
        if *generation != u32::MAX {
            self.free.push(slot);
        }
        Ok(aperture.memory)
    }

    /// What is in a slot now, and how often that was revoked before.
    pub(crate) fn entry(&self, slot: u16) -> (u32, Aperture) {
        let at = usize::from(slot);
        let generation = self.generations.get(at).copied().unwrap_or(0);
        (generation, self.slots.get(at).copied().unwrap_or_default())
    }

    /// The memory of an aperture.
    pub(crate) fn area(&self, id: ApertureId) -> Option<Area> {
        self.slot_of(id).ok().map(|slot| self.slots[usize::from(slot)].memory)
    }

    /// The slots that hold an aperture now.
    pub(crate) fn slots_in_use(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.slots.len()).map(|slot| slot as u16).filter(|slot| self.id_of(*slot).is_some())
    }

    /// The aperture that is in this slot now.
    pub(crate) fn id_of(&self, slot: u16) -> Option<ApertureId> {
        let aperture = self.slots.get(usize::from(slot))?;
        (aperture.memory.len > 0).then(|| self.name(slot))
    }

    fn name(&self, slot: u16) -> ApertureId {
        ApertureId::new((u32::from(slot), self.generations[usize::from(slot)]))
    }

    fn slot_of(&self, id: ApertureId) -> Result<u16, Error> {
        let slot = u16::try_from(id.index).map_err(|_| Error::Unknown)?;
        if self.id_of(slot) == Some(id) { Ok(slot) } else { Err(Error::Unknown) }
    }

    // ---- Groups --------------------------------------------------------------

    /// A cookie for memory that all members of a group will have. It is made once,
    /// by whoever founds the group, and passed on to members and to publishers.
    pub(crate) fn group_cookie(
        &mut self,
        group: HostId,
        slot: u16,
        len: u64,
    ) -> Result<Cookie, Error> {
        if len == 0 || len > LONGEST {
            return Err(Error::BadMemory);
        }
        Ok(Cookie::new(group, slot, Rights::Write, self.keys.of_group(), len))
    }

    /// From now on, what is sent to the group (by this host, or by any) comes to
    /// lie in this aperture.
    pub(crate) fn join(
        &mut self,
        cookie: &Cookie,
        id: ApertureId,
        sender: Option<HostId>,
    ) -> Result<(), Error> {
        let slot = self.slot_of(id)?;
        if cookie.rights() != Rights::Write {
            return Err(Error::Forbidden);
        }
        if cookie.len() > self.slots[usize::from(slot)].memory.len {
            return Err(Error::OutOfBounds);
        }
        let name = group_key(cookie.host().number(), cookie.slot());
        if self.group(name).is_some() {
            return Err(Error::Taken);
        }
        if self.groups_used as usize >= self.most_groups {
            return Err(Error::NoRoom);
        }
        let joined = Group { key: cookie.key(), slot, len: cookie.len(), sender };
        let mut groups = self.groups_mut();
        *groups.entry(name).ok_or(Error::NoRoom)? = joined;
        Ok(())
    }

    /// Nothing more is accepted for the group.
    pub(crate) fn leave(&mut self, cookie: &Cookie) -> Result<(), Error> {
        let name = group_key(cookie.host().number(), cookie.slot());
        match self.group(name) {
            Some(group) if group.key == cookie.key() => {
                self.groups_mut().remove(name);
                Ok(())
            }
            _ => Err(Error::Unknown),
        }
    }

    /// May this host write to a group whose key it has?
    pub(crate) fn takes_from(&self, address: &Address, from: Option<HostId>) -> bool {
        let name = group_key(address.host.number(), address.slot);
        let group = self.apertures().group(name);
        group.is_none_or(|group| group.sender.is_none() || group.sender == from)
    }

    /// No group lies in a slot that is free.
    fn leave_all(&mut self, slot: u16) {
        let entries = self.groups.iter().filter_map(|cell| cell.entry());
        let gone: Vec<u64> =
            entries.filter(|(_, group)| group.slot == slot).map(|(name, _)| name).collect();
        for name in gone {
            self.groups_mut().remove(name);
        }
    }

    fn group(&mut self, name: u64) -> Option<Group> {
        self.groups_mut().get_mut(name).copied()
    }

    fn groups_mut(&mut self) -> Map<'_, Group> {
        Map::new(&mut self.groups, &mut self.groups_used, self.secret)
    }

    // ---- Headers -------------------------------------------------------------

    /// The tables, for the seam.
    #[inline]
    pub(crate) fn apertures(&self) -> Apertures<'_> {
        Apertures::new(&self.slots, &self.groups, self.secret)
    }

    /// [`Apertures::check`].
    #[inline]
    pub(crate) fn check(
        &self,
        address: &Address,
        words: u32,
        needed: Rights,
    ) -> Result<Spot, Refusal> {
        self.apertures().check(address, words, needed)
    }

    /// [`Apertures::check_bytes`].
    #[inline]
    pub(crate) fn check_bytes(
        &self,
        address: &Address,
        from: u32,
        len: u32,
        needed: Rights,
    ) -> Result<Spot, Refusal> {
        self.apertures().check_bytes(address, from, len, needed)
    }
}

#[cfg(test)]
mod tests;

/// Makes keys. They follow from a secret, so none is ever stored twice or drawn
/// anew for the same cookie; whoever has some can make no others.
pub(super) struct Keys {
    secret: [u64; 2],
    /// Groups were founded so often.
    founded: u64,
}

impl Keys {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { secret: [random.next_u64(), random.next_u64()], founded: 0 }
    }

    /// The key of one life of one aperture for one kind of right: another life or
    /// other rights have another key.
    pub(super) fn of_aperture(&self, slot: u16, generation: u32, rights: Rights) -> Key {
        let what = u64::from(slot) << 40 | u64::from(generation) << 8 | u64::from(rights as u8);
        self.of(0, what)
    }

    /// A key that no group had before.
    pub(super) fn of_group(&mut self) -> Key {
        self.founded += 1;
        self.of(1, self.founded)
    }

    fn of(&self, purpose: u64, what: u64) -> Key {
        let mut hasher = SipHasher24::new_with_keys(self.secret[0], self.secret[1]);
        hasher.write_u64(purpose);
        hasher.write_u64(what);
        Key::from_bits(hasher.finish())
    }
}

/// The secret is not shown.
impl core::fmt::Debug for Keys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keys").field("founded", &self.founded).finish_non_exhaustive()
    }
}
