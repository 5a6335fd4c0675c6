//! What an endpoint reads out of its tickets.

use landfall_placement::Ticket;

use crate::offload::{StuId, StuRange};

/// How many bits of a ticket name a connection, and how many say which of those
/// that were in its place of the table. The configuration has no more connections.
pub(crate) const CONNECTION_BITS: u32 = 24;
const GENERATION_BITS: u32 = 21;

/// The most STUs that one ticket is for.
const MOST_STUS: u64 = 64;

/// One Put or FetchOp of a connection that a driver is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) connection: u32,
    /// The low bits of the connection's generation.
    generation: u32,
    /// Of an incoming one: the low bits of its serial number. Of one of ours: its
    /// number among the operations.
    pub(crate) number: u16,
}

impl Step {
    pub(crate) const fn new(connection: u32, generation: u32, number: u16) -> Self {
        Self { connection, generation: generation & ((1 << GENERATION_BITS) - 1), number }
    }

    /// Is it of the connection that is in this place of the table now?
    pub(crate) const fn is_of(self, generation: u32) -> bool {
        self.generation == generation & ((1 << GENERATION_BITS) - 1)
    }
}

/// What a ticket was given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A packet without payload: nothing to do.
    Control,
    /// STUs that are being placed.
    Stus(StuRange),
    /// A Put that is being placed.
    Put(Step),
    /// A FetchOp that is being done.
    Fetch(Step),
    /// A Transfer's memory is being read.
    Send { index: u32, generation: u32 },
    /// Memory of a region is being read for a Get.
    Exposed { index: u32, generation: u32 },
    /// Memory is being read for a Put of ours.
    Operation(Step),
    /// A message that came with its request is being placed.
    Early { index: u32, generation: u32 },
}

impl Purpose {
    /// Three bits of purpose. Then 24 of connection, 21 of its generation and 16 of
    /// the number; or 16 of index and 32 of generation; or 16 each of the
    /// id of an STU, below 6 that say how many STUs more there are.
    pub(crate) const fn pack(self) -> Ticket {
        let (kind, rest) = match self {
            Self::Control => (0, 0),
            Self::Stus(StuRange { first: StuId { block, generation, stu }, count }) => {
                let more = count.saturating_sub(1) as u64 & (MOST_STUS - 1);
                let stu_id = (block as u64) << 32 | (generation as u64) << 16 | stu as u64;
                (1, more << 48 | stu_id)
            }
            Self::Put(step) => (2, pack_step(step)),
            Self::Fetch(step) => (3, pack_step(step)),
            Self::Send { index, generation } => (4, (index as u64) << 32 | generation as u64),
            Self::Exposed { index, generation } => (5, (index as u64) << 32 | generation as u64),
            Self::Operation(step) => (6, pack_step(step)),
            Self::Early { index, generation } => (7, (index as u64) << 32 | generation as u64),
        };
        Ticket::from_raw((kind as u64) << 61 | rest)
    }

    #[inline]
    pub(crate) const fn unpack(ticket: Ticket) -> Self {
        let raw = ticket.raw();
        let (index, generation) = ((raw << 3 >> 35) as u32, raw as u32);
        match raw >> 61 {
            1 => Self::Stus(StuRange {
                first: StuId {
                    block: index as u16,
                    generation: (generation >> 16) as u16,
                    stu: raw as u16,
                },
                count: (raw >> 48 & (MOST_STUS - 1)) as u16 + 1,
            }),
            2 => Self::Put(unpack_step(raw)),
            3 => Self::Fetch(unpack_step(raw)),
            4 => Self::Send { index, generation },
            5 => Self::Exposed { index, generation },
            6 => Self::Operation(unpack_step(raw)),
            7 => Self::Early { index, generation },
            _ => Self::Control,
        }
    }
}

const fn pack_step(step: Step) -> u64 {
    let Step { connection, generation, number } = step;
    (connection as u64) << (GENERATION_BITS + 16) | (generation as u64) << 16 | number as u64
}

const fn unpack_step(raw: u64) -> Step {
    let connection = (raw << 3 >> (3 + GENERATION_BITS + 16)) as u32;
    Step::new(connection, (raw >> 16) as u32, raw as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back_as_they_went() {
        let stu_id = StuId { block: u16::MAX, generation: 0xfffe, stu: 4095 };
        let last = (1 << CONNECTION_BITS) - 1;
        for purpose in [
            Purpose::Control,
            Purpose::Stus(stu_id.into()),
            Purpose::Stus(StuRange { first: stu_id, count: 64 }),
            Purpose::Put(Step::new(last, 5, 7)),
            Purpose::Fetch(Step::new(1 << 20, (1 << GENERATION_BITS) - 1, u16::MAX)),
            Purpose::Send { index: 65_534, generation: u32::MAX },
            Purpose::Exposed { index: 9, generation: 0 },
            Purpose::Operation(Step::new(5, 0, 0x8000)),
            Purpose::Early { index: 65_534, generation: u32::MAX },
        ] {
            assert_eq!(Purpose::unpack(purpose.pack()), purpose);
        }
    }

    #[test]
    fn a_step_belongs_to_one_generation_of_its_connection() {
        let step = Step::new(3, 1 << 30 | 17, 0);
        assert!(step.is_of(1 << 30 | 17), "only the low bits are compared");
        assert!(!step.is_of(1 << 30 | 18));
    }
}
