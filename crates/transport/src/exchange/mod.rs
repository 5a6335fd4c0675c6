//! What every driver does alike: [`Inbox`] posts guesses and settles what came;
//! [`Outbox`] gathers what leaves. The system calls between are the drivers'.

mod inbox;
mod loose;
mod message;
mod opened;
mod outbox;
mod sealed;
mod settle;
mod turn;

pub(crate) use inbox::{Arrival, GuessHistory, Inbox, Peeked, ScatteredUnit};
pub(crate) use loose::Loose;
pub(crate) use message::{
    Batch, DONT_WAIT, IoVecs, MessageHeader, control_len, set_control, set_name, set_pieces,
};
#[cfg(feature = "io-uring")]
pub(crate) use outbox::Gathered;
pub(crate) use outbox::{FrontRun, LONGEST_BATCH, Originals, Outbox, RunLimits};
pub(crate) use turn::{Pace, Settled, TurnScratch};

use landfall_placement::Instant;

use crate::driver::Counters;
use crate::memory::Pins;

/// What one turn of a driver works with.
pub(crate) struct Turn<'a, E> {
    pub(crate) engine: &'a mut E,
    pub(crate) now: Instant,
    /// The memory that is posted for receiving, held until the turn ends.
    pub(crate) pins: &'a mut Pins,
    pub(crate) counters: &'a mut Counters,
}

/// The longest head of what comes that a driver looks at unasked.
pub(crate) const HEAD_ROOM: usize = 256;
/// The longest head that a driver gives room for to what leaves: a message of DHCP, which is
/// 300 bytes long at least, is all head.
pub(crate) const SEND_HEAD_ROOM: usize = 384;
/// The longest header that a driver wants in front of a unit: a virtio-net header, Ethernet,
/// IPv6 and UDP.
pub(crate) const PREFIX_ROOM: usize = 10 + 14 + 40 + 8;
/// What a driver puts in front of a unit, or receives in front of it.
pub(crate) type Prefix = [u8; PREFIX_ROOM];
/// The most units in one batch: GRO never coalesces more.
pub(crate) const MAX_UNITS: usize = 64;
/// The most units that come with one call by lists of their own. What comes
/// between those that were guessed (an acknowledgement, a request) takes the
/// place of one, and all behind it in the same call miss theirs by one: with
/// more units a call, more bytes would be copied than time saved.
pub(crate) const MAX_LISTS: usize = 16;
/// The longest batch or super-packet that the kernel hands over, with its
/// link header.
pub(crate) const LONGEST: usize = 65_535 + HEAD_ROOM;
