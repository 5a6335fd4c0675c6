//! [`Tables`]: what is expected of every queue pair, and what an adapter does
//! with it.

use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::{Check, PathId, Spans};
use landfall_tables::HashSecret;
use siphasher::sip::SipHasher13;

use super::entry::{Entry, Known, Places, Port, Prediction, SentNumbers, Stream};
use super::hit::{Hit, Incoming, Miss, Missed, UnitOwner, read, unread};
use crate::wire::protocol;

/// The tables, in storage that somebody else owns.
#[derive(Debug)]
pub struct Tables<'a> {
    /// By the slot of the queue pair.
    pub(super) entries: &'a mut [Entry],
    index: Index<'a>,
    secret: HashSecret,
}

impl<'a> Tables<'a> {
    /// Tables in this storage, which starts as it was left, or with defaults.
    ///
    /// Twice as many `pointers` as entries make for short searches; as many as the
    /// greatest power of two not above their number are used. The `secret` stays
    /// the same as long as the storage is used: strangers must not know it.
    #[must_use]
    #[inline]
    pub fn new(entries: &'a mut [Entry], pointers: &'a mut [Pointer], secret: HashSecret) -> Self {
        Self { entries, index: Index::new(pointers), secret }
    }

    /// An entry, to be looked at.
    #[must_use]
    #[inline]
    pub fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    // ---- What the engine does ------------------------------------------------

    /// Enters a connection, of which nothing is predicted yet, under the slot of
    /// its queue pair. Returns whether there is room for it; what had the slot before
    /// is closed.
    pub fn open(&mut self, slot: u32, ends: Ends, path: PathId) -> bool {
        let next = Prediction::default();
        self.enter(slot, ends, Known::Stream(Stream { ends, path, is_armed: false, next }))
    }

    /// Enters a bound port in the same way.
    pub fn bind(&mut self, slot: u32, ends: Ends) -> bool {
        let (course, places) = (0, Places::new());
        self.enter(slot, ends, Known::Port(Port { ends, is_armed: false, course, places }))
    }

    fn enter(&mut self, slot: u32, ends: Ends, known: Known) -> bool {
        self.close(slot);
        // The table has no such slot.
        let Some(entry) = self.entries.get_mut(slot as usize) else { return false };
        let is_found = self.index.insert(ends.hash(self.secret), slot);
        if is_found {
            entry.0 = known;
        }
        is_found
    }

    /// Forgets an entry.
    pub fn close(&mut self, slot: u32) {
        // The table has no such slot: there is nothing to forget.
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        if let Some(ends) = entry.ends() {
            self.index.remove(ends.hash(self.secret), slot);
        }
        *entry = Entry::default();
    }

    /// Enters everything into the index again: its storage is new, and empty.
    pub fn index_anew(&mut self) {
        for (slot, entry) in (0..).zip(self.entries.iter()) {
            if let Some(ends) = entry.ends() {
                self.index.insert(ends.hash(self.secret), slot);
            }
        }
    }

    /// Says what comes next on a connection.
    #[inline]
    pub fn arm(&mut self, slot: u32, next: &Prediction) {
        if let Some(Known::Stream(stream)) = self.known_mut(slot) {
            stream.next = *next;
            stream.is_armed = true;
        }
    }

    /// Says where the next datagrams of a bound port belong: each takes a request.
    #[inline]
    pub fn arm_port(&mut self, slot: u32, places: &Places, course: u16) {
        if let Some(Known::Port(port)) = self.known_mut(slot) {
            (port.places, port.course) = (*places, course);
            port.is_armed = true;
        }
    }

    /// More memory, behind what is known. Returns whether something is predicted, and
    /// it found room there.
    pub fn extend(&mut self, slot: u32, more: &Places) -> bool {
        match self.known_mut(slot) {
            Some(Known::Stream(stream)) => stream.is_armed && stream.next.places.append(more),
            Some(Known::Port(port)) => port.is_armed && port.places.append(more),
            Some(Known::Nothing) | None => false,
        }
    }

