//! What a header has to say: the part of speculation that knows a protocol.
//!
//! Everything else (which place comes next, the check of a burst, what to learn
//! from it) works on lengths alone. [`Ip`] is the format of IP fragments;
//! [`Fixed`] is one for headers of your own.
//!
//! IP fragments: the plain ones, in the way that a fast sender cuts.
//!
//! What has options, extension headers, congestion marks that differ or anything
//! else out of the ordinary is not recognised here; the conventional path knows it.

use core::fmt::Debug;
use core::hash::Hash;

use landfall_inet::{ethernet, fragment, ipv4, ipv6, protocol, udp};

use crate::shape::Shape;
use crate::wire::Key;

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
/// use spec_defrag::{HeadLens, PayloadLens, Shape};
///
/// // stream: u16, packet: u32, unit: u16
/// let format = Fixed {
///     magic: &[],
///     stream: Field { at: 0, len: 2 },
///     packet: Field { at: 2, len: 4 },
///     unit: Field { at: 6, len: 2 },
/// };
/// let shape = Shape::new(4, HeadLens { first: 8, rest: 8 }, PayloadLens { first: 1024, middle: 1024, last: 1024 }).unwrap();
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

/// The format of IPv4 and IPv6 fragments in Ethernet frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ip;

/// What a first fragment says, and every other of its packet repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The five words of the IPv4 header.
    V4([u32; 5]),
    /// The IPv6 header and the fragment header.
    V6 {
        /// Version, class and flow label.
        first: u32,
        /// The source address.
        source: u128,
        /// The destination address.
        destination: u128,
        /// The identification.
        id: u32,
        /// The header behind the fragment header.
        protocol: u8,
    },
}

impl Begin {
    /// The packet.
    #[must_use]
    pub fn key(&self) -> Key {
        match *self {
            Self::V4(words) => Key {
                source: u128::from(words[3]),
                destination: u128::from(words[4]),
                id: words[1] >> 16,
                protocol: (words[2] >> 16) as u16 & 0xff,
            },
            Self::V6 { source, destination, id, .. } => {
                Key { source, destination, id, protocol: Key::IPV6 }
            }
        }
    }
}

const ETHERNET: usize = ethernet::LEN;
const HEAD_V4: usize = ETHERNET + ipv4::LEN;
const HEAD_V6: usize = ETHERNET + ipv6::LEN + fragment::LEN;

/// More fragments follow.
const MORE_V4: u32 = ipv4::MORE_FRAGMENTS as u32;
/// The packet was not to be cut: a link below IP may have, and keeps the flag.
const DONT_FRAGMENT: u32 = ipv4::DO_NOT_FRAGMENT as u32;
const TIME_TO_LIVE: u32 = 0xff00_0000;

/// What the flags and the offset of a fragment have to be.
const fn flags_v4(payload_at: u32, is_last: bool) -> u32 {
    (payload_at / 8) | if is_last { 0 } else { MORE_V4 }
}

/// Where the piece of a unit starts in the payload of the IP packet. The transport
/// header stands before the page, and in the first fragment.
const fn piece_at(shape: &Shape, index: u16, head_len: u16) -> u32 {
    let transport = (shape.head_len(0) as u32).wrapping_sub(head_len as u32);
    if index == 0 { 0 } else { transport.wrapping_add(shape.at(index)) }
}

/// The header of IPv4, with a sum that is right and a length that is the frame's. Its words are
/// needed to compare them with others', and are added up in passing.
#[inline]
fn words_v4(head: &[u8], len: u32) -> Option<[u32; 5]> {
    let head: &[u8; HEAD_V4] = head.first_chunk()?;
    let mut words = [0; 5];
    let mut sum = 0_u64;
    for (word, bytes) in words.iter_mut().zip(head[ETHERNET..].chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        sum += u64::from(*word);
    }
    let is_plain = head[12..14] == ethernet::IPV4.to_be_bytes()
        && words[0] >> 24 == 0x45
        && (words[0] & 0xffff) + ETHERNET as u32 == len;
    (is_plain && fold(sum) == 0xffff).then_some(words)
}

/// The Internet sum of what was added up in words of 32 bits.
const fn fold(sum: u64) -> u64 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}

/// Whether a packet of this shape is cut as senders cut, in equal pieces, and is not
/// longer than a packet can be.
#[inline]
fn is_possible(shape: &Shape, longest: u32) -> bool {
    let transport = u32::from(shape.head_len(0)) - u32::from(shape.head_len(1));
    let pieces_are_alike = shape.units() < 3
        || transport + u32::from(shape.payload_len(0)) == u32::from(shape.payload_len(1));
    pieces_are_alike && transport + shape.body_len() <= longest
}

