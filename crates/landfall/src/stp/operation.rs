//! [`Operation`]: something under way, as a future.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use landfall_placement::Duration;
use landfall_transport::memory::Memory;
use stp_core::wire::Reason;
use stp_core::{Ended, Priority};

use super::connection::Inner;
use super::deadline;
use super::error::{Error, Failed};
use super::memory::{Held, Message, Returning};
use super::remote::RemoteMemory;
use super::state::{Handle, Outcome, Request, Submission, Ticket};

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
    priority: Option<Priority>,
    result: PhantomData<fn() -> T>,
}

enum Stage {
    /// Not begun.
    New(Request, Option<Held>),
    /// It could not be.
    Failed(Failed),
    Started(Arc<Ticket>),
    /// Over; the memory that was lent for it comes back.
    Returning(Outcome, Returning),
    Over,
}

impl<T> Operation<T> {
    pub(crate) fn new(connection: &Arc<Inner>, request: Request, held: Option<Held>) -> Self {
        Self::at(connection, Stage::New(request, held))
    }

    /// With memory, if that can be held.
    pub(crate) fn holding(
        connection: &Arc<Inner>,
        held: Result<Held, Failed>,
        request: impl FnOnce(landfall_placement::Area) -> Request,
    ) -> Self {
        match held {
            Ok(held) => Self::new(connection, request(held.area()), Some(held)),
            Err(failed) => Self::failed(connection, Some(failed)),
        }
    }

    /// It cannot be begun.
    pub(crate) fn failed(connection: &Arc<Inner>, why: Option<Failed>) -> Self {
        let unknown = || Error::Refused(stp_core::Error::Unknown).into();
        Self::at(connection, Stage::Failed(why.unwrap_or_else(unknown)))
    }

    fn at(connection: &Arc<Inner>, stage: Stage) -> Self {
        Self { connection: Arc::clone(connection), stage, priority: None, result: PhantomData }
    }

    /// Begins it now, and does not wait for the first poll.
    pub fn start(mut self) -> Self {
        self.begin();
        self
    }

