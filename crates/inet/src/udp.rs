//! The UDP header (RFC 768).

use core::net::IpAddr;

use landfall_placement::Refusal;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{InternetSum, sum_of_words};
use crate::packet::{Ip, Layer, Stop};

/// The length of the header.
pub const LEN: usize = size_of::<Header>();
/// Where the checksum lies in it.
pub const SUM_OFFSET: u16 = 6;

const _: () = assert!(LEN == 8);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// The sender's port.
    pub source: U16,
    /// The receiver's port.
    pub destination: U16,
    /// The length of header and payload.
    pub len: U16,
    /// The Internet checksum over pseudo-header, header and payload; zero if
    /// there is none, which only IPv4 allows.
    pub sum: U16,
}

impl Header {
    /// The header in these bytes, unchecked.
    #[must_use]
    #[inline]
    pub const fn view(bytes: &[u8; LEN]) -> &Self {
        zerocopy::transmute_ref!(bytes)
    }

    /// Whether there is a checksum to verify.
    #[must_use]
    #[inline]
    pub const fn has_sum(&self) -> bool {
        self.sum.get() != 0
    }

    /// The sum of the fields, for a checksum.
    #[must_use]
    #[inline]
    pub fn sum_of_fields(&self) -> InternetSum {
        let mut sum = InternetSum::new();
        sum.add_word(sum_of_words(self.as_bytes()));
        sum
    }

    /// The checksum field for this checksum: zero would say that there is none.
    #[must_use]
    #[inline]
    pub const fn sum_field(checksum: u16) -> u16 {
        if checksum == 0 { 0xffff } else { checksum }
    }

    /// Writes the header and gives its length, or `None` if there is no room.
    #[inline]
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        self.write_to_prefix(into).ok()?;
        Some(LEN)
    }
}

/// The ports of sender and receiver, with which the headers of UDP and TCP start; `None` where
/// they are not at hand.
#[must_use]
pub const fn ports(transport: &[u8]) -> Option<[u16; 2]> {
    match transport {
        [a, b, c, d, ..] => Some([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])]),
        _ => None,
    }
}

impl Ip {
    /// Reads the UDP header of a packet that carries UDP.
    ///
    /// # Errors
    /// [`Stop::NeedHead`]; [`Refusal::Truncated`]; [`Refusal::Malformed`] for a
    /// length below that of the header; [`Refusal::BadChecksum`] for IPv6
    /// without a checksum (RFC 8200, section 8.1).
    #[inline]
    pub fn udp(&self, head: &[u8]) -> Result<Layer<Header>, Stop> {
        let bytes = self.start(head, LEN)?;
        let (&header, _) = Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
        let len = u32::from(header.len.get());
        if len < LEN as u32 {
            return Err(Stop::Refused(Refusal::Malformed));
        }
        if len > self.payload_len {
            return Err(Stop::Refused(Refusal::Truncated));
        }
        if !header.has_sum() && matches!(self.source, IpAddr::V6(_)) {
            return Err(Stop::Refused(Refusal::BadChecksum));
        }
        let at = self.payload_at;
        let payload_len = len - LEN as u32;
        Ok(Layer { header, at, len, payload_at: at + LEN, payload_len })
    }
}
