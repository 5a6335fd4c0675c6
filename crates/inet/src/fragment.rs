//! A fragment of a packet: the fragment header of IPv6 (RFC 8200, section 4.5),
//! and what it and the IPv4 header say in the same words.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of the IPv6 header.
pub const LEN: usize = size_of::<Header>();

const _: () = assert!(LEN == 8);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// What the whole packet starts with.
    pub next_header: u8,
    /// Not used.
    pub reserved: u8,
    /// The offset in bytes in the high 13 bits (it is a multiple of 8), and
    /// whether more follow in the lowest.
    pub offset_and_more: U16,
    /// The identification: the same in all pieces of a packet.
    pub id: U32,
}

impl Header {
    /// The header of this piece.
    #[must_use]
    #[inline]
    pub fn new(next_header: u8, piece: Fragment) -> Self {
        let offset = piece.offset as u16 & !7;
        Self {
            next_header,
            reserved: 0,
            offset_and_more: (offset | u16::from(piece.more)).into(),
            id: piece.id.into(),
        }
    }

    /// Which piece it names.
    #[must_use]
    #[inline]
    pub const fn piece(&self) -> Fragment {
        let field = self.offset_and_more.get();
        Fragment { id: self.id.get(), offset: (field & !7) as u32, more: field & 1 == 1 }
    }
}

/// Which piece of a packet this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The identification, the same in all pieces of a packet: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Where the piece starts in the payload; a multiple of 8.
    pub offset: u32,
    /// Whether more pieces follow.
    pub more: bool,
}

impl Fragment {
    /// The only piece: a whole packet that carries a fragment header all the
    /// same, an *atomic fragment* (RFC 6946).
    #[must_use]
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_reads_as_the_rfc_lays_it_out() {
        let bytes = [6, 0, 0x05, 0xa9, 0xde, 0xad, 0xbe, 0xef];
        let header = Header::read_from_bytes(&bytes).unwrap();
        let piece = Fragment { id: 0xdead_beef, offset: 1448, more: true };
        assert_eq!(header.piece(), piece);
        assert_eq!(Header::new(6, piece), header);
    }

    proptest! {
        #[test]
        fn pieces_survive_the_wire(id: u32, offset in 0..8192u32, more: bool, next: u8) {
            let piece = Fragment { id, offset: offset * 8, more };
            prop_assert_eq!(Header::new(next, piece).piece(), piece);
        }
    }
}
