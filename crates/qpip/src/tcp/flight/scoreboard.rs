//! [`Scoreboard`]: what is known of transmissions that did not just arrive in order. Most
//! connections have none most of the time.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use landfall_placement::Instant;

use super::Ranges;

/// A retransmission, for the order of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retransmission {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at: Instant,
}

/// What was selectively acknowledged, what is lost, and what was sent again.
#[derive(Debug)]
pub(super) struct Scoreboard {
    pub(super) sacked: Ranges,
    /// Retransmissions, oldest first. An entry whose records have been
    /// acknowledged, lost or sent again since then says nothing.
    pub(super) again: VecDeque<Retransmission>,
    /// Nothing below it is under way and was sent only once.
    pub(super) first_original: u64,
    /// Nothing below it is lost.
    pub(super) first_lost: u64,
    pub(super) sacked_bytes: u64,
    pub(super) lost_bytes: u64,
}

impl Scoreboard {
    /// The one that there is, or a new one: nothing below `start` is under way.
    pub(super) fn of(slot: &mut Option<Box<Self>>, start: u64) -> &mut Self {
        slot.get_or_insert_with(|| {
            Box::new(Self {
                sacked: Ranges::None,
                again: VecDeque::new(),
                first_original: start,
                first_lost: start,
                sacked_bytes: 0,
                lost_bytes: 0,
            })
        })
    }
}
