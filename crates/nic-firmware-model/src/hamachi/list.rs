//! What driver and adapter say to each other of a list of descriptors.
//!
//! A list has a number, other than that of the list before. It is over when each of its
//! descriptors was used, or when the driver asked for it back and the adapter said so:
//! that answer comes behind all frames under way, and only then is the memory that the
//! list names the driver's again.

use landfall_placement::Span;
use spec_defrag::format::Begin;
use spec_defrag::offload::Guess;

use super::steer::OpenPage;

/// What the driver writes.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// A list of so many descriptors follows. Refused while the one before is not over.
    Begin {
        /// Its number; 0 is no list's.
        list: u32,
        /// So many descriptors.
        len: u16,
        /// An interrupt after so many frames, and at the end of the list.
        interrupt_after: u16,
    },
    /// The next descriptor of the list.
    Load {
        /// The list.
        list: u32,
        /// Head, body, and what takes the rest of a longer frame. Empty ones are passed
        /// over.
        buffers: [Span; 3],
        /// What is expected behind it: for an adapter that reads headers.
        guess: Guess,
    },
    /// A page that the guesses of the list mean: for an adapter that reads headers.
    Open {
        /// The list.
        list: u32,
        /// The number of the page in them.
        at: u16,
        /// What is in it.
        page: OpenPage<Begin>,
    },
    /// The driver wants the list back. Frames that come from now on find no descriptor.
    Stop {
        /// The list.
        list: u32,
    },
}

/// What the driver finds written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A frame lies behind this descriptor: End.Of.Packet.
    Filled {
        /// The list.
        list: u32,
        /// Which descriptor of it.
        index: u16,
        /// The length of the frame.
        len: u32,
    },
    /// The buffers of this descriptor are no memory that could be written. It was passed
    /// over, and the frame is lost.
    Failed {
        /// The list.
        list: u32,
        /// Which descriptor of it.
        index: u16,
    },
    /// The driver has the list back.
    Stopped {
        /// The list.
        list: u32,
    },
    /// A list was begun, and the one before is not over: ask for that one back first.
    Busy {
        /// The list that was begun.
        list: u32,
        /// The one that is not over.
        current: u32,
    },
    /// The list is longer than the adapter's memory.
    Refused {
        /// The list.
        list: u32,
        /// So many descriptors have room.
        room: u16,
    },
}
