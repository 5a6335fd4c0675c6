//! [`Address`]: where a word lies, and the right to touch it, in one.
//!
//! The header of a packet is an address and nothing else (section 2.2 of the
//! paper). Ours is sparse: next to the place it has a key that only holders of
//! a [`Cookie`](crate::Cookie) know. So a header is at once the destination and
//! the permission, nothing has to be set up before the first write, and a
//! switch can split a packet at any word without knowing more than how to
//! count: the next word's header is [`Address::advanced`] by one.
//!
//! Names for what lives in an adapter, and what is packed into a
//! [`Ticket`](landfall_placement::Ticket).
//!
//! In a ticket four bits say what it is for, twelve are the low bits of the link's
//! generation, sixteen its index, thirty-two a running number of the link: a
//! ticket of a link that is gone, or one that came back before, means nothing.

use core::fmt;

use landfall_placement::Ticket;
use landfall_tables::EntryKey;

/// Bytes of a word, the smallest thing that a packet is split into.
///
/// The paper's is the four-byte word of its bus. Eight bytes are what machines
/// of today store in one step, so an aligned eight-byte store is never torn.
pub const WORD: u32 = 8;

/// All bytes of a word.
pub const WHOLE: u8 = 0xff;

/// Names one host of a network of adapters: fourteen bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(u16);

impl HostId {
    /// The largest number of a host.
    pub const MAX: u16 = (1 << 14) - 1;

    /// The host of this number, if it is one.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl core::fmt::Display for HostId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "host {}", self.0)
    }
}

/// What the words behind a header are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A burst of writes to an aperture.
    Burst = 0,
    /// A request or an answer: the slot is its code, the offset how many bytes
    /// of parameters follow. Never split and never coalesced.
    Command = 1,
    /// What a remote read gets: the slot is the reader's, the key the reader's nonce.
    Reply = 2,
    /// A burst for all members of a group: the host is the group.
    Multicast = 3,
}

impl Kind {
    const fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            0 => Some(Self::Burst),
            1 => Some(Self::Command),
            2 => Some(Self::Reply),
            3 => Some(Self::Multicast),
            _ => None,
        }
    }
}

/// The proof that one may touch an aperture: 56 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// The low 56 bits of a number.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << 56) - 1))
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// The network address of a word: 128 bits, and the whole header of a packet.
///
/// On the wire, in network byte order: the upper two bits of the host, two of kind, the lower
/// twelve of the host, sixteen of slot, thirty-two of offset in words; then eight bits that say
/// which bytes of the word are meant, and fifty-six of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// What follows the header.
    pub kind: Kind,
    /// The host that the memory belongs to; of a multicast, the group.
    pub host: HostId,
    /// Which of the host's apertures (or the code of a command).
    pub slot: u16,
    /// Which word of the aperture.
    pub word: u32,
    /// Which bytes of the word: bit `i` is byte `i` in the order of memory.
    /// All, or a run of some; then the packet is this word alone.
    pub mask: u8,
    /// The proof.
    pub key: Key,
}

impl Address {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// The address this many words further on, if there is one.
    #[must_use]
    pub const fn advanced(self, words: u32) -> Option<Self> {
        match self.word.checked_add(words) {
            Some(word) => Some(Self { word, ..self }),
            None => None,
        }
    }

    /// Whether the packet may be split and coalesced.
    #[must_use]
    pub const fn is_burst(&self) -> bool {
        self.mask == WHOLE && !matches!(self.kind, Kind::Command)
    }

    /// The first byte of the word that is meant, and how many there are.
    #[must_use]
    pub const fn enabled(&self) -> (u32, u32) {
        (self.mask.trailing_zeros(), self.mask.count_ones())
    }

    /// The mask for `len` bytes of a word from byte `from` on.
    #[must_use]
    pub const fn mask_of(from: u32, len: u32) -> Option<u8> {
        match from.checked_add(len) {
            Some(end) if len > 0 && end <= WORD => Some((((1u16 << len) - 1) << from) as u8),
            _ => None,
        }
    }

