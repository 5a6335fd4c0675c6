//! [`Operation`]: something under way, as a future.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall_transport::memory::Memory;
use stp_core::wire::Reason;

use super::connection::Inner;
use super::core::{Handle, Outcome, Request, Submission, Ticket};
use super::error::Error;
use super::memory::{Held, Message, Returning};
use super::remote::RemoteMemory;

/// Something under way, with its result.
///
/// It begins when it is first polled, or at once with [`start`](Self::start).
/// What was started in an order begins in that order. **Dropping it cancels
/// it**: the engine is told, and the memory stays lent until the engine says
/// that nobody uses it. A Put or FetchOp that was begun takes effect
/// nevertheless.
#[must_use = "it begins when it is polled or started, and is cancelled when it is dropped"]
pub struct Operation<T> {
    connection: Arc<Inner>,
    stage: Stage,
    result: PhantomData<fn() -> T>,
}

enum Stage {
    /// Not begun.
    New(Request, Option<Held>),
    /// It could not be.
    Failed(Error),
    Started(Arc<Ticket>),
    /// Over; the memory that was lent for it comes back.
    Returning(Outcome, Returning),
    Over,
}

impl<T> Operation<T> {
    pub(crate) fn new(connection: &Arc<Inner>, request: Request, held: Option<Held>) -> Self {
        let stage = Stage::New(request, held);
        Self { connection: Arc::clone(connection), stage, result: PhantomData }
    }

    /// With memory, if that can be held.
    pub(crate) fn holding(
        connection: &Arc<Inner>,
        held: Result<Held, Error>,
        request: impl FnOnce(landfall_placement::Area) -> Request,
    ) -> Self {
        match held {
            Ok(held) => Self::new(connection, request(held.area()), Some(held)),
            Err(error) => Self::failed(connection, Some(error)),
        }
    }

    /// It cannot be begun.
    pub(crate) fn failed(connection: &Arc<Inner>, why: Option<Error>) -> Self {
        let why = why.unwrap_or(Error::Refused(stp_core::Error::Unknown));
        let stage = Stage::Failed(why);
        Self { connection: Arc::clone(connection), stage, result: PhantomData }
    }

    /// Begins it now, and does not wait for the first poll.
    pub fn start(mut self) -> Self {
        self.begin();
        self
    }

    fn begin(&mut self) {
        if matches!(self.stage, Stage::New(..))
            && let Stage::New(request, held) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            let (connection, ticket) = (self.connection.id, Arc::<Ticket>::default());
            self.stage = Stage::Started(Arc::clone(&ticket));
            let start = Submission::Start { connection, request, held, ticket };
            self.connection.handle.submit(start);
        }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.connection.handle
    }

    fn change(mut self, change: impl FnOnce(&mut Request)) -> Self {
        if let Stage::New(request, _) = &mut self.stage {
            change(request);
        }
        self
    }
}

impl Operation<Sent> {
    /// Four bytes for the user at the other side. No effect once it has begun.
    pub fn opaque(self, bytes: u32) -> Self {
        self.change(|request| {
            if let Request::Send { opaque, .. } | Request::AnswerRead { opaque, .. } = request {
                *opaque = bytes;
            }
        })
    }
}

impl Operation<Put> {
    /// The user of the region is told ([`Exposed::written`](super::Exposed::written)).
    /// No effect once it has begun.
    pub fn with_notice(self) -> Self {
        self.change(|request| {
            if let Request::Put { wants_notice, .. } = request {
                *wants_notice = true;
            }
        })
    }
}

impl<T: Receives> Operation<T> {
    /// Takes the start of a Transfer that is longer than the memory; without
    /// this it is refused, and both sides learn that it is too long. No effect
    /// once it has begun.
    pub fn taking_part(self) -> Self {
        self.change(|request| {
            if let Request::Receive { takes_part, .. } | Request::Accept { takes_part, .. } =
                request
            {
                *takes_part = true;
            }
        })
    }
}

