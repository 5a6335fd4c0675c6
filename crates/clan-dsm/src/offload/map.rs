//! From keys to values at constant cost, in storage that somebody else owns.
//!
//! Open addressing with linear probing. Where a key lives depends on a secret:
//! anyone who chooses keys (the other side chooses which words it writes) cannot
//! choose them so that they crowd together. Eight keys that differ in the last
//! three bits alone are neighbours, so a burst of words finds what it needs in
//! one line of the cache.
//!
//! Is this header an address in memory of ours, and may its sender touch it?

use landfall_placement::{Area, Random, Refusal, Span};

use crate::address::{Address, HostId, Key, Kind, WHOLE, WORD};
use crate::cookie::Rights;
use crate::grants::Granted;

/// What the places of keys depend on, drawn from the engine's seed.
#[derive(Clone, Copy)]
pub struct Secret {
    add: u64,
    multiply: u64,
}

impl Secret {
    /// Draws a secret.
    #[must_use]
    pub fn new(random: &mut Random) -> Self {
        Self { add: random.next_u64(), multiply: random.next_u64() | 1 }
    }

    /// Where a key of a table of `mask + 1` cells is looked for first.
    #[inline]
    const fn home(self, key: u64, mask: usize) -> usize {
        // Both halves of the product, so that each bit of the key moves every
        // bit of the place.
        let wide = ((key >> 3) ^ self.add) as u128 * self.multiply as u128;
        let mixed = (wide >> 64) as u64 ^ wide as u64;
        (mixed << 3 | key & 7) as usize & mask
    }
}

/// The secret is not shown.
impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// Room for one key and its value. Key zero marks an empty cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell<V> {
    key: u64,
    value: V,
}

impl<V> Cell<V> {
    /// The key, if the cell holds one, and its value.
    pub(crate) fn entry(self) -> Option<(u64, V)> {
        (self.key != 0).then_some((self.key, self.value))
    }
}

/// The largest power of two of this many cells.
#[inline]
const fn usable(cells: usize) -> usize {
    // Almost always they are one: nobody wants cells that stay unused.
    match cells.checked_ilog2() {
        Some(log) => 1 << log,
        None => 0,
    }
}

/// A table to be looked into.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableView<'t, V> {
    cells: &'t [Cell<V>],
    secret: Secret,
}

impl<'t, V: Copy> TableView<'t, V> {
    /// The table in this storage. Cells beyond a power of two stay unused.
    #[inline]
    pub(super) fn new(cells: &'t [Cell<V>], secret: Secret) -> Self {
        Self { cells: cells.get(..usable(cells.len())).unwrap_or_default(), secret }
    }

    /// The value of a key.
    #[inline]
    pub(super) fn get(self, key: u64) -> Option<V> {
        let mask = self.cells.len().wrapping_sub(1);
        let home = self.secret.home(key, mask);
        let cell = self.cells.get(home)?;
        if cell.key == key {
            return Some(cell.value);
        }
        if cell.key == 0 { None } else { self.get_behind(home, key) }
    }

    /// The same for a key that is not where it is looked for first.
    #[inline(never)]
    fn get_behind(self, home: usize, key: u64) -> Option<V> {
        let mask = self.cells.len().wrapping_sub(1);
        // Bounded, even where a careless owner filled every cell.
        let places = (1..self.cells.len()).map(|step| (home + step) & mask);
        let found = places
            .filter_map(|place| self.cells.get(place))
            .find(|cell| cell.key == key || cell.key == 0)?;
        (found.key == key).then_some(found.value)
    }
}

/// A table to be changed: cells (a power of two of them), and how many are taken.
#[derive(Debug)]
pub struct Map<'t, V> {
    cells: &'t mut [Cell<V>],
    used: &'t mut u32,
    secret: Secret,
}

impl<'t, V: Copy + Default> Map<'t, V> {
    /// The table in this storage. Cells beyond a power of two stay unused.
    #[must_use]
    #[inline]
    pub fn new(cells: &'t mut [Cell<V>], used: &'t mut u32, secret: Secret) -> Self {
        let len = usable(cells.len());
        Self { cells: cells.get_mut(..len).unwrap_or_default(), used, secret }
    }

