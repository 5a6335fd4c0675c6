//! What a frame says of itself, as far as joining needs it.

use landfall_placement::{Ecn, Refusal};

/// Which piece of a packet a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The identification of the packet (16 bits in IPv4).
    pub id: u32,
    /// Where the piece belongs in the payload of the packet: a multiple of 8.
    pub offset: u32,
    /// Whether more pieces follow.
    pub more: bool,
}

impl Fragment {
    /// Offset 0 and none that follow: a whole packet behind a fragment header
    /// (RFC 6946). Other pieces have nothing to do with it.
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// Which packet a piece belongs to: RFC 791 section 3.2, RFC 8200 section 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The source address; those of IPv4 in the low 32 bits.
    pub source: u128,
    /// The destination address.
    pub destination: u128,
    /// The identification.
    pub id: u32,
    /// The protocol of an IPv4 packet; [`Key::IPV6`], since there only the first
    /// piece says it.
    pub protocol: u16,
}

impl Key {
    /// In place of a protocol.
    pub const IPV6: u16 = 0x100;

    /// The same for all packets of a flow.
    #[must_use]
    pub const fn flow(self) -> Self {
        Self { id: 0, ..self }
    }
}

/// What the headers of an IP frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Which packet.
    pub key: Key,
    /// Which piece of it; `None` for a packet in one piece (without fragment header).
    pub fragment: Option<Fragment>,
    /// What follows the IP headers: for IPv6, what follows the fragment header.
    pub protocol: u8,
    /// Where the link header ends and the IP header begins.
    pub network_at: u16,
    /// Where the IP headers end (IPv6: the fragment header) and the piece begins.
    pub payload_at: u16,
    /// The length of the piece by the IP header: the frame may be padded.
    pub payload_len: u32,
    /// The congestion mark.
    pub ecn: Ecn,
}

/// Why there is nothing to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The headers go on: show at least so many bytes.
    NeedHead(u16),
    /// Not IP, or IP in a form that nothing here looks into: pass it up as it is.
    Foreign,
    /// A standard receiver throws it away.
    Refused(Refusal),
}
