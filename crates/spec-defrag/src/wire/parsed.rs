//! What a frame says of itself, as far as joining needs it.

use landfall_inet::Fragment;
use landfall_inet::reassembly::Key;
use landfall_placement::{Ecn, Refusal};

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

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
