//! Which packets are kept, and which one goes when another needs the room.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hash::{Hash, Hasher};

use landfall_placement::{Instant, assumed};
use landfall_tables::{AgeLinks, AgeList, EntryKey, HashIndex, HashSecret, IndexedHeap, Table};

use super::Config;
use super::datagram::{Datagram, Next};
use super::ended::{EndReason, EndedPacket};
use super::frame::Vlans;
use super::kept::{Copied, Frame, Offered};
use super::outcome::{Counters, DropReason};
use crate::sources::{Source, Sources, address};
use crate::wire::Key;

/// What a packet counts beside its buffer.
pub(super) const OVERHEAD: u64 = 512;

const _: () = {
    // A frame counts its own.
    let (entry, datagram) = (size_of::<Entry<Copied>>(), size_of::<Datagram<Copied>>());
    assert!(entry + datagram + size_of::<Source>() + 64 <= OVERHEAD as usize);
};

/// Buffers that wait for the next packets.
const SPARES: usize = 32;
/// A buffer that waits is not taken for less than this part of it: small packets that never
/// become complete shall not hold large buffers.
const SPARE_FIT: usize = 4;

/// The same for a packet of which more than one fragment came. There are so few spare buffers that this is no
/// way to hold much memory with little.
const GROWN_FIT: usize = 32;

/// Shares are counted in this part of what a source may hold.
const SHARES: u64 = 1024;
/// A source that holds more than half of what it may pays before others do.
const HEAVY: u64 = SHARES / 2;

/// What a packet is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketKey {
    pub(super) key: Key,
    pub(super) vlans: Vlans,
}

impl PacketKey {
    /// The key of a packet from the same source: in IPv6 a host that has one address has all of its
    /// network of 64 bits (RFC 4291, section 2.5.4).
    const fn network(&self) -> Key {
        match self.key.protocol {
            Key::IPV6 => Key { source: self.key.source >> 64 << 64, ..self.key },
            _ => self.key,
        }
    }
}

/// In as few words as there can be: two of IPv4, five of IPv6.
impl Hash for PacketKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Key { source, destination, id, protocol } = self.key;
        let [outer, inner] = self.vlans;
        // Twelve bits each; the protocol has nine.
        let rest =
            u64::from(id) << 32 | u64::from(outer & 0xfff) << 20 | u64::from(inner & 0xfff) << 8;
        if protocol == Key::IPV6 {
            state.write_u64((source >> 64) as u64);
            state.write_u64(source as u64);
            state.write_u64((destination >> 64) as u64);
            state.write_u64(destination as u64);
            state.write_u64(rest);
        } else {
            state.write_u64((source as u64) << 32 | destination as u64);
            state.write_u64(rest | u64::from(protocol));
        }
    }
}

/// What became of a packet so far.
#[derive(Debug)]
pub(super) enum State<F> {
    Gathering(Box<Datagram<F>>),
    /// What still comes of it is dropped.
    Ended,
}

#[derive(Debug)]
struct Entry<F> {
    key: PacketKey,
    /// Of the key, once it was needed.
    hash: Option<u32>,
    source: u32,
    /// How much it counts.
    bytes: u64,
    started: Instant,
    state: State<F>,
}

#[derive(Debug)]
pub(super) struct Store<F> {
    pub(super) config: Config,
    entries: Table<Entry<F>>,
    index: HashIndex,
    /// The packet of the last fragment: that of the next one, most often.
    recent: Option<u32>,
    /// The packet that began last, while it is neither in the index nor in the lists: most packets come
    /// in one go, and are complete before anybody asks for them there. It counts all the same.
    unlisted: Option<u32>,
    sources: Sources,
    /// Sources that hold more than half of what one may: the one with the greatest share first.
    heavy: IndexedHeap<Reverse<u64>>,
    bytes: u64,
    /// All packets, in the order in which they began.
    all: AgeList,
    all_links: AgeLinks,
    /// Those of each source.
    source_links: AgeLinks,
    #[expect(clippy::vec_box, reason = "they go into entries as they are")]
    spares: Vec<Box<Datagram<F>>>,
    spare_bytes: u64,
    /// How many bytes the packet kept that was complete last: the next one will need as many.
    usual: usize,
    pub(super) ended: VecDeque<EndedPacket>,
    pub(super) counters: Counters,
}