/// The headers of IPv6, and the offset with its flag.
#[inline]
fn read_v6(head: &[u8], len: u32) -> Option<(Begin, u32)> {
    let head: &[u8; HEAD_V6] = head.first_chunk()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let address = |at: usize| head[at..].first_chunk().map(|bytes| u128::from_be_bytes(*bytes));
    let is_plain = head[12..14] == ethernet::IPV6.to_be_bytes()
        && head[14] >> 4 == 6
        && (word(18) >> 16) + (ETHERNET + ipv6::LEN) as u32 == len
        && head[20] == protocol::FRAGMENT;
    if !is_plain {
        return None;
    }
    let begin = Begin::V6 {
        first: word(14),
        source: address(22)?,
        destination: address(38)?,
        id: word(58),
        protocol: head[54],
    };
    Some((begin, word(54) & 0xffff))
}

/// Whether the transport header ends where the shape says that the payload starts.
#[inline]
fn transport_fits(head: &[u8], network_end: usize, protocol: u8) -> bool {
    let len = head.len().wrapping_sub(network_end);
    match protocol {
        protocol::TCP => {
            head.get(network_end + 12).is_some_and(|words| usize::from(words >> 4) * 4 == len)
        }
        protocol::UDP => len == udp::LEN,
        _ => len == 0,
    }
}

impl Format for Ip {
    type Flow = Key;
    type Begin = Begin;

    #[inline]
    fn begins(&self, shape: &Shape, head: &[u8], len: u32) -> Option<Begin> {
        let head = head.get(..usize::from(shape.head_len(0)))?;
        let is_expected = len == u32::from(shape.head_len(0)) + u32::from(shape.payload_len(0))
            && shape.head_len(0) >= shape.head_len(1);
        if !is_expected {
            return None;
        }
        match usize::from(shape.head_len(1)) {
            HEAD_V4 => {
                let words = words_v4(head, len)?;
                let protocol = (words[2] >> 16) as u8;
                let is_first = is_possible(shape, ipv4::PACKET_MAX - ipv4::LEN as u32)
                    && words[1] & (0xffff ^ DONT_FRAGMENT) == MORE_V4
                    && transport_fits(head, HEAD_V4, protocol);
                is_first.then_some(Begin::V4(words))
            }
            HEAD_V6 => {
                let (begin, place) = read_v6(head, len)?;
                let is_first = is_possible(shape, ipv6::PAYLOAD_MAX)
                    && place == 1
                    && transport_fits(head, HEAD_V6, head[54]);
                is_first.then_some(begin)
            }
            // Of a packet with more headers, which may be as long as another's with fewer
            // and a longer transport header: the rest of that would lie elsewhere.
            _ => None,
        }
    }

    #[inline]
    fn continues(&self, shape: &Shape, begin: &Begin, index: u16, head: &[u8], len: u32) -> bool {
        let head_len = shape.head_len(index);
        let at = piece_at(shape, index, head_len);
        let is_expected = len == u32::from(head_len) + u32::from(shape.payload_len(index))
            && at.is_multiple_of(8);
        if !is_expected {
            return false;
        }
        let is_last = index + 1 == shape.units();
        match begin {
            Begin::V4(first) => {
                // It has no header of IPv4 that is whole.
                let Some(words) = words_v4(head, len) else { return false };
                words[0] >> 16 == first[0] >> 16
                    && words[1] == first[1] & (0xffff_0000 | DONT_FRAGMENT) | flags_v4(at, is_last)
                    && (words[2] ^ first[2]) & (TIME_TO_LIVE | 0x00ff_0000) == 0
                    && words[3..] == first[3..]
            }
            Begin::V6 { .. } => {
                // It has no header of IPv6 that is whole.
                let Some((other, place)) = read_v6(head, len) else { return false };
                other == *begin && place == at | u32::from(!is_last)
            }
        }
    }

