//! The pieces of packets, until they are whole (RFC 791, RFC 8200 section 4.5).
//!
//! Every piece is copied to where it belongs in the buffer of its packet; once
//! nothing is missing the buffer is the payload. Which pieces make a packet is
//! [`landfall_inet::reassembly`]'s to say; what it refuses is given up. Beyond that:
//!
//! - A repetition is passed over only with the same bytes, which are at hand here.
//! - The first piece holds all headers up to the one of the transport (RFC 7112,
//!   RFC 1858), so that a header that comes in two pieces deceives nobody.
//!
//! Packets, pieces and bytes are bounded. At a bound the oldest packet goes: who
//! sends pieces that never become whole loses them first. A packet that is whole
//! and not yet taken stays.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use landfall_placement::{Duration, Instant, Refusal};

use crate::wire::reassembly::{Key, LONGEST, Piece};
use crate::wire::{Fragment, Ip, Stop, ethernet, fragment, icmp, ipv4, ipv6, protocol, tcp, udp};

mod gathering;
use gathering::Gathering;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most packets, whole or not.
    pub packets: usize,
    /// The most pieces of one packet.
    pub pieces: usize,
    /// The most bytes of all buffers together.
    pub bytes: usize,
    /// For how long the pieces of a packet are kept after the first came.
    pub lifetime: Duration,
}

impl Default for Config {
    /// Room for sixteen of the longest packets; 60 seconds (RFC 8200, section 4.5).
    fn default() -> Self {
        Self { packets: 64, pieces: 128, bytes: 1 << 20, lifetime: Duration::from_secs(60) }
    }
}

/// Names a packet that became whole, until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassembledId {
    slot: u32,
    generation: u32,
}

impl ReassembledId {
    /// The number inside, for a ticket.
    #[must_use]
    pub const fn raw(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The id that [`ReassembledId::raw`] gave the number of.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self { slot: raw as u32, generation: (raw >> 32) as u32 }
    }
}

/// A packet that became whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassembledPacket {
    /// Its name: for [`Reassembly::payload`] and [`Reassembly::release`].
    pub id: ReassembledId,
    /// Its header, as if it had come in one piece that starts with the payload:
    /// `payload_at` counts in [`Reassembly::payload`].
    pub ip: Ip,
}

/// The first piece of a packet as it came, for an error about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstPiece {
    /// Which link it came through, by its place among all.
    pub link: usize,
    /// The stations.
    pub ethernet: ethernet::Header,
    /// The beginning of its frame.
    pub head: Vec<u8>,
}

/// A packet whose other pieces did not come in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPieces {
    /// The header of its first piece.
    pub ip: Ip,
    /// That piece.
    pub first: Box<FirstPiece>,
}

/// What became of pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that became whole.
    pub whole: u64,
    /// Pieces that were exact repetitions.
    pub repeated: u64,
    /// Packets given up because their pieces contradicted each other.
    pub refused: u64,
    /// Packets given up because they were not whole in time.
    pub expired: u64,
    /// Packets given up because others needed the room.
    pub evicted: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    /// Pieces are missing.
    Gathering(Key),
    /// Given up: its other pieces are refused.
    Refused(Key),
    /// Not yet taken.
    Whole,
}

#[derive(Debug)]
struct Slot {
    state: State,
    /// Of the name of a whole packet.
    generation: u32,
    started: Instant,
    packet: Gathering,
    /// Where somebody noted it.
    first: Option<Box<FirstPiece>>,
}

/// Packets whose pieces are being gathered, and those that are whole.
#[derive(Debug)]
pub struct Reassembly {
    config: Config,
    slots: Vec<Slot>,
    /// The capacity of all buffers.
    bytes: usize,
    /// Not later than the earliest end of a lifetime.
    next_expiry: Instant,
    /// What was given up of late, at most one for each slot.
    missing: Vec<MissingPieces>,
    counters: Counters,
}

