//! Requests that this side gave up, and of which the other side may have heard nothing.
//!
//! Who answers requests takes no more than 64 that it has not heard to be over: [`Seen`]. So
//! 64 requests that were lost and given up would end all that come after them. Their numbers
//! are kept here, and count as open, until the other side says that it knows them; the oldest
//! is said again with each request that comes after it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, Serial32};

use crate::context::Context;
use crate::network::Network;
use crate::region::Request;
use crate::seen::Seen;
use crate::wire::Reason;
use crate::wire::message::{Ending, Ids, Message};

/// Names nothing in tables, which are shorter.
const NO_ID: u16 = u16::MAX;

/// A Request_To_Receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) serial: u32,
    pub(crate) len: u64,
    pub(crate) opaque: u32,
}

/// What was given up, in the order in which that was: no more than may be open.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Transfers, by their serial numbers.
    sends: Vec<u32>,
    reads: Vec<ReadRequest>,
    /// Requests for regions, with the names that they had here.
    regions: Vec<Request>,
    /// When the other side was reminded of them because a user was refused.
    reminded: Option<Instant>,
}

/// How many requests of one kind are unsettled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsettledCount {
    pub(crate) count: usize,
    /// None of them is too far behind the next.
    pub(crate) is_near: bool,
}

impl UnsettledCount {
    const NONE: Self = Self { count: 0, is_near: true };
}

impl Unsettled {
    /// A user is refused: whether the other side is to be reminded now, which is once in this time.
    pub(super) fn reminds(&mut self, now: Instant, again_after: Duration) -> bool {
        let is_due = self.reminded.is_none_or(|at| at + again_after <= now);
        if is_due {
            self.reminded = Some(now);
        }
        is_due
    }

    /// Whether a user was refused because of them, and nothing was settled since.
    pub(crate) const fn holds_up(&self) -> bool {
        self.reminded.is_some()
    }
}

impl Network {
    fn unsettled_mut(&mut self, connection: u32) -> Option<&mut Unsettled> {
        self.connections.get_mut(connection)?.unsettled.as_deref_mut()
    }

    fn unsettled(&self, connection: u32) -> Option<&Unsettled> {
        self.connections.get(connection)?.unsettled.as_deref()
    }

    /// This side gives up a Transfer, and the other side may not know of it.
    pub(crate) fn leave_send_unsettled(&mut self, connection: u32, serial: u32) {
        if let Some(known) = self.connections.get_mut(connection) {
            known.unsettled.get_or_insert_with(Box::default).sends.push(serial);
        }
    }

    /// This side gives up a read, and the other side may not know of it.
    pub(crate) fn leave_read_unsettled(&mut self, connection: u32, question: ReadRequest) {
        if let Some(known) = self.connections.get_mut(connection) {
            known.unsettled.get_or_insert_with(Box::default).reads.push(question);
        }
    }

    /// The other side knows that a Transfer is over. Returns whether it was not known to.
    pub(crate) fn settle_send(&mut self, cx: &mut Context, connection: u32, serial: u32) -> bool {
        let is_settled = self.unsettled_mut(connection).is_some_and(|unsettled| {
            let before = unsettled.sends.len();
            unsettled.sends.retain(|other| *other != serial);
            unsettled.sends.len() < before
        });
        if is_settled {
            self.note_settled(connection);
            self.send_unsettled_send(cx, connection);
        }
        is_settled
    }

    /// The other side knows that a read is over. Returns whether it was not known to.
    pub(crate) fn settle_read(&mut self, cx: &mut Context, connection: u32, serial: u32) -> bool {
        let is_settled = self.unsettled_mut(connection).is_some_and(|unsettled| {
            let before = unsettled.reads.len();
            unsettled.reads.retain(|other| other.serial != serial);
            unsettled.reads.len() < before
        });
        if is_settled {
            self.note_settled(connection);
            self.send_unsettled_read(cx, connection);
        }
        is_settled
    }

