//! What STP packets are carried by.

/// The ethertype of STP.
pub const ETHERTYPE: u16 = 0x8181;

/// The number of STP among the protocols on IP.
pub const IP_PROTOCOL: u8 = 118;

/// The UDP port where nothing else is configured. None is registered; this one
/// has the digits of the ethertype.
pub const UDP_PORT: u16 = 8181;
