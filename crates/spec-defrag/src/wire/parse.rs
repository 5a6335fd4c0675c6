//! A frame is read as far as joining needs it.

use landfall_inet::checksum::sum_of_words;
use landfall_inet::reassembly::{Key, Piece};
use landfall_inet::{
    Fragment, ethernet, extension, fragment, icmp, ipv4, ipv6, protocol, tcp, udp,
};
use landfall_placement::{Ecn, Refusal};
use zerocopy::FromBytes;

use crate::memory::Head;

/// Reads the headers of a frame of `frame_len` bytes, of which the first ones are
/// at hand in `head`.
///
/// A piece of a packet is checked as a standard receiver would do it: the header
/// checksum of IPv4, lengths, the offset. A packet in one piece is not: nobody
/// here changes it, and the stack above checks it.
///
/// # Errors
/// [`Stop::NeedHead`] where more of the frame is needed, which it has;
/// [`Stop::Foreign`] for what is no IP, and for packets in one piece that have
/// anything odd; [`Stop::Refused`] for pieces that are cut off, contradict
/// themselves or are corrupt.
#[inline]
pub fn parse(head: &[u8], frame_len: u32) -> Result<Parsed, Stop> {
    if let Some(plain) = Plain::read(head, frame_len) {
        return Ok(plain.parsed());
    }
    parse_any(head, frame_len)
}

/// Where the header of IPv4 begins behind that of Ethernet, and where it ends if it has no options.
const AT: usize = ethernet::LEN;
const PAYLOAD_AT: usize = AT + ipv4::LEN;

/// Nearly all pieces: IPv4 behind an Ethernet header, no options, everything right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    header: ipv4::Header,
    piece: Fragment,
    payload_len: u32,
}

impl Plain {
    /// Where the payload begins.
    pub(crate) const PAYLOAD_AT: u16 = PAYLOAD_AT as u16;

    /// Reads the headers as [`parse`] does. `None` says nothing.
    #[inline]
    pub(crate) fn read(head: &[u8], frame_len: u32) -> Option<Self> {
        let bytes = head.first_chunk::<{ PAYLOAD_AT }>()?;
        let header = ipv4::Header::ref_from_bytes(&bytes[AT..]).ok()?;
        let total_len = u32::from(header.total_len.get());
        let payload_len = total_len.wrapping_sub(ipv4::LEN as u32);
        let is_plain = u16::from_be_bytes([bytes[12], bytes[13]]) == ethernet::IPV4
            && header.version_and_words == 0x45
            && header.is_fragment()
            && AT as u32 + total_len <= frame_len
            && total_len > ipv4::LEN as u32
            && sum_of_words(&bytes[AT..]) == 0xffff;
        let piece = header.piece();
        let ends_well = !piece.more || payload_len.is_multiple_of(8);
        let fits = piece.offset.wrapping_add(total_len) <= ipv4::PACKET_MAX;
        (is_plain && ends_well && fits).then_some(Self { header: *header, piece, payload_len })
    }

    /// What the headers say.
    #[inline]
    pub(crate) const fn parsed(&self) -> Parsed {
        Parsed {
            key: self.key(),
            fragment: Some(self.piece),
            protocol: self.header.protocol,
            network_at: AT as u16,
            payload_at: Self::PAYLOAD_AT,
            payload_len: self.payload_len,
            ecn: self.ecn(),
        }
    }

    #[inline]
    pub(crate) const fn key(&self) -> Key {
        self.header.key()
    }

    #[inline]
    pub(crate) const fn ecn(&self) -> Ecn {
        self.header.ecn()
    }

    /// Where the piece belongs, if that is behind whatever header of the transport there is: such
    /// a piece may start there.
    #[inline]
    pub(crate) const fn piece_behind_headers(&self) -> Option<Piece> {
        let (start, len) = (self.piece.offset, self.payload_len);
        if start < tcp::LEN as u32 {
            return None;
        }
        Some(Piece { start, end: start + len, is_last: !self.piece.more })
    }
}

pub(super) fn parse_any(head: &[u8], frame_len: u32) -> Result<Parsed, Stop> {
    // What is shown beyond the frame is not part of it.
    let head = head.get(..frame_len as usize).unwrap_or(head);
    let Ok((ethernet, _)) = ethernet::Header::ref_from_prefix(head) else {
        return Err(cut_short(ethernet::LEN, frame_len, Stop::Foreign));
    };
    parse_network(head, frame_len, ethernet::LEN, ethernet.ethertype.get())
}

