//! Routers of IPv6 and what they say (RFC 4861, sections 4.1, 4.2 and 6.1; RFC 4862): a
//! solicitation, and an advertisement with prefixes.

use core::net::{IpAddr, Ipv6Addr};

use landfall_placement::Refusal;

use crate::ethernet::{self, Mac};
use crate::packet::Ip;
use crate::{icmp, ndp};

/// The kind of a solicitation, among those of `ICMPv6`.
pub const SOLICITATION: u8 = 133;
/// The kind of an advertisement.
pub const ADVERTISEMENT: u8 = 134;
/// As many prefixes of one advertisement are read.
pub const PREFIXES: usize = 8;
/// All routers of a link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const FIXED: usize = 16;
const SOURCE_LINK: u8 = 1;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

/// A prefix that a router tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Its bits; those behind them are not looked at.
    pub prefix: Ipv6Addr,
    /// How many.
    pub len: u8,
    /// Who has it is on this link.
    pub is_on_link: bool,
    /// Hosts make addresses of it.
    pub is_autonomous: bool,
    /// For how many seconds it is good; `u32::MAX` for ever.
    pub valid: u32,
    /// For how many of them it is used for what is new.
    pub preferred: u32,
}

/// What a router says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The hop limit to send with; 0 says nothing.
    pub hop_limit: u8,
    /// For how many seconds it forwards for everybody; 0: it does not.
    pub lifetime: u16,
    /// Its station.
    pub station: Option<Mac>,
    /// How many bytes of IP the link carries.
    pub mtu: Option<u32>,
    /// The first prefixes.
    prefixes: [Option<Prefix>; PREFIXES],
}

impl Advertisement {
    /// An advertisement with these prefixes, the first [`PREFIXES`] of them.
    #[must_use]
    pub fn new(lifetime: u16, prefixes: &[Prefix]) -> Self {
        let mut all = [None; PREFIXES];
        for (into, prefix) in all.iter_mut().zip(prefixes) {
            *into = Some(*prefix);
        }
        Self { hop_limit: 0, lifetime, station: None, mtu: None, prefixes: all }
    }

    /// The prefixes.
    pub fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.prefixes.iter().flatten()
    }

    /// Reads a message whose checksum [`icmp6::read`](crate::icmp6::read) found right.
    ///
    /// # Errors
    /// [`Refusal::Truncated`]; [`Refusal::Malformed`] for what breaks a rule of RFC 4861,
    /// section 6.1.2; [`Refusal::Forbidden`] where it may have come through a router.
    pub fn read(ip: &Ip, message: &[u8]) -> Result<Self, Refusal> {
        let IpAddr::V6(source) = ip.source else { return Err(Refusal::Malformed) };
        if ip.hop_limit != ndp::HOP_LIMIT || !source.is_unicast_link_local() {
            return Err(Refusal::Forbidden);
        }
        let (fixed, mut options) =
            message.split_first_chunk::<FIXED>().ok_or(Refusal::Truncated)?;
        if fixed[0] != ADVERTISEMENT || fixed[1] != 0 {
            return Err(Refusal::Malformed);
        }
        let lifetime = u16::from_be_bytes([fixed[6], fixed[7]]);
        let mut said = Self { hop_limit: fixed[4], ..Self::new(lifetime, &[]) };
        let mut places = 0..PREFIXES;
        while let [kind, words, ..] = *options {
            let len = usize::from(words) * 8;
            let option = options.get(..len).filter(|option| !option.is_empty());
            let option = option.ok_or(Refusal::Malformed)?;
            match (kind, option) {
                (SOURCE_LINK, [_, _, mac @ ..]) => {
                    let mac = Mac::try_from(mac).ok().filter(|mac| !ethernet::is_group(*mac));
                    said.station = Some(mac.ok_or(Refusal::Malformed)?);
                }
                (MTU, &[_, _, _, _, a, b, c, d]) => {
                    said.mtu = Some(u32::from_be_bytes([a, b, c, d]));
                }
                (PREFIX, option) => {
                    let prefix = Prefix::read(option).ok_or(Refusal::Malformed)?;
                    if let Some(at) = places.next() {
                        said.prefixes[at] = Some(prefix);
                    }
                }
                (MTU, _) => return Err(Refusal::Malformed),
                _ => {}
            }
            options = &options[len..];
        }
        if options.is_empty() { Ok(said) } else { Err(Refusal::Malformed) }
    }

    /// Writes the message and gives its length, or `None` if there is no room: what a router
    /// does. `pseudo` is the folded sum over its pseudo-header.
    pub fn write(&self, into: &mut [u8], pseudo: u16) -> Option<usize> {
        let mut body = [0; 8 + 8 + 8 + PREFIXES * 32];
        let mut at = 8;
        let mut put = |bytes: &[u8]| {
            body[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some([a, b, c, d, e, f]) = self.station {
            put(&[SOURCE_LINK, 1, a, b, c, d, e, f]);
        }
        if let Some(mtu) = self.mtu {
            let [a, b, c, d] = mtu.to_be_bytes();
            put(&[MTU, 1, 0, 0, a, b, c, d]);
        }
        for prefix in self.prefixes() {
            put(&prefix.bytes());
        }
        let [high, low] = self.lifetime.to_be_bytes();
        let rest = [self.hop_limit, 0, high, low];
        icmp::write(ADVERTISEMENT, 0, rest, &body[..at], into, pseudo)
    }
}

impl Prefix {
    fn read(option: &[u8]) -> Option<Self> {
        let bytes: &[u8; 32] = option.try_into().ok()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut prefix = [0; 16];
        prefix.copy_from_slice(&bytes[16..]);
        Some(Self {
            prefix: Ipv6Addr::from_octets(prefix),
            len: Some(bytes[2]).filter(|len| *len <= 128)?,
            is_on_link: bytes[3] & ON_LINK != 0,
            is_autonomous: bytes[3] & AUTONOMOUS != 0,
            valid: word(4),
            preferred: word(8),
        })
    }

    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(self.is_on_link, ON_LINK) | flag(self.is_autonomous, AUTONOMOUS);
        bytes[..4].copy_from_slice(&[PREFIX, 4, self.len, flags]);
        bytes[4..8].copy_from_slice(&self.valid.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.preferred.to_be_bytes());
        bytes[16..].copy_from_slice(&self.prefix.octets());
        bytes
    }
}

/// Writes a solicitation of a station and gives its length, or `None` if there is no room.
/// `pseudo` is the folded sum over its pseudo-header. Who has no address yet does not say which
/// station it is.
pub fn write_solicitation(station: Option<Mac>, into: &mut [u8], pseudo: u16) -> Option<usize> {
    let [a, b, c, d, e, f] = station.unwrap_or_default();
    let option = [SOURCE_LINK, 1, a, b, c, d, e, f];
    let body = if station.is_some() { &option[..] } else { &[] };
    icmp::write(SOLICITATION, 0, [0; 4], body, into, pseudo)
}
