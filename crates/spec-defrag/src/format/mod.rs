//! What a header has to say: the part of speculation that knows a protocol.
//!
//! Everything else (which place comes next, the check of a burst, what to learn
//! from it) works on lengths alone. [`Ip`] is the format of IP fragments;
//! [`Fixed`] is one for headers of your own.

mod ip;

pub use ip::{Begin, Ip};

use core::fmt::Debug;
use core::hash::Hash;

use crate::shape::Shape;

/// Reads the heads of units. No method may panic, whatever the bytes.
pub trait Format {
    /// Which stream of packets a unit belongs to.
    type Flow: Copy + Eq + Hash + Debug;
    /// What is remembered of the first unit of a packet, to know the others by.
    type Begin: Copy + Debug;

    /// Whether this is the first unit of a packet of this shape, with a payload that
    /// starts exactly where the shape says. `head` is what a descriptor for it kept
    /// apart, `len` the length of the whole unit.
    fn begins(&self, shape: &Shape, head: &[u8], len: u32) -> Option<Self::Begin>;

    /// Whether this is unit `index` of the packet that began so.
    fn continues(
        &self,
        shape: &Shape,
        begin: &Self::Begin,
        index: u16,
        head: &[u8],
        len: u32,
    ) -> bool;

    /// The flow of a packet that began so.
    fn flow(&self, begin: &Self::Begin) -> Self::Flow;
}

// Headers of your own, with numbers at fixed places.

/// An unsigned big-endian number in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it starts.
    pub at: u16,
    /// How many bytes it has: 1 to 8.
    pub len: u8,
}

impl Field {
    fn read(self, head: &[u8]) -> Option<u64> {
        let at = usize::from(self.at);
        let bytes = head.get(at..at + usize::from(self.len))?;
        if bytes.len() > 8 {
            return None;
        }
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// A format whose heads say at fixed places to which stream, packet and unit of it
/// they belong.
///
/// ```
/// use spec_defrag::format::{Field, Fixed, Format};
/// use spec_defrag::Shape;
///
/// // stream: u16, packet: u32, unit: u16
/// let format = Fixed {
///     magic: &[],
///     stream: Field { at: 0, len: 2 },
///     packet: Field { at: 2, len: 4 },
///     unit: Field { at: 6, len: 2 },
/// };
/// let shape = Shape::new(4, (8, 8), (1024, 1024, 1024)).unwrap();
/// let begin = format.begins(&shape, &[0, 7, 0, 0, 0, 9, 0, 0], 1032).unwrap();
/// assert!(format.continues(&shape, &begin, 1, &[0, 7, 0, 0, 0, 9, 0, 1], 1032));
/// assert!(!format.continues(&shape, &begin, 1, &[0, 7, 0, 0, 0, 8, 0, 1], 1032));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// Every head starts with these bytes.
    pub magic: &'static [u8],
    /// The stream.
    pub stream: Field,
    /// The packet within the stream.
    pub packet: Field,
    /// The unit within the packet, from 0.
    pub unit: Field,
}

/// Which packet of which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedBegin {
    /// The stream.
    pub stream: u64,
    /// The packet.
    pub packet: u64,
}

impl Fixed {
    fn read(&self, shape: &Shape, index: u16, head: &[u8], len: u32) -> Option<FixedBegin> {
        let expected = u32::from(shape.head_len(index)) + u32::from(shape.payload_len(index));
        if len != expected || !head.starts_with(self.magic) {
            return None;
        }
        let is_unit = self.unit.read(head)? == u64::from(index);
        let begin = FixedBegin { stream: self.stream.read(head)?, packet: self.packet.read(head)? };
        is_unit.then_some(begin)
    }
}

impl Format for Fixed {
    type Flow = u64;
    type Begin = FixedBegin;

    fn begins(&self, shape: &Shape, head: &[u8], len: u32) -> Option<FixedBegin> {
        self.read(shape, 0, head, len)
    }

    fn continues(
        &self,
        shape: &Shape,
        begin: &FixedBegin,
        index: u16,
        head: &[u8],
        len: u32,
    ) -> bool {
        self.read(shape, index, head, len) == Some(*begin)
    }

    fn flow(&self, begin: &FixedBegin) -> u64 {
        begin.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_are_cut_short_or_lie_about_fields_are_nothing() {
        let format = Fixed {
            magic: b"L",
            stream: Field { at: 1, len: 1 },
            packet: Field { at: 2, len: 9 },
            unit: Field { at: 3, len: 1 },
        };
        let shape = Shape::new(2, (16, 16), (8, 8, 8)).unwrap();
        assert_eq!(format.begins(&shape, &[b'L'; 16], 24), None, "no number has nine bytes");
        let format = Fixed { packet: Field { at: 15, len: 2 }, ..format };
        assert_eq!(format.begins(&shape, &[b'L'; 16], 24), None, "beyond the head");
    }
}
