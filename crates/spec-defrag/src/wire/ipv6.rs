//! The IPv6 header, the fragment header, and what may stand between the two (RFC 8200).

use landfall_placement::{Ecn, Refusal};
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ipv4::{check_piece, cut_short};
use super::{Fragment, Key, Parsed, Stop, ethernet, protocol};
use crate::packet::Head;

/// The length of the header.
pub const LEN: usize = size_of::<Header>();
/// The length of the fragment header.
pub const FRAGMENT_LEN: usize = size_of::<FragmentHeader>();
/// The most that may follow the header in one packet.
pub const PAYLOAD_MAX: u32 = 65_535;

const _: () = assert!(LEN == 40 && FRAGMENT_LEN == 8);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// 4 bits version (6), 8 bits traffic class, 20 bits flow label.
    pub version_class_label: [u8; 4],
    /// The length of all that follows this header.
    pub payload_len: U16,
    /// What follows.
    pub next_header: u8,
    /// How many routers more may be passed.
    pub hop_limit: u8,
    /// Who sends.
    pub source: [u8; 16],
    /// Who is meant.
    pub destination: [u8; 16],
}

impl Header {
    /// The congestion mark: the low two bits of the traffic class.
    #[must_use]
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.version_class_label[1] >> 4)
    }

    /// Changes the congestion mark.
    pub const fn set_ecn(&mut self, ecn: Ecn) {
        let byte = &mut self.version_class_label[1];
        *byte = *byte & !0x30 | (ecn as u8) << 4;
    }
}

/// The fragment header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FragmentHeader {
    /// What the whole packet goes on with.
    pub next_header: u8,
    /// Not used.
    pub reserved: u8,
    /// The offset in bytes in the high 13 bits (it is a multiple of 8), and
    /// whether more follow in the lowest.
    pub offset_and_more: U16,
    /// Which pieces belong together.
    pub id: U32,
}

impl FragmentHeader {
    /// The header of this piece.
    #[must_use]
    pub fn new(next_header: u8, piece: Fragment) -> Self {
        let offset = piece.offset as u16 & !7;
        Self {
            next_header,
            reserved: 0,
            offset_and_more: (offset | u16::from(piece.more)).into(),
            id: piece.id.into(),
        }
    }

    /// What it says of this piece.
    #[must_use]
    #[inline]
    pub const fn piece(&self) -> Fragment {
        let field = self.offset_and_more.get();
        Fragment { id: self.id.get(), offset: (field & !7) as u32, more: field & 1 == 1 }
    }
}

/// Where the headers end that are part of every piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// What stands at `at`.
    pub(crate) next: u8,
    /// Where the byte is that says so.
    pub(crate) next_at: usize,
    /// Where the headers that were walked over end.
    pub(crate) at: usize,
}

impl Walk {
    /// At the end of the IPv6 header that starts at `network_at`.
    #[inline]
    pub(crate) const fn new(header: &Header, network_at: usize) -> Self {
        Self { next: header.next_header, next_at: network_at + 6, at: network_at + LEN }
    }

    /// Walks over what may stand before a fragment header: hop-by-hop options,
    /// options for the stations on the way, a routing header.
    ///
    /// Only where the packet has reached the end of its route it may be joined
    /// (RFC 8200, section 4.5): `Foreign` before. The same for headers that are
    /// longer than what fits in a [`Head`]: whoever is above joins them.
    fn run(&mut self, head: &[u8], frame_len: u32) -> Result<(), Stop> {
        while matches!(self.next, protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION)
        {
            let Some(bytes) = head.get(self.at..self.at + 8) else {
                return Err(cut_short(self.at + 8, frame_len, Stop::Foreign));
            };
            if self.next == protocol::ROUTING && bytes[3] != 0 {
                return Err(Stop::Foreign);
            }
            let end = self.at + 8 + usize::from(bytes[1]) * 8;
            if end > Head::MOST {
                return Err(Stop::Foreign);
            }
            *self = Self { next: bytes[0], next_at: self.at, at: end };
        }
        Ok(())
    }

