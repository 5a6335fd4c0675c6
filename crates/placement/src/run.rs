//! Units that travel together: a run that came ([`UnitRun`]) and where it belongs
//! ([`RunPlacement`]), a run that leaves ([`TransmitRun`]) and the room for it ([`RunRoom`]).
//!
//! A network stack hands over many units with one call: from one peer, of one length, the
//! last possibly shorter. Dealing with them one by one costs more than their bytes do, so an
//! engine answers for a whole run where its heads differ in nothing but their order.

use crate::path::{Ecn, PathId, Peer};
use crate::span::Span;
use crate::unit::Ticket;

/// Heads of one length, a stride apart in one piece of memory.
///
/// ```
/// use landfall_placement::Heads;
///
/// let bytes = *b"aa..bb..cc";
/// let heads = Heads::new(&bytes, 4, 2, 3).unwrap();
/// assert_eq!(heads.iter().collect::<Vec<_>>(), [b"aa", b"bb", b"cc"]);
/// assert!(Heads::new(&bytes, 4, 3, 3).is_none(), "the last head is cut");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    bytes: &'a [u8],
    stride: usize,
    head_len: usize,
    count: usize,
}

impl<'a> Heads<'a> {
    /// `count` heads of `head_len` bytes; the first is at the start of `bytes`. `None` where
    /// they do not fit, overlap, or there is none.
    #[must_use]
    #[inline]
    pub const fn new(
        bytes: &'a [u8],
        stride: usize,
        head_len: usize,
        count: usize,
    ) -> Option<Self> {
        if count == 0 || head_len > stride {
            return None;
        }
        match stride.checked_mul(count - 1) {
            Some(last) if last <= bytes.len() && head_len <= bytes.len() - last => {
                Some(Self { bytes, stride, head_len, count })
            }
            _ => None,
        }
    }

    /// How many heads there are; never zero.
    #[must_use]
    #[inline]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The length of each.
    #[must_use]
    #[inline]
    pub const fn head_len(&self) -> usize {
        self.head_len
    }

    /// The first head.
    #[must_use]
    #[inline]
    pub fn first(&self) -> &'a [u8] {
        &self.bytes[..self.head_len]
    }

    /// The heads, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self { head_len, count, .. } = *self;
        self.bytes.chunks(self.stride).take(count).map(move |chunk| &chunk[..head_len])
    }
}

/// Units that came together from one peer: each but the last has `unit_len` bytes.
#[derive(Clone, Copy, Debug)]
pub struct UnitRun<'a> {
    /// The path they came over.
    pub path: PathId,
    /// Who sent them, as the driver knows.
    pub from: Peer,
    /// Their first bytes.
    pub heads: Heads<'a>,
    /// The length of each unit but the last, head and payload.
    pub unit_len: u32,
    /// The length of the last; no longer than the others.
    pub last_len: u32,
    /// Whether the network signalled congestion; the same for all.
    pub ecn: Ecn,
}

impl UnitRun<'_> {
    /// How many bytes of payload the first `units` have, whose heads are `at` bytes long.
    /// `None` where a unit is shorter than its head.
    #[must_use]
    #[inline]
    pub const fn payload_len(&self, at: u32, units: usize) -> Option<u64> {
        if units == 0 || units > self.heads.count() {
            return None;
        }
        let last = if units == self.heads.count() { self.last_len } else { self.unit_len };
        match (self.unit_len.checked_sub(at), last.checked_sub(at)) {
            (Some(each), Some(last)) => Some(each as u64 * (units as u64 - 1) + last as u64),
            _ => None,
        }
    }
}

/// Units that came together from one peer and may be sealed, behind one another in memory of
/// the driver's own: nobody else sees what is in them.
#[derive(Debug)]
pub struct SealedRun<'a> {
    /// The path they came over.
    pub path: PathId,
    /// Who sent them, as the driver knows.
    pub from: Peer,
    /// Their bytes.
    pub units: &'a mut [u8],
    /// The length of each unit but the last, which may be shorter.
    pub unit_len: u32,
}

/// What the first units of a [`SealedRun`] turned out to be. It is about at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsealed {
    /// This many are genuine, and open where they lie.
    pub opened: u16,
    /// This many behind those are not. They are dealt with, and hold nothing of use.
    pub refused: u16,
    /// Where in each that is open the engine's unit begins.
    pub at: u16,
    /// What the engine calls who sent them.
    pub from: Peer,
}

/// Where the payloads of the leading units of a run belong: behind one another into one span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlacement {
    /// How many units it is for: at least one.
    pub units: u16,
    /// Where in each unit its payload starts.
    pub at: u16,
    /// Where the payloads belong; as long as they are together.
    pub span: Span,
    /// To be handed back once, when all of them are in place.
    pub ticket: Ticket,
}

/// Room for the heads of a run that is to be sent, and how long the run may be.
#[derive(Debug)]
pub struct RunRoom<'a> {
    bytes: &'a mut [u8],
    stride: usize,
    most_bytes: u32,
}

