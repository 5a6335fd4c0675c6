//! The 40 bytes before every unit, and the 24 more of a word operation.

use landfall_placement::checksum::sum_of;
use landfall_placement::{Refusal, Ticket, WordFunction, WordWidth};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of [`Header`].
pub const HEADER_LEN: usize = size_of::<Header>();
/// The length of the head of a [`Kind::Fetch`]: a header and a [`FetchBody`].
pub const FETCH_LEN: usize = HEADER_LEN + size_of::<FetchBody>();
/// Where [`Header::sum`] lies.
pub const SUM_OFFSET: u16 = 6;

const _: () = assert!(HEADER_LEN == 40 && FETCH_LEN == 64);

/// "LN": Landfall, numbered.
const MAGIC: u16 = 0x4c4e;
const VERSION: u8 = 1;

/// [`Header::sum`] holds a checksum over head and payload.
pub const FLAG_SUM: u8 = 1;
/// [`Header::word`] of a [`Kind::Data`] says, as [`Kind::Done`] does, which
/// messages of the other direction are done.
pub const FLAG_DONE: u8 = 2;
/// A [`Kind::Request`] or [`Kind::Grant`] that is about keys alone.
pub const FLAG_HELLO: u8 = 4;
/// [`Header::slot`] of a message that was sent without asking.
pub const SLOT_EAGER: u8 = 255;

/// What a unit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The sender asks for a place: message, length, payload per unit, its key.
    Request = 1,
    /// The receiver names the place: its slot, up to which unit, its key.
    Grant = 2,
    /// A unit of a message, with payload.
    Data = 3,
    /// Which units are in place, and up to which unit more may come.
    Ack = 4,
    /// Which messages are complete.
    Done = 5,
    /// A word operation; the head goes on with a [`FetchBody`].
    Fetch = 6,
    /// What the word held before.
    FetchReply = 7,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Request,
        Self::Grant,
        Self::Data,
        Self::Ack,
        Self::Done,
        Self::Fetch,
        Self::FetchReply,
    ];
}

/// The head of every unit, in network byte order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    pub(super) magic: U16,
    pub(super) version: u8,
    pub(super) kind: u8,
    /// See the `FLAG_…` constants.
    pub flags: u8,
    /// Which of the receiver's places a message has; in a `Fetch` the function.
    pub slot: u8,
    /// The Internet checksum over head and payload, if the flags say so.
    pub sum: U16,
    /// The key that the other side drew for this connection.
    pub key: U32,
    /// The number of the message, or of the word operation.
    pub message: U32,
    /// `Data`: the number of the unit. `Grant`, `Ack`: units before this one
    /// may come, are in place. `Request`: the payload of each unit.
    pub unit: U32,
    /// `Data`: the length of the payload. `Ack`: the first unit of the bitmap.
    pub extent: U32,
    /// `Request`, `Data`: the length of the message. `Ack`: in the high half up
    /// to which unit more may come, in the low half the highest unit in place.
    pub total: U64,
    /// `Request`, `Grant`: the key of who sends this. `Ack`, `Done`: a bitmap.
    /// `Data`: what is done in the other direction. `FetchReply`: the old value.
    pub word: U64,
}

