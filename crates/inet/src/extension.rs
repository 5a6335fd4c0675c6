//! The headers that may stand between the IPv6 header and what it carries (RFC 8200,
//! section 4).
//!
//! A host's walk over them is bounded twice, by their number and by their length:
//! a packet of nothing but headers costs no more than any other one.

use core::net::Ipv6Addr;

use landfall_placement::Refusal;
use zerocopy::FromBytes;

use crate::fragment::{self, Fragment};
use crate::ipv6::Header;
use crate::packet::{Problem, ProblemCode, Stop, part};
use crate::protocol;

/// The most extension headers that are walked over.
pub const MAX: usize = 8;
/// The most bytes of extension headers that are walked over.
pub const LEN_MAX: usize = 512;

/// How long the extension header of this kind is, whose second byte is `length`; `None`
/// for what is no extension header.
///
/// ```
/// use landfall_inet::{extension, protocol};
///
/// assert_eq!(extension::len(protocol::HOP_BY_HOP, 1), Some(16));
/// assert_eq!(extension::len(protocol::AUTHENTICATION, 4), Some(24)); // RFC 4302: in words
/// assert_eq!(extension::len(protocol::FRAGMENT, 0xff), Some(8)); // it has no length
/// assert_eq!(extension::len(protocol::UDP, 0), None);
/// ```
#[must_use]
#[inline]
pub const fn len(kind: u8, length: u8) -> Option<usize> {
    match kind {
        protocol::HOP_BY_HOP
        | protocol::ROUTING
        | protocol::DESTINATION_OPTIONS
        | protocol::MOBILITY => Some(8 + length as usize * 8),
        protocol::AUTHENTICATION => Some(8 + length as usize * 4),
        protocol::FRAGMENT => Some(fragment::LEN),
        _ => None,
    }
}

/// A walk over extension headers, and where it stands.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    /// The bytes at hand.
    pub(crate) bytes: &'a [u8],
    /// Where the packet ends, in `bytes` or behind them.
    pub(crate) end: usize,
    /// Where the next header starts.
    pub(crate) at: usize,
    /// What it is.
    pub(crate) next: u8,
    /// Where that was said: what a complaint about it points at.
    pub(crate) next_at: usize,
    /// Where the IPv6 header starts in `bytes`; negative if it lies before them.
    pub(crate) origin: isize,
    /// For complaints.
    pub(crate) source: Ipv6Addr,
    /// For complaints.
    pub(crate) destination: Ipv6Addr,
}

impl Walk<'_> {
    /// Walks up to what the packet carries, or to what a piece of it carries.
    ///
    /// Gives which piece it is. An atomic fragment is no piece: the walk goes on
    /// behind its header (RFC 6946).
    pub(crate) fn run(&mut self) -> Result<Option<Fragment>, Stop> {
        let (first, mut seen_fragment) = (self.at, false);
        let mut is_first = self.origin >= 0;
        for _ in 0..=MAX {
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
                    let piece = header.piece();
                    self.step(header.next_header, fragment::LEN);
                    if !piece.is_atomic() {
                        return Ok(Some(piece));
                    }
                }
                _ => return Ok(None),
            }
            is_first = false;
            if self.at - first > LEN_MAX {
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
        match len(self.next, start[1]) {
            Some(len @ ..=LEN_MAX) => part(self.bytes, self.at, len, self.end),
            _ => Err(Stop::Refused(Refusal::Unsupported)),
        }
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
    pub(crate) fn pointer(&self, at: usize) -> u32 {
        (at as isize - self.origin) as u32
    }
}

/// Finds what a packet carries of which only the beginning is at hand, as it is
/// quoted in an error: no option is looked into.
#[must_use]
pub fn quoted_protocol<'a>(header: &Header, mut rest: &'a [u8]) -> Option<(u8, &'a [u8])> {
    let mut next = header.next_header;
    for _ in 0..MAX {
        let len = match next {
            protocol::FRAGMENT => {
                let (header, _) = fragment::Header::ref_from_prefix(rest).ok()?;
                if header.piece().offset != 0 {
                    return None;
                }
                fragment::LEN
            }
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                len(next, *rest.get(1)?)?
            }
            _ => return Some((next, rest)),
        };
        next = *rest.first()?;
        rest = rest.get(len..)?;
    }
    None
}
