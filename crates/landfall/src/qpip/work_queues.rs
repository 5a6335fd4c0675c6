//! The two queues of a queue pair, each its user's end: [`SendQueue`] and [`ReceiveQueue`],
//! and what is posted to them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use landfall_transport::memory::Memory;
use qpip::{Access, Operation, PostError, QueuePairId};

use super::doorbell::{Posting, Reach, WorkRing};
use super::error::Error;
use super::memory::{DomainName, MemoryRegion, Part};
use super::pair_state::PairState;
use super::state::{Handle, Submission};

/// What both queues of a pair share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) handle: Arc<Handle>,
    pub(super) id: QueuePairId,
    pub(super) domain: DomainName,
    pub(super) state: Arc<PairState>,
    pub(super) buffers: u16,
}

/// One of the two queues: the user's end.
pub(super) struct Queue {
    pub(super) common: Arc<Common>,
    pub(super) operation: Operation,
    pub(super) ring: WorkRing,
}

impl Queue {
    fn has_room(&mut self) -> bool {
        let (state, operation) = (&self.common.state, self.operation);
        self.ring.has_room(|| state.done(operation))
    }

    /// Puts a request into the ring; the bell is not rung.
    #[inline]
    fn put(&mut self, request: Posting<'_>) -> Result<(), PostError> {
        let Common { state, domain, buffers, .. } = &*self.common;
        if state.is_closed() {
            return Err(PostError::Ended);
        }
        if request.immediate.is_some() && !self.common.takes_words() {
            return Err(PostError::NoImmediates);
        }
        let wanted = match self.operation {
            Operation::Send => Access::Read,
            Operation::Receive => Access::Write,
        };
        let reach = Reach { domain: *domain, wanted, buffers: *buffers };
        self.ring.put(reach, request, || state.done(self.operation))
    }

    #[inline]
    fn ring(&self) {
        self.common.handle.doorbells.ring(self.common.id.index);
        self.common.handle.ring();
    }

    #[inline]
    fn post(&mut self, request: Posting<'_>) -> Result<(), PostError> {
        self.put(request)?;
        self.ring();
        Ok(())
    }

    /// Posts all of a list, or as many as can be, and rings once.
    fn post_all<'a>(
        &mut self,
        requests: impl Iterator<Item = Result<Posting<'a>, PostError>>,
    ) -> Result<(), PartlyPosted> {
        let mut posted = 0;
        let mut error = None;
        for request in requests {
            match request.and_then(|request| self.put(request)) {
                Ok(()) => posted += 1,
                Err(why) => {
                    error = Some(why);
                    break;
                }
            }
        }
        if posted > 0 {
            self.ring();
        }
        error.map_or(Ok(()), |error| Err(PartlyPosted { posted, error }))
    }
}

/// A send of a list: see [`SendQueue::post_all`].
///
/// ```
/// use landfall::qpip::SendRequest;
///
/// let silent: SendRequest<'_> = SendRequest { is_signaled: false, ..SendRequest::new(7, &[]) };
/// assert_eq!(silent.id, 7);
/// // With a word that arrives with the message, where both ends agreed on that.
/// let marked: SendRequest<'_> = SendRequest { immediate: Some(404), ..silent };
/// assert_eq!(marked.immediate, Some(404));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a, P = Part> {
    /// Your own name for it: the completion brings it back.
    pub id: u64,
    /// Where its bytes are, in order.
    pub from: &'a [P],
    /// To whom, where it is a datagram.
    pub to: Option<SocketAddr>,
    /// Does it complete when it is done well? One that does not is known to be done when
    /// the next one of this queue pair that does has completed.
    pub is_signaled: bool,
    /// A word that arrives with the end of the message, in the receiver's completion, where
    /// both ends have agreed on that
    /// ([`QueuePair::takes_immediates`](super::QueuePair::takes_immediates)).
    pub immediate: Option<u32>,
}

impl<'a, P> SendRequest<'a, P> {
    /// A message to the other end of a connection, which completes.
    #[must_use]
    pub const fn new(id: u64, from: &'a [P]) -> Self {
        Self { id, from, to: None, is_signaled: true, immediate: None }
    }
}

/// A receive of a list: see [`ReceiveQueue::post_all`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a, P = Part> {
    /// Your own name for it: the completion brings it back.
    pub id: u64,
    /// Where what comes goes, in order.
    pub into: &'a [P],
}

/// A list of requests was not posted whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the first {posted} requests are posted, and the next is not: {error}")]
pub struct PartlyPosted {
    /// This many, from the first on, are posted.
    pub posted: usize,
    /// Why the next is not.
    #[source]
    pub error: PostError,
}

/// The queue of messages to send of a [`QueuePair`](super::QueuePair).
pub struct SendQueue {
    pub(super) queue: Queue,
    pub(super) rules: SendRules,
    pub(super) inline: Option<InlineMemory>,
}

/// What can be sent at all.
#[derive(Clone, Copy)]
pub(super) struct SendRules {
    pub(super) is_shut_down: bool,
    /// Bound, where datagrams are sent; connected ones are addressed by their
    /// connection.
    pub(super) is_udp: bool,
    pub(super) is_bound: bool,
}

impl SendRules {
    fn check(self, to: Option<SocketAddr>) -> Result<(), PostError> {
        match (self.is_udp, to) {
            _ if self.is_shut_down => Err(PostError::Ended),
            (true, _) if !self.is_bound => Err(PostError::NotBound),
            (true, None) => Err(PostError::NoDestination),
            (false, Some(_)) => Err(PostError::NotADatagram),
            _ => Ok(()),
        }
    }
}

