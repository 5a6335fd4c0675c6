//! Memory of this host that others may touch, and the keys to it.
//!
//! What lives here: which aperture is in which slot, what keys were given out
//! for it, and which groups its memory belongs to. The check of headers against
//! these tables is in [`crate::offload`]; tripwires are in [`crate::tripwire`].

mod beside;

use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;

use landfall_placement::{Area, Random, Refusal};
use siphasher::sip::SipHasher24;

use crate::address::{Address, ApertureId, HostId, Key, WORD};
use crate::config::Config;
use crate::cookie::{Cookie, Rights};
use crate::error::Error;
use crate::grants::Grants;
use crate::offload::{Aperture, Apertures, Cell, Destination, Group, Map, Secret, group_key};

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
    /// Keys for one peer alone.
    grants: Grants,
    groups: Vec<Cell<Group>>,
    groups_used: u32,
    most_groups: usize,
    secret: Secret,
}

impl Memory {
    /// No apertures yet. Keys and the order of tables come from `random`.
    pub(crate) fn new(host: HostId, config: &Config, random: &mut Random) -> Self {
        let most_groups = config.groups;
        Self {
            host,
            keys: Keys::new(random),
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            most: config.apertures,
            grants: Grants::new(config.grants),
            groups: vec![Cell::default(); (most_groups * 2).next_power_of_two()],
            groups_used: 0,
            most_groups,
            secret: Secret::new(random),
        }
    }

    /// Makes an aperture of this memory. Nobody may touch it before a cookie was
    /// given out.
    pub(crate) fn expose(&mut self, memory: Area) -> Result<ApertureId, Error> {
        check_area(memory)?;
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

    /// A cookie for the aperture: anyone who has it may do what the rights say. Each
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

    /// A cookie for the aperture that is good over the links of this host alone: over any other it
    /// is a key to nothing. Each call with the same rights gives the same one, until the host's
    /// are revoked; then another.
    pub(crate) fn cookie_for(
        &mut self,
        id: ApertureId,
        rights: Rights,
        host: HostId,
    ) -> Result<Cookie, Error> {
        let slot = self.slot_of(id)?;
        let Self { grants, keys, .. } = self;
        let key = grants.key(slot, host, rights, || keys.of_peer())?;
        let len = self.slots[usize::from(slot)].memory.len;
        Ok(Cookie::new(self.host, slot, rights, key, len))
    }

    /// Ends the rights that this host alone was given. Those of others stay.
    pub(crate) fn revoke_from(&mut self, id: ApertureId, host: HostId) -> Result<(), Error> {
        let slot = self.slot_of(id)?;
        self.grants.revoke_from(slot, host);
        Ok(())
    }

    /// Ends all rights to the aperture: from now on its cookies, copies of them
    /// and headers under way are keys to nothing. Returns back the memory.
    pub(crate) fn revoke(&mut self, id: ApertureId) -> Result<Area, Error> {
        let slot = self.slot_of(id)?;
        let aperture = core::mem::take(&mut self.slots[usize::from(slot)]);
        self.leave_all(slot);
        self.grants.revoke(slot);
        let generation = &mut self.generations[usize::from(slot)];
        *generation = generation.wrapping_add(1);
        // Where generations would come again, so would keys: such a slot has
        // seen its last aperture.
        if *generation != u32::MAX {
            self.free.push(slot);
        }
        Ok(aperture.memory)
    }

    /// What is in a slot now, as an adapter is told, and how often that was revoked before.
    pub(crate) fn entry(&self, slot: u16) -> (u32, Aperture) {
        let at = usize::from(slot);
        let generation = self.generations.get(at).copied().unwrap_or(0);
        let aperture = self.slots.get(at).copied().unwrap_or_default();
        match self.grants.has_any(slot) {
            true => (generation, aperture.with_host_keys()),
            false => (generation, aperture),
        }
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
        ApertureId::new(u32::from(slot), self.generations[usize::from(slot)])
    }

    fn slot_of(&self, id: ApertureId) -> Result<u16, Error> {
        let slot = u16::try_from(id.index).map_err(|_| Error::Unknown)?;
        if self.id_of(slot) == Some(id) { Ok(slot) } else { Err(Error::Unknown) }
    }

    // ---- Groups --------------------------------------------------------------

    /// A cookie for memory that all members of a group will have. It is made once,
    /// by anyone who founds the group, and passed on to members and to publishers.
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

    /// Is there no key for one peer alone?
    #[cfg(test)]
    pub(crate) fn grants_are_none(&self) -> bool {
        self.grants.is_empty()
    }

    // ---- Headers -------------------------------------------------------------

    /// The tables, for the seam.
    #[inline]
    pub(crate) fn apertures(&self) -> Apertures<'_> {
        Apertures::new(&self.slots, &self.groups, self.secret)
    }