impl Reassembly {
    /// Nothing gathered yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let slots = (0..config.packets).map(|_| Slot {
            state: State::Empty,
            generation: 0,
            started: Instant::ZERO,
            packet: Gathering::new(config.pieces),
            first: None,
        });
        Self {
            config,
            slots: slots.collect(),
            bytes: 0,
            next_expiry: Instant::FAR_FUTURE,
            missing: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Takes a piece: `ip` is its header, `bytes` its whole payload. Returns the
    /// packet if that was the last one missing.
    ///
    /// # Errors
    /// [`Refusal::Unexpected`] for no piece at all; [`Refusal::Malformed`] and
    /// [`Refusal::OutOfBounds`] for a length or place that no piece has, and for
    /// a first piece without all headers; [`Refusal::Duplicate`] for a
    /// repetition; [`Refusal::Forbidden`] for a packet that is refused as a whole
    /// because its pieces overlap or disagree; [`Refusal::NoRoom`].
    pub fn insert(
        &mut self,
        now: Instant,
        ip: &Ip,
        bytes: &[u8],
    ) -> Result<Option<ReassembledPacket>, Refusal> {
        self.expire(now);
        let fragment = ip.fragment.ok_or(Refusal::Unexpected)?;
        let piece = check(ip, fragment, bytes)?;
        let key = Key::new(ip.source, ip.destination, fragment.id, ip.protocol);
        let at = self.slot_of(now, key)?;
        let slot = &mut self.slots[at];
        if matches!(slot.state, State::Refused(_)) {
            return Err(Refusal::Forbidden);
        }
        if let Err(refusal) = slot.packet.accepts(piece, bytes) {
            match refusal {
                Refusal::Duplicate => self.counters.repeated += 1,
                Refusal::Forbidden => self.refuse(at, key),
                _ => {}
            }
            return Err(refusal);
        }
        if let Err(refusal) = self.reserve(at, piece.end as usize) {
            // An entry without any piece would only take room from others.
            if self.slots[at].packet.is_empty() {
                self.clear(at);
            }
            return Err(refusal);
        }
        self.slots[at].packet.put(ip, piece, bytes);
        if self.slots[at].packet.is_whole() { self.finish(at, key).map(Some) } else { Ok(None) }
    }

    /// Notes the first piece of a packet whose others are still missing, for an error about it.
    pub fn note_first(&mut self, ip: &Ip, first: FirstPiece) {
        // What is not cut misses nothing.
        let Some(fragment) = ip.fragment else { return };
        let key = Key::new(ip.source, ip.destination, fragment.id, ip.protocol);
        let is_it =
            |slot: &&mut Slot| matches!(slot.state, State::Gathering(known) if known == key);
        if let Some(slot) = self.slots.iter_mut().find(is_it) {
            slot.first = Some(Box::new(first));
        }
    }

    /// The next packet that was given up, and whose first piece was noted.
    pub fn poll_missing(&mut self) -> Option<MissingPieces> {
        self.missing.pop()
    }

    /// The slot of a packet: the one it has, or a free one, or that of the oldest.
    fn slot_of(&mut self, now: Instant, key: Key) -> Result<usize, Refusal> {
        let mut free = None;
        for (at, slot) in self.slots.iter().enumerate() {
            match slot.state {
                State::Gathering(other) | State::Refused(other) if other == key => return Ok(at),
                State::Empty => free = free.or(Some(at)),
                _ => {}
            }
        }
        let at = match free {
            Some(at) => at,
            None => self.evict(None)?,
        };
        let slot = &mut self.slots[at];
        slot.state = State::Gathering(key);
        slot.started = now;
        self.next_expiry = self.next_expiry.min(now + self.config.lifetime);
        Ok(at)
    }

    /// Returns up the oldest packet that is not whole, and not the one to be `kept`.
    fn evict(&mut self, kept: Option<usize>) -> Result<usize, Refusal> {
        let slots = self.slots.iter().enumerate();
        let (at, _) = slots
            .filter(|(at, slot)| {
                Some(*at) != kept && matches!(slot.state, State::Gathering(_) | State::Refused(_))
            })
            .min_by_key(|(_, slot)| slot.started)
            .ok_or(Refusal::NoRoom)?;
        self.counters.evicted += 1;
        self.clear(at);
        Ok(at)
    }

    /// Sees to it that the buffer of a packet reaches to `end`.
    fn reserve(&mut self, at: usize, end: usize) -> Result<(), Refusal> {
        let has = self.slots[at].packet.capacity();
        if end <= has {
            return Ok(());
        }
        // Doubled, so that pieces in order do not move the buffer each time; not
        // more than the longest packet, and not more than there is.
        let limit = (LONGEST as usize).min(self.config.bytes);
        let mut wanted = end.max((has * 2).min(limit));
        if end > self.config.bytes {
            return Err(Refusal::NoRoom);
        }
        if self.bytes - has + wanted > self.config.bytes {
            wanted = end;
        }
        let mut spare = 0;
        while self.bytes - has + wanted > self.config.bytes {
            // Buffers that lie idle go first.
            let idle = &mut self.slots[spare..];
            match idle.iter_mut().position(|slot| slot.is_idle()) {
                Some(offset) => {
                    spare += offset;
                    self.bytes -= self.slots[spare].packet.free();
                }
                None => {
                    let evicted = self.evict(Some(at))?;
                    self.bytes -= self.slots[evicted].packet.free();
                }
            }
        }
        self.slots[at].packet.grow(wanted)?;
        self.bytes = self.bytes - has + self.slots[at].packet.capacity();
        Ok(())
    }

    fn finish(&mut self, at: usize, key: Key) -> Result<ReassembledPacket, Refusal> {
        let slot = &mut self.slots[at];
        let whole = slot.packet.finish();
        match whole {
            Ok(ip) => {
                self.counters.whole += 1;
                slot.state = State::Whole;
                slot.first = None;
                slot.generation = slot.generation.wrapping_add(1);
                let id = ReassembledId { slot: at as u32, generation: slot.generation };
                Ok(ReassembledPacket { id, ip })
            }
            Err(refusal) => {
                self.refuse(at, key);
                Err(refusal)
            }
        }
    }

    fn refuse(&mut self, at: usize, key: Key) {
        self.counters.refused += 1;
        let slot = &mut self.slots[at];
        slot.state = State::Refused(key);
        slot.packet.clear();
        slot.first = None;
    }

    fn clear(&mut self, at: usize) {
        self.slots[at].state = State::Empty;
        self.slots[at].packet.clear();
        self.slots[at].first = None;
    }

    /// The payload of a whole packet, behind its IP headers: all that the pieces
    /// carried. `None` if it was released.
    #[must_use]
    pub fn payload(&self, id: ReassembledId) -> Option<&[u8]> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.is(id).then(|| slot.packet.payload())
    }

    /// The packet is needed no longer. Doing it twice is harmless.
    pub fn release(&mut self, id: ReassembledId) {
        if self.slots.get(id.slot as usize).is_some_and(|slot| slot.is(id)) {
            self.clear(id.slot as usize);
        }
    }

    /// Forgets what was not whole in time.
    pub fn expire(&mut self, now: Instant) {
        if now < self.next_expiry {
            return;
        }
        self.next_expiry = Instant::FAR_FUTURE;
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let (State::Gathering(_) | State::Refused(_)) = slot.state else { continue };
            let end = slot.started + self.config.lifetime;
            if end <= now {
                let first = slot.first.take().filter(|_| self.missing.len() < self.config.packets);
                if let (Some(ip), Some(first)) = (slot.packet.first_header(), first) {
                    self.missing.push(MissingPieces { ip, first });
                }
                let slot = &self.slots[at];
                self.counters.expired += u64::from(matches!(slot.state, State::Gathering(_)));
                self.clear(at);
            } else {
                self.next_expiry = self.next_expiry.min(end);
            }
        }
    }

    /// When to call [`Reassembly::expire`] next, and [`Reassembly::poll_missing`] after it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.missing.is_empty() {
            return Some(Instant::ZERO);
        }
        (self.next_expiry < Instant::FAR_FUTURE).then_some(self.next_expiry)
    }

    /// What became of pieces so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many bytes the buffers have now.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Slot {
    const fn is_idle(&self) -> bool {
        matches!(self.state, State::Empty | State::Refused(_)) && self.packet.capacity() > 0
    }

    fn is(&self, id: ReassembledId) -> bool {
        matches!(self.state, State::Whole) && self.generation == id.generation
    }
}