    #[inline]
    fn flow(&self, begin: &Begin) -> Key {
        begin.key().flow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{HeadLens, PayloadLens};

    #[test]
    fn heads_that_are_cut_short_or_lie_about_fields_are_nothing() {
        let format = Fixed {
            magic: b"L",
            stream: Field { at: 1, len: 1 },
            packet: Field { at: 2, len: 9 },
            unit: Field { at: 3, len: 1 },
        };
        let shape = Shape::new(
            2,
            HeadLens { first: 16, rest: 16 },
            PayloadLens { first: 8, middle: 8, last: 8 },
        )
        .unwrap();
        assert_eq!(format.begins(&shape, &[b'L'; 16], 24), None, "no number has nine bytes");
        let format = Fixed { packet: Field { at: 15, len: 2 }, ..format };
        assert_eq!(format.begins(&shape, &[b'L'; 16], 24), None, "beyond the head");
    }

    fn head_v4(payload: u16, flags: u16, transport: &[u8]) -> std::vec::Vec<u8> {
        let mut head = std::vec![2; 12];
        head.extend([0x08, 0x00, 0x45, 0]);
        head.extend((20 + payload).to_be_bytes());
        head.extend([0x12, 0x34]);
        head.extend(flags.to_be_bytes());
        head.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = landfall_placement::checksum::checksum(&head[14..34]);
        head[24..26].copy_from_slice(&sum.to_be_bytes());
        head.extend(transport);
        head
    }

    fn page() -> Shape {
        Shape::new(
            3,
            HeadLens { first: 42, rest: 34 },
            PayloadLens { first: 1472, middle: 1480, last: 1144 },
        )
        .unwrap()
    }

    #[test]
    fn a_page_in_three_fragments_is_recognised() {
        let shape = page();
        let begin = Ip.begins(&shape, &head_v4(1480, 0x2000, &[0; 8]), 1514).unwrap();
        assert_eq!(begin.key().id, 0x1234);
        assert!(Ip.continues(&shape, &begin, 1, &head_v4(1480, 0x2000 | 185, &[]), 1514));
        assert!(Ip.continues(&shape, &begin, 2, &head_v4(1144, 370, &[]), 1178));
    }

    #[test]
    fn whatever_is_not_exactly_the_next_fragment_is_not() {
        let shape = page();
        let begin = Ip.begins(&shape, &head_v4(1480, 0x2000, &[0; 8]), 1514).unwrap();
        let next = head_v4(1480, 0x2000 | 185, &[]);
        for bit in 0..next.len() * 8 {
            let mut other = next.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            // The addresses of the link are not looked at.
            let is_same = Ip.continues(&shape, &begin, 1, &other, 1514);
            assert_eq!(is_same, bit / 8 < 12, "bit {bit}");
        }
        assert!(!Ip.continues(&shape, &begin, 1, &next, 1515), "padded");
        assert!(!Ip.continues(&shape, &begin, 2, &next, 1514), "another index");
        for len in 0..next.len() {
            assert!(!Ip.continues(&shape, &begin, 1, &next[..len], 1514), "a head of {len}");
        }
    }

    fn head_v6(payload: u16, place: u16, transport: &[u8]) -> std::vec::Vec<u8> {
        let mut head = std::vec![2; 12];
        head.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        head.extend((8 + payload).to_be_bytes());
        head.extend([protocol::FRAGMENT, 64]);
        head.extend([0xfd; 32]);
        head.extend([protocol::TCP, 0]);
        head.extend(place.to_be_bytes());
        head.extend([0, 0, 0, 7]);
        head.extend(transport);
        head
    }

    #[test]
    fn headers_as_long_as_those_of_another_packet_begin_none_of_its_shape() {
        // TCP with 12 bytes of options behind 62 of IPv6; and UDP behind a further header.
        let mut transport = [0; 32];
        transport[12] = 8 << 4;
        let head = head_v6(1448, 1, &transport);
        let its_own = Shape::new(
            3,
            HeadLens { first: 94, rest: 62 },
            PayloadLens { first: 1416, middle: 1448, last: 1232 },
        )
        .unwrap();
        assert!(Ip.begins(&its_own, &head, 1510).is_some());
        let another = Shape::new(
            3,
            HeadLens { first: 94, rest: 86 },
            PayloadLens { first: 1416, middle: 1424, last: 1256 },
        )
        .unwrap();
        assert_eq!(Ip.begins(&another, &head, 1510), None);
    }

    #[test]
    fn a_shape_that_no_fragments_have_fits_nothing() {
        // The second piece would start at 1476, which is no multiple of eight: what
        // truly lies at 1472 is not taken for it.
        let odd = Shape::new(
            3,
            HeadLens { first: 42, rest: 34 },
            PayloadLens { first: 1468, middle: 1476, last: 1144 },
        )
        .unwrap();
        let begin = Ip.begins(&odd, &head_v4(1476, 0x2000, &[0; 8]), 1510).unwrap();
        assert!(!Ip.continues(&odd, &begin, 1, &head_v4(1476, 0x2000 | 184, &[]), 1510));
        let unlike = Shape::new(
            3,
            HeadLens { first: 42, rest: 34 },
            PayloadLens { first: 1464, middle: 1480, last: 1144 },
        )
        .unwrap();
        assert_eq!(Ip.begins(&unlike, &head_v4(1472, 0x2000, &[0; 8]), 1506), None);
        let backwards = Shape::new(
            3,
            HeadLens { first: 34, rest: 42 },
            PayloadLens { first: 1480, middle: 1480, last: 1480 },
        )
        .unwrap();
        assert_eq!(Ip.begins(&backwards, &head_v4(1480, 0x2000, &[]), 1514), None);
        let too_long = Shape::new(
            64,
            HeadLens { first: 42, rest: 34 },
            PayloadLens { first: 1472, middle: 1480, last: 1480 },
        )
        .unwrap();
        assert_eq!(Ip.begins(&too_long, &head_v4(1480, 0x2000, &[0; 8]), 1514), None);
    }
}
