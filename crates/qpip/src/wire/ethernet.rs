//! The Ethernet header: who is meant, who sends, and what follows.

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
/// What a frame carries: IP version 6.
pub const IPV6: u16 = 0x86dd;

const _: () = assert!(LEN == 14);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// Who is meant.
    pub destination: Mac,
    /// Who sends.
    pub source: Mac,
    /// What follows: see the constants of this module.
    pub ethertype: U16,
}

impl Header {
    /// The frame went to one station, and not to a group or to all.
    #[must_use]
    pub const fn is_to_one(&self) -> bool {
        !is_group(self.destination)
    }
}

/// The address is that of a group of stations: multicast, or broadcast.
#[must_use]
pub const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 == 1
}