    /// This side gives up a request for a region, and the other side may not know of it.
    pub(crate) fn leave_region_unsettled(&mut self, request: Request) {
        if let Some(known) = self.connections.get_mut(request.connection) {
            known.unsettled.get_or_insert_with(Box::default).regions.push(request);
        }
    }

    /// The other side has answered a request for a region. Returns whether that was given up.
    pub(crate) fn settle_region(&mut self, cx: &mut Context, connection: u32, serial: u32) -> bool {
        let is_settled = self.unsettled_mut(connection).is_some_and(|unsettled| {
            let before = unsettled.regions.len();
            unsettled.regions.retain(|other| other.serial != serial);
            unsettled.regions.len() < before
        });
        if is_settled {
            self.note_settled(connection);
            self.send_unsettled_region(cx, connection);
        }
        is_settled
    }

    /// How many Transfers are unsettled.
    pub(crate) fn unsettled_sends(&self, connection: u32, next: u32) -> UnsettledCount {
        let Some(unsettled) = self.unsettled(connection) else { return UnsettledCount::NONE };
        let sends = &unsettled.sends;
        let is_near = sends.iter().all(|serial| is_near(*serial, next));
        UnsettledCount { count: sends.len(), is_near }
    }

    /// The same of reads.
    pub(crate) fn unsettled_reads(&self, connection: u32, next: u32) -> UnsettledCount {
        let Some(unsettled) = self.unsettled(connection) else { return UnsettledCount::NONE };
        let reads = &unsettled.reads;
        let is_near = reads.iter().all(|read| is_near(read.serial, next));
        UnsettledCount { count: reads.len(), is_near }
    }

    /// The same of requests for regions.
    pub(crate) fn unsettled_regions(&self, connection: u32, next: u32) -> UnsettledCount {
        let Some(unsettled) = self.unsettled(connection) else { return UnsettledCount::NONE };
        let regions = &unsettled.regions;
        let is_near = regions.iter().all(|request| is_near(request.serial, next));
        UnsettledCount { count: regions.len(), is_near }
    }

    /// Something was settled: who was refused may try again.
    fn note_settled(&mut self, connection: u32) {
        if let Some(unsettled) = self.unsettled_mut(connection) {
            unsettled.reminded = None;
        }
    }

    /// Says the end of the first Transfer that was given up.
    pub(crate) fn send_unsettled_send(&mut self, cx: &mut Context, connection: u32) {
        let first = self.unsettled(connection).and_then(|unsettled| unsettled.sends.first());
        if let Some(&serial) = first {
            let ids = Ids { d_id: NO_ID, s_id: NO_ID };
            let ending = Ending { ids, serial, by_receiver: false };
            self.send_message(cx, connection, &Message::End { ending, reason: Reason::Gone });
        }
    }

    /// Asks again for the first read that was given up: what answers it is refused.
    pub(crate) fn send_unsettled_read(&mut self, cx: &mut Context, connection: u32) {
        let first = self.unsettled(connection).and_then(|unsettled| unsettled.reads.first());
        if let Some(&ReadRequest { serial, len, opaque }) = first {
            let message = Message::RequestToReceive { s_id: NO_ID, serial, len, opaque };
            self.send_message(cx, connection, &message);
        }
    }

    /// Asks again for the first region whose request was given up.
    pub(crate) fn send_unsettled_region(&mut self, cx: &mut Context, connection: u32) {
        let first = self.unsettled(connection).and_then(|unsettled| unsettled.regions.first());
        if let Some(request) = first {
            let message = request.message(NO_ID);
            self.send_message(cx, connection, &message);
        }
    }
}

/// Is a number so near an earlier one that it is clear which of them that is?
pub(crate) fn is_near(earlier: u32, next: u32) -> bool {
    Serial32(next).since(Serial32(earlier)) < Seen::SPAN
}