    #[inline]
    pub(super) const fn look(&self) -> TableView<'_, V> {
        TableView { cells: self.cells, secret: self.secret }
    }

    /// How many cells are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        *self.used as usize
    }

    /// Would this many keys more leave room to search quickly?
    #[inline]
    pub(super) fn has_room_for(&self, more: usize) -> bool {
        (self.used() + more) * 8 <= self.cells.len() * 7
    }

    #[inline]
    fn mask(&self) -> usize {
        self.cells.len().wrapping_sub(1)
    }

    /// Where the key is, or else where it would go.
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut place = self.secret.home(key, self.mask());
        for _ in 0..self.cells.len() {
            let found = self.cells.get(place)?.key;
            if found == key || found == 0 {
                return Some(place);
            }
            place = (place + 1) & self.mask();
        }
        None
    }

    /// The value of a key that is there, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let place = self.find(key)?;
        let cell = self.cells.get_mut(place)?;
        (cell.key == key).then_some(&mut cell.value)
    }

    /// The value of a key, entered with an empty one where it is not there.
    /// Nothing where the table is full.
    #[inline]
    pub(crate) fn entry(&mut self, key: u64) -> Option<&mut V> {
        let place = self.find(key)?;
        let cell = self.cells.get_mut(place)?;
        if cell.key == 0 {
            *cell = Cell { key, value: V::default() };
            *self.used += 1;
        }
        Some(&mut cell.value)
    }

    /// Takes a key out. Those behind it move up, so that no gap breaks a search.
    pub(crate) fn remove(&mut self, key: u64) {
        // It is not there.
        let Some(mut gap) = self.find(key).filter(|place| self.key_at(*place) == key) else {
            return;
        };
        *self.used = self.used.saturating_sub(1);
        let mask = self.mask();
        let mut place = gap;
        for _ in 1..self.cells.len() {
            place = (place + 1) & mask;
            let Some(cell) = self.cells.get(place).copied().filter(|cell| cell.key != 0) else {
                break;
            };
            let home = self.secret.home(cell.key, mask);
            // It may move up to the gap if its home is not behind the gap.
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.put(gap, cell);
                gap = place;
            }
        }
        self.put(gap, Cell::default());
    }

    fn key_at(&self, place: usize) -> u64 {
        self.cells.get(place).map_or(0, |cell| cell.key)
    }

    fn put(&mut self, place: usize, cell: Cell<V>) {
        if let Some(known) = self.cells.get_mut(place) {
            *known = cell;
        }
    }
}

/// One aperture, as an adapter knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aperture {
    /// The memory; empty where the slot is free.
    pub(crate) memory: Area,
    /// Bit `rights` is set where a cookie of these rights was given out, and [`HOST_KEYS`] where
    /// there are keys that only the host knows.
    pub(crate) issued: u8,
    /// The key of each of [`Rights::ALL`].
    pub(crate) keys: [Key; 3],
}

/// No rights have this bit.
const HOST_KEYS: u8 = 1;

impl Aperture {
    /// What an adapter is told: there are keys for one peer alone, with which the host writes.
    pub(crate) const fn with_host_keys(mut self) -> Self {
        self.issued |= HOST_KEYS;
        self
    }

    /// Are there keys to it that only the host knows? What comes with a key that is not known here
    /// may be written by the host, and later than what comes behind it.
    #[must_use]
    pub const fn has_host_keys(&self) -> bool {
        self.issued & HOST_KEYS != 0
    }
}

/// Memory that many hosts have, each its own, and that one burst writes in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// What every sender to the group has to know.
    pub(crate) key: Key,
    /// The aperture that the member has it in.
    pub(crate) slot: u16,
    /// How many bytes the group's memory has.
    pub(crate) len: u64,
    /// The only host that may write it, if there is one: which host sends is the
    /// link's to know, and the engine asks.
    pub(crate) sender: Option<HostId>,
}

/// Where what follows a header belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The aperture.
    pub slot: u16,
    /// Where in the aperture, in bytes.
    pub at: u64,
    /// The memory.
    pub span: Span,
}

/// The table of apertures, in storage that somebody else owns.
#[derive(Clone, Copy, Debug)]
pub struct Apertures<'t> {
    slots: &'t [Aperture],
    groups: TableView<'t, Group>,
    /// Keys of the peer that is asked about, and of nobody else. An adapter has none.
    granted: Granted<'t>,
}

impl<'t> Apertures<'t> {
    /// The table in this storage.
    #[must_use]
    #[inline]
    pub fn new(slots: &'t [Aperture], groups: &'t [Cell<Group>], secret: Secret) -> Self {
        Self::among(slots, TableView::new(groups, secret))
    }

    /// The same where the groups are a table already.
    pub(super) const fn among(slots: &'t [Aperture], groups: TableView<'t, Group>) -> Self {
        Self { slots, groups, granted: Granted::NONE }
    }

    /// The same for what came from a peer that has keys of its own.
    #[inline]
    pub(crate) const fn with_granted(self, granted: Granted<'t>) -> Self {
        Self { granted, ..self }
    }

    /// Where do this many words behind this header belong, if the sender may
    /// `needed`? Of a word that is meant in part, that part is the spot.
    ///
    /// # Errors
    /// The check that refused it.
    #[inline]
    pub fn check(
        &self,
        address: &Address,
        words: u32,
        needed: Rights,
    ) -> Result<Destination, Refusal> {
        if words == 0 || (address.mask != WHOLE && words != 1) {
            return Err(Refusal::Malformed);
        }
        let (from, count) = address.enabled();
        let len =
            if words == 1 { count } else { words.checked_mul(WORD).ok_or(Refusal::OutOfBounds)? };
        self.check_bytes(address, from, len, needed)
    }