    /// Begins it with the next turn of its endpoint: what is begun so leaves together, with as few
    /// calls of the kernel as possible. A turn is made by anyone who calls or waits, or at once by
    /// [`Connection::turn`](super::Connection::turn).
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let connection = client.connect(server.local().unwrap(), 7)?;
    ///
    /// let sends: Vec<_> = (0..10).map(|_| connection.send("many").start_later()).collect();
    /// connection.as_async().turn();
    /// let there = listener.accept()?;
    /// for _ in &sends {
    ///     there.receive(Memory::zeroed(4)).wait()?;
    /// }
    /// for send in sends {
    ///     send.wait()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_later(mut self) -> Self {
        self.begin_by(|handle, start| handle.submit_later(start));
        self
    }

    /// Whether it goes before others that wait: for a free slot of its connection, for the
    /// receiver's grants, or for its sender's path. Without this it has the priority
    /// [of its connection](super::Connection::set_priority). It is this side's wish, and the
    /// other side does not hear of it. Puts, FetchOps and requests for regions only wait for
    /// slots by it. No effect once it has begun.
    ///
    /// ```
    /// use landfall::stp::{Memory, Priority, Transport, blocking::Endpoint};
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let connection = client.connect(server.local().unwrap(), 7)?;
    ///
    /// let backup = connection.send(vec![1; 100_000]).priority(Priority::Low).start();
    /// let alarm = connection.send(Memory::from_bytes(b"fire")).priority(Priority::High).start();
    /// let there = listener.accept()?;
    /// for _ in 0..2 {
    ///     let receiving = there.receive(Memory::zeroed(100_000)).priority(Priority::High);
    ///     receiving.wait()?;
    /// }
    /// alarm.wait()?;
    /// backup.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        if matches!(self.stage, Stage::New(..)) {
            self.priority = Some(priority);
        }
        self
    }

    /// Waits for so long at most, in a task. What is not over then is dropped, which cancels
    /// it: its memory is freed when nobody uses it any more. To have that back, use
    /// [`wait_for`](Self::wait_for) and [`cancel`](Self::cancel).
    ///
    /// ```
    /// use landfall::stp::{Error, Memory, Transport, blocking::Endpoint};
    /// use std::time::Duration;
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let _client = client.connect(server.local().unwrap(), 7)?;
    /// let connection = listener.accept()?;
    ///
    /// // Nothing comes in time.
    /// let limit = Duration::from_millis(5);
    /// let message = server.wait(connection.receive(Memory::zeroed(1_000)).within(limit));
    /// assert!(matches!(message.unwrap_err().into(), Error::TimedOut { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`], and those of the operation.
    pub async fn within(self, limit: Duration) -> Result<T, Failed>
    where
        T: Output,
    {
        let handle = Arc::clone(self.handle());
        deadline::within(&handle, limit, self).await?
    }

    /// Ends it early, and lets it come to its end: the memory that was lent for it is given
    /// back there, as soon as nobody uses it, by [`Failed::into_memory`]. What is over already
    /// stays what it is, and a Put or FetchOp that was begun takes effect.
    ///
    /// Dropping it cancels it as well, and frees its memory.
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    /// use std::time::Duration;
    ///
    /// let server = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let client = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = server.listen(7)?;
    /// let connection = client.connect(server.local().unwrap(), 7)?;
    ///
    /// // Nothing comes in time.
    /// let receiving = connection.receive(Memory::zeroed(1000));
    /// let mut receiving = receiving.wait_for(Duration::from_millis(1)).unwrap_err();
    /// receiving.cancel();
    /// let memory = receiving.wait().unwrap_err().into_memory();
    /// assert_eq!(memory.unwrap().len(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&mut self) {
        if let Stage::Started(ticket) = &self.stage {
            if !ticket.is_over() {
                self.connection.handle.submit(Submission::Cancel(Arc::clone(ticket)));
            }
            return;
        }
        if matches!(self.stage, Stage::New(..)) {
            self.give_up();
            if let Stage::New(_, held) = std::mem::replace(&mut self.stage, Stage::Over) {
                let outcome = Outcome::Ended { len: 0, why: Ended::Here };
                self.stage = match held.and_then(Held::end) {
                    Some(returning) => Stage::Returning(outcome, returning),
                    None => Stage::Failed(failed(outcome).into()),
                };
            }
        }
    }

    /// What was offered, and is not taken after all, is refused.
    fn give_up(&self) {
        let submission = match &self.stage {
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

    fn begin(&mut self) {
        self.begin_by(|handle, start| handle.submit(start));
    }

    fn begin_by(&mut self, submit: impl FnOnce(&Handle, Submission)) {
        if matches!(self.stage, Stage::New(..))
            && let Stage::New(request, held) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            let (connection, ticket) = (self.connection.id, Arc::<Ticket>::default());
            let priority = self.priority;
            self.stage = Stage::Started(Arc::clone(&ticket));
            let start = Submission::Start { connection, request, held, ticket, priority };
            submit(&self.connection.handle, start);
        }
    }

    /// What those who look at its progress share with it; of what is over, or could not
    /// begin, something that tells just that.
    pub(crate) fn looked_at(&mut self) -> (&Arc<Handle>, Arc<Ticket>) {
        self.begin();
        let ticket = match &self.stage {
            Stage::Started(ticket) => Arc::clone(ticket),
            _ => Arc::new(Ticket::over()),
        };
        (&self.connection.handle, ticket)
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
            if let Request::Put { options, .. } = request {
                options.notice = true;
            }
        })
    }

    /// Nobody waits for its end: the other side answers it together with others, which saves a
    /// packet for each where they are short. That it is done is known with the next one that is
    /// answered, of which there is one in sixteen; and otherwise after a time-out, about
    /// 5 ms. No effect once it has begun.
    ///
    /// ```
    /// use landfall::stp::{Memory, RemoteRights, Transport, blocking::Endpoint};
    ///
    /// let there = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let here = Endpoint::bind(Transport::udp("127.0.0.1:0".parse()?))?;
    /// let listener = there.listen(7)?;
    /// let connection = here.connect(there.local().unwrap(), 7)?;
    /// let accepted = listener.accept()?;
    /// let asked = connection.request_region(1, 1024, RemoteRights::PUT).start();
    /// let region = there.register(Memory::zeroed(1024))?;
    /// let _exposed = accepted.region_request()?.expose(&region.whole(), RemoteRights::PUT)?;
    /// let remote = asked.wait()?;
    ///
    /// let word = |n: u64| remote.put(8 * n, n.to_le_bytes().to_vec());
    /// let words: Vec<_> = (0..8).map(|n| word(n).answered_later().start()).collect();
    /// // The answer of this one tells of all.
    /// word(8).wait()?;
    /// for word in words {
    ///     word.wait()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn answered_later(self) -> Self {
        self.change(|request| {
            if let Request::Put { options, .. } = request {
                options.answered_later = true;
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
    type Output = Result<T, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Failed>> {
        self.begin();
        if let Stage::Started(ticket) = &self.stage {
            let Poll::Ready((outcome, held)) = ticket.poll(cx.waker()) else {
                return Poll::Pending;
            };
            self.stage = Stage::Over;
            match held.and_then(Held::end) {
                None => return Poll::Ready(result(outcome, None, &self.connection)),
                Some(returning) => self.stage = Stage::Returning(outcome, returning),
            }
        }
        match &self.stage {
            Stage::Returning(outcome, returning) => {
                let outcome = *outcome;
                let Poll::Ready(memory) = returning.poll(cx) else { return Poll::Pending };
                self.stage = Stage::Over;
                Poll::Ready(match memory {
                    Ok(memory) => result(outcome, Some(memory), &self.connection),
                    Err(error) => Err(error.into()),
                })
            }
            Stage::Failed(_) => match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Failed(failed) => Poll::Ready(Err(failed)),
                _ => Poll::Ready(Err(Error::EndpointClosed.into())),
            },
            // Polled after its end.
            _ => Poll::Ready(Err(Error::Refused(stp_core::Error::Unknown).into())),
        }
    }
}

/// What its user gets: the memory comes with it, whatever became of it.
fn result<T: Output>(
    outcome: Outcome,
    mut memory: Option<Memory>,
    connection: &Arc<Inner>,
) -> Result<T, Failed> {
    T::from_outcome(outcome, &mut memory, connection).map_err(|why| Failed::new(why, memory))
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        match &self.stage {
            Stage::Started(ticket) if !ticket.is_over() => {
                self.connection.handle.submit(Submission::Forget(Arc::clone(ticket)));
            }
            _ => self.give_up(),
        }
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
    /// This many bytes: fewer than were sent where the other side took a part.
    pub len: u64,
    /// The memory, where it was lent for this operation.
    pub memory: Option<Memory>,
}

/// A Transfer is in the memory that was chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// This many bytes are in place.
    pub len: u64,
    /// This many the sender had.
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
            memory: &mut Option<Memory>,
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
        memory: &mut Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Done { len } => Ok(Self { len, memory: memory.take() }),
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for Put {
    fn from_outcome(
        outcome: Outcome,
        memory: &mut Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Done { .. } => Ok(Self { memory: memory.take() }),
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for Received {
    fn from_outcome(
        outcome: Outcome,
        _: &mut Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
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
        memory: &mut Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Received { len, offered, opaque } => {
                let memory = memory.take().ok_or(Error::EndpointClosed)?;
                Ok(Self { memory, len: len as usize, offered, opaque })
            }
            other => Err(failed(other)),
        }
    }
}

#[allow(private_interfaces, reason = "nobody else can implement it")]
impl Output for u64 {
    fn from_outcome(
        outcome: Outcome,
        _: &mut Option<Memory>,
        _: &Arc<Inner>,
    ) -> Result<Self, Error> {
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
        _: &mut Option<Memory>,
        connection: &Arc<Inner>,
    ) -> Result<Self, Error> {
        match outcome {
            Outcome::Region(region) => Ok(Self::new(connection, region)),
            other => Err(failed(other)),
        }
    }
}
