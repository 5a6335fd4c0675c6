//! The conventional path: pieces are copied to where they belong, until their
//! packet is whole (RFC 791, RFC 815, RFC 8200 section 4.5).
//!
//! Only names of memory are kept here; the bytes go by [`Memory::copy`] into a
//! buffer of their packet. Which pieces make a packet is
//! [`landfall_inet::reassembly`]'s to say; what it refuses is given up. A packet in one
//! piece behind a fragment header has nothing to do with others of its name
//! (RFC 6946): it passes at once.
//!
//! Packets and bytes are bounded, in all and for each source. At a bound the
//! oldest packet goes: who sends pieces that never become whole loses them first.
//! The cost of a piece depends neither on how many packets there are nor on how
//! they are cut.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `joining` | how a piece, and a page with pieces, gets to its place; one packet: its buffer, and what is kept of its first piece |
//! | `store` | all packets: which are kept, and which go |
//!
//! What does not live here: the reading of headers, and of frames that landed where
//! they belong.

mod joining;
mod store;

pub use joining::Expired;
pub use landfall_inet::reassembly::Congestion;

use alloc::vec::Vec;

pub(crate) use joining::piece_of;
use joining::{ExpiryReports, First, Gathering};
use landfall_inet::reassembly::Holes;
use landfall_placement::{Duration, Instant, Refusal};
use landfall_tables::HashSecret;
use store::{Found, HashedKey, Opened, PacketStore, State};

use crate::buffers::{BufferId, Buffers};
use crate::memory::{Head, Memory, Packet, Pieces};
use crate::wire::{Key, Parsed};

/// The longest split: the longest transport header.
pub const SPLIT_MOST: u16 = 128;

/// A frame with a piece of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// What its headers say.
    pub parsed: &'a Parsed,
    /// Its first bytes, at least up to where the piece begins.
    pub head: &'a [u8],
    /// Where the whole frame lies.
    pub frame: &'a Pieces,
    /// How long the transport header is at the start of the packet, as far as one
    /// can guess: what is behind it is aligned as a page is. Zero: unknown.
    pub split: u16,
}

/// A page that the first pieces of a packet landed in, in order, before the guess
/// went wrong.
#[derive(Clone, Copy, Debug)]
pub struct Adopted<'a> {
    /// When the first piece came.
    pub started: Instant,
    /// What the headers of the first piece say. The pieces behind it are as long.
    pub first: &'a Parsed,
    /// The first bytes of its frame: headers, and `split` bytes of the piece.
    pub head: &'a [u8],
    /// How many bytes at the start of the payload are in `head`, and not in the page.
    pub split: u16,
    /// What the pieces landed in: the rest of the payload, from
    /// [`LEAD`](crate::LEAD) on.
    pub buffer: BufferId,
    /// How many bytes of the payload are there, with those in `head`.
    pub filled: u32,
    /// The marks of all pieces that are there.
    pub congestion: Congestion,
}

/// Packets whose pieces are being gathered.
#[derive(Debug)]
pub struct Reassembly {
    store: PacketStore,
    /// What is there of the packet in each buffer, by the index of the buffer.
    holes: Vec<Holes>,
    /// The first piece of each packet, by its place on the store; stale where the
    /// packet has none.
    firsts: Vec<First>,
    telling: ExpiryReports,
    /// Not later than the earliest end of a lifetime.
    next_end: Instant,
}

impl Reassembly {
    /// Nothing gathered yet. The secret keeps strangers from choosing addresses
    /// that are slow to find; it comes from the engine's seed.
    #[must_use]
    pub fn new(config: Config, secret: HashSecret) -> Self {
        Self {
            store: PacketStore::new(config, secret),
            holes: Vec::new(),
            firsts: Vec::new(),
            telling: ExpiryReports::new(config.told_per_second),
            next_end: Instant::FAR_FUTURE,
        }
    }

    /// Is nothing being gathered, and nothing refused?
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Whether pieces of this packet are here, or it was given up not long ago.
    #[must_use]
    #[inline]
    pub fn contains(&self, key: &Key) -> bool {
        matches!(self.store.find(key), Found::Packet(_))
    }

