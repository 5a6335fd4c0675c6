//! What arrives ([`Unit`]), where it belongs ([`Placement`]), and that it is there ([`Landing`]).

use crate::checksum::InternetSum;
use crate::path::{Ecn, PathId, Peer};
use crate::span::{RegionId, Span};

/// Names one operation between engine and driver until it is over.
///
/// Only the engine that gave a ticket reads meaning into it. It packs an index
/// and a generation, so that a ticket of an earlier time is recognised and
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// A ticket for slot `index` in its `generation`.
    #[must_use]
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    /// A ticket from a number that the engine understands.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number inside.
    #[must_use]
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The slot that the ticket was given for.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// How often that slot was used before.
    #[must_use]
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Likely next units of a path: a run of units behind each other in one span.
///
/// Each unit is `head_len` bytes of head followed by `payload_len` bytes of
/// payload; the payloads belong one after another into `span`, the last of
/// them may be shorter. A guess names only memory that holds nothing accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    /// Where the payloads of the run belong.
    pub span: Span,
    /// The length of each head.
    pub head_len: u16,
    /// The length of each payload; never zero.
    pub payload_len: u32,
}

/// One unit that arrived: a datagram, a frame, or a super-packet that the
/// network stack coalesced.
#[derive(Clone, Copy, Debug)]
pub struct Unit<'a> {
    /// The path it came over.
    pub path: PathId,
    /// Who sent it, as the driver knows.
    pub from: Peer,
    /// Its first bytes, as many as the driver has at hand.
    pub head: &'a [u8],
    /// The length of the whole unit, head and payload.
    pub len: u32,
    /// Where the unit was coalesced from several: the payload of each but the last.
    pub segment: Option<u16>,
    /// Whether the network signalled congestion.
    pub ecn: Ecn,
    /// The checksum over the payload was verified beneath the driver, or is not filled in
    /// because nothing can have damaged the unit. Anyone who keeps a unit to hand it in again has to
    /// remember this.
    pub verified: bool,
}

/// A pass over the unit that the driver makes when the engine asks, before it
/// writes anything to its place. Its verdict is the [`Landing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// None. The landing is [`Landing::Unchecked`], or [`Landing::Verified`]
    /// where the device checked anyway.
    #[default]
    None,
    /// The Internet sum over `len` bytes of the unit from byte `from` on,
    /// added to `seed`, must come to `0xffff`. Where the device verified the
    /// checksum already it is not computed again.
    InternetSum {
        /// The first byte of the unit that is summed: in the head or behind it.
        from: u16,
        /// How many bytes are summed; padding behind them is not.
        len: u32,
        /// The sum, not inverted, of what is not in the unit: a pseudo-header.
        seed: u16,
    },
    /// The unit is encrypted. The driver copies the payload, all that lies behind the head,
    /// into memory of its own, has [`Engine::open`](crate::Engine::open) open it there, and
    /// writes it to its place if it is genuine; then the landing is [`Landing::Verified`],
    /// otherwise [`Landing::Corrupt`], and nothing is written. So nothing unauthenticated is
    /// ever visible where accepted bytes lie.
    Sealed {
        /// To be handed to [`Engine::open`](crate::Engine::open).
        key: u64,
    },
}

/// Where a unit belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The payload, from byte `at` of the unit on, belongs into the spans that
    /// were filled in. Bytes beyond the spans are not received. The driver
    /// answers with the ticket once they are in place.
    Into {
        /// Where in the unit the payload starts.
        at: u16,
        /// The pass over the payload that the engine wants.
        check: Check,
        /// To be handed back with the landing.
        ticket: Ticket,
    },
    /// A read-modify-write of one word; the driver answers with the old value.
    Word(WordOp, Ticket),
    /// The head at hand is too short: ask again with this many bytes.
    /// Asking for more than the unit has is a refusal in disguise; the driver
    /// treats it as [`Refusal::Truncated`](crate::Refusal::Truncated).
    NeedHead(u16),
    /// The engine has taken what it needs from the head; nothing is stored.
    Consumed,
}

/// Bytes that the engine had to keep, on their way to their place.
#[derive(Clone, Copy, Debug)]
pub struct Deposit<'a> {
    /// The bytes, as many as the spans have that were filled in.
    pub bytes: &'a [u8],
    /// To be handed back with the landing.
    pub ticket: Ticket,
}

/// What became of a payload that had a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It is in place, and its checksum is right: the device or the driver looked.
    Verified,
    /// It is in place; nobody checked it.
    Unchecked,
    /// The word operation took effect; the word held this before.
    Old(u64),
    /// The check that the engine asked for failed, or the bytes were lost on the way. As if the
    /// unit had not arrived; where it had landed in a guessed span, junk lies there.
    Corrupt,
    /// It can't come to lie there: the memory is gone, or the grant does not
    /// allow it. As if it had not arrived, and it will fail again.
    Failed,
}

