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

/// A ticket taken apart. Generations wrap at 32 bits, details at 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) purpose: Purpose,
    pub(super) slot: u8,
    pub(super) generation: u32,
    pub(super) detail: u32,
}

impl Parts {
    #[inline]
    pub(super) const fn pack(self) -> Ticket {
        Ticket::from_raw(
            (self.purpose as u64) << 60
                | (self.slot as u64) << 52
                | (self.generation as u64) << 20
                | (self.detail & 0xf_ffff) as u64,
        )
    }

    #[inline]
    pub(super) const fn unpack(ticket: Ticket) -> Option<Self> {
        let raw = ticket.raw();
        let purpose = match raw >> 60 {
            1 => Purpose::Placement,
            2 => Purpose::Word,
            3 => Purpose::Payload,
            4 => Purpose::Control,
            _ => return None,
        };
        let slot = (raw >> 52) as u8;
        let generation = (raw >> 20) as u32;
        Some(Self { purpose, slot, generation, detail: raw as u32 & 0xf_ffff })
    }
}

/// The ticket of every transmission that reads no memory.
pub(super) const CONTROL: Ticket =
    Parts { purpose: Purpose::Control, slot: 0, generation: 0, detail: 0 }.pack();
