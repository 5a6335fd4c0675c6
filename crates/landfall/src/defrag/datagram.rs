//! Heads of UDP datagrams, so that an ordinary socket at the other end has them.

use std::net::{IpAddr, SocketAddr};

use landfall_placement::{InternetSum, Random, Seed};
use spec_defrag::Head;
use spec_defrag::wire::{ethernet, ipv4, ipv6, protocol};

use super::error::Error;

/// One end of a flow of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The Ethernet address: of the interface, or of the next hop.
    pub mac: [u8; 6],
    /// The IP address and the UDP port.
    pub address: SocketAddr,
}

/// Writes the heads of datagrams from one station to another.
#[derive(Clone, Debug)]
pub struct Datagrams {
    from: Station,
    to: Station,
    hop_limit: u8,
    is_summed: bool,
    /// The identification of the next packet (IPv4).
    id: u16,
}

/// The most payload that one datagram has, over IPv4 without options: 65,507 bytes.
pub const DATAGRAM_MAX: u32 = ipv4::PACKET_MAX - ipv4::LEN as u32 - protocol::UDP_LEN as u32;
/// The same over IPv6.
const DATAGRAM_MAX_IPV6: u32 = 65_535 - protocol::UDP_LEN as u32;

impl Datagrams {
    /// From one station to another; `None` if their addresses are of different
    /// versions of IP.
    #[must_use]
    pub fn new(from: Station, to: Station, seed: Seed) -> Option<Self> {
        if from.address.is_ipv4() != to.address.is_ipv4() {
            return None;
        }
        let id = Random::new(seed).next_u32() as u16;
        Some(Self { from, to, hop_limit: 64, is_summed: true, id })
    }

    /// Leaves the checksum away, which IPv4 allows: then nobody looks whether the
    /// bytes are what was sent. Over IPv6 it is always there.
    #[must_use]
    pub const fn without_checksum(self) -> Self {
        Self { is_summed: false, ..self }
    }

    /// Whether a head needs the sum of the payload.
    #[must_use]
    pub const fn needs_sum(&self) -> bool {
        self.is_summed || self.from.address.is_ipv6()
    }

    /// The head of the next datagram, of so much payload with this sum: Ethernet, IP
    /// and UDP header.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn next(&mut self, payload_len: u32, payload: InternetSum) -> Result<Head, Error> {
        self.write(payload_len, Some(payload))
    }

    /// The same with a checksum that is to be finished on the way: it has the sum of the
    /// pseudo-header.
    pub(super) fn next_unfinished(&mut self, payload_len: u32) -> Result<Head, Error> {
        self.write(payload_len, None)
    }

    fn write(&mut self, payload_len: u32, payload: Option<InternetSum>) -> Result<Head, Error> {
        let is_ipv4 = self.from.address.is_ipv4();
        let most = if is_ipv4 { DATAGRAM_MAX } else { DATAGRAM_MAX_IPV6 };
        if payload_len > most {
            return Err(Error::TooLong { len: payload_len.into(), most: most.into() });
        }
        let udp_len = payload_len as u16 + protocol::UDP_LEN as u16;
        let mut bytes = [0; Head::MOST];
        let len = usize::from(udp_at(is_ipv4)) + protocol::UDP_LEN;
        let head = &mut bytes[..len];
        head[..6].copy_from_slice(&self.to.mac);
        head[6..12].copy_from_slice(&self.from.mac);
        let (network, udp) = head[12..].split_at_mut(len - 12 - protocol::UDP_LEN);
        let (ethertype, network) = network.split_at_mut(2);
        let mut sum = match (self.from.address.ip(), self.to.address.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ethertype.copy_from_slice(&ethernet::IPV4.to_be_bytes());
                self.ipv4(network, udp_len, from.octets(), to.octets())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ethertype.copy_from_slice(&ethernet::IPV6.to_be_bytes());
                self.ipv6(network, udp_len, from.octets(), to.octets())
            }
            // `new` saw to it.
            _ => InternetSum::new(),
        };
        udp[..2].copy_from_slice(&self.from.address.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.to.address.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        // RFC 768: over the pseudo-header, the header and the payload.
        sum.add_word(u16::from(protocol::UDP));
        sum.add_word(udp_len);
        let checksum = match payload {
            None => sum.sum(),
            Some(_) if !self.needs_sum() => 0,
            Some(payload) => {
                sum.add(udp);
                sum.append(payload);
                // Zero would say that there is none.
                if sum.checksum() == 0 { 0xffff } else { sum.checksum() }
            }
        };
        udp[6..].copy_from_slice(&checksum.to_be_bytes());
        // It was made shorter than that.
        Ok(Head::from_slice(head).unwrap_or_default())
    }

    /// Writes the IPv4 header; gives the sum of the addresses.
    fn ipv4(&mut self, header: &mut [u8], udp_len: u16, from: [u8; 4], to: [u8; 4]) -> InternetSum {
        self.id = self.id.wrapping_add(1);
        header[0] = 0x45;
        header[2..4].copy_from_slice(&(udp_len + ipv4::LEN as u16).to_be_bytes());
        header[4..6].copy_from_slice(&self.id.to_be_bytes());
        header[8] = self.hop_limit;
        header[9] = protocol::UDP;
        header[12..16].copy_from_slice(&from);
        header[16..20].copy_from_slice(&to);
        ipv4::seal(header);
        sum_of(&header[12..20])
    }

    fn ipv6(&self, header: &mut [u8], udp_len: u16, from: [u8; 16], to: [u8; 16]) -> InternetSum {
        header[0] = 0x60;
        header[4..6].copy_from_slice(&udp_len.to_be_bytes());
        header[6] = protocol::UDP;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&from);
        header[24..40].copy_from_slice(&to);
        sum_of(&header[8..40])
    }
}

/// Where the UDP header begins.
pub(super) const fn udp_at(is_ipv4: bool) -> u16 {
    (ethernet::LEN + if is_ipv4 { ipv4::LEN } else { ipv6::LEN }) as u16
}

/// How much of an IP payload a fragment carries on a link with this MTU.
pub(super) const fn piece_of(is_ipv4: bool, mtu: u16) -> u16 {
    let headers = if is_ipv4 { ipv4::LEN } else { ipv6::LEN + ipv6::FRAGMENT_LEN };
    mtu.saturating_sub(headers as u16) & !7
}

fn sum_of(bytes: &[u8]) -> InternetSum {
    let mut sum = InternetSum::new();
    sum.add(bytes);
    sum
}
