//! Transmit: a packet that is too long for the link leaves as IP fragments, each
//! with its header and its payload as separate descriptors.
//!
//! | module | what lives here |
//! | --- | --- |
//! | this | [`Cutter`]: which packets are cut, what their pieces have in common, and their identifications |
//! | `pieces` | [`Cut`]: one piece after another |
//! | `headers` | their headers; which options of IPv4 every piece repeats |
//!
//! The sums of the transport protocol have to be in the packet: a device that
//! fills them in does so for one frame, not for a packet in several. What does
//! not live here: sending.

mod headers;
mod pieces;
#[cfg(test)]
mod tests;

use core::hash::Hash;

use landfall_inet::{Fragment, ethernet, fragment, ipv4, ipv6, protocol};
use landfall_placement::{Random, Refusal, Seed, Span};
use landfall_tables::{HashIndex, HashSecret};
use zerocopy::FromBytes;

use crate::memory::Head;
use crate::wire::Walk;
use headers::Headers;
use pieces::Rest;

pub use pieces::{Cut, Piece};

/// Every link carries an IPv4 packet of this many bytes (RFC 791, section 3.2).
pub const MTU_MIN_IPV4: u16 = 68;
/// Every link carries an IPv6 packet of this many bytes (RFC 8200, section 5).
pub const MTU_MIN_IPV6: u16 = ipv6::MTU_MIN as u16;

/// What becomes of packets that only their source may cut: those of IPv4 with the
/// flag "don't fragment", and pieces of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Df {
    /// They are not cut, as a router would do it ([`CutError::DoNotFragment`]).
    Refuse,
    /// They are cut all the same: by a link below IP, which promises its user an MTU
    /// that the wire does not have, and joins again at its other end. The flag
    /// stays, so that no router cuts further and anyone who joins the pieces knows.
    Override,
}

/// Why a packet was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// No link for this version of IP carries so little.
    #[error("the MTU is smaller than IP allows")]
    MtuTooSmall,
    /// It does not fit, and only IP packets can be cut.
    #[error("it is longer than the MTU, and not an IP packet")]
    NotIp,
    /// Only its source may cut it.
    #[error("it is longer than the MTU, and may not be fragmented")]
    DoNotFragment,
    /// More than fits in a [`Head`], or not all of the headers that every piece
    /// repeats.
    #[error("its headers are not in the head, or too long for one")]
    BadHead,
    /// The headers contradict themselves or the length of the packet.
    #[error("{0}")]
    Refused(Refusal),
}

impl From<Refusal> for CutError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Cuts packets.
///
/// ```
/// use landfall_placement::RegionId;
/// use spec_defrag::cut::{Cutter, Df};
///
/// # let mut head = [0; 42];
/// # head[12..28].copy_from_slice(&[
/// #     8, 0, 0x45, 0, 0x10, 0x1c, 0, 7, 0, 0, 64, 17, 0x56, 0xc8, 10, 0,
/// # ]);
/// # head[28..34].copy_from_slice(&[0, 1, 10, 0, 0, 2]);
/// let page = RegionId::new(0, 0).span(0, 4096);
/// let mut cutter = Cutter::new(Df::Refuse, [7; 32]);
/// // `head`: the Ethernet, IPv4 and UDP headers of a packet with a page as payload.
/// let pieces: Vec<_> = cutter.cut(&head, page, 1500)?.collect();
/// let lens: Vec<_> = pieces.iter().map(|p| (p.head.len(), p.payload.len)).collect();
/// assert_eq!(lens, [(42, 1472), (34, 1480), (34, 1144)]);
/// # Ok::<(), spec_defrag::cut::CutError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cutter {
    df: Df,
    ids: Ids,
}

impl Cutter {
    /// The seed makes the identifications that others must not guess.
    #[must_use]
    pub fn new(df: Df, seed: Seed) -> Self {
        Self { df, ids: Ids::new(seed) }
    }

