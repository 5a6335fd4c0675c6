//! The reference: a host's memory as arrays of bytes, its tripwires in a list
//! that is looked through from the beginning, and one word at a time.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::address::{Address, HostId, Key, Kind, TripwireId, WORD};
use crate::cookie::{Access, Rights};
use crate::error::Error;
use crate::native::Word;
use crate::nic::Nic;
use crate::tripwire::Tripwires;

/// Memory that others may touch.
#[derive(Clone, Debug)]
pub struct NaiveAperture {
    /// Which.
    pub slot: u16,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// The cookies that were given out.
    pub keys: Vec<NaiveKey>,
}

/// A key that was given out.
#[derive(Clone, Copy, Debug)]
pub struct NaiveKey {
    /// The key.
    pub key: Key,
    /// What it allows.
    pub rights: Rights,
    /// The only host that it allows that to, if it is for one.
    pub only: Option<HostId>,
}

/// Memory of a group, as one of its members has it.
#[derive(Clone, Debug)]
struct NaiveGroup {
    group: HostId,
    /// The slot that senders write into the header.
    name: u16,
    key: Key,
    /// The member's aperture.
    slot: u16,
    len: usize,
}

/// A tripwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NaiveWire {
    /// A name that the caller chose.
    pub name: u64,
    /// The aperture that is watched.
    pub slot: u16,
    /// The first byte of it that is watched.
    pub from: u64,
    /// The first that is not any more.
    pub to: u64,
    /// What it hears of.
    pub access: Access,
    /// Whether it is disarmed by its first firing.
    pub once: bool,
    /// Whether its name is put into the queue.
    pub queues: bool,
    is_armed: bool,
    is_queued: bool,
    count: u64,
}

impl NaiveWire {
    /// A tripwire that is armed.
    #[must_use]
    pub const fn new(name: u64, slot: u16, from: u64, to: u64, access: Access) -> Self {
        let (once, queues, is_armed, is_queued, count) = (false, false, true, false, 0);
        Self { name, slot, from, to, access, once, queues, is_armed, is_queued, count }
    }
}

/// One firing, at one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Which tripwire.
    pub name: u64,
    /// The word of its aperture.
    pub word: u32,
}

/// A host.
#[derive(Clone, Debug, Default)]
pub struct NaiveHost {
    apertures: Vec<NaiveAperture>,
    groups: Vec<NaiveGroup>,
    /// In the order in which they were armed.
    wires: Vec<NaiveWire>,
    /// All firings, in order.
    pub fired: Vec<Fired>,
    queue: Vec<u64>,
}

impl NaiveHost {
    /// There is memory in this slot, all zero.
    pub fn expose(&mut self, slot: u16, len: usize) {
        let (bytes, keys) = (alloc::vec![0; len], Vec::new());
        self.apertures.push(NaiveAperture { slot, bytes, keys });
    }

    /// A cookie for the slot was given out.
    pub fn give(&mut self, slot: u16, key: Key, rights: Rights) {
        if let Some(aperture) = self.aperture_mut(slot) {
            aperture.keys.push(NaiveKey { key, rights, only: None });
        }
    }

    /// The same for one host alone.
    pub fn give_to(&mut self, host: HostId, slot: u16, key: Key, rights: Rights) {
        if let Some(aperture) = self.aperture_mut(slot) {
            aperture.keys.push(NaiveKey { key, rights, only: Some(host) });
        }
    }

    /// The cookies for the slot that this host alone was given mean nothing any more.
    pub fn revoke_from(&mut self, host: HostId, slot: u16) {
        if let Some(aperture) = self.aperture_mut(slot) {
            aperture.keys.retain(|key| key.only != Some(host));
        }
    }

    /// All cookies for the slot mean nothing any more, and the memory is the host's own.
    pub fn revoke(&mut self, slot: u16) {
        self.apertures.retain(|aperture| aperture.slot != slot);
        self.groups.retain(|group| group.slot != slot);
        self.wires.retain(|wire| wire.slot != slot);
    }

    /// What is sent to this memory of the group comes to lie in the slot.
    pub fn join(&mut self, group: HostId, name: u16, key: Key, slot: u16, len: usize) {
        self.groups.push(NaiveGroup { group, name, key, slot, len });
    }

