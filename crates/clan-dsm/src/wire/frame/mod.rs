//! The frame: what crosses Ethernet and UDP.
//!
//! ```text
//! header (40) | table: 18 for each entry | payload of the entries, in their order
//! header (40) | body                                            (all other kinds)
//! ```
//!
//! A packet of CLAN is an address and words, its length is not encoded. Ethernet
//! fills short frames up, so here the table carries the length of each packet,
//! and several packets share one frame. In a frame, a packet of which only some
//! bytes of a word are meant has only those as its payload, and a command only
//! its parameters.
//!
//! What does not live here: what the numbers mean for a link (see `link`).

use landfall_placement::{Check, Refusal, SumSlot};

use crate::address::{Address, Kind, WHOLE, WORD};
use landfall_placement::crc32c as crc;

/// The port of UDP where nothing else was chosen. No port is registered.
pub const UDP_PORT: u16 = 8182;

/// The ethertype: IEEE 802 has it for experiments of a local network.
pub const ETHERTYPE: u16 = 0x88b5;

/// Bytes of a header.
pub const HEADER_LEN: usize = 40;

/// The most packets in one frame.
pub const MAX_ENTRIES: usize = 12;

/// The longest body of a frame that is not data.
pub const MAX_BODY: usize = 128;

/// The most bytes of parameters that a command has.
pub const MAX_PARAMETERS: usize = 96;

/// "CL": others experiment with the ethertype, too.
const MARK: [u8; 2] = *b"CL";

const VERSION: u8 = 1;

/// Where the header has its CRC, and behind it the Internet sum.
const CRC_AT: usize = 34;
const SUM_AT: u16 = 38;

/// Where the driver puts the Internet sum of a frame that has one.
pub const SUM_SLOT: SumSlot = SumSlot { start: SUM_AT, offset: 0 };

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Packets. It has a number and is repeated until it is acknowledged.
    Data = 0,
    /// Only what the header says. The body goes on with the words of `sack`.
    Ack = 1,
    /// Two sides get to know each other.
    Hello = 2,
    /// The sender has ended the link, or will not have it.
    Bye = 3,
    /// The sender knows nothing of the link that a frame came for.
    Stranger = 4,
    /// Packets for all members of a group. Its number is one of the group's stream.
    GroupData = 5,
    /// What has arrived of a group's stream, as an [`Self::Ack`] says it of a link's.
    GroupAck = 6,
    /// A member that hears this can be reached by the group's address, and says so.
    GroupProbe = 7,
}

impl FrameKind {
    /// Every kind there is.
    pub const ALL: [Self; 8] = [
        Self::Data,
        Self::Ack,
        Self::Hello,
        Self::Bye,
        Self::Stranger,
        Self::GroupData,
        Self::GroupAck,
        Self::GroupProbe,
    ];

    /// Does it carry packets?
    #[inline]
    #[must_use]
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Data | Self::GroupData)
    }

    /// What a unit that begins so is, if it is a frame.
    #[inline]
    pub(crate) fn at_start(head: &[u8]) -> Option<Self> {
        match head {
            [m0, m1, version_kind, ..] if [*m0, *m1] == MARK && version_kind >> 4 == VERSION => {
                Self::from_bits(version_kind & 0xf)
            }
            _ => None,
        }
    }

    fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).copied()
    }
}

/// Bits of [`FrameHeader::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(pub u8);

impl FrameFlags {
    /// The payload is covered by an Internet sum.
    pub const SUM: Self = Self(1);
    /// An acknowledgement is wanted at once.
    pub const ASK: Self = Self(2);
    /// Nothing but answers, please, until a frame comes without this.
    pub const XOFF: Self = Self(4);
    /// The acknowledgement waited for company: it measures no round trip.
    pub const LATE: Self = Self(8);

    const KNOWN: u8 = 15;

    /// Are all of these set?
    #[must_use]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// With these set as well.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}

/// The first 40 bytes of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: FrameKind,
    /// What else is to be known of it.
    pub flags: FrameFlags,
    /// Drawn at random by who receives the frame: the proof that the sender
    /// hears it. Zero where the sender does not know it yet.
    pub tag: u64,
    /// The number of this frame; of the next one, where it has none.
    pub seq: u32,
    /// All frames before this one are in place.
    pub ack: u32,
    /// And of those behind it: bit `i` is frame `ack + 1 + i`.
    pub sack: u64,
    /// How many frames from `ack` on may be sent.
    pub credit: u16,
    /// How many frames came with a mark of congestion, modulo 256.
    pub marks: u8,
    /// How many entries the table has.
    pub entries: u8,
    /// How many bytes stand behind the table. Padding behind them is ignored.
    pub payload_len: u16,
}

