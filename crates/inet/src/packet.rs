//! One frame, read up to what IP carries: what the receive path starts from.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{Ecn, Refusal};
use zerocopy::FromBytes;

use crate::arp::{self, Arp};
use crate::extension::Walk;
use crate::fragment::Fragment;
use crate::{checksum, ethernet, ipv4, ipv6, protocol};

/// Why reading ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This many bytes from the start of what was read are needed; it has them,
    /// but they are not at hand.
    NeedHead(u16),
    /// It is not accepted.
    Refused(Refusal),
    /// It is not accepted, and its sender is to be told (RFC 8200, section 4).
    Answer(Problem),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Stop {
    /// The reason to count; `None` where it only was too early.
    #[must_use]
    pub const fn refusal(self) -> Option<Refusal> {
        match self {
            Self::NeedHead(_) => None,
            Self::Refused(refusal) => Some(refusal),
            Self::Answer(_) => Some(Refusal::Unsupported),
        }
    }
}

/// What `ICMPv6` calls a parameter problem (RFC 4443, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Who sent the packet.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
    /// What is wrong.
    pub code: ProblemCode,
    /// Where, in bytes from the start of its IPv6 header.
    pub pointer: u32,
    /// The sender is to be told even if it had sent to a group.
    pub even_to_group: bool,
}

/// What is wrong with an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProblemCode {
    /// A field holds what it may not hold.
    ErroneousField = 0,
    /// A next header is not known.
    UnknownHeader = 1,
    /// An option is not known, and may not be passed over.
    UnknownOption = 2,
}

/// A frame, as far as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The stations.
    pub ethernet: ethernet::Header,
    /// What the frame carries.
    pub content: Content,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A question or an answer about a station.
    Arp(Arp),
    /// An IP packet.
    Ip(Ip),
}

/// An IP packet of either version, and where its payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// The address of the sender.
    pub source: IpAddr,
    /// The address of the receiver.
    pub destination: IpAddr,
    /// What the payload is; for a piece, what the whole packet's payload is.
    /// See [`protocol`].
    pub protocol: u8,
    /// How many more routers may forward it.
    pub hop_limit: u8,
    /// What the network said of congestion.
    pub ecn: Ecn,
    /// The length of the IP headers, extensions included.
    pub header_len: u16,
    /// Where the payload starts in the unit.
    pub payload_at: usize,
    /// The length of the payload. What follows it in the frame is padding.
    pub payload_len: u32,
    /// Which piece of a packet this is; `None` for a whole one.
    pub fragment: Option<Fragment>,
    /// No router may cut it.
    pub dont_fragment: bool,
    /// Where in the packet the protocol is named: what a complaint about an
    /// unknown one points at.
    pub protocol_at: u32,
}

/// Reads a frame of `unit_len` bytes of which the first ones are at hand.
///
/// # Errors
/// [`Stop::NeedHead`] where more of the frame is needed, which it has;
/// [`Stop::Refused`] for what is cut off, contradicts itself, has a bad IPv4
/// header checksum, an address that nobody can have, or a protocol that is not
/// spoken; [`Stop::Answer`] where RFC 8200 wants the sender told.
#[inline]
pub fn parse(head: &[u8], unit_len: u32) -> Result<Packet, Stop> {
    let unit_len = unit_len as usize;
    let bytes = part(head, 0, ethernet::LEN, unit_len)?;
    let (&ethernet, _) =
        ethernet::Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
    let content = match ethernet.ethertype.get() {
        ethernet::IPV4 => Content::Ip(parse_ipv4(head, unit_len)?),
        ethernet::IPV6 => Content::Ip(parse_ipv6(head, unit_len)?),
        ethernet::ARP => {
            let bytes = part(head, ethernet::LEN, arp::LEN, unit_len)?;
            Content::Arp(Arp::read(bytes)?)
        }
        _ => return Err(Stop::Refused(Refusal::Unsupported)),
    };
    Ok(Packet { ethernet, content })
}

#[inline]
fn parse_ipv4(head: &[u8], unit_len: usize) -> Result<Ip, Stop> {
    let at = ethernet::LEN;
    let (header, header_len) = ipv4::read(part(head, at, ipv4::LEN, unit_len)?)?;
    let total_len = usize::from(header.total_len.get());
    if at + total_len > unit_len {
        return Err(Stop::Refused(Refusal::Truncated));
    }
    if !ipv4::is_intact(part(head, at, header_len, unit_len)?) {
        return Err(Stop::Refused(Refusal::BadChecksum));
    }
    let source = header.source();
    // RFC 1122, section 3.2.1.3: nobody sends from a group or a loopback address.
    if source.is_multicast() || source.is_broadcast() || source.is_loopback() {
        return Err(Stop::Refused(Refusal::Malformed));
    }
    Ok(Ip {
        source: IpAddr::V4(source),
        destination: IpAddr::V4(header.destination()),
        protocol: header.protocol,
        hop_limit: header.hop_limit,
        ecn: header.ecn(),
        header_len: header_len as u16,
        payload_at: at + header_len,
        payload_len: (total_len - header_len) as u32,
        fragment: header.is_fragment().then_some(header.piece()),
        dont_fragment: header.fragment.get() & ipv4::DO_NOT_FRAGMENT != 0,
        protocol_at: 9,
    })
}

