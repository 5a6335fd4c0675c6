//! The IPv6 header (RFC 8200). What may stand between it and what it carries is
//! [`extension`](crate::extension)'s.

use core::net::Ipv6Addr;

use landfall_placement::{Ecn, Refusal};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::reassembly::Key;

/// The length of the header.
pub const LEN: usize = size_of::<Header>();
/// The least that every link carries in one piece.
pub const MTU_MIN: u32 = 1280;
/// The most that may follow the header in one packet.
pub const PAYLOAD_MAX: u32 = 65_535;

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
    /// How many more routers may forward it.
    pub hop_limit: u8,
    /// The address of the sender.
    pub source: [u8; 16],
    /// The address of the receiver.
    pub destination: [u8; 16],
}

impl Header {
    /// The header in these bytes, unchecked.
    #[must_use]
    #[inline]
    pub const fn view(bytes: &[u8; LEN]) -> &Self {
        zerocopy::transmute_ref!(bytes)
    }

    /// The first four bytes, of a traffic class (ECN in its low two bits) and a
    /// flow label of 20 bits.
    #[must_use]
    #[inline]
    pub const fn class_and_label(traffic_class: u8, flow_label: u32) -> [u8; 4] {
        (6 << 28 | (traffic_class as u32) << 20 | flow_label & 0xf_ffff).to_be_bytes()
    }

    /// The version: 6 in all packets that are accepted.
    #[must_use]
    #[inline]
    pub const fn version(&self) -> u8 {
        self.version_class_label[0] >> 4
    }

    /// The code point for differentiated services, and ECN in the low two bits.
    #[must_use]
    #[inline]
    pub const fn traffic_class(&self) -> u8 {
        self.version_class_label[0] << 4 | self.version_class_label[1] >> 4
    }

    /// The congestion mark: the low two bits of the traffic class.
    #[must_use]
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.version_class_label[1] >> 4)
    }

    /// Changes the congestion mark.
    #[inline]
    pub const fn set_ecn(&mut self, ecn: Ecn) {
        let byte = &mut self.version_class_label[1];
        *byte = *byte & !0x30 | (ecn as u8) << 4;
    }

    /// Which packet its fragments belong to, by the identification of their header.
    #[must_use]
    #[inline]
    pub const fn key(&self, id: u32) -> Key {
        Key::ipv6(self.source, self.destination, id)
    }

    /// The address of the sender.
    #[must_use]
    #[inline]
    pub const fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.source)
    }

    /// The address of the receiver.
    #[must_use]
    #[inline]
    pub const fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_octets(self.destination)
    }
}

/// Reads the header at the start of `bytes`.
///
/// # Errors
/// [`Refusal::Truncated`]; [`Refusal::Malformed`] for another version.
#[inline]
pub fn read(bytes: &[u8]) -> Result<&Header, Refusal> {
    let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
    if header.version() != 6 {
        return Err(Refusal::Malformed);
    }
    Ok(header)
}