impl<F: Frame> Store<F> {
    pub(super) fn new(config: Config) -> Self {
        let secret = config.secret;
        Self {
            config,
            entries: Table::new(config.packets as usize),
            index: HashIndex::new(secret),
            recent: None,
            unlisted: None,
            sources: Sources::new(config.packets, HashSecret::new(secret.k1(), secret.k0())),
            heavy: IndexedHeap::new(),
            bytes: 0,
            all: AgeList::new(),
            all_links: AgeLinks::new(),
            source_links: AgeLinks::new(),
            spares: Vec::new(),
            spare_bytes: 0,
            usual: 0,
            ended: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// How many packets are known, those included that were ended.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many bytes packets and spare buffers take.
    pub(super) fn memory(&self) -> u64 {
        self.bytes + self.spare_bytes
    }

    /// The packet of this key, or the hash of the key if that was needed to say that there is none.
    pub(super) fn find(&mut self, key: &PacketKey) -> Result<u32, Option<u32>> {
        let is_meant = |at| self.entries.get(at).is_some_and(|entry| entry.key == *key);
        if let Some(recent) = self.recent.filter(|recent| is_meant(*recent)) {
            return Ok(recent);
        }
        self.list();
        if self.index.is_empty() {
            return Err(None);
        }
        let hash = self.index.hash(key);
        let is_meant = |at| self.entries.get(at).is_some_and(|entry| entry.key == *key);
        let found = self.index.find_hashed(hash, is_meant);
        self.recent = found.or(self.recent);
        found.ok_or(Some(hash))
    }

    /// Enters the packet that began last where it is found by its key and by its age. Before another
    /// begins, so that the lists are in the order in which packets began.
    fn list(&mut self) {
        // All are listed.
        let Some(at) = self.unlisted.take() else { return };
        let entry = self.entries.get_mut(at);
        let Some(entry) = assumed(entry, "what is not listed is in the table") else { return };
        let hash = *entry.hash.get_or_insert_with(|| self.index.hash(&entry.key));
        self.index.insert_hashed(hash, at);
        self.all_links.push(&mut self.all, at);
        if let Some(source) = self.sources.get_mut(entry.source) {
            self.source_links.push(&mut source.packets, at);
        }
    }

    /// The packet that began first.
    fn oldest(&self) -> Option<u32> {
        self.all.oldest().or(self.unlisted)
    }

    pub(super) fn state(&mut self, at: u32) -> Option<&mut State<F>> {
        Some(&mut self.entries.get_mut(at)?.state)
    }

    pub(super) fn datagram(&mut self, at: u32) -> Option<&mut Datagram<F>> {
        match self.state(at)? {
            State::Gathering(datagram) => Some(datagram),
            State::Ended => None,
        }
    }

    /// Begins a packet whose first known fragment has `needed` bytes.
    pub(super) fn open(
        &mut self,
        now: Instant,
        key: PacketKey,
        hash: Option<u32>,
        needed: usize,
    ) -> Result<u32, DropReason> {
        self.list();
        let source = self.sources.enter(address(&key.network())).ok_or(DropReason::NoRoom)?;
        let held = self.sources.get(source).map_or(0, |source| source.bytes);
        let room = (self.config.bytes_per_source.saturating_sub(held))
            .min(self.config.bytes.saturating_sub(self.bytes))
            .saturating_sub(OVERHEAD);
        // One that the whole packet fits in is not moved when the next fragment comes.
        let usual = self.usual.clamp(needed, needed * SPARE_FIT);
        let spare = self.spare_for(usual, room).or_else(|| self.spare_for(needed, room));
        let datagram = spare.unwrap_or_default();
        let memory = datagram.buffer.memory();
        let bytes = OVERHEAD + memory.max(needed) as u64;
        self.make_room(None, source, Room { bytes, packets: 1 })?;
        let bytes = OVERHEAD + memory as u64;
        let state = State::Gathering(datagram);
        let entry = Entry { key, hash, source, bytes, started: now, state };
        let inserted = self.entries.insert(entry).ok_or(DropReason::NoRoom)?;
        let EntryKey { index: at, .. } = inserted;
        (self.recent, self.unlisted) = (Some(at), Some(at));
        self.bytes += bytes;
        if let Some(entry) = self.sources.get_mut(source) {
            entry.bytes += bytes;
            entry.count += 1;
        }
        self.weigh(source);
        Ok(at)
    }

    /// A spare buffer for `needed` bytes, whose memory is within `room`.
    fn spare_for(&mut self, needed: usize, room: u64) -> Option<Box<Datagram<F>>> {
        let fits = |spare: &Datagram<F>| {
            let has = spare.buffer.bytes.capacity();
            let fits = F::IS_KEPT || needed <= has && has / SPARE_FIT <= needed;
            fits && spare.buffer.memory() as u64 <= room
        };
        let at = self.spares.iter().position(|spare| fits(spare))?;
        let spare = self.spares.swap_remove(at);
        self.spare_bytes -= spare.buffer.memory() as u64;
        Some(spare)
    }

    /// A packet is complete, which this was.
    pub(super) fn complete(&mut self, datagram: &Datagram<F>) {
        self.usual = datagram.buffer.len();
    }

    /// Keeps the memory of a packet that is over for the next one.
    pub(super) fn recycle(&mut self, mut datagram: Box<Datagram<F>>) {
        datagram.clear();
        let more = datagram.buffer.memory() as u64;
        let has_room = self.spare_bytes + more <= self.config.bytes / 8;
        if self.spares.len() < SPARES && datagram.buffer.is_worth_keeping() && has_room {
            self.spare_bytes += more;
            self.spares.push(datagram);
        }
    }

    /// Keeps a fragment of the packet of the last one, where [`Datagram::append`] does.
    #[inline]
    pub(super) fn append(&mut self, key: Key, next: &Next, offered: &mut Offered<'_, F>) -> bool {
        let most = self.config.fragments;
        let recent = self.recent.and_then(|recent| self.entries.get_mut(recent));
        // It is complete, or was ended: then this says nothing.
        let Some(Entry { key: of_recent, state: State::Gathering(datagram), .. }) = recent else {
            return false;
        };
        *of_recent == PacketKey { key, vlans: [0; 2] } && datagram.append(next, offered, most)
    }

    /// Sees to it that a packet has room for this many more bytes.
    pub(super) fn reserve(&mut self, at: u32, more: usize) -> Result<(), DropReason> {
        let Some(entry) = self.entries.get(at) else { return Err(DropReason::NoRoom) };
        let (source, State::Gathering(datagram)) = (entry.source, &entry.state) else {
            return Err(DropReason::Ended);
        };
        let has = datagram.buffer.capacity();
        let needed = datagram.buffer.len() + more;
        if needed <= has {
            return Ok(());
        }
        let wanted = datagram.buffer.capacity_for(more);
        let extra = |capacity: usize| Room { bytes: (capacity - has) as u64, packets: 0 };
        // Nobody has to go for what is only convenient.
        let capacity = if self.has_room(source, extra(wanted)) { wanted } else { needed };
        self.make_room(Some(at), source, extra(capacity))?;
        let spare = if F::IS_KEPT {
            None // frames need none
        } else {
            // One that the whole packet fits in is not moved again.
            let usual = self.usual.clamp(needed, needed * GROWN_FIT);
            self.spare_for(usual, u64::MAX).or_else(|| self.spare_for(capacity, u64::MAX))
        };
        let spare = spare.filter(|spare| {
            let more = spare.buffer.capacity().saturating_sub(has);
            self.has_room(source, extra(has + more))
        });
        let mut freed = None;
        if let Some(datagram) = self.datagram(at) {
            match spare {
                Some(mut spare) => {
                    let (bytes, other) = (&mut datagram.buffer.bytes, &mut spare.buffer.bytes);
                    other.extend_from_slice(bytes);
                    core::mem::swap(other, bytes);
                    freed = Some(spare);
                }
                None => datagram.buffer.grow(capacity),
            }
        }
        if let Some(freed) = freed {
            self.recycle(freed);
        }
        self.charge(at);
        Ok(())
    }

    /// Counts what a packet takes now, and makes room where that is beyond the bounds.
    pub(super) fn settle(&mut self, at: u32) -> Result<(), DropReason> {
        // It takes what it took before.
        let Some(source) = self.charge(at) else { return Ok(()) };
        self.make_room(Some(at), source, Room { bytes: 0, packets: 0 })
    }

    /// Counts what a packet takes now; gives its source if that has changed.
    fn charge(&mut self, at: u32) -> Option<u32> {
        let entry = assumed(self.entries.get_mut(at), "what is charged is in the table")?;
        let buffer = match &entry.state {
            State::Gathering(datagram) => datagram.buffer.memory() as u64,
            State::Ended => 0,
        };
        let before = core::mem::replace(&mut entry.bytes, OVERHEAD + buffer);
        if before == entry.bytes {
            return None;
        }
        let (source, bytes) = (entry.source, entry.bytes);
        self.bytes = self.bytes + bytes - before;
        if let Some(source) = self.sources.get_mut(source) {
            source.bytes = source.bytes + bytes - before;
        }
        self.weigh(source);
        Some(source)
    }

    /// Notes which share of what it may hold a source has.
    fn weigh(&mut self, at: u32) {
        let half_of_what_it_may = |source: &Source| {
            source.bytes <= self.config.bytes_per_source / 2
                && source.count <= self.config.packets_per_source / 2
        };
        let source = self.sources.get(at);
        let Some(source) = source.filter(|source| !half_of_what_it_may(source)) else {
            if self.heavy.first().is_some() {
                self.heavy.remove(at);
            }
            return;
        };
        let of_bytes = source.bytes.saturating_mul(SHARES) / self.config.bytes_per_source.max(1);
        let packets = u64::from(self.config.packets_per_source.max(1));
        let share = of_bytes.max(u64::from(source.count) * SHARES / packets);
        if share > HEAVY {
            self.heavy.set(at, Reverse(share));
        } else {
            self.heavy.remove(at);
        }
    }

    fn has_room(&self, source: u32, room: Room) -> bool {
        self.source_has_room(source, room) && self.all_have_room(room)
    }

    fn source_has_room(&self, source: u32, room: Room) -> bool {
        self.sources.get(source).is_none_or(|source| {
            source.bytes + room.bytes <= self.config.bytes_per_source
                && source.count + room.packets <= self.config.packets_per_source
        })
    }

    fn all_have_room(&self, room: Room) -> bool {
        self.bytes + room.bytes <= self.config.bytes
            && self.entries.len() as u32 + room.packets <= self.config.packets
    }

    /// Makes room for more: of this source, and of all. `kept` stays.
    fn make_room(&mut self, kept: Option<u32>, source: u32, room: Room) -> Result<(), DropReason> {
        let own = kept.and_then(|at| self.entries.get(at)).map_or(0, |entry| entry.bytes);
        if own + room.bytes > self.config.bytes.min(self.config.bytes_per_source) {
            return Err(DropReason::NoRoom); // nobody has to go for what cannot be
        }
        if self.has_room(source, room) {
            return Ok(());
        }
        self.list();
        while !self.source_has_room(source, room) {
            let oldest = self.sources.get(source).and_then(|source| source.packets.oldest());
            self.evict(Self::but(kept, oldest, &self.source_links))?;
        }
        while !self.all_have_room(room) {
            let heavy = self.heavy.first().and_then(|(_, at)| {
                let oldest = self.sources.get(at)?.packets.oldest();
                Self::but(kept, oldest, &self.source_links)
            });
            let victim = heavy.or_else(|| Self::but(kept, self.all.oldest(), &self.all_links));
            self.evict(victim)?;
        }
        Ok(())
    }

    /// `oldest`, or the one behind it if that is to be kept.
    fn but(kept: Option<u32>, oldest: Option<u32>, links: &AgeLinks) -> Option<u32> {
        match oldest {
            Some(at) if kept == Some(at) => links.newer(at),
            other => other,
        }
    }

    fn evict(&mut self, victim: Option<u32>) -> Result<(), DropReason> {
        let at = victim.ok_or(DropReason::NoRoom)?;
        self.give_up(at, EndReason::Evicted);
        Ok(())
    }

    /// A packet goes that is not complete; it is reported, unless it was ended before.
    pub(super) fn give_up(&mut self, at: u32, reason: EndReason) {
        // It was ended before, silently.
        let Some((key, State::Gathering(datagram))) = self.close(at) else { return };
        match reason {
            EndReason::Expired => self.counters.expired += 1,
            EndReason::Evicted => self.counters.evicted += 1,
        }
        let PacketKey { key, vlans } = key;
        if self.config.reports == 0 {
            self.counters.unreported += 1;
        } else {
            if self.ended.len() >= self.config.reports as usize {
                self.ended.pop_front();
                self.counters.unreported += 1;
            }
            let ended = EndedPacket::new(self.config.link, key, vlans, reason, &datagram);
            self.ended.push_back(ended);
        }
        self.recycle(datagram);
    }

    /// A packet is ended: what still comes of it is dropped until its time is over.
    pub(super) fn end(&mut self, at: u32) {
        let state = self.entries.get_mut(at).map(|entry| &mut entry.state);
        let Some(state) = assumed(state, "what is ended is in the table") else { return };
        if let State::Gathering(datagram) = core::mem::replace(state, State::Ended) {
            self.recycle(datagram);
        }
        self.charge(at);
    }

    /// A packet is known no longer.
    pub(super) fn close(&mut self, at: u32) -> Option<(PacketKey, State<F>)> {
        let entry = self.entries.remove(at)?;
        if self.recent == Some(at) {
            self.recent = None;
        }
        let source = self.sources.get_mut(entry.source);
        if self.unlisted == Some(at) {
            self.unlisted = None;
        } else {
            if let Some(hash) = assumed(entry.hash, "what is listed has a hash") {
                self.index.remove_hashed(hash, at);
            }
            self.all_links.remove(&mut self.all, at);
        }
        self.bytes -= entry.bytes;
        if let Some(source) = source {
            source.bytes -= entry.bytes;
            source.count -= 1;
            // One that is in no list stays so.
            self.source_links.remove(&mut source.packets, at);
        }
        self.sources.leave(entry.source);
        self.weigh(entry.source);
        Some((entry.key, entry.state))
    }

    /// When the oldest packet's time is over.
    pub(super) fn next_end(&self) -> Option<Instant> {
        Some(self.entries.get(self.oldest()?)?.started + self.config.lifetime)
    }

    /// The oldest packet, if its time is over.
    pub(super) fn over(&self, now: Instant) -> Option<u32> {
        (self.next_end()? <= now).then(|| self.oldest())?
    }
}

/// How much more is wanted.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: u64,
    packets: u32,
}