    /// The same for `len` bytes from byte `from` of the word on: for reads and
    /// for operations on words.
    ///
    /// # Errors
    /// The check that refused it.
    #[inline]
    pub fn check_bytes(
        &self,
        address: &Address,
        from: u32,
        len: u32,
        needed: Rights,
    ) -> Result<Destination, Refusal> {
        let (slot, limit) = match address.kind {
            Kind::Burst => (self.may_touch(address, needed)?, u64::MAX),
            Kind::Multicast => self.may_publish(address, needed)?,
            Kind::Command | Kind::Reply => return Err(Refusal::Malformed),
        };
        let memory = self.slots.get(usize::from(slot)).ok_or(Refusal::WrongKey)?.memory;
        // No sum of these three is beyond 64 bits.
        let at = u64::from(address.word) * u64::from(WORD) + u64::from(from);
        if len == 0 || at + u64::from(len) > memory.len.min(limit) {
            return Err(Refusal::OutOfBounds);
        }
        Ok(Destination { slot, at, span: memory.span(at, len) })
    }

    /// A slot that is free and a key that is wrong get the same answer: nobody
    /// learns which slots are in use.
    #[inline]
    fn may_touch(&self, address: &Address, needed: Rights) -> Result<u16, Refusal> {
        let aperture = self.slots.get(usize::from(address.slot)).ok_or(Refusal::WrongKey)?;
        let mut granted = 0;
        for (rights, key) in Rights::ALL.into_iter().zip(aperture.keys) {
            let is_issued = aperture.issued >> rights as u8 & 1;
            granted |= rights as u8 * (is_issued & same(key, address.key));
        }
        let granted = Rights::from_bits(granted);
        match granted.or_else(|| self.granted.rights(address.slot, address.key)) {
            None => Err(Refusal::WrongKey),
            Some(granted) if !granted.allow(needed) => Err(Refusal::Forbidden),
            Some(_) => Ok(address.slot),
        }
    }

    /// What is known of a group's memory.
    pub(crate) fn group(&self, name: u64) -> Option<Group> {
        self.groups.get(name)
    }

    /// The member's aperture, and how long the group's memory is in it.
    fn may_publish(&self, address: &Address, needed: Rights) -> Result<(u16, u64), Refusal> {
        let found = self.group(group_key(address.host.number(), address.slot));
        let group = found.ok_or(Refusal::UnknownId)?;
        if same(group.key, address.key) == 0 {
            return Err(Refusal::WrongKey);
        }
        // Nobody reads from a group: which member should answer?
        if needed != Rights::Write {
            return Err(Refusal::Forbidden);
        }
        Ok((group.slot, group.len))
    }
}

/// What a group's memory is found by.
pub(crate) const fn group_key(group: u16, slot: u16) -> u64 {
    1 << 32 | (group as u64) << 16 | slot as u64
}

/// One if the two are the same. How long it takes does not tell where they differ.
#[inline]
pub(crate) fn same(a: Key, b: Key) -> u8 {
    let difference = core::hint::black_box(a.bits() ^ b.bits());
    1 ^ ((difference | difference.wrapping_neg()) >> 63) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(
            number: u64,
            steps in prop::collection::vec((1u64..40, any::<bool>()), 0..300),
        ) {
            let secret = Secret::new(&mut Random::from_number(number));
            let (mut cells, mut used) = (vec![Cell::<u32>::default(); 33], 0);
            let mut map = Map::new(&mut cells, &mut used, secret);
            let mut model = BTreeMap::new();
            for (key, enters) in steps {
                if enters && (model.len() < 32 || model.contains_key(&key)) {
                    *map.entry(key).unwrap() += 1;
                    *model.entry(key).or_insert(0) += 1;
                } else if enters {
                    prop_assert!(map.entry(key).is_none(), "all cells are taken");
                } else {
                    map.remove(key);
                    model.remove(&key);
                }
                for key in 1..40 {
                    prop_assert_eq!(map.look().get(key), model.get(&key).copied());
                    prop_assert_eq!(map.get_mut(key).copied(), model.get(&key).copied());
                }
                prop_assert_eq!(*map.used as usize, model.len());
            }
        }
    }

    #[test]
    fn a_table_without_cells_holds_nothing() {
        let secret = Secret::new(&mut Random::from_number(1));
        let (mut used, mut cells) = (0, []);
        let mut map = Map::<u32>::new(&mut cells, &mut used, secret);
        assert!(map.entry(1).is_none() && map.get_mut(1).is_none());
        map.remove(1);
        assert_eq!(map.look().get(1), None);
    }

    /// Steps, not time: what a stranger can do who knows all but the secret.
    #[test]
    fn keys_that_crowd_for_one_secret_do_not_for_another() {
        let mask = (1 << 12) - 1;
        let known = Secret::new(&mut Random::from_number(1));
        let crowd: Vec<u64> = (1..u64::MAX)
            .map(|n| n << 3)
            .filter(|key| known.home(*key, mask) == 0)
            .take(64)
            .collect();
        let other = Secret::new(&mut Random::from_number(2));
        let mut homes: Vec<usize> = crowd.iter().map(|key| other.home(*key, mask)).collect();
        homes.sort_unstable();
        homes.dedup();
        assert!(homes.len() > 48, "{} homes for 64 keys", homes.len());
    }
}
