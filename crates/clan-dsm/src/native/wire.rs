//! What crosses a native link: packets, and the link's own symbols.
//!
//! A packet is an address, whole words, and the trailer that both ends of the
//! link agreed on. *Its length is not encoded* (section 2.2 of the paper): the
//! link's framing says where a unit ends, so a sender may begin before it knows
//! how long the burst will be, and anybody on the way may end a packet at any
//! word and go on with another.
//!
//! ```text
//! packet:  address (16) | word (8) | word (8) | … | trailer (0, 1 or 4)
//! symbol:  code (1) | zero (1) | host (2) | value (4) | trailer
//! ```
//!
//! A symbol is shorter than any packet, which tells the two apart. Where only
//! some bytes of a word are meant, the packet has the whole word nevertheless,
//! and the others are ignored.
//!
//! What does not live here: when a symbol is sent (see [`native`](crate::native)).

use alloc::vec::Vec;

use landfall_placement::{Refusal, Serial32};

use crate::address::{Address, HostId, Kind, WORD};
use crate::error::Reason;
use crate::native::{Burst, Word};

/// What stands behind a unit, so that damage is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trailer {
    /// Nothing: the link beneath notices by itself, and delivers nothing damaged.
    #[default]
    None,
    /// One byte: the parity of each of the eight bit lanes, as in the paper.
    Parity,
    /// The CRC-32C of all before it, in network byte order.
    Crc32c,
}

impl Trailer {
    /// How many bytes it has.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Parity => 1,
            Self::Crc32c => 4,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Puts it behind the unit.
    pub fn seal(self, unit: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Parity => unit.push(parity(unit)),
            Self::Crc32c => {
                let sum = landfall_placement::crc32c::crc32c(unit);
                unit.extend_from_slice(&sum.to_be_bytes());
            }
        }
    }

    /// The unit without it.
    ///
    /// # Errors
    /// The unit is shorter than its trailer, or was damaged.
    pub fn open(self, unit: &[u8]) -> Result<&[u8], Refusal> {
        let len = unit.len().checked_sub(self.len()).ok_or(Refusal::Truncated)?;
        let (content, trailer) = unit.split_at(len);
        let is_whole = match self {
            Self::None => true,
            Self::Parity => trailer == [parity(content)],
            Self::Crc32c => trailer == landfall_placement::crc32c::crc32c(content).to_be_bytes(),
        };
        if is_whole { Ok(content) } else { Err(Refusal::BadChecksum) }
    }
}

fn parity(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// What the two ends of a link tell each other. None of it needs credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// This end begins anew: all counts are zero. The number is new each time.
    Begin {
        /// The host at this end; `None` for a switch.
        host: Option<HostId>,
        /// Names this beginning.
        session: u32,
    },
    /// What was begun under this number was heard; all behind this belongs to it.
    Ready {
        /// The host at this end; `None` for a switch.
        host: Option<HostId>,
        /// The number of the other end's beginning.
        session: u32,
    },
    /// Send again.
    Xon,
    /// Send nothing but symbols until [`Xon`](Self::Xon), whatever the credit.
    Xoff,
    /// There is room up to the so-manieth word since the beginning, headers
    /// included. It counts from the beginning, so that saying it twice is harmless.
    Credit(Serial32),
    /// This end takes nothing any more, and why.
    Fault(Reason),
}

/// Who has no number of a host: a switch.
const NO_HOST: u16 = u16::MAX;

impl Symbol {
    /// Bytes on the wire, without the trailer.
    pub const LEN: usize = 8;

