//! What a driver does with one packet, in the simplest way; and what a device does to a long one.

use alloc::vec::Vec;

use landfall_inet::device::Long;
use landfall_placement::{
    Check, Ecn, Engine, Heads, Instant, InternetSum, Landing, PathId, Peer, Placement, Refusal,
    SealedRun, Segment, Spans, Ticket, Transmit, Unit, UnitRun, Unsealed,
};

use super::memory::Memory;

/// As much of a packet is shown to an engine at first: less than any header, so that it has
/// to ask for more.
const FIRST_HEAD: usize = 17;

/// A packet under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The path that it comes by.
    pub path: PathId,
    /// Who sent it.
    pub from: Peer,
    /// All of it.
    pub bytes: Vec<u8>,
    /// The size of its segments, if a device would have cut it.
    pub segment: Option<u16>,
    /// It is not as it was sent.
    pub is_changed: bool,
}

impl Packet {
    /// A packet as it was sent, in one piece.
    #[must_use]
    pub const fn new(path: PathId, from: Peer, bytes: Vec<u8>) -> Self {
        Self { path, from, bytes, segment: None, is_changed: false }
    }

    /// The same with segments of this size.
    #[must_use]
    pub fn segmented(self, segment: Option<u16>) -> Self {
        Self { segment, ..self }
    }

    /// The same as somebody else's, or damaged.
    #[must_use]
    pub fn changed(self) -> Self {
        Self { is_changed: true, ..self }
    }

    /// Flips one bit behind the first `from` bytes, in each packet at most once: two flips
    /// may hide each other from an Internet checksum.
    pub fn flip(&mut self, from: usize, bit: u16) {
        if !self.is_changed && self.bytes.len() > from {
            let bit = usize::from(bit) % ((self.bytes.len() - from) * 8);
            self.bytes[from + bit / 8] ^= 1 << (bit % 8);
            self.is_changed = true;
        }
    }

    /// Asks the engine where it belongs, with more and more of its head.
    ///
    /// # Errors
    ///
    /// What the engine refuses it for; or that it is shorter than the head that is asked for.
    pub fn place<E: Engine>(
        &self,
        engine: &mut E,
        now: Instant,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let mut have = FIRST_HEAD;
        // A head grows each time, so this ends at the length of the packet.
        loop {
            into.clear();
            let unit = Unit {
                path: self.path,
                from: self.from,
                head: &self.bytes[..self.bytes.len().min(have)],
                len: self.bytes.len() as u32,
                segment: self.segment,
                ecn: Ecn::NotCapable,
                verified: false,
            };
            match engine.place(now, &unit, into) {
                Ok(Placement::NeedHead(more)) => {
                    let more = usize::from(more);
                    if more <= have || more > self.bytes.len() {
                        return Err(Refusal::Truncated);
                    }
                    have = more;
                }
                other => return other,
            }
        }
    }

    /// The same for a packet that `open_run` has opened.
    ///
    /// # Errors
    ///
    /// What the engine refuses it for.
    pub fn place_opened<E: Engine>(
        &self,
        engine: &mut E,
        now: Instant,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        into.clear();
        let unit = Unit {
            path: self.path,
            from: self.from,
            head: &self.bytes,
            len: self.bytes.len() as u32,
            segment: None,
            ecn: Ecn::NotCapable,
            verified: false,
        };
        engine.place_opened(now, &unit, into)
    }

    /// Has the engine open what is sealed, in the packet itself. What comes back needs no check
    /// any more, unless it is not genuine.
    pub fn open<E: Engine>(&mut self, engine: &mut E, placement: Placement) -> Placement {
        match placement {
            Placement::Into { at, check: Check::Sealed { key }, ticket } => {
                let at_byte = usize::from(at).min(self.bytes.len());
                let (head, payload) = self.bytes.split_at_mut(at_byte);
                let is_genuine = engine.open(key, head, payload);
                let check = if is_genuine { Check::None } else { Check::Sealed { key } };
                Placement::Into { at, check, ticket }
            }
            other => other,
        }
    }

    /// Puts the payload where it belongs, if its check is good and nothing fails on the way.
    /// Returns what is to be told to the engine.
    pub fn land(
        &self,
        memory: &mut Memory,
        placement: &Placement,
        into: &Spans,
        fails: bool,
    ) -> Option<(Ticket, Landing)> {
        match *placement {
            Placement::Into { ticket, .. } | Placement::Word(_, ticket) if fails => {
                Some((ticket, Landing::Failed))
            }
            Placement::Into { at, check, ticket } => {
                let payload = self.bytes.get(usize::from(at)..).unwrap_or(&[]);
                let verdict = match verify(&self.bytes, check) {
                    Landing::Corrupt => Landing::Corrupt,
                    _ if !put(memory, payload, into) => Landing::Failed,
                    verdict => verdict,
                };
                Some((ticket, verdict))
            }
            Placement::Word(op, ticket) => {
                Some((ticket, memory.word(&op).map_or(Landing::Failed, Landing::Old)))
            }
            Placement::NeedHead(_) | Placement::Consumed => None,
        }
    }
}