    /// As it stands on the wire.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let (host, kind) = (self.host.0 as u64, self.kind as u64);
        let place = (host >> 12) << 62
            | kind << 60
            | (host & 0xfff) << 48
            | (self.slot as u64) << 32
            | self.word as u64;
        let proof = (self.mask as u64) << 56 | self.key.0;
        ((place as u128) << 64 | proof as u128).to_be_bytes()
    }

    /// Reads it from the wire. `None` for a kind that does not exist, and for a
    /// mask that is not one run of bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let all = u128::from_be_bytes(bytes);
        let (place, proof) = ((all >> 64) as u64, all as u64);
        let mask = (proof >> 56) as u8;
        if mask == 0 || !is_run(mask) {
            return None;
        }
        let high = (place >> 62 << 12) as u16;
        match Kind::from_bits(place >> 60 & 3) {
            Some(kind) => Some(Self {
                kind,
                host: HostId(high | (place >> 48) as u16 & 0xfff),
                slot: (place >> 32) as u16,
                word: place as u32,
                mask,
                key: Key::from_bits(proof),
            }),
            None => None,
        }
    }
}

/// Are the set bits neighbours?
const fn is_run(mask: u8) -> bool {
    let shifted = mask >> mask.trailing_zeros();
    shifted & shifted.wrapping_add(1) == 0
}

/// `of EntryKey`: what it names is an entry of a table.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $words:literal $(of $key:ty)?;)+) => {$(
        $(#[$doc])*
        ///
        /// A name of an earlier time is recognised and means nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            pub(crate) const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            $(pub(crate) const fn of(key: $key) -> Self {
                Self::new(key.index, key.generation)
            })?

            /// The slot: small numbers, used again once a thing is gone.
            #[must_use]
            pub const fn index(self) -> u32 {
                self.index
            }

            /// The name as one number.
            #[must_use]
            pub const fn raw(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($words, " {}.{}"), self.index, self.generation)
            }
        }
    )+};
}

ids! {
    /// The way to one other host over one path.
    LinkId, "link" of EntryKey;
    /// Memory of this host that others may touch.
    ApertureId, "aperture";
    /// Memory of another host that this one may touch.
    WindowId, "window" of EntryKey;
    /// A remote read of this host.
    ReadId, "read" of EntryKey;
    /// A read-modify-write of a remote word.
    OperationId, "word operation" of EntryKey;
    /// A chain of requests to the DMA engine.
    DmaId, "DMA request" of EntryKey;
    /// A write from memory, in its order among those of the program.
    WriteId, "write" of EntryKey;
    /// A question whether all before it has arrived.
    BarrierId, "barrier";
    /// Synchronisation with accesses to some memory.
    TripwireId, "tripwire";
    /// Several tripwires that are waited for together.
    TripsetId, "tripset" of EntryKey;
    /// One end of connections and of out-of-band messages.
    EndpointId, "endpoint" of EntryKey;
}

/// What a ticket was given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// A transmission that holds memory.
    Sent = 1,
    /// A transmission that holds none.
    SentBare = 2,
    /// A frame on its way to its place, or an operation on a word.
    Placed = 3,
    /// Bytes of a frame that was kept.
    Deposit = 4,
    /// A transmission of a group's stream that holds memory.
    GroupSent = 5,
    /// A frame of a group's stream on its way to its place.
    GroupPlaced = 6,
}

impl Purpose {
    const ALL: [Self; 6] = [
        Self::Sent,
        Self::SentBare,
        Self::Placed,
        Self::Deposit,
        Self::GroupSent,
        Self::GroupPlaced,
    ];
}

/// A ticket, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketParts {
    pub(crate) purpose: Purpose,
    /// The link's slot.
    pub(crate) link: u32,
    /// The low bits of its generation.
    generation: u16,
    /// Which of the things of this purpose that the link has under way.
    pub(crate) number: u32,
}

const GENERATION: u16 = 0xfff;