    /// What is in an aperture.
    #[must_use]
    pub fn bytes(&self, slot: u16) -> Option<&[u8]> {
        self.apertures.iter().find(|aperture| aperture.slot == slot).map(|found| &found.bytes[..])
    }

    /// Arms a new tripwire.
    pub fn watch(&mut self, wire: NaiveWire) {
        self.wires.push(wire);
    }

    /// Arms a tripwire again: it is the last then. One that is armed stays where it is.
    pub fn enable(&mut self, name: u64) {
        let disarmed = |wire: &NaiveWire| wire.name == name && !wire.is_armed;
        if let Some(at) = self.wires.iter().position(disarmed) {
            let wire = self.wires.remove(at);
            self.wires.push(NaiveWire { is_armed: true, ..wire });
        }
    }

    /// Disarms a tripwire.
    pub fn disable(&mut self, name: u64) {
        self.wires.iter_mut().filter(|wire| wire.name == name).for_each(|w| w.is_armed = false);
    }

    /// Takes a tripwire away.
    pub fn remove(&mut self, name: u64) {
        self.wires.retain(|wire| wire.name != name);
    }

    /// Whether it is armed, and at how many words it fired; `None` where it is gone.
    #[must_use]
    pub fn look(&self, name: u64) -> Option<(bool, u64)> {
        let wire = self.wires.iter().find(|wire| wire.name == name)?;
        Some((wire.is_armed, wire.count))
    }

    /// Where this tripwire stands among those that are armed.
    #[must_use]
    pub fn rank(&self, name: u64) -> Option<usize> {
        self.wires.iter().position(|wire| wire.name == name)
    }

    /// The next name in the queue, of those that still exist.
    pub fn pop(&mut self) -> Option<u64> {
        while !self.queue.is_empty() {
            let name = self.queue.remove(0);
            if let Some(wire) = self.wires.iter_mut().find(|wire| wire.name == name) {
                wire.is_queued = false;
                return Some(name);
            }
        }
        None
    }

    /// A host writes one word, or the bytes of it that the address means; who is not known has the
    /// keys that everybody has. `false`: may not be.
    pub fn write(&mut self, host: Option<HostId>, at: &Address, word: Word) -> bool {
        let Some((slot, limit)) = self.find(host, at, Rights::Write) else { return false };
        let (first, len) = at.enabled();
        let (first, len) = (first as usize, len as usize);
        let from = at.word as usize * WORD as usize + first;
        if from + len > self.bytes(slot).map_or(0, <[u8]>::len).min(limit) {
            return false;
        }
        self.put(slot, from as u64, &word[first..first + len], Access::Write);
        true
    }

    /// Bytes come to lie in an aperture, no matter who wrote them.
    ///
    /// # Panics
    /// They lie outside of it.
    pub fn put(&mut self, slot: u16, at: u64, bytes: &[u8], how: Access) {
        let Some(aperture) = self.aperture_mut(slot) else { return };
        let from = at as usize;
        aperture.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        self.touch(slot, at, at + bytes.len() as u64, how);
    }

    /// A host reads bytes. `None`: may not be.
    pub fn read(&mut self, host: Option<HostId>, at: &Address, len: usize) -> Option<Vec<u8>> {
        let (slot, limit) = self.find(host, at, Rights::Read)?;
        let from = at.word as usize * WORD as usize + at.enabled().0 as usize;
        let aperture = self.aperture_mut(slot)?;
        let end = from.checked_add(len)?;
        if len == 0 || end > aperture.bytes.len().min(limit) {
            return None;
        }
        Some(aperture.bytes[from..end].to_vec())
    }

    /// These bytes of an aperture were touched.
    pub fn touch(&mut self, slot: u16, from: u64, to: u64, access: Access) {
        let word_len = u64::from(WORD);
        for word in from / word_len..to.div_ceil(word_len) {
            for wire in &mut self.wires {
                let first = from.max(word * word_len).max(wire.from);
                let end = to.min((word + 1) * word_len).min(wire.to);
                let is_meant = wire.is_armed && wire.slot == slot && wire.access.hears(access);
                if !is_meant || first >= end {
                    continue;
                }
                wire.count += 1;
                wire.is_armed = !wire.once;
                self.fired.push(Fired { name: wire.name, word: word as u32 });
                if wire.queues && !wire.is_queued {
                    wire.is_queued = true;
                    self.queue.push(wire.name);
                }
            }
        }
    }

