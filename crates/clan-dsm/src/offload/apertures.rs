//! Is this header an address in memory of ours, and may its sender touch it?

use landfall_placement::{Area, Refusal, Span};

use super::map::{Cell, Look, Secret};
use crate::address::{Address, HostId, Key, Kind, WHOLE, WORD};
use crate::cookie::Rights;

/// One aperture, as an adapter knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aperture {
    /// The memory; empty where the slot is free.
    pub(crate) memory: Area,
    /// Bit `rights` is set where a cookie of these rights was given out.
    pub(crate) issued: u8,
    /// The key of each of [`Rights::ALL`].
    pub(crate) keys: [Key; 3],
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
pub struct Spot {
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
    groups: Look<'t, Group>,
}

impl<'t> Apertures<'t> {
    /// The table in this storage.
    #[must_use]
    #[inline]
    pub fn new(slots: &'t [Aperture], groups: &'t [Cell<Group>], secret: Secret) -> Self {
        Self { slots, groups: Look::new(groups, secret) }
    }

    /// The same where the groups are a table already.
    pub(super) const fn among(slots: &'t [Aperture], groups: Look<'t, Group>) -> Self {
        Self { slots, groups }
    }

    /// Where do so many words behind this header belong, if the sender may
    /// `needed`? Of a word that is meant in part, that part is the spot.
    ///
    /// # Errors
    /// The check that refused it.
    #[inline]
    pub fn check(&self, address: &Address, words: u32, needed: Rights) -> Result<Spot, Refusal> {
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
    ) -> Result<Spot, Refusal> {
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
        Ok(Spot { slot, at, span: memory.span(at, len) })
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
        match Rights::from_bits(granted) {
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
fn same(a: Key, b: Key) -> u8 {
    let difference = core::hint::black_box(a.bits() ^ b.bits());
    1 ^ ((difference | difference.wrapping_neg()) >> 63) as u8
}
