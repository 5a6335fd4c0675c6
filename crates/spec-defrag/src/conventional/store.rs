//! Which packets are kept, and which has to go when others need the room.
//!
//! A packet is found by its key, and the oldest by lists in the order of age: of
//! all, of those of one source, of those that hold a buffer of one pool. So each
//! step costs the same for one packet and for as many as there may be.

use landfall_placement::{Instant, Refusal, assumed};
use landfall_tables::{AgeLinks, AgeList, EntryKey, HashIndex, HashSecret, Table};

use super::joining::Gathering;
use super::{Config, Counters};
use crate::buffers::{BufferId, Buffers, LARGE};
use crate::sources::{Sources, address};
use crate::wire::Key;

/// What a packet that was given up counts: about what its entry takes.
const RECORD: u64 = 512;

/// Which of the lists is that of packets with a page; the other is that of packets
/// with a large buffer.
const PAGES: usize = 0;

/// What became of a packet so far.
#[derive(Debug)]
pub(super) enum State {
    /// Pieces are missing.
    Gathering(Gathering),
    /// It was given up: its other pieces are refused.
    Refused,
}

/// A packet that is not whole, or was given up.
#[derive(Debug)]
pub(super) struct Entry {
    key: Key,
    /// Zero: not worked out yet.
    hash: u32,
    is_indexed: bool,
    /// Its buffer is one of the large ones.
    is_large: bool,
    source: u32,
    /// How much it holds.
    bytes: u64,
    pub(super) started: Instant,
    pub(super) state: State,
}

/// What was found for a key.
pub(super) enum Found {
    Packet(u32),
    /// Nothing. The hash is zero where it was not needed.
    Nothing {
        hash: u32,
    },
}

/// The packets that are kept.
#[derive(Debug)]
pub(super) struct PacketStore {
    config: Config,
    entries: Table<Entry>,
    /// All packets but, perhaps, the recent one.
    index: HashIndex,
    /// The packet that the last piece belonged to. One that becomes whole without
    /// another in between is never entered in the index.
    recent: Option<u32>,
    sources: Sources,
    bytes: u64,
    /// All packets, in the order in which they began.
    all: AgeList,
    all_links: AgeLinks,
    /// Those of each source.
    source_links: AgeLinks,
    /// Those that hold a page, and those that hold a large buffer, in the order in
    /// which they took it.
    pools: [AgeList; 2],
    pool_links: AgeLinks,
    /// How many pages they hold.
    pages: u32,
    pub(super) counters: Counters,
}

/// What a packet is found by.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashedKey {
    pub(super) key: Key,
    /// As [`Found::Nothing`] gave it.
    pub(super) hash: u32,
}

/// A packet that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// Its entry.
    pub(super) at: u32,
    pub(super) buffer: BufferId,
}

