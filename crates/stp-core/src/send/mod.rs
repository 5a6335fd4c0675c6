//! Transfers that this side sends.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `begin` | what the user asks for: send, cancel |
//! | `asked` | Request_To_Receive: what the other side asks this one to send |
//! | `eager` | short messages leave with their request |
//! | `granted` | Clear_To_Send: which STUs may go, and where they belong |
//! | `acks` | answers, acknowledgements and endings; what is repeated when nothing was heard |

mod acks;
mod begin;
mod eager;
mod granted;
mod reads;

use landfall_placement::{Area, Instant, assumed};
use landfall_tables::{IndexedHeap, Table};

use crate::config::Config;
use crate::connection::NONE;
use crate::error::Ended;
use crate::preference::Priority;
use crate::wire::message::AnsweredRead;

pub(crate) use acks::Progress;
pub(crate) use reads::Read;

/// Where a Transfer stands at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The Request_To_Send is not answered yet.
    RequestSent,
    /// It is: the receiver grants Blocks as it likes.
    Accepted,
    /// This side ends it; the receiver has not acknowledged that.
    Ending(Ended),
    /// It is over; a driver still holds its memory.
    Over(Result<(), Ended>),
}

/// How many Blocks back a duplicate of a grant is recognised.
const RECENT: usize = 16;

/// The grants of one Block.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    block: u32,
    newest: u8,
    /// Bit `n`: the grant `n` before the newest was seen.
    seen: u64,
}

/// What this side sends, and what it was asked to send.
#[derive(Debug)]
pub(crate) struct Sends {
    pub(crate) table: Table<Send>,
    pub(crate) timers: IndexedHeap<Instant>,
    /// What the other side wants to read, and the user has not answered.
    pub(crate) reads: Table<Read>,
}

impl Sends {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            table: Table::new(config.sends),
            timers: IndexedHeap::new(),
            reads: Table::new(config.receives),
        }
    }

    /// One that is known to be there: a Transfer that goes on is in the table.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed(&self, index: u32) -> Option<&Send> {
        assumed(self.table.get(index), "a Transfer that goes on is in the table")
    }

    /// The same, to change it.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed_mut(&mut self, index: u32) -> Option<&mut Send> {
        assumed(self.table.get_mut(index), "a Transfer that goes on is in the table")
    }

    /// May Data of a Transfer leave?
    #[inline]
    pub(crate) fn may_leave(&self, index: u32, generation: u32) -> bool {
        self.table.named(index, generation).is_some_and(Send::is_live)
    }

    /// A driver holds one transmission of a Transfer more.
    #[inline]
    pub(crate) fn hold(&mut self, index: u32) {
        if let Some(send) =
            assumed(self.table.get_mut(index), "what leaves is of a Transfer that there is")
        {
            send.held += 1;
        }
    }
}

/// A Transfer that this side sends.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) connection: u32,
    pub(crate) serial: u32,
    pub(crate) memory: Area,
    /// How much of it the receiver takes.
    pub(crate) len: u64,
    pub(crate) opaque: u32,
    pub(crate) priority: Priority,
    /// The read that it answers.
    pub(crate) answers: Option<AnsweredRead>,
    pub(crate) state: State,
    /// What the receiver calls it.
    pub(crate) peer_id: u16,
    /// How it is cut into Blocks: the first grant says.
    pub(crate) tiling: Option<Tiling>,
    /// The receiver said how much it takes.
    pub(crate) knows_limit: bool,
    /// All Blocks below are in place.
    pub(crate) acked: u32,
    /// Its end was granted.
    pub(crate) is_end_granted: bool,
    /// The user wants to know how far it is.
    pub(crate) is_watched: bool,
    /// Transmissions whose memory a driver holds.
    pub(crate) held: u32,
    pub(crate) retries: u8,
    /// How often its timer ran out since the receiver last said anything new.
    pub(crate) asked: u8,
    pub(crate) next_in_connection: u32,
    recent: [Recent; RECENT],
}

/// How a Transfer is cut into Blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    /// The size of a Block, as a power of two.
    pub(crate) block_size: u8,
    /// How far into its first Block the Transfer begins.
    pub(crate) lead: u32,
}

impl Send {
    pub(crate) const fn new(connection: u32, serial: u32, memory: Area, opaque: u32) -> Self {
        const NOTHING: Recent = Recent { block: 0, newest: 0, seen: 0 };
        Self {
            connection,
            serial,
            memory,
            len: memory.len,
            opaque,
            priority: Priority::Normal,
            answers: None,
            state: State::RequestSent,
            peer_id: 0,
            tiling: None,
            knows_limit: false,
            acked: 0,
            is_end_granted: false,
            is_watched: false,
            held: 0,
            retries: 0,
            asked: 0,
            next_in_connection: NONE,
            recent: [NOTHING; RECENT],
        }
    }

    /// May its Data be sent?
    #[inline]
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.state, State::RequestSent | State::Accepted)
    }

    /// The receiver said something, and what it calls this Transfer.
    const fn accept(&mut self, peer_id: u16) {
        if matches!(self.state, State::RequestSent) {
            self.asked = 0;
        }
        self.state = State::Accepted;
        self.retries = 0;
        self.peer_id = peer_id;
    }

    /// How many bytes from the start are in place at the receiver.
    pub(crate) fn acked_bytes(&self) -> u64 {
        self.tiling.map_or(0, |Tiling { block_size, lead }| {
            let end = u64::from(self.acked) << block_size;
            end.saturating_sub(u64::from(lead)).min(self.len)
        })
    }

    /// Is this a grant that was not seen? Remembers it.
    fn is_new_grant(&mut self, block: u32, attempt: u8) -> bool {
        let recent = &mut self.recent[block as usize % RECENT];
        if recent.seen == 0 || recent.block != block {
            *recent = Recent { block, newest: attempt, seen: 1 };
            return true;
        }
        // How far ahead of the newest, on the shorter way round of 64.
        let ahead = attempt.wrapping_sub(recent.newest) & 63;
        if ahead == 0 {
            return false;
        }
        if ahead < 32 {
            recent.seen = recent.seen << ahead | 1;
            recent.newest = attempt;
            return true;
        }
        let bit = 1 << (64 - ahead);
        let is_new = recent.seen & bit == 0;
        recent.seen |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_grant_counts_once_in_any_order() {
        let mut send = Send::new(0, 0, Area::default(), 0);
        let order = [60, 62, 61, 0, 63, 1];
        for attempt in order {
            assert!(send.is_new_grant(7, attempt), "{attempt} is new");
            assert!(!send.is_new_grant(7, attempt), "{attempt} is a duplicate");
        }
        for attempt in order {
            assert!(!send.is_new_grant(7, attempt), "{attempt} is still known");
        }
        assert!(send.is_new_grant(7 + RECENT as u32, 1), "another block");
    }
}
