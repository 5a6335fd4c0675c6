//! What is packed into a [`Ticket`](landfall_placement::Ticket).
//!
//! Four bits say what it is for, twelve are the low bits of the link's
//! generation, sixteen its index, thirty-two a running number of the link: a
//! ticket of a link that is gone, or one that came back before, means nothing.

use landfall_placement::Ticket;

use crate::ids::LinkId;

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
}

impl Purpose {
    const ALL: [Self; 4] = [Self::Sent, Self::SentBare, Self::Placed, Self::Deposit];
}

/// A ticket, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
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

pub(crate) fn unpack(ticket: Ticket) -> Option<Meaning> {
    let raw = ticket.raw();
    Some(Meaning {
        purpose: *Purpose::ALL.get(((raw >> 60) as usize).checked_sub(1)?)?,
        link: u32::from((raw >> 32) as u16),
        generation: (raw >> 48) as u16 & GENERATION,
        number: raw as u32,
    })
}

impl Meaning {
    /// Is the link still the one that the ticket was given for?
    pub(crate) const fn is_of(&self, generation: u32) -> bool {
        generation as u16 & GENERATION == self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out() {
        for purpose in Purpose::ALL {
            let link = LinkId::new((0xffff, 0x1234_5678));
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
