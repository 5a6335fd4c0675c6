//! Names for what lives in an adapter, and what is packed into a
//! [`Ticket`](landfall_placement::Ticket).
//!
//! In a ticket four bits say what it is for, twelve are the low bits of the link's
//! generation, sixteen its index, thirty-two a running number of the link: a
//! ticket of a link that is gone, or one that came back before, means nothing.

use core::fmt;

use landfall_placement::Ticket;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $words:literal;)+) => {$(
        $(#[$doc])*
        ///
        /// A name of an earlier time is recognised and means nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            pub(crate) const fn new((index, generation): (u32, u32)) -> Self {
                Self { index, generation }
            }

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
    LinkId, "link";
    /// Memory of this host that others may touch.
    ApertureId, "aperture";
    /// Memory of another host that this one may touch.
    WindowId, "window";
    /// A remote read of this host.
    ReadId, "read";
    /// A read-modify-write of a remote word.
    OperationId, "word operation";
    /// A chain of requests to the DMA engine.
    DmaId, "DMA request";
    /// A write from memory, in its order among those of the program.
    WriteId, "write";
    /// A question whether all before it has arrived.
    BarrierId, "barrier";
    /// Synchronisation with accesses to some memory.
    TripwireId, "tripwire";
    /// Several tripwires that are waited for together.
    TripsetId, "tripset";
    /// One end of connections and of out-of-band messages.
    EndpointId, "endpoint";
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
