//! The Ethernet header: who is meant, who sends, and what follows.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of the header. There is no trailer: the device takes it off.
pub const LEN: usize = size_of::<Header>();

/// What a frame carries: IP version 4.
pub const IPV4: u16 = 0x0800;
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
    pub destination: [u8; 6],
    /// Who sends.
    pub source: [u8; 6],
    /// What follows: [`IPV4`], [`IPV6`], or what is none of ours.
    pub ethertype: U16,
}

impl Header {
    /// The frame went to a group of stations, or to all.
    #[must_use]
    pub const fn is_to_group(&self) -> bool {
        self.destination[0] & 1 == 1
    }
}
