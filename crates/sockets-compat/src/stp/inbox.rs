//! [`Inbox`]: Transfers that come, in the order in which they were written.
//!
//! A Transfer is offered with its length; memory of that length is chosen for it, while
//! there is room in the budget, and one that is longer than a message may be is refused,
//! so that its writer hears of it. The message that is due next is always taken in, or a
//! later one could keep its place for ever.
//!
//! A [`Mark`] is what the four bytes beside each Transfer say.
//! Transfers are offered in the order in which their requests arrive, which need not be
//! the order of the writes; a socket keeps that order. So each message has a number,
//! from 1 on, in the low 31 bits; the number after the greatest is 1 again. The topmost
//! bit says that this (empty) Transfer is the end of its direction, and no message.
//!
//! A sender that knows nothing of this sends zeros: such Transfers are taken in the
//! order in which they come.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall::stp::{Connection, Error, Memory, Message, Offer, Operation, Reason};

use super::{CloseGuard, Limits, failed};
use crate::errors;
use crate::waiting::{Progress, poll_once};

/// Transfers that arrive, given out in the order of their writes.
pub(super) struct Inbox {
    connection: Connection,
    limits: Limits,
    /// The number of the message that is due.
    due: Number,
    arrivals: VecDeque<Arrival>,
    /// Bytes of those that are here, or on their way into memory of this side.
    taken: usize,
    /// Nothing more will be offered.
    over: Option<Error>,
    has_ended: bool,
    /// For when this socket is dropped.
    close_guard: Arc<CloseGuard>,
}

struct Arrival {
    mark: Mark,
    len: usize,
    stage: Stage,
}

enum Stage {
    /// Nothing was chosen for it yet.
    Offered(Offer),
    /// On its way.
    Coming(Operation<Message>),
    Here(Message),
    /// It was refused, or given up by its writer: its number is not waited for.
    Skipped,
}

impl Inbox {
    pub(super) fn new(
        connection: Connection,
        limits: Limits,
        close_guard: Arc<CloseGuard>,
    ) -> Self {
        Self {
            connection,
            limits,
            due: Number::FIRST,
            arrivals: VecDeque::new(),
            taken: 0,
            over: None,
            has_ended: false,
            close_guard,
        }
    }

    /// The longest message that is taken from now on.
    pub(super) const fn set_most(&mut self, most: usize) {
        self.limits.message = most;
    }

    pub(super) const fn most(&self) -> usize {
        self.limits.message
    }

    fn arrive(&mut self, offer: Offer) {
        let mark = Mark::from_opaque(offer.opaque());
        let fits = usize::try_from(offer.len()).ok().filter(|len| *len <= self.limits.message);
        let (len, stage) = match fits {
            Some(len) => (len, Stage::Offered(offer)),
            None => {
                offer.refuse(Reason::TooLong);
                (0, Stage::Skipped)
            }
        };
        // Without a number nobody waits for it.
        if mark.number.is_some() || !matches!(stage, Stage::Skipped) {
            self.arrivals.push_back(Arrival { mark, len, stage });
        }
    }