const fn posting<'a>(request: &SendRequest<'a>) -> Posting<'a> {
    let SendRequest { id, from, to, is_signaled, immediate } = *request;
    Posting { id, parts: from, to, is_signaled, immediate }
}

const fn room<'a>(id: u64, into: &'a [Part]) -> Posting<'a> {
    Posting { id, parts: into, to: None, is_signaled: true, immediate: None }
}

/// Where bytes lie that were handed over with their request: a place for each request that
/// can be posted, used in turn. A queue that has room has its oldest place free, for sends
/// are done in their order.
pub(super) struct InlineMemory {
    memory: MemoryRegion,
    size: u32,
    places: u32,
    next: u32,
}

impl InlineMemory {
    pub(super) fn new(
        handle: &Arc<Handle>,
        domain: DomainName,
        (places, size): (u32, u32),
    ) -> Result<Self, Error> {
        let bytes = Memory::zeroed(places as usize * size as usize);
        let memory = MemoryRegion::register(handle, domain, bytes, Access::Read);
        Ok(Self { memory: memory.map_err(|refused| refused.error)?, size, places, next: 0 })
    }

    /// The next place, for this many bytes.
    fn place(&self, len: usize) -> Result<Part, PostError> {
        let at = self.at();
        let is_short = len <= self.size as usize;
        let part = self.memory.part(at..at + len as u64).ok().filter(|_| is_short);
        part.ok_or(PostError::TooLong)
    }

    fn copy_in(&self, bytes: &[u8]) -> Result<(), PostError> {
        self.memory.copy_in(self.at(), bytes).map_err(|_| PostError::OutOfBounds)
    }

    fn at(&self) -> u64 {
        u64::from(self.next) * u64::from(self.size)
    }

    /// That place is taken.
    const fn advance(&mut self) {
        self.next = (self.next + 1) % self.places;
    }
}

impl SendQueue {
    /// Posts a message: see [`QueuePair::post_send`](super::QueuePair::post_send).
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post(&mut self, id: u64, from: &[Part]) -> Result<(), PostError> {
        self.post_request(SendRequest::new(id, from))
    }

    /// Posts a send with everything that can be chosen about one.
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_request(&mut self, request: SendRequest<'_>) -> Result<(), PostError> {
        self.rules.check(request.to)?;
        self.queue.post(posting(&request))
    }

    /// Posts all of these in their order, and rings the adapter's bell once.
    ///
    /// # Errors
    /// [`PartlyPosted`]: how many are posted, and why the next is not.
    pub fn post_all(&mut self, requests: &[SendRequest<'_>]) -> Result<(), PartlyPosted> {
        let rules = self.rules;
        let checked = requests.iter().map(|one| rules.check(one.to).map(|()| posting(one)));
        self.queue.post_all(checked)
    }

    /// Posts a message whose bytes are copied now: they are yours again at once. It has at
    /// most [`QueuePairOptions::inline`](super::QueuePairOptions::inline) bytes, and needs no registered memory of yours.
    ///
    /// # Errors
    /// [`PostError::TooLong`]; see [`PostError`]. Nothing is posted then.
    pub fn post_inline(
        &mut self,
        id: u64,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Result<(), PostError> {
        self.rules.check(to)?;
        let Some(inline) = &mut self.inline else { return Err(PostError::TooLong) };
        // What no queue takes is refused as that, however full this one is.
        let part = inline.place(bytes.len())?;
        if !self.queue.has_room() {
            return Err(PostError::QueueFull);
        }
        inline.copy_in(bytes)?;
        self.queue.post(Posting { id, parts: &[part], to, is_signaled: true, immediate: None })?;
        inline.advance();
        Ok(())
    }

    /// Posts a datagram: see [`QueuePair::post_send_to`](super::QueuePair::post_send_to).
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post_to(&mut self, id: u64, from: &[Part], to: SocketAddr) -> Result<(), PostError> {
        self.post_request(SendRequest { to: Some(to), ..SendRequest::new(id, from) })
    }
}

/// The queue of room for what comes of a [`QueuePair`](super::QueuePair).
pub struct ReceiveQueue {
    pub(super) queue: Queue,
    /// It takes its room from a [`SharedReceiveQueue`](super::SharedReceiveQueue).
    pub(super) is_shared: bool,
}

impl ReceiveQueue {
    /// Posts room: see [`QueuePair::post_receive`](super::QueuePair::post_receive).
    ///
    /// # Errors
    /// See [`PostError`]; nothing is posted then.
    #[inline]
    pub fn post(&mut self, id: u64, into: &[Part]) -> Result<(), PostError> {
        self.check()?;
        self.queue.post(room(id, into))
    }

    /// Posts all of these in their order, and rings the adapter's bell once.
    ///
    /// # Errors
    /// [`PartlyPosted`]: how many are posted, and why the next is not.
    pub fn post_all(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), PartlyPosted> {
        let checked = self.check();
        self.queue.post_all(
            requests.iter().map(|&ReceiveRequest { id, into }| checked.map(|()| room(id, into))),
        )
    }

    const fn check(&self) -> Result<(), PostError> {
        if self.is_shared { Err(PostError::SharedReceives) } else { Ok(()) }
    }
}

impl Common {
    /// Have both ends agreed on words with messages? Once they have they stay with it.
    pub(super) fn takes_words(&self) -> bool {
        self.state.takes_words() || {
            let takes = self.handle.look(|core| core.engine.takes_immediates(self.id));
            if takes {
                self.state.agree_on_words();
            }
            takes
        }
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        let id = self.id;
        self.handle.submit(Submission::DestroyPair(id));
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("queue_pair", &self.common.id)
            .field("depth", &self.ring.depth())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendQueue").field(&self.queue).finish()
    }
}

impl fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiveQueue").field(&self.queue).finish()
    }
}
