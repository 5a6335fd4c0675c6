//! What the 64 bits of a ticket say: kind, slot, generation and a few bits more.

use landfall_placement::Ticket;

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