impl<'a> RunRoom<'a> {
    /// Room for a head in every `stride` bytes, and for units of together `most_bytes`.
    /// Bytes behind the last whole stride are not used.
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a mut [u8], stride: usize, most_bytes: u32) -> Self {
        Self { bytes, stride: stride.max(1), most_bytes }
    }

    /// For how many heads there is room.
    #[must_use]
    #[inline]
    pub const fn units(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// How many units of `unit_len` bytes may leave together.
    #[must_use]
    #[inline]
    pub fn units_of(&self, unit_len: u32) -> usize {
        self.units().min((self.most_bytes / unit_len.max(1)) as usize)
    }

    /// How long each head may be.
    #[must_use]
    #[inline]
    pub const fn head_len(&self) -> usize {
        self.stride
    }

    /// How many bytes the units of a run may have together.
    #[must_use]
    #[inline]
    pub const fn most_bytes(&self) -> u32 {
        self.most_bytes
    }

    /// The same room for units of together `most_bytes`.
    #[must_use]
    #[inline]
    pub fn limited_to(&mut self, most_bytes: u32) -> RunRoom<'_> {
        RunRoom { bytes: &mut *self.bytes, stride: self.stride, most_bytes }
    }

    /// The places for heads, in order.
    #[inline]
    pub fn heads(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_exact_mut(self.stride)
    }
}

/// Units that leave together. Their heads are in the room that the engine was given, their
/// payloads behind one another in `span`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitRun {
    /// To whom.
    pub to: Peer,
    /// How many units: at least one.
    pub units: u16,
    /// The length of each head.
    pub head_len: u16,
    /// The length of each payload but the last, which may be shorter; never zero.
    pub payload_len: u32,
    /// The payloads.
    pub span: Span,
    /// The ECN codepoint to send with, where the path's header is not the engine's.
    pub ecn: Ecn,
    /// To be handed back once, when the driver holds none of the span any longer.
    pub ticket: Ticket,
}

impl TransmitRun {
    /// Has it as many payloads as units, none of them empty?
    #[must_use]
    pub const fn is_consistent(&self) -> bool {
        let (units, each) = (self.units as u64, self.payload_len as u64);
        let len = self.span.len as u64;
        units > 0 && each > 0 && len <= units * each && len > (units - 1) * each
    }

    /// The length of the last unit, head and payload.
    #[must_use]
    #[inline]
    pub const fn last_len(&self) -> u32 {
        let before = (self.units as u32).saturating_sub(1).saturating_mul(self.payload_len);
        self.head_len as u32 + self.span.len.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::RegionId;

    fn run(heads: Heads<'_>, unit_len: u32, last_len: u32) -> UnitRun<'_> {
        let (path, from, ecn) = (PathId(0), Peer::Unaddressed, Ecn::NotCapable);
        UnitRun { path, from, heads, unit_len, last_len, ecn }
    }

    #[test]
    fn heads_that_do_not_fit_are_none() {
        let bytes = [0; 20];
        assert!(Heads::new(&bytes, 8, 4, 3).is_some(), "the last ends with the bytes");
        assert!(Heads::new(&bytes, 8, 5, 3).is_none());
        assert!(Heads::new(&bytes, 8, 4, 4).is_none());
        assert!(Heads::new(&bytes, 4, 8, 1).is_none(), "they would overlap");
        assert!(Heads::new(&bytes, 8, 4, 0).is_none());
        assert!(Heads::new(&bytes, usize::MAX, 4, 3).is_none());
    }

    #[test]
    fn the_last_unit_of_a_run_may_be_shorter() {
        let bytes = [0; 12];
        let run = run(Heads::new(&bytes, 4, 2, 3).unwrap(), 10, 7);
        assert_eq!(run.payload_len(2, 2), Some(16));
        assert_eq!(run.payload_len(2, 3), Some(21));
        assert_eq!(run.payload_len(8, 3), None, "the last is shorter than its head");
        assert_eq!((run.payload_len(2, 0), run.payload_len(2, 4)), (None, None));
    }

    #[test]
    fn a_run_that_leaves_has_a_payload_for_each_unit() {
        let span = |len| RegionId::new(1, 0).span(0, len);
        let run = |units, len| TransmitRun {
            to: Peer::Unaddressed,
            units,
            head_len: 4,
            payload_len: 10,
            span: span(len),
            ecn: Ecn::NotCapable,
            ticket: Ticket::new(0, 0),
        };
        assert!(run(3, 30).is_consistent() && run(3, 21).is_consistent());
        assert!(!run(3, 20).is_consistent() && !run(3, 31).is_consistent());
        assert!(!run(0, 0).is_consistent());
        assert_eq!((run(3, 30).last_len(), run(3, 21).last_len()), (14, 5));
    }

    #[test]
    fn room_is_bounded_by_heads_and_by_bytes() {
        let mut bytes = [0; 35];
        let mut room = RunRoom::new(&mut bytes, 8, 100);
        assert_eq!((room.units(), room.head_len()), (4, 8));
        assert_eq!((room.units_of(25), room.units_of(50), room.units_of(101)), (4, 2, 0));
        assert_eq!(room.heads().count(), 4);
    }
}