/// The same for a packet that starts at `network_at` in its frame, behind any link header or
/// none; `ethertype` says what it is.
///
/// # Errors
/// As [`parse`].
pub fn parse_network(
    head: &[u8],
    frame_len: u32,
    network_at: usize,
    ethertype: u16,
) -> Result<Parsed, Stop> {
    match ethertype {
        ethernet::IPV4 => parse_ipv4(head, frame_len, network_at),
        ethernet::IPV6 => parse_ipv6(head, frame_len, network_at),
        _ => Err(Stop::Foreign),
    }
}

/// Reads the frame, which carries IPv4.
#[inline]
fn parse_ipv4(head: &[u8], frame_len: u32, network_at: usize) -> Result<Parsed, Stop> {
    let Some((header, _)) =
        head.get(network_at..).and_then(|bytes| ipv4::Header::ref_from_prefix(bytes).ok())
    else {
        return Err(cut_short(network_at + ipv4::LEN, frame_len, Stop::Foreign));
    };
    let header_len = header.header_len();
    let total_len = u32::from(header.total_len.get());
    let payload_at = network_at + header_len;
    if header.version() != 4 {
        return Err(Stop::Foreign);
    }
    let is_odd = header_len < ipv4::LEN || (total_len as usize) < header_len;
    let is_cut = network_at as u32 + total_len > frame_len;
    let payload_len = total_len.wrapping_sub(header_len as u32);
    let fragment = if header.is_fragment() {
        if is_odd {
            return Err(Stop::Refused(Refusal::Malformed));
        }
        if is_cut {
            return Err(Stop::Refused(Refusal::Truncated));
        }
        let Some(bytes) = head.get(network_at..payload_at) else {
            return Err(Stop::NeedHead(payload_at as u16));
        };
        if !ipv4::is_intact(bytes) {
            return Err(Stop::Refused(Refusal::BadChecksum));
        }
        let piece = header.piece();
        Piece::new(piece, payload_len, ipv4::PACKET_MAX - ipv4::LEN as u32)?;
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
        network_at: network_at as u16,
        payload_at: payload_at as u16,
        payload_len,
        ecn: header.ecn(),
    })
}

