//! What the user is told, in order, and no more than there is room for.

use alloc::collections::VecDeque;

use crate::address::{Address, HostId};
use crate::error::{Ended, Reason};
use crate::ids::{ApertureId, ReadId, TripwireId, WriteId};

/// What the user of a station is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The link is up.
    Up {
        /// The host at the other end; `None` for a switch.
        peer: Option<HostId>,
    },
    /// The link is down, and all that was under way is lost; it begins anew by itself.
    Down {
        /// Why.
        why: Ended,
    },
    /// A tripwire fired (once or more since this was last told).
    Tripwire {
        /// Which.
        tripwire: TripwireId,
    },
    /// A write by DMA has left, or never will: its memory is free.
    Written {
        /// The write.
        write: WriteId,
        /// How it ended.
        result: Result<(), Ended>,
    },
    /// A read is done: the bytes are in place here.
    Read {
        /// The read.
        read: ReadId,
        /// How it ended.
        result: Result<(), Ended>,
    },
    /// Nothing writes to the memory of an aperture that was revoked any more.
    Released {
        /// Its name.
        aperture: ApertureId,
    },
    /// The other end refused a packet.
    Exception {
        /// Its header.
        address: Address,
        /// Why.
        reason: Reason,
    },
}

/// What waits to be told.
#[derive(Debug)]
pub(super) struct News {
    queue: VecDeque<Event>,
    most: usize,
}

impl News {
    pub(super) const fn new(most: usize) -> Self {
        Self { queue: VecDeque::new(), most }
    }

    /// May something more be begun whose end has to be told?
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < self.most
    }

    /// The end of something that found room at its beginning, or a tripwire, which
    /// waits here once at most.
    pub(super) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
    }

    /// What may come any number of times: at the bound it is not told.
    pub(super) fn push_news(&mut self, event: Event) {
        if self.has_room() {
            self.queue.push_back(event);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
