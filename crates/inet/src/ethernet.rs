//! The Ethernet header: the two stations, and what follows.

use landfall_placement::Refusal;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The address of a station on an Ethernet.
pub type Mac = [u8; 6];

/// The length of the header. There is no trailer: the device takes it off.
pub const LEN: usize = size_of::<Header>();
/// Every station.
pub const BROADCAST: Mac = [0xff; 6];

/// What a frame carries: IP version 4.
pub const IPV4: u16 = 0x0800;
/// What a frame carries: address resolution for IP version 4.
pub const ARP: u16 = 0x0806;
/// What a frame carries: a VLAN tag, see [`vlan`](crate::vlan).
pub const VLAN: u16 = 0x8100;
/// What a frame carries: the outer of two VLAN tags (IEEE 802.1ad).
pub const SERVICE_VLAN: u16 = 0x88a8;
/// What a frame carries: IP version 6.
pub const IPV6: u16 = 0x86dd;

const _: () = assert!(LEN == 14);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// The station that is to receive the frame.
    pub destination: Mac,
    /// The station that sent it.
    pub source: Mac,
    /// What follows: one of the constants of this module, or another protocol.
    pub ethertype: U16,
}

impl Header {
    /// The frame went to a group of stations, or to all.
    #[must_use]
    #[inline]
    pub const fn is_to_group(&self) -> bool {
        is_group(self.destination)
    }
}

/// Reads the header at the start of a frame. Gives also what is at hand of the rest.
///
/// # Errors
/// [`Refusal::Truncated`].
#[inline]
pub fn read(frame: &[u8]) -> Result<(&Header, &[u8]), Refusal> {
    Header::ref_from_prefix(frame).map_err(|_| Refusal::Truncated)
}

/// The address is that of a group of stations: multicast, or broadcast.
#[must_use]
#[inline]
pub const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 == 1
}
