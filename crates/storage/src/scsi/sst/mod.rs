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
pub use landfall_scsi::sst::{Answer, GOOD, MESSAGE, Request};
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
///
/// What has happened is looked for when all that had happened before is dealt with; what was begun
/// meanwhile leaves with one turn then. So a turn and a look are for many commands where many are
/// under way.
struct Exchange<T> {
    connection: Connection,
    inbox: Arc<Inbox<T>>,
    /// Not dealt with yet.
    happened: VecDeque<Happened<T>>,
    /// Behind that.
    broken: Option<Error>,
    offer: Option<NextOffer>,
    receiving: Vec<(u32, Operation<Message>)>,
    sending: Vec<(u32, Operation<Sent>)>,
}

impl<T> Exchange<T> {
    fn new(connection: Connection, inbox: &Arc<Inbox<T>>) -> Self {
        Self {
            connection,
            inbox: Arc::clone(inbox),
            happened: VecDeque::new(),
            broken: None,
            offer: None,
            receiving: Vec::new(),
            sending: Vec::new(),
        }
    }

    /// Sends a Transfer with these four bytes.
    fn send(&mut self, opaque: u32, payload: impl Into<Payload>) {
        self.sending.push((opaque, self.connection.send(payload).opaque(opaque).start_later()));
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
        self.receiving.push((offer.opaque(), offer.accept(memory).start_later()));
    }

    /// Collects all that has happened.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.sending.len();
        // Where one failed the connection is over, or the other end does not want it.
        self.sending.retain_mut(|(_, sending)| Pin::new(sending).poll(cx).is_pending());
        if self.sending.len() < before {
            self.happened.push_back(Happened::Sent);
        }
        // In the order in which they were offered: what the other end sent when it knew that
        // something had arrived comes behind that.
        let happened = &mut self.happened;
        self.receiving.retain_mut(|(opaque, receiving)| match Pin::new(receiving).poll(cx) {
            Poll::Ready(landed) => {
                happened.push_back(Happened::Landed(*opaque, Box::new(landed)));
                false
            }
            Poll::Pending => true,
        });
        {
            let mut inbox = self.inbox.state();
            happened.extend(inbox.posted.drain(..).map(Happened::Posted));
            if inbox.is_over {
                happened.push_back(Happened::Over);
            } else if inbox.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                inbox.waker = Some(cx.waker().clone());
            }
        }
        while self.broken.is_none() {
            let connection = &self.connection;
            let begin = || {
                let connection = connection.clone();
                Box::pin(async move { connection.offer().await }) as NextOffer
            };
            let Poll::Ready(offered) = self.offer.get_or_insert_with(begin).as_mut().poll(cx)
            else {
                break;
            };
            self.offer = None;
            match offered {
                Ok(offer) => self.happened.push_back(Happened::Offered(offer)),
                Err(error) => self.broken = Some(error),
            }
        }
        let is_nothing = self.happened.is_empty() && self.broken.is_none();
        if is_nothing { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Waits for what happens next.
    fn next(&mut self) -> Result<Happened<T>, Error> {
        loop {
            if let Some(happened) = self.happened.pop_front() {
                return Ok(happened);
            }
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            self.connection.turn();
            let connection = blocking::Connection::from(self.connection.clone());
            connection.wait(poll_fn(|cx| self.poll(cx)));
        }
    }
}