    /// What moves all the time on a connection whose segments come as predicted:
    /// what they may acknowledge, the latest timestamp, the edge of the window.
    #[inline]
    pub fn refresh(&mut self, slot: u32, sent: SentNumbers, recent: Option<u32>, edge: u32) {
        if let Some(Known::Stream(stream)) = self.known_mut(slot) {
            let next = &mut stream.next;
            (next.acknowledged, next.sent) = (sent.acknowledged, sent.next);
            (next.recent, next.edge) = (recent, edge);
        }
    }

    /// From now on nothing is predicted.
    #[inline]
    pub fn disarm(&mut self, slot: u32) {
        match self.known_mut(slot) {
            Some(Known::Stream(stream)) => stream.is_armed = false,
            Some(Known::Port(port)) => port.is_armed = false,
            Some(Known::Nothing) | None => {}
        }
    }

    /// The same for every entry: stations or addresses have changed.
    pub fn disarm_all(&mut self) {
        for slot in 0..self.entries.len() as u32 {
            self.disarm(slot);
        }
    }

    #[inline]
    pub(super) fn known_mut(&mut self, slot: u32) -> Option<&mut Known> {
        self.entries.get_mut(slot as usize).map(|entry| &mut entry.0)
    }

    // ---- What an adapter does ------------------------------------------------

    /// Takes a unit that comes as predicted: says whose it is, and fills in where
    /// its payload belongs. `into` comes empty.
    ///
    /// # Errors
    /// Why it goes to the engine. Nothing has changed then.
    #[inline]
    pub fn receive(&mut self, unit: &Incoming<'_>, into: &mut Spans) -> Result<Hit, Miss> {
        self.receive_if(unit, into, |_| true).map_err(|missed| missed.why)
    }

    /// The same for an adapter that has all of the unit at hand, and tables of its
    /// own: last of all it is asked whether the checksum is right, and it learns
    /// whom a unit may concern that it does not take.
    ///
    /// # Errors
    /// As those of [`receive`](Self::receive), and [`Miss::Sum`].
    #[inline]
    pub fn receive_if(
        &mut self,
        unit: &Incoming<'_>,
        into: &mut Spans,
        is_intact: impl FnOnce(Check) -> bool,
    ) -> Result<Hit, Missed> {
        let nobody = |why| Missed { why, whose: UnitOwner::Nobody };
        let packet = read(unit).map_err(|why| Missed { why, whose: unread(unit, why) })?;
        match packet.protocol {
            protocol::TCP => {
                let slot = self.find(&packet.ends, unit.likely);
                let slot = slot.ok_or(nobody(Miss::Unknown))?;
                let taken = self.take_segment(slot, unit, &packet, into, is_intact);
                taken.map(Hit::Segment).map_err(|why| {
                    let is_bare = Self::is_bare(unit, &packet);
                    let whose = if is_bare { UnitOwner::Nobody } else { UnitOwner::Slot(slot) };
                    Missed { why, whose }
                })
            }
            protocol::UDP => {
                let bound = packet.ends.without_remote();
                let slot = self.find(&bound, None).or_else(|| self.find(&bound.on_any(), None));
                let slot = slot.ok_or(nobody(Miss::Unknown))?;
                let (local, from) = packet.ends.addresses();
                let checked = self.check_address(unit, local, from);
                let taken =
                    checked.and_then(|()| self.take_datagram(slot, unit, &packet, into, is_intact));
                let whose = UnitOwner::Slot(slot);
                taken.map(Hit::Datagram).map_err(|why| Missed { why, whose })
            }
            other => {
                // What follows an extension of version 6 may be anything.
                let is_known = packet.is_v4() || other == protocol::ICMP6;
                let whose = if is_known { UnitOwner::Nobody } else { UnitOwner::Anybody };
                Err(Missed { why: Miss::Protocol, whose })
            }
        }
    }