#[inline]
fn parse_ipv6(head: &[u8], unit_len: usize) -> Result<Ip, Stop> {
    let at = ethernet::LEN;
    let header = ipv6::read(part(head, at, ipv6::LEN, unit_len)?)?;
    let end = at + ipv6::LEN + usize::from(header.payload_len.get());
    if end > unit_len {
        return Err(Stop::Refused(Refusal::Truncated));
    }
    let (source, destination) = (header.source(), header.destination());
    // RFC 4291, sections 2.5.3 and 2.7: neither is ever a source on a link.
    if source.is_multicast() || source.is_loopback() {
        return Err(Stop::Refused(Refusal::Malformed));
    }
    let mut walk = Walk {
        bytes: head,
        end,
        at: at + ipv6::LEN,
        next: header.next_header,
        next_at: at + 6,
        origin: at as isize,
        source,
        destination,
    };
    let fragment = walk.run()?;
    Ok(Ip {
        source: IpAddr::V6(source),
        destination: IpAddr::V6(destination),
        protocol: walk.next,
        hop_limit: header.hop_limit,
        ecn: header.ecn(),
        header_len: (walk.at - at) as u16,
        payload_at: walk.at,
        payload_len: (end - walk.at) as u32,
        fragment,
        dont_fragment: true,
        protocol_at: walk.pointer(walk.next_at),
    })
}

impl Ip {
    /// The packet that its pieces, put together, were cut from: `payload` is the
    /// payload of all of them. It is read as its own unit, so that
    /// `payload_at` counts from its start.
    ///
    /// # Errors
    /// As [`parse`], for what IPv6 may have between the fragment header and what
    /// the packet carries.
    pub fn reassembled(mut self, payload: &[u8]) -> Result<Self, Stop> {
        self.fragment = None;
        self.payload_at = 0;
        self.payload_len = u32::try_from(payload.len()).map_err(|_| Refusal::Malformed)?;
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (self.source, self.destination) else {
            return Ok(self);
        };
        let mut walk = Walk {
            bytes: payload,
            end: payload.len(),
            at: 0,
            next: self.protocol,
            next_at: 0,
            // As if nothing but the IPv6 header stood before it: the headers of
            // the single pieces are not part of the packet.
            origin: -(ipv6::LEN as isize),
            source,
            destination,
        };
        if walk.run()?.is_some() {
            return Err(Stop::Refused(Refusal::Malformed));
        }
        if walk.at > 0 {
            self.protocol_at = walk.pointer(walk.next_at);
        }
        self.protocol = walk.next;
        self.payload_at = walk.at;
        self.payload_len -= walk.at as u32;
        Ok(self)
    }

    /// The whole payload, if it is at hand.
    ///
    /// # Errors
    /// [`Stop::NeedHead`].
    pub fn payload<'a>(&self, head: &'a [u8]) -> Result<&'a [u8], Stop> {
        let len = self.payload_len as usize;
        part(head, self.payload_at, len, self.payload_at + len)
    }

    /// The first `len` bytes of the payload.
    ///
    /// # Errors
    /// [`Stop::NeedHead`]; [`Refusal::Truncated`] where the payload is shorter.
    #[inline]
    pub(crate) fn start<'a>(&self, head: &'a [u8], len: usize) -> Result<&'a [u8], Stop> {
        part(head, self.payload_at, len, self.payload_at + self.payload_len as usize)
    }

    /// The folded sum over the pseudo-header of `len` bytes of the protocol.
    #[must_use]
    #[inline]
    pub fn pseudo(&self, len: u32) -> u16 {
        checksum::with_len(
            checksum::pseudo_header(self.source, self.destination, self.protocol),
            len,
        )
    }

    /// The packet was sent by one host that can be answered to (RFC 1122,
    /// section 3.2.2; RFC 4443, section 2.4).
    #[must_use]
    pub const fn is_from_host(&self) -> bool {
        is_host(self.source)
    }

    /// A complaint that the protocol is not known here (RFC 4443, section 3.4).
    #[must_use]
    pub const fn unknown_protocol(&self) -> Option<Problem> {
        match (self.source, self.destination) {
            // "No next header" is no header at all: nothing is wrong with it.
            (IpAddr::V6(source), IpAddr::V6(destination))
                if self.protocol != protocol::NO_NEXT_HEADER =>
            {
                Some(Problem {
                    source,
                    destination,
                    code: ProblemCode::UnknownHeader,
                    pointer: self.protocol_at,
                    even_to_group: false,
                })
            }
            _ => None,
        }
    }
}

/// Whether the address is that of one host: no group, not all, not nobody.
#[must_use]
pub const fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_host_v4(address),
        IpAddr::V6(address) => !address.is_multicast() && !address.is_unspecified(),
    }
}

const fn is_host_v4(address: Ipv4Addr) -> bool {
    !address.is_multicast() && !address.is_broadcast() && !address.is_unspecified()
}

/// What lies above IP: its header, and where header and payload lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer<H> {
    /// The header.
    pub header: H,
    /// Where the header starts in the unit.
    pub at: usize,
    /// The length of header and payload: what the checksum covers.
    pub len: u32,
    /// Where the payload starts in the unit.
    pub payload_at: usize,
    /// The length of the payload.
    pub payload_len: u32,
}

/// The `len` bytes from `at` on, of something that ends at `end`.
#[inline]
pub(crate) fn part(head: &[u8], at: usize, len: usize, end: usize) -> Result<&[u8], Stop> {
    let to = at + len;
    if to > end {
        return Err(Stop::Refused(Refusal::Truncated));
    }
    match head.get(at..to) {
        Some(bytes) => Ok(bytes),
        None => Err(u16::try_from(to).map_or(Stop::Refused(Refusal::Unsupported), Stop::NeedHead)),
    }
}