impl<T: Output> Future for Operation<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        self.begin();
        if let Stage::Started(ticket) = &self.stage {
            let Poll::Ready((outcome, held)) = ticket.poll(cx.waker()) else {
                return Poll::Pending;
            };
            self.stage = Stage::Over;
            match held.and_then(Held::end) {
                None => return Poll::Ready(T::from_outcome(outcome, None, &self.connection)),
                Some(returning) => self.stage = Stage::Returning(outcome, returning),
            }
        }
        match &self.stage {
            Stage::Returning(outcome, returning) => {
                let outcome = *outcome;
                let Poll::Ready(memory) = returning.poll(cx) else { return Poll::Pending };
                self.stage = Stage::Over;
                Poll::Ready(match memory {
                    Ok(memory) => T::from_outcome(outcome, Some(memory), &self.connection),
                    Err(error) => Err(error),
                })
            }
            Stage::Failed(_) => match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Failed(error) => Poll::Ready(Err(error)),
                _ => Poll::Ready(Err(Error::EndpointClosed)),
            },
            // Polled after its end.
            _ => Poll::Ready(Err(Error::Refused(stp_core::Error::Unknown))),
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        let submission = match &self.stage {
            Stage::Started(ticket) if ticket.is_over() => return,
            Stage::Started(ticket) => Submission::Forget(Arc::clone(ticket)),
            // What was offered, and is not taken after all, is refused.
            Stage::New(Request::Accept { receive, .. }, _) => {
                Submission::RefuseOffer(*receive, Reason::Refused)
            }
            Stage::New(Request::AnswerRead { read, .. }, _) => {
                Submission::RefuseRead(*read, Reason::Refused)
            }
            _ => return,
        };
        self.connection.handle.submit(submission);
    }
}

impl<T> fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::New(..) => "not begun",
            Stage::Failed(_) => "failed",
            Stage::Started(_) => "under way",
            Stage::Returning(..) | Stage::Over => "over",
        };
        f.debug_struct("Operation").field("stage", &stage).finish_non_exhaustive()
    }
}

/// All of a Transfer is in place at the other side.
#[derive(Debug)]
pub struct Sent {
    /// So many bytes: fewer than were sent where the other side took a part.
    pub len: u64,
    /// The memory, where it was lent for this operation.
    pub memory: Option<Memory>,
}

/// A Transfer is in the memory that was chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// So many bytes are in place.
    pub len: u64,
    /// So many the sender had.
    pub offered: u64,
    /// Four bytes of the sender's user.
    pub opaque: u32,
}

/// Bytes are in a region of the other side.
#[derive(Debug)]
pub struct Put {
    /// The memory, where it was lent for this operation.
    pub memory: Option<Memory>,
}

mod sealed {
    use super::{Arc, Error, Inner, Memory, Outcome};

    /// What becomes of an outcome.
    pub trait Output: Sized {
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "nobody else can implement it")]
        fn from_outcome(
            outcome: Outcome,
            memory: Option<Memory>,
            connection: &Arc<Inner>,
        ) -> Result<Self, Error>;
    }
}

pub(crate) use sealed::Output;

/// What a receive gives.
pub trait Receives: sealed::Output {}

impl Receives for Message {}
impl Receives for Received {}

/// What is no success is one of these.
fn failed(outcome: Outcome) -> Error {
    match outcome {
        Outcome::Refused(error) => Error::Refused(error),
        Outcome::Ended { len, why } => Error::Ended { len, why },
        Outcome::Closed { why } => Error::Closed { why },
        _ => Error::Refused(stp_core::Error::Unknown),
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for Sent {
    fn from_outcome(
        outcome: Outcome,
        memory: Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Done { len } => Ok(Self { len, memory }),
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for Put {
    fn from_outcome(
        outcome: Outcome,
        memory: Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Done { .. } => Ok(Self { memory }),
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for Received {
    fn from_outcome(outcome: Outcome, _: Option<Memory>, _: &Arc<Inner>) -> Result<Self, Error> {
        match outcome {
            Outcome::Received { len, offered, opaque } => Ok(Self { len, offered, opaque }),
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for Message {
    fn from_outcome(
        outcome: Outcome,
        memory: Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match (outcome, memory) {
            (Outcome::Received { len, offered, opaque }, Some(memory)) => {
                Ok(Self { memory, len: len as usize, offered, opaque })
            }
            (other, _) => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for u64 {
    fn from_outcome(outcome: Outcome, _: Option<Memory>, _: &Arc<Inner>) -> Result<Self, Error> {
        match outcome {
            Outcome::Fetched { old } => Ok(old),
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for RemoteMemory {
    fn from_outcome(
        outcome: Outcome,
        _: Option<Memory>,
        connection: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Region(region) => Ok(Self::new(connection, region)),
            other => Err(failed(other)),
        }
    }
}