    /// The slot that these ends were entered with.
    #[inline]
    fn find(&self, ends: &Ends, likely: Option<u32>) -> Option<u32> {
        let is_it = |slot: u32| self.entry(slot).and_then(Entry::ends) == Some(ends);
        let likely = likely.filter(|slot| is_it(*slot));
        likely.or_else(|| self.index.find(ends.hash(self.secret), is_it))
    }
}

// `Index`: from the two ends of a packet to an entry, in storage that
// somebody else owns.

/// A place of the index: a hash and an entry, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    hash: u32,
    /// One more than the entry's slot; zero in an empty place.
    slot: u32,
}

/// Open addressing. Half as many entries as places make for short searches; every
/// search is bounded by the number of places.
#[derive(Debug)]
pub(super) struct Index<'a> {
    places: &'a mut [Pointer],
    mask: usize,
}

impl<'a> Index<'a> {
    /// The first places of the storage are used, as many as a power of two has.
    #[inline]
    pub(super) fn new(places: &'a mut [Pointer]) -> Self {
        let used = places.len().checked_ilog2().map_or(0, |log| 1 << log);
        Self { places, mask: usize::wrapping_sub(used, 1) }
    }

    const fn len(&self) -> usize {
        self.mask.wrapping_add(1)
    }

    #[inline]
    fn at(&self, place: usize) -> Pointer {
        self.places.get(place).copied().unwrap_or_default()
    }

    fn set(&mut self, place: usize, pointer: Pointer) {
        if let Some(old) = self.places.get_mut(place) {
            *old = pointer;
        }
    }

    /// Of the slots that were entered with this hash the one that is meant.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        for n in 0..self.len() {
            let found = self.at((hash as usize).wrapping_add(n) & self.mask);
            if found.slot == 0 {
                return None;
            }
            if found.hash == hash && is_meant(found.slot - 1) {
                return Some(found.slot - 1);
            }
        }
        None
    }

    /// Enters a slot; false where there is no place for it.
    pub(super) fn insert(&mut self, hash: u32, slot: u32) -> bool {
        let places = (0..self.len()).map(|n| (hash as usize).wrapping_add(n) & self.mask);
        let free = places.into_iter().find(|place| self.at(*place).slot == 0);
        // All places are taken.
        let (Some(free), Some(slot)) = (free, slot.checked_add(1)) else { return false };
        self.set(free, Pointer { hash, slot });
        true
    }

    /// Takes a slot out. Those behind it move up, so that no gap breaks a search.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let wanted = Pointer { hash, slot: slot.wrapping_add(1) };
        let mut places = (0..self.len()).map(|n| (hash as usize).wrapping_add(n) & self.mask);
        // It was not entered, for there was no place.
        let Some(mut gap) = places.find(|place| self.at(*place) == wanted) else { return };
        let start = gap;
        for n in 1..self.len() {
            let place = start.wrapping_add(n) & self.mask;
            let other = self.at(place);
            if other.slot == 0 {
                break;
            }
            // It may move up to the gap if its home is not behind the gap.
            let home = other.hash as usize;
            if place.wrapping_sub(home) & self.mask >= place.wrapping_sub(gap) & self.mask {
                self.set(gap, other);
                gap = place;
            }
        }
        self.set(gap, Pointer::default());
    }
}

// `Ends`: the two ends of a connection, in few words.

/// Our end and theirs. A port that is only bound has nobody as its other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    local: [u64; 2],
    remote: [u64; 2],
    /// Ours in the high half.
    ports: u32,
    is_v6: bool,
}

