//! What the user asks for.
//!
//! Every call is over at once, and is refused with a reason where it cannot be
//! had: [`Error::Busy`](crate::Error::Busy) means that it can be had after some
//! event.

mod endpoints;
mod groups;
mod memory;
mod transfers;
mod tripwires;

pub use crate::transfer::dma::DmaRequest;
pub use groups::GroupWrite;
pub(super) use transfers::put;

landfall_placement::counters! {
    /// How much an adapter did.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Stats {
        /// Frames that were filled. What was sent again counts once.
        pub frames: u64,
        /// Frames that came too early, or had to be looked at packet by packet.
        pub kept: u64,
        /// Frames that left for all members of a group at once.
        pub multicasts: u64,
        /// Frames that one member of a group was sent again.
        pub repairs: u64,
        /// Packets, reads and operations of others that were refused.
        pub refused: u64,
        /// Answers and exceptions that others were not told, since they listen less
        /// than they ask.
        pub answers_lost: u64,
        /// Over a native link: packets that came to lie in memory of this host.
        pub bursts: u64,
        /// Of these, how many an adapter put there.
        pub offloaded: u64,
    }
}