/// Reads the frame, which carries IPv6.
#[inline]
fn parse_ipv6(head: &[u8], frame_len: u32, network_at: usize) -> Result<Parsed, Stop> {
    let Some((header, _)) =
        head.get(network_at..).and_then(|bytes| ipv6::Header::ref_from_prefix(bytes).ok())
    else {
        return Err(cut_short(network_at + ipv6::LEN, frame_len, Stop::Foreign));
    };
    let end = network_at + ipv6::LEN + usize::from(header.payload_len.get());
    // A length of 0 is a jumbogram's (RFC 2675), which cannot be a piece.
    if header.version() != 6 || header.payload_len.get() == 0 {
        return Err(Stop::Foreign);
    }
    let mut walk = Walk::new(header, network_at);
    walk.run(head, frame_len)?;
    let is_cut = end > frame_len as usize;
    let mut parsed = Parsed {
        key: header.key(0),
        fragment: None,
        protocol: walk.next,
        network_at: network_at as u16,
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
    let payload_at = at + fragment::LEN;
    let Some(len) = end.checked_sub(payload_at) else {
        return Err(Stop::Refused(Refusal::Truncated));
    };
    let Some((header, _)) =
        head.get(at..).and_then(|bytes| fragment::Header::ref_from_prefix(bytes).ok())
    else {
        return Err(Stop::NeedHead(payload_at as u16));
    };
    let piece = header.piece();
    Piece::new(piece, len as u32, ipv6::PAYLOAD_MAX)?;
    parsed.key.id = piece.id;
    parsed.fragment = Some(piece);
    parsed.protocol = header.next_header;
    parsed.payload_at = payload_at as u16;
    parsed.payload_len = len as u32;
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

/// The length of the header that `payload`, the first bytes of an IP payload,
/// starts with: 20 to 60 for TCP, 8 for UDP and ICMP, 0 for all others and for a
/// TCP header that says it were shorter than it can be.
///
/// `None` if not all of the header is at hand.
#[must_use]
#[inline]
pub fn transport_len(protocol: u8, payload: &[u8]) -> Option<u16> {
    let len = match protocol {
        protocol::TCP => match usize::from(*payload.get(12)? >> 4) * 4 {
            len @ tcp::LEN.. => len,
            _ => 0,
        },
        protocol::UDP => udp::LEN,
        protocol::ICMP4 | protocol::ICMP6 => icmp::LEN,
        _ => 0,
    };
    (payload.len() >= len).then_some(len as u16)
}

/// What the headers of an IP frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Which packet.
    pub key: Key,
    /// Which piece of it; `None` for a packet in one piece (without fragment header).
    pub fragment: Option<Fragment>,
    /// What follows the IP headers: for IPv6, what follows the fragment header.
    pub protocol: u8,
    /// Where the link header ends and the IP header begins.
    pub network_at: u16,
    /// Where the IP headers end (IPv6: the fragment header) and the piece begins.
    pub payload_at: u16,
    /// The length of the piece by the IP header: the frame may be padded.
    pub payload_len: u32,
    /// The congestion mark.
    pub ecn: Ecn,
}

/// Why there is nothing to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The headers go on: show at least this many bytes.
    NeedHead(u16),
    /// Not IP, or IP in a form that nothing here looks into: pass it up as it is.
    Foreign,
    /// A standard receiver throws it away.
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

// The extension headers that every piece of an IPv6 packet repeats.

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
    pub(crate) const fn new(header: &ipv6::Header, network_at: usize) -> Self {
        Self { next: header.next_header, next_at: network_at + 6, at: network_at + ipv6::LEN }
    }

    /// Walks over what may stand before a fragment header: hop-by-hop options,
    /// options for the stations on the way, a routing header.
    ///
    /// Only where the packet has reached the end of its route it may be joined
    /// (RFC 8200, section 4.5): `Foreign` before. The same for headers that are
    /// longer than what fits in a [`Head`]: anyone who is above joins them.
    pub(super) fn run(&mut self, head: &[u8], frame_len: u32) -> Result<(), Stop> {
        while matches!(
            self.next,
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS
        ) {
            let Some(bytes) = head.get(self.at..self.at + 8) else {
                return Err(cut_short(self.at + 8, frame_len, Stop::Foreign));
            };
            if self.next == protocol::ROUTING && bytes[3] != 0 {
                return Err(Stop::Foreign);
            }
            match self.step(bytes) {
                Some(walk @ Self { at: ..=Head::MOST, .. }) => *self = walk,
                _ => return Err(Stop::Foreign),
            }
        }
        Ok(())
    }

    /// Up to where the headers reach that every piece of a packet repeats, if it has
    /// to be cut: up to a fragment header that is there, else up to the end of the
    /// routing header or, without one, of the hop-by-hop options (RFC 8200, section
    /// 4.5). `None` if not all of them are in `head`.
    pub(crate) fn per_fragment(
        header: &ipv6::Header,
        head: &[u8],
        network_at: usize,
    ) -> Option<Self> {
        let mut walk = Self::new(header, network_at);
        let mut reached = walk;
        loop {
            match walk.next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {}
                protocol::FRAGMENT => return Some(walk),
                _ => return Some(reached),
            }
            let is_per_fragment = walk.next != protocol::DESTINATION_OPTIONS;
            walk = walk.step(head.get(walk.at..)?)?;
            if is_per_fragment {
                reached = walk;
            }
        }
    }

    /// Walks over one header, which these bytes start with.
    #[inline]
    pub(crate) fn step(self, bytes: &[u8]) -> Option<Self> {
        let [next, length] = *bytes.first_chunk()?;
        let len = extension::len(self.next, length)?;
        Some(Self { next, next_at: self.at, at: self.at + len })
    }

    /// Walks up to `end`, over headers that were walked over before: where the byte
    /// is that says what follows there.
    pub(crate) fn to(mut self, bytes: &[u8], end: usize) -> Option<usize> {
        while self.at < end {
            self = self.step(bytes.get(self.at..)?)?;
        }
        (self.at == end).then_some(self.next_at)
    }
}