impl Header {
    /// A header of this kind for the connection with this key.
    #[must_use]
    pub fn new(kind: Kind, key: u32, message: u32) -> Self {
        Self {
            magic: MAGIC.into(),
            version: VERSION,
            kind: kind as u8,
            key: key.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Reads the header at the start of a head.
    ///
    /// # Errors
    /// [`Refusal::Truncated`] if there are not [`HEADER_LEN`] bytes,
    /// [`Refusal::Unsupported`] if this is not our protocol.
    #[inline]
    pub fn read(head: &[u8]) -> Result<(&Self, Kind), Refusal> {
        let (header, _) = Self::ref_from_prefix(head).map_err(|_| Refusal::Truncated)?;
        if header.magic.get() != MAGIC || header.version != VERSION {
            return Err(Refusal::Unsupported);
        }
        let index = header.kind.wrapping_sub(1) as usize;
        let kind = Kind::ALL.get(index).copied().ok_or(Refusal::Unsupported)?;
        Ok((header, kind))
    }

    /// Writes the header to the start of `head`, with the checksum of a unit
    /// that has no payload. Gives the length, or `None` if there is no room.
    #[must_use]
    pub fn write_alone(mut self, head: &mut [u8]) -> Option<u16> {
        self.flags |= FLAG_SUM;
        self.sum = (!sum_of(self.as_bytes())).into();
        self.write(head)
    }

    /// Writes the header as it is.
    #[must_use]
    #[inline]
    pub fn write(&self, head: &mut [u8]) -> Option<u16> {
        self.write_to_prefix(head).ok()?;
        Some(HEADER_LEN as u16)
    }
}

/// Is the checksum over these bytes, which are a whole unit, right?
#[must_use]
pub fn is_sum_right(unit: &[u8]) -> bool {
    sum_of(unit) == 0xffff
}

/// What follows the header of a [`Kind::Fetch`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FetchBody {
    /// Where the word lies, counted from the start of the served memory.
    pub offset: U64,
    /// The operand.
    pub operand: U64,
    /// What a compare-and-swap expects.
    pub expected: U64,
}

/// Bit of [`Header::slot`] in a `Fetch`: the word has eight bytes.
const WIDE: u8 = 0x80;

/// A word operation as it stands in [`Header::slot`] and a [`FetchBody`].
#[must_use]
pub fn encode_function(offset: u64, width: WordWidth, function: WordFunction) -> (u8, FetchBody) {
    let (code, operand, expected) = match function {
        WordFunction::Load => (0, 0, 0),
        WordFunction::Store(v) => (1, v, 0),
        WordFunction::Swap(v) => (2, v, 0),
        WordFunction::Add(v) => (3, v, 0),
        WordFunction::And(v) => (4, v, 0),
        WordFunction::Or(v) => (5, v, 0),
        WordFunction::Xor(v) => (6, v, 0),
        WordFunction::CompareSwap { expected, new } => (7, new, expected),
    };
    let wide = if width == WordWidth::Eight { WIDE } else { 0 };
    let body =
        FetchBody { offset: offset.into(), operand: operand.into(), expected: expected.into() };
    (code | wide, body)
}

/// The reverse of [`encode_function`]; `None` if the code means nothing.
#[must_use]
pub fn decode_function(code: u8, body: &FetchBody) -> Option<(WordWidth, WordFunction)> {
    let width = if code & WIDE != 0 { WordWidth::Eight } else { WordWidth::Four };
    let operand = body.operand.get();
    let function = match code & !WIDE {
        0 => WordFunction::Load,
        1 => WordFunction::Store(operand),
        2 => WordFunction::Swap(operand),
        3 => WordFunction::Add(operand),
        4 => WordFunction::And(operand),
        5 => WordFunction::Or(operand),
        6 => WordFunction::Xor(operand),
        7 => WordFunction::CompareSwap { expected: body.expected.get(), new: operand },
        _ => return None,
    };
    Some((width, function))
}

/// Writes the whole head of a `Fetch`, with its checksum.
#[must_use]
pub fn write_fetch(mut header: Header, body: &FetchBody, head: &mut [u8]) -> Option<u16> {
    header.flags |= FLAG_SUM;
    header.sum = 0.into();
    let whole = head.get_mut(..FETCH_LEN)?;
    header.write_to_prefix(whole).ok()?;
    body.write_to_suffix(whole).ok()?;
    let sum = !sum_of(whole);
    let at = SUM_OFFSET as usize;
    whole[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(FETCH_LEN as u16)
}

// What the 64 bits of a ticket say: kind, slot, generation and a few bits more.

/// What a ticket was given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A unit of an incoming message; the detail is the unit's number.
    Placement = 1,
    /// A word operation; the slot is the connection, the detail its number.
    Word = 2,
    /// A transmission that reads the memory of an outgoing message.
    Payload = 3,
    /// A transmission that reads no memory.
    Control = 4,
}

/// A ticket taken apart: 3 bits of purpose, 7 of slot, 22 of generation, 16 of
/// detail and 16 of stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) purpose: Purpose,
    pub(super) slot: u8,
    /// How often the slot was used before; it wraps.
    pub(super) generation: u32,
    /// The low bits of a number: which unit, which operation.
    pub(super) detail: u16,
    /// Tells apart what is tried again after it failed.
    pub(super) stamp: u16,
}