/// The width of a shared word; it is naturally aligned in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordWidth {
    /// 32 bits.
    Four,
    /// 64 bits.
    Eight,
}

impl WordWidth {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// What is done with a shared word, in one indivisible step.
/// Operands are cut to the width of the word; addition wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordFunction {
    /// Only read (acquire).
    Load,
    /// Write (release).
    Store(u64),
    /// Write, and answer with what was there.
    Swap(u64),
    /// Add, wrapping.
    Add(u64),
    /// Bitwise and.
    And(u64),
    /// Bitwise or.
    Or(u64),
    /// Bitwise exclusive or.
    Xor(u64),
    /// Write `new` if the word holds `expected`.
    CompareSwap {
        /// What the word must hold.
        expected: u64,
        /// What it holds then.
        new: u64,
    },
}

impl WordFunction {
    /// What a word that holds `old` holds afterwards (before it is cut to its width).
    #[must_use]
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::Load => old,
            Self::Store(v) | Self::Swap(v) => v,
            Self::Add(v) => old.wrapping_add(v),
            Self::And(v) => old & v,
            Self::Or(v) => old | v,
            Self::Xor(v) => old ^ v,
            Self::CompareSwap { expected, new } => {
                if old == expected {
                    new
                } else {
                    old
                }
            }
        }
    }
}

/// A read-modify-write of one aligned word in a region, in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WordOp {
    /// The region that the word is in.
    pub region: RegionId,
    /// Where in the region; a multiple of the width.
    pub offset: u64,
    /// How wide the word is.
    pub width: WordWidth,
    /// What is done with it.
    pub function: WordFunction,
}

// What leaves: a head that the engine wrote, and a payload gathered from spans.

/// The protocol by which the device cuts a long unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// TCP over IPv4; the head is a whole frame with Ethernet, IP and TCP headers.
    Tcp4,
    /// TCP over IPv6; likewise.
    Tcp6,
}

/// The unit is longer than the path's unit: the device cuts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// How it is cut.
    pub kind: SegmentKind,
    /// Payload bytes in each piece but the last.
    pub size: u16,
}

/// Where an Internet checksum goes, as virtio and Linux have it.
///
/// The sum runs from byte `start` of the unit to its end (and over what is
/// [`sum_only`](Transmit::sum_only) behind it), and takes in what
/// the engine left in the slot: zero, or the sum over a pseudo-header (not
/// inverted). The inverted result replaces the two bytes at `start + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumSlot {
    /// The first byte that is summed.
    pub start: u16,
    /// The slot, an even number of bytes behind `start`; it lies within the head.
    pub offset: u16,
}

impl SumSlot {
    /// Fills the slot in, as a device does: `head` holds the unit up to the slot at least,
    /// `behind` is the sum of what follows it.
    ///
    /// `None` where the slot is not within `head`, which then stays as it is.
    ///
    /// ```
    /// use landfall_placement::{InternetSum, SumSlot, checksum};
    ///
    /// let mut unit = *b"ethernet, then\0\0and so on";
    /// let slot = SumSlot { start: 10, offset: 4 };
    /// slot.fill(&mut unit, InternetSum::new()).expect("the slot is in the unit");
    /// assert_eq!(checksum::sum_of(&unit[10..]), 0xffff);
    /// ```
    #[inline]
    pub fn fill(self, head: &mut [u8], behind: InternetSum) -> Option<()> {
        let summed = head.get_mut(usize::from(self.start)..)?;
        let mut sum = InternetSum::new();
        sum.add(summed);
        sum.append(behind);
        let place = summed.get_mut(usize::from(self.offset)..)?.first_chunk_mut::<2>()?;
        // Zero would mean "no checksum" in UDP; all ones is the same number (RFC 768).
        let sum = if sum.checksum() == 0 { u16::MAX } else { sum.checksum() };
        *place = sum.to_be_bytes();
        Some(())
    }
}

/// One unit to send. Its head is in the buffer that the engine was given, its
/// payload in the spans that the engine filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: Peer,
    /// How much of the head buffer is used.
    pub head_len: u16,
    /// Whether the device cuts it.
    pub segment: Option<Segment>,
    /// A checksum to be filled in.
    pub checksum: Option<SumSlot>,
    /// This many bytes at the end of the spans take part in the checksum and are
    /// no part of the unit; never together with `segment`.
    ///
    /// A segment of TCP or a datagram of UDP that crosses in several fragments
    /// of IP has one checksum, in the first of them, over the bytes of all.
    /// No device can do that sum: the driver does, whatever its offloads.
    pub sum_only: u32,
    /// The ECN codepoint to send with, where the path's header is not the engine's.
    pub ecn: Ecn,
    /// To be handed back once the driver holds the spans no longer.
    pub ticket: Ticket,
}
