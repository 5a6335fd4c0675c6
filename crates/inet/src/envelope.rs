//! What stands before a transport header in a frame that leaves.

use core::net::IpAddr;

use zerocopy::IntoBytes;

use crate::checksum::{self, InternetSum};
use crate::ethernet::{self, Mac};
use crate::fragment::{self, Fragment};
use crate::{ipv4, ipv6, protocol};

/// The longest envelope: Ethernet, IPv6 and the header of a piece.
pub const LEN_MAX: usize = ethernet::LEN + ipv6::LEN + fragment::LEN;
/// The hop limit that packets start with.
pub const HOP_LIMIT: u8 = 64;

/// The Ethernet and IP headers of a packet, before they are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The station that sends.
    pub source_mac: Mac,
    /// The station that is to receive.
    pub destination_mac: Mac,
    /// The address of the sender.
    pub source: IpAddr,
    /// The address of the receiver; of the same version of IP.
    pub destination: IpAddr,
    /// What is carried; for a piece, what the whole packet carries.
    pub protocol: u8,
    /// How many routers may forward it.
    pub hop_limit: u8,
    /// The code point for differentiated services, and ECN in the low two bits.
    pub traffic_class: u8,
    /// 20 bits that are the same for all packets of a flow; IPv6 only.
    pub flow_label: u32,
    /// The number of an IPv4 packet that is whole. Pieces carry their own.
    pub id: u16,
    /// No router may cut it. IPv6 routers never do.
    pub dont_fragment: bool,
    /// Which piece of a packet this is, if it is one.
    pub fragment: Option<Fragment>,
}

impl Envelope {
    /// A whole packet that routers may not cut, of a flow without a label.
    #[must_use]
    #[inline]
    pub const fn new(
        (source_mac, source): (Mac, IpAddr),
        (destination_mac, destination): (Mac, IpAddr),
        protocol: u8,
    ) -> Self {
        Self {
            source_mac,
            destination_mac,
            source,
            destination,
            protocol,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
            id: 0,
            dont_fragment: true,
            fragment: None,
        }
    }

    /// The length of the Ethernet and IP headers.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        ethernet::LEN + self.ip_len()
    }

    /// The length of the IP headers: what is taken from the link's MTU.
    #[must_use]
    #[inline]
    pub const fn ip_len(&self) -> usize {
        match (self.source, self.fragment) {
            (IpAddr::V4(_), _) => ipv4::LEN,
            (IpAddr::V6(_), None) => ipv6::LEN,
            (IpAddr::V6(_), Some(_)) => ipv6::LEN + fragment::LEN,
        }
    }

    /// The sum over addresses and protocol, for [`checksum::with_len`].
    #[must_use]
    #[inline]
    pub fn addresses(&self) -> InternetSum {
        checksum::pseudo_header(self.source, self.destination, self.protocol)
    }

    /// The folded sum over the pseudo-header of `len` bytes of the protocol: of
    /// the whole packet, also where this is a piece of it.
    #[must_use]
    #[inline]
    pub fn pseudo(&self, len: u32) -> u16 {
        checksum::with_len(self.addresses(), len)
    }

    /// Writes the headers of a packet that carries `payload_len` bytes and gives
    /// their length.
    ///
    /// `None` if there is no room, if the two addresses are of different
    /// versions, or if the packet is longer than IP can say.
    #[inline]
    pub fn write(&self, into: &mut [u8], payload_len: u32) -> Option<usize> {
        let into = into.get_mut(..self.header_len())?;
        let (ethernet_bytes, ip_bytes) = into.split_at_mut(ethernet::LEN);
        let ethertype = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.ipv4(source.octets(), destination.octets(), payload_len)?
                    .write_to(ip_bytes)
                    .ok()?;
                ethernet::IPV4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = self.ipv6(source.octets(), destination.octets(), payload_len)?;
                header.write_to_prefix(ip_bytes).ok()?;
                if let Some(piece) = self.fragment {
                    fragment::Header::new(self.protocol, piece).write_to_suffix(ip_bytes).ok()?;
                }
                ethernet::IPV6
            }
            _ => return None,
        };
        let header = ethernet::Header {
            destination: self.destination_mac,
            source: self.source_mac,
            ethertype: ethertype.into(),
        };
        header.write_to(ethernet_bytes).ok()?;
        Some(into.len())
    }

    #[inline]
    fn ipv4(
        &self,
        source: [u8; 4],
        destination: [u8; 4],
        payload_len: u32,
    ) -> Option<ipv4::Header> {
        let piece = self.fragment.unwrap_or_default();
        let mut fragment = (piece.offset / 8) as u16 & ipv4::OFFSET;
        if piece.more {
            fragment |= ipv4::MORE_FRAGMENTS;
        }
        if self.dont_fragment && self.fragment.is_none() {
            fragment |= ipv4::DO_NOT_FRAGMENT;
        }
        let total_len = payload_len.checked_add(ipv4::LEN as u32)?;
        let mut header = ipv4::Header {
            version_and_words: 0x45,
            traffic_class: self.traffic_class,
            total_len: u16::try_from(total_len).ok()?.into(),
            id: self.fragment.map_or(self.id, |piece| piece.id as u16).into(),
            fragment: fragment.into(),
            hop_limit: self.hop_limit,
            protocol: self.protocol,
            sum: 0.into(),
            source,
            destination,
        };
        header.seal();
        Some(header)
    }

    #[inline]
    fn ipv6(
        &self,
        source: [u8; 16],
        destination: [u8; 16],
        payload_len: u32,
    ) -> Option<ipv6::Header> {
        let (next_header, extensions) = match self.fragment {
            Some(_) => (protocol::FRAGMENT, fragment::LEN),
            None => (self.protocol, 0),
        };
        let payload_len = payload_len.checked_add(extensions as u32)?;
        Some(ipv6::Header {
            version_class_label: ipv6::Header::class_and_label(self.traffic_class, self.flow_label),
            payload_len: u16::try_from(payload_len).ok()?.into(),
            next_header,
            hop_limit: self.hop_limit,
            source,
            destination,
        })
    }
}
