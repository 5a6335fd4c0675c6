//! Which fragments make a packet (RFC 791, RFC 815, RFC 8200 section 4.5).
//!
//! An [`Assembly`] knows what of one packet is there; it judges each fragment and
//! says when nothing is missing. It holds no byte of the packet. What is not plainly
//! one packet cut into fragments is refused:
//!
//! - Fragments that overlap make their packet refused, and all that still comes of it
//!   (RFC 5722, for IPv4 as well). Only a repetition is passed over, which RFC 8200
//!   allows; what came first stays.
//! - Fragments that disagree where the packet ends make it refused.
//! - Fragments of which only some are capable of congestion marks make it refused
//!   (RFC 3168, section 5.3).
//!
//! ```
//! use landfall_inet::Fragment;
//! use landfall_inet::reassembly::{Assembly, Congestion, Holes, LONGEST, Piece};
//! use landfall_placement::Refusal;
//!
//! let (mut assembly, mut holes) = (Assembly::new(), Holes::default());
//! let mut insert = |offset, len, more| {
//!     let piece = Piece::new(Fragment { id: 1, offset, more }, len, LONGEST)?;
//!     assembly.check(piece, &mut holes)?;
//!     assembly.note(piece, Congestion::default(), &mut holes);
//!     Ok(assembly.is_whole())
//! };
//! assert_eq!(insert(1480, 520, false), Ok(false));
//! assert_eq!(insert(1480, 520, false), Err(Refusal::Duplicate));
//! assert_eq!(insert(8, 1480, true), Err(Refusal::Forbidden)); // it overlaps
//! assert_eq!(insert(0, 1480, true), Ok(true));
//! ```
//!
//! # One set of rules, three stores
//!
//! Anyone who joins fragments asks this module. Where their bytes lie, which packet is
//! found for a [`Key`], and which one has to go when others need the room, differs with
//! the memory, and stays with its owner:
//!
//! | store | bytes | at a bound |
//! | --- | --- | --- |
//! | `qpip::ip::reassembly` | copies them into buffers of its own, which grow; so it also compares the bytes of a repetition, and looks whether the first fragment has all headers (RFC 7112) | the oldest packet goes |
//! | `spec_defrag::reassembly` | for gateways and tools: one buffer for each packet, in the order of arrival, or the frames themselves, handed out as a list; compares the bytes of a repetition, and looks for all headers (RFC 7112) | the oldest of a source that holds much of its share, else the oldest |
//! | `spec_defrag::conventional` | never sees them: it names places in registered pages, takes over a page in which fragments have landed, and keeps the transport header apart | the oldest of the same source goes first |
//!
//! Speculative defragmentation itself is neither: it guesses the places before the
//! fragments come and only checks that each landed where it belongs. Its misses end in
//! the last store.

mod holes;

pub use holes::Holes;

use core::net::IpAddr;

use landfall_placement::{Ecn, Refusal};

use crate::fragment::Fragment;

/// Which packet a fragment belongs to: RFC 791 section 3.2, RFC 8200 section 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The source address; those of IPv4 in the low 32 bits.
    pub source: u128,
    /// The destination address.
    pub destination: u128,
    /// The identification.
    pub id: u32,
    /// The protocol of an IPv4 packet; [`Key::IPV6`], since there only the first
    /// fragment says it.
    pub protocol: u16,
}

impl Key {
    /// In place of a protocol.
    pub const IPV6: u16 = 0x100;

    /// Of an IPv4 packet.
    #[must_use]
    #[inline]
    pub const fn ipv4(source: [u8; 4], destination: [u8; 4], id: u16, protocol: u8) -> Self {
        Self {
            source: u32::from_be_bytes(source) as u128,
            destination: u32::from_be_bytes(destination) as u128,
            id: id as u32,
            protocol: protocol as u16,
        }
    }

    /// Of an IPv6 packet.
    #[must_use]
    #[inline]
    pub const fn ipv6(source: [u8; 16], destination: [u8; 16], id: u32) -> Self {
        Self {
            source: u128::from_be_bytes(source),
            destination: u128::from_be_bytes(destination),
            id,
            protocol: Self::IPV6,
        }
    }