    /// Cuts the packet in the Ethernet frame that `head` starts and `body` ends, so
    /// that each piece fits in `mtu` bytes behind the link header.
    ///
    /// A frame that fits leaves as it is, in one piece. The head holds at least
    /// the IP headers, and no more than fits in a [`Head`] behind those of a piece;
    /// what it holds beyond them (a transport header) leaves in the heads of the
    /// pieces, nearly always in the first.
    ///
    /// # Errors
    /// [`CutError`]; nothing was sent.
    pub fn cut<'a>(&mut self, head: &'a [u8], body: Span, mtu: u16) -> Result<Cut<'a>, CutError> {
        let len = head.len() as u64 + u64::from(body.len);
        if len <= ethernet::LEN as u64 + u64::from(mtu) {
            return Cut::untouched(head, body);
        }
        let (ethernet, network) =
            ethernet::Header::ref_from_prefix(head).map_err(|_| CutError::BadHead)?;
        match (ethernet.ethertype.get(), network.first().map(|byte| byte >> 4)) {
            (ethernet::IPV4, Some(4)) => self.cut_ipv4(head, body, mtu),
            (ethernet::IPV6, Some(6)) => self.cut_ipv6(head, body, mtu),
            (ethernet::IPV4 | ethernet::IPV6, None) => Err(CutError::BadHead),
            _ => Err(CutError::NotIp),
        }
    }

    /// A packet that others are to cut. Over IPv4 one that says that it is not to be cut says so no
    /// more, and gets an identification, as its pieces would here. Over IPv6 the one who cuts
    /// chooses that.
    ///
    /// # Errors
    /// [`CutError`]; nothing was changed.
    pub fn let_cut(&mut self, head: &mut [u8]) -> Result<(), CutError> {
        let (link, network) =
            ethernet::Header::mut_from_prefix(head).map_err(|_| CutError::BadHead)?;
        match link.ethertype.get() {
            ethernet::IPV4 => {}
            ethernet::IPV6 => return Ok(()),
            _ => return Err(CutError::NotIp),
        }
        let (header, _) = ipv4::Header::ref_from_prefix(network).map_err(|_| CutError::BadHead)?;
        let (len, key) = (header.header_len(), header.key());
        let bytes = network.get_mut(..len).filter(|_| len >= ipv4::LEN);
        let bytes = bytes.ok_or(CutError::BadHead)?;
        if !ipv4::is_intact(bytes) {
            return Err(Refusal::BadChecksum.into());
        }
        let (header, _) = ipv4::Header::mut_from_prefix(bytes).map_err(|_| CutError::BadHead)?;
        if header.fragment.get() & ipv4::DO_NOT_FRAGMENT == 0 {
            return Ok(());
        }
        if self.df == Df::Refuse {
            return Err(CutError::DoNotFragment);
        }
        let id = self.ids.next(&(key.source, key.destination, key.protocol)) as u16;
        header.fragment.set(header.fragment.get() & !ipv4::DO_NOT_FRAGMENT);
        header.id.set(id);
        ipv4::seal(bytes);
        Ok(())
    }

    fn cut_ipv4<'a>(&mut self, head: &'a [u8], body: Span, mtu: u16) -> Result<Cut<'a>, CutError> {
        let network = &head[ethernet::LEN..];
        let (header, _) = ipv4::Header::ref_from_prefix(network).map_err(|_| CutError::BadHead)?;
        let (header_len, total_len) = (header.header_len(), usize::from(header.total_len.get()));
        if header_len < ipv4::LEN || total_len < header_len {
            return Err(Refusal::Malformed.into());
        }
        let bytes = network.get(..header_len).ok_or(CutError::BadHead)?;
        if !ipv4::is_intact(bytes) {
            return Err(Refusal::BadChecksum.into());
        }
        let (head, body) = without_padding(head, body, ethernet::LEN + total_len)?;
        if total_len <= usize::from(mtu) {
            return Cut::untouched(head, body);
        }
        if mtu < MTU_MIN_IPV4 {
            return Err(CutError::MtuTooSmall);
        }
        let dont_fragment = header.fragment.get() & ipv4::DO_NOT_FRAGMENT != 0;
        if dont_fragment && self.df == Df::Refuse {
            return Err(CutError::DoNotFragment);
        }
        let mut piece = header.piece();
        check_piece(piece, total_len - header_len, ipv4::PACKET_MAX as usize - header_len)?;
        if head.len() > Head::MOST {
            return Err(CutError::BadHead);
        }
        let (headers, extra) = head.split_at(ethernet::LEN + header_len);
        if dont_fragment && !header.is_fragment() {
            // Its identification means nothing (RFC 6864, section 4.1).
            let key = header.key();
            piece.id = self.ids.next(&(key.source, key.destination, key.protocol)) & 0xffff;
        }
        let headers = Headers::ipv4(headers)?;
        Ok(Cut::new(Rest { headers, extra, body, mtu, piece }))
    }

    fn cut_ipv6<'a>(&mut self, head: &'a [u8], body: Span, mtu: u16) -> Result<Cut<'a>, CutError> {
        let (header, _) =
            ipv6::Header::ref_from_prefix(&head[ethernet::LEN..]).map_err(|_| CutError::BadHead)?;
        // A length of 0 is a jumbogram's (RFC 2675), which may not be a piece.
        let len = match usize::from(header.payload_len.get()) {
            0 => return Err(Refusal::Unsupported.into()),
            len => ipv6::LEN + len,
        };
        let (head, body) = without_padding(head, body, ethernet::LEN + len)?;
        if len <= usize::from(mtu) {
            return Cut::untouched(head, body);
        }
        if mtu < MTU_MIN_IPV6 {
            return Err(CutError::MtuTooSmall);
        }
        let split = Walk::per_fragment(header, head, ethernet::LEN).ok_or(CutError::BadHead)?;
        let (kept, rest) = head.split_at_checked(split.at).ok_or(CutError::BadHead)?;
        let (piece, next_header, extra) = if split.next == protocol::FRAGMENT {
            let (header, extra) =
                fragment::Header::ref_from_prefix(rest).map_err(|_| CutError::BadHead)?;
            let piece = header.piece();
            // A whole packet behind a fragment header is its source's to cut, as one without.
            if self.df == Df::Refuse && !piece.is_atomic() {
                return Err(CutError::DoNotFragment);
            }
            (piece, header.next_header, extra)
        } else {
            let id = self.ids.next(&(header.source, header.destination));
            (Fragment { id, offset: 0, more: false }, split.next, rest)
        };
        let payload_len = extra.len() + body.len as usize;
        let extensions = split.at - ethernet::LEN - ipv6::LEN;
        check_piece(piece, payload_len, ipv6::PAYLOAD_MAX as usize - extensions)?;
        let headers = Headers::ipv6(kept, next_header, split.next_at);
        // The first piece has all of the head (RFC 8200, section 4.5).
        if ethernet::LEN + headers.len() + extra.len() > Head::MOST {
            return Err(CutError::BadHead);
        }
        Ok(Cut::new(Rest { headers, extra, body, mtu, piece }))
    }
}