/// Has the engine open the first of these packets, as far as one receive would bring them
/// together: of one sender and length, the last possibly shorter. What is open has lost its
/// outer head, and is from whom the engine says.
pub(super) fn open_run<E: Engine>(
    engine: &mut E,
    now: Instant,
    packets: &mut [Packet],
) -> Option<Unsealed> {
    let first = packets.first().filter(|first| !first.bytes.is_empty())?;
    let (path, from, unit_len) = (first.path, first.from, first.bytes.len());
    let mut units = Vec::new();
    for packet in packets.iter() {
        let is_alike = packet.path == path && packet.from == from;
        if !is_alike || packet.bytes.len() > unit_len || !units.len().is_multiple_of(unit_len) {
            break;
        }
        units.extend_from_slice(&packet.bytes);
    }
    let mut run = SealedRun { path, from, units: &mut units, unit_len: unit_len as u32 };
    let unsealed = engine.open_run(now, &mut run)?;
    let opened = packets.iter_mut().take(unsealed.opened.into());
    for (packet, unit) in opened.zip(units.chunks(unit_len)) {
        packet.bytes = unit.get(usize::from(unsealed.at)..).unwrap_or_default().to_vec();
        packet.from = unsealed.from;
    }
    Some(unsealed)
}

/// Asks for the place of as many opened packets as the engine answers for together. Gives a
/// packet that has all of their payloads, its placement and its place.
pub(super) fn place_opened_run<E: Engine>(
    engine: &mut E,
    now: Instant,
    packets: &[Packet],
) -> Option<(usize, Packet, Placement, Spans)> {
    let [first, .., last] = packets else { return None };
    let (unit_len, last_len) = (first.bytes.len(), last.bytes.len());
    let head_len = unit_len.min(last_len);
    let bytes: Vec<u8> = packets.iter().flat_map(|packet| &packet.bytes).copied().collect();
    let heads = Heads::new(&bytes, unit_len, head_len, packets.len())?;
    let (path, from) = (first.path, first.from);
    let (unit_len, last_len) = (unit_len as u32, last_len as u32);
    let run = UnitRun { path, from, heads, unit_len, last_len, ecn: Ecn::NotCapable };
    let placed = engine.place_opened_run(now, &run)?;
    let (units, at) = (usize::from(placed.units), usize::from(placed.at));
    let payloads = packets.iter().take(units).filter_map(|packet| packet.bytes.get(at..));
    let payload = payloads.flatten().copied().collect();
    let mut into = Spans::new();
    let _ = into.push(placed.span);
    let placement = Placement::Into { at: 0, check: Check::None, ticket: placed.ticket };
    Some((units.max(1), Packet::new(path, from, payload), placement, into))
}

/// The whole packet of a transmission: head and payload in one, with its checksum filled in.
/// `None` if it names memory that is not there.
#[must_use]
pub fn gather(memory: &Memory, transmit: &Transmit, head: &[u8], from: &Spans) -> Option<Vec<u8>> {
    let mut bytes = head.get(..usize::from(transmit.head_len))?.to_vec();
    for span in from.iter() {
        bytes.extend_from_slice(memory.get(span)?);
    }
    if let Some(slot) = transmit.checksum {
        slot.fill(&mut bytes, InternetSum::new())?;
    }
    bytes.truncate(bytes.len().checked_sub(transmit.sum_only as usize)?);
    Some(bytes)
}

/// Writes bytes into spans, one after another, until either ends. False if a span is not
/// there.
pub fn put(memory: &mut Memory, bytes: &[u8], into: &Spans) -> bool {
    let mut rest = bytes;
    into.iter().all(|span| {
        let part;
        (part, rest) = rest.split_at(rest.len().min(span.len as usize));
        memory.get_mut(span).map(|place| place[..part.len()].copy_from_slice(part)).is_some()
    })
}

/// What a check says of a packet.
fn verify(bytes: &[u8], check: Check) -> Landing {
    match check {
        Check::None => Landing::Unchecked,
        // What the engine could not open: see `Packet::open`.
        Check::Sealed { .. } => Landing::Corrupt,
        Check::InternetSum { from, len, seed } => {
            let from = usize::from(from);
            let covered = from.checked_add(len as usize).and_then(|end| bytes.get(from..end));
            let mut sum = InternetSum::new();
            sum.add_word(seed);
            sum.add(covered.unwrap_or(&[]));
            if covered.is_some() && sum.sum() == 0xffff {
                Landing::Verified
            } else {
                Landing::Corrupt
            }
        }
    }
}

/// Cuts a frame with Ethernet, IP and TCP headers into frames of
/// `segment.size` payload bytes; a frame that is not one comes back whole.
#[must_use]
pub fn cut(frame: &[u8], segment: Segment) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let whole = Long::split(frame).and_then(|(long, payload)| {
        long.cut(payload, segment.size.into(), |piece| pieces.push(piece.to_vec()))
    });
    if whole.is_none() {
        pieces = alloc::vec![frame.to_vec()];
    }
    pieces
}
