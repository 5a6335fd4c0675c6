//! [`Record`]: what one side writes into the ring of the other, a header of 64 bytes with a
//! payload behind it. The layout is in `docs/libfabric.md`.

/// Length of a header. Records begin at multiples of it.
pub(crate) const HEADER: usize = 64;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Fills the ring up to its end.
    Pad,
    /// A message, whole.
    Message,
    /// A message that the receiver reads once it has a place for it.
    Offer,
    /// A message, or as much of it as was wanted, is in its place.
    Acknowledge,
    /// Nothing but how far the sender has read.
    Credit,
    /// A remote write that came before is in place.
    Written,
    /// One side of a connection of `FI_EP_MSG` asks for it, with what the program says along.
    Request,
    /// The other side takes it, or does not, with what its program says along.
    Accept,
    Reject,
    /// Nothing more is sent.
    Shutdown,
    /// Where the side that was connected to is reached, too.
    Rails,
    /// What the side that has connected is known by.
    Name,
    /// Over QPIP, the first: which version a side has.
    Greeting,
    /// Over QPIP: a message that was offered has its place.
    Ask,
    /// Over QPIP: a piece of one that was asked for.
    Piece,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Pad,
        Self::Message,
        Self::Offer,
        Self::Acknowledge,
        Self::Credit,
        Self::Written,
        Self::Request,
        Self::Accept,
        Self::Reject,
        Self::Shutdown,
        Self::Rails,
        Self::Name,
        Self::Greeting,
        Self::Ask,
        Self::Piece,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Pad => 1,
            Self::Message => 2,
            Self::Offer => 3,
            Self::Acknowledge => 4,
            Self::Credit => 5,
            Self::Written => 6,
            Self::Request => 7,
            Self::Accept => 8,
            Self::Reject => 9,
            Self::Shutdown => 10,
            Self::Rails => 11,
            Self::Name => 12,
            Self::Greeting => 13,
            Self::Ask => 14,
            Self::Piece => 15,
        }
    }
}

const IS_TAGGED: u8 = 1;
const HAS_DATA: u8 = 2;
const WANTS_ACKNOWLEDGE: u8 = 4;

/// A header, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// Bytes behind the header.
    pub(crate) len: u32,
    /// Nothing where the message is not tagged.
    pub(crate) tag: Option<u64>,
    /// Data for the receiver's completion.
    pub(crate) data: Option<u64>,
    /// Length of the whole message, or of the remote write.
    pub(crate) total: u64,
    /// By which a receiver reads or acknowledges.
    pub(crate) id: u32,
    /// The sender wants to know when it is in its place.
    pub(crate) wants_acknowledge: bool,
    /// How far the sender has read the ring of the other direction.
    pub(crate) consumed: u64,
    /// Where in the stream of this direction the record begins.
    pub(crate) position: u64,
}

impl Record {
    /// One that says nothing yet.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            len: 0,
            tag: None,
            data: None,
            total: 0,
            id: 0,
            wants_acknowledge: false,
            consumed: 0,
            position: 0,
        }
    }

    /// How many bytes of the ring it takes.
    pub(crate) const fn room(&self) -> u64 {
        room_for(self.len as u64)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let mut flags = 0;
        flags |= if self.tag.is_some() { IS_TAGGED } else { 0 };
        flags |= if self.data.is_some() { HAS_DATA } else { 0 };
        flags |= if self.wants_acknowledge { WANTS_ACKNOWLEDGE } else { 0 };
        header[0] = self.kind.code();
        header[1] = flags;
        header[4..8].copy_from_slice(&self.len.to_le_bytes());
        header[8..16].copy_from_slice(&self.tag.unwrap_or(0).to_le_bytes());
        header[16..24].copy_from_slice(&self.data.unwrap_or(0).to_le_bytes());
        header[24..32].copy_from_slice(&self.total.to_le_bytes());
        header[32..36].copy_from_slice(&self.id.to_le_bytes());
        header[40..48].copy_from_slice(&self.consumed.to_le_bytes());
        header[48..56].copy_from_slice(&self.position.to_le_bytes());
        header
    }

    /// Nothing where no provider of this version writes such a header.
    pub(crate) fn decode(header: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let half = |at: usize| (word(at & !7) >> (8 * (at & 7))) as u32;
        let kind = Kind::ALL.into_iter().find(|kind| kind.code() == header[0])?;
        let flags = header[1];
        let record = Self {
            kind,
            len: half(4),
            tag: (flags & IS_TAGGED != 0).then(|| word(8)),
            data: (flags & HAS_DATA != 0).then(|| word(16)),
            total: word(24),
            id: half(32),
            wants_acknowledge: flags & WANTS_ACKNOWLEDGE != 0,
            consumed: word(40),
            position: word(48),
        };
        // What a later version says in bits that are unused here must not be missed.
        (record.encode() == *header).then_some(record)
    }
}

/// How many bytes of a ring a record with such a payload takes.
pub(crate) const fn room_for(payload: u64) -> u64 {
    HEADER as u64 + payload.next_multiple_of(HEADER as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> impl Strategy<Value = Record> {
        let numbers = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
        let options = (any::<Option<u64>>(), any::<Option<u64>>(), any::<bool>());
        (0..Kind::ALL.len(), numbers, options).prop_map(|(kind, numbers, options)| {
            let (len, total, id, consumed, position) = numbers;
            let (tag, data, wants_acknowledge) = options;
            let kind = Kind::ALL[kind];
            Record { kind, len, tag, data, total, id, wants_acknowledge, consumed, position }
        })
    }

    proptest! {
        #[test]
        fn a_header_says_what_was_written(record in record()) {
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        #[test]
        fn a_header_has_one_encoding(bytes in any::<[u8; HEADER]>(), kind in 0..17_u8, flags in 0..8_u8) {
            let mut bytes = bytes;
            (bytes[0], bytes[1]) = (kind, flags);
            if let Some(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }

    #[test]
    fn unknown_bits_are_refused() {
        for at in [0, 1, 2, 3, 36, 39, 56, 63] {
            let mut header = Record::new(Kind::Credit).encode();
            header[at] |= 0x80;
            assert_eq!(Record::decode(&header), None, "byte {at}");
        }
    }

    #[test]
    fn records_begin_at_multiples_of_a_header() {
        assert_eq!((room_for(0), room_for(1), room_for(64), room_for(65)), (64, 128, 128, 192));
    }
}
