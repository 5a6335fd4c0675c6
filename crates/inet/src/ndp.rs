//! Neighbour discovery (RFC 4861): who has an address on this link.
//!
//! Solicitations and advertisements of neighbours only: what routers say is read in
//! [`router`](crate::router).

use core::net::{IpAddr, Ipv6Addr};

use landfall_placement::Refusal;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::{self, Mac};
use crate::icmp;
use crate::packet::Ip;

/// The kind of a solicitation, among those of `ICMPv6`.
pub const SOLICITATION: u8 = 135;
/// The kind of an advertisement.
pub const ADVERTISEMENT: u8 = 136;
/// The hop limit that shows that no router was passed.
pub const HOP_LIMIT: u8 = 255;
/// The length of a message as it is written here, with the station's address.
pub const LEN: usize = 32;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const IS_ROUTER: u8 = 0x80;
const IS_SOLICITED: u8 = 0x40;
const IS_OVERRIDE: u8 = 0x20;

/// What follows the header of both messages, up to the options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    header: icmp::Header,
    target: [u8; 16],
}

/// A message, checked by the rules of RFC 4861, sections 7.1.1 and 7.1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Who has this address?
    Solicitation(Solicitation),
    /// I have it.
    Advertisement(Advertisement),
}

/// Who has this address?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The address.
    pub target: Ipv6Addr,
    /// The station that asks; not said by who has no address yet.
    pub station: Option<Mac>,
}

/// I have this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The address.
    pub target: Ipv6Addr,
    /// The station that has it; not said where the asker must know it.
    pub station: Option<Mac>,
    /// It is a router.
    pub is_router: bool,
    /// It was asked.
    pub is_solicited: bool,
    /// What was known before is to be replaced.
    pub is_override: bool,
}

/// Reads a message whose checksum [`icmp6::read`](crate::icmp6::read) found right.
///
/// # Errors
/// [`Refusal::Truncated`]; [`Refusal::Malformed`] for what breaks a rule of the
/// RFC; [`Refusal::Forbidden`] where it may have come through a router.
pub fn read(ip: &Ip, message: &[u8]) -> Result<Neighbour, Refusal> {
    if ip.hop_limit != HOP_LIMIT {
        return Err(Refusal::Forbidden);
    }
    let (fixed, options) = Fixed::ref_from_prefix(message).map_err(|_| Refusal::Truncated)?;
    let target = Ipv6Addr::from_octets(fixed.target);
    if fixed.header.code != 0 || target.is_multicast() {
        return Err(Refusal::Malformed);
    }
    let (is_from_nobody, is_to_group) = (ip.source.is_unspecified(), ip.destination.is_multicast());
    match fixed.header.kind {
        SOLICITATION => {
            let station = link_option(SOURCE_LINK, options)?;
            let to_solicited_node = ip.destination == IpAddr::V6(solicited_node(target));
            if is_from_nobody && (station.is_some() || !to_solicited_node) {
                return Err(Refusal::Malformed);
            }
            Ok(Neighbour::Solicitation(Solicitation { target, station }))
        }
        ADVERTISEMENT => {
            let flags = fixed.header.rest[0];
            let is_solicited = flags & IS_SOLICITED != 0;
            if is_to_group && is_solicited {
                return Err(Refusal::Malformed);
            }
            Ok(Neighbour::Advertisement(Advertisement {
                target,
                station: link_option(TARGET_LINK, options)?,
                is_router: flags & IS_ROUTER != 0,
                is_solicited,
                is_override: flags & IS_OVERRIDE != 0,
            }))
        }
        _ => Err(Refusal::Unsupported),
    }
}

/// Looks for the address of a station among options, all of which are checked.
fn link_option(wanted: u8, mut options: &[u8]) -> Result<Option<Mac>, Refusal> {
    let mut found = None;
    while let [kind, words, ..] = *options {
        let len = usize::from(words) * 8;
        if len == 0 {
            return Err(Refusal::Malformed);
        }
        let option = options.get(..len).ok_or(Refusal::Malformed)?;
        if kind == wanted
            && let [_, _, mac @ ..] = option
            && let Ok(mac) = Mac::try_from(mac)
        {
            if ethernet::is_group(mac) {
                return Err(Refusal::Malformed);
            }
            found = Some(mac);
        }
        options = &options[len..];
    }
    if options.is_empty() { Ok(found) } else { Err(Refusal::Malformed) }
}

impl Solicitation {
    /// Writes the message and gives its length, or `None` if there is no room.
    /// `pseudo` is the folded sum over its pseudo-header.
    pub fn write(&self, into: &mut [u8], pseudo: u16) -> Option<usize> {
        write(SOLICITATION, 0, self.target, SOURCE_LINK, self.station, into, pseudo)
    }

    /// How long the message is.
    #[must_use]
    pub const fn message_len(&self) -> usize {
        message_len(self.station)
    }
}

impl Advertisement {
    /// Writes the message and gives its length, or `None` if there is no room.
    /// `pseudo` is the folded sum over its pseudo-header.
    pub fn write(&self, into: &mut [u8], pseudo: u16) -> Option<usize> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.is_router, IS_ROUTER)
            | flag(self.is_solicited, IS_SOLICITED)
            | flag(self.is_override, IS_OVERRIDE);
        write(ADVERTISEMENT, flags, self.target, TARGET_LINK, self.station, into, pseudo)
    }

    /// How long the message is.
    #[must_use]
    pub const fn message_len(&self) -> usize {
        message_len(self.station)
    }
}

const fn message_len(station: Option<Mac>) -> usize {
    if station.is_some() { LEN } else { LEN - 8 }
}

fn write(
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    option: u8,
    station: Option<Mac>,
    into: &mut [u8],
    pseudo: u16,
) -> Option<usize> {
    let mut body = [0; LEN - icmp::LEN];
    body[..16].copy_from_slice(&target.octets());
    body[16..18].copy_from_slice(&[option, 1]);
    body[18..].copy_from_slice(&station.unwrap_or_default());
    let body = &body[..message_len(station) - icmp::LEN];
    icmp::write(kind, 0, [flags, 0, 0, 0], body, into, pseudo)
}

/// The group that everybody listens to whose address ends in the same 24 bits
/// (RFC 4291, section 2.7.1).
#[must_use]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, (b as u16) << 8 | c as u16)
}

/// The stations that listen to a group (RFC 2464, section 7).
#[must_use]
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}
