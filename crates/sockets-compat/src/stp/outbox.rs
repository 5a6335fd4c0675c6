//! [`Outbox`]: Transfers that go, in the order in which they are written.
//!
//! A write copies the message and starts a Transfer; the message is then on its way,
//! whatever becomes of the call. Anyone who waits for its ticket hears whether the other
//! side took it; of a message that nobody waited for, the next call tells.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use landfall::stp::{Connection, Ended, Error, Memory, Operation, Payload, Reason, Sent};

use super::inbox::{Mark, Number};
use super::{CloseGuard, Limits, failed};
use crate::duplex::total;
use crate::errors;
use crate::packets::{Outflow, Ticket};
use crate::waiting::Progress;

/// Transfers under way to the other side, in the order of their writes.
pub(super) struct Outbox {
    connection: Connection,
    limits: Limits,
    next: Number,
    tickets: u64,
    under_way: VecDeque<PendingSend>,
    bytes: usize,
    /// What became of messages that somebody waits for.
    settled: BTreeMap<Ticket, Option<io::Result<()>>>,
    /// What went wrong with one that nobody waits for.
    untold: Option<io::Error>,
    /// Why nothing is sent any more.
    broken: Option<i32>,
    has_ended: bool,
    close_guard: Arc<CloseGuard>,
}

struct PendingSend {
    ticket: Ticket,
    len: usize,
    operation: Operation<Sent>,
}

/// This many messages are under way at a time.
const MOST_UNDER_WAY: usize = 64;

impl Outbox {
    pub(super) fn new(
        connection: Connection,
        limits: Limits,
        close_guard: Arc<CloseGuard>,
    ) -> Self {
        Self {
            connection,
            limits,
            next: Number::FIRST,
            tickets: 0,
            under_way: VecDeque::new(),
            bytes: 0,
            settled: BTreeMap::new(),
            untold: None,
            broken: None,
            has_ended: false,
            close_guard,
        }
    }

    fn settle(&mut self, leaving: &PendingSend, result: Result<(), Error>) {
        self.bytes -= leaving.len;
        let result = result.map_err(|error| match error {
            // The one thing that concerns this message alone.
            Error::Ended { why: Ended::There(Reason::TooLong), .. } => errors::too_long(),
            other => {
                let error = failed(&other);
                self.broken = self.broken.or(error.raw_os_error()).or(Some(libc::EPIPE));
                error
            }
        });
        match (self.settled.get_mut(&leaving.ticket), result) {
            (Some(place), result) => *place = Some(result),
            (None, Err(error)) if self.untold.is_none() => self.untold = Some(error),
            _ => {}
        }
    }

    /// Puts a message on its way, once there is room for it.
    pub(super) fn poll_start(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<Ticket>> {
        self.make_progress(cx);
        if let Some(error) = self.untold.take() {
            return Poll::Ready(Err(error));
        }
        if self.has_ended {
            return Poll::Ready(Err(errors::broken_pipe()));
        }
        if let Some(number) = self.broken {
            return Poll::Ready(Err(io::Error::from_raw_os_error(number)));
        }
        let len = total(from);
        let is_full = self.bytes.saturating_add(len) > self.limits.send_buffer;
        if !self.under_way.is_empty() && (is_full || self.under_way.len() >= MOST_UNDER_WAY) {
            return Poll::Pending;
        }
        let mark = Mark::of(self.next);
        Poll::Ready(Ok(self.begin(cx, mark, gather(from, len))))
    }

    fn begin(&mut self, cx: &mut Context<'_>, mark: Mark, payload: Payload) -> Ticket {
        let len = match &payload {
            Payload::Memory(memory) => memory.len(),
            _ => 0,
        };
        self.next = self.next.next();
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let operation = self.connection.send(payload).opaque(mark.to_opaque()).start();
        self.bytes += len;
        self.under_way.push_back(PendingSend { ticket, len, operation });
        // From now on news of it come here.
        self.make_progress(cx);
        ticket
    }

    /// Somebody waits for this one.
    fn await_ticket(&mut self, ticket: Ticket) {
        // It may be over already, and have told of it.
        let is_over = !self.under_way.iter().any(|leaving| leaving.ticket == ticket);
        let result = is_over.then(|| self.untold.take().map_or(Ok(()), Err));
        self.settled.insert(ticket, result);
    }
}

impl Outflow for Outbox {
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
        waits: bool,
    ) -> Poll<io::Result<Option<Ticket>>> {
        let ticket = ready!(self.poll_start(cx, from))?;
        if waits {
            self.await_ticket(ticket);
        }
        Poll::Ready(Ok(waits.then_some(ticket)))
    }

    fn poll_ticket(&mut self, cx: &mut Context<'_>, ticket: Ticket) -> Poll<io::Result<()>> {
        self.make_progress(cx);
        match self.settled.get_mut(&ticket).map(Option::take) {
            Some(None) => Poll::Pending,
            Some(Some(result)) => {
                self.settled.remove(&ticket);
                Poll::Ready(result)
            }
            None => Poll::Ready(Ok(())),
        }
    }

    fn leave_ticket(&mut self, ticket: Ticket) {
        if let Some(Some(Err(error))) = self.settled.remove(&ticket) {
            self.untold.get_or_insert(error);
        }
    }

    /// All that is under way was taken by the other side.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.make_progress(cx);
        match self.untold.take() {
            Some(error) => Poll::Ready(Err(error)),
            None if self.under_way.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    fn end(&mut self, cx: &mut Context<'_>) {
        if !self.has_ended {
            self.has_ended = true;
            let mark = Mark::end(self.next);
            self.begin(cx, mark, Payload::Memory(Memory::zeroed(0)));
        }
    }

    fn take_untold(&mut self) -> Option<io::Error> {
        self.untold.take()
    }
}

impl Progress for Outbox {
    /// Hears what became of those under way.
    fn make_progress(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while let Some(leaving) = self.under_way.get_mut(index) {
            match Pin::new(&mut leaving.operation).poll(cx) {
                Poll::Pending => index += 1,
                Poll::Ready(result) => {
                    if let Some(leaving) = self.under_way.remove(index) {
                        self.settle(&leaving, result.map(drop).map_err(Error::from));
                    }
                }
            }
        }
    }
}

/// One copy, into memory that is lent for the Transfer.
fn gather(from: &[IoSlice<'_>], len: usize) -> Payload {
    let mut memory = Memory::zeroed(len);
    let mut at = 0;
    for part in from {
        memory[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Payload::Memory(memory)
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let under_way = std::mem::take(&mut self.under_way);
        self.close_guard.leave(under_way.into_iter().map(|leaving| leaving.operation));
    }
}
