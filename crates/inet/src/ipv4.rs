//! The IPv4 header (RFC 791). Options are passed over by their length.

use core::net::Ipv4Addr;

use landfall_placement::{Ecn, Refusal};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::sum_of_words;
use crate::fragment::Fragment;
use crate::reassembly::Key;

/// The length of a header without options.
pub const LEN: usize = size_of::<Header>();
/// The longest options: the length of a header counts up to 15 words.
pub const OPTIONS_MAX: usize = 40;
/// The longest header.
pub const LEN_MAX: usize = LEN + OPTIONS_MAX;
/// The length of the longest packet, header included.
pub const PACKET_MAX: u32 = 65_535;

/// In [`Header::fragment`]: no router may cut this packet.
pub const DO_NOT_FRAGMENT: u16 = 0x4000;
/// In [`Header::fragment`]: this is not the last fragment.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// In [`Header::fragment`]: where the fragment starts, in units of 8 bytes.
pub const OFFSET: u16 = 0x1fff;

const _: () = assert!(LEN == 20);

/// The header as it lies in a frame, without options.
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
    /// The identification: the same in all fragments of a packet.
    pub id: U16,
    /// [`DO_NOT_FRAGMENT`], [`MORE_FRAGMENTS`] and [`OFFSET`].
    pub fragment: U16,
    /// How many more routers may forward it.
    pub hop_limit: u8,
    /// What follows.
    pub protocol: u8,
    /// The Internet checksum over this header and its options.
    pub sum: U16,
    /// The address of the sender.
    pub source: [u8; 4],
    /// The address of the receiver.
    pub destination: [u8; 4],
}

impl Header {
    /// The header in these bytes, unchecked.
    #[must_use]
    #[inline]
    pub const fn view(bytes: &[u8; LEN]) -> &Self {
        zerocopy::transmute_ref!(bytes)
    }

    /// The version: 4 in all packets that are accepted.
    #[must_use]
    #[inline]
    pub const fn version(&self) -> u8 {
        self.version_and_words >> 4
    }

    /// The length of the header with its options, as it says; below [`LEN`] in none that
    /// is valid.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        (self.version_and_words & 0xf) as usize * 4
    }

    /// The packet is a fragment of one.
    #[must_use]
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.fragment.get() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Which fragment.
    #[must_use]
    #[inline]
    pub const fn piece(&self) -> Fragment {
        let field = self.fragment.get();
        Fragment {
            id: self.id.get() as u32,
            offset: (field & OFFSET) as u32 * 8,
            more: field & MORE_FRAGMENTS != 0,
        }
    }

    /// Which packet its fragments belong to.
    #[must_use]
    #[inline]
    pub const fn key(&self) -> Key {
        Key::ipv4(self.source, self.destination, self.id.get(), self.protocol)
    }

    /// The congestion mark.
    #[must_use]
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.traffic_class)
    }

    /// The address of the sender.
    #[must_use]
    #[inline]
    pub const fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.source)
    }

    /// The address of the receiver.
    #[must_use]
    #[inline]
    pub const fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_octets(self.destination)
    }

    /// The checksum of this header with these options, whatever [`Self::sum`] is.
    ///
    /// It is made of the fields: a header that was just written field by field costs
    /// more to read in words than all of the sum.
    #[must_use]
    #[inline]
    pub fn checksum(&self, options: &[u8]) -> u16 {
        let pair = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low]));
        let [a, b, c, d] = self.source;
        let [e, f, g, h] = self.destination;
        let fixed = pair(self.version_and_words, self.traffic_class)
            + u32::from(self.total_len.get())
            + u32::from(self.id.get())
            + u32::from(self.fragment.get())
            + pair(self.hop_limit, self.protocol)
            + (pair(a, b) + pair(c, d))
            + (pair(e, f) + pair(g, h));
        // A header has no more: nothing overflows.
        let words = options[..options.len().min(OPTIONS_MAX)].as_chunks::<2>().0;
        let sum = fixed + words.iter().map(|[high, low]| pair(*high, *low)).sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// Fills in the checksum of a header without options.
    #[inline]
    pub fn seal(&mut self) {
        self.sum = self.checksum(&[]).into();
    }
}

/// Reads the header at the start of `bytes`, which hold at least [`LEN`] bytes
/// of it, and says how long it is with its options. The checksum is not looked
/// at: it needs the options, too. See [`is_intact`].
///
/// # Errors
/// [`Refusal::Truncated`]; [`Refusal::Malformed`] for another version, a length below
/// [`LEN`], or a packet shorter than its header.
#[inline]
pub fn read(bytes: &[u8]) -> Result<(&Header, usize), Refusal> {
    let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
    let len = header.header_len();
    if header.version() != 4 || len < LEN || usize::from(header.total_len.get()) < len {
        return Err(Refusal::Malformed);
    }
    Ok((header, len))
}

/// Whether the checksum of a whole header, options included, is right.
#[must_use]
#[inline]
pub fn is_intact(header: &[u8]) -> bool {
    sum_of_words(header) == 0xffff
}

/// Fills in the checksum of a header with its options: `bytes` are these and no more.
///
/// Bytes that are too few for a header stay as they are.
pub fn seal(bytes: &mut [u8]) {
    if let Ok((header, options)) = Header::mut_from_prefix(bytes) {
        header.sum = header.checksum(options).into();
    }
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