    fn advance(&mut self, index: usize, cx: &mut Context<'_>) {
        let is_due = self.is_due(index);
        let Some(arrival) = self.arrivals.get_mut(index) else { return };
        let has_room = self.taken.saturating_add(arrival.len) <= self.limits.receive_buffer;
        if matches!(arrival.stage, Stage::Offered(_)) && (is_due || has_room) {
            let offered = std::mem::replace(&mut arrival.stage, Stage::Skipped);
            if let Stage::Offered(offer) = offered {
                self.taken += arrival.len;
                arrival.stage = Stage::Coming(offer.accept(Memory::zeroed(arrival.len)));
            }
        }
        if let Stage::Coming(operation) = &mut arrival.stage {
            match Pin::new(operation).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(message)) => arrival.stage = Stage::Here(message),
                Poll::Ready(Err(_)) => {
                    self.taken -= arrival.len;
                    arrival.len = 0;
                    arrival.stage = Stage::Skipped;
                }
            }
        }
    }

    /// Is it the message that is read next?
    fn is_due(&self, index: usize) -> bool {
        match self.arrivals.get(index).map(|arrival| arrival.mark.number) {
            Some(Some(number)) => number == self.due,
            Some(None) => {
                !self.arrivals.iter().take(index).any(|other| other.mark.number.is_none())
            }
            None => false,
        }
    }

    /// The message that is due, where it landed; nothing at the end.
    pub(super) fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&[u8]>>> {
        self.make_progress(cx);
        loop {
            if self.has_ended {
                return Poll::Ready(Ok(None));
            }
            let due = (0..self.arrivals.len()).find(|index| self.is_due(*index));
            let Some(index) = due else { return self.nothing_is_due() };
            match &self.arrivals[index].stage {
                Stage::Skipped => self.forget(index),
                Stage::Here(_) if self.arrivals[index].mark.is_end => {
                    self.forget(index);
                    self.has_ended = true;
                }
                Stage::Here(_) => break,
                Stage::Offered(_) => self.advance(index, cx),
                Stage::Coming(_) => return Poll::Pending,
            }
        }
        // Found again: a borrow does not outlive the loop.
        let due = (0..self.arrivals.len()).find(|index| self.is_due(*index));
        match due.map(|index| &self.arrivals[index].stage) {
            Some(Stage::Here(message)) => Poll::Ready(Ok(Some(message))),
            _ => Poll::Pending,
        }
    }

    fn nothing_is_due(&self) -> Poll<io::Result<Option<&[u8]>>> {
        let is_moving =
            self.arrivals.iter().any(|arrival| !matches!(arrival.stage, Stage::Skipped));
        match &self.over {
            None => Poll::Pending,
            // Something is missing in between, and will not come any more.
            Some(_) if is_moving => Poll::Ready(Err(errors::reset())),
            Some(why) if why.is_graceful_close() => Poll::Ready(Ok(None)),
            Some(why) => Poll::Ready(Err(failed(why))),
        }
    }

    /// The message that is due was read: the next one is.
    pub(super) fn pop_front(&mut self, cx: &mut Context<'_>) -> Option<Message> {
        let index = (0..self.arrivals.len()).find(|index| self.is_due(*index))?;
        if !matches!(self.arrivals[index].stage, Stage::Here(_)) {
            return None;
        }
        let popped = std::mem::replace(&mut self.arrivals[index].stage, Stage::Skipped);
        self.forget(index);
        // There is room for another one.
        self.make_progress(cx);
        match popped {
            Stage::Here(message) => Some(message),
            _ => None,
        }
    }

    fn forget(&mut self, index: usize) {
        if let Some(arrival) = self.arrivals.remove(index) {
            self.taken -= arrival.len;
            if arrival.mark.number.is_some() {
                self.due = self.due.next();
            }
        }
    }
}

impl Progress for Inbox {
    /// Takes in what there is.
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        while self.over.is_none() {
            // Dropped, this future loses nothing: an offer leaves its queue when it is ready.
            match poll_once(cx, self.connection.offer()) {
                Poll::Ready(Ok(offer)) => self.arrive(offer),
                Poll::Ready(Err(why)) => self.over = Some(why),
                Poll::Pending => break,
            }
        }
        for index in 0..self.arrivals.len() {
            self.advance(index, cx);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let is_unread =
            |arrival: &Arrival| !arrival.mark.is_end && !matches!(arrival.stage, Stage::Skipped);
        if self.arrivals.iter().any(is_unread) {
            self.close_guard.leave_unread();
        }
    }
}

/// What the four bytes beside each Transfer say: its number, or that the direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// None: it has no number.
    pub(super) number: Option<Number>,
    pub(super) is_end: bool,
}

/// The number of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u32);

const END: u32 = 1 << 31;
const GREATEST: u32 = END - 1;

impl Number {
    pub(super) const FIRST: Self = Self(1);

    pub(super) const fn next(self) -> Self {
        Self(if self.0 == GREATEST { 1 } else { self.0 + 1 })
    }
}

impl Mark {
    pub(super) const fn of(number: Number) -> Self {
        Self { number: Some(number), is_end: false }
    }

    pub(super) const fn end(number: Number) -> Self {
        Self { number: Some(number), is_end: true }
    }

    pub(super) const fn to_opaque(self) -> u32 {
        let number = match self.number {
            Some(Number(number)) => number,
            None => 0,
        };
        number | if self.is_end { END } else { 0 }
    }

    pub(super) const fn from_opaque(opaque: u32) -> Self {
        let number = match opaque & GREATEST {
            0 => None,
            number => Some(Number(number)),
        };
        Self { number, is_end: opaque & END != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_as_they_went_and_numbers_never_become_none() {
        for number in [Number::FIRST, Number(77), Number(GREATEST), Number(GREATEST).next()] {
            for mark in [Mark::of(number), Mark::end(number)] {
                assert_eq!(Mark::from_opaque(mark.to_opaque()), mark);
            }
        }
        assert_eq!(Number(GREATEST).next(), Number::FIRST);
        assert_eq!(Mark::from_opaque(0), Mark { number: None, is_end: false });
    }
}