const GENERATIONS: u32 = (1 << 22) - 1;

impl Parts {
    #[inline]
    pub(super) const fn pack(self) -> Ticket {
        Ticket::from_raw(
            (self.purpose as u64) << 61
                | (self.slot as u64 & 0x7f) << 54
                | (self.generation as u64 & GENERATIONS as u64) << 32
                | (self.detail as u64) << 16
                | self.stamp as u64,
        )
    }

    #[inline]
    pub(super) const fn unpack(ticket: Ticket) -> Option<Self> {
        let raw = ticket.raw();
        let purpose = match raw >> 61 {
            1 => Purpose::Placement,
            2 => Purpose::Word,
            3 => Purpose::Payload,
            4 => Purpose::Control,
            _ => return None,
        };
        let slot = (raw >> 54) as u8 & 0x7f;
        let generation = (raw >> 32) as u32 & GENERATIONS;
        Some(Self { purpose, slot, generation, detail: (raw >> 16) as u16, stamp: raw as u16 })
    }

    /// Is this of the time when the slot was in this generation?
    #[inline]
    pub(super) const fn is_of(&self, generation: u32) -> bool {
        self.generation == generation & GENERATIONS
    }
}

/// The ticket of every transmission that reads no memory.
pub(super) const CONTROL: Ticket =
    Parts { purpose: Purpose::Control, slot: 0, generation: 0, detail: 0, stamp: 0 }.pack();

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_where_the_table_says() {
        let header = Header {
            flags: 1,
            slot: 2,
            sum: 0x0304.into(),
            unit: 0x1112_1314.into(),
            extent: 0x1516_1718.into(),
            total: 0x2122_2324_2526_2728.into(),
            word: 0x3132_3334_3536_3738.into(),
            ..Header::new(Kind::Data, 0x0506_0708, 0x090a_0b0c)
        };
        let mut bytes = [0; 40];
        assert_eq!(header.write(&mut bytes), Some(40));
        let expected = [
            0x4c, 0x4e, 1, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x11, 0x12, 0x13, 0x14, 0x15,
            0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33,
            0x34, 0x35, 0x36, 0x37, 0x38,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Header::read(&bytes), Ok((&header, Kind::Data)));
    }

    #[test]
    fn a_foreign_or_short_header_is_refused() {
        let mut bytes = [0; 40];
        assert!(Header::new(Kind::Ack, 1, 2).write_alone(&mut bytes).is_some());
        assert!(is_sum_right(&bytes));
        assert_eq!(Header::read(&bytes[..39]), Err(Refusal::Truncated));
        for (at, value) in [(0, 0), (2, 9), (3, 0), (3, 8), (3, 255)] {
            let mut bad = bytes;
            bad[at] = value;
            assert_eq!(Header::read(&bad), Err(Refusal::Unsupported), "byte {at} = {value}");
        }
        assert_eq!(Header::new(Kind::Ack, 1, 2).write(&mut [0; 39]), None);
    }

    proptest! {
        #[test]
        fn functions_survive_the_wire(code in 0..8u8, wide: bool, a: u64, b: u64, offset: u64) {
            let body =
                FetchBody { offset: offset.into(), operand: a.into(), expected: b.into() };
            let code = code | if wide { WIDE } else { 0 };
            let (width, function) = decode_function(code, &body).unwrap();
            let (again, body) = encode_function(offset, width, function);
            prop_assert_eq!(again, code);
            prop_assert_eq!(decode_function(again, &body), Some((width, function)));
            prop_assert_eq!(body.offset.get(), offset);
            let mut head = [0; 64];
            let len = write_fetch(Header::new(Kind::Fetch, 1, 2), &body, &mut head);
            prop_assert_eq!(len, Some(64));
            prop_assert!(is_sum_right(&head));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((header, _)) = Header::read(&bytes) {
                prop_assert_eq!(header.as_bytes(), &bytes[..40]);
            }
        }
    }
}