impl Ends {
    /// Both ends are of the same version of IP.
    #[must_use]
    pub const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: words(local.ip()),
            remote: words(remote.ip()),
            ports: (local.port() as u32) << 16 | remote.port() as u32,
            is_v6: local.is_ipv6(),
        }
    }

    /// A bound port, on one of our addresses or on any of them.
    #[must_use]
    pub const fn bound(local: SocketAddr) -> Self {
        Self {
            local: words(local.ip()),
            remote: [0; 2],
            ports: (local.port() as u32) << 16,
            is_v6: local.is_ipv6(),
        }
    }

    /// The ends of a packet of version 4, with the four bytes of its ports as
    /// they came: the sender's first.
    #[inline]
    pub(super) const fn of_v4(source: [u8; 4], destination: [u8; 4], ports: [u8; 4]) -> Self {
        Self {
            local: [0, u32::from_be_bytes(destination) as u64],
            remote: [0, u32::from_be_bytes(source) as u64],
            ports: u32::from_be_bytes(ports).rotate_left(16),
            is_v6: false,
        }
    }

    /// The same of version 6.
    #[inline]
    pub(super) const fn of_v6(source: [u8; 16], destination: [u8; 16], ports: [u8; 4]) -> Self {
        Self {
            local: halves(u128::from_be_bytes(destination)),
            remote: halves(u128::from_be_bytes(source)),
            ports: u32::from_be_bytes(ports).rotate_left(16),
            is_v6: true,
        }
    }

    #[inline]
    pub(crate) const fn is_v4(&self) -> bool {
        !self.is_v6
    }

    /// Our end, and theirs.
    #[inline]
    pub(crate) const fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(address(self.local, self.is_v6), (self.ports >> 16) as u16);
        (local, SocketAddr::new(address(self.remote, self.is_v6), self.ports as u16))
    }

    /// Our end alone, on the address that was meant.
    #[inline]
    pub(super) const fn without_remote(self) -> Self {
        Self { remote: [0; 2], ports: self.ports & 0xffff_0000, ..self }
    }

    /// Our port alone, on any address.
    #[inline]
    pub(super) const fn on_any(self) -> Self {
        Self { local: [0; 2], ..self.without_remote() }
    }

    /// Strangers choose most of it, so it is hashed with a secret.
    #[inline]
    pub(super) fn hash(&self, secret: HashSecret) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(secret.k0(), secret.k1());
        if self.is_v6 {
            for word in [self.local[0], self.local[1], self.remote[0], self.remote[1]] {
                hasher.write_u64(word);
            }
        } else {
            hasher.write_u64(self.local[1] << 32 | self.remote[1]);
        }
        hasher.write_u64(u64::from(self.ports));
        hasher.finish() as u32
    }
}

const fn words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, address.to_bits() as u64],
        IpAddr::V6(address) => halves(address.to_bits()),
    }
}

const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

#[inline]
const fn address([high, low]: [u64; 2], is_v6: bool) -> IpAddr {
    if is_v6 {
        IpAddr::V6(Ipv6Addr::from_bits((high as u128) << 64 | low as u128))
    } else {
        IpAddr::V4(Ipv4Addr::from_bits(low as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec;

    proptest! {
        // Few hashes, so that homes collide and wrap around; storage may be full,
        // and need not be a power of two.
        #[test]
        fn it_finds_what_a_set_finds(
            room in 0usize..20,
            steps in prop::collection::vec((0u32..9, 0u32..4, any::<bool>()), 0..200),
        ) {
            let mut storage = vec![Pointer::default(); room];
            let mut model = BTreeSet::new();
            for (hash, slot, enters) in steps {
                let hash = hash.wrapping_sub(4);
                let mut index = Index::new(&mut storage);
                let most = index.len();
                if enters && !model.contains(&(hash, slot)) {
                    prop_assert_eq!(index.insert(hash, slot), model.len() < most);
                    if model.len() < most {
                        model.insert((hash, slot));
                    }
                } else if !enters {
                    index.remove(hash, slot);
                    model.remove(&(hash, slot));
                }
                for (hash, slot) in (0..9).flat_map(|hash| (0..4).map(move |slot| (hash, slot))) {
                    let hash = u32::wrapping_sub(hash, 4);
                    let found = index.find(hash, |found| found == slot);
                    prop_assert_eq!(found.is_some(), model.contains(&(hash, slot)));
                }
            }
        }
    }
}
