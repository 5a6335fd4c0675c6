//! The TCP header (RFC 9293, section 3.1).

use core::fmt;
use core::ops::BitOr;

use landfall_placement::Refusal;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::packet::{Ip, Layer, Stop};
use crate::tcp_options::Options;

/// The length of a header without options.
pub const LEN: usize = size_of::<Header>();
/// The longest header: its length field counts up to 15 words.
pub const LEN_MAX: usize = 60;
/// Where the checksum lies in it.
pub const SUM_OFFSET: u16 = 16;

const _: () = assert!(LEN == 20);

/// The control bits of a segment.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// No more will be sent.
    pub const FIN: Self = Self(0x01);
    /// The connection opens.
    pub const SYN: Self = Self(0x02);
    /// The connection is unknown or given up.
    pub const RST: Self = Self(0x04);
    /// What was sent up to here is to be handed on.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// The receiver echoes a congestion signal (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The sender has reduced its window (RFC 3168).
    pub const CWR: Self = Self(0x80);

    const NAMES: [&'static str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

    /// Whether all of `others` are set.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether any of `others` is set.
    #[must_use]
    pub const fn intersects(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Those that are set here or there.
    #[must_use]
    pub const fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are set here and not there.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether none is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        self.union(others)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bit, name) in Self::NAMES.into_iter().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

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
    /// The number of the first payload byte, or of the SYN.
    pub seq: U32,
    /// The number of the byte that is expected next.
    pub ack: U32,
    /// The length of the header in words in the high four bits, and AE (RFC 9768) in the
    /// lowest.
    pub words: u8,
    /// The control bits.
    pub flags: Flags,
    /// How many bytes more may come, shifted by the negotiated scale.
    pub window: U16,
    /// The Internet checksum over pseudo-header, header and payload.
    pub sum: U16,
    /// Where urgent data ends.
    pub urgent: U16,
}

impl Header {
    /// The header in these bytes, unchecked.
    #[must_use]
    #[inline]
    pub const fn view(bytes: &[u8; LEN]) -> &Self {
        zerocopy::transmute_ref!(bytes)
    }

    /// The length of the header with its options, as it says; below [`LEN`] in none that
    /// is valid.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        (self.words >> 4) as usize * 4
    }
}

/// The header as a state machine wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// The sender's port.
    pub source: u16,
    /// The receiver's port.
    pub destination: u16,
    /// The number of the first payload byte, or of the SYN.
    pub seq: u32,
    /// The number of the byte that is expected next.
    pub ack: u32,
    /// The control bits.
    pub flags: Flags,
    /// AE (RFC 9768), in front of the other eight.
    pub has_ae: bool,
    /// How many bytes more may come, shifted by the negotiated scale.
    pub window: u16,
    /// Where urgent data ends, from `seq` on.
    pub urgent: u16,
    /// What else is said.
    pub options: Options,
}

impl Tcp {
    /// The length of the header with its options.
    #[must_use]
    pub fn header_len(&self) -> usize {
        LEN + self.options.len()
    }

    /// Writes the header and gives its length, or `None` if there is no room.
    ///
    /// The checksum field gets `sum`: the folded sum over the pseudo-header, to
    /// which the driver adds the rest (see
    /// [`SumSlot`](landfall_placement::SumSlot)).
    #[inline]
    pub fn write(&self, into: &mut [u8], sum: u16) -> Option<usize> {
        let options = into.get_mut(LEN..)?;
        if options.len() < self.options.len() {
            return None;
        }
        let len = LEN + self.options.write(options);
        let header = Header {
            source: self.source.into(),
            destination: self.destination.into(),
            seq: self.seq.into(),
            ack: self.ack.into(),
            words: (len as u8 / 4) << 4 | u8::from(self.has_ae),
            flags: self.flags,
            window: self.window.into(),
            sum: sum.into(),
            urgent: self.urgent.into(),
        };
        header.write_to_prefix(into).ok()?;
        Some(len)
    }
}

impl Ip {
    /// Reads the TCP header of a packet that carries TCP. Its checksum is the
    /// driver's to verify.
    ///
    /// # Errors
    /// [`Stop::NeedHead`]; [`Refusal::Truncated`] where the packet is shorter than
    /// the header says; [`Refusal::Malformed`] for a length below [`LEN`] and for
    /// options whose lengths make no sense.
    #[inline]
    pub fn tcp(&self, head: &[u8]) -> Result<Layer<Tcp>, Stop> {
        let bytes = self.start(head, LEN)?;
        let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
        let header_len = header.header_len();
        if header_len < LEN {
            return Err(Stop::Refused(Refusal::Malformed));
        }
        let options = Options::read(&self.start(head, header_len)?[LEN..])?;
        let tcp = Tcp {
            source: header.source.get(),
            destination: header.destination.get(),
            seq: header.seq.get(),
            ack: header.ack.get(),
            flags: header.flags,
            has_ae: header.words & 1 != 0,
            window: header.window.get(),
            urgent: header.urgent.get(),
            options,
        };
        Ok(Layer {
            header: tcp,
            at: self.payload_at,
            len: self.payload_len,
            payload_at: self.payload_at + header_len,
            payload_len: self.payload_len - header_len as u32,
        })
    }
}