/// What can be said of a piece alone.
fn check(ip: &Ip, fragment: Fragment, bytes: &[u8]) -> Result<Piece, Refusal> {
    // In IPv6 the length field does not count the header itself, but the others
    // before the payload; the one of the pieces is not part of the packet.
    let header_len = usize::from(ip.header_len);
    let before = match ip.source {
        IpAddr::V4(_) => header_len.max(ipv4::LEN),
        IpAddr::V6(_) => header_len.saturating_sub(ipv6::LEN + fragment::LEN),
    };
    if bytes.len() != ip.payload_len as usize {
        return Err(Refusal::Malformed);
    }
    let piece = Piece::new(fragment, ip.payload_len, LONGEST.saturating_sub(before as u32))?;
    match piece.start {
        0 => has_all_headers(ip, bytes)?,
        // RFC 1858, section 3.2: a piece that starts within a TCP header.
        start if ip.protocol == protocol::TCP && (start as usize) < tcp::LEN => {
            return Err(Refusal::Malformed);
        }
        _ => {}
    }
    Ok(piece)
}

/// The first piece holds all headers up to that of the transport, whole.
fn has_all_headers(ip: &Ip, bytes: &[u8]) -> Result<(), Refusal> {
    let inner =
        ip.reassembled(bytes).map_err(|stop| stop.refusal().unwrap_or(Refusal::Malformed))?;
    let rest = &bytes[inner.payload_at..];
    let needed = match inner.protocol {
        protocol::TCP => {
            let words = rest.get(12).map_or(0, |byte| usize::from(byte >> 4));
            tcp::LEN.max(words * 4)
        }
        protocol::UDP => udp::LEN,
        protocol::ICMP4 | protocol::ICMP6 => icmp::LEN,
        _ => 0,
    };
    if rest.len() < needed { Err(Refusal::Malformed) } else { Ok(()) }
}

/// Reading on in a packet that is whole cannot ask for more of it.
fn refusal_of(stop: Stop) -> Refusal {
    stop.refusal().unwrap_or(Refusal::Malformed)
}

#[cfg(test)]
mod tests;