    /// The same for what came over a link of this host, with the keys that it alone has.
    #[inline]
    pub(crate) fn apertures_for(&self, host: Option<HostId>) -> Apertures<'_> {
        self.apertures().with_granted(self.grants.of(host))
    }

    /// [`Apertures::check`] of what came over a link of this host.
    #[inline]
    pub(crate) fn check(
        &self,
        host: Option<HostId>,
        address: &Address,
        words: u32,
        needed: Rights,
    ) -> Result<Destination, Refusal> {
        self.apertures_for(host).check(address, words, needed)
    }
}

/// Can an aperture be made of it?
fn check_area(memory: Area) -> Result<(), Error> {
    if !memory.is_valid() || memory.len > LONGEST {
        return Err(Error::BadMemory);
    }
    if !memory.offset.is_multiple_of(u64::from(WORD)) {
        return Err(Error::Unaligned);
    }
    Ok(())
}

/// Makes keys. They follow from a secret, so none is ever stored twice or drawn
/// anew for the same cookie; anyone who has some can make no others.
pub(super) struct Keys {
    secret: [u64; 2],
    /// Groups were founded so often.
    founded: u64,
    /// This many keys were made for one peer alone.
    granted: u64,
}

impl Keys {
    pub(super) fn new(random: &mut Random) -> Self {
        let secret = [random.next_u64(), random.next_u64()];
        Self { secret, founded: 0, granted: 0 }
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

    /// A key that no peer had before.
    pub(super) fn of_peer(&mut self) -> Key {
        self.granted += 1;
        self.of(2, self.granted)
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

#[cfg(test)]
mod tests {
    //! Keys open what they were made for, for as long as it exists, and nothing else.

    use std::vec::Vec;

    use landfall_placement::{Area, Random, Refusal, RegionId};
    use proptest::prelude::*;

    use super::{LONGEST, Memory};
    use crate::address::{Address, HostId, Key, Kind, WHOLE};
    use crate::config::Config;
    use crate::cookie::Cookie;
    use crate::cookie::Rights;
    use crate::error::Error;

    fn memory(apertures: usize) -> Memory {
        let config = Config { apertures, groups: 2, ..Config::default() };
        Memory::new(HostId::new(5).unwrap(), &config, &mut Random::from_number(7))
    }

    fn area(len: u64) -> Area {
        Area::new(RegionId::new(3, 1), 64, len)
    }

    #[test]
    fn a_cookie_opens_its_aperture_and_says_what_for() {
        let mut memory = memory(4);
        let id = memory.expose(area(100)).unwrap();
        for given in Rights::ALL {
            let cookie = memory.cookie(id, given).unwrap();
            assert_eq!((cookie.host().number(), cookie.len()), (5, 100));
            for needed in Rights::ALL {
                let checked = memory.check(None, &cookie.address(2), 3, needed);
                if given.allow(needed) {
                    let spot = checked.unwrap();
                    assert_eq!((spot.slot, spot.at), (cookie.slot(), 16));
                    assert_eq!(spot.span, area(100).span(16, 24));
                } else {
                    assert_eq!(checked, Err(Refusal::Forbidden));
                }
            }
            let bare = Address { key: Key::default(), ..cookie.address(2) };
            assert_eq!(memory.check(None, &bare, 1, Rights::Read), Err(Refusal::WrongKey));
        }
    }

    #[test]
    fn rights_that_nobody_was_given_have_no_key() {
        let (mut memory, mut other) = (memory(4), memory(4));
        let id = memory.expose(area(64)).unwrap();
        let same = other.expose(area(64)).unwrap();
        // The other adapter has the same secret: this is what would be the key.
        let would_be = other.cookie(same, Rights::Write).unwrap();
        assert_eq!(
            memory.check(None, &would_be.address(0), 1, Rights::Write),
            Err(Refusal::WrongKey)
        );
        assert_eq!(memory.cookie(id, Rights::Write), Ok(would_be));
        assert!(memory.check(None, &would_be.address(0), 1, Rights::Write).is_ok());
    }

    /// Each bit of a key counts, and a slot without an aperture looks like any wrong key.
    #[test]
    fn a_forged_key_opens_nothing_and_tells_nothing() {
        let mut memory = memory(4);
        let id = memory.expose(area(64)).unwrap();
        let cookie = memory.cookie(id, Rights::ReadWrite).unwrap();
        for bit in 0..56 {
            let key = Key::from_bits(cookie.key().bits() ^ 1 << bit);
            let forged = Address { key, ..cookie.address(0) };
            assert_eq!(
                memory.check(None, &forged, 1, Rights::Read),
                Err(Refusal::WrongKey),
                "bit {bit}"
            );
        }
        for slot in (0..=u16::MAX).filter(|slot| *slot != cookie.slot()) {
            let elsewhere = Address { slot, ..cookie.address(0) };
            assert_eq!(memory.check(None, &elsewhere, 1, Rights::Read), Err(Refusal::WrongKey));
        }
    }

    #[test]
    fn bounds_hold_at_every_edge() {
        for len in (1..=24).chain([LONGEST - 9, LONGEST - 8, LONGEST - 1, LONGEST]) {
            let mut memory = memory(1);
            let id = memory.expose(area(len)).unwrap();
            let cookie = memory.cookie(id, Rights::Write).unwrap();
            let last = (len / 8).min(u64::from(u32::MAX)) as u32;
            for word in [0, 1, last.saturating_sub(1), last, u32::MAX - 1, u32::MAX] {
                for words in [0, 1, 2, 3, last, u32::MAX / 8, u32::MAX / 8 + 1, u32::MAX] {
                    let end = (u64::from(word) + u64::from(words)) * 8;
                    let fits = words > 0 && end <= len && words <= u32::MAX / 8;
                    let checked = memory.check(None, &cookie.address(word), words, Rights::Write);
                    assert_eq!(checked.is_ok(), fits, "{words} words at {word} of {len} bytes");
                }
                for (from, count) in (0..8).flat_map(|from| (1..=8 - from).map(move |n| (from, n)))
                {
                    let mask = Address::mask_of(from, count).unwrap();
                    let address = Address { mask, ..cookie.address(word) };
                    let end = u64::from(word) * 8 + u64::from(from + count);
                    let checked = memory.check(None, &address, 1, Rights::Write);
                    assert_eq!(checked.is_ok(), end <= len);
                    if let Ok(spot) = checked {
                        assert_eq!(spot.at + u64::from(spot.span.len), end);
                        assert_eq!(spot.span.len, count);
                    }
                    let two = memory.check(None, &address, 2, Rights::Write);
                    assert!(mask == WHOLE || two == Err(Refusal::Malformed));
                }
            }
        }
    }

    #[test]
    fn memory_that_cannot_be_an_aperture_is_refused() {
        let mut memory = memory(1);
        let region = RegionId::new(0, 0);
        assert_eq!(memory.expose(Area::new(region, 0, 0)), Err(Error::BadMemory));
        assert_eq!(memory.expose(Area::new(region, u64::MAX - 7, 16)), Err(Error::BadMemory));
        assert_eq!(memory.expose(Area::new(region, 0, LONGEST + 1)), Err(Error::BadMemory));
        assert_eq!(memory.expose(Area::new(region, 4, 16)), Err(Error::Unaligned));
        memory.expose(area(1)).unwrap();
        assert_eq!(memory.expose(area(1)), Err(Error::NoRoom));
    }

    #[test]
    fn a_group_reaches_every_member_that_joined() {
        let (mut founder, mut member) = (memory(4), memory(4));
        let group = HostId::new(9).unwrap();
        let cookie = founder.group_cookie(group, 3, 64).unwrap();
        assert_ne!(cookie.key(), founder.group_cookie(group, 3, 64).unwrap().key());
        assert_eq!(founder.group_cookie(group, 3, 0), Err(Error::BadMemory));
        let published = |word| Address { kind: Kind::Multicast, ..cookie.address(word) };

        let (small, large) = (member.expose(area(63)).unwrap(), member.expose(area(640)).unwrap());
        assert_eq!(member.check(None, &published(0), 1, Rights::Write), Err(Refusal::UnknownId));
        assert_eq!(member.join(&cookie, small, None), Err(Error::OutOfBounds));
        member.join(&cookie, large, None).unwrap();
        assert_eq!(member.join(&cookie, large, None), Err(Error::Taken));
        let spot = member.check(None, &published(7), 1, Rights::Write).unwrap();
        assert_eq!((spot.slot, spot.at), (1, 56));
        assert_eq!(
            member.check(None, &published(7), 2, Rights::Write),
            Err(Refusal::OutOfBounds),
            "the group's"
        );
        assert_eq!(member.check(None, &published(0), 1, Rights::Read), Err(Refusal::Forbidden));
        let forged = Address { key: Key::from_bits(1), ..published(0) };
        assert_eq!(member.check(None, &forged, 1, Rights::Write), Err(Refusal::WrongKey));
        // A group's cookie is not a key to the aperture itself.
        assert_eq!(
            member.check(None, &cookie.address(0), 1, Rights::Write),
            Err(Refusal::WrongKey)
        );

        let second = founder.group_cookie(group, 4, 8).unwrap();
        let third = founder.group_cookie(group, 5, 8).unwrap();
        member.join(&second, small, None).unwrap();
        assert_eq!(member.join(&third, small, None), Err(Error::NoRoom));
        member.revoke(small).unwrap();
        member.join(&third, large, None).unwrap();
        member.leave(&cookie).unwrap();
        assert_eq!(member.leave(&cookie), Err(Error::Unknown));
        assert_eq!(member.check(None, &published(7), 1, Rights::Write), Err(Refusal::UnknownId));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Expose(u64),
        Cookie(usize, Rights),
        Revoke(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1u64..100).prop_map(Step::Expose),
            (0usize..8, prop::sample::select(&Rights::ALL[..]))
                .prop_map(|(n, r)| Step::Cookie(n, r)),
            (0usize..8).prop_map(Step::Revoke),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        /// Invariant 7 (stale is harmless) and 3 (check, then accept).
        #[test]
        fn invariant_7_a_revoked_key_opens_nothing_ever_again(steps in steps()) {
            let mut memory = memory(3);
            let mut alive = Vec::new();
            let mut cookies: Vec<(Cookie, u64)> = Vec::new();
            let mut lives = 0;
            for step in steps {
                match step {
                    Step::Expose(len) => match memory.expose(area(len)) {
                        Ok(id) => {
                            lives += 1;
                            alive.push((id, lives));
                        }
                        Err(error) => prop_assert_eq!((error, alive.len()), (Error::NoRoom, 3)),
                    },
                    Step::Cookie(n, rights) if n < alive.len() => {
                        let cookie = memory.cookie(alive[n].0, rights).unwrap();
                        cookies.push((cookie, alive[n].1));
                    }
                    Step::Revoke(n) if n < alive.len() => {
                        let (id, _) = alive.remove(n);
                        prop_assert!(memory.revoke(id).is_ok());
                        prop_assert_eq!(memory.revoke(id), Err(Error::Unknown));
                        prop_assert_eq!(memory.cookie(id, Rights::Read), Err(Error::Unknown));
                    }
                    _ => {}
                }
                for (cookie, life) in &cookies {
                    let is_alive = alive.iter().any(|(_, other)| other == life);
                    let checked = memory.apertures().check_bytes(&cookie.address(0), 0, 1, cookie.rights());
                    prop_assert_eq!(checked.is_ok(), is_alive);
                    prop_assert!(is_alive || checked == Err(Refusal::WrongKey));
                }
            }
        }
    }
}