impl FrameHeader {
    /// Where the payload begins.
    #[must_use]
    pub const fn payload_at(&self) -> usize {
        HEADER_LEN + self.entries as usize * Entry::LEN
    }

    /// Writes the header in front of a table, or of a body, that stand in `head`
    /// already, and the CRC over both.
    ///
    /// The CRC takes in the table, or the body: what is behind that in `head` is
    /// payload. A `head` that is too short stays as it is.
    pub fn write(&self, head: &mut [u8]) {
        let end = self.payload_at() + self.body_len();
        // What is too short stays as it is.
        let Some(covered) = head.get_mut(..end) else { return };
        covered[..2].copy_from_slice(&MARK);
        covered[2] = VERSION << 4 | self.kind as u8;
        covered[3] = self.flags.0;
        covered[4..12].copy_from_slice(&self.tag.to_be_bytes());
        covered[12..16].copy_from_slice(&self.seq.to_be_bytes());
        covered[16..20].copy_from_slice(&self.ack.to_be_bytes());
        covered[20..28].copy_from_slice(&self.sack.to_be_bytes());
        covered[28..30].copy_from_slice(&self.credit.to_be_bytes());
        covered[30] = self.marks;
        covered[31] = self.entries;
        covered[32..34].copy_from_slice(&self.payload_len.to_be_bytes());
        covered[CRC_AT..HEADER_LEN].fill(0);
        let crc = crc_of(covered);
        covered[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    }

    /// How much of what is behind the table the CRC takes in.
    const fn body_len(&self) -> usize {
        match self.kind {
            FrameKind::Data | FrameKind::GroupData => 0,
            _ => self.payload_len as usize,
        }
    }

    /// Reads the header; lengths are checked by [`Frame::parse`].
    fn read(bytes: &[u8; HEADER_LEN]) -> Result<Self, Refusal> {
        let [m0, m1, version_kind, flags, rest @ ..] = bytes;
        if [*m0, *m1] != MARK || version_kind >> 4 != VERSION {
            return Err(Refusal::Unsupported);
        }
        let kind = FrameKind::from_bits(version_kind & 0xf).ok_or(Refusal::Unsupported)?;
        let long = |at: usize| u64::from_be_bytes(piece(rest, at - 4));
        let word = |at: usize| u32::from_be_bytes(piece(rest, at - 4));
        let short = |at: usize| u16::from_be_bytes(piece(rest, at - 4));
        Ok(Self {
            kind,
            flags: FrameFlags(*flags),
            tag: long(4),
            seq: word(12),
            ack: word(16),
            sack: long(20),
            credit: short(28),
            marks: rest[26],
            entries: rest[27],
            payload_len: short(32),
        })
    }
}

/// The CRC over a header, its CRC and sum taken as absent, and what follows it.
fn crc_of(covered: &[u8]) -> u32 {
    let (header, behind) = covered.split_at(HEADER_LEN.min(covered.len()));
    crc::extend(crc::crc32c(header.get(..CRC_AT).unwrap_or(header)), behind)
}

/// `N` bytes from `at` on, which the caller knows to be there.
fn piece<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut piece = [0; N];
    piece.copy_from_slice(&bytes[at..at + N]);
    piece
}

/// One packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its header.
    pub address: Address,
    /// How many words it has. Of a command, how many its parameters would fill.
    pub words: u16,
}

impl Entry {
    /// Bytes in the table.
    pub const LEN: usize = 18;

    /// How many bytes of payload it has.
    #[inline]
    #[must_use]
    pub const fn payload_len(&self) -> u32 {
        match self.address.kind {
            Kind::Command => self.address.word,
            _ if self.address.mask == WHOLE => self.words as u32 * WORD,
            _ => self.address.enabled().1,
        }
    }

    /// As it stands in the table.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..Address::LEN].copy_from_slice(&self.address.to_bytes());
        bytes[Address::LEN..].copy_from_slice(&self.words.to_be_bytes());
        bytes
    }

    /// Reads it. `None` for what no sender writes: an address that is none, no
    /// words, words behind the last that there are, several words of which only
    /// some bytes are meant, parameters that are none or too many.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let address = Address::from_bytes(piece(bytes, 0))?;
        let words = u16::from_be_bytes(piece(bytes, Address::LEN));
        let is_good = match address.kind {
            Kind::Command => {
                address.mask == WHOLE
                    && (1..=MAX_PARAMETERS as u32).contains(&address.word)
                    && u32::from(words) == address.word.div_ceil(WORD)
            }
            _ if address.mask == WHOLE => {
                words > 0 && address.advanced(u32::from(words) - 1).is_some()
            }
            _ => words == 1,
        };
        is_good.then_some(Self { address, words })
    }
}

