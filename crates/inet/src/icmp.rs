//! What the control messages of both IP versions say in the same words: an
//! echo, and an error with the packet that it is about.

use core::net::IpAddr;

use landfall_placement::Refusal;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::InternetSum;
use crate::{extension, ipv4, ipv6};

/// The length of the header: type, code, checksum, and four bytes by type.
pub const LEN: usize = size_of::<Header>();
/// How much of the transport header a quotation has at least (RFC 792).
pub const QUOTED_LEN_MIN: usize = 8;

/// As the code of "time exceeded": not all fragments of the packet came.
pub(crate) const FRAGMENTS_MISSING: u8 = 1;

const _: () = assert!(LEN == 8);

/// The header as it lies in a frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// What it is.
    pub kind: u8,
    /// What it is more exactly.
    pub code: u8,
    /// The Internet checksum; see the modules of the two versions.
    pub sum: U16,
    /// By kind.
    pub rest: [u8; 4],
}

/// A question whether somebody is there, or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Which program asks.
    pub id: u16,
    /// Which of its questions this is.
    pub sequence: u16,
    /// What the answer is to repeat.
    pub data: &'a [u8],
}

impl<'a> Echo<'a> {
    pub(crate) const fn read(rest: [u8; 4], data: &'a [u8]) -> Self {
        let [a, b, c, d] = rest;
        Self { id: u16::from_be_bytes([a, b]), sequence: u16::from_be_bytes([c, d]), data }
    }

    /// Writes the message, its checksum still the sum `seed` alone.
    pub(crate) fn write(&self, kind: u8, into: &mut [u8], seed: u16) -> Option<usize> {
        let ([a, b], [c, d]) = (self.id.to_be_bytes(), self.sequence.to_be_bytes());
        write(kind, 0, [a, b, c, d], self.data, into, seed)
    }
}

/// Writes a whole message and its checksum. Gives its length, or `None` if there
/// is no room.
pub(crate) fn write(
    kind: u8,
    code: u8,
    rest: [u8; 4],
    body: &[u8],
    into: &mut [u8],
    seed: u16,
) -> Option<usize> {
    let into = into.get_mut(..LEN + body.len())?;
    let mut header = Header { kind, code, sum: U16::ZERO, rest };
    let mut sum = InternetSum::new();
    sum.add_word(seed);
    sum.add(header.as_bytes());
    sum.add(body);
    header.sum = sum.checksum().into();
    header.write_to_prefix(into).ok()?;
    into[LEN..].copy_from_slice(body);
    Some(into.len())
}

/// What went wrong with a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No way leads there now: it may pass (RFC 1122, section 4.2.3.9).
    NoRoute {
        /// As the message has it.
        code: u8,
    },
    /// Nobody listens there, or it is not allowed: a TCP that opens gives up.
    PortUnreachable,
    /// The protocol is not spoken there.
    ProtocolUnreachable,
    /// It is forbidden on the way.
    Prohibited {
        /// As the message has it.
        code: u8,
    },
    /// It is longer than the next link carries in one piece.
    TooBig {
        /// What that link carries; 0 from routers older than RFC 1191.
        mtu: u32,
    },
    /// It went round in circles, or a piece of it never came.
    TimeExceeded {
        /// 0: too many routers; 1: pieces are missing.
        code: u8,
    },
    /// A header has something wrong.
    ParameterProblem {
        /// As the message has it.
        code: u8,
        /// Which byte of the packet.
        pointer: u32,
    },
}

/// An error and the packet that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// What went wrong.
    pub trouble: Trouble,
    /// With which packet. Anybody can write such a message: anyone who believes it
    /// checks first that the packet is one that was sent (RFC 5927).
    pub about: Quoted<'a>,
}

/// The beginning of a packet that was sent from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Who sent it.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// What it carried.
    pub protocol: u8,
    /// The length of the whole packet with its IP header.
    pub total_len: u32,
    /// The first bytes of what it carried: [`QUOTED_LEN_MIN`] at least.
    pub start: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// Reads the packet that an error quotes. Only its beginning is there, so
    /// that lengths and checksums cannot be checked.
    pub(crate) fn read_ipv4(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let (header, len) = ipv4::read(bytes)?;
        // Only the first piece has the transport header.
        if header.piece().offset != 0 {
            return Err(Refusal::Unsupported);
        }
        let about = Self {
            source: IpAddr::V4(header.source()),
            destination: IpAddr::V4(header.destination()),
            protocol: header.protocol,
            total_len: u32::from(header.total_len.get()),
            start: bytes.get(len..).unwrap_or_default(),
        };
        about.long_enough()
    }

    /// The same for IPv6.
    pub(crate) fn read_ipv6(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let header = ipv6::read(bytes)?;
        let (protocol, start) =
            extension::quoted_protocol(header, &bytes[ipv6::LEN..]).ok_or(Refusal::Unsupported)?;
        let about = Self {
            source: IpAddr::V6(header.source()),
            destination: IpAddr::V6(header.destination()),
            protocol,
            total_len: u32::from(header.payload_len.get()) + ipv6::LEN as u32,
            start,
        };
        about.long_enough()
    }

    fn long_enough(self) -> Result<Self, Refusal> {
        if self.start.len() < QUOTED_LEN_MIN { Err(Refusal::Truncated) } else { Ok(self) }
    }

    fn word(&self, at: usize) -> u16 {
        match self.start.get(at..at + 2) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => 0,
        }
    }

    /// The ports of TCP or UDP: that of the sender (we), that of the receiver.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        (self.word(0), self.word(2))
    }

    /// The sequence number of TCP.
    #[must_use]
    pub fn seq(&self) -> u32 {
        u32::from(self.word(4)) << 16 | u32::from(self.word(6))
    }
}