    /// As it stands on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let number = |host: Option<HostId>| host.map_or(NO_HOST, HostId::number);
        let (code, host, value): (u8, u16, u32) = match self {
            Self::Begin { host, session } => (1, number(host), session),
            Self::Ready { host, session } => (2, number(host), session),
            Self::Xon => (3, 0, 0),
            Self::Xoff => (4, 0, 0),
            Self::Credit(edge) => (5, 0, edge.0),
            Self::Fault(reason) => (6, 0, reason as u32),
        };
        (u64::from(code) << 56 | u64::from(host) << 32 | u64::from(value)).to_be_bytes()
    }

    /// Reads it from the wire. `None` for what is no symbol.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let all = u64::from_be_bytes(bytes);
        let (number, value) = ((all >> 32) as u16, all as u32);
        let host = || match number {
            NO_HOST => Some(None),
            number => HostId::new(number).map(Some),
        };
        let symbol = match all >> 48 {
            0x0100 => Self::Begin { host: host()?, session: value },
            0x0200 => Self::Ready { host: host()?, session: value },
            0x0300 => Self::Xon,
            0x0400 => Self::Xoff,
            0x0500 => Self::Credit(Serial32(value)),
            0x0600 => Self::Fault(Reason::from_code(value as u8)?),
            _ => return None,
        };
        // Fields without a meaning are zero.
        (symbol.to_bytes() == bytes).then_some(symbol)
    }
}

/// A unit of a link, as far as its first bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A packet: its words begin at byte [`Address::LEN`].
    Packet(Burst),
    /// A symbol of the link.
    Symbol(Symbol),
}

impl Unit {
    /// Reads what `head` begins, of a unit that has `len` bytes without its trailer.
    ///
    /// # Errors
    /// It is neither a packet nor a symbol, or `head` is shorter than either's.
    pub fn parse(head: &[u8], len: u32) -> Result<Self, Refusal> {
        if len == Symbol::LEN as u32 {
            let bytes = head.first_chunk().ok_or(Refusal::Truncated)?;
            return Symbol::from_bytes(*bytes).map(Self::Symbol).ok_or(Refusal::Malformed);
        }
        let address = head.first_chunk().ok_or(Refusal::Truncated)?;
        let address = Address::from_bytes(*address).ok_or(Refusal::Malformed)?;
        let bytes = len.checked_sub(Address::LEN as u32).ok_or(Refusal::Truncated)?;
        if !bytes.is_multiple_of(WORD) {
            return Err(Refusal::Malformed);
        }
        Burst::new(address, bytes / WORD).map(Self::Packet).ok_or(match address.kind {
            // A packet that runs beyond the last offset there is.
            Kind::Burst | Kind::Multicast | Kind::Reply if address.is_burst() && bytes > 0 => {
                Refusal::OutOfBounds
            }
            _ => Refusal::Malformed,
        })
    }
}

/// Writes a packet, without its trailer, into `unit`, which comes empty.
pub fn write_packet(unit: &mut Vec<u8>, burst: &Burst, words: impl IntoIterator<Item = Word>) {
    unit.extend_from_slice(&burst.address().to_bytes());
    for word in words {
        unit.extend_from_slice(&word);
    }
}