impl PacketStore {
    pub(super) fn new(config: Config, secret: HashSecret) -> Self {
        Self {
            config,
            entries: Table::new(config.packets as usize),
            index: HashIndex::new(secret),
            recent: None,
            sources: Sources::new(config.packets, HashSecret::new(secret.k1(), secret.k0())),
            bytes: 0,
            all: AgeList::new(),
            all_links: AgeLinks::new(),
            source_links: AgeLinks::new(),
            pools: [AgeList::new(); 2],
            pool_links: AgeLinks::new(),
            pages: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(super) fn find(&self, key: &Key) -> Found {
        if let Some(recent) = self.recent
            && self.entries.get(recent).is_some_and(|entry| entry.key == *key)
        {
            return Found::Packet(recent);
        }
        if self.index.is_empty() {
            return Found::Nothing { hash: 0 };
        }
        let hash = self.index.hash(key);
        let is_meant = |at| self.entries.get(at).is_some_and(|entry| entry.key == *key);
        match self.index.find_hashed(hash, is_meant) {
            Some(at) => Found::Packet(at),
            None => Found::Nothing { hash },
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&Entry> {
        self.entries.get(at)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at)
    }

    /// The next pieces are likely to belong to this packet.
    #[inline]
    pub(super) fn touch(&mut self, at: u32) {
        if self.recent == Some(at) {
            return;
        }
        let before = self.recent.replace(at);
        // Nothing was touched before, or it is gone.
        let Some((place, entry)) = before.and_then(|at| Some((at, self.entries.get_mut(at)?)))
        else {
            return;
        };
        if !entry.is_indexed {
            if entry.hash == 0 {
                entry.hash = self.index.hash(&entry.key);
            }
            entry.is_indexed = true;
            self.index.insert_hashed(entry.hash, place);
        }
    }

    /// Begins a packet whose first known piece needs `room`: takes a buffer for it,
    /// or holds the one that it comes with.
    pub(super) fn open(
        &mut self,
        started: Instant,
        name: HashedKey,
        room: u32,
        own: Option<BufferId>,
        buffers: &mut Buffers,
    ) -> Result<Opened, Refusal> {
        let HashedKey { key, hash } = name;
        let source = self.sources.enter(address(&key)).ok_or(Refusal::NoRoom)?;
        let is_large = match own {
            Some(buffer) => buffers.capacity(buffer) > buffers.page_len(),
            None => room > buffers.page_len(),
        };
        let bytes = u64::from(if is_large { LARGE } else { buffers.page_len() });
        self.make_room(None, source, bytes, buffers)?;
        if !self.entries.has_room() {
            self.evict(self.all.oldest(), buffers)?;
        }
        if !is_large && self.pages >= self.config.pages {
            self.evict(self.pools[PAGES].oldest(), buffers)?;
        }
        let buffer = match own {
            Some(buffer) => buffer,
            None => self.take_buffer(None, room, buffers)?,
        };
        let entry = Entry {
            key,
            hash,
            is_indexed: false,
            is_large,
            source,
            bytes,
            started,
            state: State::Refused,
        };
        let Some(EntryKey { index: at, .. }) = self.entries.insert(entry) else {
            buffers.give_back(buffer);
            return Err(Refusal::NoRoom);
        };
        self.bytes += bytes;
        if let Some(source) = self.sources.get_mut(source) {
            source.bytes += bytes;
            source.count += 1;
            self.source_links.push(&mut source.packets, at);
        }
        self.hold(at, is_large);
        self.list_by_start(at, started);
        self.touch(at);
        Ok(Opened { at, buffer })
    }

    /// A packet that was opened has its buffer. Says when its time ends.
    #[inline]
    pub(super) fn begin(&mut self, at: u32, gathering: Gathering) -> Option<Instant> {
        let entry = self.entries.get_mut(at)?;
        entry.state = State::Gathering(gathering);
        Some(entry.started + self.config.lifetime)
    }

    /// Enters a packet behind those that began before it: nearly always as the
    /// newest of all.
    fn list_by_start(&mut self, at: u32, started: Instant) {
        /// Packets that began during the burst in which a page was filled.
        const LOOKS: usize = 256;
        let mut older = self.all.newest();
        for _ in 0..LOOKS {
            match older.and_then(|at| Some((at, self.entries.get(at)?.started))) {
                Some((newer, other)) if other > started => older = self.all_links.older(newer),
                _ => return self.all_links.insert_after(&mut self.all, older, at),
            }
        }
        // Further back than any burst: it lives as long as the newest.
        let newest = self.all.newest().and_then(|newest| self.entries.get(newest));
        let newest = newest.map_or(started, |entry| entry.started);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.started = newest;
        }
        self.all_links.push(&mut self.all, at);
    }

    /// Sees to it that `more` bytes are within the bounds, for a source and in all.
    /// The oldest go, but not the one to be `kept`.
    fn make_room(
        &mut self,
        kept: Option<u32>,
        source: u32,
        more: u64,
        buffers: &mut Buffers,
    ) -> Result<(), Refusal> {
        let of_source = |store: &Self| store.sources.get(source).map_or(0, |source| source.bytes);
        let own = kept.and_then(|at| self.entries.get(at)).map_or(0, |entry| entry.bytes);
        if own + more > self.config.bytes.min(self.config.bytes_per_source) {
            return Err(Refusal::NoRoom); // nobody has to go for what cannot be
        }
        while of_source(self) + more > self.config.bytes_per_source {
            let oldest = self.sources.get(source).and_then(|source| source.packets.oldest());
            self.evict(Self::but(kept, oldest, &self.source_links), buffers)?;
        }
        while self.bytes + more > self.config.bytes {
            self.evict(Self::but(kept, self.all.oldest(), &self.all_links), buffers)?;
        }
        Ok(())
    }

    /// A buffer with this room. If none is free, that of the packet that holds one
    /// for the longest time.
    pub(super) fn take_buffer(
        &mut self,
        kept: Option<u32>,
        room: u32,
        buffers: &mut Buffers,
    ) -> Result<BufferId, Refusal> {
        if let Some(buffer) = buffers.take(room) {
            return Ok(buffer);
        }
        let pool = usize::from(room > buffers.page_len());
        self.evict(Self::but(kept, self.pools[pool].oldest(), &self.pool_links), buffers)?;
        buffers.take(room).ok_or(Refusal::NoRoom)
    }

    /// A large buffer in place of the page that a packet has. Returns both.
    pub(super) fn grow(
        &mut self,
        at: u32,
        room: u32,
        buffers: &mut Buffers,
    ) -> Result<BufferId, Refusal> {
        let entry = self.entries.get(at).ok_or(Refusal::UnknownId)?;
        let (source, more) = (entry.source, u64::from(LARGE).saturating_sub(entry.bytes));
        self.make_room(Some(at), source, more, buffers)?;
        let large = self.take_buffer(Some(at), room, buffers)?;
        if let Some(entry) = self.entries.get_mut(at) {
            entry.is_large = true;
        }
        self.unhold(at, false);
        self.hold(at, true);
        self.charge(at, u64::from(LARGE));
        Ok(large)
    }

    /// A packet has a buffer of this kind now.
    fn hold(&mut self, at: u32, is_large: bool) {
        self.pool_links.push(&mut self.pools[usize::from(is_large)], at);
        self.pages += u32::from(!is_large);
    }

    /// A packet has the buffer of this kind no longer, if it had one.
    fn unhold(&mut self, at: u32, is_large: bool) {
        let had = self.pool_links.remove(&mut self.pools[usize::from(is_large)], at);
        self.pages -= u32::from(had && !is_large);
    }

    /// A packet holds so much now.
    fn charge(&mut self, at: u32, bytes: u64) {
        let Some(entry) = assumed(self.entries.get_mut(at), "who is charged is in the table")
        else {
            return;
        };
        let before = core::mem::replace(&mut entry.bytes, bytes);
        self.bytes = self.bytes + bytes - before;
        if let Some(source) = self.sources.get_mut(entry.source) {
            source.bytes = source.bytes + bytes - before;
        }
    }

    /// `oldest`, or the one behind it if that is to be kept.
    fn but(kept: Option<u32>, oldest: Option<u32>, links: &AgeLinks) -> Option<u32> {
        match oldest {
            Some(at) if kept == Some(at) => links.newer(at),
            other => other,
        }
    }

    fn evict(&mut self, oldest: Option<u32>, buffers: &mut Buffers) -> Result<(), Refusal> {
        let entry = oldest.and_then(|at| self.close(at)).ok_or(Refusal::NoRoom)?;
        if let State::Gathering(gathering) = entry.state {
            buffers.give_back(gathering.buffer);
        }
        self.counters.evicted += 1;
        Ok(())
    }

    /// A packet is kept no longer. Its buffer is the caller's.
    pub(super) fn close(&mut self, at: u32) -> Option<Entry> {
        let entry = self.entries.remove(at)?;
        if self.recent == Some(at) {
            self.recent = None;
        }
        if entry.is_indexed {
            self.index.remove_hashed(entry.hash, at);
        }
        self.bytes -= entry.bytes;
        self.all_links.remove(&mut self.all, at);
        self.unhold(at, entry.is_large);
        if let Some(source) = self.sources.get_mut(entry.source) {
            source.bytes -= entry.bytes;
            source.count -= 1;
            self.source_links.remove(&mut source.packets, at);
        }
        self.sources.leave(entry.source);
        Some(entry)
    }

    /// A packet is given up: what still comes of it is refused as well.
    pub(super) fn refuse(&mut self, at: u32, buffers: &mut Buffers) {
        let Some(entry) = assumed(self.entries.get_mut(at), "what is given up is in the table")
        else {
            return;
        };
        // It is refused already.
        let State::Gathering(gathering) = core::mem::replace(&mut entry.state, State::Refused)
        else {
            return;
        };
        let is_large = entry.is_large;
        self.counters.refused += 1;
        buffers.give_back(gathering.buffer);
        self.unhold(at, is_large);
        let bytes = RECORD.min(self.entries.get(at).map_or(0, |entry| entry.bytes));
        self.charge(at, bytes);
    }

    /// When the oldest ends.
    #[inline]
    pub(super) fn next_end(&self) -> Option<Instant> {
        let oldest = self.entries.get(self.all.oldest()?)?;
        Some(oldest.started + self.config.lifetime)
    }

    /// The oldest, if its time is over.
    pub(super) fn ended(&self, now: Instant) -> Option<u32> {
        (self.next_end()? <= now).then(|| self.all.oldest())?
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, u64) {
        (self.entries.len(), self.sources.len(), self.bytes)
    }
}
