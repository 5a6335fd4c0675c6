//! The headers before the TCP header: written once, filled in for each unit, checked.

use core::net::{Ipv4Addr, Ipv6Addr};

use landfall_inet::{Envelope, Mac, checksum, ethernet, ipv4, ipv6, protocol, tcp};
use landfall_placement::{InternetSum, Peer, Refusal, SegmentKind, Unit};
use zerocopy::{FromBytes, IntoBytes};

use super::config::{Framing, Station};

/// The longest head before the TCP header.
pub(super) const PREFIX_MAX: usize = ethernet::LEN + ipv6::LEN;

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
    addresses: InternetSum,
    id: u16,
}

impl Frame {
    pub(super) fn new(framing: Framing) -> Self {
        let envelope = match framing {
            Framing::EthernetIpv4Tcp { local, remote } => Some(Envelope::new(
                (local.mac, local.ip.into()),
                (remote.mac, remote.ip.into()),
                protocol::TCP,
            )),
            Framing::EthernetIpv6Tcp { local, remote } => Some(Envelope::new(
                (local.mac, local.ip.into()),
                (remote.mac, remote.ip.into()),
                protocol::TCP,
            )),
            Framing::Bare { .. } => None,
        };
        let mut prefix = [0; PREFIX_MAX];
        let prefix_len = envelope.and_then(|envelope| envelope.write(&mut prefix, 0)).unwrap_or(0);
        let addresses = envelope.as_ref().map(Envelope::addresses).unwrap_or_default();
        Self { framing, prefix, prefix_len, addresses, id: 0 }
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
        checksum::with_len(self.addresses, len)
    }

    /// Writes what stands before a TCP segment of `len` bytes that will be cut
    /// into `pieces`.
    #[inline]
    pub(super) fn write(&mut self, head: &mut [u8], len: u32, pieces: u16) -> Option<()> {
        let into = head.get_mut(..self.prefix_len)?;
        into.copy_from_slice(&self.prefix[..self.prefix_len]);
        match self.framing {
            Framing::EthernetIpv4Tcp { .. } => {
                let (ip, _) = ipv4::Header::mut_from_prefix(&mut into[ethernet::LEN..]).ok()?;
                ip.total_len = u16::try_from(len + ipv4::LEN as u32).ok()?.into();
                ip.id = self.id.into();
                self.id = self.id.wrapping_add(pieces);
                ip.seal();
            }
            Framing::EthernetIpv6Tcp { .. } => {
                let (ip, _) = ipv6::Header::mut_from_prefix(&mut into[ethernet::LEN..]).ok()?;
                ip.payload_len = u16::try_from(len).ok()?.into();
            }
            Framing::Bare { .. } => {}
        }
        Some(())
    }

    /// Finds the TCP segment of a unit. `Ok(Err(n))`: `n` bytes of head are needed.
    #[inline]
    pub(super) fn find(&self, unit: &Unit<'_>) -> Result<Result<Found, u16>, Refusal> {
        let least = self.prefix_len + tcp::LEN;
        if (unit.len as usize) < least {
            return Err(Refusal::Truncated);
        }
        if unit.head.len() < least {
            return Ok(Err(least as u16));
        }
        let (start, len) = match self.framing {
            Framing::EthernetIpv4Tcp { local, remote } => {
                let total = check_ipv4(unit, &local, &remote)?;
                let len = total.checked_sub(ipv4::LEN as u32).ok_or(Refusal::Malformed)?;
                (ethernet::LEN + ipv4::LEN, len)
            }
            Framing::EthernetIpv6Tcp { local, remote } => {
                (ethernet::LEN + ipv6::LEN, check_ipv6(unit, &local, &remote)?)
            }
            Framing::Bare { peer, .. } => {
                if unit.from != peer {
                    return Err(Refusal::WrongAddress);
                }
                (0, unit.len)
            }
        };
        if start as u64 + u64::from(len) > u64::from(unit.len) || (len as usize) < tcp::LEN {
            return Err(Refusal::Truncated);
        }
        if unit.head.len() < start + tcp::LEN {
            return Ok(Err((start + tcp::LEN) as u16));
        }
        Ok(Ok(Found { start, len, pseudo: self.pseudo(len) }))
    }
}

fn check_ethernet(head: &[u8], local: Mac, remote: Mac, ethertype: u16) -> Result<&[u8], Refusal> {
    let (ethernet, rest) = ethernet::read(head)?;
    if ethernet.ethertype.get() != ethertype {
        return Err(Refusal::Unsupported);
    }
    if ethernet.destination != local || ethernet.source != remote {
        return Err(Refusal::WrongAddress);
    }
    Ok(rest)
}

/// Checks Ethernet and IPv4; gives how long the packet is.
fn check_ipv4(
    unit: &Unit<'_>,
    local: &Station<Ipv4Addr>,
    remote: &Station<Ipv4Addr>,
) -> Result<u32, Refusal> {
    let packet = check_ethernet(unit.head, local.mac, remote.mac, ethernet::IPV4)?;
    let (ip, _) = ipv4::Header::ref_from_prefix(packet).map_err(|_| Refusal::Truncated)?;
    if ip.version() != 4 || ip.header_len() < ipv4::LEN {
        return Err(Refusal::Malformed);
    }
    if ip.protocol != protocol::TCP || ip.is_fragment() {
        return Err(Refusal::Unsupported);
    }
    if ip.destination() != local.ip || ip.source() != remote.ip {
        return Err(Refusal::WrongAddress);
    }
    // The head at hand covers 20 bytes; longer headers carry options, which
    // nobody here sends.
    if ip.header_len() != ipv4::LEN {
        return Err(Refusal::Unsupported);
    }
    if !ipv4::is_intact(ip.as_bytes()) {
        return Err(Refusal::BadChecksum);
    }
    Ok(ip.total_len.get().into())
}

/// Checks Ethernet and IPv6; gives how long the payload is.
fn check_ipv6(
    unit: &Unit<'_>,
    local: &Station<Ipv6Addr>,
    remote: &Station<Ipv6Addr>,
) -> Result<u32, Refusal> {
    let ip = ipv6::read(check_ethernet(unit.head, local.mac, remote.mac, ethernet::IPV6)?)?;
    if ip.next_header != protocol::TCP {
        return Err(Refusal::Unsupported);
    }
    if ip.destination() != local.ip || ip.source() != remote.ip {
        return Err(Refusal::WrongAddress);
    }
    Ok(ip.payload_len.get().into())
}