/// Why there is no frame (yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incomplete {
    /// How many bytes of the unit are needed.
    Need(u16),
    /// It is none.
    Refused(Refusal),
}

impl From<Refusal> for Incomplete {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A frame that was looked at: lengths, numbers and CRC are right, every entry
/// makes sense, and together they have the payload that the header says.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'u> {
    header: FrameHeader,
    table: &'u [[u8; Entry::LEN]],
    /// As much of the payload as is at hand.
    payload: &'u [u8],
}

impl<'u> Frame<'u> {
    /// Looks at the first bytes of a unit of `unit_len` bytes.
    ///
    /// # Errors
    /// More bytes are needed, or it is no frame.
    pub fn parse(head: &'u [u8], unit_len: u32) -> Result<Self, Incomplete> {
        let Some((first, behind)) = head.split_first_chunk::<HEADER_LEN>() else {
            let need = HEADER_LEN as u16;
            let is_short = unit_len < u32::from(need);
            return Err(if is_short { Refusal::Truncated.into() } else { Incomplete::Need(need) });
        };
        let header = FrameHeader::read(first)?;
        let covered = header.payload_at() + header.body_len();
        check_lengths(&header, unit_len)?;
        if head.len() < covered {
            return Err(Incomplete::Need(covered as u16));
        }
        let crc = u32::from_be_bytes(piece(first, CRC_AT));
        if crc_of(&head[..covered]) != crc {
            return Err(Refusal::BadChecksum.into());
        }
        if header.flags.0 & !FrameFlags::KNOWN != 0 {
            return Err(Refusal::Malformed.into());
        }
        let (table, payload) = behind.split_at(usize::from(header.entries) * Entry::LEN);
        let payload = &payload[..payload.len().min(usize::from(header.payload_len))];
        let frame = Self { header, table: table.as_chunks().0, payload };
        frame.check_entries()?;
        Ok(frame)
    }

    fn check_entries(&self) -> Result<(), Refusal> {
        let mut sum = 0;
        for bytes in self.table {
            sum += Entry::from_bytes(bytes).ok_or(Refusal::Malformed)?.payload_len();
        }
        let is_data = self.header.kind.is_data();
        if is_data && sum != u32::from(self.header.payload_len) {
            return Err(Refusal::Malformed);
        }
        Ok(())
    }

    /// The header.
    #[inline]
    #[must_use]
    pub const fn header(&self) -> &FrameHeader {
        &self.header
    }

    /// What it is.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> FrameKind {
        self.header.kind
    }

    /// The packets in it, in their order.
    #[inline]
    pub fn entries(&self) -> impl Iterator<Item = Entry> + use<'u> {
        self.table.iter().filter_map(Entry::from_bytes)
    }

    /// Where the payload begins.
    #[inline]
    #[must_use]
    pub const fn payload_at(&self) -> u16 {
        self.header.payload_at() as u16
    }

    /// How long the payload is.
    #[inline]
    #[must_use]
    pub const fn payload_len(&self) -> u32 {
        self.header.payload_len as u32
    }

    /// Where the frame ends; what is behind that is padding.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.header.payload_at() as u32 + self.header.payload_len as u32
    }

    /// As much of the payload as is at hand.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'u [u8] {
        self.payload
    }

    /// Whether the payload is covered by a sum.
    #[inline]
    #[must_use]
    pub const fn has_sum(&self) -> bool {
        self.header.flags.has(FrameFlags::SUM)
    }

    /// The pass that the driver has to make over it.
    #[must_use]
    pub const fn check(&self) -> Check {
        if !self.has_sum() {
            return Check::None;
        }
        Check::InternetSum { from: SUM_AT, len: self.end() - SUM_AT as u32, seed: 0 }
    }
}

fn check_lengths(header: &FrameHeader, unit_len: u32) -> Result<(), Refusal> {
    let entries = usize::from(header.entries);
    let is_good = match header.kind {
        FrameKind::Data | FrameKind::GroupData => (1..=MAX_ENTRIES).contains(&entries),
        _ => entries == 0 && usize::from(header.payload_len) <= MAX_BODY,
    };
    if !is_good {
        return Err(Refusal::Malformed);
    }
    let end = header.payload_at() as u32 + u32::from(header.payload_len);
    if end > unit_len { Err(Refusal::Truncated) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
