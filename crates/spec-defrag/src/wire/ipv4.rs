//! The IPv4 header (RFC 791).

use landfall_placement::{Ecn, Refusal};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Fragment, Key, Parsed, Stop, ethernet};

/// The length of a header without options.
pub const LEN: usize = size_of::<Header>();
/// The longest options: the length of a header counts up to 15 words.
pub const OPTIONS_MAX: usize = 40;
/// The length of the longest packet, header included.
pub const PACKET_MAX: u32 = 65_535;

/// In [`Header::fragment`]: no router may cut this packet.
pub const DO_NOT_FRAGMENT: u16 = 0x4000;
/// In [`Header::fragment`]: this is not the last piece.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// In [`Header::fragment`]: where the piece starts, in units of 8 bytes.
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
    /// Which pieces belong together.
    pub id: U16,
    /// [`DO_NOT_FRAGMENT`], [`MORE_FRAGMENTS`] and [`OFFSET`].
    pub fragment: U16,
    /// How many routers more may be passed.
    pub hop_limit: u8,
    /// What follows.
    pub protocol: u8,
    /// The Internet checksum over this header and its options.
    pub sum: U16,
    /// Who sends.
    pub source: [u8; 4],
    /// Who is meant.
    pub destination: [u8; 4],
}

impl Header {
    /// The length of the header with its options; below [`LEN`] in none that is valid.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        (self.version_and_words & 0xf) as usize * 4
    }

    /// The packet is a piece of one.
    #[must_use]
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.fragment.get() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Which piece.
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

    /// Which packet.
    #[must_use]
    #[inline]
    pub const fn key(&self) -> Key {
        Key {
            source: u32::from_be_bytes(self.source) as u128,
            destination: u32::from_be_bytes(self.destination) as u128,
            id: self.id.get() as u32,
            protocol: self.protocol as u16,
        }
    }
}

/// The folded sum of the words of a header, not inverted: 0xffff in one that is intact.
///
/// The length of a header is a multiple of 4.
#[must_use]
#[inline]
pub fn sum(header: &[u8]) -> u16 {
    let (words, _) = header.as_chunks::<4>();
    let total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    // Ones' complement: what runs over at the top comes in again at the bottom.
    let folded = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    // The sum does not depend on the byte order it was made in (RFC 1071, 2B).
    u16::from_be(folded as u16)
}

/// Fills in the checksum of a header, with its options: `bytes` are these and no more.
///
/// Bytes that are too few for a header stay as they are.
pub fn seal(bytes: &mut [u8]) {
    if let Ok((header, options)) = Header::mut_from_prefix(bytes) {
        header.sum = header.checksum(options).into();
    }
}

/// Reads the frame, which carries IPv4.
#[inline]
pub(super) fn parse(head: &[u8], frame_len: u32) -> Result<Parsed, Stop> {
    const NETWORK_AT: usize = ethernet::LEN;
    let Some((header, _)) =
        head.get(NETWORK_AT..).and_then(|bytes| Header::ref_from_prefix(bytes).ok())
    else {
        return Err(cut_short(NETWORK_AT + LEN, frame_len, Stop::Foreign));
    };
    let header_len = header.header_len();
    let total_len = u32::from(header.total_len.get());
    let payload_at = NETWORK_AT + header_len;
    if header.version_and_words >> 4 != 4 {
        return Err(Stop::Foreign);
    }
    let is_odd = header_len < LEN || (total_len as usize) < header_len;
    let is_cut = NETWORK_AT as u32 + total_len > frame_len;
    let payload_len = total_len.wrapping_sub(header_len as u32);
    let fragment = if header.is_fragment() {
        if is_odd {
            return Err(Stop::Refused(Refusal::Malformed));
        }
        if is_cut {
            return Err(Stop::Refused(Refusal::Truncated));
        }
        let Some(bytes) = head.get(NETWORK_AT..payload_at) else {
            return Err(Stop::NeedHead(payload_at as u16));
        };
        if sum(bytes) != 0xffff {
            return Err(Stop::Refused(Refusal::BadChecksum));
        }
        let piece = header.piece();
        check_piece(&piece, payload_len, PACKET_MAX - LEN as u32)?;
        Some(piece)
    } else {
        // Whether its checksum is right is for the stack above to say.
        if is_odd || is_cut {
            return Err(Stop::Foreign);
        }
        None
    };
    Ok(Parsed {
        key: header.key(),
        fragment,
        protocol: header.protocol,
        network_at: NETWORK_AT as u16,
        payload_at: payload_at as u16,
        payload_len,
        ecn: Ecn::from_bits(header.traffic_class),
    })
}

/// What every piece of a packet has to keep to, in both versions of IP.
///
/// A piece that is not the last one ends where the next may start, at a multiple
/// of 8 (RFC 791, section 2.3; RFC 8200, section 4.5); none is empty; none
/// reaches behind the end of the longest packet.
#[inline]
pub(super) const fn check_piece(piece: &Fragment, len: u32, most: u32) -> Result<(), Stop> {
    if len == 0 || (piece.more && !len.is_multiple_of(8)) {
        return Err(Stop::Refused(Refusal::Malformed));
    }
    if piece.offset + len > most {
        return Err(Stop::Refused(Refusal::OutOfBounds));
    }
    Ok(())
}

/// `need` bytes are not at hand: they are still to be shown, or the frame has no
/// more, which is what `short` says.
#[inline]
pub(super) fn cut_short(need: usize, frame_len: u32, short: Stop) -> Stop {
    match u16::try_from(need) {
        Ok(len) if u32::from(len) <= frame_len => Stop::NeedHead(len),
        _ => short,
    }
}
