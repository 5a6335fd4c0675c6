//! The numbers of what IP carries, and of the headers between (IANA, "Protocol
//! Numbers").

/// Control messages of IPv4.
pub const ICMP4: u8 = 1;
/// Who listens to which group of IPv4.
pub const IGMP: u8 = 2;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// Control messages of IPv6, neighbour discovery among them.
pub const ICMP6: u8 = 58;

/// Options that every node on the way looks at.
pub const HOP_BY_HOP: u8 = 0;
/// The stations to pass on the way.
pub const ROUTING: u8 = 43;
/// The packet is a fragment.
pub const FRAGMENT: u8 = 44;
/// A proof of the sender (RFC 4302).
pub const AUTHENTICATION: u8 = 51;
/// Nothing follows.
pub const NO_NEXT_HEADER: u8 = 59;
/// Options for the destination.
pub const DESTINATION_OPTIONS: u8 = 60;
/// The sender moved (RFC 6275).
pub const MOBILITY: u8 = 135;