/// The parts of a frame up to `len`: what follows is no part of the packet.
fn without_padding(head: &[u8], body: Span, len: usize) -> Result<(&[u8], Span), CutError> {
    let behind = len.saturating_sub(head.len());
    if behind > body.len as usize {
        return Err(Refusal::Truncated.into());
    }
    Ok((&head[..len.min(head.len())], body.split_at(behind as u32).0))
}

/// A piece that is cut again keeps to what a receiver checks.
fn check_piece(piece: Fragment, len: usize, most: usize) -> Result<(), Refusal> {
    if piece.more && !len.is_multiple_of(8) {
        return Err(Refusal::Malformed);
    }
    if piece.offset as usize + len > most {
        return Err(Refusal::OutOfBounds);
    }
    Ok(())
}

/// A counter that starts elsewhere for each pair of addresses (RFC 7739, section
/// 5.3): no identification of a pair comes again before all others came, and who
/// sees those of one pair cannot say those of another.
#[derive(Clone, Debug)]
struct Ids {
    next: u32,
    /// Only its keyed hash is used.
    starts: HashIndex,
}

impl Ids {
    fn new(seed: Seed) -> Self {
        let mut random = Random::new(seed);
        let secret = HashSecret::new(random.next_u64(), random.next_u64());
        Self { next: random.next_u32(), starts: HashIndex::new(secret) }
    }

    /// The next one for a pair of addresses.
    fn next(&mut self, pair: &impl Hash) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next.wrapping_add(self.starts.hash(pair))
    }
}
