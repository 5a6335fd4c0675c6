//! A frame read as far as an adapter reads it: plain headers of IP, and nothing
//! between them and what they carry.

use core::net::IpAddr;

use landfall_placement::{Check, Ecn, InternetSum, PathId};
use zerocopy::FromBytes;

use super::hit::{Miss, Whose};
use super::tables::Ends;
use crate::wire::checksum::{sum_of_words, with_len};
use crate::wire::{Mac, ethernet, ipv4, ipv6};

/// A unit as it comes in: a whole Ethernet frame, of which the first bytes are
/// at hand.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The path it came over.
    pub path: PathId,
    /// Our station on that path.
    pub station: Mac,
    /// Our addresses there; the lengths of their prefixes do not matter here.
    pub addresses: &'a [(IpAddr, u8)],
    /// The connection that it is probably for, by its slot: the last one.
    pub likely: Option<u32>,
    /// Its first bytes.
    pub head: &'a [u8],
    /// The length of the whole unit.
    pub len: u32,
}

/// What IP says of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) ends: Ends,
    pub(super) protocol: u8,
    pub(super) ecn: Ecn,
    /// Where its payload starts in the unit.
    pub(super) at: usize,
    /// How long its payload is.
    pub(super) len: u32,
    /// The sum over both addresses.
    addresses: u16,
}

/// Reads a frame up to the ports of what it carries.
#[inline]
pub(super) fn read(unit: &Incoming<'_>) -> Result<Packet, Miss> {
    let (header, rest) = ethernet::Header::ref_from_prefix(unit.head).map_err(|_| Miss::Short)?;
    if header.destination != unit.station || header.is_to_group() {
        return Err(Miss::Station);
    }
    let len = unit.len.saturating_sub(ethernet::LEN as u32);
    match header.ethertype.get() {
        ethernet::IPV4 => read_v4(rest, len),
        ethernet::IPV6 => read_v6(rest, len),
        _ => Err(Miss::Header),
    }
}

/// Whom a unit may concern whose headers were not read to the end.
pub(super) fn unread(unit: &Incoming<'_>, why: Miss) -> Whose {
    let Ok((header, _)) = ethernet::Header::ref_from_prefix(unit.head) else {
        return Whose::Nobody;
    };
    let is_ip = matches!(header.ethertype.get(), ethernet::IPV4 | ethernet::IPV6);
    // What goes to a group is none of the packets that take a place; but what goes
    // to another station may go to what is ours from now on.
    let is_to_one = !header.is_to_group() || why != Miss::Station;
    if is_ip && is_to_one { Whose::Anybody } else { Whose::Nobody }
}

/// `len`: how many bytes follow the header of Ethernet; padding may be among them.
#[inline]
fn read_v4(bytes: &[u8], len: u32) -> Result<Packet, Miss> {
    let (raw, rest) = bytes.split_first_chunk::<{ ipv4::LEN }>().ok_or(Miss::Short)?;
    let header = ipv4::Header::ref_from_bytes(raw).map_err(|_| Miss::Short)?;
    // The version, and a length of five words: no options.
    if header.version_and_words != 0x45 {
        return Err(Miss::Header);
    }
    if header.is_fragment() {
        return Err(Miss::Fragment);
    }
    let payload = u32::from(header.total_len.get()).checked_sub(ipv4::LEN as u32);
    let payload = payload.filter(|payload| payload + ipv4::LEN as u32 <= len);
    let payload = payload.filter(|_| ipv4::is_intact(raw)).ok_or(Miss::Damaged)?;
    let ports = *rest.first_chunk::<4>().filter(|_| payload >= 4).ok_or(Miss::Short)?;
    Ok(Packet {
        ends: Ends::of_v4(header.source, header.destination, ports),
        protocol: header.protocol,
        ecn: header.ecn(),
        at: ethernet::LEN + ipv4::LEN,
        len: payload,
        addresses: sum(&header.source, &header.destination),
    })
}

/// What follows the header has to be TCP or UDP itself: every other next header
/// is one of an extension, and not looked at.
#[inline]
fn read_v6(bytes: &[u8], len: u32) -> Result<Packet, Miss> {
    let (header, rest) = ipv6::Header::ref_from_prefix(bytes).map_err(|_| Miss::Short)?;
    if header.version() != 6 {
        return Err(Miss::Header);
    }
    let payload = u32::from(header.payload_len.get());
    if payload + ipv6::LEN as u32 > len {
        return Err(Miss::Damaged);
    }
    let ports = *rest.first_chunk::<4>().filter(|_| payload >= 4).ok_or(Miss::Short)?;
    Ok(Packet {
        ends: Ends::of_v6(header.source, header.destination, ports),
        protocol: header.next_header,
        ecn: header.ecn(),
        at: ethernet::LEN + ipv6::LEN,
        len: payload,
        addresses: sum(&header.source, &header.destination),
    })
}

#[inline]
fn sum(source: &[u8], destination: &[u8]) -> u16 {
    let mut sum = InternetSum::new();
    sum.add_word(sum_of_words(source));
    sum.add_word(sum_of_words(destination));
    sum.sum()
}

impl Packet {
    #[inline]
    pub(super) const fn is_v4(&self) -> bool {
        self.ends.is_v4()
    }

    /// The pass over `len` bytes of what the packet carries.
    #[inline]
    pub(super) const fn check(&self, len: u32) -> Check {
        let mut sum = InternetSum::new();
        sum.add_word(self.addresses);
        sum.add_word(self.protocol as u16);
        Check::InternetSum { from: self.at as u16, len, seed: with_len(sum, len) }
    }
}

/// Can a host there send from this address (RFC 1122, section 3.2.1.3; RFC 4291,
/// sections 2.5.3 and 2.7)?
#[inline]
pub(super) const fn is_sender(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !address.is_multicast() && !address.is_broadcast() && !address.is_loopback()
        }
        IpAddr::V6(address) => !address.is_multicast() && !address.is_loopback(),
    }
}
