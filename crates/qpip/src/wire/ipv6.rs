//! The IPv6 header and the headers that may stand between it and what it
//! carries (RFC 8200).
//!
//! The walk over them is bounded twice, by their number and by their length:
//! a packet of nothing but headers costs no more than any other one.

use core::net::Ipv6Addr;

use landfall_placement::Refusal;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::fragment::{self, Fragment};
use super::packet::{Problem, ProblemCode, Stop, part};
use super::protocol;

/// The length of the header.
pub const LEN: usize = size_of::<Header>();
/// The least that every link carries in one piece.
pub const MTU_MIN: u32 = 1280;
/// The most extension headers that are walked over.
pub const EXTENSIONS_MAX: usize = 8;
/// The most bytes of extension headers that are walked over.
pub const EXTENSIONS_LEN_MAX: usize = 512;

const _: () = assert!(LEN == 40);

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
    /// The first four bytes, of a traffic class (ECN in its low two bits) and a
    /// flow label of 20 bits.
    #[must_use]
    pub const fn class_and_label(traffic_class: u8, flow_label: u32) -> [u8; 4] {
        (6 << 28 | (traffic_class as u32) << 20 | flow_label & 0xf_ffff).to_be_bytes()
    }

    /// The version: 6 in all packets that are accepted.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version_class_label[0] >> 4
    }

    /// The code point for differentiated services, and ECN in the low two bits.
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        self.version_class_label[0] << 4 | self.version_class_label[1] >> 4
    }

    /// The address of who sends.
    #[must_use]
    pub const fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.source)
    }

    /// The address of who is meant.
    #[must_use]
    pub const fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.destination)
    }
}

/// Reads the header at the start of `bytes`.
///
/// # Errors
/// [`Refusal::Truncated`]; [`Refusal::Malformed`] for another version.
pub fn read(bytes: &[u8]) -> Result<&Header, Refusal> {
    let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
    if header.version() != 6 {
        return Err(Refusal::Malformed);
    }
    Ok(header)
}

/// A walk over extension headers, and where it stands.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    /// The bytes at hand.
    pub(super) bytes: &'a [u8],
    /// Where the packet ends, in `bytes` or behind them.
    pub(super) end: usize,
    /// Where the next header starts.
    pub(super) at: usize,
    /// What it is.
    pub(super) next: u8,
    /// Where that was said: what a complaint about it points at.
    pub(super) next_at: usize,
    /// Where the IPv6 header starts in `bytes`; negative if it lies before them.
    pub(super) origin: isize,
    /// For complaints.
    pub(super) source: Ipv6Addr,
    /// For complaints.
    pub(super) destination: Ipv6Addr,
}

impl Walk<'_> {
    /// Walks up to what the packet carries, or to what a piece of it carries.
    ///
    /// Gives which piece it is. An atomic fragment is no piece: the walk goes on
    /// behind its header (RFC 6946).
    pub(super) fn run(&mut self) -> Result<Option<Fragment>, Stop> {
        let (first, mut seen_fragment) = (self.at, false);
        let mut is_first = self.origin >= 0;
        for _ in 0..=EXTENSIONS_MAX {
            match self.next {
                protocol::HOP_BY_HOP if is_first => self.options()?,
                // RFC 8200, section 4.1: anywhere else it is an unknown header.
                protocol::HOP_BY_HOP => {
                    return Err(self.problem(ProblemCode::UnknownHeader, self.next_at));
                }
                protocol::DESTINATION_OPTIONS => self.options()?,
                protocol::ROUTING => self.routing()?,
                protocol::FRAGMENT => {
                    let bytes = part(self.bytes, self.at, fragment::LEN, self.end)?;
                    let (header, _) =
                        fragment::Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
                    // A piece of a piece: nobody sends that, but who wants to confuse.
                    if seen_fragment {
                        return Err(Stop::Refused(Refusal::Malformed));
                    }
                    seen_fragment = true;
                    let piece = header.fragment();
                    self.step(header.next_header, fragment::LEN);
                    if !piece.is_atomic() {
                        return Ok(Some(piece));
                    }
                }
                _ => return Ok(None),
            }
            is_first = false;
            if self.at - first > EXTENSIONS_LEN_MAX {
                break;
            }
        }
        Err(Stop::Refused(Refusal::Unsupported))
    }

    fn step(&mut self, next: u8, len: usize) {
        self.next_at = self.at;
        self.next = next;
        self.at += len;
    }

    /// The extension header at hand, whole.
    fn extension(&self) -> Result<&[u8], Stop> {
        let start = part(self.bytes, self.at, 8, self.end)?;
        let len = (usize::from(start[1]) + 1) * 8;
        if len > EXTENSIONS_LEN_MAX {
            return Err(Stop::Refused(Refusal::Unsupported));
        }
        part(self.bytes, self.at, len, self.end)
    }

    /// RFC 8200, section 4.2: what an unknown option means is in its number.
    fn options(&mut self) -> Result<(), Stop> {
        let header = self.extension()?;
        let mut at = 2;
        while let Some(&kind) = header.get(at) {
            if kind == 0 {
                at += 1;
                continue;
            }
            let len = *header.get(at + 1).ok_or(Refusal::Malformed)?;
            let end = at + 2 + usize::from(len);
            if end > header.len() {
                return Err(Stop::Refused(Refusal::Malformed));
            }
            match kind >> 6 {
                0 => {}
                1 => return Err(Stop::Refused(Refusal::Unsupported)),
                action => {
                    let mut problem = self.complaint(ProblemCode::UnknownOption, self.at + at);
                    problem.even_to_group = action == 2;
                    return Err(Stop::Answer(problem));
                }
            }
            at = end;
        }
        let (next, len) = (header[0], header.len());
        self.step(next, len);
        Ok(())
    }

    /// RFC 8200, section 4.4: a route that is used up is passed over.
    fn routing(&mut self) -> Result<(), Stop> {
        let header = self.extension()?;
        if header[3] != 0 {
            return Err(self.problem(ProblemCode::ErroneousField, self.at + 2));
        }
        let (next, len) = (header[0], header.len());
        self.step(next, len);
        Ok(())
    }

    fn problem(&self, code: ProblemCode, at: usize) -> Stop {
        Stop::Answer(self.complaint(code, at))
    }

    fn complaint(&self, code: ProblemCode, at: usize) -> Problem {
        Problem {
            source: self.source,
            destination: self.destination,
            code,
            pointer: self.pointer(at),
            even_to_group: false,
        }
    }

    /// A place in `bytes` as a place in the packet.
    pub(super) fn pointer(&self, at: usize) -> u32 {
        (at as isize - self.origin) as u32
    }
}

/// Finds what a packet carries of which only the beginning is at hand, as it is
/// quoted in an error: no option is looked into.
#[must_use]
pub fn quoted_protocol<'a>(header: &Header, mut rest: &'a [u8]) -> Option<(u8, &'a [u8])> {
    let mut next = header.next_header;
    for _ in 0..EXTENSIONS_MAX {
        let len = match next {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                (usize::from(*rest.get(1)?) + 1) * 8
            }
            protocol::FRAGMENT => {
                let (header, _) = fragment::Header::ref_from_prefix(rest).ok()?;
                if header.fragment().offset != 0 {
                    return None;
                }
                fragment::LEN
            }
            _ => return Some((next, rest)),
        };
        next = *rest.first()?;
        rest = rest.get(len..)?;
    }
    None
}