    /// Of a packet between two addresses, which are of one version.
    #[must_use]
    pub const fn new(source: IpAddr, destination: IpAddr, id: u32, protocol: u8) -> Self {
        const fn octets(address: IpAddr) -> [u8; 16] {
            match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            }
        }
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Self::ipv4(source.octets(), destination.octets(), id as u16, protocol)
            }
            _ => Self::ipv6(octets(source), octets(destination), id),
        }
    }

    /// The two addresses: source and destination.
    #[must_use]
    pub fn addresses(&self) -> (IpAddr, IpAddr) {
        let of = |address: u128| match self.protocol {
            Self::IPV6 => IpAddr::V6(address.into()),
            _ => IpAddr::V4((address as u32).into()),
        };
        (of(self.source), of(self.destination))
    }

    /// The same for all packets of a flow.
    #[must_use]
    #[inline]
    pub const fn flow(self) -> Self {
        Self { id: 0, ..self }
    }
}

/// The longest payload of a packet: the length fields have 16 bits.
pub const LONGEST: u32 = 65_535;

/// Which bytes of the payload of its packet a fragment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first of them: a multiple of 8.
    pub start: u32,
    /// The one behind the last.
    pub end: u32,
    /// The packet ends with it.
    pub is_last: bool,
}

impl Piece {
    /// The `len` bytes of a fragment of a packet whose payload has `most` bytes at most:
    /// what every fragment has to keep to, in both versions of IP.
    ///
    /// One that is not the last ends where the next may start, at a multiple of 8
    /// (RFC 791, section 2.3; RFC 8200, section 4.5); none reaches behind the end of the
    /// longest packet; none is empty but for a whole packet behind a fragment header
    /// (RFC 6946 has no rule against it, and the Linux kernel accepts it).
    ///
    /// # Errors
    /// [`Refusal::Malformed`] for a length or place that no fragment has,
    /// [`Refusal::OutOfBounds`] beyond the longest packet.
    #[inline]
    pub const fn new(fragment: Fragment, len: u32, most: u32) -> Result<Self, Refusal> {
        let (start, is_last) = (fragment.offset, !fragment.more);
        let is_nothing = len == 0 && !fragment.is_atomic();
        if is_nothing || !start.is_multiple_of(8) || !is_last && !len.is_multiple_of(8) {
            return Err(Refusal::Malformed);
        }
        match start.checked_add(len) {
            Some(end) if end <= most => Ok(Self { start, end, is_last }),
            _ => Err(Refusal::OutOfBounds),
        }
    }

    /// How many bytes.
    #[must_use]
    #[inline]
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// None: no fragment is so.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.end == self.start
    }
}

/// The congestion marks of the pieces so far (RFC 3168, section 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion(u8);

impl Congestion {
    /// One more piece came with this mark.
    #[inline]
    pub const fn add(&mut self, ecn: Ecn) {
        self.0 |= 1 << ecn as u8;
    }

    /// The marks of both.
    #[must_use]
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The mark of the whole: that of the `first` piece, or congestion if any piece
    /// met it.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] where only some pieces were capable: somebody changed
    /// the others. The kernel drops such packets too (`ip_frag_ecn_table`).
    #[inline]
    pub const fn of_all(self, first: Ecn) -> Result<Ecn, Refusal> {
        const NOT_CAPABLE: u8 = 1 << Ecn::NotCapable as u8;
        const EXPERIENCED: u8 = 1 << Ecn::CongestionExperienced as u8;
        if self.0 & NOT_CAPABLE != 0 && self.0 != NOT_CAPABLE {
            Err(Refusal::Malformed)
        } else if self.0 & EXPERIENCED != 0 {
            Ok(Ecn::CongestionExperienced)
        } else {
            Ok(first)
        }
    }
}

/// In place of the end of a packet, before its last piece came.
const UNKNOWN: u32 = u32::MAX;

/// What of one packet is there, and whether a piece belongs to it.
///
/// The bits of [`Holes`] lie beside it, with its caller: they are in use only once
/// pieces come out of order or are of different lengths.
#[derive(Clone, Copy, Debug)]
pub struct Assembly {
    /// How many bytes are there.
    filled: u32,
    /// The end of the furthest piece.
    reached: u32,
    total: u32,
    /// How long the first piece is.
    unit: u32,
    /// Whether the holes are in use. They are not as long as pieces come in order and
    /// as long as the first: then these few numbers say all.
    is_described: bool,
    has_first: bool,
    congestion: Congestion,
}