    /// The slot that an address means, and how much of it, if its holder may do that.
    fn find(&mut self, host: Option<HostId>, at: &Address, needed: Rights) -> Option<(u16, usize)> {
        match at.kind {
            Kind::Burst => {
                let aperture = self.aperture_mut(at.slot)?;
                let may = |known: &NaiveKey| {
                    let is_theirs = known.only.is_none() || known.only == host;
                    is_theirs && known.key == at.key && known.rights.allow(needed)
                };
                aperture.keys.iter().any(may).then_some((at.slot, usize::MAX))
            }
            Kind::Multicast if needed == Rights::Write => {
                let is_meant = |group: &&NaiveGroup| {
                    group.group == at.host && group.name == at.slot && group.key == at.key
                };
                self.groups.iter().find(is_meant).map(|group| (group.slot, group.len))
            }
            _ => None,
        }
    }

    fn aperture_mut(&mut self, slot: u16) -> Option<&mut NaiveAperture> {
        self.apertures.iter_mut().find(|aperture| aperture.slot == slot)
    }
}

/// What has tripwires that the naive model has, too.
pub(super) trait Wires {
    fn enable(&mut self, id: TripwireId) -> Result<(), Error>;
    fn disable(&mut self, id: TripwireId) -> Result<(), Error>;
    fn remove(&mut self, id: TripwireId) -> Result<(), Error>;
    fn pop_name(&mut self) -> Option<TripwireId>;
    /// Is it armed, and how often has it fired?
    fn look(&mut self, id: TripwireId) -> Option<(bool, u64)>;
}

impl Wires for Tripwires {
    fn enable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.enable(id)
    }

    fn disable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.disable(id)
    }

    fn remove(&mut self, id: TripwireId) -> Result<(), Error> {
        self.remove(id)
    }

    fn pop_name(&mut self) -> Option<TripwireId> {
        self.pop_identifier()
    }

    fn look(&mut self, id: TripwireId) -> Option<(bool, u64)> {
        self.is_armed(id).ok().zip(self.count(id).ok())
    }
}

impl Wires for Nic {
    fn enable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.enable_tripwire(id)
    }

    fn disable(&mut self, id: TripwireId) -> Result<(), Error> {
        self.disable_tripwire(id)
    }

    fn remove(&mut self, id: TripwireId) -> Result<(), Error> {
        self.remove_tripwire(id)
    }

    fn pop_name(&mut self) -> Option<TripwireId> {
        self.pop_identifier()
    }

    fn look(&mut self, id: TripwireId) -> Option<(bool, u64)> {
        self.is_armed(id).ok().zip(self.firings(id).ok())
    }
}

/// Enables, disables or removes one of both. What differs, if anything does.
pub(super) fn change(
    wires: &mut impl Wires,
    naive: &mut NaiveHost,
    id: TripwireId,
    how: u8,
) -> Result<(), String> {
    let exists = naive.look(id.raw()).is_some();
    let done = match how % 3 {
        0 => {
            naive.enable(id.raw());
            wires.enable(id)
        }
        1 => {
            naive.disable(id.raw());
            wires.disable(id)
        }
        _ => {
            naive.remove(id.raw());
            wires.remove(id)
        }
    };
    match done.is_ok() == exists {
        true => Ok(()),
        false => Err(format!("{id} exists: {exists}, but {done:?}")),
    }
}

/// Takes a name out of both queues. Returns whether there was one.
pub(super) fn pop(wires: &mut impl Wires, naive: &mut NaiveHost) -> Result<bool, String> {
    let (got, expected) = (wires.pop_name(), naive.pop());
    match got.map(TripwireId::raw) == expected {
        true => Ok(expected.is_some()),
        false => Err(format!("the queue of names: {got:?} is not {expected:?}")),
    }
}

/// Are they in the same state?
pub(super) fn compare(
    wires: &mut impl Wires,
    naive: &NaiveHost,
    id: TripwireId,
) -> Result<(), String> {
    let (got, expected) = (wires.look(id), naive.look(id.raw()));
    if got == expected { Ok(()) } else { Err(format!("{id}: {got:?}, not {expected:?}")) }
}
