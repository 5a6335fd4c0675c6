//! What every driver does alike: [`Inbox`] posts guesses and settles what came;
//! [`Outbox`] gathers what leaves. The system calls between are the drivers'.

mod header;
mod inbox;
mod iovecs;
mod outbox;
mod settle;

pub(crate) use header::MessageHeader;
pub(crate) use inbox::{Arrival, Inbox, Peeked};
pub(crate) use iovecs::IoVecs;
#[cfg(feature = "io-uring")]
pub(crate) use outbox::Gathered;
pub(crate) use outbox::{LONGEST_BATCH, Outbox, RunLimits, fill_in_sum};

use landfall_placement::Instant;

use crate::counters::Counters;
use crate::memory::Pins;

/// What one turn of a driver works with.
pub(crate) struct Turn<'a, E> {
    pub(crate) engine: &'a mut E,
    pub(crate) now: Instant,
    /// The memory that is posted for receiving, held until the turn ends.
    pub(crate) pins: &'a mut Pins,
    pub(crate) counters: &'a mut Counters,
}

/// The longest head that a driver gives room for.
pub(crate) const HEAD_ROOM: usize = 256;
/// The most units in one batch: GRO never coalesces more.
pub(crate) const MAX_UNITS: usize = 64;
/// The longest batch or super-packet that the kernel hands over, with its
/// link header.
pub(crate) const LONGEST: usize = 65_535 + HEAD_ROOM;