    /// What became of pieces so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.store.counters
    }

    /// Takes a piece: its bytes are copied to their place. Returns the packet if that
    /// was the last one missing; its buffer is the caller's then.
    ///
    /// # Errors
    /// [`Refusal::Unexpected`] for no piece at all; [`Refusal::Malformed`],
    /// [`Refusal::Truncated`] and [`Refusal::OutOfBounds`] for a length or place
    /// that no piece has; [`Refusal::Duplicate`] for a repetition;
    /// [`Refusal::Forbidden`] for a packet that is refused as a whole because its
    /// pieces overlap or disagree; [`Refusal::NoRoom`]. When the last piece missing
    /// shows that the packet is none, also what
    /// [`whole_head`](crate::wire::whole_head) says.
    pub fn insert<M: Memory>(
        &mut self,
        now: Instant,
        arrived: &Arrived<'_>,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        if now >= self.next_end {
            self.handle_timeout(now, buffers, memory);
        }
        let parsed = arrived.parsed;
        let piece = piece_of(parsed)?;
        let payload_end = u64::from(parsed.payload_at) + u64::from(parsed.payload_len);
        if arrived.head.len() < usize::from(parsed.payload_at) || arrived.frame.len() < payload_end
        {
            return Err(Refusal::Truncated);
        }
        if piece.start == 0 && usize::from(parsed.payload_at) > Head::MOST {
            return Err(Refusal::NoRoom);
        }
        if piece.start == 0 && piece.is_last {
            return self.pass(arrived, piece, buffers, memory).map(Some);
        }
        let split = u32::from(arrived.split.min(SPLIT_MOST));
        let at = match self.store.find(&parsed.key) {
            Found::Packet(at) => {
                self.accepts(at, piece, buffers, memory)?;
                self.store.touch(at);
                at
            }
            Found::Nothing { hash } => {
                let room = Gathering::room_for(split, piece.end);
                let name = HashedKey { key: parsed.key, hash };
                let Opened { at, buffer } = self.store.open(now, name, room, None, buffers)?;
                self.begin(at, Gathering::new(buffer, split));
                at
            }
        };
        self.put(at, arrived, piece, buffers, memory)
    }

    /// Forgets what was not whole in time.
    pub fn handle_timeout<M: Memory>(&mut self, now: Instant, buffers: &mut Buffers, memory: &M) {
        while let Some((at, entry)) =
            self.store.ended(now).and_then(|at| Some((at, self.store.close(at)?)))
        {
            let State::Gathering(gathering) = entry.state else { continue };
            self.store.counters.expired += 1;
            let first = self.firsts.get(at as usize);
            if let Some(first) = first.filter(|_| gathering.assembly.has_first())
                && self.telling.may_report(now)
            {
                self.telling.push(Expired::new(first, &gathering, buffers, memory));
            }
            buffers.give_back(gathering.buffer);
        }
        self.next_end = self.store.next_end().unwrap_or(Instant::FAR_FUTURE);
    }

    /// When to call [`Reassembly::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.store.next_end()
    }

    /// The next packet that was not whole in time, and whose sender may be told.
    pub fn poll_expired(&mut self) -> Option<Expired> {
        self.telling.pop()
    }
}

#[cfg(test)]
mod tests;

// How much is kept at most, and what became of it.

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most packets that are not whole yet, together with those that were
    /// given up and whose late pieces are still recognised.
    pub packets: u32,
    /// The most pages that those hold that are not whole yet. Large buffers do not
    /// count: nothing else needs them.
    pub pages: u32,
    /// The most bytes that all of them hold: the whole of their buffers.
    pub bytes: u64,
    /// The most bytes that those from one source address hold.
    pub bytes_per_source: u64,
    /// For how long the pieces of a packet are kept after the first came.
    pub lifetime: Duration,
    /// How many packets that expired are told of, in each second at most. A sender
    /// that floods is not answered with a flood (RFC 1812, section 4.3.2.8;
    /// RFC 4443, section 2.4).
    pub told_per_second: u32,
}

impl Default for Config {
    /// 64 MiB in all, 4 MiB for each source, as many of the pages as there are; 60
    /// seconds (RFC 8200, section 4.5).
    fn default() -> Self {
        Self {
            packets: 16_384,
            pages: u32::MAX,
            bytes: 64 << 20,
            bytes_per_source: 4 << 20,
            lifetime: Duration::from_secs(60),
            told_per_second: 100,
        }
    }
}

/// What became of pieces and of their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that became whole.
    pub whole: u64,
    /// Packets that came as one piece behind a fragment header (RFC 6946).
    pub atomic: u64,
    /// Pieces that were exact repetitions.
    pub repeated: u64,
    /// Packets given up because their pieces contradicted each other.
    pub refused: u64,
    /// Packets given up because they were not whole in time.
    pub expired: u64,
    /// Packets given up because others needed the room, and what was still known of
    /// packets given up before.
    pub evicted: u64,
}

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self { whole, atomic, repeated, refused, expired, evicted } = other;
        self.whole += whole;
        self.atomic += atomic;
        self.repeated += repeated;
        self.refused += refused;
        self.expired += expired;
        self.evicted += evicted;
    }
}