    /// Up to where the headers reach that every piece of a packet repeats, if it has
    /// to be cut: up to a fragment header that is there, else up to the end of the
    /// routing header or, without one, of the hop-by-hop options (RFC 8200, section
    /// 4.5). `None` if not all of them are in `head`.
    pub(crate) fn per_fragment(header: &Header, head: &[u8], network_at: usize) -> Option<Self> {
        let mut walk = Self::new(header, network_at);
        let mut reached = walk;
        loop {
            match walk.next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {}
                protocol::FRAGMENT => return Some(walk),
                _ => return Some(reached),
            }
            let is_per_fragment = walk.next != protocol::DESTINATION;
            walk = walk.step(head)?;
            if is_per_fragment {
                reached = walk;
            }
        }
    }

    /// Walks over one header.
    fn step(self, bytes: &[u8]) -> Option<Self> {
        let next = *bytes.get(self.at)?;
        let len = 8 + usize::from(*bytes.get(self.at + 1)?) * 8;
        Some(Self { next, next_at: self.at, at: self.at + len })
    }

    /// Walks up to `end`, over headers that were walked over before: where the byte
    /// is that says what follows there.
    pub(crate) fn to(mut self, bytes: &[u8], end: usize) -> Option<usize> {
        while self.at < end {
            self = self.step(bytes)?;
        }
        (self.at == end).then_some(self.next_at)
    }
}

/// Reads the frame, which carries IPv6.
#[inline]
pub(super) fn parse(head: &[u8], frame_len: u32) -> Result<Parsed, Stop> {
    const NETWORK_AT: usize = ethernet::LEN;
    let Some((header, _)) =
        head.get(NETWORK_AT..).and_then(|bytes| Header::ref_from_prefix(bytes).ok())
    else {
        return Err(cut_short(NETWORK_AT + LEN, frame_len, Stop::Foreign));
    };
    let end = NETWORK_AT + LEN + usize::from(header.payload_len.get());
    // A length of 0 is a jumbogram's (RFC 2675), which cannot be a piece.
    if header.version_class_label[0] >> 4 != 6 || header.payload_len.get() == 0 {
        return Err(Stop::Foreign);
    }
    let mut walk = Walk::new(header, NETWORK_AT);
    walk.run(head, frame_len)?;
    let is_cut = end > frame_len as usize;
    let mut parsed = Parsed {
        key: Key {
            source: u128::from_be_bytes(header.source),
            destination: u128::from_be_bytes(header.destination),
            id: 0,
            protocol: Key::IPV6,
        },
        fragment: None,
        protocol: walk.next,
        network_at: NETWORK_AT as u16,
        payload_at: walk.at as u16,
        payload_len: 0,
        ecn: header.ecn(),
    };
    if walk.next == protocol::FRAGMENT {
        if is_cut {
            return Err(Stop::Refused(Refusal::Truncated));
        }
        read_piece(&mut parsed, walk.at, end, head)?;
    } else {
        if is_cut || walk.at > end {
            return Err(Stop::Foreign);
        }
        parsed.payload_len = (end - walk.at) as u32;
    }
    Ok(parsed)
}

/// Reads the fragment header at `at`, in a packet that ends at `end`.
fn read_piece(parsed: &mut Parsed, at: usize, end: usize, head: &[u8]) -> Result<(), Stop> {
    let payload_at = at + FRAGMENT_LEN;
    let Some(len) = end.checked_sub(payload_at) else {
        return Err(Stop::Refused(Refusal::Truncated));
    };
    let Some((header, _)) =
        head.get(at..).and_then(|bytes| FragmentHeader::ref_from_prefix(bytes).ok())
    else {
        return Err(Stop::NeedHead(payload_at as u16));
    };
    let piece = header.piece();
    // A whole packet behind a fragment header may be empty (RFC 6946 has no rule
    // against it, and the Linux kernel accepts it).
    if !piece.is_atomic() {
        check_piece(&piece, len as u32, PAYLOAD_MAX)?;
    }
    parsed.key.id = piece.id;
    parsed.fragment = Some(piece);
    parsed.protocol = header.next_header;
    parsed.payload_at = payload_at as u16;
    parsed.payload_len = len as u32;
    Ok(())
}
