//! The headers before the TCP header: written once, filled in for each unit, checked.

use landfall_placement::{InternetSum, Peer, Refusal, SegmentKind, Unit, checksum};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::config::{Framing, Station};
use super::header::TCP_LEN;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ethernet {
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv4 {
    version_and_words: u8,
    traffic_class: u8,
    total_len: U16,
    id: U16,
    fragment: U16,
    hops: u8,
    protocol: u8,
    sum: U16,
    source: [u8; 4],
    destination: [u8; 4],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Ipv6 {
    version_and_label: [u8; 4],
    payload_len: U16,
    next_header: u8,
    hops: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

const ETHERNET: usize = size_of::<Ethernet>();
const IPV4: usize = size_of::<Ipv4>();
const IPV6: usize = size_of::<Ipv6>();
/// The longest head before the TCP header.
pub(super) const PREFIX_MAX: usize = ETHERNET + IPV6;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const HOPS: u8 = 64;
/// RFC 791: more fragments, or not the first.
const IS_FRAGMENT: u16 = 0x3fff;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// Where the TCP segment lies in a unit, and what is checked with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Where the TCP header starts.
    pub(super) start: usize,
    /// The length of TCP header and payload.
    pub(super) len: u32,
    /// The sum over the pseudo-header.
    pub(super) pseudo: u16,
}

/// What is the same in every unit of a connection.
#[derive(Debug)]
pub(super) struct Frame {
    framing: Framing,
    prefix: [u8; PREFIX_MAX],
    prefix_len: usize,
    /// The sum over addresses and protocol.
    addresses: u16,
    id: u16,
}

impl Frame {
    pub(super) fn new(framing: Framing) -> Self {
        let mut prefix = [0; PREFIX_MAX];
        let mut sum = InternetSum::new();
        let mut prefix_len = 0;
        match framing {
            Framing::EthernetIpv4Tcp { local, remote } => {
                prefix_len = write_ipv4(&mut prefix, &local, &remote);
                sum.add(&prefix[ETHERNET + 12..prefix_len]);
                sum.add_word(u16::from(PROTOCOL_TCP));
            }
            Framing::EthernetIpv6Tcp { local, remote } => {
                prefix_len = write_ipv6(&mut prefix, &local, &remote);
                sum.add(&prefix[ETHERNET + 8..prefix_len]);
                sum.add_word(u16::from(PROTOCOL_TCP));
            }
            Framing::Bare { .. } => {}
        }
        Self { framing, prefix, prefix_len, addresses: sum.sum(), id: 0 }
    }

    /// The length of what stands before the TCP header.
    pub(super) const fn prefix_len(&self) -> usize {
        self.prefix_len
    }

    /// This port and the other one.
    pub(super) const fn ports(&self) -> (u16, u16) {
        match self.framing {
            Framing::EthernetIpv4Tcp { local, remote } => (local.port, remote.port),
            Framing::EthernetIpv6Tcp { local, remote } => (local.port, remote.port),
            Framing::Bare { local_port, remote_port, .. } => (local_port, remote_port),
        }
    }

    /// To whom the driver sends.
    pub(super) const fn peer(&self) -> Peer {
        match self.framing {
            Framing::Bare { peer, .. } => peer,
            Framing::EthernetIpv4Tcp { .. } | Framing::EthernetIpv6Tcp { .. } => Peer::Unaddressed,
        }
    }

    /// How the device would cut a long segment.
    pub(super) const fn segment_kind(&self) -> Option<SegmentKind> {
        match self.framing {
            Framing::EthernetIpv4Tcp { .. } => Some(SegmentKind::Tcp4),
            Framing::EthernetIpv6Tcp { .. } => Some(SegmentKind::Tcp6),
            Framing::Bare { .. } => None,
        }
    }

    /// Frames always carry a checksum over their payload.
    pub(super) const fn is_bare(&self) -> bool {
        matches!(self.framing, Framing::Bare { .. })
    }

    /// The sum over the pseudo-header of a segment of this length.
    #[inline]
    pub(super) fn pseudo(&self, len: u32) -> u16 {
        if self.is_bare() {
            return 0;
        }
        let mut sum = InternetSum::new();
        sum.add_word(self.addresses);
        sum.add_word((len >> 16) as u16);
        sum.add_word(len as u16);
        sum.sum()
    }

    /// Writes what stands before a TCP segment of `len` bytes that will be cut
    /// into `pieces`.
    #[inline]
    pub(super) fn write(&mut self, head: &mut [u8], len: u32, pieces: u16) -> Option<()> {
        let into = head.get_mut(..self.prefix_len)?;
        into.copy_from_slice(&self.prefix[..self.prefix_len]);
        match self.framing {
            Framing::EthernetIpv4Tcp { .. } => {
                let (ip, _) = Ipv4::mut_from_prefix(&mut into[ETHERNET..]).ok()?;
                ip.total_len = u16::try_from(len + IPV4 as u32).ok()?.into();
                ip.id = self.id.into();
                self.id = self.id.wrapping_add(pieces);
                ip.sum = checksum::checksum(ip.as_bytes()).into();
            }
            Framing::EthernetIpv6Tcp { .. } => {
                let (ip, _) = Ipv6::mut_from_prefix(&mut into[ETHERNET..]).ok()?;
                ip.payload_len = u16::try_from(len).ok()?.into();
            }
            Framing::Bare { .. } => {}
        }
        Some(())
    }

    /// Finds the TCP segment of a unit. `Ok(Err(n))`: `n` bytes of head are needed.
    #[inline]
    pub(super) fn find(&self, unit: &Unit<'_>) -> Result<Result<Found, u16>, Refusal> {
        let least = self.prefix_len + TCP_LEN;
        if (unit.len as usize) < least {
            return Err(Refusal::Truncated);
        }
        if unit.head.len() < least {
            return Ok(Err(least as u16));
        }
        let (start, len) = match self.framing {
            Framing::EthernetIpv4Tcp { local, remote } => {
                let start = find_ipv4(unit, &local, &remote)?;
                let ip = &unit.head[ETHERNET..];
                let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
                let words = (start - ETHERNET) as u32;
                (start, total.checked_sub(words).ok_or(Refusal::Malformed)?)
            }
            Framing::EthernetIpv6Tcp { local, remote } => {
                let ip = &unit.head[ETHERNET..];
                check_ipv6(unit, &local, &remote)?;
                (ETHERNET + IPV6, u32::from(u16::from_be_bytes([ip[4], ip[5]])))
            }
            Framing::Bare { peer, .. } => {
                if unit.from != peer {
                    return Err(Refusal::WrongAddress);
                }
                (0, unit.len)
            }
        };
        if start as u64 + u64::from(len) > u64::from(unit.len) || (len as usize) < TCP_LEN {
            return Err(Refusal::Truncated);
        }
        if unit.head.len() < start + TCP_LEN {
            return Ok(Err((start + TCP_LEN) as u16));
        }
        Ok(Ok(Found { start, len, pseudo: self.pseudo(len) }))
    }
}

fn write_ethernet(into: &mut [u8], local: [u8; 6], remote: [u8; 6], ethertype: u16) {
    let header = Ethernet { destination: remote, source: local, ethertype: ethertype.into() };
    into[..ETHERNET].copy_from_slice(header.as_bytes());
}

fn write_ipv4(
    into: &mut [u8],
    local: &Station<core::net::Ipv4Addr>,
    remote: &Station<core::net::Ipv4Addr>,
) -> usize {
    write_ethernet(into, local.mac, remote.mac, ETHERTYPE_IPV4);
    let ip = Ipv4 {
        version_and_words: 0x45,
        traffic_class: 0,
        total_len: 0.into(),
        id: 0.into(),
        fragment: DO_NOT_FRAGMENT.into(),
        hops: HOPS,
        protocol: PROTOCOL_TCP,
        sum: 0.into(),
        source: local.ip.octets(),
        destination: remote.ip.octets(),
    };
    into[ETHERNET..ETHERNET + IPV4].copy_from_slice(ip.as_bytes());
    ETHERNET + IPV4
}

fn write_ipv6(
    into: &mut [u8],
    local: &Station<core::net::Ipv6Addr>,
    remote: &Station<core::net::Ipv6Addr>,
) -> usize {
    write_ethernet(into, local.mac, remote.mac, ETHERTYPE_IPV6);
    let ip = Ipv6 {
        version_and_label: [0x60, 0, 0, 0],
        payload_len: 0.into(),
        next_header: PROTOCOL_TCP,
        hops: HOPS,
        source: local.ip.octets(),
        destination: remote.ip.octets(),
    };
    into[ETHERNET..ETHERNET + IPV6].copy_from_slice(ip.as_bytes());
    ETHERNET + IPV6
}

fn check_ethernet(
    head: &[u8],
    local: [u8; 6],
    remote: [u8; 6],
    ethertype: u16,
) -> Result<(), Refusal> {
    let (ethernet, _) = Ethernet::ref_from_prefix(head).map_err(|_| Refusal::Truncated)?;
    if ethernet.ethertype.get() != ethertype {
        return Err(Refusal::Unsupported);
    }
    if ethernet.destination != local || ethernet.source != remote {
        return Err(Refusal::WrongAddress);
    }
    Ok(())
}

/// Checks Ethernet and IPv4; gives where the TCP header starts.
fn find_ipv4(
    unit: &Unit<'_>,
    local: &Station<core::net::Ipv4Addr>,
    remote: &Station<core::net::Ipv4Addr>,
) -> Result<usize, Refusal> {
    check_ethernet(unit.head, local.mac, remote.mac, ETHERTYPE_IPV4)?;
    let bytes = &unit.head[ETHERNET..];
    let (ip, _) = Ipv4::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
    let len = usize::from(ip.version_and_words & 15) * 4;
    if ip.version_and_words >> 4 != 4 || len < IPV4 {
        return Err(Refusal::Malformed);
    }
    if ip.protocol != PROTOCOL_TCP || ip.fragment.get() & IS_FRAGMENT != 0 {
        return Err(Refusal::Unsupported);
    }
    if ip.destination != local.ip.octets() || ip.source != remote.ip.octets() {
        return Err(Refusal::WrongAddress);
    }
    // The head at hand covers 20 bytes; longer headers carry options, which
    // nobody here sends.
    if len != IPV4 {
        return Err(Refusal::Unsupported);
    }
    if checksum::sum_of(ip.as_bytes()) != 0xffff {
        return Err(Refusal::BadChecksum);
    }
    Ok(ETHERNET + IPV4)
}

fn check_ipv6(
    unit: &Unit<'_>,
    local: &Station<core::net::Ipv6Addr>,
    remote: &Station<core::net::Ipv6Addr>,
) -> Result<(), Refusal> {
    check_ethernet(unit.head, local.mac, remote.mac, ETHERTYPE_IPV6)?;
    let (ip, _) = Ipv6::ref_from_prefix(&unit.head[ETHERNET..]).map_err(|_| Refusal::Truncated)?;
    if ip.version_and_label[0] >> 4 != 6 {
        return Err(Refusal::Malformed);
    }
    if ip.next_header != PROTOCOL_TCP {
        return Err(Refusal::Unsupported);
    }
    if ip.destination != local.ip.octets() || ip.source != remote.ip.octets() {
        return Err(Refusal::WrongAddress);
    }
    Ok(())
}
