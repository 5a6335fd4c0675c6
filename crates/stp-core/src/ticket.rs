//! What an endpoint reads out of its tickets.

use landfall_placement::Ticket;

use crate::offload::Seat;

/// What a ticket was given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A packet without payload: nothing to do.
    Control,
    /// An STU that is being placed.
    Stu(Seat),
    /// A Put that is being placed: the connection, and the low bits of its serial number.
    Put { connection: u32, serial: u16 },
    /// A FetchOp that is being done.
    Fetch { connection: u32, serial: u16 },
    /// A Transfer's memory is being read.
    Send { index: u32, generation: u16 },
    /// Memory of a region is being read for a Get.
    Exposed { index: u32, generation: u16 },
    /// Memory is being read for a Put of ours.
    Operation { connection: u32, serial: u16 },
}

impl Purpose {
    /// Three bits of purpose, 45 of index (or Block and generation), 16 of the rest.
    pub(crate) const fn pack(self) -> Ticket {
        let (kind, index, rest) = match self {
            Self::Control => (0, 0, 0),
            Self::Stu(seat) => (1, (seat.block as u64) << 16 | seat.generation as u64, seat.stu),
            Self::Put { connection, serial } => (2, connection as u64, serial),
            Self::Fetch { connection, serial } => (3, connection as u64, serial),
            Self::Send { index, generation } => (4, index as u64, generation),
            Self::Exposed { index, generation } => (5, index as u64, generation),
            Self::Operation { connection, serial } => (6, connection as u64, serial),
        };
        Ticket::from_raw((kind as u64) << 61 | index << 16 | rest as u64)
    }

    #[inline]
    pub(crate) const fn unpack(ticket: Ticket) -> Self {
        let raw = ticket.raw();
        let (index, rest) = ((raw >> 16) as u32, raw as u16);
        match raw >> 61 {
            1 => {
                Self::Stu(Seat { block: (index >> 16) as u16, generation: index as u16, stu: rest })
            }
            2 => Self::Put { connection: index, serial: rest },
            3 => Self::Fetch { connection: index, serial: rest },
            4 => Self::Send { index, generation: rest },
            5 => Self::Exposed { index, generation: rest },
            6 => Self::Operation { connection: index, serial: rest },
            _ => Self::Control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back_as_they_went() {
        let seat = Seat { block: u16::MAX, generation: 0xfffe, stu: 4095 };
        for purpose in [
            Purpose::Control,
            Purpose::Stu(seat),
            Purpose::Put { connection: u32::MAX, serial: 7 },
            Purpose::Fetch { connection: 1 << 20, serial: u16::MAX },
            Purpose::Send { index: 65_534, generation: 3 },
            Purpose::Exposed { index: 9, generation: 0 },
            Purpose::Operation { connection: 5, serial: 0x8000 },
        ] {
            assert_eq!(Purpose::unpack(purpose.pack()), purpose);
        }
    }
}