/// The words of a packet: what stands behind its header.
#[must_use]
pub fn words_of(packet: &[u8]) -> &[Word] {
    packet.get(Address::LEN..).map_or(&[], |words| words.as_chunks().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Key, WHOLE};
    use proptest::prelude::*;
    use std::vec;

    const TRAILERS: [Trailer; 3] = [Trailer::None, Trailer::Parity, Trailer::Crc32c];

    fn address(kind: Kind, word: u32) -> Address {
        let host = HostId::new(0x123).unwrap();
        Address { kind, host, slot: 0x4567, word, mask: WHOLE, key: Key::from_bits(0x11) }
    }

    #[test]
    fn a_packet_stands_on_the_wire_as_described() {
        let burst = Burst::new(address(Kind::Burst, 2), 1).unwrap();
        let mut unit = Vec::new();
        write_packet(&mut unit, &burst, [*b"eight by"]);
        assert_eq!(
            unit,
            [
                0x01, 0x23, 0x45, 0x67, 0, 0, 0, 2, // kind, host, slot, word
                0xff, 0, 0, 0, 0, 0, 0, 0x11, // mask, key
                b'e', b'i', b'g', b'h', b't', b' ', b'b', b'y',
            ]
        );
        assert_eq!(Unit::parse(&unit[..16], 24), Ok(Unit::Packet(burst)), "the header says enough");
        assert_eq!(words_of(&unit), [*b"eight by"]);
        Trailer::Parity.seal(&mut unit);
        assert_eq!(unit.last(), Some(&(parity(&unit[..24]))));
        unit.pop();
        Trailer::Crc32c.seal(&mut unit);
        assert_eq!(unit.len(), 28);
    }

    #[test]
    fn symbols_stand_on_the_wire_as_described() {
        let host = HostId::new(0x123);
        for (symbol, bytes) in [
            (Symbol::Begin { host, session: 0x89ab_cdef }, [1, 0, 1, 0x23, 0x89, 0xab, 0xcd, 0xef]),
            (Symbol::Ready { host: None, session: 7 }, [2, 0, 0xff, 0xff, 0, 0, 0, 7]),
            (Symbol::Xon, [3, 0, 0, 0, 0, 0, 0, 0]),
            (Symbol::Xoff, [4, 0, 0, 0, 0, 0, 0, 0]),
            (Symbol::Credit(Serial32(0x0102_0304)), [5, 0, 0, 0, 1, 2, 3, 4]),
            (Symbol::Fault(Reason::Malformed), [6, 0, 0, 0, 0, 0, 0, 4]),
        ] {
            assert_eq!(symbol.to_bytes(), bytes);
            assert_eq!(Unit::parse(&bytes, 8), Ok(Unit::Symbol(symbol)));
        }
        for nonsense in [[0; 8], [7; 8], [3, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0x40, 0, 0, 0, 0, 0]] {
            assert_eq!(Unit::parse(&nonsense, 8), Err(Refusal::Malformed), "{nonsense:?}");
        }
    }

    #[test]
    fn what_is_neither_is_refused_and_the_reason_said() {
        let bytes = address(Kind::Burst, u32::MAX).to_bytes();
        for (len, expected) in [
            (0, Refusal::Truncated),
            (15, Refusal::Truncated),
            (16, Refusal::Malformed), // no word
            (23, Refusal::Malformed), // a part of a word
            (32, Refusal::OutOfBounds),
        ] {
            assert_eq!(Unit::parse(&bytes, len), Err(expected), "{len}");
        }
        assert_eq!(Unit::parse(&bytes[..15], 24), Err(Refusal::Truncated));
        let command = address(Kind::Command, 9).to_bytes();
        assert!(Unit::parse(&command, 32).is_ok());
        assert_eq!(Unit::parse(&command, 24), Err(Refusal::Malformed));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_noticed(
            content in proptest::collection::vec(any::<u8>(), 8..200), at: usize, bit in 0..8u8,
        ) {
            for trailer in TRAILERS {
                let mut unit = content.clone();
                trailer.seal(&mut unit);
                prop_assert_eq!(unit.len(), content.len() + trailer.len());
                prop_assert_eq!(trailer.open(&unit), Ok(&content[..]));
                let at = at % unit.len();
                unit[at] ^= 1 << bit;
                if trailer != Trailer::None {
                    prop_assert_eq!(trailer.open(&unit), Err(Refusal::BadChecksum));
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            match Unit::parse(&bytes, bytes.len() as u32) {
                Ok(Unit::Symbol(symbol)) => prop_assert_eq!(&symbol.to_bytes()[..], &bytes[..]),
                Ok(Unit::Packet(burst)) => {
                    let mut again = vec![];
                    write_packet(&mut again, &burst, words_of(&bytes).iter().copied());
                    // Two bits of kind, fourteen of host, all of the key: nothing is dropped.
                    prop_assert_eq!(again, bytes);
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn a_trailer_longer_than_the_unit_is_no_unit() {
        for trailer in [Trailer::Parity, Trailer::Crc32c] {
            assert_eq!(trailer.open(&[]), Err(Refusal::Truncated));
        }
    }
}
