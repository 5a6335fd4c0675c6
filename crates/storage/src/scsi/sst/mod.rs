//! SCSI over the Scheduled Transfer Protocol, after the shape of the SST draft: [`Initiator`], and
//! [`Server::listen_sst`](super::Server::listen_sst). Data of a command is a Transfer straight into
//! the buffer that it is for.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | what both ends do: Transfers that come and go, and what other threads ask for |
//! | `initiator` | commands, many at a time |
//! | `listen` | initiators that come in |
//! | `target` | a connection of an initiator |
//! | `unit` | a logical unit as an initiator uses it |

mod initiator;
mod listen;
mod target;
mod unit;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use landfall::stp::{
    Connection, Error, Failed, Memory, Message, Offer, Operation, Payload, Sent, blocking,
};

pub use initiator::{Completion, Initiator, InitiatorError, Pending};
pub use landfall_scsi::sst::{Answer, MESSAGE, Request};
pub(super) use listen::{address, end_all};
pub(super) use target::Replies;
pub use unit::{BLOCK, Inquiry, Unit, UnitError, units_of};

/// What other threads want of the one that has the connection.
pub(super) struct Inbox<T>(Mutex<InboxState<T>>);

struct InboxState<T> {
    posted: VecDeque<T>,
    waker: Option<Waker>,
    is_over: bool,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Arc<Self> {
        let state = InboxState { posted: VecDeque::new(), waker: None, is_over: false };
        Arc::new(Self(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, InboxState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it back where nobody will take it.
    fn post(&self, wanted: T) -> Result<(), T> {
        let mut state = self.state();
        if state.is_over {
            return Err(wanted);
        }
        state.posted.push_back(wanted);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Nothing more is taken: the connection ends.
    pub(super) fn end(&self) -> VecDeque<T> {
        let mut state = self.state();
        state.is_over = true;
        let waker = state.waker.take();
        let left = std::mem::take(&mut state.posted);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        left
    }
}

/// What has happened at a connection.
enum Happened<T> {
    /// The other end has a Transfer.
    Offered(Offer),
    /// All of a Transfer is at the other end.
    Sent,
    /// A Transfer with these four bytes has landed.
    Landed(u32, Box<Result<Message, Failed>>),
    /// Another thread wants something.
    Posted(T),
    /// Nothing more will be wanted.
    Over,
}

type NextOffer = Pin<Box<dyn Future<Output = Result<Offer, Error>> + Send>>;

/// Transfers of a connection that come and go.
struct Exchange<T> {
    connection: Connection,
    inbox: Arc<Inbox<T>>,
    offer: Option<NextOffer>,
    receiving: Vec<(u32, Operation<Message>)>,
    sending: Vec<(u32, Operation<Sent>)>,
}

impl<T> Exchange<T> {
    fn new(connection: Connection, inbox: &Arc<Inbox<T>>) -> Self {
        let inbox = Arc::clone(inbox);
        Self { connection, inbox, offer: None, receiving: Vec::new(), sending: Vec::new() }
    }

    /// Sends a Transfer with these four bytes.
    fn send(&mut self, opaque: u32, payload: impl Into<Payload>) {
        self.sending.push((opaque, self.connection.send(payload).opaque(opaque).start()));
    }

    /// What was to be sent with these four bytes, and was not, is not sent any more.
    fn withdraw(&mut self, opaque: u32) {
        self.sending.retain(|(other, _)| *other != opaque);
    }

    /// Is some of what was sent with these four bytes not at the other end?
    fn is_sending(&self, opaque: u32) -> bool {
        self.sending.iter().any(|(other, _)| *other == opaque)
    }

    /// What comes with these four bytes is not wanted any more.
    fn give_up(&mut self, opaque: u32) {
        self.receiving.retain(|(other, _)| *other != opaque);
    }

    /// Takes what is offered into memory.
    fn accept(&mut self, offer: Offer, memory: Memory) {
        self.receiving.push((offer.opaque(), offer.accept(memory).start()));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Happened<T>, Error>> {
        let is_sent = |(_, sending): &mut (u32, Operation<Sent>)| {
            // Where it failed the connection is over, or the other end does not want it.
            Pin::new(sending).poll(cx).is_ready()
        };
        if let Some(at) = self.sending.iter_mut().position(is_sent) {
            drop(self.sending.swap_remove(at));
            return Poll::Ready(Ok(Happened::Sent));
        }
        // In the order in which they were offered: what the other end sent when it knew that
        // something had arrived comes behind that.
        for at in 0..self.receiving.len() {
            let (opaque, receiving) = &mut self.receiving[at];
            if let Poll::Ready(landed) = Pin::new(receiving).poll(cx) {
                let opaque = *opaque;
                drop(self.receiving.remove(at));
                return Poll::Ready(Ok(Happened::Landed(opaque, Box::new(landed))));
            }
        }
        {
            let mut inbox = self.inbox.state();
            if let Some(wanted) = inbox.posted.pop_front() {
                return Poll::Ready(Ok(Happened::Posted(wanted)));
            }
            if inbox.is_over {
                return Poll::Ready(Ok(Happened::Over));
            }
            inbox.waker = Some(cx.waker().clone());
        }
        let connection = self.connection.clone();
        let offer =
            self.offer.get_or_insert_with(|| Box::pin(async move { connection.offer().await }));
        let Poll::Ready(offered) = offer.as_mut().poll(cx) else { return Poll::Pending };
        self.offer = None;
        Poll::Ready(offered.map(Happened::Offered))
    }

    /// Waits for what happens next.
    fn next(&mut self) -> Result<Happened<T>, Error> {
        let connection = blocking::Connection::from(self.connection.clone());
        connection.wait(poll_fn(|cx| self.poll(cx)))
    }
}