/// The most links that tickets can tell apart.
pub(crate) const MOST_LINKS: usize = 1 << 16;

pub(crate) const fn pack(purpose: Purpose, link: LinkId, number: u32) -> Ticket {
    let generation = (link.generation as u16 & GENERATION) as u64;
    let link = (link.index as u16) as u64;
    Ticket::from_raw((purpose as u64) << 60 | generation << 48 | link << 32 | number as u64)
}

pub(crate) fn unpack(ticket: Ticket) -> Option<TicketParts> {
    let raw = ticket.raw();
    Some(TicketParts {
        purpose: *Purpose::ALL.get(((raw >> 60) as usize).checked_sub(1)?)?,
        link: u32::from((raw >> 32) as u16),
        generation: (raw >> 48) as u16 & GENERATION,
        number: raw as u32,
    })
}

impl TicketParts {
    /// Is the link still the one that the ticket was given for?
    pub(crate) const fn is_of(&self, generation: u32) -> bool {
        generation as u16 & GENERATION == self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: Address = Address {
        kind: Kind::Burst,
        host: HostId(0x123),
        slot: 0x4567,
        word: 0x89ab_cdef,
        mask: 0xff,
        key: Key(0x0000_1122_3344_5566),
    };

    #[test]
    fn it_stands_on_the_wire_as_described() {
        let bytes = EXAMPLE.to_bytes();
        assert_eq!(bytes[..8], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(bytes[8..], [0xff, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66]);
        assert_eq!(Address::from_bytes(bytes), Some(EXAMPLE));
    }

    /// Above 4,095 a host's number begins in the two bits before the kind.
    #[test]
    fn every_host_and_kind_has_its_own_address() {
        let mut before = None;
        for number in 0..=HostId::MAX {
            let host = HostId::new(number).unwrap();
            for kind in [Kind::Burst, Kind::Command, Kind::Reply, Kind::Multicast] {
                let address = Address { kind, host, ..EXAMPLE };
                let bytes = address.to_bytes();
                assert_eq!(Address::from_bytes(bytes), Some(address));
                assert!(before.replace(bytes) != Some(bytes));
            }
        }
        let bytes = Address { host: HostId(0x2345), ..EXAMPLE }.to_bytes();
        assert_eq!(bytes[..2], [0x83, 0x45]);
        assert_eq!(HostId::new(HostId::MAX + 1), None);
    }

    #[test]
    fn masks_are_runs_of_bytes() {
        for mask in 0..=u8::MAX {
            let written = Address { mask, ..EXAMPLE }.to_bytes();
            let runs = (0..8)
                .any(|from| (1..=8 - from).any(|len| Address::mask_of(from, len) == Some(mask)));
            assert_eq!(Address::from_bytes(written).is_some(), runs, "{mask:08b}");
        }
        assert_eq!(Address::mask_of(7, 2), None);
        assert_eq!(Address::mask_of(u32::MAX, 1), None);
    }

    #[test]
    fn there_is_no_word_behind_the_last() {
        let last = Address { word: u32::MAX, ..EXAMPLE };
        assert_eq!(last.advanced(1), None);
        assert_eq!(EXAMPLE.advanced(1).map(|next| next.word), Some(0x89ab_cdf0));
    }

    #[test]
    fn what_was_packed_comes_out() {
        for purpose in Purpose::ALL {
            let link = LinkId::new(0xffff, 0x1234_5678);
            let meaning = unpack(pack(purpose, link, 0xdead_beef)).unwrap();
            assert_eq!((meaning.purpose, meaning.link), (purpose, 0xffff));
            assert_eq!(meaning.number, 0xdead_beef);
            assert!(meaning.is_of(0x678), "the low bits count");
            assert!(!meaning.is_of(0x679));
        }
    }

    #[test]
    fn invariant_7_tickets_of_nothing_mean_nothing() {
        assert_eq!(unpack(Ticket::from_raw(0)), None);
        assert_eq!(unpack(Ticket::from_raw(u64::MAX)), None);
    }
}
