//! The IPv4 header (RFC 791). Options are passed over by their length.

use core::net::Ipv4Addr;

use landfall_placement::Refusal;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pseudo::of_words;

/// The length of a header without options.
pub const LEN: usize = size_of::<Header>();
/// The longest header: its length field counts up to 15 words.
pub const LEN_MAX: usize = 60;

/// In [`Header::fragment`]: no router may cut this packet.
pub const DO_NOT_FRAGMENT: u16 = 0x4000;
/// In [`Header::fragment`]: this is not the last piece.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// In [`Header::fragment`]: where the piece starts, in units of 8 bytes.
pub const OFFSET: u16 = 0x1fff;

const _: () = assert!(LEN == 20);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// The version (4) in the high half, the length of the header in words in the low one.
    pub version_and_words: u8,
    /// The code point for differentiated services, and ECN in the low two bits.
    pub traffic_class: u8,
    /// The length of header and payload.
    pub total_len: U16,
    /// Which pieces belong together.
    pub id: U16,
    /// [`DO_NOT_FRAGMENT`], [`MORE_FRAGMENTS`] and [`OFFSET`].
    pub fragment: U16,
    /// How many routers more may be passed.
    pub hop_limit: u8,
    /// What follows.
    pub protocol: u8,
    /// The Internet checksum over this header.
    pub sum: U16,
    /// Who sends.
    pub source: [u8; 4],
    /// Who is meant.
    pub destination: [u8; 4],
}

impl Header {
    /// The length of the header with its options.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] for another version or a length below [`LEN`].
    pub const fn header_len(&self) -> Result<usize, Refusal> {
        let len = (self.version_and_words & 0xf) as usize * 4;
        if self.version_and_words >> 4 != 4 || len < LEN {
            return Err(Refusal::Malformed);
        }
        Ok(len)
    }

    /// Where this piece starts in the payload of its packet.
    #[must_use]
    pub const fn offset(&self) -> u32 {
        (self.fragment.get() & OFFSET) as u32 * 8
    }

    /// Whether more pieces follow this one.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// The address of who sends.
    #[must_use]
    pub const fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.source)
    }

    /// The address of who is meant.
    #[must_use]
    pub const fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.destination)
    }

    /// Fills in the checksum of a header without options.
    pub fn seal(&mut self) {
        self.sum = U16::ZERO;
        self.sum = (!of_words(self.as_bytes())).into();
    }
}

/// Reads the header at the start of `bytes`, which hold at least [`LEN`] bytes
/// of it, and says how long it is with its options. The checksum is not looked
/// at: it needs the options, too. See [`is_intact`].
///
/// # Errors
/// [`Refusal::Truncated`] and [`Refusal::Malformed`].
pub fn read(bytes: &[u8]) -> Result<(&Header, usize), Refusal> {
    let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
    let len = header.header_len()?;
    if usize::from(header.total_len.get()) < len {
        return Err(Refusal::Malformed);
    }
    Ok((header, len))
}

/// Whether the checksum of a whole header, options included, is right.
#[must_use]
#[inline]
pub fn is_intact(header: &[u8]) -> bool {
    of_words(header) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a DNS query, as many texts print it, with its checksum.
    const KNOWN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn a_known_header_is_intact_and_seals_to_itself() {
        let (header, len) = read(&KNOWN).unwrap();
        assert_eq!((len, header.total_len.get(), header.protocol), (20, 0x73, 17));
        assert_eq!(header.fragment.get(), DO_NOT_FRAGMENT);
        assert_eq!(header.source(), Ipv4Addr::new(192, 168, 0, 1));
        assert_eq!(header.destination(), Ipv4Addr::new(192, 168, 0, 199));
        assert!(is_intact(&KNOWN));
        let mut again = *header;
        again.seal();
        assert_eq!(again, *header);
    }

    #[test]
    fn one_flipped_bit_is_noticed() {
        for bit in 0..160 {
            let mut bytes = KNOWN;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(&bytes), "bit {bit}");
        }
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        for (at, value) in [(0, 0x44), (0, 0x55), (0, 0x35), (3, 19)] {
            let mut bytes = KNOWN;
            bytes[at] = value;
            assert_eq!(read(&bytes), Err(Refusal::Malformed), "byte {at} = {value:#x}");
        }
        assert_eq!(read(&KNOWN[..19]), Err(Refusal::Truncated));
    }
}