impl Assembly {
    /// Nothing is there.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self {
            filled: 0,
            reached: 0,
            total: UNKNOWN,
            unit: 0,
            is_described: false,
            has_first: false,
            congestion: Congestion(0),
        }
    }

    /// Whether a piece belongs to the others.
    ///
    /// # Errors
    /// [`Refusal::Duplicate`] for a repetition, [`Refusal::Forbidden`] for a piece that
    /// contradicts the others: then the whole packet is to be refused.
    #[inline]
    pub fn check(&mut self, piece: Piece, holes: &mut Holes) -> Result<(), Refusal> {
        if self.is_next(piece) {
            return Ok(());
        }
        self.describe(holes);
        self.check_among(piece, holes)
    }

    /// Is it what a sender sends next, and nothing is missing before? Then it belongs to the others, and
    /// nothing else has to be asked.
    #[must_use]
    #[inline]
    pub const fn is_next(&self, piece: Piece) -> bool {
        !self.is_described
            && piece.start == self.reached
            && (piece.is_last || piece.start == 0 || piece.len() == self.unit)
    }

    /// From now on the holes say what is there.
    fn describe(&mut self, holes: &mut Holes) {
        if self.is_described {
            return;
        }
        self.is_described = true;
        holes.clear();
        for start in (0..self.reached).step_by(self.unit.max(1) as usize) {
            holes.fill(start, (start + self.unit).min(self.reached));
        }
    }

    fn check_among(&self, piece: Piece, holes: &Holes) -> Result<(), Refusal> {
        if piece.start >= self.reached && self.total == UNKNOWN {
            return Ok(());
        }
        let ends_alike =
            if piece.is_last { piece.end == self.total } else { piece.end < self.total };
        if ends_alike && holes.is_piece(piece.start, piece.end) {
            return Err(Refusal::Duplicate);
        }
        let disagrees = match (self.total, piece.is_last) {
            (UNKNOWN, true) => piece.end < self.reached,
            (UNKNOWN, false) => false,
            (_, true) => true,
            (total, false) => piece.end > total,
        };
        if disagrees || holes.overlap(piece.start, piece.end) {
            return Err(Refusal::Forbidden);
        }
        Ok(())
    }

    /// A piece that was checked is in place; it came with these marks.
    #[inline]
    pub fn note(&mut self, piece: Piece, congestion: Congestion, holes: &mut Holes) {
        if !self.is_next(piece) {
            self.describe(holes);
            holes.fill(piece.start, piece.end);
        }
        self.filled += piece.len();
        self.reached = self.reached.max(piece.end);
        if piece.is_last {
            self.total = piece.end;
        }
        if piece.start == 0 {
            self.unit = piece.len();
            self.has_first = true;
        }
        self.congestion = self.congestion.with(congestion);
    }

    /// The same for a piece that [is next](Self::is_next), neither the first nor the last of its
    /// packet.
    #[inline]
    pub const fn note_next(&mut self, piece: Piece, congestion: Congestion) {
        self.filled += piece.len();
        self.reached = piece.end;
        self.congestion = self.congestion.with(congestion);
    }

    /// Nothing is missing: pieces do not overlap, so that counting is enough.
    #[must_use]
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.filled == self.total
    }

    /// Nothing would be missing with this piece, which was checked.
    #[must_use]
    #[inline]
    pub const fn is_whole_with(&self, piece: Piece) -> bool {
        let total = if piece.is_last { piece.end } else { self.total };
        self.filled + piece.len() == total
    }

    /// How many bytes are there.
    #[must_use]
    #[inline]
    pub const fn filled(&self) -> u32 {
        self.filled
    }

    /// The end of the furthest piece.
    #[must_use]
    #[inline]
    pub const fn reached(&self) -> u32 {
        self.reached
    }

    /// How many bytes the whole packet has. Only when it is whole.
    #[must_use]
    #[inline]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Whether the holes are in use.
    #[must_use]
    #[inline]
    pub const fn is_described(&self) -> bool {
        self.is_described
    }

    /// Whether the first piece is there.
    #[must_use]
    #[inline]
    pub const fn has_first(&self) -> bool {
        self.has_first
    }

    /// The marks of all pieces that are there.
    #[must_use]
    #[inline]
    pub const fn congestion(&self) -> Congestion {
        self.congestion
    }
}

impl Default for Assembly {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
